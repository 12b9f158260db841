// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/linear.cuh. A block computes a tile of one layer of the launch, or where rows are few, its
/// products over some of the inputs: the last block of a tile to arrive adds the parts in their order.

#include <cstdint>
#include <string>

#include "warprank/device/collectives.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/gemm/rows.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank::detail {

/// How a kernel cuts a layer.
struct LinearPolicy {
  int warps_down, warps_across;  ///< warps of a block, by rows and by outputs
  int strips, pairs;             ///< of 16 rows and of 16 outputs that a warp computes
  int steps;                     ///< of 16 inputs that lie in shared memory together
  int stages;                    ///< of them in flight
  int min_blocks;                ///< resident on a multiprocessor: bounds the registers

  constexpr int rows() const { return warps_down * strips * 16; }
  constexpr int columns() const { return warps_across * pairs * 16; }
  constexpr int threads() const { return warps_down * warps_across * device::warp_size; }
  constexpr int tile_halves() const { return rows() * (steps * 16 + 8); }
  constexpr int staging_stride() const { return pairs * 16 + 4; }  ///< floats
  constexpr int64_t shared_bytes() const {
    const int64_t tiles = int64_t{2} * stages * tile_halves();
    const int64_t staging = int64_t{4} * threads() / device::warp_size * 16 * staging_stride();
    return tiles < staging ? staging : tiles;
  }
  std::string to_string() const {
    return std::to_string(rows()) + " x " + std::to_string(columns()) + " by " + std::to_string(warps_down) + " x " +
           std::to_string(warps_across) + " warps, " + std::to_string(stages) + " stages of " +
           std::to_string(steps * 16);
  }
};

/// Tiles by how many rows there may be.
enum class LinearTile {
  few_rows,   ///< up to 16
  some_rows,  ///< up to 512
  many_rows
};

constexpr LinearTile linear_tile(int64_t max_rows) {
  return max_rows <= 16 ? LinearTile::few_rows : max_rows <= 512 ? LinearTile::some_rows : LinearTile::many_rows;
}

constexpr LinearPolicy linear_policy(int target, LinearTile tile) {
  const bool is_async = target >= 80;  // copies to shared memory need no registers
  switch (tile) {
    case LinearTile::few_rows:
      return {1, 4, 1, 1, 4, is_async ? 4 : 2, 5};
    case LinearTile::some_rows:
      return {1, 4, 2, 1, 4, is_async ? 4 : 2, 4};
    case LinearTile::many_rows:
      // Twice the warps of half the size where a register must hold what is on its way to shared memory.
      return is_async ? LinearPolicy{2, 2, 4, 2, 2, 4, 3} : LinearPolicy{4, 2, 2, 2, 2, 2, 2};
  }
  return {};
}

/// Two blocks for each multiprocessor of a T4, or of an A100: parts of a sum must not depend on the card's own number.
constexpr int64_t blocks_wanted(int target) { return target >= 80 ? 216 : 80; }
/// Steps of 16 inputs that are worth a block.
inline constexpr int min_steps_of_part = 8;
/// Lanes that compute an output of a head, 8 inputs each at a time.
inline constexpr int head_lanes = PackedLinearLayout::head_step / 8;

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

  constexpr int64_t num_blocks() const { return int64_t{1} * row_tiles * column_tiles * parts; }
};

/// The layer that a block works on: the last that does not begin after it.
WARPRANK_DEVICE int problem_of_block(const LinearDescriptor* problems, int num_problems, int64_t block) {
  int begun = 0;
  for (int first = 0; first < num_problems; first += device::warp_size) {
    const int i = first + device::lane_index();
    const bool has_begun = i < num_problems && device::load_read_only(&problems[i].first_block) <= block;
    begun += device::count_bits(device::ballot(device::full_warp, has_begun));
  }
  return begun - 1;
}

/// Copies a descriptor to shared memory, where it costs no registers. Ends with a barrier.
WARPRANK_DEVICE void read_descriptor(const LinearDescriptor* from, LinearDescriptor& to) {
  using Piece = device::Vector<uint32_t, 4>;
  static_assert(sizeof(LinearDescriptor) % sizeof(Piece) == 0);
  const int i = device::thread_rank();
  if (i < static_cast<int>(sizeof(LinearDescriptor) / sizeof(Piece)))
    reinterpret_cast<Piece*>(&to)[i] =
        device::load_vector_read_only<4>(reinterpret_cast<const uint32_t*>(from) + i * 4);
  device::sync_block();
}

