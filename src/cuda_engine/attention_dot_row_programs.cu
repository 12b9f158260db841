// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: the kernels of some ops. Each unit more would read the same headers again, for 1.5 s.
#define WARPRANK_KERNELS_OF_ATTENTION
#define WARPRANK_KERNELS_OF_DOT
#define WARPRANK_KERNELS_OF_ROW_PROGRAMS
#include "warprank/ops/attention.cuh"
#include "warprank/ops/dot.cuh"
#include "warprank/ops/row_programs.cuh"
