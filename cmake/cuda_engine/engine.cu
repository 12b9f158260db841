// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: all but the kernels that the other units compile (ops/detail/compiled_kernels.hpp).
#include "warprank/cuda_engine.cuh"
