// SPDX-License-Identifier: Apache-2.0

/// Of warprank::cuda_engine: all but the kernels that the other units compile (ops/detail/compiled_kernels.hpp).
///
/// nvcc reads this once for the host and once for each architecture, where it is given no more than the kernels that
/// the host launches from here: it would take some seconds each time to find that the rest has none. A kernel that is
/// launched from here and missing there is found by scripts/check_host_calls.py.
#if !defined(__CUDA_ARCH__)
#include "warprank/cuda_engine.cuh"
#else
#include "warprank/device/empty_kernel.hpp"
#include "warprank/engine/cuda/publish.cuh"
#include "warprank/ops/detail/gemm/finish.cuh"
#include "warprank/ops/detail/segments.cuh"
#include "warprank/ops/detail/take_marks.cuh"
#include "warprank/ops/detail/write_rows.cuh"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/mix.cuh"
#include "warprank/ops/scene_rows.cuh"
#include "warprank/ops/segment_reduce.cuh"

template class warprank::Fm<warprank::half, float>;
template class warprank::Fm<warprank::half, warprank::half>;
template class warprank::Mix<warprank::half, float>;
template class warprank::Mix<warprank::half, warprank::half>;
#endif