/// A tile of a layer of one output: FP32 products, 8 lanes for each row.
WARPRANK_DEVICE void run_head(const LinearDescriptor& layer, int64_t first_row, int64_t num_rows) {
  const int64_t row = first_row + device::thread_rank() / head_lanes;
  const bool exists = row < num_rows;  // all lanes of a row alike
  const RowSource source{layer.x + row * layer.x_stride, layer.x_stride, exists, layer.inputs, layer.x_is_aligned};
  const auto* weights = static_cast<const float*>(layer.weights);
  float sum = 0;
  const int rank = device::Tile<head_lanes>::rank();
  for (int step = 0; exists && step + rank * 8 < layer.inputs; step += head_lanes * 8) {
    const device::Vector<half, 8> x = load_columns_of_row(source, 0, step + rank * 8);
    WARPRANK_UNROLL
    for (int four = 0; four < 2; ++four) {
      const auto w = device::load_vector_read_only<4>(weights + step + four * head_lanes * 4 + rank * 4);
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) sum = std::fma(device::widen(x[four * 4 + i]), w[i], sum);
    }
  }
  sum = device::Tile<head_lanes>::sum(sum);
  if (!exists || rank != 0) return;
  float values[columns_at_once] = {sum};
  finish_columns(layer.epilogue, row, bias_row_of(layer.epilogue, row), 0, values);
}

/// What a block computes, and one of its warps.
template <int Target, LinearTile Tile>
struct LinearBlock {
  static constexpr LinearPolicy policy = linear_policy(Target, Tile);
  static constexpr int rows = policy.rows(), columns = policy.columns(), threads = policy.threads();
  static constexpr int tile_halves = policy.tile_halves(), staging_stride = policy.staging_stride();
  static constexpr int64_t part_size = int64_t{rows} * columns;
  using Copy = RowCopy<Target, rows, policy.steps * 16, threads>;
  using Warp = WarpTile<Target, policy.strips, policy.pairs, policy.steps>;

  struct Storage {
    LinearDescriptor layer;
    int64_t bias_rows[rows];  ///< what bias_row_of gives for the rows
    bool is_last;
  };

  RowSource source;
  int begin, end;             ///< steps of 16 inputs
  int first_row, num_strips;  ///< of the warp; strips of 16 rows
  int first_column;           ///< of the warp
  int num_tiles;              ///< of the warp; tiles of 8 outputs

  WARPRANK_DEVICE LinearBlock(const LinearDescriptor& layer, int64_t row, int64_t num_rows, int column_tile, int part) {
    source = {layer.x + row * layer.x_stride, layer.x_stride,
              num_rows - row < rows ? static_cast<int>(num_rows - row) : rows, layer.inputs, layer.x_is_aligned};
    const int num_steps = (layer.inputs + 15) / 16;
    begin = part * layer.steps_of_part;
    end = begin + layer.steps_of_part < num_steps ? begin + layer.steps_of_part : num_steps;
    first_row = device::warp_index() / policy.warps_across * policy.strips * 16;
    num_strips = clamp((source.num_rows - first_row + 15) / 16, policy.strips);
    first_column = column_tile * columns + device::warp_index() % policy.warps_across * policy.pairs * 16;
    const int64_t rest = layer.epilogue.width - first_column;
    num_tiles = num_strips == 0 ? 0 : clamp(static_cast<int>((rest + 7) / 8), policy.pairs * 2);
  }

