// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Layers of ops/linear.cuh as they lie in device memory, and the rows that a block has of one.

#include <cstdint>
#include <type_traits>

#include "warprank/device/collectives.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/gemm/rows.cuh"
#include "warprank/ops/row_groups.hpp"

namespace warprank { inline namespace v0 { namespace detail::linear {

/// What the products of a layer need: read whole, into registers.
struct alignas(16) ProductDescriptor {
  const void* weights;  ///< of PackedLinearLayout
  const float16* x;
  int64_t x_stride;
  const int64_t* num_rows;  ///< null: max_rows
  int64_t max_rows;
  int64_t first_block;
  int64_t first_ticket;   ///< of those that are computed in parts: one for each tile
  int64_t first_partial;  ///< and [tiles, parts, rows, columns of a tile] floats
  int row_tiles, parts;
  int steps_of_part;  ///< of 32 inputs
  int inputs, outputs;
  bool x_is_aligned, is_head;
  bool is_relu;         ///< of plain layers
  bool weights_first;   ///< ahead of the number of rows: where all blocks run at once, none waits for one without rows
  bool has_two_stages;  ///< of staged tiles before sm_80: in shared memory; else one
  bool has_operands;    ///< of plain layers: more than a bias and FP16 outputs (linear/plain.cuh)
  bool has_switches;    ///< of these: another activation than relu, or operands that are not of the types in plans

  /// Unless it is a head.
  WARPRANK_DEVICE const uint32_t* tiles() const { return static_cast<const uint32_t*>(weights); }
};

/// A layer as it lies in device memory.
struct alignas(16) Descriptor : ProductDescriptor {
  RowGroups groups;
  int64_t group_bytes;  ///< of weights and bias
  alignas(16) gemm::Epilogue epilogue;
};
static_assert(std::is_trivially_copyable_v<Descriptor>);

/// M.
WARPRANK_DEVICE int64_t rows_of(const ProductDescriptor& layer) {
  if (layer.num_rows == nullptr) return layer.max_rows;
  const int64_t used = device::load(layer.num_rows);
  return used < layer.max_rows ? used : layer.max_rows;
}

/// Rows of a block: neighbours, or what a list in shared memory names.
struct BlockRows {
  int64_t first;
  int count;
  const int32_t* list;  ///< null: neighbours

  WARPRANK_DEVICE int64_t operator[](int r) const { return list == nullptr ? first + r : list[r]; }
};

/// Neighbours from `row` on, at most `limit`; none from num_rows on.
WARPRANK_DEVICE BlockRows neighbours(int64_t row, int64_t num_rows, int limit) {
  const int64_t rest = num_rows - row;
  return {row, rest < limit ? static_cast<int>(rest) : limit, nullptr};
}

/// x of a block.
WARPRANK_DEVICE gemm::RowSource source_of(const ProductDescriptor& layer, const BlockRows& rows) {
  return {rows.list == nullptr ? layer.x + rows.first * layer.x_stride : layer.x,
          rows.list,
          layer.x_stride,
          rows.count,
          layer.inputs,
          layer.x_is_aligned};
}

/// Some rows of a group, by their places in RowGroups::rows.
struct GroupTile {
  int group, begin, count;
};

/// Tile number `tile` when every group begins with a tile of its own; a count of 0 where there are fewer. Whole warps
/// call.
WARPRANK_DEVICE GroupTile tile_of_groups(const RowGroups& groups, int tile, int rows_of_tile) {
  int before = 0;
  for (int first = 0; first <= groups.num_groups; first += device::warp_size) {
    const int group = first + device::lane_index();
    int begin = 0, end = 0;
    if (group <= groups.num_groups) {
      if (group > 0) begin = device::load(&groups.ends[group - 1]);
      end = device::load(&groups.ends[group]);
    }
    const int tiles = (end - begin + rows_of_tile - 1) / rows_of_tile;
    int through = before + tiles;  // of this group and all before it
    WARPRANK_UNROLL
    for (int distance = 1; distance < device::warp_size; distance *= 2) {
      const int other = device::shuffle_up(device::full_warp, through - before, distance);
      if (device::lane_index() >= distance) through += other;
    }
    const uint32_t later = device::ballot(device::full_warp, through > tile);
    if (later != 0) {
      const int lane = device::first_bit(later);
      begin += (tile - (through - tiles)) * rows_of_tile;  // meant by that lane alone
      begin = device::shuffle(device::full_warp, begin, lane);
      const int rest = device::shuffle(device::full_warp, end, lane) - begin;
      return {first + lane, begin, rest < rows_of_tile ? rest : rows_of_tile};
    }
    before = device::shuffle(device::full_warp, through, device::warp_size - 1);
  }
  return {0, 0, 0};
}

/// Makes a layer that of one of its groups.
WARPRANK_DEVICE void select_group(Descriptor& layer, int group) {
  layer.weights = static_cast<const char*>(layer.weights) + group * layer.group_bytes;
  gemm::Epilogue& epilogue = layer.epilogue;
  epilogue.bias += group * layer.group_bytes / static_cast<int64_t>(sizeof(float));
  DeviceActivation& f = epilogue.activation;
  if (f.alphas != nullptr) f.alphas += group * epilogue.width;
  if (f.scales != nullptr) f.scales += group * epilogue.width;
  if (f.shifts != nullptr) f.shifts += group * epilogue.width;
}

/// y = 0 in some rows, from a column on.
WARPRANK_DEVICE void clear_rows(const gemm::Epilogue& epilogue, const BlockRows& rows, int64_t first_column,
                                int columns, int threads) {
  const int fours = columns / gemm::columns_at_once;
  for (int at = device::thread_rank(); at < rows.count * fours; at += threads) {
    const int64_t column = first_column + at % fours * gemm::columns_at_once;
    const float zeros[gemm::columns_at_once] = {};
    if (column < epilogue.width) gemm::store_operand(epilogue.y, rows[at / fours], column, epilogue.width, zeros);
  }
}

}}}  // namespace warprank::v0::detail::linear
