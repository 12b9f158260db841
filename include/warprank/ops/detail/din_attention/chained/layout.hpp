// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which networks the chained kernel of DIN attention takes, how their weights are packed for it, and what lies where
/// in a block's shared memory.

#include <algorithm>
#include <cstdint>

#include "warprank/core/host_device.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::din::chained {

inline constexpr int block_warps = 8, block_threads = block_warps * 32;
inline constexpr int max_unit_items = 8;  ///< rows of half a tile of the pooling
inline constexpr int tile_events = 16;    ///< the rows of an mma
inline constexpr int max_chunk_events = 512;
inline constexpr int row_padding = 8;  ///< halves: rows lie an odd number of 16 bytes apart
inline constexpr int max_dim = 128, max_later_width = 48;

WARPRANK_HOST_DEVICE constexpr int tiles_of(int num_events) {
  return static_cast<int>((static_cast<unsigned>(num_events) + tile_events - 1) / tile_events);
}

/// A network whose widths are padded: `chunks` x 16 outputs of the first layer, `steps` x 16 columns, `pairs` x 16
/// outputs of the second. Weights are B fragments, 512 bytes each, as pack_linear makes them (ops/pack_linear.hpp).
/// Those that a warp wants together are neighbours, so that it needs one address: of a chunk
///
///     Wk - Wd and Wp of step 0, Wk - Wd and Wp of step 1, ..., the second layer's weights for its 16 inputs
///
/// then come vectors of floats, and at last Wq + Wd. All up to query() is copied into shared memory as it is.
struct Shape {
  int chunks = 0, steps = 0, pairs = 0;
  bool is_dice = false;

  static constexpr int fragment_bytes = 512;

  WARPRANK_HOST_DEVICE constexpr int columns() const { return steps * 16; }
  WARPRANK_HOST_DEVICE constexpr int width() const { return chunks * 16; }
  WARPRANK_HOST_DEVICE constexpr int later_width() const { return pairs * 16; }

  WARPRANK_HOST_DEVICE constexpr int chunk_bytes() const { return (2 * steps + pairs) * fragment_bytes; }
  WARPRANK_HOST_DEVICE constexpr int bias() const { return chunks * chunk_bytes(); }
  WARPRANK_HOST_DEVICE constexpr int later_bias() const { return bias() + width() * 4; }
  WARPRANK_HOST_DEVICE constexpr int head() const { return later_bias() + later_width() * 4; }
  WARPRANK_HOST_DEVICE constexpr int dice() const { return head() + later_width() * 4; }  ///< alpha, scale, shift
  WARPRANK_HOST_DEVICE constexpr int later_dice() const { return dice() + (is_dice ? 3 * width() * 4 : 0); }
  WARPRANK_HOST_DEVICE constexpr int query() const { return later_dice() + (is_dice ? 3 * later_width() * 4 : 0); }
  WARPRANK_HOST_DEVICE constexpr int bytes() const { return query() + chunks * steps * fragment_bytes; }
};

/// What lies where in shared memory, in bytes from its start.
struct Places {
  int chunk_events = 0;  ///< of the history that are on chip together, a multiple of 16

  int queries = 0;    ///< behind the weights, up to Shape's query(): half [8 items][4][2 steps][2]: pairs of columns in
                      ///< the order in which lanes want them
  int constants = 0;  ///< float [8 items][width + 8]: c(q)
  int history = 0;    ///< half [chunk_events][columns + row_padding]
  int attention = 0;  ///< half [chunk_events / 16][8 items][4][8]: weights of events, A fragments of the pooling
  int tiles = 0;      ///< Tile [chunk_events / 16][8 items]
  int bytes = 0;
};

inline constexpr int header_bytes = 256;  ///< of the descriptor and the current unit

/// As many events as fit into `limit` bytes, up to what is wanted; none: too large.
inline Places place(const Shape& shape, int64_t wanted_events, int64_t limit) {
  Places p;
  int end = header_bytes;
  const auto reserve = [&](int bytes) {
    const int begin = end;
    end += (bytes + 127) / 128 * 128;
    return begin;
  };
  reserve(shape.query());
  p.queries = reserve(max_unit_items * shape.columns() * 2);
  p.constants = reserve(max_unit_items * (shape.width() + 8) * 4);
  const int history_bytes = tile_events * (shape.columns() + row_padding) * 2;
  const int attention_bytes = max_unit_items * 64, tile_bytes = max_unit_items * 8;
  constexpr int rounding = 3 * 128;
  const int64_t room = (limit - end - rounding) / (history_bytes + attention_bytes + tile_bytes) * tile_events;
  const int64_t wanted =
      std::min<int64_t>((wanted_events + tile_events - 1) / tile_events * tile_events, max_chunk_events);
  p.chunk_events = static_cast<int>(std::min(std::max<int64_t>(wanted, tile_events), std::max<int64_t>(room, 0)));
  const int num_tiles = p.chunk_events / tile_events;
  p.history = reserve(num_tiles * history_bytes);
  p.attention = reserve(num_tiles * attention_bytes);
  p.tiles = reserve(num_tiles * tile_bytes);
  p.bytes = end;
  return p;
}

/// Whether it fits on every card.
inline bool fits(const Shape& shape) {
  constexpr int64_t least_shared_bytes = 64 << 10;  // of sm_75
  return place(shape, tile_events, least_shared_bytes).chunk_events >= tile_events;
}

/// The most tiles of events that a warp takes at once. With two W(q) is folded half as often; from sm_80 on one of 64
/// columns leaves registers for a second block on the multiprocessor.
constexpr int tiles_at_once(int target, int steps, int pairs) {
  if (pairs > 2) return 1;
  if (steps > 4) return launch_policies_of(target).din_tiles_wide;
  return target >= 80 && steps > 2 ? 1 : launch_policies_of(target).din_tiles;
}

/// How many a unit's warps take at once, so that the busiest has least to do: `most` take four thirds of what one
/// takes.
WARPRANK_HOST_DEVICE constexpr int tiles_together(int most, int num_tiles, int num_items) {
  const auto tasks_of_warp = [&](int at_once) {
    const int tasks = (num_tiles + at_once - 1) / at_once * num_items;
    return static_cast<int>((static_cast<unsigned>(tasks) + block_warps - 1) / block_warps);
  };
  return 4 * tasks_of_warp(most) < 3 * tasks_of_warp(1) ? most : 1;
}

/// Blocks for whose registers there is room in a multiprocessor.
constexpr int resident_blocks(int target, int steps, int pairs) { return target >= 80 && steps * pairs <= 8 ? 2 : 1; }

/// For histories of up to `longest` events. Whatever the number of items, so that their bits do not depend on it: two
/// blocks share a multiprocessor wherever that leaves room for the history.
inline Places choose_places(const Shape& shape, int64_t longest, int target) {
  const int64_t wanted = std::min<int64_t>(std::max<int64_t>(longest, tile_events), max_chunk_events);
  if (resident_blocks(target, shape.steps, shape.pairs) == 2) {
    const Places shared = place(shape, wanted, device::shared_limit(target, 2));
    if (shared.chunk_events >= wanted) return shared;
  }
  return place(shape, wanted, device::shared_limit(target, 1));
}

}}}  // namespace warprank::v0::detail::din::chained
