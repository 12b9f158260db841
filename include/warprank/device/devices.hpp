// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The devices, and the current device of the calling thread.

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

/// The number of devices; 0 also if there is no driver or it is too old.
WARPRANK_HIDDEN inline int num_devices() { return backend::runtime::num_devices(); }

/// Makes a device the calling thread's current device, and its destructor restores the previous one. Does nothing if
/// both are the same. A thread that has chosen no device has device 0, and restoring device 0 makes a context on it,
/// which takes some hundred MB of that card. So a thread that uses another device should choose it (cudaSetDevice) when
/// it begins. Throws cuda_error if there is no such device or no usable driver.
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

/// Describes a device. Throws cuda_error if there is no such device, no usable driver, or no code for the device.
WARPRANK_HIDDEN inline DeviceInfo device_info(int index) {
  const DeviceGuard current(index);
  return backend::runtime::current_device_info();
}

}}}  // namespace warprank::v0::device
