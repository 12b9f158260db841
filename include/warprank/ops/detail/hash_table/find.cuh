// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Look-ups in hash tables, inside kernels: 32 keys of a warp at once, one for each lane.
///
/// Inline layout: a lane reads the keys and the map of its line by itself, one sector or two, and the row is in the
/// same line. Header layout: a tile of 8 lanes reads a line at once, 16 bytes each; lines of 4 keys of each tile are on
/// their way together. Keys that are not in their first bucket go on together. Lines that a warp waits for one after
/// another, on average at load 0.8 (and 0.5), behind its keys and before its rows:
///
///     rows                     lines of a hit, of a miss     a warp of hits, of misses
///     inline, of 32 bytes      1.17 (1.06), 1.25 (1.07)      2.0 (1.9), 2.0 (1.9)
///     header                   1.04 (1.00), 1.16 (1.01)      2.7 (2.0), 3.0 (2.2)
///
/// of which the second is waited for by displaced keys alone, while rows of the others are copied (launch.cuh).
/// Where displaced keys of a tile went on one after another, and 8 lanes read an inline line, these were 4.5 (3.2), 5.3
/// (3.3) and 2.8 (2.0), 4.4 (2.2). No key overflows at these loads. Sectors of a hit and a miss at load 0.8, row
/// included: 3.3 and 2.5 for inline rows of 32 bytes (were 5.7 and 5.0), 8.1 and 4.6 for header rows of 128 bytes.
///
/// The layout allows no less: a key may be in two buckets, and reading both at once would move twice as much. The keys
/// of an inline bucket are one sector (of rows up to 16 bytes two), beside the rows of its last slots, which are filled
/// first. Header rows of multiples of 32 bytes are whole sectors, of 128 bytes whole lines.
///
/// Rows of a mutable table are found while others change it. Keys and map are then read by relaxed loads in no order of
/// their own, and the fence at the end orders the caller's reads of the rows after what published them. update.cuh
/// argues why no combination of an old and a new half of a line finds a wrong row.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/ops/row_cache.hpp"

namespace warprank { inline namespace v0 { namespace detail::hashed {

using LineTile = device::Tile<8>;

/// Whether look-ups in tables of this type say which keys they found (ops/row_cache.hpp).
template <class Table>
inline constexpr bool marks_use = false;

/// A lane's part of a line: words 2 rank and 2 rank + 1.
using LinePart = device::Vector<uint64_t, 2>;

/// The lane's part of a line of the header layout. A `Table`, here and below, is a HashTableView, or has its buckets,
/// placement, shape and is_mutable.
template <class Table>
WARPRANK_DEVICE LinePart load_line_part(const Table& table, const unsigned char* bucket) {
  using namespace device;  // NOLINT: a device function
  const auto* part = reinterpret_cast<const LinePart*>(bucket) + LineTile::rank();
  return table.is_mutable ? load<Order::relaxed, Scope::device>(part) : load_constant(part);
}

/// What lines say of keys, one of each tile: the same for all lanes of the tile.
struct LineMatches {
  uint32_t positions;  ///< bit i: position 2 i has the key, bit 8 + i: 2 i + 1, whether it holds it or not
  uint64_t map;

