// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Device memory from CUDA's stream-ordered pools. Needs the CUDA toolkit.

#include <cuda_runtime_api.h>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/device_allocator.hpp"

namespace warprank { inline namespace v0 {

/// cudaMallocAsync and cudaFreeAsync, in the calling thread's stream: the device's pool keeps returned memory up to its
/// cudaMemPoolAttrReleaseThreshold, so that a swap of models waits for no cudaMalloc.
inline DeviceAllocator stream_ordered_allocator() {
  return {[](int64_t bytes, int) -> void* {
            void* memory = nullptr;
            cudaError_t code = cudaMallocAsync(&memory, static_cast<size_t>(bytes), cudaStreamPerThread);
            if (code == cudaSuccess) {
              code = cudaStreamSynchronize(cudaStreamPerThread);
              if (code == cudaSuccess) return memory;
              cudaFreeAsync(memory, cudaStreamPerThread);
            }
            cudaGetLastError();
            if (code == cudaErrorMemoryAllocation) return nullptr;
            raise(cuda_error("allocate memory of a pool", static_cast<int>(code), cudaGetErrorName(code)));
          },
          [](void* memory, int64_t, int) { cudaFreeAsync(memory, cudaStreamPerThread); }};
}

}}  // namespace warprank::v0
