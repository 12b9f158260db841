// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which devices there are, and which one the calling thread uses.

#include "warprank/core/cuda_error.hpp"
#include "warprank/device/backend.hpp"
#include "warprank/device/device_info.hpp"

#if defined(__CUDACC__)
#include "warprank/device/cuda_runtime.cuh"
#else
#include "warprank/device/executor_runtime.hpp"
#endif

namespace warprank::device {

/// How many devices there are; 0 also where there is no driver, or one that is too old.
WARPRANK_HIDDEN inline int num_devices() { return backend::runtime::num_devices(); }

/// Makes a device the calling thread's current one, and the one before again when it goes. Throws cuda_error when there
/// is no such device or no usable driver.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index) : before_(backend::runtime::set_device(index)) {}
  ~DeviceGuard() { backend::runtime::restore_device(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_;
};

/// Throws cuda_error when there is no such device, no usable driver, or no code for the device.
WARPRANK_HIDDEN inline DeviceInfo device_info(int index) {
  const DeviceGuard current(index);
  return backend::runtime::current_device_info();
}

}  // namespace warprank::device
