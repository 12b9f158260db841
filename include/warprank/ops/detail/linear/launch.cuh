// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/linear.cuh: checks layers, cuts them into blocks, and launches. Layer is LinearLayer, which
/// is defined there, for all to read.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/gemm/check.hpp"
#include "warprank/ops/detail/linear/kernel.cuh"
#include "warprank/ops/pack_int8_linear.hpp"

namespace warprank { inline namespace v0 { namespace detail::linear {

/// Layers of one launch, cut into blocks.
struct Plan {
  std::vector<Descriptor> descriptors;
  int target = 0;
  LinearTiling tiling;
  bool is_plain = false;  ///< all of the layers
  bool is_int8 = false;   ///< the weights of all layers but heads
  int64_t num_blocks = 0;
  int64_t num_tickets = 0, num_partials = 0;

  /// The tickets come first.
  int64_t partials_offset() const { return (num_tickets * 4 + 255) / 256 * 256; }
  int64_t workspace_bytes() const { return partials_offset() + (num_partials * 4 + 255) / 256 * 256; }
};

inline void check_groups(const RowGroups& groups, int64_t rows, const std::string& what, Problems& problems) {
  if (groups.num_groups < 1 || groups.num_groups > RowGroups::max_groups)
    problems.add(what, "1 to 64 groups", std::to_string(groups.num_groups));
  if (rows > std::numeric_limits<int32_t>::max())
    problems.add(what + "'s x", "up to 2^31 - 1 rows, as they have groups", std::to_string(rows));
  if (rows > 0) check_pointer(what + "'s rows of groups", groups.rows, alignof(int32_t), problems);
  check_pointer(what + "'s ends of groups", groups.ends, alignof(int32_t), problems);
}

template <class Layer>
void check_layer(const Layer& layer, const std::string& what, Problems& problems) {
  check_matrix<const void>(what + "'s x", layer.x, layer.x.rows, layer.x.cols, problems);
  check_matrix(what + "'s y", layer.y, layer.x.rows, layer.y.cols, problems);
  if (layer.x.cols < 1 || layer.y.cols < 1 || layer.x.cols > gemm::max_layer_width ||
      layer.y.cols > gemm::max_layer_width)
    problems.add(what, "in and out of 1 to 2^30",
                 std::to_string(layer.x.cols) + " and " + std::to_string(layer.y.cols));
  check_pointer(what + "'s weights", layer.weights, 16, problems);
  gemm::check_epilogue(layer, what, layer.y.cols, layer.y.cols, problems);
  if (layer.groups.num_groups != 0) check_groups(layer.groups, layer.x.rows, what, problems);
  check_activation(layer.activation, what, problems);
}

/// That weights of all layers, but for heads, are of one type.
template <class Layer>
void check_weight_types(Span<const Layer> layers, Problems& problems) {
  const Layer* first = nullptr;
  for (int64_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const std::string what = "weights of linear layer " + std::to_string(i), got = name_of(layer.weight_type);
    if (layer.weight_type != DType::f16 && layer.weight_type != DType::i8) problems.add(what, "F16 or I8", got);
    if (layer.y.cols == 1) continue;
    if (first == nullptr) first = &layer;
    if (layer.weight_type != first->weight_type)
      problems.add(what, std::string(name_of(first->weight_type)) + " as of the layers before it", got);
  }
}

/// That no layer writes what it or another of the launch reads or writes, but for its own multiply and residual.
template <class Layer>
void check_overlaps(Span<const Layer> layers, Problems& problems) {
  for (int64_t i = 0; i < layers.size(); ++i) {
    const Region y = region_of(layers[i].y);
    for (int64_t j = 0; j < layers.size(); ++j) {
      const Layer& other = layers[j];
      const auto refuse = [&](const char* name, const Region& region, bool may_be_same) {
        if (overlap(y, region) && !(may_be_same && i == j && y == region))
          problems.add("y of linear layer " + std::to_string(i), "memory of its own",
                       "an overlap with " + std::string(name) + " of layer " + std::to_string(j));
      };
      refuse("x", region_of(FloatMatrix<const void>(other.x)), false);
      refuse("the row bias", region_of(other.row_bias.values), false);
      refuse("multiply", region_of(other.multiply), true);
      refuse("the residual", region_of(other.residual), true);
      if (i < j) refuse("y", region_of(other.y), false);
    }
  }
}

template <class Layer>
Descriptor describe(const Layer& layer) {
  const PackedLinearLayout halves{layer.x.cols, layer.y.cols};
  const int64_t bias_offset = layer.weight_type == DType::i8
                                  ? PackedInt8Layout{layer.x.cols, layer.y.cols}.bias_offset()
                                  : halves.bias_offset();
  Descriptor to{};
  to.weights = layer.weights;
  to.x = layer.x.data;
  to.x_stride = layer.x.stride;
  to.num_rows = layer.num_rows;
  to.max_rows = layer.x.rows;
  to.groups = layer.groups;
  to.group_bytes = packed_linear_bytes(layer.weight_type, layer.x.cols, layer.y.cols);
  to.epilogue.bias = reinterpret_cast<const float*>(static_cast<const char*>(layer.weights) + bias_offset);
  to.epilogue.row_bias = gemm::operand_of(layer.row_bias.values);
  to.epilogue.offsets = layer.row_bias.offsets;
  to.epilogue.num_segments = layer.row_bias.num_segments;
  to.epilogue.max_segments = layer.row_bias.values.rows;
  to.epilogue.activation = layer.activation;
  to.epilogue.multiply = gemm::operand_of(layer.multiply);
  to.epilogue.residual = gemm::operand_of(layer.residual);
  to.epilogue.residual_first = layer.residual_first;
  to.epilogue.y = gemm::operand_of(layer.y);
  to.epilogue.width = layer.y.cols;
  to.inputs = static_cast<int>(layer.x.cols);
  to.outputs = static_cast<int>(layer.y.cols);
  to.x_is_aligned = reinterpret_cast<uintptr_t>(layer.x.data) % 16 == 0 && layer.x.stride % 8 == 0;
  to.is_head = halves.is_head();
  to.is_relu = layer.activation.kind == ActivationKind::relu;
  const auto is_of = [](const auto& m, bool is_half) { return m.data == nullptr || m.is_half == is_half; };
  to.has_switches = (layer.activation.kind != ActivationKind::identity && !to.is_relu) ||
                    !is_of(to.epilogue.row_bias, false) || !is_of(to.epilogue.multiply, true) ||
                    !is_of(to.epilogue.residual, true);
  to.has_operands = layer.row_bias.values.data != nullptr || layer.multiply.data != nullptr ||
                    layer.residual.data != nullptr || layer.y.type != DType::f16 || to.has_switches;
  return to;
}

/// Whether plain_linear_kernel computes a layer, if its tile takes what the layer has behind the products: a residual
/// comes last, and rows of everything are of whole vectors.
inline bool is_plain(const Descriptor& layer) {
  const gemm::Epilogue& epilogue = layer.epilogue;
  const auto is_whole = [](const auto& m) {
    return m.data == nullptr || (reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.stride % (m.is_half ? 8 : 4) == 0);
  };
  return !layer.is_head && layer.groups.num_groups == 0 && layer.x_is_aligned && layer.inputs % 8 == 0 &&
         is_whole(epilogue.row_bias) && is_whole(epilogue.multiply) && is_whole(epilogue.residual) &&
         !epilogue.residual_first && is_whole(epilogue.y) && epilogue.width % 8 == 0;
}

/// Checks the layers and cuts them into blocks: as `tiling` says, or else by the table, so that capacities, shapes,
/// alignment and the target decide alone.
template <class Layer>
Plan plan_linear(Span<const Layer> layers, int target, const LinearTiling* tiling = nullptr) {
  Problems problems;
  if (target < 75) problems.add("target of linear layers", "sm_75 or later", "sm_" + std::to_string(target));
  for (int64_t i = 0; i < layers.size(); ++i) check_layer(layers[i], "linear layer " + std::to_string(i), problems);
  check_weight_types(layers, problems);
  problems.throw_if_any();
  check_overlaps(layers, problems);
  problems.throw_if_any();

  Plan plan;
  plan.target = target;
  std::vector<Size> sizes;  // of what is computed by tiles
  for (const Layer& layer : layers) {
    plan.descriptors.push_back(describe(layer));
    if (plan.descriptors.back().is_head) continue;
    sizes.push_back({layer.x.rows, layer.x.cols, layer.y.cols});
    plan.is_int8 = layer.weight_type == DType::i8;
  }
  const auto any = [&](auto property) {
    return std::any_of(plan.descriptors.begin(), plan.descriptors.end(), property);
  };
  const bool have_switches = any([](const Descriptor& d) { return d.has_switches; });
  const bool have_operands = any([](const Descriptor& d) { return d.has_operands; });
  plan.is_plain = std::all_of(plan.descriptors.begin(), plan.descriptors.end(), is_plain);
  plan.tiling = tiling != nullptr ? *tiling : choose_tiling(sizes, plan.is_plain && !have_switches, target);
  const TileShape& shape = tile_shape(plan.tiling.tile);
  if ((have_operands && !shape.takes_operands) || (have_switches && !shape.takes_switches())) plan.is_plain = false;
  if (!plan.is_plain && !shape.is_general)
    problems.add("tile of linear layers", "one for layers that are not plain", shape.name);
  if (plan.tiling.parts < 1 || (plan.tiling.parts > 1 && !shape.can_be_cut))
    problems.add("parts of linear layers", shape.can_be_cut ? "1 or more" : std::string("1 of a ") + shape.name,
                 std::to_string(plan.tiling.parts));
  problems.throw_if_any();
  const auto cut = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };

