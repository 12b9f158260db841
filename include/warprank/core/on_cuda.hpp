// SPDX-License-Identifier: Apache-2.0
#pragma once

/// WARPRANK_ON_CUDA: this unit has the CUDA runtime. It is defined under nvcc, and in units of a C++ compiler that
/// define WARPRANK_HOST_OF_CUDA: the host's part of a program whose kernels nvcc has compiled
/// (device/compiled_kernels.hpp).
#if defined(__CUDACC__) || defined(WARPRANK_HOST_OF_CUDA)
#define WARPRANK_ON_CUDA
#endif
