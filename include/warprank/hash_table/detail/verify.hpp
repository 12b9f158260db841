// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Checks the line of one bucket; returns how many keys it holds.
inline int verify_bucket(const std::string& where, const HashTableView& table, uint64_t bucket) {
  using namespace hash_table;
  const auto refuse = [&](const char* expected, const std::string& got) {
    throw invalid_argument(where + ": bucket " + std::to_string(bucket), expected, got);
  };
  const uint64_t* line = table.line(bucket);
  const uint64_t map = map_of(table.shape, line);
  const bool is_inline = table.shape.layout == hash_table::Layout::in_line;
  const uint64_t places = (uint64_t{1} << table.shape.num_keys()) - 1;
  const uint64_t held = is_inline ? map & ~(uint64_t{255} << 56) : held_positions(map);
  const int count = __builtin_popcountll(held);
  if (is_inline ? (held & ~places) != 0 : __builtin_popcount(held_slots(map)) != count)
    refuse("a map that gives each key a row of its own", "map " + std::to_string(map));
  if (!is_inline && line[state_word] != 0)
    refuse("a table that nobody was changing", "state " + std::to_string(line[state_word]));
  for (int place = 0; place < table.shape.num_keys(); ++place) {
    const uint64_t key = line[key_word(table.shape, place)];
    if ((held >> place & 1) != 0) {
      const unsigned char* row = table.row(bucket, is_inline ? place : slot_at(map, place));
      if (find_row(table, static_cast<int64_t>(key)) != row)
        refuse("keys where look-ups find them", "key " + std::to_string(static_cast<int64_t>(key)));
    } else if (!is_inline && table.placement.may_hold(bucket, table.placement.hash(key))) {
      refuse("keys of other buckets where it holds none", "key " + std::to_string(static_cast<int64_t>(key)));
    }
  }
  return count;
}

/// Throws invalid_argument, about `where`, unless each key of the table is found at its one place, and there are as
/// many as its size says.
inline void verify(const std::string& where, const HashTableView& table, int threads) {
  const Parts parts(static_cast<int64_t>(table.num_buckets()), 1024, 4096);
  std::atomic<uint64_t> size{0};
  parallel_for(parts.size(), threads, [&](int64_t part) {
    uint64_t count = 0;
    for (int64_t bucket = parts.begin(part); bucket < parts.end(part); ++bucket)
      count += static_cast<uint64_t>(verify_bucket(where, table, static_cast<uint64_t>(bucket)));
    size += count;
  });
  if (size != *table.size)
    throw invalid_argument(where + ": keys", std::to_string(*table.size) + ", as its header says",
                           std::to_string(size.load()));
}

}}}  // namespace warprank::v0::detail
