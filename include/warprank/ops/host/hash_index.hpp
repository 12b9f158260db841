// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From any 64-bit id to the row of a hashed table, on the host.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/prefetch.hpp"
#include "warprank/core/view.hpp"

namespace warprank::host_ops {

/// An immutable map key -> row. Every int64 is a legal key.
///
/// Open addressing over buckets of 8 keys in one cache line and their 8 rows in the next. A key lives in the first
/// bucket with room from its home on, home = fmix64(key ^ seed) scaled to the number of buckets; a look-up ends at the
/// first bucket that is not full. 5 of 8 slots are filled: 25.6 bytes per key. No look-up visits more than `max_probes`
/// buckets: a build that would need more starts again with another seed.
class HashIndex {
 public:
  static constexpr int64_t max_probes = 64;

  HashIndex() = default;

  /// keys[r] is the key of row r. Throws invalid_argument naming the keys that occur more than once.
  static HashIndex build(Span<const int64_t> keys) {
    HashIndex index;
    index.size_ = keys.size();
    index.num_buckets_ = (keys.size() + 4) / 5;
    index.buckets_ = Buffer<Bucket>(index.num_buckets_);
    // Distinct keys run out of probes only by a chance that does not happen or by malice, which knows one seed.
    while (!index.place(keys)) ++index.seed_;
    return index;
  }

  /// The row of `key`, or -1.
  int64_t find(int64_t key) const {
    if (key == empty_key) return row_of_empty_key_;
    int64_t b = home(key);
    for (int64_t probe = 0; probe < probes_; ++probe) {
      const Bucket& bucket = buckets_[b];
      const int slot = bucket.slot_of(key);
      if (slot < slots) return bucket.rows[slot];
      if (!bucket.is_full()) return -1;
      if (++b == num_buckets_) b = 0;
    }
    return -1;
  }

  /// Fetches what find(key) will most likely read.
  void prefetch(int64_t key) const {
    if (size_ == 0) return;
    const Bucket* bucket = buckets_.data() + home(key);
    warprank::prefetch(bucket->keys);
    warprank::prefetch(bucket->rows);
  }

  /// rows[i] = find(keys[i]), many in flight at once.
  void find_batch(Span<const int64_t> keys, int64_t* rows) const {
    const int64_t count = keys.size();
    for (int64_t i = 0; i < std::min(count, distance); ++i) prefetch(keys[i]);
    for (int64_t i = 0; i < count; ++i) {
      if (i + distance < count) prefetch(keys[i + distance]);
      rows[i] = find(keys[i]);
    }
  }

  int64_t size() const { return size_; }
  int64_t bytes() const { return buckets_.bytes(); }

 private:
  static constexpr int slots = 8;
  static constexpr int64_t distance = 24;
  /// Marks a free slot; as a key it has its own place.
  static constexpr int64_t empty_key = INT64_MIN;

  struct Bucket {
    int64_t keys[slots];  // filled from the front
    int64_t rows[slots];

    bool is_full() const { return keys[slots - 1] != empty_key; }
    /// The slot that holds `key`, or `slots`.
    int slot_of(int64_t key) const {
      int s = 0;
      while (s < slots && keys[s] != key) ++s;
      return s;
    }
  };

  /// MurmurHash3's finaliser (Appleby): a bijection in which every bit depends on every bit.
  static uint64_t fmix64(uint64_t h) {
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
  }

  int64_t home(int64_t key) const {
    __extension__ using uint128 = unsigned __int128;
    const uint64_t hash = fmix64(static_cast<uint64_t>(key) ^ seed_);
    return static_cast<int64_t>(static_cast<uint128>(hash) * static_cast<uint64_t>(num_buckets_) >> 64);
  }

  /// Fills the buckets; false when a key finds no room within max_probes.
  bool place(Span<const int64_t> keys) {
    for (int64_t b = 0; b < num_buckets_; ++b) std::fill_n(buckets_[b].keys, slots, empty_key);
    row_of_empty_key_ = -1;
    probes_ = 0;
    std::vector<std::pair<int64_t, int64_t>> duplicates;  // rows of the same key
    for (int64_t row = 0; row < keys.size(); ++row) {
      if (row + distance < keys.size()) prefetch(keys[row + distance]);
      int64_t* place = &row_of_empty_key_;
      if (keys[row] != empty_key && (place = place_of(keys[row])) == nullptr) return false;
      if (*place == -1)
        *place = row;
      else
        duplicates.emplace_back(*place, row);
    }
    if (!duplicates.empty()) throw_duplicates(keys, duplicates);
    return true;
  }

  /// Where the row of `key` belongs, -1 when the key is new; null when there is no room within max_probes.
  int64_t* place_of(int64_t key) {
    int64_t b = home(key);
    for (int64_t probe = 1; probe <= max_probes; ++probe) {
      Bucket& bucket = buckets_[b];
      const int found = bucket.slot_of(key);
      if (found < slots) return &bucket.rows[found];
      const int free = bucket.slot_of(empty_key);
      if (free < slots) {
        bucket.keys[free] = key;
        bucket.rows[free] = -1;
        probes_ = std::max(probes_, probe);
        return &bucket.rows[free];
      }
      if (++b == num_buckets_) b = 0;
    }
    return nullptr;
  }

  [[noreturn]] static void throw_duplicates(Span<const int64_t> keys,
                                            const std::vector<std::pair<int64_t, int64_t>>& duplicates) {
    constexpr size_t named = 16;
    Problems problems;
    for (size_t i = 0; i < std::min(duplicates.size(), named); ++i) {
      const auto [first, second] = duplicates[i];
      problems.add("key " + std::to_string(keys[first]) + " of a hashed table", "one row",
                   "rows " + std::to_string(first) + " and " + std::to_string(second));
    }
    if (duplicates.size() > named)
      problems.add("keys of a hashed table", "one row each", std::to_string(duplicates.size()) + " rows too many");
    throw invalid_argument(problems.list());
  }

  Buffer<Bucket> buckets_;
  int64_t num_buckets_ = 0;
  int64_t size_ = 0;
  int64_t probes_ = 0;  // the most that any key needed
  int64_t row_of_empty_key_ = -1;
  uint64_t seed_ = 0;
};

}  // namespace warprank::host_ops
