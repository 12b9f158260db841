// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"

namespace warprank::detail::din {

/// Rows of FP16 in global memory.
struct Rows {
  const half* data = nullptr;
  int64_t stride = 0;
  bool is_aligned = false;  ///< 8 columns from any multiple of 8 on are loaded by one instruction
};

inline Rows rows_of(const Matrix<const half>& matrix) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
  return {matrix.data, matrix.stride, is_aligned};
}

}  // namespace warprank::detail::din
