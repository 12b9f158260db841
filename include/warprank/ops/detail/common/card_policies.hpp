// SPDX-License-Identifier: Apache-2.0
#pragma once

/// LaunchPolicies of cards that were measured, and of those that were only simulated (docs/TESTING.md), by records of
/// benchmarks/results/. Made by tools/performance.py from the sweeps among them; do not edit.

#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail {

struct CardPolicies {
  int target;        ///< of the card
  bool is_measured;  ///< on a card; else some of them by a model of one
  LaunchPolicies policies;
};

// clang-format off
inline constexpr CardPolicies card_policies[] = {
    {75, false, {
        8,  // din_items_of_one_block: simulated, t4-simulated-policies/gpu, 8 sizes, 0% longer than their best
        2,  // din_tiles: simulated, t4-simulated-policies/gpu, 8 sizes, 2% longer than their best
        2,  // din_tiles_wide: simulated, t4-simulated-policies/gpu, 4 sizes, 0% longer than their best
        16,  // dot_rows_of_one_each: simulated, t4-simulated-policies/gpu, 14 sizes, 3% longer than their best
        3,  // dot_rows_per_warp: simulated, t4-simulated-policies/gpu, 6 sizes, 9% longer than their best
        4,  // dot_rows_per_warp_wide: simulated, t4-simulated-policies/gpu, 6 sizes, 2% longer than their best
        32,  // fm_rows_of_one_each: simulated, t4-simulated-policies/gpu, 14 sizes, 1% longer than their best
        4,  // fm_rows_per_warp: simulated, t4-simulated-policies/gpu, 6 sizes, 1% longer than their best
        128,  // look_up_wide_row_bytes: simulated, t4-simulated-policies/gpu, 5 sizes, 1% longer than their best
        1,  // look_up_rounds: simulated, t4-simulated-policies/gpu, 5 sizes, 1% longer than their best
        1,  // look_up_rounds_of_keys: simulated, t4-simulated-policies/gpu, 18 sizes, 3% longer than their best
        16,  // row_program_blocks: simulated, t4-simulated-policies/gpu, 15 sizes, 1% longer than their best
        1,  // segment_reduce_blocks: simulated, t4-simulated-policies/gpu, 5 sizes, 0% longer than their best
        8,  // attention_warps: kept, with an H200's parameters the model finds another order than was measured
    }},
    {90, true, {
        4,  // din_items_of_one_block: h200-141gb-hstu-and-rank-mixer/gpu, 12 sizes, 0% longer than their best
        2,  // din_tiles: h200-141gb-hstu-and-rank-mixer/gpu, 12 sizes, 1% longer than their best
        2,  // din_tiles_wide: h200-141gb-hstu-and-rank-mixer/gpu, 6 sizes, 0% longer than their best
        64,  // dot_rows_of_one_each: h200-141gb-hstu-and-rank-mixer/gpu, 14 sizes, 0% longer than their best
        3,  // dot_rows_per_warp: h200-141gb-hstu-and-rank-mixer/gpu, 6 sizes, 0% longer than their best
        3,  // dot_rows_per_warp_wide: h200-141gb-hstu-and-rank-mixer/gpu, 6 sizes, 0% longer than their best
        64,  // fm_rows_of_one_each: h200-141gb-hstu-and-rank-mixer/gpu, 14 sizes, 0% longer than their best
        4,  // fm_rows_per_warp: h200-141gb-hstu-and-rank-mixer/gpu, 6 sizes, 2% longer than their best
        64,  // look_up_wide_row_bytes: h200-141gb-hstu-and-rank-mixer/gpu, 10 sizes, 1% longer than their best
        1,  // look_up_rounds: h200-141gb-hstu-and-rank-mixer/gpu, 10 sizes, 0% longer than their best
        1,  // look_up_rounds_of_keys: h200-141gb-hstu-and-rank-mixer/gpu, 18 sizes, 2% longer than their best
        4,  // row_program_blocks: h200-141gb-hstu-and-rank-mixer/gpu, 15 sizes, 0% longer than their best
        1,  // segment_reduce_blocks: h200-141gb-hstu-and-rank-mixer/gpu, 5 sizes, 0% longer than their best
        8,  // attention_warps: h200-141gb-hstu-and-rank-mixer/gpu, 6 sizes, 2% longer than their best
    }},
};
// clang-format on

/// Of the card itself; or else of the newest that was measured and is not newer than `target`. What is older than all
/// takes what was chosen by thought. A simulated card speaks for itself alone.
constexpr LaunchPolicies launch_policies_of(int target) {
  LaunchPolicies nearest;
  for (const CardPolicies& card : card_policies)
    if (card.target == target || (card.is_measured && card.target <= target)) nearest = card.policies;
  return nearest;
}

}}}  // namespace warprank::v0::detail
