// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Choices of launches for speed. Kernels are compiled for attention_warps and din_tiles; only attention_warps changes
/// bits. Every value can be measured against others (benchmarks/policies.cuh); card_policies.hpp has the values that
/// were best on cards, or in a model of one, and says which cards take them.

namespace warprank { inline namespace v0 {

/// One field on each line, with the value that was chosen by thought, as tools/policies.py reads it.
struct LaunchPolicies {
  int din_items_of_one_block = 8;    ///< DIN attention: of a multiprocessor, up to which it has one block, then two
  int din_tiles = 2;                 ///< tiles of 16 events that a warp takes at once, for up to 64 columns
  int din_tiles_wide = 2;            ///< the same for more columns
  int dot_rows_of_one_each = 16;     ///< dot: of a multiprocessor, up to which a warp computes one row, then several
  int dot_rows_per_warp = 3;         ///< how many then
  int dot_rows_per_warp_wide = 4;    ///< the same for fields of more than 32 columns
  int fm_rows_of_one_each = 32;      ///< factorisation machines, as for dot
  int fm_rows_per_warp = 2;          ///< how many then
  int look_up_wide_row_bytes = 128;  ///< embedding look-ups: such rows, and larger ones, bypass the first-level cache
  int look_up_rounds = 1;            ///< of blocks, beyond which fewer blocks have more rows in flight
  int look_up_rounds_of_keys = 1;    ///< of blocks, up to which bags of keys are spread over more of them
  int row_program_blocks = 2;        ///< row programs: of a multiprocessor, before warps have several rows
  int segment_reduce_blocks = 2;     ///< reductions of segments: of a multiprocessor, before blocks have several
  int attention_warps = 8;           ///< attention that divides events: of a block, a power of 2 up to 8
};

}}  // namespace warprank::v0
