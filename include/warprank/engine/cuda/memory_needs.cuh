// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Whether a device has room for what is going to be allocated, asked before the first of it is.

#include <cstdint>
#include <string>

#include "warprank/core/cuda_error.hpp"
#include "warprank/device/devices.hpp"
#include "warprank/device/owned_memory.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

class MemoryNeeds {
 public:
  void add(const std::string& what, int64_t bytes) {
    bytes_ += bytes;
    each_ += (each_.empty() ? "" : ", ") + what + " " + std::to_string(bytes);
  }
  int64_t bytes() const { return bytes_; }

  /// Throws out_of_device_memory with everything that `who` needs when it is more than is free.
  void check(const std::string& who, int device_index) const {
    const int64_t free_bytes = device::free_bytes(device_index);
    if (bytes_ > free_bytes)
      throw out_of_device_memory(who + " (bytes: " + each_ + ")", bytes_, free_bytes,
                                 device::device_info(device_index).total_bytes);
  }

 private:
  int64_t bytes_ = 0;
  std::string each_;
};

}}}  // namespace warprank::v0::cuda_backend
