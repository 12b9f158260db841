// SPDX-License-Identifier: Apache-2.0
#pragma once

/// WARPRANK_HOST_DEVICE, before a function of a plain C++ header that kernels call as well. Needs no CUDA header.
#if defined(__CUDACC__)
#define WARPRANK_HOST_DEVICE __host__ __device__
#else
#define WARPRANK_HOST_DEVICE
#endif
