// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: the kernels of some ops. Each unit more would read the same headers again, for 2 s.
#define WARPRANK_KERNELS_OF_LINEAR
#define WARPRANK_KERNELS_OF_MLP
#include "warprank/ops/linear.cuh"
#include "warprank/ops/mlp.cuh"
