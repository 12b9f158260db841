// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: the kernels of some ops. Each unit more would read the same headers again, for 2 s.
#define WARPRANK_KERNELS_OF_EMBEDDING_BAG
#define WARPRANK_KERNELS_OF_HASH_TABLE
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/hash_table.cuh"
