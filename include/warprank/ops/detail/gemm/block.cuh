// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The product of a block: rows of FP16 times packed weights, by all its warps, and what becomes of the sums.

#include <cstdint>
#include <string>

#include "warprank/device/async_copy.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/gemm/rows.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank::detail {

/// Rows from one to the next of the 16 x 16 sums that a warp stages, in floats, and how many it stages.
inline constexpr int staging_stride = 20, staging_floats = 16 * staging_stride;

/// How a kernel cuts a product of rows and weights.
struct GemmPolicy {
  int warps_down, warps_across;  ///< warps of a block, by rows and by outputs
  int strips, pairs;             ///< of 16 rows and of 16 outputs that a warp computes
  int steps;                     ///< of 16 inputs that lie in shared memory together
  int stages;                    ///< of them in flight
  int min_blocks;                ///< resident on a multiprocessor: bounds the registers

  constexpr int rows() const { return warps_down * strips * 16; }
  constexpr int columns() const { return warps_across * pairs * 16; }
  constexpr int threads() const { return warps_down * warps_across * device::warp_size; }
  constexpr int tile_halves() const { return rows() * (steps * 16 + 8); }
  constexpr int64_t tiles_bytes() const { return int64_t{2} * stages * tile_halves(); }
  constexpr int64_t staging_bytes() const { return int64_t{4} * threads() / device::warp_size * staging_floats; }
  std::string to_string() const {
    return std::to_string(rows()) + " x " + std::to_string(columns()) + " by " + std::to_string(warps_down) + " x " +
           std::to_string(warps_across) + " warps, " + std::to_string(stages) + " stages of " +
           std::to_string(steps * 16);
  }
};

/// What a block computes, and one of its warps. Config says for which `target` and by which `policy`.
template <class Config>
struct GemmBlock {
  static constexpr GemmPolicy policy = Config::policy;
  static constexpr int rows = policy.rows(), columns = policy.columns(), threads = policy.threads();
  static constexpr int tile_halves = policy.tile_halves();
  using Copy = RowCopy<Config::target, rows, policy.steps * 16, threads>;
  using Warp = WarpTile<Config::target, policy.strips, policy.pairs, policy.steps>;

  RowSource source;
  int begin, end;             ///< steps of 16 inputs
  int first_row, num_strips;  ///< of the warp; strips of 16 rows
  int first_column;           ///< of the warp
  int num_tiles;              ///< of the warp; tiles of 8 outputs

  /// The outputs of tile `column_tile` of `width`, over the steps [begin, end).
  WARPRANK_DEVICE GemmBlock(const RowSource& source, int64_t width, int column_tile, int begin, int end)
      : source(source), begin(begin), end(end) {
    first_row = device::warp_index() / policy.warps_across * policy.strips * 16;
    num_strips = clamp((source.num_rows - first_row + 15) / 16, policy.strips);
    first_column = column_tile * columns + device::warp_index() % policy.warps_across * policy.pairs * 16;
    const int64_t rest = width - first_column;
    num_tiles = num_strips == 0 ? 0 : clamp(static_cast<int>((rest + 7) / 8), policy.pairs * 2);
  }

  /// sums of `warp` = the products with rows from global memory. All of the block call; `tiles` has tiles_bytes.
  WARPRANK_DEVICE void multiply(const void* weights, half* tiles, Warp& warp) const {
    const WeightStream stream = stream_of(weights, source.num_columns, first_column / 16);
    warp.clear();
    warp.start(stream, begin, end, num_tiles);
    const int num_chunks = (end - begin + policy.steps - 1) / policy.steps;
    const auto step_of = [&](int chunk) { return begin + chunk * policy.steps; };
    const auto tile_of = [&](int chunk) { return tiles + chunk % policy.stages * tile_halves; };
    const auto compute = [&](int chunk) { multiply_chunk(tile_of(chunk), Copy::stride, stream, step_of(chunk), warp); };
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

  /// The same with rows that lie in shared memory, from the block's first on.
  WARPRANK_DEVICE void multiply_resident(const void* weights, const half* in_shared, int stride, Warp& warp) const {
    const WeightStream stream = stream_of(weights, source.num_columns, first_column / 16);
    warp.clear();
    warp.start(stream, begin, end, num_tiles);
    for (int step = begin; step < end; step += policy.steps)
      multiply_chunk(in_shared + step * 16, stride, stream, step, warp);
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

  /// Calls f(row of the block, column, sums) for four columns at a time: those of all rows that exist, or of whole
  /// strips with all_rows, and below `num_columns`; sums that were not computed are 0. It goes by way of shared memory,
  /// 16 x 16 at a time, so that rows are stored by vectors and the code of f is there once and not for each register.
  template <class F>
  WARPRANK_DEVICE void finish(const Warp& warp, int64_t num_columns, bool all_rows, float* staging, F&& f) const {
    constexpr int fours = 16 / columns_at_once;
    const int lane = device::lane_index();
    staging += device::warp_index() * staging_floats;
    for (int strip = 0; strip < num_strips; ++strip) {
      for (int pair = 0; pair * 2 < num_tiles; ++pair) {
        for_each_tile([&](int i, int j) {
          if (i != strip || j / 2 != pair) return;
          float* to = staging + lane / 4 * staging_stride + j % 2 * 8 + lane % 4 * 2;
          WARPRANK_UNROLL
          for (int c = 0; c < 4; ++c) to[c / 2 * 8 * staging_stride + c % 2] = warp.sums[i][j][c];
        });
        device::sync_warp();
        for (int i = lane; i < 16 * fours; i += device::warp_size) {
          const int row = first_row + strip * 16 + i / fours, column = i % fours * columns_at_once;
          if ((!all_rows && row >= source.num_rows) || first_column + pair * 16 + column >= num_columns) continue;
          float sums[columns_at_once] = {};
          if (pair * 16 + column < num_tiles * 8) {
            const float* from = staging + i / fours * staging_stride + column;
            const auto four = *reinterpret_cast<const device::Vector<float, columns_at_once>*>(from);
            WARPRANK_UNROLL
            for (int c = 0; c < columns_at_once; ++c) sums[c] = four[c];
          }
          f(row, first_column + pair * 16 + column, sums);
        }
        device::sync_warp();
      }
    }
  }

 private:
  WARPRANK_DEVICE void multiply_chunk(const half* tile, int stride, const WeightStream& stream, int step,
                                      Warp& warp) const {
    warp.multiply(tile + first_row * stride, stride, stream, step, end, num_strips, num_tiles);
  }
  static WARPRANK_DEVICE int clamp(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }
};

}  // namespace warprank::detail
