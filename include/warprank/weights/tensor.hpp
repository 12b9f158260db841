// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stored tensors: row-major, little-endian, at any address.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored tensors are read as they lie in memory");

/// A view of a tensor, read only.
struct TensorView {
  const char* type_name = "";       ///< the name in the file: "F32"
  std::optional<DType> dtype;       ///< nothing: a type that warprank does not read, such as F64
  Shape shape;                      ///< its product is known not to overflow
  const std::byte* data = nullptr;  ///< [bytes], no alignment assumed
  int64_t bytes = 0;

  int64_t size() const { return *num_elements(shape); }
};

/// Element `i` of `data`, which may be misaligned.
template <class Value>
Value load_element(const std::byte* data, int64_t i) {
  Value value;
  std::memcpy(static_cast<void*>(&value), data + i * static_cast<int64_t>(sizeof(Value)), sizeof value);
  return value;
}

/// A tensor that owns its elements.
struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;

  TensorView view() const { return {name_of(dtype), dtype, shape, bytes.data(), static_cast<int64_t>(bytes.size())}; }
};

/// Copies `values`, row-major, into a tensor of their type. Throws invalid_argument if their number does not fit the
/// shape.
template <class Value>
StoredTensor make_tensor(Shape shape, const std::vector<Value>& values) {
  if (num_elements(shape) != static_cast<int64_t>(values.size()))
    throw invalid_argument("tensor", "as many values as shape " + to_string(shape) + " has elements",
                           std::to_string(values.size()));
  StoredTensor tensor{dtype_of<Value>, std::move(shape), std::vector<std::byte>(values.size() * sizeof(Value))};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

}}  // namespace warprank::v0
