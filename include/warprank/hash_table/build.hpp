// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Builds a whole hash table at once, on the host.
///
///     HashTable table = build_hash_table({DType::f16, 32}, {count, keys, rows});
///
/// A key goes to its first bucket, or to its second if the first is full. The keys that leave a full bucket are chosen
/// so that as few as possible leave. Up to a load factor of 0.95, no key needs the overflow in the header layout, and
/// few keys do in the inline layout. Only the set of keys and rows and the options determine the bytes of the image:
/// neither the order of the rows nor the number of threads changes them.
///
/// Beside the image, a build needs 32 bytes a row, and 9 bytes a bucket.

#include <cstdint>

#include "warprank/core/compiled.hpp"
#include "warprank/hash_table/build_options.hpp"
#include "warprank/hash_table/hash_table.hpp"
#include "warprank/hash_table/stream.hpp"

namespace warprank { inline namespace v0 {

/// Reads the stream twice: its keys, then its rows. Throws invalid_argument for rows or options out of range, for keys
/// that occur more than once (up to 16 are named, with their rows in the order of the stream), for more keys than the
/// capacity, and for a stream that gives other keys the second time.
WARPRANK_HOST_INLINE HashTable build_hash_table(const HashTableRows& rows, const HashTableStream& stream,
                                                const HashTableOptions& options = {});

inline HashTable build_hash_table(const HashTableRows& rows, const HashTableChunk& all,
                                  const HashTableOptions& options = {}) {
  return build_hash_table(rows, stream_of(all), options);
}

/// Checks rows, options and keys as build_hash_table does, and builds nothing; needs 24 bytes a row meanwhile. Returns
/// the size of the image in bytes, without overflow buckets, which few sets of keys need.
WARPRANK_HOST_INLINE int64_t check_hash_table(const HashTableRows& rows, const HashTableChunk& all,
                                              const HashTableOptions& options = {});

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/hash_table/build_definitions.hpp"
#endif
