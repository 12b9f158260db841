// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How launches of kernels get into a program. In header-only use they are inline in each unit. The target
/// warprank::cuda_engine compiles them in parallel, each of its units the launches of some ops. All these units define
/// WARPRANK_KERNELS_COMPILED, with which headers only declare launches. The unit with ops/linear.cuh also defines
/// WARPRANK_KERNELS_OF_LINEAR, with which that header defines its launches. The rest of the engine contains no launch:
/// a C++ compiler compiles it, with WARPRANK_HOST_OF_CUDA.

#if defined(WARPRANK_KERNELS_COMPILED)
#define WARPRANK_KERNELS_INLINE
#else
#define WARPRANK_KERNELS_INLINE inline
#endif
