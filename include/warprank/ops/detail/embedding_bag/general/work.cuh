// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the functions of the kernel hand to one another.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/ops/detail/embedding_bag/general/descriptor.hpp"

namespace warprank::detail::embedding_bag::general {

/// What a warp has seen, to be added to the feature's counters; each of the first lanes counts one thing.
struct Counts {
  enum Lane { ids, missing, padding, empty_bags, num_lanes };
  uint32_t mine = 0;

  /// All lanes call.
  WARPRANK_DEVICE void add(Lane lane, bool predicate) {
    const uint32_t lanes = device::ballot(device::full_warp, predicate);
    if (device::lane_index() == lane) mine += static_cast<uint32_t>(device::count_bits(lanes));
  }
};

enum class Kind : uint32_t { row, default_row, padding, nothing };

/// An id on its way from the lane that read it to the tile that adds its row.
struct Element {
  const unsigned char* row;
  float weight, scale, offset;
  uint32_t info;

  /// The lane of the tile that has the bag, and whether it is the bag's last element.
  WARPRANK_DEVICE static uint32_t info_of(Kind kind, int owner, bool is_last) {
    return static_cast<uint32_t>(owner) | (is_last ? 32u : 0u) | static_cast<uint32_t>(kind) << 6;
  }
  WARPRANK_DEVICE static Kind kind(uint32_t info) { return static_cast<Kind>(info >> 6); }
  WARPRANK_DEVICE static bool is_last(uint32_t info) { return (info >> 5 & 1) != 0; }
  WARPRANK_DEVICE static int owner(uint32_t info) { return static_cast<int>(info & 31); }
};

/// An id on its way: Kind::row when it is one, Kind::padding for a bag without ids, Kind::nothing behind the stream.
struct Id {
  int64_t value;
  float weight;
  uint32_t info;  // as of Element
};

/// What the warps of a block know of its feature, and each of what it does: in shared memory, because registers are for
/// rows.
struct FeatureWork {
  Descriptor f;
  int64_t bags, bags_per_unit, bag_units, units, num_workers;
};
struct WarpWork {
  /// The ids that each lane has for its tile: of one bag, or a part of one.
  struct Ids {
    const unsigned char* ids;
    const unsigned char* weights;
    int32_t start;   ///< where they begin in the tile's stream
    int32_t length;  ///< elements in the stream: ids, or 1 for an empty bag
  };
  Ids lanes[device::warp_size];

  int64_t unit;
  int64_t first;       ///< the first bag of the unit
  int32_t num_bags;    ///< at most 32
  int32_t per_tile;    ///< bags of a tile
  int64_t window;      ///< of a unit that is a piece; -1: bags
  uint32_t long_bags;  ///< of the unit, still to be pooled, by the lanes that have them
  // Of a bag that all tiles pool together:
  int64_t b, begin, length, from;  ///< `from`: the id of the bag that the piece begins at
  bool is_cut;
};

/// What the functions below have in common. Little of it is in registers.
struct Warp {
  const Descriptor& f;
  int pass;

  /// Lanes of a tile.
  WARPRANK_DEVICE int tile() const { return 1 << f.shape.tile_log2; }
  WARPRANK_DEVICE int num_tiles() const { return device::warp_size >> f.shape.tile_log2; }
  /// A lane's place in its tile, and its tile's in the warp.
  WARPRANK_DEVICE int rank(int lane) const { return lane & (tile() - 1); }
  WARPRANK_DEVICE int rank() const { return rank(device::lane_index()); }
  WARPRANK_DEVICE int tile_index(int lane) const { return lane >> f.shape.tile_log2; }
  WARPRANK_DEVICE int tile_index() const { return tile_index(device::lane_index()); }
  /// From the lane of the caller's tile.
  template <class Value>
  WARPRANK_DEVICE Value shuffle(Value value, int source) const {
    return device::shuffle(device::full_warp, value, source, tile());
  }

  /// Whether rows have parts for this pass.
  WARPRANK_DEVICE bool has_pass() const { return pass << f.shape.tile_log2 < static_cast<int>(f.shape.num_parts); }
  /// The lane's part of a row.
  WARPRANK_DEVICE int part() const { return (pass << f.shape.tile_log2) + rank(); }
  WARPRANK_DEVICE bool has_part() const { return part() < static_cast<int>(f.shape.num_parts); }
  WARPRANK_DEVICE int elements_per_part() const {
    return f.shape.lane_bytes / (f.type == DType::f32 ? 4 : f.type == DType::i8 ? 1 : 2);
  }
  /// The lane's columns of y.
  WARPRANK_DEVICE int column() const { return part() * elements_per_part(); }
  WARPRANK_DEVICE int num_columns() const {
    const int rest = static_cast<int>(f.dim) - column(), whole = elements_per_part();
    return rest <= 0 ? 0 : rest < whole ? rest : whole;
  }
};

}  // namespace warprank::detail::embedding_bag::general
