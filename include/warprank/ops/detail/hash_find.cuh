// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Look-ups in hash tables, inside kernels. A tile of 8 lanes reads a bucket's line at once, 16 bytes each; lines of
/// several keys are on their way together.
///
/// Rows of a mutable table are found while others change it. Keys and map are then read by relaxed loads in no order of
/// their own, and the fence at the end orders the caller's reads of the rows after what published them. hash_update.cuh
/// argues why no combination of an old and a new half of a line finds a wrong row.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank::detail {

using LineTile = device::Tile<8>;

/// A lane's part of a line: words 2 rank and 2 rank + 1.
using LinePart = device::Vector<uint64_t, 2>;

WARPRANK_DEVICE LinePart load_line_part(const HashTableView& table, uint64_t bucket) {
  using namespace device;  // NOLINT: a device function
  const uint64_t* words = table.line(bucket) + 2 * LineTile::rank();
  if (table.is_mutable) return load<Order::relaxed, Scope::device>(reinterpret_cast<const LinePart*>(words));
  return load_vector_constant<2>(words);
}

/// What a line says of a key: the same for all lanes of the tile.
struct LineMatch {
  int place;     ///< the position (header) or slot (inline) that holds the key, -1 when none does
  uint64_t map;  ///< the word with the map
};

/// Looks for the tile's key in a line. A key that lies where the map holds nothing is not there.
WARPRANK_DEVICE LineMatch match_line(const HashTableView& table, const LinePart& part, uint64_t key) {
  const bool in_line = table.shape.layout == hash_table::Layout::in_line;
  const uint64_t map = LineTile::shuffle(in_line ? part[1] : part[0], LineTile::size - 1);
  const int first_place = 2 * LineTile::rank() - hash_table::key_word(table.shape, 0);
  int place = -1;
  WARPRANK_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int p = first_place + i;
    if (part[i] != key || p < 0 || p >= table.shape.num_keys()) continue;
    const bool held = in_line ? (map >> p & 1) != 0 : hash_table::slot_at(map, p) != hash_table::no_slot;
    if (held) place = p;
  }
  const uint32_t hit = LineTile::ballot(place >= 0);
  if (hit != 0) place = LineTile::shuffle(place, device::first_bit(hit));
  return {place, map};
}

/// Where the row of a match lies.
WARPRANK_DEVICE const unsigned char* matched_row(const HashTableView& table, uint64_t bucket, const LineMatch& match) {
  const bool in_line = table.shape.layout == hash_table::Layout::in_line;
  return table.row(bucket, in_line ? match.place : hash_table::slot_at(match.map, match.place));
}

/// Looks for a tile's key in the buckets after its first, whose map is given.
WARPRANK_DEVICE const unsigned char* find_displaced(const HashTableView& table, uint64_t key, uint64_t first_map) {
  using hash_table::Displaced;
  const uint64_t hash = table.placement.hash(key);
  const int last = hash_table::has(first_map, Displaced::overflowed) ? table.placement.overflow_probes() : 0;
  for (int probe = hash_table::has(first_map, Displaced::spilled) ? -1 : 0; probe < last; ++probe) {
    const uint64_t bucket =
        probe < 0 ? table.placement.second_bucket(hash) : table.placement.overflow_bucket(hash, probe);
    const LineMatch match = match_line(table, load_line_part(table, bucket), key);
    if (match.place >= 0) return matched_row(table, bucket, match);
  }
  return nullptr;
}

/// Each lane brings a key, or `active` = false, and gets the address of the key's row, or null. All 32 lanes call; all
/// keys are of one table. Rows are row_bytes long; any lane of the warp may read them at once, those of a mutable table
/// by relaxed loads of device scope, and until whatever the launch is registered with as a reader is done.
WARPRANK_DEVICE const unsigned char* find_rows(const HashTableView& table, uint64_t key, bool active) {
  using namespace device;       // NOLINT: a device function
  constexpr int in_flight = 4;  // keys of a tile whose lines are loaded together
  const uint64_t first = table.placement.first_bucket(table.placement.hash(key));
  const uint32_t wanted = LineTile::ballot(active);
  const unsigned char* row = nullptr;
  uint64_t first_map = 0;
  for (int begin = 0; begin < LineTile::size; begin += in_flight) {
    LinePart parts[in_flight] = {};
    WARPRANK_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      const uint64_t bucket = LineTile::shuffle(first, begin + i);
      if ((wanted >> (begin + i) & 1) != 0) parts[i] = load_line_part(table, bucket);
    }
    WARPRANK_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      if ((wanted >> (begin + i) & 1) == 0) continue;
      const LineMatch match = match_line(table, parts[i], LineTile::shuffle(key, begin + i));
      if (LineTile::rank() != begin + i) continue;
      if (match.place >= 0) row = matched_row(table, first, match);
      first_map = match.map;
    }
  }
  using hash_table::Displaced;
  const bool displaced =
      hash_table::has(first_map, Displaced::spilled) || hash_table::has(first_map, Displaced::overflowed);
  for (uint32_t rest = LineTile::ballot(row == nullptr && displaced); rest != 0; rest &= rest - 1) {
    const int source = first_bit(rest);
    const unsigned char* found =
        find_displaced(table, LineTile::shuffle(key, source), LineTile::shuffle(first_map, source));
    if (LineTile::rank() == source) row = found;
  }
  if (table.is_mutable) {
    fence<Scope::device>();
    sync_warp();
  }
  return row;
}

}  // namespace warprank::detail
