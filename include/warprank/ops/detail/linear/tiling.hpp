// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which tile the layers of a launch are cut into: a pure function of capacities, shapes and the target, by one table
/// for each card that was measured or, as the T4, simulated.
///
/// cost = begin + waves (per_wave + per_step steps) + per_card steps blocks / SMs
///        + (parts > 1 ? join + join_per_card blocks / SMs : 0)                      microseconds
///
/// for waves = ceil(blocks / SMs), of blocks that compute `steps` steps of 32 inputs each; tile_costs.hpp has the
/// constants. Of what the prototype of these kernels could do on an H100, left out are 16 x 16 by 16 warps and 32 x 64
/// by 8, which the rule picked for none of 40 sizes, and 128 x 128, which gained 9% over 64 x 128 at most, where
/// cuBLASLt took half its time, and does not fit the registers without spills. Parts pay for 64 x 64 alone: on an H100
/// for 50 to 100 rows of (2528, 2048). Targets that were not measured take the constants of the nearest that was, and
/// another nominal number of multiprocessors. The card's own number must not count: the tile decides the order of a
/// sum.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "warprank/ops/detail/linear/tile_costs.hpp"

namespace warprank { inline namespace v0 {

/// Rows x outputs of a block.
enum class LinearTile { direct_16x16, direct_16x32, direct_32x32, staged_64x64, staged_64x128 };

/// How a launch is cut: its tile, and into how many parts the sums of its layers.
struct LinearTiling {
  LinearTile tile = LinearTile::direct_16x16;
  int parts = 1;

  std::string to_string() const;
};

namespace detail::linear {

struct TileShape {
  const char* name;
  int rows, columns;
  int warps;
  int depth;                    ///< direct: steps of 32 inputs that a warp requests at once; staged: 0
  int warp_rows, warp_columns;  ///< staged: of a warp
  int stages;                   ///< staged: of 64 inputs in shared memory
  int stages_by_registers;      ///< the same before sm_80, through registers: of one, three blocks share a T4's 64 KB;
                                ///< where each block has a multiprocessor for itself it is two
  int min_blocks;   ///< of plain layers that are resident on a multiprocessor: bounds the registers; others need more
  bool is_general;  ///< there is a kernel for layers that are not plain, too
  bool can_be_cut;  ///< sums, into parts
  bool takes_operands;  ///< the kernel for plain layers has registers for more than a bias behind products

