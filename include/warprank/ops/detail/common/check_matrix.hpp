// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host can see of device memory, and of a matrix in it.

#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

inline void check_pointer(const std::string& what, const void* data, int64_t alignment, Problems& problems) {
  if (data == nullptr) problems.add(what, "device memory", "null");
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0)
    problems.add(what, "memory aligned to " + std::to_string(alignment) + " bytes", "an address that is not");
}

/// Adds what is wrong with the view itself: negative sizes, a stride below the columns, no address, an address that
/// the type cannot have.
template <class Value>
void check_matrix(const std::string& what, const Matrix<Value>& matrix, Problems& problems) {
  if (matrix.rows < 0 || matrix.cols < 0) {
    problems.add(what, "a shape", "[" + std::to_string(matrix.rows) + ", " + std::to_string(matrix.cols) + "]");
    return;
  }
  if (matrix.stride < matrix.cols) {
    problems.add(what, "rows at least " + std::to_string(matrix.cols) + " elements apart",
                 std::to_string(matrix.stride));
  }
  if (matrix.rows == 0 || matrix.cols == 0) return;
  if (matrix.data == nullptr) problems.add(what, "an address", "null");
  const auto misaligned = reinterpret_cast<uintptr_t>(matrix.data) % sizeof(Value);
  if (misaligned != 0) {
    problems.add(what, "an address aligned to " + std::to_string(sizeof(Value)) + " bytes",
                 std::to_string(misaligned) + " bytes behind one");
  }
}

}}}  // namespace warprank::v0::detail
