// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which keys a cache of rows (ops/row_cache.hpp) takes and which it gives up. Plain C++, no device: the cache on a
/// card asks it, and so does tools/cache_hits, which predicts hits.

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/engine/placement.hpp"
#include "warprank/hash_table/frequency_sketch.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/ops/row_cache.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Of row_cache::num_positions, how many keys a bucket of a full cache has; where there are more, the second bucket of
/// some is full as well.
inline constexpr int64_t keys_of_a_bucket = 9;

/// How many missed keys a cache notes between two passes.
inline constexpr uint32_t mark_capacity = 4096;

/// How many buckets there are for at most so many keys, that take at most so many bytes.
inline uint64_t cache_buckets(int64_t bucket_bytes, int64_t num_keys, int64_t budget) {
  const auto wanted = static_cast<uint64_t>(num_keys / keys_of_a_bucket + 1);
  return std::max(hash_table::min_buckets, std::min(static_cast<uint64_t>(budget / bucket_bytes), wanted));
}
/// Where the keys of a cache are looked for.
inline hash_table::Placement cache_placement(uint64_t num_buckets) { return {0x7d1ce5f0e1a2b394u, num_buckets, 0, 2}; }

/// A bucket of a cache, as whoever chooses its keys sees it.
struct CacheBucket {
  struct Held {
    uint64_t key;
    int position;
    bool was_found = false;
  };
  std::vector<Held> held;
  int room = row_cache::num_positions;

  CacheBucket() = default;
  explicit CacheBucket(const uint64_t* line) {
    const uint64_t map = line[hash_table::map_word];
    for (int p = 0; p < row_cache::num_positions; ++p)
      if (hash_table::slot_at(map, p) != hash_table::no_slot) add(line[p], p);
  }

  void add(uint64_t key, int position) {
    held.push_back({key, position});
    --room;
  }
  /// Of one of the marks of the bucket: any of them may have got the bits.
  void add_use(uint64_t use) {
    for (Held& one : held) one.was_found |= (use >> one.position & 1) != 0;
  }
  bool holds(uint64_t key) const {
    return std::any_of(held.begin(), held.end(), [key](const Held& one) { return one.key == key; });
  }
};

/// How often keys of a cache were asked for, and what follows for a pass: a missed key gets a row where there is room;
/// where there is none, it takes the place of the key of its bucket that was not found lately, of several such of the
/// rarest, if it is more frequent itself. So keys that are asked for once do not drive away others (TinyLFU).
class CacheAdmission {
 public:
  /// Tells frequencies apart for `num_counted` keys, or for as many as the cache has places for.
  explicit CacheAdmission(uint64_t num_buckets, int64_t num_counted = 0)
      : num_counted_keys_(std::max(num_counted, static_cast<int64_t>(num_buckets) * row_cache::num_positions)),
        sketch_(std::max(num_counted_keys_, least_counted)),
        has_room_until_(static_cast<int64_t>(num_buckets) * keys_of_a_bucket) {}

  void count(uint64_t key) {
    sketch_.add(static_cast<int64_t>(key));
    ++num_counts_;
  }
  /// How often a key was counted, as far as that is not forgotten.
  int frequency(uint64_t key) const { return sketch_.estimate(static_cast<int64_t>(key)); }

  struct Choice {
    std::vector<uint64_t> victims, admitted;
  };
  /// `missed`: keys that look-ups did not find, with their first buckets, in any order and any number of times.
  /// `buckets`: these, with what was found in them since the last pass; changed. `num_keys`: how many keys the cache
  /// has. `has_row(key)`: whether the table does.
  template <class HasRow>
  Choice choose(std::vector<std::pair<uint64_t, uint64_t>> missed, std::unordered_map<uint64_t, CacheBucket>& buckets,
                int64_t num_keys, const HasRow& has_row) {
    std::sort(missed.begin(), missed.end());
    missed.erase(std::unique(missed.begin(), missed.end()), missed.end());
    for (const auto& [key, bucket] : missed) count(key);
    for (const auto& [index, bucket] : buckets)
      for (const CacheBucket::Held& held : bucket.held)
        if (held.was_found) count(held.key);
    std::stable_sort(missed.begin(), missed.end(),
                     [this](const auto& a, const auto& b) { return frequency(a.first) > frequency(b.first); });
    Choice choice;
    for (const auto& [key, index] : missed) {
      CacheBucket& bucket = buckets.at(index);
      if (bucket.holds(key) || !has_row(key)) continue;
      if (bucket.room > 0) {
        --bucket.room;
      } else if (num_keys >= has_room_until_) {
        const auto victim =
            std::min_element(bucket.held.begin(), bucket.held.end(), [this](const auto& a, const auto& b) {
              return std::pair(a.was_found, frequency(a.key)) < std::pair(b.was_found, frequency(b.key));
            });
        if (victim == bucket.held.end() || frequency(victim->key) >= frequency(key)) continue;
        choice.victims.push_back(victim->key);
        bucket.held.erase(victim);
        --num_keys;
      }  // else there may be room in the second bucket
      ++num_keys;
      choice.admitted.push_back(key);
    }
    return choice;
  }

  /// Forgets half of what was counted, now and then. To be called behind each pass.
  void forget() {
    if (num_counts_ < counted_for_each * num_counted_keys_) return;
    sketch_.halve();
    num_counts_ = 0;
  }

 private:
  static constexpr int64_t counted_for_each = 10;    // key that is told apart, then counts are halved
  static constexpr int64_t least_counted = 1 << 14;  // keys that are told apart: small caches see many as well

  int64_t num_counted_keys_;
  FrequencySketch sketch_;
  int64_t num_counts_ = 0;
  int64_t has_room_until_;
};

}}}  // namespace warprank::v0::cuda_backend
