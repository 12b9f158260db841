// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A few lanes of a warp for each row, each with some of its columns.

#include <cstdint>
#include <limits>

#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace detail {

inline constexpr int row_vector_size = 4;  // columns of a lane where everything is aligned, else 1
inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// The larger one, NaN when one is.
WARPRANK_DEVICE float max_or_nan(float a, float b) { return a > b || a != a ? a : b; }

/// A value of each lane, with those of the others that share its row: `lanes` of them, a power of two.
template <class Combine>
WARPRANK_DEVICE float combine_lanes(int lanes, float value, Combine f) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value = f(value, device::shuffle_xor(device::full_warp, value, distance));
  }
  return value;
}

/// The lanes that share a row: `lanes`, a power of two, each with `VecSize` columns at a time.
template <int VecSize>
struct RowLanes {
  static constexpr int size = VecSize;
  int lanes, rank;
  int64_t cols;
  bool exists;  // lanes without a row take part in what a warp does together

  /// Calls f(column) for the caller's columns.
  template <class Function>
  WARPRANK_DEVICE void for_each(Function f) const {
    for (int64_t column = rank * VecSize; exists && column < cols; column += int64_t{lanes} * VecSize) f(column);
  }
  /// The j-th of those that begin with a column, and whether there is one.
  WARPRANK_DEVICE int64_t column_of(int64_t first, int j) const { return first + j; }
  WARPRANK_DEVICE bool has(int64_t, int) const { return true; }

  WARPRANK_DEVICE float sum(float value) const {
    return combine_lanes(lanes, value, [](float a, float b) { return a + b; });
  }
};

/// Which row of its warp a lane has when `lanes` share one, and of those which lane it is: divisions by a power of two.
WARPRANK_DEVICE int row_in_warp(int lanes) {
  return device::lane_index() >> device::first_bit(static_cast<uint32_t>(lanes));
}
WARPRANK_DEVICE int rank_in_row(int lanes) { return device::lane_index() & (lanes - 1); }
/// How many rows a warp has at a time.
WARPRANK_DEVICE int rows_of_warp(int lanes) {
  return device::warp_size >> device::first_bit(static_cast<uint32_t>(lanes));
}

template <int VecSize, class Out>
WARPRANK_DEVICE void store_values(Out* to, const float (&values)[VecSize]) {
  device::Vector<Out, VecSize> narrowed;
  device::narrow_all<Out>(values, narrowed);
  device::store_vector(to, narrowed);
}

template <int VecSize, class Value>
WARPRANK_DEVICE void widen_values(const device::Vector<Value, VecSize>& from, float (&values)[VecSize]) {
  WARPRANK_UNROLL
  for (int j = 0; j < VecSize; ++j) values[j] = device::widen(from[j]);
}

/// Whether every row begins at a multiple of so many elements.
template <class Void>
bool rows_are_aligned(const FloatMatrix<Void>& matrix, int64_t elements = row_vector_size) {
  const auto bytes = static_cast<uintptr_t>(elements * size_of(matrix.type));
  return reinterpret_cast<uintptr_t>(matrix.data) % bytes == 0 && (matrix.stride % elements == 0 || matrix.rows == 1);
}

template <class Value>
bool rows_are_aligned(const Matrix<Value>& matrix, int64_t elements = row_vector_size) {
  return rows_are_aligned(FloatMatrix<const void>(matrix), elements);
}

/// How many lanes share a row of so many vectors: a power of two up to 32.
inline int lanes_for(int64_t vectors) {
  int lanes = 1;
  while (lanes < device::warp_size && lanes < vectors) lanes *= 2;
  return lanes;
}

}}}  // namespace warprank::v0::detail
