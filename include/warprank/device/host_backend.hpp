// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's interface to a device: CUDA's runtime, also if a C++ compiler compiles the host's part of a program with
/// CUDA; else an executor on the CPU.

#include "warprank/core/on_cuda.hpp"
#if defined(WARPRANK_ON_CUDA)
#include "warprank/device/cuda/device.cuh"
#else
#include "warprank/device/executor.hpp"
#endif
