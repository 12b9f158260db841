// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which of its buckets each key of a bulk build goes to.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/pages.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/hash_table/detail/sorted_keys.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// A key that is not in its first bucket.
struct DisplacedKey {
  uint64_t bucket;
  int64_t entry;
};

/// Two-choice placement. As many keys as fit stay in their first buckets. Of a bucket with too many, those leave whose
/// second buckets are the emptiest; when those are full, a key of one of them moves on to its own second bucket, and so
/// on (the search of cuckoo hashing, breadth first, bounded). What finds no room goes to the overflow.
class KeyPlacer {
 public:
  KeyPlacer(SortedKeys& keys, const hash_table::Placement& placement, int num_keys, int threads)
      : keys_(keys),
        placement_(placement),
        most_(num_keys),
        threads_(threads),
        used_(Pages::zeroed(static_cast<int64_t>(placement.num_buckets))),
        begin_(Pages::zeroed(static_cast<int64_t>(placement.num_buckets * sizeof(int64_t)))) {}

  /// Decides between the first buckets, the second ones and the overflow, and returns how many keys go there.
  int64_t place() {
    // Buckets are counted in parallel; keys are displaced in the order of the buckets, whatever the threads.
    const Parts parts(static_cast<int64_t>(placement_.num_buckets), 4096, 1024);
    std::vector<std::vector<Run>> too_full(static_cast<size_t>(parts.size()));
    parallel_for(parts.size(), threads_, [&](int64_t part) {
      const auto first_of = [&](int64_t bucket) {
        return keys_.lower_bound(placement_, static_cast<uint64_t>(bucket));
      };
      const int64_t end = first_of(parts.end(part));
      for (int64_t i = first_of(parts.begin(part)), next; i < end; i = next) {
        const uint64_t bucket = placement_.first_bucket(keys_[i].hash);
        for (next = i + 1; next < end && placement_.first_bucket(keys_[next].hash) == bucket;) ++next;
        used(bucket) = static_cast<uint8_t>(std::min<int64_t>(next - i, most_));
        begin(bucket) = i;
        if (next - i > most_) too_full[static_cast<size_t>(part)].push_back({i, next});
      }
    });
    std::vector<std::pair<Run, int64_t>> unrelieved;
    for (const std::vector<Run>& runs : too_full)
      for (const Run& run : runs)
        if (const int64_t surplus = relieve(run); surplus > 0) {
          used(bucket_of(run)) = static_cast<uint8_t>(most_ + 1);
          unrelieved.emplace_back(run, surplus);
        }
    for (const auto& [run, surplus] : unrelieved) {
      for (int64_t i = 0; i < surplus; ++i)
        if (!make_room(run)) give_up_one(run);
      used(bucket_of(run)) = static_cast<uint8_t>(most_);
    }
    return static_cast<int64_t>(overflow_.size());
  }

  /// Gives those keys the first overflow bucket with room; false when one finds none within the probes of the
  /// placement, whose overflow the caller has made meanwhile.
  bool place_overflow() {
    std::vector<uint8_t> used(placement_.num_overflow);
    for (DisplacedKey& key : overflow_) {
      const uint64_t hash = keys_[key.entry].hash;
      int probe = 0;
      const auto bucket = [&] { return placement_.overflow_bucket(hash, probe); };
      while (probe < placement_.overflow_probes() && used[bucket() - placement_.num_buckets] == most_) ++probe;
      if (probe == placement_.overflow_probes()) return false;
      key.bucket = bucket();
      ++used[key.bucket - placement_.num_buckets];
    }
    return true;
  }

  /// The keys that are not in their first bucket, by bucket; those of one bucket by hash.
  std::vector<DisplacedKey> displaced() const {
    const Parts parts(keys_.size(), 1 << 16, 256);
    std::vector<std::vector<DisplacedKey>> found(static_cast<size_t>(parts.size()));
    parallel_for(parts.size(), threads_, [&](int64_t part) {
      for (int64_t i = parts.begin(part); i < parts.end(part); ++i)
        if (keys_[i].home() == Home::second)
          found[static_cast<size_t>(part)].push_back({placement_.second_bucket(keys_[i].hash), i});
    });
    std::vector<DisplacedKey> all = overflow_;
    for (const auto& some : found) all.insert(all.end(), some.begin(), some.end());
    std::sort(all.begin(), all.end(), [](const DisplacedKey& a, const DisplacedKey& b) {
      return a.bucket != b.bucket ? a.bucket < b.bucket : a.entry < b.entry;
    });
    return all;
  }

