// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The places of a hash table's keys and rows. The host builds buckets, and kernels read and change them, only by these
/// functions, so that both agree bit for bit.
///
/// A table is `num_buckets` buckets, which any key may be in, then `num_overflow` overflow buckets. A key is looked for
///     in its first bucket;
///     in its second, when the first says that keys spilled out of it;
///     in a window of max_probes - 2 overflow buckets, when the first says that keys overflowed.
/// Every 64-bit key is legal: bits tell which places hold keys, not a key that marks empty places.
///
/// A bucket begins with a line of 128 bytes, sixteen 64-bit words, little-endian.
///
/// Header layout, for rows of 2 to 1024 bytes, and for all tables that change while they are read:
///     words 0-13   keys, at *positions* 0 to 13
///     word  14     the map: bits 4p to 4p + 3 are the *slot* of the key at position p, 15 when it holds none;
///                  bits 56-59 the number of keys that spilled, 60-63 that overflowed, 15 for "15 or more, for ever"
///     word  15     the state, for writers: bit 0 the lock, bits 1-15 slots and 16-29 positions that are retired and
///                  may still be read, bits 30-63 the epoch in which the last was retired
///     behind it    15 slots for rows, row_stride bytes apart, a multiple of 16; the bucket ends at a multiple of 128
/// A position without a key holds a *foreign* key: one that is never looked for in this bucket.
///
/// Inline layout, for rows of 2 to 48 bytes that never change: n rows of row_stride bytes, a multiple of 8, from word
/// 0; their keys in words 15 - n to 14; word 15 is the map, in which bit i tells whether slot i is held. Nothing is
/// behind it.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/host_device.hpp"

namespace warprank { inline namespace v0 { namespace hash_table {

enum class Layout : uint32_t { header = 1, in_line = 2 };

inline constexpr int64_t line_bytes = 128;
inline constexpr int line_words = 16;
inline constexpr int header_positions = 14, header_slots = 15;
inline constexpr int map_word = 14, state_word = 15;  // header layout
inline constexpr int inline_map_word = 15;
inline constexpr int64_t min_row_bytes = 2, max_row_bytes = 1024, max_inline_row_bytes = 48;
/// With this number or more, every bucket has a foreign key.
inline constexpr uint64_t min_buckets = 4;

/// Bytes of one row: F32, F16 and BF16 as they are; I8 as `dim` bytes, rounded up to 4, then float scale and offset:
/// x = scale * q + offset.
WARPRANK_HOST_DEVICE constexpr int64_t row_bytes(DType type, int64_t dim) {
  return type == DType::i8 ? (dim + 3) / 4 * 4 + 8 : dim * (type == DType::f32 ? 4 : 2);
}

/// How a bucket is divided.
struct BucketShape {
  Layout layout = Layout::header;
  int32_t num_slots = 0;     ///< rows: 15, of which 14 can have keys; inline as many as fit into a line
  int64_t row_stride = 0;    ///< bytes from one row to the next
  int64_t rows_begin = 0;    ///< bytes before the first row
  int64_t bucket_bytes = 0;  ///< a multiple of 128

  /// The number of keys that it can hold.
  WARPRANK_HOST_DEVICE constexpr int num_keys() const {
    return layout == Layout::header ? header_positions : num_slots;
  }
};

/// The shape for rows of `row_bytes` bytes: inline if two or more fit into a line and rows never change.
WARPRANK_HOST_DEVICE constexpr BucketShape shape_of(int64_t row_bytes, bool is_mutable) {
  if (!is_mutable && row_bytes <= max_inline_row_bytes) {
    const int64_t stride = (row_bytes + 7) / 8 * 8;
    return {Layout::in_line, static_cast<int32_t>((line_bytes - 8) / (8 + stride)), stride, 0, line_bytes};
  }
  const int64_t stride = (row_bytes + 15) / 16 * 16;
  const int64_t bytes = line_bytes + header_slots * stride;
  return {Layout::header, header_slots, stride, line_bytes, (bytes + line_bytes - 1) / line_bytes * line_bytes};
}

/// The word of the line that holds the key of a slot (inline) or position (header).
WARPRANK_HOST_DEVICE constexpr int key_word(const BucketShape& shape, int place) {
  return shape.layout == Layout::header ? place : inline_map_word - shape.num_slots + place;
}

// ---- Where a key may be

/// MurmurHash3's finaliser (Appleby): a bijection in which every bit depends on every bit.
WARPRANK_HOST_DEVICE constexpr uint64_t fmix64(uint64_t h) {
  h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
  h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 33;
}

/// hash * count / 2^64: a number below `count` from the upper bits.
WARPRANK_HOST_DEVICE constexpr uint64_t scale_hash(uint64_t hash, uint64_t count) {
  __extension__ using uint128 = unsigned __int128;
  return static_cast<uint64_t>(static_cast<uint128>(hash) * count >> 64);
}

/// The buckets in which a table's keys are looked for.
struct Placement {
  uint64_t seed = 0;
  uint64_t num_buckets = 0;   ///< >= min_buckets
  uint64_t num_overflow = 0;  ///< 0, or at least 2 * overflow_probes()
  int32_t max_probes = 2;     ///< buckets that a look-up reads at most; 2 when num_overflow is 0

