// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host can see of matrices in device memory: their shape, alignment and overlap.

#include <cstdint>
#include <limits>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/float_matrix.hpp"

namespace warprank::detail {

inline constexpr int64_t max_layer_width = int64_t{1} << 30;
inline constexpr int64_t max_blocks = std::numeric_limits<int32_t>::max();

inline void check_pointer(const std::string& what, const void* data, int64_t alignment, Problems& problems) {
  if (data == nullptr) problems.add(what, "device memory", "null");
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0)
    problems.add(what, "memory aligned to " + std::to_string(alignment) + " bytes", "an address that is not");
}

/// Throws unless it is memory of this alignment. Costs nothing where it is.
inline void require_memory(const char* what, const void* data, int64_t alignment) {
  if (data != nullptr && reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) == 0) return;
  Problems problems;
  check_pointer(what, data, alignment, problems);
  problems.throw_if_any();
}

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

/// What is added and multiplied behind the products of a layer of `out` outputs, and before those of one of
/// `first_out`, which are the same but for a stack. `has_row_bias`: segments serve one. Inputs: LinearLayer or Mlp.
template <class Inputs>
void check_epilogue(const Inputs& inputs, const std::string& what, int64_t first_out, int64_t out, bool has_row_bias,
                    Problems& problems) {
  const auto optional = [&](const char* name, const FloatMatrix<const void>& matrix, int64_t rows, int64_t cols) {
    if (matrix.data != nullptr) check_matrix(what + name, matrix, rows, cols, problems);
  };
  const bool has_segments = inputs.segment_offsets != nullptr;
  optional("'s multiply", inputs.multiply, inputs.x.rows, out);
  optional("'s residual", inputs.residual, inputs.x.rows, out);
  optional("'s row bias", inputs.row_bias, has_segments ? inputs.row_bias.rows : inputs.x.rows, first_out);
  if (!has_row_bias && (has_segments || inputs.num_segments != nullptr))
    problems.add(what + "'s segments", "a row bias that they serve", "none");
  else if (!has_segments && inputs.num_segments != nullptr)
    problems.add(what + "'s segment_offsets", "device memory, as there is a number of segments", "null");
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

}  // namespace warprank::detail
