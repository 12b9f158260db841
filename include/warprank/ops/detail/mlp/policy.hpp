// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What blocks of stacks are; when stacks run column-split (split.cuh), and over how many blocks, and in which tiles of
/// rows otherwise (rows.cuh).

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace warprank { inline namespace v0 {

/// How the outputs of every layer are shared out.
struct SplitPolicy {
  int blocks = 0;  ///< that share a tile of rows; 0: stacks are not split
  int strips = 2;  ///< of 8 rows of a tile
  int pairs = 1;   ///< of 8 outputs that a block computes together

  constexpr bool is_split() const { return blocks > 0; }
  constexpr int64_t rows() const { return int64_t{8} * strips; }
  /// Sets of sums that are used in turns, so that none waits until all have read them: where a T4 has room.
  constexpr int num_sums() const { return strips * pairs == 2 ? 2 : 1; }
};

/// Rows of a block that computes all outputs.
enum class MlpTile { rows_16, rows_32 };

/// How the fused layers of a launch are computed: split, or all of a tile of rows by one block.
struct ChainPolicy {
  SplitPolicy split;
  MlpTile tile = MlpTile::rows_16;  ///< unless it is split

  std::string to_string() const {
    if (!split.is_split()) return "tiles of " + std::string(tile == MlpTile::rows_16 ? "16" : "32") + " rows";
    return "split over " + std::to_string(split.blocks) + " blocks of " + std::to_string(split.rows()) + " x " +
           std::to_string(16 * split.pairs);
  }
};

namespace detail::mlp {

/// Layers of one kernel, and their outputs: what a block of rows.cuh has room for. A first layer of few inputs may be
/// wider: every block reads its weights whole.
inline constexpr int max_fused_layers = 8, max_fused_width = 256;
inline constexpr int max_first_width = 512, max_inputs_of_wide_first = 64;
/// Experts that a stack can mix: their weights lie where sums are staged later.
inline constexpr int max_mixed_experts = 64;

/// What a block of a column-split stack is: its warps share the inputs of each layer.
struct SplitBlock {
  static constexpr int num_warps = 8, threads = 32 * num_warps, max_rows = 32;
  /// Of the first layer, where its rows go through shared memory first: what is mixed, done or not whole vectors.
  static constexpr int64_t max_staged_inputs = 704, max_staged_inputs_of_32 = 576;
  static constexpr int64_t static_shared_bytes = 4 << 10, t4_shared_bytes = 64 << 10;  ///< of a block, of all
  static constexpr int64_t max_narrow_inputs = 768, max_width = 4096;                  ///< of a first layer, of any
  /// Looks for what another block computes before a block computes it itself: 20 us on an H100 by the latency of its
  /// second-level cache, many times what a block that runs takes; and more where it reads many weights.
  static constexpr int64_t least_looks = 64, bytes_of_look = 64 << 10;
};

/// Sums of one share of outputs, of each warp.
constexpr int64_t split_sums_floats(const SplitPolicy& policy) {
  return SplitBlock::num_warps * policy.rows() * 16 * policy.pairs;
}
constexpr int64_t split_shared_bytes(const SplitPolicy& policy, int64_t input_stride) {
  return policy.num_sums() * split_sums_floats(policy) * 4 + policy.rows() * input_stride * 2;
}
/// From one row to the next of inputs or activations in shared memory, in halves: an odd number of 64 bytes, so that no
/// two rows meet in a bank.
constexpr int64_t staged_stride(int64_t inputs) { return (inputs + 31) / 64 * 64 + 32; }

/// The same of a block's inputs, where any are staged.
constexpr int64_t input_stride_of(int64_t most_staged) { return most_staged > 0 ? staged_stride(most_staged) : 0; }

/// Multiprocessors of the smallest card that is served well: T4, A100, H100. Not of the card at hand, as bits depend on
/// whether stacks are split.
constexpr int64_t multiprocessors_of(int target) { return target >= 90 ? 132 : target >= 80 ? 108 : 40; }

/// Blocks of a column-split stack that the registers of a multiprocessor have room for: two on a T4, which has few
/// multiprocessors.
constexpr int blocks_of_multiprocessor(int target, const SplitPolicy& policy) {
  return target < 80 && policy.strips * policy.pairs == 2 ? 2 : 1;
}
/// The same where up to `most_staged` inputs go through its shared memory.
constexpr int blocks_of_multiprocessor(int target, const SplitPolicy& policy, int64_t most_staged) {
  const int64_t bytes = split_shared_bytes(policy, input_stride_of(most_staged)) + SplitBlock::static_shared_bytes;
  return 2 * bytes <= SplitBlock::t4_shared_bytes ? blocks_of_multiprocessor(target, policy) : 1;
}

/// For layers of up to `widest` pairs of 8 outputs, all of up to 256 outputs unless `is_wide`; tiles(rows) says how
/// many tiles of so many rows the launch has at capacity. Many blocks for few rows: what a block reads of the weights
/// is what its time goes with. At most a block for each multiprocessor, so that all of a tile run together; more rows
/// are for blocks that read all weights (mlp/rows.cuh), or where layers are wide, for a launch for each
/// (ops/linear.cuh). On a T4 two blocks share one where both have room and layers are not wide, so that twice as many
/// read half as much: 600-256-256-256-1 takes 18,877 cycles of its model with 160 rows over 8 blocks of 16 outputs,
/// 20,057 over 4 of 32, one on a multiprocessor. `most_staged` inputs go through shared memory.
///
/// H100, prototype of split.cuh, us by rows (whole stacks; the kernel that was before and cuBLASLt's chain beside it):
///
///     600-256-256-256-1       1: 4.4 (16 blocks)   50: 4.7 (16)   100: 5.2 (16)   500: 8.7 (4)   1000: 19 (16)
///          before, cuBLASLt   23, 10.0             26, 10.4       26, 11.2        29, 12.3       29, 12.9
///     256-128-64-1            1: 3.5 (8)           50: 3.7 (4)    100: 3.7 (8)    500: 4.0 (4)
///          before, cuBLASLt   14, 6.8              16, 6.7        16, 7.4         13, 7.7
///     1024-1024-512-256-1     1: 6.5 (64)          50: 9.3 (32)   100: 11.9 (32, tiles of 32 rows)   500: 31
///          before, cuBLASLt   27, 11.9             33, 13.1       35, 13.5                           43, 16.1
template <class Tiles>
constexpr SplitPolicy split_policy(int target, const Tiles& tiles, int64_t widest, bool is_wide,
                                   int64_t most_staged = 0) {
  const int64_t slots = multiprocessors_of(target), of_16 = tiles(16), of_32 = tiles(32);
  if (of_16 == 0) return {};
  if (is_wide) {
    constexpr int64_t most_blocks = 64, many_blocks = 32, least_blocks = 8, most_tiles = 4;
    if (of_16 * std::min(widest, many_blocks) <= slots)
      return {static_cast<int>(std::min({widest, most_blocks, slots / of_16})), 2, 1};
    if (of_32 > most_tiles || slots / of_32 < least_blocks) return {};
    return {static_cast<int>(std::min({widest, many_blocks, slots / of_32})), 4, 1};
  }
  constexpr int64_t least_blocks = 4;
  if (of_16 * std::min(widest, least_blocks) > slots) return {};
  const int at_once = blocks_of_multiprocessor(target, {1, 2, 1}, most_staged);
  for (const int64_t most : {int64_t{16}, int64_t{8}, least_blocks}) {
    const int64_t blocks = std::min(widest, most);
    if (of_16 * blocks <= slots * at_once)
      return {static_cast<int>(blocks), 2, at_once == 1 && widest > blocks ? 2 : 1};
  }
  return {};
}

constexpr int rows_of_tile(MlpTile tile) { return tile == MlpTile::rows_16 ? 16 : 32; }

/// Few rows until every multiprocessor has a block; and where a first layer is wide, for which blocks of more have no
/// room on a T4.
constexpr MlpTile choose_tile(int target, int64_t max_rows, bool is_wide) {
  return is_wide || max_rows <= multiprocessors_of(target) * 16 ? MlpTile::rows_16 : MlpTile::rows_32;
}

/// Ways to split that there are kernels for, without how many blocks.
inline constexpr SplitPolicy split_kernels[] = {{0, 2, 1}, {0, 2, 2}, {0, 4, 1}};
inline constexpr int max_split_blocks = 64;

/// What such a block is: its warps share the outputs of each layer, 256 at a time.
struct RowsBlock {
  static constexpr int num_warps = 8, threads = 32 * num_warps;
  static constexpr int pairs = 2;  ///< of 8 outputs of a warp
  static constexpr int columns = num_warps * pairs * 16;
  static constexpr int steps_ahead = 4;  ///< of 32 inputs, whose weights are in flight
  /// Where sums are staged: of each warp, 8 rows.
  static constexpr int staging_stride = pairs * 16 + 4, staging_floats = num_warps * 8 * staging_stride;
  /// Of x, that lie in shared memory.
  static constexpr int64_t max_inputs_at_once(MlpTile tile) { return tile == MlpTile::rows_16 ? 768 : 384; }
};
static_assert(RowsBlock::columns == max_fused_width);
static_assert(RowsBlock::staging_floats >= 32 * max_mixed_experts);

/// `input_stride`: of x and of the outputs of odd layers.
constexpr int64_t rows_shared_bytes(MlpTile tile, int64_t input_stride, bool is_wide) {
  const int64_t even_stride = staged_stride(is_wide ? max_first_width : max_fused_width);
  return RowsBlock::staging_floats * 4 + rows_of_tile(tile) * 2 * (input_stride + even_stride);
}

}  // namespace detail::mlp
}}  // namespace warprank::v0
