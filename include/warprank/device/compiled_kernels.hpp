// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How launches of kernels reach a program. Header-only they are inline in each unit. The target warprank::cuda_engine
/// compiles those of some ops in each of its units, side by side: all of them define WARPRANK_KERNELS_COMPILED, with
/// which headers only declare launches, and the unit that has ops/linear.cuh WARPRANK_KERNELS_OF_LINEAR, with which
/// that header defines its own. What is left launches nothing: a C++ compiler compiles it, with WARPRANK_HOST_OF_CUDA.

#if defined(WARPRANK_KERNELS_COMPILED)
#define WARPRANK_KERNELS_INLINE
#else
#define WARPRANK_KERNELS_INLINE inline
#endif
