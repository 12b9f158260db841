// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which devices there are, and which one the calling thread uses.

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/on_cuda.hpp"
#include "warprank/device/backend.hpp"
#include "warprank/device/device_info.hpp"

#if defined(WARPRANK_ON_CUDA)
#include "warprank/device/cuda_runtime.cuh"
#else
#include "warprank/device/executor_runtime.hpp"
#endif

namespace warprank { inline namespace v0 { namespace device {

/// How many devices there are; 0 also where there is no driver, or one that is too old.
WARPRANK_HIDDEN inline int num_devices() { return backend::runtime::num_devices(); }

/// Makes a device the calling thread's current one, and the one before again when it goes. Where that is the same it
/// does nothing. A thread that has chosen none has device 0, and going back there makes a context on it, which takes
/// some hundred MB of that card: threads that use another device had better choose it (cudaSetDevice) when they begin.
/// Throws cuda_error when there is no such device or no usable driver.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index) : index_(index), before_(backend::runtime::set_device(index)) {}
  ~DeviceGuard() {
    if (before_ != index_) backend::runtime::restore_device(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int index_, before_;
};

/// Throws cuda_error when there is no such device, no usable driver, or no code for the device.
WARPRANK_HIDDEN inline DeviceInfo device_info(int index) {
  const DeviceGuard current(index);
  return backend::runtime::current_device_info();
}

}}}  // namespace warprank::v0::device
