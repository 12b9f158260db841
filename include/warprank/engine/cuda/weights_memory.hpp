// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The packed weights of a model, gathered on the host before they are copied to the device at once.

#include <cstdint>
#include <cstring>
#include <vector>

#include "warprank/core/view.hpp"

namespace warprank::cuda_backend {

/// Steps keep where their weights begin.
class WeightsMemory {
 public:
  static constexpr int64_t alignment = 256;

  /// Copies the bytes; returns where they begin. Nothing takes no place and gives -1.
  int64_t add(const void* data, int64_t bytes) {
    if (bytes == 0) return -1;
    const size_t begin = (bytes_.size() + alignment - 1) / alignment * alignment;
    bytes_.resize(begin + static_cast<size_t>(bytes));
    std::memcpy(bytes_.data() + begin, data, static_cast<size_t>(bytes));
    return static_cast<int64_t>(begin);
  }
  int64_t add(const std::vector<float>& values) { return add(values.data(), 4 * static_cast<int64_t>(values.size())); }

  Span<const unsigned char> bytes() const { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
};

}  // namespace warprank::cuda_backend
