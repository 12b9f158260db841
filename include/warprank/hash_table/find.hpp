// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Looks up one key on the host, in plain code. ops/host/hash_table.hpp looks up many keys, faster.

#include <cstdint>

#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 {

namespace hash_table {

inline uint64_t map_of(const BucketShape& shape, const uint64_t* line) {
  return line[shape.layout == Layout::header ? map_word : inline_map_word];
}

/// The buckets in which a key is looked for, one after the other.
class ProbeSequence {
 public:
  ProbeSequence(const Placement& placement, uint64_t key)
      : placement_(placement), hash_(placement.hash(key)), bucket_(placement.first_bucket(hash_)) {}

  uint64_t bucket() const { return bucket_; }

  /// Goes to the next bucket; false when there is none. `first_map` is the map of the first bucket.
  bool next(uint64_t first_map) {
    if (visited_++ == 0 && has(first_map, Displaced::spilled)) {
      bucket_ = placement_.second_bucket(hash_);
      return true;
    }
    if (!has(first_map, Displaced::overflowed) || overflow_probes_ >= placement_.overflow_probes()) return false;
    bucket_ = placement_.overflow_bucket(hash_, overflow_probes_++);
    return true;
  }

 private:
  const Placement& placement_;
  uint64_t hash_, bucket_;
  int visited_ = 0, overflow_probes_ = 0;
};

/// The row of a key that equals the words of the bucket's line in `equal`, bit w for word w; null if the bucket does
/// not hold it.
inline const unsigned char* row_of(const HashTableView& table, uint64_t bucket, const uint64_t* line, uint32_t equal) {
  const uint64_t map = map_of(table.shape, line);
  if (table.shape.layout == Layout::in_line) {
    const int keys = table.shape.num_slots;
    const uint32_t held = equal >> key_word(table.shape, 0) & static_cast<uint32_t>(map) & ((1u << keys) - 1);
    return held == 0 ? nullptr : table.row(bucket, __builtin_ctz(held));
  }
  for (equal &= (1u << header_positions) - 1; equal != 0; equal &= equal - 1) {
    const int slot = slot_at(map, __builtin_ctz(equal));
    if (slot != static_cast<int>(no_slot)) return table.row(bucket, slot);
  }
  return nullptr;
}

}  // namespace hash_table

/// The row of `key` in a table that lies in host memory, or null.
inline const unsigned char* find_row(const HashTableView& table, int64_t key) {
  const auto wanted = static_cast<uint64_t>(key);
  hash_table::ProbeSequence probes(table.placement, wanted);
  const uint64_t first_map = hash_table::map_of(table.shape, table.line(probes.bucket()));
  do {
    const uint64_t* line = table.line(probes.bucket());
    uint32_t equal = 0;
    for (int w = 0; w < hash_table::line_words; ++w) equal |= static_cast<uint32_t>(line[w] == wanted) << w;
    if (const unsigned char* row = hash_table::row_of(table, probes.bucket(), line, equal)) return row;
  } while (probes.next(first_map));
  return nullptr;
}

}}  // namespace warprank::v0
