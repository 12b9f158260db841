// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host asks of a device: of CUDA's runtime, also where a C++ compiler has the host's part of a program with
/// CUDA, or of an executor on the CPU.

#include "warprank/core/on_cuda.hpp"
#if defined(WARPRANK_ON_CUDA)
#include "warprank/device/cuda/device.cuh"
#else
#include "warprank/device/executor.hpp"
#endif
