// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Between the main program of benchmarks on a GPU and what it runs.

namespace warprank::bench {

/// Adds the benchmarks of a program, which defines it.
void add_benchmarks();

/// How many benchmarks have failed; those that were skipped have not.
inline int num_failed = 0;

}  // namespace warprank::bench
