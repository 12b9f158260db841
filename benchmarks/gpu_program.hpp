// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Between the main program of benchmarks on a GPU and what it runs.

#include <cstdint>

namespace warprank::bench {

#if defined(__CUDACC__)
inline constexpr bool on_gpu = true;
#else  // the executor of kernels stands in for a GPU
inline constexpr bool on_gpu = false;
#endif

/// What sizes are on a GPU, and where each thread is executed on the CPU.
constexpr int64_t size_for(int64_t gpu, int64_t executor) { return on_gpu ? gpu : executor; }

/// Adds the benchmarks of a program, which defines it.
void add_benchmarks();

/// How many benchmarks have failed; those that were skipped have not.
inline int num_failed = 0;

}  // namespace warprank::bench
