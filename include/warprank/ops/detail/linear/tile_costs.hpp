// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches of linear layers cost by their tiles, on cards that were measured, and on those that were only
/// simulated (docs/TESTING.md). Made by tools/performance.py from the sweeps among benchmarks/results/; do not edit.

#include <array>

namespace warprank { inline namespace v0 { namespace detail::linear {

/// Microseconds; cost_of says of what. No join: sums are not cut into parts.
struct TileCost {
  double begin, per_wave, per_step, per_card, join, join_per_card;
};

/// By LinearTile.
struct TileCosts {
  int target;        ///< of the card
  bool is_measured;  ///< on a card; else by a model of one
  std::array<TileCost, 5> tiles;
};

// clang-format off
inline constexpr TileCosts tile_costs[] = {
    // T4, simulated, not measured, benchmarks/results/t4-simulated/gpu.json: what is picked
    // for 76 sizes takes 1.8% longer than the best way on average, 26% at worst.
    {75, false, {{
        {1.52, 0.65, 0.0294, 0.0218, 0, 0},  // direct 16 x 16
        {0.84, 1.99, 0.0233, 0.0657, 0, 0},  // direct 16 x 32
        {1.08, 1.87, 0.0332, 0.0828, 0, 0},  // direct 32 x 32
        {2.83, 0.21, 0.3364, 0.1061, 1.09, 1.16},  // staged 64 x 64
        {0.66, 3.01, 0.714, -0.0261, 0, 0},  // staged 64 x 128
    }}},
    // NVIDIA H100 80GB HBM3, measured, benchmarks/results/h100-80gb-prototypes/gpu.json: what is picked
    // for 40 sizes takes 3.5% longer than the best way on average, 19% at worst.
    {90, true, {{
        {2.02, 0.01, 0.0053, 0.0364, 0, 0},  // direct 16 x 16
        {1.07, 0.91, 0.021, 0.0337, 0, 0},  // direct 16 x 32
        {2.19, 0.08, 0.0312, 0.0384, 0, 0},  // direct 32 x 32
        {2.53, 0, 0.1384, -0.0131, 1.83, 0.57},  // staged 64 x 64
        {3.25, 0, 0.2132, -0.0256, 0, 0},  // staged 64 x 128
    }}},
};
// clang-format on

/// Of the card itself; or else of the newest that was measured and is not newer than `target`, or of the oldest that
/// was. A simulated card speaks for itself alone.
constexpr const TileCosts& tile_costs_of(int target) {
  const TileCosts* nearest = nullptr;
  for (const TileCosts& costs : tile_costs)
    if (costs.target == target || (costs.is_measured && (nearest == nullptr || costs.target <= target)))
      nearest = &costs;
  return *nearest;
}

}}}  // namespace warprank::v0::detail::linear