 private:
  /// The entries of one first bucket.
  struct Run {
    int64_t begin, end;
  };
  /// A full bucket of a search: `key`, of the bucket before, would come here.
  struct Visited {
    uint64_t bucket;
    Run run;
    int before;
    int64_t key;
  };
  static constexpr size_t most_visited = 64;

  uint64_t second_bucket(int64_t entry) const { return placement_.second_bucket(keys_[entry].hash); }
  uint64_t bucket_of(const Run& run) const { return placement_.first_bucket(keys_[run.begin].hash); }
  uint8_t& used(uint64_t bucket) { return used_.data()[bucket]; }
  int64_t& begin(uint64_t bucket) { return reinterpret_cast<int64_t*>(begin_.data())[bucket]; }
  Run run_of(uint64_t bucket) {
    const int64_t first = begin(bucket);
    int64_t end = first;  // stays there where begin_ was never written
    while (end < keys_.size() && placement_.first_bucket(keys_[end].hash) == bucket) ++end;
    return {first, end};
  }
  bool has_room(uint64_t bucket) const { return used_.data()[bucket] < most_; }

  void move_to_second(int64_t entry) {
    keys_[entry].move(Home::second);
    ++used(second_bucket(entry));
  }

  /// Takes keys out of a bucket until the rest fits, or no second bucket has room. Returns how many are left over.
  int64_t relieve(const Run& run) {
    int64_t surplus = run.end - run.begin - most_;
    emptiest_.clear();
    for (int64_t i = run.begin; i < run.end; ++i) emptiest_.emplace_back(used(second_bucket(i)), i);
    std::sort(emptiest_.begin(), emptiest_.end());
    for (size_t i = 0; i < emptiest_.size() && surplus > 0; ++i) {
      if (!has_room(second_bucket(emptiest_[i].second))) continue;
      move_to_second(emptiest_[i].second);
      --surplus;
    }
    return surplus;
  }

  /// Moves one key of `run` out, and others along until one finds room; false when none is near. Buckets that are too
  /// full themselves are left alone.
  bool make_room(const Run& run) {
    visited_.clear();
    visited_.push_back({bucket_of(run), run, -1, -1});
    for (size_t v = 0; v < visited_.size(); ++v) {
      for (int64_t i = visited_[v].run.begin; i < visited_[v].run.end; ++i) {
        if (keys_[i].home() != Home::first) continue;
        const uint64_t to = second_bucket(i);
        if (has_room(to)) {
          move_to_second(i);
          for (int at = static_cast<int>(v); visited_[static_cast<size_t>(at)].before >= 0;
               at = visited_[static_cast<size_t>(at)].before)
            keys_[visited_[static_cast<size_t>(at)].key].move(Home::second);
          return true;
        }
        if (visited_.size() == most_visited || used(to) > most_ || is_on_way(v, to)) continue;
        visited_.push_back({to, run_of(to), static_cast<int>(v), i});
      }
    }
    return false;
  }

  /// Whether the way from the first bucket of a search to visited bucket `v` goes through `bucket`.
  bool is_on_way(size_t v, uint64_t bucket) const {
    for (auto at = static_cast<int>(v); at >= 0; at = visited_[static_cast<size_t>(at)].before)
      if (visited_[static_cast<size_t>(at)].bucket == bucket) return true;
    return false;
  }

  void give_up_one(const Run& run) {
    int64_t i = run.end - 1;
    while (keys_[i].home() != Home::first) --i;
    keys_[i].move(Home::overflow);
    overflow_.push_back({0, i});
  }

  SortedKeys& keys_;
  const hash_table::Placement& placement_;
  const int64_t most_;  // keys in a bucket
  const int threads_;
  Pages used_;   // [num_buckets] keys that a bucket has; most_ + 1 while it has too many
  Pages begin_;  // [num_buckets] the first of its keys, where it has some
  std::vector<DisplacedKey> overflow_;
  std::vector<std::pair<uint8_t, int64_t>> emptiest_;
  std::vector<Visited> visited_;
};

}}}  // namespace warprank::v0::detail
