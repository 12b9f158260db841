// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Converts the library's 16-bit floats to CUDA's, and back: the same bits. Needs the CUDA toolkit; also usable in
/// kernels.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "warprank/core/dtype.hpp"
#include "warprank/core/host_device.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_DEVICE inline __half to_cuda(float16 value) {
  __half_raw raw;
  raw.x = value.bits;
  return raw;
}
WARPRANK_HOST_DEVICE inline __nv_bfloat16 to_cuda(bfloat16 value) {
  __nv_bfloat16_raw raw;
  raw.x = value.bits;
  return raw;
}
WARPRANK_HOST_DEVICE inline float16 from_cuda(__half value) { return {static_cast<__half_raw>(value).x}; }
WARPRANK_HOST_DEVICE inline bfloat16 from_cuda(__nv_bfloat16 value) {
  return {static_cast<__nv_bfloat16_raw>(value).x};
}

}}  // namespace warprank::v0
