// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Some rows of a table in device memory, while the whole table lies in the host's memory (engine/placement.hpp). Plain
/// data.
///
/// The rows are in a mutable hash table (hash_table/layout.hpp), without overflow buckets and with one position less in
/// each bucket. The word of the last position has a bit for each other position, which a look-up sets when it finds the
/// key there. A look-up reads this line anyway, and stores only if the bit is not yet set. Bits are hints: if several
/// keys of a bucket are found at the same time, one may be marked and the others not.

#include <cstdint>

#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 {

namespace row_cache {

inline constexpr int num_positions = hash_table::header_positions - 1;
inline constexpr int use_word = num_positions;  ///< word of the line: bit p is set when the key at position p was found

/// Look-ups add their hits to one of these counters, which are a sector apart.
inline constexpr int hit_counters = 32, hit_stride = 4;

}  // namespace row_cache

/// Keys that look-ups report, in the order in which they come. They are hints: keys that come while others are taken
/// out may be lost or come twice. All pointers are to device memory.
struct KeyList {
  uint64_t* keys = nullptr;       ///< [capacity], the n-th key at n modulo capacity
  uint64_t* num = nullptr;        ///< number of keys so far, also of keys for which there was no room
  uint64_t* num_taken = nullptr;  ///< number of keys taken out: there is room for `capacity` keys behind these
  uint32_t capacity = 0;          ///< a power of two
};

/// All pointers are to device memory. A look-up gets the address of a view that is itself in device memory.
struct RowCacheView {
  HashTableView rows;        ///< keys are the table's keys, or the row numbers of a direct table
  KeyList missed;            ///< keys whose rows had to be read in the host's memory
  KeyList absent;            ///< of a table in a store: keys without a row in the host's memory; of others null
  uint64_t* hits = nullptr;  ///< [hit_counters * hit_stride]: number of rows found in the cache, in parts
};

}}  // namespace warprank::v0
