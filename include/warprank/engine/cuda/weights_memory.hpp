// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The packed weights of a model, gathered on the host before they are copied to the device at once.
///
/// Kernels of ours find weights by descriptors, which are in device memory and name another model's after an exchange.
/// cuBLASLt's launches have their addresses in them: what these read is gathered apart, and each context has a copy of
/// its own, at addresses that stay.

#include <cstdint>
#include <cstring>
#include <vector>

#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Steps keep where their weights begin.
class WeightsMemory {
 public:
  static constexpr int64_t alignment = 256;

  /// Copies the bytes; returns where they begin. Nothing takes no place and gives -1.
  int64_t add(const void* data, int64_t bytes) { return add(data, bytes, bytes_); }
  int64_t add(const std::vector<float>& values) { return add(values.data(), 4 * static_cast<int64_t>(values.size())); }

  /// The same among those that contexts copy.
  int64_t add_copied(const void* data, int64_t bytes) { return add(data, bytes, copied_); }

  Span<const unsigned char> bytes() const { return bytes_; }
  Span<const unsigned char> copied() const { return copied_; }

 private:
  static int64_t add(const void* data, int64_t bytes, std::vector<unsigned char>& to) {
    if (bytes == 0) return -1;
    const size_t begin = (to.size() + alignment - 1) / alignment * alignment;
    to.resize(begin + static_cast<size_t>(bytes));
    std::memcpy(to.data() + begin, data, static_cast<size_t>(bytes));
    return static_cast<int64_t>(begin);
  }

  std::vector<unsigned char> bytes_, copied_;
};

}}}  // namespace warprank::v0::cuda_backend
