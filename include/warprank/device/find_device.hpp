// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds out whether a device can be used, before any other use of it.

#include "warprank/core/on_cuda.hpp"
#include "warprank/device/backend.hpp"
#include "warprank/device/devices.hpp"
#include "warprank/device/requirements.hpp"

#if defined(WARPRANK_ON_CUDA)
namespace warprank { inline namespace v0 { namespace device::backend::runtime {

WARPRANK_HIDDEN inline FoundDevice find_device(int index) {
  FoundDevice found;
  found.index = index;
  cudaDriverGetVersion(&found.driver_version);
  cudaRuntimeGetVersion(&found.runtime_version);
  cudaError_t code = cudaGetDeviceCount(&found.num_devices);
  if (code == cudaSuccess && index >= 0 && index < found.num_devices) {
    const DeviceGuard current(index);
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, index), "describe a device");
    found.name = properties.name;
    found.capability = 10 * properties.major + properties.minor;
    cudaFuncAttributes attributes;
    code = find_code(attributes);
  }
  if (code == cudaSuccess) return found;
  cudaGetLastError();
  found.error = static_cast<int>(code);
  found.error_name = cudaGetErrorName(code);
  return found;
}

}}}  // namespace warprank::v0::device::backend::runtime
#else
namespace warprank { inline namespace v0 { namespace device::backend::runtime {

FoundDevice find_device(int index);  // the executor's

}}}  // namespace warprank::v0::device::backend::runtime
#endif

namespace warprank { inline namespace v0 { namespace device {

/// Throws a cuda_error with the unmet requirement and a remedy, unless the device can be used. Looks for code for the
/// device, which makes a context on it.
WARPRANK_HIDDEN inline void require_usable(int index) {
  if (const std::optional<cuda_error> why = why_unusable(backend::runtime::find_device(index))) throw *why;
}

}}}  // namespace warprank::v0::device