  constexpr bool is_direct() const { return depth > 0; }
  /// Whether the kernel for plain layers does what has switches (ProductDescriptor): direct tiles want the registers,
  /// and on a simulated T4 64 x 64 was quicker with an activation than 64 x 128.
  constexpr bool takes_switches() const { return !is_direct() && is_general; }
  constexpr int threads() const { return warps * 32; }
  constexpr int min_general_blocks() const { return std::max(1, min_blocks - 1); }
  constexpr int stages_of(int target, int64_t num_blocks) const;
  constexpr int64_t part_size() const { return int64_t{rows} * columns; }  ///< floats
  /// Shared memory: what warps have summed, or stages and then sums or outputs.
  constexpr int64_t shared_bytes(int64_t weight_bytes, int num_stages) const {
    if (is_direct()) return int64_t{4} * warps * rows * (columns + 4);
    return std::max(64 * (2 * rows + weight_bytes * columns) * num_stages, int64_t{4} * rows * (columns + 4));
  }
};

inline constexpr std::array<TileShape, 5> tile_shapes{{
    {"direct 16 x 16", 16, 16, 8, 3, 0, 0, 0, 0, 3, true, false, true},
    {"direct 16 x 32", 16, 32, 16, 2, 0, 0, 0, 0, 1, true, false, true},
    {"direct 32 x 32", 32, 32, 8, 2, 0, 0, 0, 0, 2, true, false, false},
    {"staged 64 x 64", 64, 64, 4, 0, 32, 32, 4, 1, 3, true, true, true},
    {"staged 64 x 128", 64, 128, 4, 0, 32, 64, 3, 2, 2, false, false, true},
}};
inline constexpr int num_tiles = static_cast<int>(tile_shapes.size());

constexpr const TileShape& tile_shape(LinearTile tile) { return tile_shapes[static_cast<size_t>(tile)]; }

/// What the cost of a layer depends on.
struct Size {
  int64_t rows, in, out;  ///< rows: of the capacity
};

/// Multiprocessors of the H100, the A100 and the T4.
constexpr int nominal_multiprocessors(int target) { return target >= 90 ? 132 : target >= 80 ? 108 : 40; }
constexpr int TileShape::stages_of(int target, int64_t num_blocks) const {
  if (target >= 80) return stages;
  return num_blocks <= nominal_multiprocessors(target) ? 2 : stages_by_registers;
}
inline constexpr int max_parts = 8;

/// Whether sums are cut like this: only where each part has 4 steps or more, and all blocks are on the card at once.
/// What else there could be is not measured.
constexpr bool may_be_cut(int parts, int64_t in, double blocks, int target) {
  return parts == 1 || (parts * 128 <= in && blocks <= 4 * nominal_multiprocessors(target));
}

/// Microseconds by the table of layers that run together: their blocks are like those of the deepest.
template <class Sizes>
constexpr double cost_of(const Sizes& layers, LinearTiling tiling, int target) {
  const TileShape& shape = tile_shape(tiling.tile);
  const TileCost& cost = tile_costs_of(target).tiles[static_cast<size_t>(tiling.tile)];
  const int multiprocessors = nominal_multiprocessors(target);
  const auto cut = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  int64_t deepest = 0;
  double blocks = 0, block_steps = 0;
  for (const Size& layer : layers) {
    const double of_layer = static_cast<double>(cut(layer.rows, shape.rows)) *
                            static_cast<double>(cut(layer.out, shape.columns)) * tiling.parts;
    deepest = deepest < layer.in ? layer.in : deepest;
    blocks += of_layer;
    block_steps += of_layer * static_cast<double>(cut(cut(layer.in, 32), tiling.parts));
  }
  if (!may_be_cut(tiling.parts, deepest, blocks, target)) return std::numeric_limits<double>::infinity();
  if (blocks > 0x1p31) return blocks;  // is refused later
  const auto waves = static_cast<double>(cut(static_cast<int64_t>(blocks), multiprocessors));
  const auto most_steps = static_cast<double>(cut(cut(deepest, 32), tiling.parts));
  return cost.begin + waves * (cost.per_wave + most_steps * cost.per_step) +
         block_steps / multiprocessors * cost.per_card +
         (tiling.parts > 1 ? cost.join + blocks / multiprocessors * cost.join_per_card : 0);
}

/// The tiling of least cost; only of tiles that have a general kernel unless all layers are plain.
template <class Sizes>
constexpr LinearTiling choose_tiling(const Sizes& layers, bool is_plain, int target) {
  LinearTiling best;  // also for no layers
  if (layers.begin() == layers.end()) return best;
  double least = -1;
  for (int i = 0; i < num_tiles; ++i) {
    const TileShape& shape = tile_shapes[static_cast<size_t>(i)];
    if (!is_plain && !shape.is_general) continue;
    for (int parts = 1; parts <= (shape.can_be_cut ? max_parts : 1); ++parts) {
      const LinearTiling tiling{static_cast<LinearTile>(i), parts};
      const double cost = cost_of(layers, tiling, target);
      if (least < 0 || cost < least) least = cost, best = tiling;
    }
  }
  return best;
}

}  // namespace detail::linear

inline std::string LinearTiling::to_string() const {
  return std::string(detail::linear::tile_shape(tile).name) +
         (parts == 1 ? "" : " in " + std::to_string(parts) + " parts");
}

}}  // namespace warprank::v0
