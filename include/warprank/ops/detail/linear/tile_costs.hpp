// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches of linear layers cost by their tiles, on cards that were measured. Made by tools/performance.py from
/// the sweeps among benchmarks/results/; do not edit.

#include <array>

namespace warprank { inline namespace v0 { namespace detail::linear {

/// Microseconds; cost_of says of what. No join: sums are not cut into parts.
struct TileCost {
  double begin, per_wave, per_card, join;
};

/// By LinearTile.
struct TileCosts {
  int target;  ///< of the card
  std::array<TileCost, 5> tiles;
};

// clang-format off
inline constexpr TileCosts tile_costs[] = {
    // NVIDIA H100 80GB HBM3, benchmarks/results/h100-80gb-prototypes/gpu.json: what is picked for
    // 40 sizes takes 5% longer than the best way on average, 25% at worst.
    {90, {{
        {2.04, 0.0048, 0.0375, 0},  // direct 16 x 16
        {1.96, 0.0163, 0.0541, 0},  // direct 16 x 32
        {2.27, 0.0297, 0.0421, 0},  // direct 32 x 32
        {2.56, 0.1311, -0.0022, 2.36},  // staged 64 x 64
        {3.32, 0.1896, 0.0061, 0},  // staged 64 x 128
    }}},
};
// clang-format on

/// Of the newest card that was measured and is not newer than `target`; of the oldest for what is older than all.
constexpr const TileCosts& tile_costs_of(int target) {
  const TileCosts* nearest = tile_costs;
  for (const TileCosts& costs : tile_costs)
    if (costs.target <= target) nearest = &costs;
  return *nearest;
}

}}}  // namespace warprank::v0::detail::linear
