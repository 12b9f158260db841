// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What happens to the sums of a linear layer before they are stored:
///
///     y = f(sum + bias + row_bias[segment of the row]) * multiply + residual
///
/// or, with residual_first, y = f(sum + bias + row_bias + residual) * multiply; in FP32; then FP16 is rounded to
/// nearest. A finite result above the largest finite FP16 is stored as that, with its sign; infinity and NaN stay what
/// they are.

#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 { namespace detail::gemm {

/// Columns that a thread finishes together.
inline constexpr int columns_at_once = 4;

/// A FloatMatrix as kernels take it.
template <class Void>
struct Operand {
  Void* data = nullptr;
  int64_t stride = 0;
  bool is_half = false;
  bool is_aligned = false;  ///< four columns from any multiple of 4 on are accessed by one instruction
};

/// Checked before: a problem of FP16 or FP32 and of this shape.
template <class Void>
Operand<Void> operand_of(const FloatMatrix<Void>& matrix) {
  const int64_t bytes = columns_at_once * size_of(matrix.type);
  const bool is_aligned = reinterpret_cast<uintptr_t>(matrix.data) % static_cast<uintptr_t>(bytes) == 0 &&
                          matrix.stride % columns_at_once == 0;
  return {matrix.data, matrix.stride, matrix.type == DType::f16, is_aligned};
}

/// As it lies in device memory, in a descriptor.
struct Epilogue {
  const float* bias = nullptr;            ///< [width], aligned to 16
  Operand<const void> row_bias;           ///< no data: none
  const int64_t* offsets = nullptr;       ///< [segments + 1]; null: row n of row_bias is for row n
  const int64_t* num_segments = nullptr;  ///< null: max_segments
  int64_t max_segments = 0;
  DeviceActivation activation;
  Operand<const void> multiply, residual;  ///< no data: none
  Operand<void> y;
  int64_t width = 0;
  bool residual_first = false;
};

/// The segment that holds a row, of `count` whose `offsets` are [count + 1]; the row itself where there are none.
/// `num_segments`: how many there are now; null: `count`.
WARPRANK_DEVICE int64_t segment_of(const int64_t* offsets, const int64_t* num_segments, int64_t count, int64_t row) {
  if (offsets == nullptr) return row;
  return device::last_not_above(offsets, device::true_count(num_segments, count), row);
}

/// The row of row_bias for a row.
WARPRANK_DEVICE int64_t bias_row_of(const Epilogue& epilogue, int64_t row) {
  return segment_of(epilogue.offsets, epilogue.num_segments, epilogue.max_segments, row);
}

/// values = the columns [column, column + 4) of a row, 0 where there are none. An aligned matrix is read by vectors
/// where `column` is a multiple of 4.
WARPRANK_DEVICE void load_operand(const Operand<const void>& from, int64_t row, int64_t column, int64_t width,
                                  float (&values)[columns_at_once]) {
  const int64_t at = row * from.stride + column;
  const auto load_all = [&](auto* data) {
    if (from.is_aligned && column % columns_at_once == 0 && column + columns_at_once <= width) {
      const auto four = device::load_vector<columns_at_once>(data + at);
      WARPRANK_UNROLL
      for (int i = 0; i < columns_at_once; ++i) values[i] = device::widen(four[i]);
    } else {
      WARPRANK_UNROLL
      for (int i = 0; i < columns_at_once; ++i)
        values[i] = column + i < width ? device::widen(device::load(data + at + i)) : 0.0f;
    }
  };
  if (from.is_half)
    load_all(static_cast<const float16*>(from.data));
  else
    load_all(static_cast<const float*>(from.data));
}

WARPRANK_DEVICE float load_element(const Operand<const void>& from, int64_t row, int64_t column) {
  const int64_t at = row * from.stride + column;
  return from.is_half ? device::widen(device::load(static_cast<const float16*>(from.data) + at))
                      : device::load(static_cast<const float*>(from.data) + at);
}

WARPRANK_DEVICE void store_operand(const Operand<void>& to, int64_t row, int64_t column, int64_t width,
                                   const float (&values)[columns_at_once]) {
  const int64_t at = row * to.stride + column;
  const auto store_all = [&](auto* data) {
    using Value = std::remove_reference_t<decltype(*data)>;
    device::Vector<Value, columns_at_once> four;
    WARPRANK_UNROLL
    for (int i = 0; i < columns_at_once; ++i) four[i] = device::narrow<Value>(values[i]);
    if (to.is_aligned && column + columns_at_once <= width) {
      device::store_vector(data + at, four);
    } else {
      WARPRANK_UNROLL
      for (int i = 0; i < columns_at_once; ++i)
        if (column + i < width) device::store(data + at + i, four[i]);
    }
  };
  if (to.is_half)
    store_all(static_cast<float16*>(to.data));
  else
    store_all(static_cast<float*>(to.data));
}

/// values = y of the columns [column, column + 4) of a row, whose sums they are. `bias_row` is bias_row_of the row.
/// What is not below the width is f of its sum.
WARPRANK_DEVICE void combine_columns(const Epilogue& epilogue, int64_t row, int64_t bias_row, int64_t column,
                                     float (&values)[columns_at_once]) {
  const int64_t width = epilogue.width;
  float other[columns_at_once];
  const auto combine = [&](auto f) {
    WARPRANK_UNROLL
    for (int i = 0; i < columns_at_once; ++i) values[i] = f(values[i], other[i]);
  };
  const auto add = [](float a, float b) { return a + b; };
  const auto add_residual = [&] {
    load_operand(epilogue.residual, row, column, width, other);
    combine(add);
  };
  const bool has_residual = epilogue.residual.data != nullptr;
  load_operand({epilogue.bias, 0, false, true}, 0, column, width, other);
  combine(add);
  if (epilogue.row_bias.data != nullptr) {
    load_operand(epilogue.row_bias, bias_row, column, width, other);
    combine(add);
  }
  if (has_residual && epilogue.residual_first) add_residual();
  activate(epilogue.activation, values, column, width);
  if (epilogue.multiply.data != nullptr) {
    load_operand(epilogue.multiply, row, column, width, other);
    combine([](float a, float b) { return a * b; });
  }
  if (has_residual && !epilogue.residual_first) add_residual();
}

/// The same, and stores them.
WARPRANK_DEVICE void finish_columns(const Epilogue& epilogue, int64_t row, int64_t bias_row, int64_t column,
                                    float (&values)[columns_at_once]) {
  combine_columns(epilogue, row, bias_row, column, values);
  store_operand(epilogue.y, row, column, epilogue.width, values);
}

}}}  // namespace warprank::v0::detail::gemm
