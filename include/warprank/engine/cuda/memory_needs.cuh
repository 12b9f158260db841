// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Whether a device has room for what is going to be allocated, asked before the first of it is.

#include <cstdint>
#include <string>

#include "warprank/core/cuda_error.hpp"
#include "warprank/device/devices.hpp"

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
    const device::DeviceInfo info = device::device_info(device_index);
    if (bytes_ > info.free_bytes)
      throw out_of_device_memory(who + " (bytes: " + each_ + ")", bytes_, info.free_bytes, info.total_bytes);
  }

 private:
  int64_t bytes_ = 0;
  std::string each_;
};

}}}  // namespace warprank::v0::cuda_backend