  WARPRANK_HOST_DEVICE constexpr int overflow_probes() const { return max_probes - 2; }
  WARPRANK_HOST_DEVICE constexpr uint64_t hash(uint64_t key) const { return fmix64(key ^ seed); }
  WARPRANK_HOST_DEVICE constexpr uint64_t first_bucket(uint64_t hash) const { return scale_hash(hash, num_buckets); }
  /// Never the first bucket. The product brings the lower bits of the hash to the top.
  WARPRANK_HOST_DEVICE constexpr uint64_t second_bucket(uint64_t hash) const {
    const uint64_t other = scale_hash(hash * 0x9e3779b97f4a7c15u, num_buckets - 1);
    return other + (other >= first_bucket(hash) ? 1 : 0);
  }
  /// The probe-th bucket of the key's overflow window, counted from the first bucket of the table.
  WARPRANK_HOST_DEVICE constexpr uint64_t overflow_bucket(uint64_t hash, int probe) const {
    const uint64_t at = scale_hash(hash << 32 | hash >> 32, num_overflow) + static_cast<uint64_t>(probe);
    return num_buckets + (at < num_overflow ? at : at - num_overflow);
  }
  /// The bucket that a look-up reads, from probe 0 to max_probes - 1.
  WARPRANK_HOST_DEVICE constexpr uint64_t bucket(uint64_t hash, int probe) const {
    return probe == 0 ? first_bucket(hash) : probe == 1 ? second_bucket(hash) : overflow_bucket(hash, probe - 2);
  }
  /// Whether a key of this hash may be in the bucket.
  WARPRANK_HOST_DEVICE constexpr bool may_hold(uint64_t bucket, uint64_t hash) const {
    if (bucket < num_buckets) return bucket == first_bucket(hash) || bucket == second_bucket(hash);
    for (int probe = 0; probe < overflow_probes(); ++probe) {
      if (bucket == overflow_bucket(hash, probe)) return true;
    }
    return false;
  }
  /// The smallest key that is never looked for in the bucket.
  WARPRANK_HOST_DEVICE constexpr uint64_t foreign_key(uint64_t bucket) const {
    uint64_t key = 0;
    while (may_hold(bucket, hash(key))) ++key;
    return key;
  }
};

// ---- The map of the header layout, and the counts that both layouts have

inline constexpr int no_slot = 15;
inline constexpr uint64_t empty_map = (uint64_t{1} << 56) - 1;  // header layout; inline: 0
inline constexpr uint64_t count_limit = 15;
enum class Displaced : int { spilled = 56, overflowed = 60 };  // bits of the map

/// The slot of the key at a position, or no_slot.
WARPRANK_HOST_DEVICE constexpr int slot_at(uint64_t map, int position) {
  return static_cast<int>(map >> (4 * position) & 15);
}
WARPRANK_HOST_DEVICE constexpr uint64_t with_slot(uint64_t map, int position, int slot) {
  return (map & ~(uint64_t{15} << (4 * position))) | static_cast<uint64_t>(slot) << (4 * position);
}
/// Bit p: position p holds a key.
WARPRANK_HOST_DEVICE constexpr uint32_t held_positions(uint64_t map) {
  uint32_t held = 0;
  for (int position = 0; position < header_positions; ++position) {
    held |= (slot_at(map, position) != no_slot ? 1u : 0u) << position;
  }
  return held;
}
/// Bit s: slot s holds a key's row.
WARPRANK_HOST_DEVICE constexpr uint32_t held_slots(uint64_t map) {
  uint32_t held = 0;
  for (int position = 0; position < header_positions; ++position) held |= 1u << slot_at(map, position);
  return held & ((1u << header_slots) - 1);
}

/// Whether keys of this first bucket are in their second bucket, or in the overflow.
WARPRANK_HOST_DEVICE constexpr bool has(uint64_t map, Displaced where) {
  return (map >> static_cast<int>(where) & count_limit) != 0;
}
/// One key more. A count that has reached its limit stays there.
WARPRANK_HOST_DEVICE constexpr uint64_t with_one_more(uint64_t map, Displaced where) {
  const bool at_limit = (map >> static_cast<int>(where) & count_limit) == count_limit;
  return at_limit ? map : map + (uint64_t{1} << static_cast<int>(where));
}
WARPRANK_HOST_DEVICE constexpr uint64_t with_one_less(uint64_t map, Displaced where) {
  const bool at_limit = (map >> static_cast<int>(where) & count_limit) == count_limit;
  return at_limit ? map : map - (uint64_t{1} << static_cast<int>(where));
}

// ---- The state of the header layout

inline constexpr uint64_t lock_bit = 1;
inline constexpr int epoch_bits = 34;
inline constexpr uint64_t max_epoch = (uint64_t{1} << epoch_bits) - 1;

/// The writers' state of a bucket. 0 as a word: nothing is retired, no thread holds the lock.
struct BucketState {
  uint32_t retired_slots = 0;      ///< bit s: slot s holds no key's row, and readers may still read it
  uint32_t retired_positions = 0;  ///< bit p: position p holds no key, and readers may still compare with its last one
  uint64_t epoch = 0;              ///< of the latest retirement

  WARPRANK_HOST_DEVICE static constexpr BucketState from(uint64_t word) {
    return {static_cast<uint32_t>(word >> 1 & 0x7fffu), static_cast<uint32_t>(word >> 16 & 0x3fffu), word >> 30};
  }
  /// Unlocked.
  WARPRANK_HOST_DEVICE constexpr uint64_t word() const {
    return uint64_t{retired_slots} << 1 | uint64_t{retired_positions} << 16 | epoch << 30;
  }
};

}}}  // namespace warprank::v0::hash_table
