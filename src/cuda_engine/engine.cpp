// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: all but the kernels and their launches, by the C++ compiler (device/compiled_kernels.hpp).
#include "warprank/cuda_engine.cuh"
