// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: the kernels of one op.
#define WARPRANK_KERNELS_OF_ROW_PROGRAMS
#include "warprank/ops/row_programs.cuh"
