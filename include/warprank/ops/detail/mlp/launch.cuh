// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/mlp.cuh: divides stacks between the kernel that fuses layers and those of single layers, and
/// launches. Stack is Mlp and Product is HeadProduct, which are defined there, for all to read.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/mlp/descriptor.cuh"
#include "warprank/ops/detail/mlp/plan_products.hpp"
#include "warprank/ops/detail/mlp/policy.hpp"
#include "warprank/ops/detail/mlp/rows.cuh"
#include "warprank/ops/detail/mlp/split.cuh"
#include "warprank/ops/detail/mlp/stacks.hpp"
#include "warprank/ops/detail/mlp/workspace_cursor.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// Stacks, divided.
struct Plan {
  std::vector<linear::Plan> levels;       ///< layers that are launched one after another, of all stacks together
  std::vector<int64_t> level_workspaces;  ///< where they begin in the workspace
  /// linear::Descriptor of all levels, then Descriptor of the fused layers, then HeadFactor
  std::vector<unsigned char> descriptors;
  std::vector<int64_t> in_workspace;  ///< where descriptors have addresses in the workspace, relative to its begin
  int target = 0;
  int64_t num_fused = 0;   ///< layers of each stack
  int64_t num_layers = 0;  ///< fused ones, of all stacks
  MlpTile tile = MlpTile::rows_16;
  bool is_wide = false;      ///< the fused kernel keeps more than 256 outputs of a first layer
  int64_t input_stride = 0;  ///< and x, and outputs of odd layers, so many halves from row to row
  int64_t num_blocks = 0;    ///< of the fused kernel
  SplitPolicy split;         ///< is_split: the fused kernel is that of mlp/split.cuh, and has
  device::Dim3 split_grid;
  SplitExchange exchange{};  ///< but for its addresses, which are here in the workspace:
  int64_t ended_at = 0, words_at = 0;
  int64_t workspace_bytes = 0;

  int num_launches() const { return static_cast<int>(levels.size()) + (num_fused > 0); }
};

/// A layer of a stack as one of ops/linear.cuh; `x` is what it reads.
template <class Stack>
LinearLayer layer_of(const Stack& stack, int64_t l, FloatMatrix<const void> x, FloatMatrix<void> y) {
  LinearLayer layer;
  layer.weights = stack.layers[l].weights;
  layer.x = {static_cast<const float16*>(x.data), x.rows, x.cols, x.stride};
  layer.num_rows = stack.num_rows;
  layer.activation = stack.layers[l].activation;
  if (l == 0) layer.row_bias = stack.row_bias;
  if (l + 1 == stack.layers.size()) {
    layer.multiply = stack.multiply;
    layer.residual = stack.residual;
    layer.residual_first = stack.residual_first;
    if (stack.last_row_bias.values.data != nullptr) layer.row_bias = stack.last_row_bias;
  }
  layer.y = y;
  return layer;
}

/// The same bytes, whatever their type.
inline FloatMatrix<const void> as_halves(const FloatMatrix<const void>& m) {
  const int64_t halves = size_of(m.type) / 2;
  return Matrix<const float16>(static_cast<const float16*>(m.data), m.rows, m.cols * halves, m.stride * halves);
}

/// The addresses that may be in the workspace.
template <class Visit>
void visit_addresses(linear::Descriptor& layer, Visit&& visit) {
  visit(layer.x), visit(layer.epilogue.y.data);
}
template <class Visit>
void visit_addresses(HeadFactor& factor, Visit&& visit) {
  visit(factor.words);
}

/// Appends it to the descriptors. What is in the workspace becomes relative to its begin, and is noted.
template <class Record>
void append(Record record, const WorkspaceCursor& memory, Plan& plan) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(&record);
  visit_addresses(record, [&](auto*& address) {
    if (!memory.has(address)) return;
    const auto at = reinterpret_cast<const unsigned char*>(&address) - begin;
    plan.in_workspace.push_back(static_cast<int64_t>(plan.descriptors.size()) + at);
    const auto offset = static_cast<uintptr_t>(WorkspaceCursor::offset_of(address));
    address = reinterpret_cast<std::remove_reference_t<decltype(address)>>(offset);
  });
  plan.descriptors.insert(plan.descriptors.end(), begin, begin + sizeof record);
}

