// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/linear.cuh. A block computes a tile of one layer of the launch, or where rows are few, its
/// products over some of the inputs: the last block of a tile to arrive adds the parts in their order.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/descriptors.cuh"
#include "warprank/ops/detail/gemm/block.cuh"

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
  Epilogue epilogue;
  int64_t first_block;
  int64_t first_ticket;   ///< of those that are computed in parts: one for each tile
  int64_t first_partial;  ///< and [tiles, parts, rows, columns of a tile] floats
  int row_tiles, column_tiles, parts;
  int steps_of_part;
  int inputs;
  bool x_is_aligned, is_head;
};

/// M.
WARPRANK_DEVICE int64_t rows_of(const LinearDescriptor& layer) {
  if (layer.num_rows == nullptr) return layer.max_rows;
  const int64_t used = device::load(layer.num_rows);
  return used < layer.max_rows ? used : layer.max_rows;
}

/// x of a block, from `row` on.
WARPRANK_DEVICE RowSource source_of(const LinearDescriptor& layer, int64_t row, int64_t num_rows, int rows_of_block) {
  const int64_t rest = num_rows - row;
  return {layer.x + row * layer.x_stride, layer.x_stride, rest < rows_of_block ? static_cast<int>(rest) : rows_of_block,
          layer.inputs, layer.x_is_aligned};
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
WARPRANK_DEVICE void run_head(const LinearDescriptor& layer, int64_t first_row, int64_t num_rows) {
  const int64_t row = first_row + device::thread_rank() / head_lanes;
  const bool exists = row < num_rows;  // all lanes of a row alike
  const RowSource source{layer.x + row * layer.x_stride, layer.x_stride, exists, layer.inputs, layer.x_is_aligned};
  const float sum = head_sum(layer, exists, [&](int k) { return load_columns_of_row(source, 0, k); });
  if (!exists || device::Tile<head_lanes>::rank() != 0) return;
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
  bool is_last;
};

/// The partials and tickets are those of the descriptors; tickets are 0 before and after.
template <int Target, LinearTile Tile>
WARPRANK_KERNEL(linear_policy(Target, Tile).threads(), linear_policy(Target, Tile).min_blocks)
linear_kernel(const LinearDescriptor* layers, int num_layers, float* partials, uint32_t* tickets) {
  using Block = GemmBlock<LinearConfig<Target, Tile>>;
  auto& shared = device::static_shared<LinearStorage<Block>>();
  const int64_t block = device::block_index().x;
  const LinearDescriptor& layer = shared.layer;
  read_descriptors(layers + problem_of_block(layers, num_layers, block), 1, &shared.layer);

  const int64_t num_rows = rows_of(layer);
  const auto of_layer = static_cast<int>(block - layer.first_block);
  const int row_tile = of_layer % layer.row_tiles;
  if (layer.is_head) {
    run_head(layer, int64_t{row_tile} * (Block::threads / head_lanes), num_rows);
    return;
  }
  const int64_t row = int64_t{row_tile} * Block::rows;
  if (row >= num_rows) return;
  const int part = of_layer / layer.row_tiles % layer.parts;
  const int column_tile = of_layer / layer.row_tiles / layer.parts;
  const int begin = part * layer.steps_of_part, num_steps = (layer.inputs + 15) / 16;
  const int end = begin + layer.steps_of_part < num_steps ? begin + layer.steps_of_part : num_steps;
  const Block tile(source_of(layer, row, num_rows, Block::rows), layer.epilogue.width, column_tile, begin, end);
  for (int r = device::thread_rank(); r < tile.source.num_rows; r += Block::threads)
    shared.bias_rows[r] = bias_row_of(layer.epilogue, row + r);

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
    finish_columns(layer.epilogue, row + of_tile, shared.bias_rows[of_tile], column, sums);
  };
  tile.finish(warp, layer.epilogue.width, false, reinterpret_cast<float*>(memory), store);
}

}  // namespace warprank::detail
