// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches of kernels.

#include <cuda_runtime.h>

#include <cstdint>

#include "warprank/core/cuda_error.hpp"
#include "warprank/device/cuda/device.cuh"

namespace warprank { inline namespace v0 { namespace device::backend {

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
// A template, so that every unit may define it.
template <class = void>
WARPRANK_KERNEL(32, 1)
target_probe() {}

WARPRANK_KERNELS_INLINE cudaError_t find_code(cudaFuncAttributes& attributes) {
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&target_probe<>));
}
#endif

/// Allows all shared memory of the device, always: a thread that launches a kernel with less must not take it from
/// others.
WARPRANK_HIDDEN inline void allow_most_shared_memory(const void* entry) {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, entry), "find code for the device");
  const int most = static_cast<int>(max_shared_bytes() - static_cast<int64_t>(attributes.sharedSizeBytes));
  if (attributes.maxDynamicSharedSizeBytes < most) {
    check_cuda(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
               "allow a kernel more than 48 KB of shared memory");
  }
}

/// Whether the kernel's code for the device waits for the previous launch, and graphs keep overlaps.
WARPRANK_HIDDEN inline bool can_overlap(const void* entry) {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, entry), "find code for the device");
  return attributes.ptxVersion >= 90 && graphs_keep_overlaps();
}

template <class... Params>
WARPRANK_HIDDEN inline void launch_kernel(dim3 grid, dim3 block, int64_t shared_bytes, Stream stream, bool overlaps,
                                          Here, void (*kernel)(Params...), Params... args) {
  constexpr int64_t without_opt_in = 48 * 1024;  // static and dynamic
  constexpr int64_t most_static = 16 * 1024;     // of a kernel with dynamic memory; the executor checks it
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > without_opt_in - most_static) allow_most_shared_memory(entry);
  void* arguments[] = {static_cast<void*>(&args)..., nullptr};
  if (overlaps && can_overlap(entry)) {
    cudaLaunchAttribute overlap;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    return check_cuda(cudaLaunchKernelExC(&config, entry, arguments), "launch a kernel");
  }
  check_cuda(cudaLaunchKernel(entry, grid, block, arguments, static_cast<size_t>(shared_bytes), stream),
             "launch a kernel");
}

}}}  // namespace warprank::v0::device::backend