/// What blocks that share a layer ask of it, but for what its place in the stack says.
inline void describe_shares(const SplitPolicy& policy, Descriptor& layer) {
  const ActivationKind f = layer.epilogue.activation.kind;
  layer.products.num_steps = (layer.inputs + 31) / 32;
  layer.products.num_pairs = (layer.outputs + 15) / 16;
  layer.products.shares = (layer.products.num_pairs + policy.pairs - 1) / policy.pairs;
  layer.finish.outputs = layer.outputs;
  layer.finish.least = f == ActivationKind::relu ? 0 : -std::numeric_limits<float>::infinity();
  layer.finish.is_simple = f == ActivationKind::relu || f == ActivationKind::identity;
  layer.finish.has_added = layer.epilogue.row_bias.data != nullptr || layer.epilogue.residual_first;
}

/// The fused layers, [first, depth), of all stacks; x [i] is what the first of them reads. `factors` by stack.
template <class Stack>
void plan_fused(Span<const Stack> stacks, int64_t first, const std::vector<FloatMatrix<const void>>& x,
                const std::vector<std::vector<HeadFactor>>& factors, const ChainPolicy* policy,
                const WorkspaceCursor& memory, Plan& plan) {
  int num_factors = 0;
  int64_t max_rows = 0, inputs = max_fused_width;
  for (const Stack& stack : stacks) {
    max_rows = std::max(max_rows, stack.x.rows);
    inputs = std::max(inputs, inputs_of(stack, first));
    plan.is_wide |= stack.layers[first].out > max_fused_width;
  }
  plan.tile = policy != nullptr ? policy->tile : choose_tile(plan.target, max_rows, plan.is_wide);
  plan.input_stride = staged_stride(std::min(inputs, RowsBlock::max_inputs_at_once(plan.tile)));
  const int64_t rows = rows_of_tile(plan.tile);
  for (int64_t i = 0; i < stacks.size(); ++i) {
    const Stack& stack = stacks[i];
    const int64_t depth = stack.layers.size();
    int words = 0, first_input = 0;  // that blocks exchange
    const bool is_staged = is_staged_for_split(stack, first, x[static_cast<size_t>(i)]);
    const bool has_bias_rows =
        (first == 0 && stack.row_bias.values.data != nullptr) || stack.last_row_bias.values.data != nullptr;
    for (int64_t l = first; l < depth; ++l) {
      const bool is_done = l == 0 && stack.first_is_done;
      const bool is_mixed = l == 0 && stack.mix.gate.values.data != nullptr;
      const int64_t in = l > first             ? stack.layers[l - 1].out
                         : is_done || is_mixed ? stack.in
                                               : x[static_cast<size_t>(i)].cols;
      FloatMatrix<const void> from = x[static_cast<size_t>(i)];
      from.cols = in;
      FloatMatrix<void> to = stack.y;
      to.cols = stack.layers[l].out;
      Descriptor layer{};
      static_cast<linear::Descriptor&>(layer) = linear::describe(layer_of(stack, l, from, to));
      layer.first_block = plan.num_blocks;
      layer.stack_depth = static_cast<int>(depth - first);
      layer.is_done = is_done;
      if (is_done) layer.sums = gemm::operand_of(x[static_cast<size_t>(i)]);
      if (is_mixed) {
        const auto num = [&](const FloatMatrix<const void>& m) { return static_cast<int>(m.cols / in); };
        layer.mix = {gemm::operand_of(stack.x),
                     gemm::operand_of(stack.mix.shared),
                     gemm::operand_of(stack.mix.gate.values),
                     stack.mix.gate.offsets,
                     stack.mix.gate.num_segments,
                     stack.mix.gate.values.rows,
                     num(stack.x),
                     stack.mix.shared.data == nullptr ? 0 : num(stack.mix.shared),
                     stack.mix.normalization};
      }
      if (l + 1 == depth) {
        layer.first_factor = static_cast<uint16_t>(num_factors);
        layer.num_factors = static_cast<uint8_t>(factors[static_cast<size_t>(i)].size());
        num_factors += layer.num_factors;
      }
      describe_shares(plan.split, layer);
      layer.finish.is_staged = is_staged;
      layer.finish.has_bias_rows = has_bias_rows;
      layer.products.first_input = first_input;
      layer.finish.first_output = words;
      first_input = words;
      if (!is_done)
        words += plan.split.strips * ((layer.outputs + 31) / 32) * static_cast<int>(SplitExchange::fragment_words);
      append(layer, memory, plan);
      ++plan.num_layers;
    }
    plan.num_blocks += (stack.x.rows + rows - 1) / rows;
  }
  for (const std::vector<HeadFactor>& of_stack : factors)
    for (const HeadFactor& factor : of_stack) append(factor, memory, plan);
  if (plan.num_blocks > max_blocks)
    raise(invalid_argument("mlps of one launch", "at most 2^31 - 1 blocks", std::to_string(plan.num_blocks)));
}

