// SPDX-License-Identifier: Apache-2.0
#pragma once

/// When stacks run column-split (split.cuh), and over how many blocks.

#include <cstdint>
#include <initializer_list>

namespace warprank::detail {

/// What a block of a column-split stack is: it takes `rows` rows, its warps share the inputs of each layer.
struct SplitBlock {
  static constexpr int rows = 16, num_warps = 8, threads = 32 * num_warps;
  static constexpr int64_t max_inputs = 768;  ///< of the first layer, whose rows lie in shared memory
  /// Looks for what another block computes before a block computes it itself: 20 us on an H100 by the latency of its
  /// second-level cache, many times what a block that runs takes.
  static constexpr int max_looks = 64;
};

/// How the outputs of every layer are shared out.
struct SplitPolicy {
  int blocks = 0;  ///< that share a tile of rows; 0: stacks are not split
  int pairs = 1;   ///< of 16 outputs that a block computes together

  constexpr bool is_split() const { return blocks > 0; }
};

/// Multiprocessors of the smallest card that is served well: T4, A100, H100. Not of the card at hand, as bits depend on
/// whether stacks are split.
constexpr int64_t multiprocessors_of(int target) { return target >= 90 ? 132 : target >= 80 ? 108 : 40; }

/// For all tiles of 16 rows of a launch, at capacity, and layers of up to `widest` pairs of 16 outputs. Many blocks for
/// few rows: what a block reads of the weights is what its time goes with. At most a block for each multiprocessor, so
/// that all of a tile run together; more rows are for blocks that read all weights (mlp.cuh).
///
/// H100, prototype of split.cuh, us by rows (whole stacks; the kernel of mlp.cuh and cuBLASLt's chain beside it):
///
///     600-256-256-256-1       1: 4.4 (16 blocks)   50: 4.7 (16)   100: 5.2 (16)   500: 8.7 (4)   1000: 19 (16)
///          mlp.cuh, cuBLASLt  23, 10.0             26, 10.4       26, 11.2        29, 12.3       29, 12.9
///     256-128-64-1            1: 3.5 (8)           50: 3.7 (4)    100: 3.7 (8)    500: 4.0 (4)
///          mlp.cuh, cuBLASLt  14, 6.8              16, 6.7        16, 7.4         13, 7.7
constexpr SplitPolicy split_policy(int target, int64_t tiles, int64_t widest) {
  const int64_t slots = multiprocessors_of(target);
  for (const int most : {16, 8, 4}) {
    const int64_t blocks = widest < most ? widest : most;
    if (tiles * blocks <= slots) return {static_cast<int>(blocks), widest > blocks ? 2 : 1};
  }
  return {};
}

}  // namespace warprank::detail
