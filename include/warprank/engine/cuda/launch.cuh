// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A step of a plan at one capacity: kernels that are ready to be queued.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank::cuda_backend {

/// What a step queues at every run, with the device memory that it alone uses.
struct PreparedStep {
  std::string kernel;  ///< what is launched
  int num_launches = 1;
  device::DeviceMemory descriptors, workspace;
  device::DeviceMemory lists;  ///< what one of its kernels makes for the next
  std::function<void(device::Stream, const PreparedStep&)> queue;

  int64_t bytes() const { return descriptors.bytes() + workspace.bytes() + lists.bytes(); }
};

/// Device memory with the bytes of `data`. Waits until they are there, so that nobody need keep them.
inline device::DeviceMemory copied(Span<const unsigned char> data, const std::string& what, device::Stream stream) {
  device::DeviceMemory memory(data.size(), what);
  if (data.size() > 0) {
    device::copy_to_device(memory.data(), data.data(), data.size(), stream);
    device::synchronize(stream);
  }
  return memory;
}

/// Device memory of zeros.
inline device::DeviceMemory zeroed(int64_t bytes, const std::string& what, device::Stream stream) {
  device::DeviceMemory memory(bytes, what);
  if (bytes > 0) device::fill(memory.data(), 0, bytes, stream);
  return memory;
}

}  // namespace warprank::cuda_backend
