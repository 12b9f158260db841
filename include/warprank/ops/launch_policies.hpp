// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches decide for speed alone; attention_warps and din_tiles are what kernels are compiled by, and of the
/// former alone bits depend. Every value can be measured against others (benchmarks/policies.cuh); card_policies.hpp
/// has those that were best on cards, and says which cards take them.

namespace warprank { inline namespace v0 {

/// One field on each line, with what was chosen by thought, as tools/policies.py reads it.
struct LaunchPolicies {
  int din_items_of_one_block = 8;    ///< DIN attention: of a multiprocessor, which has two blocks where there are more
  int din_tiles = 2;                 ///< of 16 events that a warp takes at once, of up to 64 columns
  int din_tiles_wide = 2;            ///< the same of more columns
  int dot_rows_of_one_each = 16;     ///< dot: of a multiprocessor; beyond, a warp computes several
  int dot_rows_per_warp = 3;         ///< how many then
  int dot_rows_per_warp_wide = 4;    ///< the same of fields of more than 32 columns
  int fm_rows_of_one_each = 32;      ///< factorisation machines, as for dot
  int fm_rows_per_warp = 2;          ///< how many then
  int look_up_wide_row_bytes = 128;  ///< embedding look-ups: such rows are read past the first-level cache
  int look_up_rounds = 1;            ///< of blocks, beyond which fewer blocks have more rows in flight
  int look_up_rounds_of_keys = 1;    ///< of blocks, up to which bags of keys are spread over more of them
  int row_program_blocks = 2;        ///< row programs: of a multiprocessor, before warps have several rows
  int segment_reduce_blocks = 2;     ///< reductions of segments: of a multiprocessor, before blocks have several
  int attention_warps = 8;           ///< attention that divides events: of a block, a power of 2 up to 8
};

}}  // namespace warprank::v0
