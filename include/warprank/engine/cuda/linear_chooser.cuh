// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where a device's measurements of linears hold.

#include "warprank/device/devices.hpp"
#include "warprank/engine/tuning.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline TunedOn tuned_on(int device_index) {
  const device::DeviceInfo info = device::device_info(device_index);
  TunedOn on;
  on.card = info.name;
  on.target = info.target;
  on.multiprocessors = info.multiprocessors;
  on.driver = info.driver_version;
  on.cublaslt = cublaslt_version();
  return on;
}

}}}  // namespace warprank::v0::cuda_backend
