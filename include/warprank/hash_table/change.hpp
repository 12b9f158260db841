// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Inserts, changes or erases one key on the host, in plain code. ops/hash_table.cuh changes many keys on a device.
///
/// The table has the header layout, as tables that were built mutable have, and lies in host memory. No other thread
/// may read or change it meanwhile, so that nothing is written aside and nothing retired.

#include <cstdint>
#include <cstring>

#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/update.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 { namespace hash_table {

/// The place of a key.
struct KeyPlace {
  uint64_t bucket = 0;
  int probe = 0;      ///< of Placement::bucket
  int position = -1;  ///< -1: the table does not have the key
};

inline KeyPlace place_of(const HashTableView& table, uint64_t key) {
  const uint64_t hash = table.placement.hash(key);
  const uint64_t first_map = table.line(table.placement.first_bucket(hash))[map_word];
  for (int probe = 0; probe < table.placement.max_probes; ++probe) {
    if (probe == 1 && !has(first_map, Displaced::spilled)) continue;
    if (probe > 1 && !has(first_map, Displaced::overflowed)) break;
    const uint64_t bucket = table.placement.bucket(hash, probe);
    const uint64_t* line = table.line(bucket);
    for (int position = 0; position < header_positions; ++position)
      if (line[position] == key && slot_at(line[map_word], position) != no_slot) return {bucket, probe, position};
  }
  return {};
}

inline Displaced displaced_to(int probe) { return probe == 1 ? Displaced::spilled : Displaced::overflowed; }

/// Gives a key its row of table.row_bytes bytes. Returns Status inserted, updated or full.
inline Status insert_or_assign(const HashTableView& table, int64_t key, const unsigned char* row) {
  const auto row_bytes = static_cast<size_t>(table.row_bytes);
  const auto wanted = static_cast<uint64_t>(key);
  const KeyPlace place = place_of(table, wanted);
  if (place.position >= 0) {
    const uint64_t map = table.line(place.bucket)[map_word];
    std::memcpy(table.row(place.bucket, slot_at(map, place.position)), row, row_bytes);
    return Status::updated;
  }
  const uint64_t hash = table.placement.hash(wanted);
  for (int probe = 0; probe < table.placement.max_probes; ++probe) {
    const uint64_t bucket = table.placement.bucket(hash, probe);
    uint64_t* line = table.line(bucket);
    const uint32_t free_positions = ~held_positions(line[map_word]) & ((1u << header_positions) - 1);
    if (free_positions == 0) continue;
    const int position = __builtin_ctz(free_positions), slot = __builtin_ctz(~held_slots(line[map_word]));
    std::memcpy(table.row(bucket, slot), row, row_bytes);
    line[position] = wanted;
    line[map_word] = with_slot(line[map_word], position, slot);
    uint64_t& first_map = table.line(table.placement.first_bucket(hash))[map_word];
    if (probe > 0) first_map = with_one_more(first_map, displaced_to(probe));
    ++*table.size;
    return Status::inserted;
  }
  return Status::full;
}

/// Removes a key. Returns Status erased or absent.
inline Status erase(const HashTableView& table, int64_t key) {
  const KeyPlace place = place_of(table, static_cast<uint64_t>(key));
  if (place.position < 0) return Status::absent;
  uint64_t* line = table.line(place.bucket);
  line[map_word] = with_slot(line[map_word], place.position, no_slot);
  line[place.position] = table.placement.foreign_key(place.bucket);
  const uint64_t hash = table.placement.hash(static_cast<uint64_t>(key));
  uint64_t& first_map = table.line(table.placement.first_bucket(hash))[map_word];
  if (place.probe > 0) first_map = with_one_less(first_map, displaced_to(place.probe));
  --*table.size;
  return Status::erased;
}

}}}  // namespace warprank::v0::hash_table
