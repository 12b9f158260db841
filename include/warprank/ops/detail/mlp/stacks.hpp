// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stacks of ops/mlp.cuh as the kernels that fuse layers see them: the checks, the layers that a block can keep, and
/// the needs of blocks that share a layer. Stack is Mlp, which is defined there.

#include <algorithm>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/detail/mlp/policy.hpp"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// Up to this capacity the first layer is a launch of its own when it has this many inputs and others follow.
inline constexpr int64_t max_rows_of_split_first = 256, min_inputs_of_split_first = 256;

/// Experts [capacity, n * in] side by side, a gate [capacity, n].
template <class Stack>
void check_mix(const Stack& stack, const std::string& what, Problems& problems) {
  const auto num = [&](const FloatMatrix<const void>& experts) {
    return experts.data == nullptr || stack.in < 1 ? 0 : experts.cols / stack.in;
  };
  const int64_t num_own = num(stack.x), num_shared = num(stack.mix.shared);
  if (stack.first_is_done) problems.add(what, "a first layer that is done, or a mix", "both");
  if (stack.in < 1 || stack.in > max_fused_width)
    problems.add(what + "'s in", "1 to 256, as it mixes experts", std::to_string(stack.in));
  if (num_own < 1 || num_own + num_shared > max_mixed_experts)
    problems.add(what + "'s mix", "1 to 64 experts", std::to_string(num_own + num_shared));
  if (stack.x.cols != num_own * stack.in)
    problems.add(what + "'s experts", "a multiple of " + std::to_string(stack.in) + " columns",
                 std::to_string(stack.x.cols));
  gemm::check_optional_input(what + "'s gate", stack.mix.gate, stack.x.rows, num_own + num_shared, problems);
  if (stack.mix.shared.data != nullptr)
    check_matrix(what + "'s shared experts", stack.mix.shared, stack.x.rows, num_shared * stack.in, problems);
}

template <class Stack>
void check_stack(const Stack& stack, const std::string& what, int64_t depth, Problems& problems) {
  const int64_t num_layers = stack.layers.size();
  if (num_layers != depth)
    problems.add(what, "as many layers as the others of its launch, " + std::to_string(depth),
                 std::to_string(num_layers));
  if (num_layers == 0) return problems.add(what, "at least one layer", "none");
  const auto &first = stack.layers[0], &last = stack.layers[num_layers - 1];
  if (stack.first_is_done && num_layers == 1) problems.add(what, "layers behind the one that is done", "none");
  if (!stack.first_is_done && stack.mix.gate.values.data == nullptr && stack.x.type != DType::f16)
    problems.add(what + "'s x", "F16", name_of(stack.x.type));
  if (stack.first_is_done && (stack.in < 1 || stack.in > gemm::max_layer_width))
    problems.add(what + "'s in", "1 to 2^30", std::to_string(stack.in));
  if (stack.mix.gate.values.data != nullptr) check_mix(stack, what, problems);
  check_matrix(what + "'s x", stack.x, stack.x.rows, stack.first_is_done ? first.out : stack.x.cols, problems);
  check_matrix(what + "'s y", stack.y, stack.x.rows, last.out, problems);
  gemm::check_epilogue(stack, what, first.out, last.out, problems);
  const AxisInput<void>&bias = stack.row_bias, &last_bias = stack.last_row_bias;
  gemm::check_optional_input(what + "'s last_row_bias", last_bias, stack.x.rows, last.out, problems);
  const bool has_last_bias = last_bias.values.data != nullptr;
  if (has_last_bias && num_layers == 1)
    problems.add(what + "'s last_row_bias", "several layers", "one, which has row_bias");
  if (has_last_bias && bias.values.data != nullptr &&
      (bias.offsets != last_bias.offsets || bias.num_segments != last_bias.num_segments))
    problems.add(what + "'s last_row_bias", "the segments of row_bias", "others");
  for (int64_t l = 0; l < num_layers; ++l) {
    const std::string layer = what + "'s layer " + std::to_string(l);
    if (stack.layers[l].out < 1 || stack.layers[l].out > gemm::max_layer_width)
      problems.add(layer, "an out of 1 to 2^30", std::to_string(stack.layers[l].out));
    check_pointer(layer + "'s weights", stack.layers[l].weights, 16, problems);
    check_activation(stack.layers[l].activation, layer, problems);
  }
}

/// Whether the first layer has something to do on load, which only the fused kernel does.
template <class Stack>
bool needs_fused(const Stack& stack) {
  return stack.first_is_done || stack.mix.gate.values.data != nullptr;
}

/// The inputs of a layer of a stack.
template <class Stack>
int64_t inputs_of(const Stack& stack, int64_t l) {
  return l > 0 ? stack.layers[l - 1].out : needs_fused(stack) ? stack.in : stack.x.cols;
}