  for (Descriptor& to : plan.descriptors) {
    const int64_t num_steps = cut(to.inputs, PackedLinearLayout::step);
    const int64_t rows_of_tile = to.is_head ? shape.threads() / head_lanes : shape.rows;
    to.steps_of_part = static_cast<int>(to.is_head ? num_steps : cut(num_steps, plan.tiling.parts));
    const int64_t parts = cut(num_steps, to.steps_of_part);
    // Every group may end with a tile of fewer rows, and so may the rows of none.
    const int64_t row_tiles = std::min(to.max_rows, cut(to.max_rows, rows_of_tile) + to.groups.num_groups);
    const int64_t column_tiles = cut(to.outputs, shape.columns);
    to.first_block = plan.num_blocks;
    plan.num_blocks += row_tiles * column_tiles * parts;
    if (row_tiles * column_tiles * parts > max_blocks || plan.num_blocks > max_blocks)
      raise(
          invalid_argument("linear layers of one launch", "at most 2^31 - 1 blocks", std::to_string(plan.num_blocks)));
    to.row_tiles = static_cast<int>(row_tiles);
    to.parts = static_cast<int>(parts);
    if (parts > 1) {
      to.first_ticket = plan.num_tickets;
      to.first_partial = plan.num_partials;
      plan.num_tickets += row_tiles * column_tiles;
      plan.num_partials += row_tiles * column_tiles * parts * shape.part_size();
    }
  }
  for (Descriptor& to : plan.descriptors) {
    to.weights_first = plan.num_blocks <= 2 * nominal_multiprocessors(target);
    to.has_two_stages = shape.stages_of(target, plan.num_blocks) == 2;
  }
  return plan;
}

/// Of a plan with weights of this type: float16 or int8_t.
template <class Weight>
WARPRANK_HIDDEN void launch(const Plan& plan, const LaunchMemory& memory, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_LINEAR)
template <int Target, class Weight, int Tile = 0>
WARPRANK_HIDDEN inline void launch_tiles(const Plan& plan, const Descriptor* layers, float* partials, uint32_t* tickets,
                                         device::Stream stream) {
  constexpr auto tile = static_cast<LinearTile>(Tile);
  constexpr TileShape shape = tile_shape(tile);
  if constexpr (Tile + 1 < num_tiles) {
    if (plan.tiling.tile != tile)
      return launch_tiles<Target, Weight, Tile + 1>(plan, layers, partials, tickets, stream);
  }
  const auto queue = [&](auto* kernel) {
    device::launch_overlapping({static_cast<unsigned>(plan.num_blocks), static_cast<unsigned>(shape.threads()),
                                shape.shared_bytes(sizeof(Weight), shape.stages_of(Target, plan.num_blocks)), stream},
                               kernel, layers, static_cast<int>(plan.descriptors.size()), partials, tickets);
  };
  if (plan.is_plain) return queue(plain_linear_kernel<Target, tile, Weight>);
  if constexpr (shape.is_general) queue(linear_kernel<Target, tile, Weight>);
}

template <class Weight>
void launch(const Plan& plan, const LaunchMemory& memory, device::Stream stream) {
  if (plan.num_blocks == 0) return;
  const auto* layers = static_cast<const Descriptor*>(memory.descriptors);
  auto* tickets = static_cast<uint32_t*>(memory.workspace);
  auto* partials = reinterpret_cast<float*>(static_cast<char*>(memory.workspace) + plan.partials_offset());
  device::dispatch_target<75, 80>(
      plan.target, [&](auto target) { launch_tiles<target(), Weight>(plan, layers, partials, tickets, stream); });
}
#endif
#if defined(WARPRANK_KERNELS_OF_LINEAR)
template void launch<float16>(const Plan& plan, const LaunchMemory& memory, device::Stream stream);
template void launch<int8_t>(const Plan& plan, const LaunchMemory& memory, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::linear
