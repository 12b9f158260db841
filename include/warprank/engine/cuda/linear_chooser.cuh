// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who chooses the kernels of linears on a device: the tuning that was given, where it is of this device.

#include "warprank/device/devices.hpp"
#include "warprank/engine/cuda/linear_choice.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"

namespace warprank::cuda_backend {

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

/// Throws invalid_argument for a tuning of elsewhere, unless that is to be ignored.
inline LinearChooser chooser_for(const BindOptions& options, int device_index) {
  const TunedOn here = tuned_on(device_index);
  const LinearChooser by_rule(nullptr, has_cublaslt(), here.target, options.linear_kernel);
  if (options.tuning == nullptr) return by_rule;
  try {
    check_tuning(*options.tuning, here);
  } catch (const invalid_argument&) {
    if (options.foreign_tuning == ForeignTuning::refuse) throw;
    return by_rule;
  }
  return {options.tuning, has_cublaslt(), here.target, options.linear_kernel};
}

}  // namespace warprank::cuda_backend
