// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host can see, before a launch, of matrices of FP16 or FP32 in device memory: their shape, alignment and
/// overlap.

#include <cstdint>
#include <limits>
#include <string>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Of one launch.
inline constexpr int64_t max_blocks = std::numeric_limits<int32_t>::max();

/// A matrix of FP16 or FP32, [rows, cols], whose elements are aligned.
template <class Void>
void check_matrix(const std::string& what, const FloatMatrix<Void>& matrix, int64_t rows, int64_t cols,
                  Problems& problems) {
  const auto shape = [](int64_t r, int64_t c) { return "[" + std::to_string(r) + ", " + std::to_string(c) + "]"; };
  if (matrix.type != DType::f16 && matrix.type != DType::f32) problems.add(what, "F16 or F32", name_of(matrix.type));
  if (rows < 0 || cols < 0)
    problems.add(what, "0 or more rows and columns", shape(matrix.rows, matrix.cols));
  else if (matrix.rows != rows || matrix.cols != cols)
    problems.add(what, shape(rows, cols), shape(matrix.rows, matrix.cols));
  if (matrix.stride < matrix.cols)
    problems.add(what, "a stride of at least its " + std::to_string(matrix.cols) + " columns",
                 std::to_string(matrix.stride));
  if (rows > 0) check_pointer(what, matrix.data, size_of(matrix.type), problems);
}

/// The bytes of a matrix: rows of `width` bytes, `stride` apart.
struct Region {
  uintptr_t begin = 0;
  int64_t rows = 0, width = 0, stride = 0;

  bool is_empty() const { return rows == 0 || width == 0; }
  uintptr_t end() const { return begin + static_cast<uintptr_t>((rows - 1) * stride + width); }
  bool operator==(const Region& other) const {
    return begin == other.begin && rows == other.rows && width == other.width && stride == other.stride;
  }
};

template <class Void>
Region region_of(const FloatMatrix<Void>& matrix) {
  const int64_t size = size_of(matrix.type);
  return {reinterpret_cast<uintptr_t>(matrix.data), matrix.data == nullptr ? 0 : matrix.rows, matrix.cols * size,
          matrix.stride * size};
}

/// Whether they share a byte. Different columns of the same wide rows do not. Strides may be wrong.
inline bool overlap(const Region& a, const Region& b) {
  if (a.is_empty() || b.is_empty() || a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.stride != b.stride || a.stride <= 0) return true;
  const Region &first = a.begin <= b.begin ? a : b, &second = a.begin <= b.begin ? b : a;
  const auto offset = static_cast<int64_t>((second.begin - first.begin) % static_cast<uintptr_t>(a.stride));
  return offset < first.width || offset + second.width > a.stride;
}

/// That an output shares no byte with an input, which is `name`.
inline void check_apart(const std::string& what, const FloatMatrix<const void>& y, const std::string& name,
                        const FloatMatrix<const void>& x, Problems& problems) {
  if (overlap(region_of(y), region_of(x))) problems.add(what, "memory of its own", "an overlap with " + name);
}

}}}  // namespace warprank::v0::detail
