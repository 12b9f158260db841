// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of FP16 in global memory, as blocks read them.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace detail::gemm {

/// Rows of a block, in global memory.
struct RowSource {
  const float16* first;  ///< of the block's first row; with a list, of row 0
  const int32_t* list;   ///< in shared memory: which rows they are; null: neighbours
  int64_t stride;
  int num_rows;     ///< those behind them read as zeros
  int num_columns;  ///< those behind them read as zeros
  bool is_aligned;  ///< every row to 16 bytes

  WARPRANK_DEVICE const float16* row(int r) const { return first + (list == nullptr ? r : list[r]) * stride; }
};

/// 8 columns of a row, those that do not exist as 0.
WARPRANK_DEVICE device::Vector<float16, 8> load_columns_of_row(const RowSource& source, int row, int column) {
  device::Vector<float16, 8> piece{};
  if (row >= source.num_rows) return piece;
  const float16* from = source.row(row) + column;
  if (source.is_aligned && column + 8 <= source.num_columns) return device::load_vector<8>(from);
  WARPRANK_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (column + i < source.num_columns) piece[i] = device::load(from + i);
  }
  return piece;
}

}}}  // namespace warprank::v0::detail::gemm
