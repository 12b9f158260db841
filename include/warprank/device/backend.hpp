// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one place that decides what the vocabulary of kernels means: CUDA under nvcc, and elsewhere an executor that
/// runs every thread of a kernel on the CPU (but see core/on_cuda.hpp). Both define `warprank::device::backend` with
/// the same names; kernels use the documented headers beside this one, never the backend itself.
///
/// WARPRANK_DEVICE              before a device function
/// WARPRANK_KERNEL(threads, n)  before a kernel's name, in place of `void`: at most `threads` per block, registers for
///                              at least `n` resident blocks. Hidden, so that two shared libraries keep their own. In
///                              a header it is a template, `<class = void>` if nothing else: CUDA has no inline kernels
/// WARPRANK_HIDDEN              before a launcher, for the same reason
/// WARPRANK_GRID_CONSTANT       before a const parameter of a kernel that is read where it lies
/// WARPRANK_UNROLL              (core/unroll.hpp) before a loop that must be unrolled

#include "warprank/core/unroll.hpp"

#define WARPRANK_HIDDEN __attribute__((visibility("hidden")))

#if defined(__CUDACC__)
#define WARPRANK_DEVICE __device__ __forceinline__
#define WARPRANK_GRID_CONSTANT __grid_constant__
#define WARPRANK_KERNEL(max_threads, min_blocks) \
  WARPRANK_HIDDEN __global__ void __launch_bounds__(max_threads, min_blocks)
#include "warprank/device/cuda_backend.cuh"
#else
#define WARPRANK_DEVICE inline
#define WARPRANK_GRID_CONSTANT
#define WARPRANK_KERNEL(max_threads, min_blocks) WARPRANK_HIDDEN inline void
#include "warprank/device/executor_threads.hpp"
#endif

namespace warprank { inline namespace v0 { namespace device {

/// Where in a kernel something was called. Costs nothing on a GPU; the executor names it in its errors.
using Here = backend::Here;

}}}  // namespace warprank::v0::device
