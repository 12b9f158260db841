// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "warprank/core/buffer.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 {

/// Estimates how often each key was added lately, by a count-min sketch: the four counters of a key lie in one cache
/// line, and are halved now and then (Einziger, Friedman and Manes, TinyLFU, 2017). Any threads may use it at once; of
/// two simultaneous additions one may be lost.
class FrequencySketch {
 public:
  static constexpr int most = 255;

  /// For about `keys` keys that matter, with 4 bytes each.
  explicit FrequencySketch(int64_t keys)
      : num_lines_(static_cast<uint64_t>(std::max<int64_t>(1, keys / 16))),
        counters_(static_cast<int64_t>(num_lines_) * line) {
    for (Counter& counter : counters()) new (&counter) Counter(0);
  }

  void add(int64_t key) {
    const Place place = place_of(key);
    for (int i = 0; i < 4; ++i) {
      Counter& counter = place.counter(i);
      const unsigned char value = counter.load(std::memory_order_relaxed);
      if (value < most) counter.store(static_cast<unsigned char>(value + 1), std::memory_order_relaxed);
    }
  }
  /// At least the number of additions since the last `halve`, without the lost ones; at most 255.
  int estimate(int64_t key) const {
    const Place place = place_of(key);
    unsigned char least = most;
    for (int i = 0; i < 4; ++i) least = std::min(least, place.counter(i).load(std::memory_order_relaxed));
    return least;
  }
  void halve() {
    for (Counter& counter : counters())
      counter.store(static_cast<unsigned char>(counter.load(std::memory_order_relaxed) / 2), std::memory_order_relaxed);
  }
  int64_t bytes() const { return counters_.bytes(); }

 private:
  using Counter = std::atomic<unsigned char>;
  static_assert(sizeof(Counter) == 1);
  static constexpr int64_t line = 64;

  /// One counter in each quarter of a line.
  struct Place {
    Counter* first;
    uint64_t hash;
    Counter& counter(int i) const { return first[16 * i + static_cast<int>(hash >> (4 * i) & 15)]; }
  };
  Place place_of(int64_t key) const {
    const uint64_t hash = hash_table::fmix64(static_cast<uint64_t>(key) ^ 0x5bd1e9955bd1e995u);
    const auto at = static_cast<int64_t>(hash_table::scale_hash(hash, num_lines_)) * line;
    return {const_cast<Counter*>(reinterpret_cast<const Counter*>(counters_.data() + at)), hash};
  }
  struct Range {
    Counter *first, *last;
    Counter* begin() const { return first; }
    Counter* end() const { return last; }
  };
  Range counters() {
    auto* first = reinterpret_cast<Counter*>(counters_.data());
    return {first, first + counters_.size()};
  }

  uint64_t num_lines_;
  Buffer<unsigned char> counters_;
};

}}  // namespace warprank::v0
