// SPDX-License-Identifier: Apache-2.0
#pragma once

/// LaunchPolicies of cards that were measured, by records of benchmarks/results/. Made by tools/performance.py from the
/// sweeps among them; do not edit.

#include "warprank/ops/detail/launch_policies.hpp"

namespace warprank::detail {

struct CardPolicies {
  int target;  ///< of the card
  LaunchPolicies policies;
};

// clang-format off
inline constexpr CardPolicies card_policies[] = {
    {90, {
        8,  // din_items_of_one_block: h100-80gb-prototypes/gpu, 3 sizes, 0% longer than their best
        1,  // din_tiles: not measured
        2,  // din_tiles_wide: h100-80gb-prototypes/gpu, 3 sizes, 0% longer than their best
        16,  // dot_rows_of_one_each: not measured
        3,  // dot_rows_per_warp: not measured
        4,  // dot_rows_per_warp_wide: not measured
        32,  // fm_rows_of_one_each: not measured
        2,  // fm_rows_per_warp: not measured
        128,  // look_up_wide_row_bytes: h100-80gb-prototypes/gpu, 9 sizes, 3% longer than their best
        1,  // look_up_rounds: not measured
        1,  // look_up_rounds_of_keys: not measured
        2,  // row_program_blocks: not measured
        2,  // segment_reduce_blocks: not measured
        8,  // attention_warps: h100-80gb-prototypes/gpu, 8 sizes, 3% longer than their best
    }},
};
// clang-format on

/// Of the newest card that was measured and is not newer than `target`; of the oldest for what is older than all.
constexpr const LaunchPolicies& launch_policies_of(int target) {
  const CardPolicies* nearest = card_policies;
  for (const CardPolicies& card : card_policies)
    if (card.target <= target) nearest = &card;
  return nearest->policies;
}

}  // namespace warprank::detail
