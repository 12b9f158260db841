// SPDX-License-Identifier: Apache-2.0

/// No bytes may crash the reader; what it accepts lies inside the file and survives writing and reading again.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "warprank/weights/safetensors.hpp"

namespace {

using namespace warprank;

void require(bool holds) {
  if (!holds) std::abort();
}

Span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), static_cast<int64_t>(text.size())};
}

void check_content(const SafetensorsContent& content, Span<const std::byte> file) {
  for (const auto& [name, tensor] : content.tensors) {
    require(tensor.data >= file.begin() && tensor.bytes >= 0 && tensor.data + tensor.bytes <= file.end());
    if (tensor.dtype) require(tensor.size() * size_of(*tensor.dtype) == tensor.bytes);
  }
  const std::string written = serialize_safetensors(content.tensors, content.metadata);
  const SafetensorsContent again = parse_safetensors("again", bytes_of(written));
  require(again.metadata == content.metadata && again.tensors.size() == content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    const TensorView& copy = again.tensors.at(name);
    require(copy.dtype == tensor.dtype && copy.shape == tensor.shape && copy.bytes == tensor.bytes);
    require(tensor.bytes == 0 || std::memcmp(copy.data, tensor.data, static_cast<size_t>(tensor.bytes)) == 0);
  }
}

void check(const std::string& file) {
  const Span<const std::byte> bytes = bytes_of(file);
  SafetensorsContent content;
  try {
    content = parse_safetensors("fuzz", bytes);
  } catch (const invalid_argument& error) {
    require(std::strlen(error.what()) < 2000 && error.problems().size() == 1);
    return;
  }
  check_content(content, bytes);
}

}  // namespace

/// Tries the input as a file, and again with the length of its header put right, which few mutations keep.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  const size_t end = file.rfind('}');
  if (size > 8 && end != std::string::npos && end >= 8) {
    const uint64_t length = end + 1 - 8;
    std::memcpy(file.data(), &length, sizeof length);
    check(file);
  }
  return 0;
}
