// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: the kernels of some ops. Each unit more would read the same headers again, for 1.5 s.
#define WARPRANK_KERNELS_OF_EMBEDDING_BAG
#define WARPRANK_KERNELS_OF_HASH_TABLE
#define WARPRANK_KERNELS_OF_LINEAR
#define WARPRANK_KERNELS_OF_MLP
#include "warprank/ops/detail/gemm/finish.cuh"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/linear.cuh"
#include "warprank/ops/mlp.cuh"
