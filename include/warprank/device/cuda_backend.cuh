// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The vocabulary in CUDA's intrinsics and PTX. Documented where it is public, in the headers beside this one;
/// backend.hpp alone includes this, behind the macros that it defines.

// Before CUDA 13, nvcc also puts a kernel's attributes on a static function. There g++ ignores them, and warns about it
// at the end of each unit.
#if CUDART_VERSION < 13000
#pragma GCC diagnostic ignored "-Wattributes"
#endif

#include "warprank/device/cuda/floats.cuh"
#include "warprank/device/cuda/launch.cuh"
#include "warprank/device/cuda/memory.cuh"
#include "warprank/device/cuda/tensor_cores.cuh"
#include "warprank/device/cuda/threads.cuh"