  /// The slot of the key, or no_slot. Two positions have the key only where the line has changed meanwhile: then the
  /// map tells which one holds it.
  WARPRANK_DEVICE int slot() const {
    int slot = hash_table::no_slot;
    for (uint32_t rest = positions; rest != 0 && slot == hash_table::no_slot; rest &= rest - 1) {
      const int bit = device::first_bit(rest);
      slot = hash_table::slot_at(map, bit % 8 * 2 + bit / 8);
    }
    return slot;
  }
  /// The position that holds the slot of the key.
  WARPRANK_DEVICE int position_of(int slot) const {
    uint32_t rest = positions;
    int bit = device::first_bit(rest);
    while (hash_table::slot_at(map, bit % 8 * 2 + bit / 8) != slot) bit = device::first_bit(rest &= rest - 1);
    return bit % 8 * 2 + bit / 8;
  }
};

/// Looks for the key of each tile in a line, of which lanes have their parts. All lanes of the warp call: votes of the
/// whole warp are one instruction, those of tiles would part them.
WARPRANK_DEVICE LineMatches match_lines(const LinePart& part, uint64_t key) {
  using namespace device;  // NOLINT: a device function
  const int lane = fresh_thread_rank() % warp_size, rank = lane % LineTile::size, first_lane = lane - rank;
  constexpr uint32_t tile = (1u << LineTile::size) - 1;
  const bool has_keys = rank < hash_table::header_positions / 2;
  const uint32_t even = ballot(full_warp, has_keys && part[0] == key);
  const uint32_t odd = ballot(full_warp, has_keys && part[1] == key);
  const uint64_t map = shuffle(full_warp, part[0], hash_table::map_word / 2, LineTile::size);
  return {(even >> first_lane & tile) | (odd >> first_lane & tile) << LineTile::size, map};
}

/// The look-up of a lane's key: bucket after bucket, as far as the first one tells.
struct LookUp {
  uint64_t key;
  const unsigned char* at;  ///< the bucket that is to be read; the row where it was found, or null
  int probe;                ///< how far it is; < 0: over
  uint32_t displaced;       ///< the upper half of the first bucket's map

