// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shapes of stored tensors.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace warprank { inline namespace v0 {

using Shape = std::vector<int64_t>;

/// "[3, 4]"; "[]" is a scalar.
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// The number of elements; 1 for a scalar. Nothing if the product of the dimensions that are not 0 exceeds 2^63 - 1.
inline std::optional<int64_t> num_elements(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t dim : shape)
    if (dim != 0 && __builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  return std::count(shape.begin(), shape.end(), 0) > 0 ? 0 : product;
}

}}  // namespace warprank::v0
