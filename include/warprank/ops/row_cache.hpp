// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of a table that are in device memory, while all of them lie in the host's (engine/placement.hpp). Plain data.
///
/// The rows are those of a mutable hash table (hash_table/layout.hpp), without overflow buckets and with one position
/// less in each bucket: the word of the last one has a bit for each of the others, which look-ups set when they find
/// its key. So the line that a look-up reads anyway tells whether it has to, and only the first after a while stores
/// anything. Bits are hints: of keys of one bucket that are found at the same time one may be marked and others not.

#include <cstdint>

#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 {

namespace row_cache {

inline constexpr int num_positions = hash_table::header_positions - 1;
inline constexpr int use_word = num_positions;  ///< of the line: bit p is set when the key at position p was found

/// Look-ups add their hits to one of so many counters, which are as far apart as sectors.
inline constexpr int hit_counters = 32, hit_stride = 4;

}  // namespace row_cache

/// Keys that look-ups tell of, in the order in which they came. They are hints: of those that come while others are
/// taken out, some may be lost or be there twice. All pointers are to device memory.
struct KeyList {
  uint64_t* keys = nullptr;       ///< [capacity], the n-th key at n modulo capacity
  uint64_t* num = nullptr;        ///< how many there have been, those included for which there was no room
  uint64_t* num_taken = nullptr;  ///< and how many are taken out: there is room for `capacity` behind these
  uint32_t capacity = 0;          ///< a power of two
};

/// All pointers are to device memory. A look-up is given the address of a view that is in device memory as well.
struct RowCacheView {
  HashTableView rows;        ///< keys are those of the table, of a direct one the numbers of rows
  KeyList missed;            ///< whose rows had to be read in the host's memory
  KeyList absent;            ///< of a table in a store: whose rows are not even there; of others without keys
  uint64_t* hits = nullptr;  ///< [hit_counters * hit_stride]: rows that were found in the cache, in parts
};

}}  // namespace warprank::v0