  template <class Table>
  WARPRANK_DEVICE LookUp(const Table& table, uint64_t key, bool active)
      : key(key), at(nullptr), probe(active ? 0 : -1), displaced(0) {
    if (active) at = table.bucket(table.placement.first_bucket(table.placement.hash(key)));
  }
  WARPRANK_DEVICE bool is_pending() const { return probe >= 0; }
  WARPRANK_DEVICE const unsigned char* row() const { return is_pending() ? nullptr : at; }
  WARPRANK_DEVICE void hit(int64_t row_in_bucket) { at += row_in_bucket, probe = -1; }
  /// Goes on to the next bucket: the one that was read has this map, and not the key.
  template <class Table>
  WARPRANK_DEVICE void miss(const Table& table, uint64_t map) {
    using hash_table::Displaced;
    if (probe == 0) displaced = static_cast<uint32_t>(map >> 32);
    const uint64_t first_map = uint64_t{displaced} << 32;
    probe += probe == 0 && !hash_table::has(first_map, Displaced::spilled) ? 2 : 1;
    const int last = hash_table::has(first_map, Displaced::overflowed) ? table.placement.max_probes : 2;
    if (probe < last) {
      at = table.bucket(table.placement.bucket(table.placement.hash(key), probe));
    } else {
      at = nullptr, probe = -1;
    }
  }
};

/// Reads the line of each lane's pending look-up. Inline layout: words from the first key to the map, at most the last
/// eight, by the lane itself.
template <class Table>
WARPRANK_DEVICE void read_inline_lines(const Table& table, LookUp& look_up) {
  constexpr int first_word = 8;
  if (!look_up.is_pending()) return;
  const int first_key = hash_table::key_word(table.shape, 0);
  const auto* words = reinterpret_cast<const uint64_t*>(look_up.at);
  LinePart parts[4] = {};
  WARPRANK_UNROLL
  for (int i = 3; i >= 0; --i) {
    const int word = first_word + 2 * i;
    if (word + 1 >= first_key) parts[i] = device::load_vector_constant<2>(words + word);
  }
  uint32_t equal = 0;
  WARPRANK_UNROLL
  for (int i = 0; i < 8; ++i) equal |= (parts[i / 2][i % 2] == look_up.key ? 1u : 0u) << i;
  const uint64_t map = parts[3][1];
  const uint32_t places = (1u << table.shape.num_slots) - 1;
  const uint32_t held = equal >> (first_key - first_word) & static_cast<uint32_t>(map) & places;
  if (held == 0) return look_up.miss(table, map);
  look_up.hit(device::first_bit(held) * table.shape.row_stride);
}

/// The same of the header layout, by tiles. All lanes of the warp call.
template <class Table>
WARPRANK_DEVICE void read_header_lines(const Table& table, LookUp& look_up) {
  using namespace device;       // NOLINT: a device function
  constexpr int in_flight = 4;  // keys of a tile whose lines are loaded together
  const int lane = fresh_thread_rank() % warp_size, rank = lane % LineTile::size;
  constexpr uint32_t tile = (1u << LineTile::size) - 1;
  uint32_t pending = ballot(full_warp, look_up.is_pending()) >> (lane - rank) & tile;
  LineMatches mine{};
  uint64_t use = 0;
  while (any(full_warp, pending != 0)) {
    LinePart parts[in_flight] = {};
    uint32_t rest = pending;
    WARPRANK_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      const auto bucket = reinterpret_cast<uint64_t>(look_up.at);
      const uint64_t of_key = shuffle(full_warp, bucket, rest == 0 ? 0 : first_bit(rest), LineTile::size);
      if (rest == 0) continue;
      parts[i] = load_line_part(table, reinterpret_cast<const unsigned char*>(of_key));
      rest &= rest - 1;
    }
    WARPRANK_UNROLL
    for (int i = 0; i < in_flight; ++i) {
      if (!any(full_warp, pending != 0)) break;
      const int source = pending == 0 ? 0 : first_bit(pending);
      const LineMatches matches = match_lines(parts[i], shuffle(full_warp, look_up.key, source, LineTile::size));
      if (pending != 0 && rank == source) mine = matches;
      if constexpr (marks_use<Table>) {
        const uint64_t of_line =
            shuffle(full_warp, parts[i][row_cache::use_word % 2], row_cache::use_word / 2, LineTile::size);
        if (pending != 0 && rank == source) use = of_line;
      }
      pending &= pending - 1;
    }
  }
  if (!look_up.is_pending()) return;
  const int slot = mine.slot();
  if (slot == hash_table::no_slot) return look_up.miss(table, mine.map);
  if constexpr (marks_use<Table>) {
    const uint64_t used = use | uint64_t{1} << mine.position_of(slot);
    auto* const line = reinterpret_cast<uint64_t*>(const_cast<unsigned char*>(look_up.at));
    if (used != use) store<Order::relaxed, Scope::device>(&line[row_cache::use_word], used);
  }
  look_up.hit(table.shape.rows_begin + slot * table.shape.row_stride);
}

/// Reads a line for each lane that wants one, of a table of this layout. All lanes of the warp call.
template <hash_table::Layout Layout, class Table>
WARPRANK_DEVICE void read_lines(const Table& table, LookUp& look_up) {
  if constexpr (Layout == hash_table::Layout::in_line) {
    read_inline_lines(table, look_up);
    device::sync_warp();
  } else {
    read_header_lines(table, look_up);
  }
}

/// Orders reads of rows that were found behind what published them. All lanes of the warp call.
template <class Table>
WARPRANK_DEVICE void acquire_rows(const Table& table) {
  using namespace device;  // NOLINT: a device function
  if (!table.is_mutable) return;
  fence<Scope::device>();
  sync_warp();
}

/// Each lane brings a key, or `active` = false, and gets the address of the key's row, or null. All 32 lanes call; all
/// keys are of one table. Rows are row_bytes long; any lane of the warp may read them at once, those of a mutable table
/// by relaxed loads of device scope, and until whatever the launch is registered with as a reader is done.
template <hash_table::Layout Layout, class Table>
WARPRANK_DEVICE const unsigned char* find_rows(const Table& table, uint64_t key, bool active) {
  LookUp look_up(table, key, active);
  while (device::any(device::full_warp, look_up.is_pending())) read_lines<Layout>(table, look_up);
  acquire_rows(table);
  return look_up.row();
}
template <class Table>
WARPRANK_DEVICE const unsigned char* find_rows(const Table& table, uint64_t key, bool active) {
  using hash_table::Layout;
  if (table.shape.layout == Layout::in_line) return find_rows<Layout::in_line>(table, key, active);
  return find_rows<Layout::header>(table, key, active);
}

}}}  // namespace warprank::v0::detail::hashed
