// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: the engine's own kernels, and those of some ops. Each unit more would read the same
/// headers again, for 1.5 s.
#define WARPRANK_KERNELS_OF_DIN_ATTENTION
#define WARPRANK_KERNELS_OF_ENGINE
#define WARPRANK_KERNELS_OF_FIELD_ATTENTION
#define WARPRANK_KERNELS_OF_FIELD_LINEAR
#define WARPRANK_KERNELS_OF_FM
#define WARPRANK_KERNELS_OF_MIX
#define WARPRANK_KERNELS_OF_MIX_TOKENS
#define WARPRANK_KERNELS_OF_RECURRENT
#define WARPRANK_KERNELS_OF_SCENE_ROWS
#define WARPRANK_KERNELS_OF_SEGMENT_REDUCE
#include "warprank/device/empty_kernel.hpp"
#include "warprank/engine/cuda/fetch.cuh"
#include "warprank/engine/cuda/gather.cuh"
#include "warprank/engine/cuda/publish.cuh"
#include "warprank/ops/detail/row_cache/take_marks.cuh"
#include "warprank/ops/detail/segments/launch.cuh"
#include "warprank/ops/detail/write_rows/kernel.cuh"
#include "warprank/ops/din_attention.cuh"
#include "warprank/ops/field_attention.cuh"
#include "warprank/ops/field_linear.cuh"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/mix.cuh"
#include "warprank/ops/mix_tokens.cuh"
#include "warprank/ops/recurrent.cuh"
#include "warprank/ops/scene_rows.cuh"
#include "warprank/ops/segment_reduce.cuh"
