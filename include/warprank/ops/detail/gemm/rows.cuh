// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Brings rows of FP16 from global to shared memory, some columns after others, for the products of tile.cuh.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/async_copy.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"

namespace warprank::detail {

/// Rows of a block, in global memory.
struct RowSource {
  const half* first;    ///< of the block's first row; with a list, of row 0
  const int32_t* list;  ///< in shared memory: which rows they are; null: neighbours
  int64_t stride;
  int num_rows;     ///< those behind them read as zeros
  int num_columns;  ///< those behind them read as zeros
  bool is_aligned;  ///< every row to 16 bytes

  WARPRANK_DEVICE const half* row(int r) const { return first + (list == nullptr ? r : list[r]) * stride; }
};

/// 8 columns of a row, those that do not exist as 0.
WARPRANK_DEVICE device::Vector<half, 8> load_columns_of_row(const RowSource& source, int row, int column) {
  device::Vector<half, 8> piece{};
  if (row >= source.num_rows) return piece;
  const half* from = source.row(row) + column;
  if (source.is_aligned && column + 8 <= source.num_columns) return device::load_vector<8>(from);
  WARPRANK_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (column + i < source.num_columns) piece[i] = device::load(from + i);
  }
  return piece;
}

/// Copies [Rows, Columns] with all Threads of a block, in two stages: `request` begins, `place` ends what the caller
/// requested. On targets with asynchronous copies the first goes to shared memory by itself and the caller commits and
/// waits; before them it goes to registers, so that the loads of a thread are in flight together.
template <int Target, int Rows, int Columns, int Threads>
struct RowCopy {
  static constexpr int pieces_per_row = Columns / 8;
  static constexpr int num_pieces = (Rows * pieces_per_row + Threads - 1) / Threads;
  static constexpr int stride = Columns + 8;  ///< of the tile in shared memory: an odd number of 16 bytes
  static constexpr bool is_async = Target >= 80;

  device::Vector<half, 8> pieces[is_async ? 1 : num_pieces];

  /// Columns [column, column + Columns) below `end`, a multiple of 16. Of the rows, strips of 16 that have any.
  WARPRANK_DEVICE void request(const RowSource& source, int column, int end, half* tile) {
    WARPRANK_UNROLL
    for (int i = 0; i < num_pieces; ++i) {
      const int row = row_of(i), from = column + column_of(i);
      if (!exists(source, row, from, end)) continue;
      if constexpr (is_async) {
        half* to = tile + row * stride + column_of(i);
        if (row < source.num_rows && source.is_aligned && from + 8 <= source.num_columns)
          device::copy_async(to, source.row(row) + from);
        else
          device::store_vector(to, load_columns_of_row(source, row, from));
      } else {
        pieces[i] = load_columns_of_row(source, row, from);
      }
    }
  }

  WARPRANK_DEVICE void place(const RowSource& source, int column, int end, half* tile) const {
    if constexpr (!is_async) {
      WARPRANK_UNROLL
      for (int i = 0; i < num_pieces; ++i) {
        if (!exists(source, row_of(i), column + column_of(i), end)) continue;
        device::store_vector(tile + row_of(i) * stride + column_of(i), pieces[i]);
      }
    }
  }

 private:
  static WARPRANK_DEVICE int row_of(int i) { return (device::thread_rank() + i * Threads) / pieces_per_row; }
  static WARPRANK_DEVICE int column_of(int i) { return (device::thread_rank() + i * Threads) % pieces_per_row * 8; }
  static WARPRANK_DEVICE bool exists(const RowSource& source, int row, int column, int end) {
    return row < (source.num_rows + 15) / 16 * 16 && row < Rows && column < end;
  }
};

}  // namespace warprank::detail
