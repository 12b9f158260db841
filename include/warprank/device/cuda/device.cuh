// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's interface to the device: plain C++ with the CUDA runtime.

#include <cuda_runtime.h>

#include <cstdint>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/device/compiled_kernels.hpp"

namespace warprank { inline namespace v0 { namespace device::nowhere {

// In a namespace of its own: functions of the backend must not be found by their argument.
struct Here {
  static constexpr WARPRANK_HOST_DEVICE Here current() { return {}; }
};

}}}  // namespace warprank::v0::device::nowhere

namespace warprank { inline namespace v0 { namespace device::backend {

using nowhere::Here;

using Dim3 = dim3;
using Stream = cudaStream_t;

/// The attributes of the code that the current device would run; compiled with the kernels (launch.cuh).
WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE cudaError_t find_code(cudaFuncAttributes& attributes);

WARPRANK_HIDDEN inline int target() {
  cudaFuncAttributes attributes;
  check_cuda(find_code(attributes), "find code for the device");
  return attributes.ptxVersion;
}
WARPRANK_HIDDEN inline int num_multiprocessors() {
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "find the current device");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "count multiprocessors");
  return count;
}

/// The most shared memory that a block may have if its kernel asks for it.
WARPRANK_HIDDEN inline int64_t max_shared_bytes() {
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "find the current device");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "ask for shared memory");
  return bytes;
}

/// Whether launches also overlap in graphs: since CUDA 12.3.
WARPRANK_HIDDEN inline bool graphs_keep_overlaps() {
  static const bool keep = [] {
    int driver = 0, runtime = 0;
    check_cuda(cudaDriverGetVersion(&driver), "find the driver's version");
    check_cuda(cudaRuntimeGetVersion(&runtime), "find the runtime's version");
    return driver >= 12030 && runtime >= 12030;
  }();
  return keep;
}
/// can_overlap (launch.cuh) for the kernels that are compiled with the engine.
WARPRANK_HIDDEN inline bool launches_overlap() { return target() >= 90 && graphs_keep_overlaps(); }

}}}  // namespace warprank::v0::device::backend
