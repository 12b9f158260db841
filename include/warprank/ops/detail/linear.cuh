// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/linear.cuh. A block computes a tile of one layer of the launch, or where rows are few, its
/// products over some of the inputs: the last block of a tile to arrive adds the parts in their order.

#include <cstdint>
#include <type_traits>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/descriptors.cuh"
#include "warprank/ops/detail/gemm/block.cuh"
#include "warprank/ops/row_groups.hpp"

namespace warprank::detail {

/// Tiles by how many rows there may be.
enum class LinearTile {
  few_rows,   ///< up to 16
  some_rows,  ///< up to 512
  many_rows
};

constexpr LinearTile linear_tile(int64_t max_rows) {
  return max_rows <= 16 ? LinearTile::few_rows : max_rows <= 512 ? LinearTile::some_rows : LinearTile::many_rows;
}

constexpr GemmPolicy linear_policy(int target, LinearTile tile) {
  const bool is_async = target >= 80;  // copies to shared memory need no registers
  switch (tile) {
    case LinearTile::few_rows:
      return {1, 4, 1, 1, 4, is_async ? 4 : 2, 5};
    case LinearTile::some_rows:
      return {1, 4, 2, 1, 4, is_async ? 4 : 2, 4};
    case LinearTile::many_rows:
      // Twice the warps of half the size where a register must hold what is on its way to shared memory.
      return is_async ? GemmPolicy{2, 2, 4, 2, 2, 4, 3} : GemmPolicy{4, 2, 2, 2, 2, 2, 2};
  }
  return {};
}

/// Two blocks for each multiprocessor of a T4, or of an A100: parts of a sum must not depend on the card's own number.
constexpr int64_t blocks_wanted(int target) { return target >= 80 ? 216 : 80; }
/// Steps of 16 inputs that are worth a block.
inline constexpr int min_steps_of_part = 8;

/// Lanes that compute an output of a head, 8 inputs each at a time.
inline constexpr int head_lanes = PackedLinearLayout::head_step / 8;

/// Sums are staged where the tiles were.
constexpr int64_t linear_shared_bytes(const GemmPolicy& policy) {
  return policy.tiles_bytes() < policy.staging_bytes() ? policy.staging_bytes() : policy.tiles_bytes();
}

/// A layer as it lies in device memory.
struct alignas(16) LinearDescriptor {
  const void* weights;
  const half* x;
  int64_t x_stride;
  const int64_t* num_rows;  ///< null: max_rows
  int64_t max_rows;
  RowGroups groups;
  int64_t group_bytes;  ///< of weights and bias
  Epilogue epilogue;
  int64_t first_block;
  int64_t first_ticket;   ///< of those that are computed in parts: one for each tile
  int64_t first_partial;  ///< and [tiles, parts, rows, columns of a tile] floats
  int row_tiles, column_tiles, parts;
  int steps_of_part;
  int inputs;
  bool x_is_aligned, is_head;
};
static_assert(std::is_trivially_copyable_v<LinearDescriptor>);

/// M.
WARPRANK_DEVICE int64_t rows_of(const LinearDescriptor& layer) {
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
WARPRANK_DEVICE RowSource source_of(const LinearDescriptor& layer, const BlockRows& rows) {
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
WARPRANK_DEVICE void select_group(LinearDescriptor& layer, int group) {
  layer.weights = static_cast<const char*>(layer.weights) + group * layer.group_bytes;
  Epilogue& epilogue = layer.epilogue;
  epilogue.bias += group * layer.group_bytes / static_cast<int64_t>(sizeof(float));
  DeviceActivation& f = epilogue.activation;
  if (f.alphas != nullptr) f.alphas += group * epilogue.width;
  if (f.scales != nullptr) f.scales += group * epilogue.width;
  if (f.shifts != nullptr) f.shifts += group * epilogue.width;
}

/// y = 0 in some rows, from a column on.
WARPRANK_DEVICE void clear_rows(const Epilogue& epilogue, const BlockRows& rows, int64_t first_column, int columns,
                                int threads) {
  const int fours = columns / columns_at_once;
  for (int at = device::thread_rank(); at < rows.count * fours; at += threads) {
    const int64_t column = first_column + at % fours * columns_at_once;
    const float zeros[columns_at_once] = {};
    if (column < epilogue.width) store_operand(epilogue.y, rows[at / fours], column, epilogue.width, zeros);
  }
}

/// The sum of a layer of one output, in FP32, by the head_lanes lanes of a row; load(k) gives 8 inputs from k on, 0
/// from the last on.
template <class Load>
WARPRANK_DEVICE float head_sum(const LinearDescriptor& layer, bool exists, Load load) {
  using Lanes = device::Tile<head_lanes>;
  const auto* weights = static_cast<const float*>(layer.weights);
  float sum = 0;
  for (int step = 0; exists && step + Lanes::rank() * 8 < layer.inputs; step += PackedLinearLayout::head_step) {
    const device::Vector<half, 8> x = load(step + Lanes::rank() * 8);
    WARPRANK_UNROLL
    for (int four = 0; four < 2; ++four) {
      const auto w = device::load_vector_read_only<4>(weights + step + (four * head_lanes + Lanes::rank()) * 4);
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) sum = std::fma(device::widen(x[four * 4 + i]), w[i], sum);
    }
  }
  return Lanes::sum(sum);
}

/// A tile of a layer of one output.
WARPRANK_DEVICE void run_head(const LinearDescriptor& layer, const BlockRows& rows) {
  const int of_block = device::thread_rank() / head_lanes;
  const bool exists = of_block < rows.count;  // all lanes of a row alike
  const RowSource source = source_of(layer, rows);
  const float sum = head_sum(layer, exists, [&](int k) { return load_columns_of_row(source, of_block, k); });
  if (!exists || device::Tile<head_lanes>::rank() != 0) return;
  const int64_t row = rows[of_block];
  float values[columns_at_once] = {sum};
  finish_columns(layer.epilogue, row, bias_row_of(layer.epilogue, row), 0, values);
}

/// Which block the kernel has.
template <int Target, LinearTile Tile>
struct LinearConfig {
  static constexpr int target = Target;
  static constexpr GemmPolicy policy = linear_policy(Target, Tile);
  static constexpr bool has_whole_path = true;
};

/// Static shared memory of a block.
template <class Block>
struct LinearStorage {
  LinearDescriptor layer;
  int64_t bias_rows[Block::rows];  ///< what bias_row_of gives for the rows
  int32_t rows[Block::rows];       ///< of a group
  bool is_last;
};

/// The partials and tickets are those of the descriptors; tickets are 0 before and after.
template <int Target, LinearTile Tile>
WARPRANK_KERNEL(linear_policy(Target, Tile).threads(), linear_policy(Target, Tile).min_blocks)
linear_kernel(const LinearDescriptor* layers, int num_layers, float* partials, uint32_t* tickets) {
  using Block = GemmBlock<LinearConfig<Target, Tile>>;
  static_assert(Block::rows <= Block::threads && Block::threads / head_lanes <= Block::rows);
  auto& shared = device::static_shared<LinearStorage<Block>>();
  const int64_t block = device::block_index().x;
  const LinearDescriptor& layer = shared.layer;
  read_descriptors(layers + problem_of_block(layers, num_layers, block), 1, &shared.layer);

  const auto of_layer = static_cast<int>(block - layer.first_block);
  const int row_tile = of_layer % layer.row_tiles;
  const int rows_of_tile = layer.is_head ? Block::threads / head_lanes : Block::rows;
  BlockRows rows;
  bool has_group = true;
  if (layer.groups.num_groups == 0) {
    rows = neighbours(int64_t{row_tile} * rows_of_tile, rows_of(layer), rows_of_tile);
  } else {
    const GroupTile tile = tile_of_groups(layer.groups, row_tile, rows_of_tile);
    has_group = tile.group < layer.groups.num_groups;
    rows = {0, tile.count, shared.rows};
    if (device::thread_rank() < tile.count)
      shared.rows[device::thread_rank()] = device::load(&layer.groups.rows[tile.begin + device::thread_rank()]);
    if (device::thread_rank() == 0 && has_group) select_group(shared.layer, tile.group);
    device::sync_block();
  }
  if (rows.count <= 0) return;
  const int part = of_layer / layer.row_tiles % layer.parts;
  const int column_tile = of_layer / layer.row_tiles / layer.parts;
  if (!has_group) {
    if (part == 0)
      clear_rows(layer.epilogue, rows, int64_t{column_tile} * Block::columns, Block::columns, Block::threads);
    return;
  }
  if (layer.is_head) return run_head(layer, rows);
  const int begin = part * layer.steps_of_part, num_steps = (layer.inputs + 15) / 16;
  const int end = begin + layer.steps_of_part < num_steps ? begin + layer.steps_of_part : num_steps;
  const Block tile(source_of(layer, rows), layer.epilogue.width, column_tile, begin, end);
  for (int r = device::thread_rank(); r < rows.count; r += Block::threads)
    shared.bias_rows[r] = bias_row_of(layer.epilogue, rows[r]);

  typename Block::Warp warp;
  auto* memory = device::dynamic_shared<unsigned char>();
  tile.multiply(layer.weights, reinterpret_cast<half*>(memory), warp);
  if (layer.parts > 1) {
    const int64_t tile_of_layer = int64_t{column_tile} * layer.row_tiles + row_tile;
    float* own = partials + layer.first_partial + tile_of_layer * layer.parts * Block::part_size;
    if (!tile.add_parts(warp, part, layer.parts, own, tickets + layer.first_ticket + tile_of_layer, shared.is_last))
      return;
  } else {
    device::sync_block();  // the staging is where the tiles were
  }
  const auto store = [&](int of_tile, int column, float(&sums)[columns_at_once]) {
    finish_columns(layer.epilogue, rows[of_tile], shared.bias_rows[of_tile], column, sums);
  };
  tile.finish(warp, layer.epilogue.width, false, reinterpret_cast<float*>(memory), store);
}

}  // namespace warprank::detail
