// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The one place that gives the vocabulary of kernels its meaning: CUDA under nvcc, and elsewhere an executor that runs
/// every thread of a kernel on the CPU (but see core/on_cuda.hpp). Both define `warprank::device::backend` with the
/// same names; kernels use the documented headers beside this one, never the backend itself.
///
/// WARPRANK_DEVICE              before a device function
/// WARPRANK_KERNEL(threads, n)  before a kernel's name, in place of `void`: at most `threads` per block, registers for
///                              at least `n` resident blocks. Hidden, so that each shared library keeps its own kernel.
///                              In a header the kernel is a template, `<class = void>` if nothing else, since CUDA has
///                              no inline kernels
/// WARPRANK_HIDDEN              before a launcher, for the same reason
/// WARPRANK_GRID_CONSTANT       before a const parameter that a kernel reads in place
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

/// The source line of a call in a kernel. Costs nothing on a GPU; the executor names it in its errors.
using Here = backend::Here;

}}}  // namespace warprank::v0::device
