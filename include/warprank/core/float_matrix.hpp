// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// A matrix of FP16 or FP32; Void is void or const void. In device memory its rows are the capacity.
template <class Void>
struct FloatMatrix {
  Void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements
  DType type = DType::f32;

  constexpr FloatMatrix() = default;
  template <class Value>
  constexpr FloatMatrix(Matrix<Value> m)  // NOLINT: a view
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride), type(dtype_of<std::remove_const_t<Value>>) {}

  /// Columns [first, first + count).
  FloatMatrix columns(int64_t first, int64_t count) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    FloatMatrix some = *this;
    some.data = data == nullptr ? nullptr : static_cast<Byte*>(data) + first * size_of(type);
    some.cols = count;
    return some;
  }
};

}}  // namespace warprank::v0