/// Whether a block can keep all outputs of a layer.
template <class Stack>
bool fits_fused(const Stack& stack, int64_t l) {
  const int64_t out = stack.layers[l].out;
  const bool is_wide_first = l == 0 && inputs_of(stack, 0) <= max_inputs_of_wide_first;
  return out <= (is_wide_first ? max_first_width : max_fused_width) &&
         (out > 1 || (l > 0 && l + 1 == stack.layers.size()));  // a head is the last of several
}

/// How many layers of a stack must be launched before a kernel can begin whose blocks keep all outputs.
template <class Stack>
int64_t num_separate(const Stack& stack, bool spread_first) {
  const int64_t depth = stack.layers.size();
  int64_t fused = depth;
  while (fused > 0 && depth - fused < max_fused_layers && fits_fused(stack, fused - 1)) --fused;
  if (spread_first && fused == 0 && !needs_fused(stack) && stack.x.rows <= max_rows_of_split_first &&
      stack.x.cols >= min_inputs_of_split_first)
    fused = 1;
  return depth - fused < 2 && !needs_fused(stack) ? depth : fused;  // one layer alone needs no fusing
}

template <class Stack>
int64_t num_separate(Span<const Stack> stacks, bool spread_first) {
  int64_t most = 0;
  for (const Stack& stack : stacks) most = std::max(most, num_separate(stack, spread_first));
  return most;
}

/// What the layers of stacks from some on need of blocks that share them.
struct SplitNeeds {
  bool can_be_split = false;
  int64_t widest = 1;       ///< pairs of 8 outputs
  int64_t most_staged = 0;  ///< inputs that go through shared memory
  bool is_wide = false;

  bool are_met_by(const SplitPolicy& policy) const {
    const int64_t room = policy.strips == 2 ? SplitBlock::max_staged_inputs : SplitBlock::max_staged_inputs_of_32;
    return can_be_split && policy.is_split() && most_staged <= room;
  }
};

/// Whether blocks that share a layer bring what the layer `first` of a stack reads, which is `x` or made of it, to
/// shared memory before: what is mixed, done, or not whole vectors.
template <class Stack>
bool is_staged_for_split(const Stack& stack, int64_t first, const FloatMatrix<const void>& x) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  return needs_fused(stack) || inputs_of(stack, first) % 8 != 0 || !is_aligned;
}

template <class Stack>
SplitNeeds split_needs(Span<const Stack> stacks, int64_t first) {
  int64_t widest = 1, most_staged = 0;
  bool is_wide = false;
  for (const Stack& stack : stacks) {
    const int64_t depth = stack.layers.size(), in = inputs_of(stack, first);
    if (depth - first > max_fused_layers || (depth - first < 2 && !needs_fused(stack))) return {};
    if (in > SplitBlock::max_width) return {};
    const bool is_aligned = reinterpret_cast<uintptr_t>(stack.x.data) % 16 == 0 && stack.x.stride % 8 == 0;
    if (needs_fused(stack) || in % 8 != 0 || (first == 0 && !is_aligned))
      most_staged = std::max(most_staged, stack.first_is_done ? stack.layers[0].out : in);
    is_wide |= in > SplitBlock::max_narrow_inputs;
    for (int64_t l = first; l < depth; ++l) {
      const int64_t out = stack.layers[l].out;
      if (out > SplitBlock::max_width || (out == 1 && (l == 0 || l + 1 < depth))) return {};
      is_wide |= !fits_fused(stack, l);
      widest = std::max(widest, (out + 15) / 16);
    }
    if (is_wide && needs_fused(stack)) return {};  // more rows would have no kernel
  }
  return {true, widest, most_staged, is_wide};
}

/// How the layers from `first` on are split.
template <class Stack>
SplitPolicy split_policy_of(Span<const Stack> stacks, int64_t first, int target) {
  const SplitNeeds needs = split_needs(stacks, first);
  if (!needs.can_be_split) return {};
  const auto tiles = [&](int64_t rows) {
    int64_t all = 0;
    for (const Stack& stack : stacks) all += (stack.x.rows + rows - 1) / rows;
    return all;
  };
  const SplitPolicy policy = split_policy(target, tiles, needs.widest, needs.is_wide, needs.most_staged);
  return needs.are_met_by(policy) ? policy : SplitPolicy{};
}

/// Whether a policy computes all layers of stacks in one launch.
template <class Stack>
bool fits_chain(Span<const Stack> stacks, const ChainPolicy& policy) {
  if (policy.split.is_split()) return split_needs(stacks, 0).are_met_by(policy.split);
  const bool is_wide = std::any_of(stacks.begin(), stacks.end(), [](const Stack& stack) {
    return !stack.layers.empty() && stack.layers[0].out > max_fused_width;
  });
  return num_separate(stacks, false) == 0 && !(is_wide && policy.tile != MlpTile::rows_16);
}

}}}  // namespace warprank::v0::detail::mlp
