// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host can see of matrices in device memory: their shape, alignment and overlap.

#include <cstdint>
#include <limits>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"

namespace warprank { inline namespace v0 { namespace detail {

inline constexpr int64_t max_layer_width = int64_t{1} << 30;
inline constexpr int64_t max_blocks = std::numeric_limits<int32_t>::max();

/// A matrix of FP16 or FP32, [rows, cols], whose elements are aligned.
template <class Void>
void check_matrix(const std::string& what, const FloatMatrix<Void>& matrix, int64_t rows, int64_t cols,
                  Problems& problems) {
  const auto shape = [](int64_t r, int64_t c) { return "[" + std::to_string(r) + ", " + std::to_string(c) + "]"; };
  if (matrix.type != DType::f16 && matrix.type != DType::f32) problems.add(what, "F16 or F32", name_of(matrix.type));
  if (matrix.rows != rows || matrix.cols != cols || rows < 0 || cols < 0)
    problems.add(what, shape(rows, cols), shape(matrix.rows, matrix.cols));
  if (matrix.stride < matrix.cols)
    problems.add(what, "a stride of at least its " + std::to_string(matrix.cols) + " columns",
                 std::to_string(matrix.stride));
  if (rows > 0) check_pointer(what, matrix.data, size_of(matrix.type), problems);
}

/// An input [rows, cols], or [segments, cols] on an ancestor; without data there is none.
inline void check_optional_input(const std::string& what, const AxisInput<void>& input, int64_t rows, int64_t cols,
                                 Problems& problems) {
  if (input.values.data != nullptr)
    check_matrix(what, input.values, input.on_ancestor() ? input.values.rows : rows, cols, problems);
  else if (input.on_ancestor() || input.num_segments != nullptr)
    problems.add(what, "a matrix, as it has segments", "none");
  if (!input.on_ancestor() && input.num_segments != nullptr) problems.add(what, "offsets of its segments", "none");
}

/// What is added and multiplied behind the products of a layer of `out` outputs, and before those of one of
/// `first_out`, which are the same but for a stack. Inputs: LinearLayer or Mlp.
template <class Inputs>
void check_epilogue(const Inputs& inputs, const std::string& what, int64_t first_out, int64_t out, Problems& problems) {
  const auto optional = [&](const char* name, const FloatMatrix<const void>& matrix) {
    if (matrix.data != nullptr) check_matrix(what + name, matrix, inputs.x.rows, out, problems);
  };
  optional("'s multiply", inputs.multiply);
  optional("'s residual", inputs.residual);
  check_optional_input(what + "'s row bias", inputs.row_bias, inputs.x.rows, first_out, problems);
  if (inputs.residual_first && inputs.residual.data == nullptr)
    problems.add(what + "'s residual", "one, as it is first", "none");
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

/// Whether they share a byte. Different columns of the same wide rows do not.
inline bool overlap(const Region& a, const Region& b) {
  if (a.is_empty() || b.is_empty() || a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.stride != b.stride) return true;
  const Region &first = a.begin <= b.begin ? a : b, &second = a.begin <= b.begin ? b : a;
  const auto offset = static_cast<int64_t>((second.begin - first.begin) % static_cast<uintptr_t>(a.stride));
  return offset < first.width || offset + second.width > a.stride;
}

}}}  // namespace warprank::v0::detail
