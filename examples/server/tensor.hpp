// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tensors as the Open Inference Protocol has them, without gRPC.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"

namespace kserve {

/// One that came. What it points to lives as long as the call.
struct Tensor {
  std::string_view name;
  std::string_view datatype;  ///< "INT64", "FP32", "BYTES", ..
  std::vector<int64_t> shape;
  std::string_view bytes;                  ///< elements one after the other, little-endian; of BYTES each behind its
                                           ///< length as 4 bytes, unless they are in `elements`
  std::vector<std::string_view> elements;  ///< BYTES that came one by one
};

/// One that goes.
struct OutputTensor {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// The tensor of form (b): blobs of docs/BATCH_FORMAT.md.
inline constexpr const char* blobs_name = "request_blobs";
/// The one that says why requests were not scored.
inline constexpr const char* errors_name = "errors";

/// Whether only the server may call a tensor so.
inline bool is_servers_own(std::string_view name) {
  constexpr std::string_view offsets = ".offsets";
  const bool is_offsets = name.size() >= offsets.size() && name.substr(name.size() - offsets.size()) == offsets;
  return is_offsets || name == blobs_name || name == errors_name;
}

inline std::string to_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// Bytes of an element; 0 of BYTES and of what no input takes.
inline int64_t element_bytes(std::string_view datatype) {
  if (datatype == "INT64" || datatype == "UINT64") return 8;
  return datatype == "INT32" || datatype == "FP32" ? 4 : 0;
}

/// Whether `bytes` are as many as a tensor of a shape has.
inline bool has_size(const std::vector<int64_t>& shape, int64_t element, size_t bytes) {
  int64_t size = element;
  bool is_empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return false;
    if (extent == 0)
      is_empty = true;
    else if (__builtin_mul_overflow(size, extent, &size))
      return false;
  }
  return static_cast<size_t>(is_empty ? 0 : size) == bytes;
}

/// The elements of a BYTES tensor of one dimension. Throws warprank::invalid_argument.
inline std::vector<std::string_view> byte_elements(const Tensor& tensor) {
  const std::string what = "tensor '" + std::string(tensor.name) + "'";
  if (tensor.datatype != "BYTES") throw warprank::invalid_argument(what, "BYTES", std::string(tensor.datatype));
  if (tensor.shape.size() != 1 || tensor.shape[0] < 0)
    throw warprank::invalid_argument(what, "one dimension", to_string(tensor.shape));
  std::vector<std::string_view> elements = tensor.elements;
  std::string_view left = tensor.bytes;
  while (!left.empty()) {
    uint32_t size = 0;
    if (left.size() < sizeof size)
      throw warprank::invalid_argument(what, "a length of 4 bytes in front of each element",
                                       std::to_string(left.size()) + " bytes at the end");
    std::memcpy(&size, left.data(), sizeof size);
    left.remove_prefix(sizeof size);
    if (left.size() < size)
      throw warprank::invalid_argument(what, "an element of " + std::to_string(size) + " bytes, as its length says",
                                       std::to_string(left.size()) + " bytes at the end");
    elements.push_back(left.substr(0, size));
    left.remove_prefix(size);
  }
  if (static_cast<int64_t>(elements.size()) != tensor.shape[0])
    throw warprank::invalid_argument(what, std::to_string(tensor.shape[0]) + " elements, as its shape says",
                                     std::to_string(elements.size()));
  return elements;
}

}  // namespace kserve