/// What the blocks of split stacks need beside the descriptors.
template <class Stack>
void plan_exchange(Span<const Stack> stacks, int64_t first, const std::vector<FloatMatrix<const void>>& x,
                   WorkspaceCursor& memory, Plan& plan) {
  int64_t tiles = 0, fragments = 0, staged = 0, bytes = 0;
  for (int64_t i = 0; i < stacks.size(); ++i) {
    const Stack& stack = stacks[i];
    const int64_t depth = stack.layers.size(), rows = plan.split.rows();
    int64_t own = 0;
    for (int64_t l = first; l < depth; ++l) {
      const PackedLinearLayout layout{inputs_of(stack, l), stack.layers[l].out};
      if (l + 1 < depth) own += plan.split.strips * ((layout.out + 31) / 32);
      bytes += layout.bias_offset();
    }
    tiles = std::max(tiles, (stack.x.rows + rows - 1) / rows);
    fragments = std::max(fragments, own);
    if (is_staged_for_split(stack, first, x[static_cast<size_t>(i)]))
      staged = std::max(staged, stack.first_is_done ? stack.layers[0].out : inputs_of(stack, first));
  }
  staged =
      std::min(staged, plan.split.strips == 2 ? SplitBlock::max_staged_inputs : SplitBlock::max_staged_inputs_of_32);
  plan.split_grid = {static_cast<unsigned>(plan.split.blocks), static_cast<unsigned>(tiles),
                     static_cast<unsigned>(stacks.size())};
  const int64_t all_tiles = tiles * stacks.size();
  plan.ended_at = WorkspaceCursor::offset_of(memory.take(SplitExchange::ended_bytes(all_tiles)));
  plan.words_at = WorkspaceCursor::offset_of(memory.take(SplitExchange::words_bytes(all_tiles, fragments)));
  plan.exchange.fragments = fragments;
  plan.exchange.input_stride = input_stride_of(staged);
  plan.exchange.max_looks = static_cast<int>(SplitBlock::least_looks + bytes / SplitBlock::bytes_of_look);
}

/// Checks the stacks and divides them: as `policy` says, which must fit, or else by rule.
template <class Stack, class Product>
Plan plan_mlp(Span<const Stack> stacks, Span<const Product> products, int target, bool spread_first,
              const ChainPolicy* policy) {
  Problems problems;
  if (target < 75) problems.add("target of mlps", "sm_75 or later", "sm_" + std::to_string(target));
  for (int64_t i = 0; i < stacks.size(); ++i)
    check_stack(stacks[i], name_of_stack(i), stacks[0].layers.size(), problems);
  problems.throw_if_any();
  std::vector<LinearLayer> ends;
  int64_t first = 0;
  if (policy != nullptr && !fits_chain(stacks, *policy))
    raise(invalid_argument("policy of mlps", "one that computes all their layers in one launch", policy->to_string()));
  SplitPolicy split = policy != nullptr ? policy->split : split_policy_of(stacks, first, target);
  if (!split.is_split() && policy == nullptr) {
    first = num_separate(stacks, false);
    split = split_policy_of(stacks, first, target);
  }
  if (!split.is_split() && policy == nullptr && spread_first) {
    first = num_separate(stacks, true);
    split = split_policy_of(stacks, first, target);
  }
  for (const Stack& stack : stacks) {
    ends.push_back(layer_of(stack, 0, as_halves(stack.x), stack.y));
    ends.back().multiply = stack.multiply;
    ends.back().residual = stack.residual;
  }
  for (const Stack& stack : stacks) {
    LinearLayer& of_mix = ends.emplace_back();
    of_mix.row_bias = stack.mix.gate;
    of_mix.multiply = stack.mix.shared;
    of_mix.residual = stack.last_row_bias.values;
  }
  for (const Product& product : products) ends.emplace_back().y = product.y;
  linear::check_overlaps<LinearLayer>(ends, problems);
  check_products(stacks, products, first, problems);
  for (int64_t i = 0; i < stacks.size(); ++i)
    if (first > 0 && needs_fused(stacks[i]))
      problems.add(name_of_stack(i) + ", whose first layer is done or mixes experts",
                   "layers that are all fused: of 2 to 256 outputs, 512 for the first if it has up to 64 inputs, 1 for "
                   "the last of several, and at most 8",
                   "others, here or in a stack beside it");
  problems.throw_if_any();

  Plan plan;
  plan.target = target;
  const int64_t depth = stacks.empty() ? 0 : stacks[0].layers.size();
  plan.num_fused = depth - first;
  plan.split = split;
  WorkspaceCursor memory;
  std::vector<FloatMatrix<const void>> x;
  for (const Stack& stack : stacks) x.push_back(stack.x);
  for (int64_t l = 0; l < first; ++l) {
    std::vector<LinearLayer> layers;
    for (int64_t i = 0; i < stacks.size(); ++i) {
      const int64_t rows = stacks[i].x.rows, out = stacks[i].layers[l].out, stride = (out + 7) / 8 * 8;
      FloatMatrix<void> y = stacks[i].y;
      if (l + 1 < depth)
        y = Matrix<float16>(reinterpret_cast<float16*>(memory.take(rows * stride * 2)), rows, out, stride);
      layers.push_back(layer_of(stacks[i], l, x[static_cast<size_t>(i)], y));
      x[static_cast<size_t>(i)] = Matrix<const float16>(static_cast<const float16*>(y.data), rows, out, y.stride);
    }
    plan.levels.push_back(linear::plan_linear<LinearLayer>(layers, target));
    const linear::Plan& level = plan.levels.back();
    plan.level_workspaces.push_back(WorkspaceCursor::offset_of(memory.take(level.workspace_bytes())));
    for (const linear::Descriptor& layer : level.descriptors) append(layer, memory, plan);
  }
  if (plan.num_fused > 0) plan_fused(stacks, first, x, factors_of(stacks, products, memory), policy, memory, plan);
  if (split.is_split()) plan_exchange(stacks, first, x, memory, plan);
  plan.workspace_bytes = memory.used();
  return plan;
}

WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch(const Plan& plan, const LaunchMemory& memory,
                                                    device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_MLP)
template <int Target, int Strips, int Pairs>
WARPRANK_HIDDEN inline void launch_split(const Plan& plan, const Descriptor* layers, void* workspace,
                                         device::Stream stream) {
  SplitExchange exchange = plan.exchange;
  exchange.ended = reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + plan.ended_at);
  exchange.words = reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + plan.words_at);
  device::launch_overlapping(
      {plan.split_grid, SplitBlock::threads, split_shared_bytes(plan.split, plan.exchange.input_stride), stream},
      split_mlp_kernel<Target, Strips, Pairs>, layers, static_cast<int>(plan.num_fused), exchange);
}

template <int Target, MlpTile Tile>
WARPRANK_HIDDEN inline void launch_rows(const Plan& plan, const Descriptor* layers, int num_layers,
                                        device::Stream stream) {
  const int64_t shared_bytes = rows_shared_bytes(Tile, plan.input_stride, plan.is_wide);
  device::launch_overlapping({static_cast<unsigned>(plan.num_blocks), RowsBlock::threads, shared_bytes, stream},
                             mlp_kernel<Target, Tile>, layers, num_layers, static_cast<int>(plan.input_stride));
}

WARPRANK_KERNELS_INLINE void launch(const Plan& plan, const LaunchMemory& memory, device::Stream stream) {
  const auto* at = static_cast<const unsigned char*>(memory.descriptors);
  for (size_t l = 0; l < plan.levels.size(); ++l) {
    linear::launch<float16>(plan.levels[l], {at, static_cast<char*>(memory.workspace) + plan.level_workspaces[l]},
                            stream);
    at += plan.levels[l].descriptors.size() * sizeof(linear::Descriptor);
  }
  const auto* layers = reinterpret_cast<const Descriptor*>(at);
  const auto num_layers = static_cast<int>(plan.num_layers);
  device::dispatch_target<75, 80>(plan.target, [&](auto target) {
    if (plan.split.is_split()) {
      if (plan.split.strips == 4)
        launch_split<target(), 4, 1>(plan, layers, memory.workspace, stream);
      else if (plan.split.pairs == 1)
        launch_split<target(), 2, 1>(plan, layers, memory.workspace, stream);
      else
        launch_split<target(), 2, 2>(plan, layers, memory.workspace, stream);
      return;
    }
    if (plan.tile == MlpTile::rows_16)
      launch_rows<target(), MlpTile::rows_16>(plan, layers, num_layers, stream);
    else
      launch_rows<target(), MlpTile::rows_32>(plan, layers, num_layers, stream);
  });
}
#endif

}}}  // namespace warprank::v0::detail::mlp