  /// sums of `warp` = the products.
  WARPRANK_DEVICE void multiply(const void* weights, half* tiles, Warp& warp) const {
    const WeightStream stream = stream_of(weights, source.num_columns, first_column / 16);
    warp.clear();
    warp.start(stream, begin, end, num_tiles);
    const int num_chunks = (end - begin + policy.steps - 1) / policy.steps;
    const auto step_of = [&](int chunk) { return begin + chunk * policy.steps; };
    const auto tile_of = [&](int chunk) { return tiles + chunk % policy.stages * tile_halves; };
    const auto compute = [&](int chunk) {
      const half* first = tile_of(chunk) + first_row * Copy::stride;
      if (num_strips == policy.strips && num_tiles == policy.pairs * 2)
        warp.template multiply<true>(first, Copy::stride, stream, step_of(chunk), end, num_strips, num_tiles);
      else
        warp.template multiply<false>(first, Copy::stride, stream, step_of(chunk), end, num_strips, num_tiles);
    };
    Copy copy;
    const auto request = [&](int chunk) {
      if (chunk < num_chunks) copy.request(source, step_of(chunk) * 16, end * 16, tile_of(chunk));
      device::commit_async();
    };
    const auto place = [&](int chunk) {
      if (chunk < num_chunks) copy.place(source, step_of(chunk) * 16, end * 16, tile_of(chunk));
    };
    // The one barrier of a turn also says that every warp has left the tile that is filled next.
    if constexpr (Copy::is_async) {
      for (int chunk = 0; chunk < policy.stages - 1; ++chunk) request(chunk);
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        device::wait_async<policy.stages - 2>();
        device::sync_block();
        request(chunk + policy.stages - 1);
        compute(chunk);
      }
    } else {
      static_assert(policy.stages == 2);
      request(0);
      place(0);
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        device::sync_block();
        request(chunk + 1);
        compute(chunk);
        place(chunk + 1);
      }
    }
  }

  /// Calls f(i, j) for the warp's strips and tiles.
  template <class F>
  WARPRANK_DEVICE void for_each_tile(F&& f) const {
    WARPRANK_UNROLL
    for (int i = 0; i < policy.strips; ++i) {
      WARPRANK_UNROLL
      for (int j = 0; j < policy.pairs * 2; ++j) {
        if (i < num_strips && j < num_tiles) f(i, j);
      }
    }
  }

  /// Leaves this part's sums in partials [parts, tiles of a warp, threads, 4], which are the tile's own. The last of
  /// its blocks to arrive gets the sums over all parts, added in their order, and true.
  WARPRANK_DEVICE bool add_parts(Warp& warp, int part, int parts, float* partials, uint32_t* ticket,
                                 bool& is_last) const {
    const auto place = [&](int p, int i, int j) {
      return partials + p * part_size + ((i * policy.pairs * 2 + j) * threads + device::thread_rank()) * 4;
    };
    for_each_tile([&](int i, int j) {
      const float(&s)[4] = warp.sums[i][j];
      device::store_vector(place(part, i, j), device::Vector<float, 4>{{s[0], s[1], s[2], s[3]}});
    });
    device::sync_block();
    if (device::thread_rank() == 0) {
      const auto last = static_cast<uint32_t>(parts - 1);
      is_last = device::take_ticket<device::Order::acq_rel, device::Scope::device>(ticket, last) == last;
    }
    device::sync_block();
    if (!is_last) return false;
    warp.clear();
    for (int p = 0; p < parts; ++p) {
      for_each_tile([&](int i, int j) {
        const auto sums = device::load_vector<4>(place(p, i, j));
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) warp.sums[i][j][c] += sums[c];
      });
    }
    return true;
  }

  /// Stores the outputs. By way of shared memory, a strip at a time: rows are then written 4 columns at once, and the
  /// code of the epilogue is there once and not for each register.
  WARPRANK_DEVICE void finish(const Epilogue& epilogue, const Warp& warp, int64_t row, const int64_t* bias_rows,
                              float* staging) const {
    constexpr int stride = staging_stride, fours = policy.pairs * 16 / columns_at_once;
    const int lane = device::lane_index();
    staging += device::warp_index() * 16 * stride;
    for (int strip = 0; strip < num_strips; ++strip) {
      for_each_tile([&](int i, int j) {
        if (i != strip) return;
        float* to = staging + lane / 4 * stride + j * 8 + lane % 4 * 2;
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) to[c / 2 * 8 * stride + c % 2] = warp.sums[i][j][c];
      });
      device::sync_warp();
      for (int i = lane; i < 16 * fours; i += device::warp_size) {
        const int of_strip = i / fours, of_block = first_row + strip * 16 + of_strip, column = i % fours * 4;
        if (of_block >= source.num_rows || first_column + column >= epilogue.width) continue;
        const auto sums = *reinterpret_cast<const device::Vector<float, 4>*>(staging + of_strip * stride + column);
        float values[columns_at_once];
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) values[c] = sums[c];
        finish_columns(epilogue, row + of_block, bias_rows[of_block], first_column + column, values);
      }
      device::sync_warp();
    }
  }

 private:
  static WARPRANK_DEVICE int clamp(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }
};

/// The partials and tickets are those of the descriptors; tickets are 0 before and after.
template <int Target, LinearTile Tile>
WARPRANK_KERNEL(linear_policy(Target, Tile).threads(), linear_policy(Target, Tile).min_blocks)
linear_kernel(const LinearDescriptor* layers, int num_layers, float* partials, uint32_t* tickets) {
  using Block = LinearBlock<Target, Tile>;
  auto& shared = device::static_shared<typename Block::Storage>();
  const int64_t block = device::block_index().x;
  const LinearDescriptor& layer = shared.layer;
  read_descriptor(layers + problem_of_block(layers, num_layers, block), shared.layer);

  int64_t num_rows = layer.max_rows;
  if (layer.num_rows != nullptr) {
    const int64_t used = device::load(layer.num_rows);
    num_rows = used < num_rows ? used : num_rows;
  }
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
  const Block tile(layer, row, num_rows, column_tile, part);
  for (int r = device::thread_rank(); r < tile.source.num_rows; r += Block::threads)
    shared.bias_rows[r] = bias_row_of(layer.epilogue, row + r);

  typename Block::Warp warp;
  auto* memory = device::dynamic_shared<unsigned char>();
  tile.multiply(layer.weights, reinterpret_cast<half*>(memory), warp);
  if (layer.parts > 1) {
    const int64_t tile_of_layer = int64_t{column_tile} * layer.row_tiles + row_tile;
    const int64_t tile_size = Block::part_size * layer.parts;
    if (!tile.add_parts(warp, part, layer.parts, partials + layer.first_partial + tile_of_layer * tile_size,
                        tickets + layer.first_ticket + tile_of_layer, shared.is_last))
      return;
  } else {
    device::sync_block();  // the staging is where the tiles were
  }
  tile.finish(layer.epilogue, warp, row, shared.bias_rows, reinterpret_cast<float*>(memory));
}

}  // namespace warprank::detail
