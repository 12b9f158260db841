// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Non-owning views: the arguments and results of ops. Counts, strides and offsets are 64-bit everywhere.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace warprank { inline namespace v0 {

/// A contiguous range (std::span needs C++20).
template <class Value>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(Value* data, int64_t size) : data_(data), size_(size) {}
  template <size_t Size>
  constexpr Span(Value (&values)[Size]) : data_(values), size_(static_cast<int64_t>(Size)) {}  // NOLINT: a view
  /// From a vector, std::array, std::span and any object with data() and size(); temporaries are read only.
  template <class Values, class Element = std::remove_pointer_t<decltype(std::declval<Values&>().data())>,
            class = decltype(std::declval<Values&>().size()),
            class = std::enable_if_t<std::is_same_v<const Element, Value> ||
                                     (std::is_same_v<Element, Value> && std::is_lvalue_reference_v<Values>)>>
  constexpr Span(Values&& values)  // NOLINT: a view
      : data_(values.data()), size_(static_cast<int64_t>(values.size())) {}

  constexpr Value* data() const { return data_; }
  constexpr int64_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr Value& operator[](int64_t i) const { return data_[i]; }
  constexpr Value* begin() const { return data_; }
  constexpr Value* end() const { return data_ + size_; }
  constexpr Span subspan(int64_t begin, int64_t count) const { return {data_ + begin, count}; }

 private:
  Value* data_ = nullptr;
  int64_t size_ = 0;
};

/// A row-major matrix whose rows may lie in a wider row: element (r, c) is data[r * stride + c].
template <class Value>
struct Matrix {
  Value* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements from one row to the next, >= cols

  constexpr Matrix() = default;
  constexpr Matrix(Value* data, int64_t rows, int64_t cols, int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  constexpr Matrix(Value* data, int64_t rows, int64_t cols) : Matrix(data, rows, cols, cols) {}
  template <class Other, class = std::enable_if_t<std::is_same_v<const Other, Value>>>
  constexpr Matrix(Matrix<Other> other)  // NOLINT: a view converts to const
      : Matrix(other.data, other.rows, other.cols, other.stride) {}

  constexpr Value* row(int64_t r) const { return data + r * stride; }
  constexpr Matrix columns(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
  constexpr Matrix row_range(int64_t begin, int64_t count) const { return {row(begin), count, cols, stride}; }
};

/// Consecutive rows grouped by their parent: segment s holds rows [offsets[s], offsets[s + 1]).
struct Segments {
  const int64_t* offsets = nullptr;  ///< [count + 1], offsets[0] = 0, never decreasing
  int64_t count = 0;

  constexpr int64_t begin(int64_t s) const { return offsets[s]; }
  constexpr int64_t end(int64_t s) const { return offsets[s + 1]; }
  constexpr int64_t size(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  constexpr int64_t rows() const { return count == 0 ? 0 : offsets[count]; }
};

}}  // namespace warprank::v0
