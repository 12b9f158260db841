// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/detail/parallel.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// The key whose fmix64 is `hash`: the same steps backwards, with the inverses of the factors modulo 2^64.
constexpr uint64_t unmix64(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0x9cb4b2f8129337dbu;
  hash = (hash ^ hash >> 33) * 0x4f74430c22a54005u;
  return hash ^ hash >> 33;
}
static_assert(unmix64(hash_table::fmix64(0x0123456789abcdef)) == 0x0123456789abcdef);

/// In which of its buckets a key is.
enum class Home : uint64_t { first, second, overflow };

struct KeyEntry {
  uint64_t hash;
  uint64_t row : 62;
  uint64_t home_bits : 2;

  Home home() const { return static_cast<Home>(home_bits); }
  void move(Home home) { home_bits = static_cast<uint64_t>(home); }
};

/// Keys in the order of their hashes, and so of their first buckets; the same whatever the order of the rows.
class SortedKeys {
 public:
  /// keys[r] is that of row r.
  SortedKeys(Span<const uint64_t> keys, uint64_t seed, int threads)
      : entries_(keys.size()), region_bits_(bits_for(keys.size())) {
    const int64_t regions = int64_t{1} << region_bits_;
    const Parts parts(keys.size(), 1 << 16, 256);
    const auto entry = [&](int64_t row) {
      return KeyEntry{hash_table::fmix64(keys[row] ^ seed), static_cast<uint64_t>(row), 0};
    };

    // Distribute by the upper bits; next[part][region] is where the next entry goes.
    std::vector<int64_t> next(static_cast<size_t>(parts.size() * regions));
    parallel_for(parts.size(), threads, [&](int64_t part) {
      int64_t* count = next.data() + part * regions;
      for (int64_t row = parts.begin(part); row < parts.end(part); ++row) ++count[region_of(entry(row).hash)];
    });
    int64_t sum = 0;
    for (int64_t region = 0; region < regions; ++region) {
      region_begin_.push_back(sum);
      for (int64_t part = 0; part < parts.size(); ++part)
        sum += std::exchange(next[static_cast<size_t>(part * regions + region)], sum);
    }
    region_begin_.push_back(sum);
    parallel_for(parts.size(), threads, [&](int64_t part) {
      int64_t* to = next.data() + part * regions;
      for (int64_t row = parts.begin(part); row < parts.end(part); ++row) {
        const KeyEntry e = entry(row);
        entries_[to[region_of(e.hash)]++] = e;
      }
    });

    parallel_for(regions, threads, [&](int64_t region) { sort(region); });
  }

  int64_t size() const { return entries_.size(); }
  KeyEntry& operator[](int64_t i) { return entries_[i]; }
  const KeyEntry& operator[](int64_t i) const { return entries_[i]; }

  /// The first entry whose first bucket is `bucket` or later.
  int64_t lower_bound(const hash_table::Placement& placement, uint64_t bucket) const {
    if (bucket >= placement.num_buckets) return size();
    // The smallest hash of the bucket is bucket * 2^64 / num_buckets, rounded up; its region may be the one before.
    __extension__ using uint128 = unsigned __int128;
    const auto region = region_of(static_cast<uint64_t>((static_cast<uint128>(bucket) << 64) / placement.num_buckets));
    const KeyEntry* begin = entries_.data() + region_begin(region);
    const KeyEntry* end = entries_.data() + region_begin(std::min(region + 2, int64_t{1} << region_bits_));
    return std::partition_point(begin, end,
                                [&](const KeyEntry& e) { return placement.first_bucket(e.hash) < bucket; }) -
           entries_.data();
  }

 private:
  /// Regions of about 2^14 keys, which a core's caches hold.
  static int bits_for(int64_t size) {
    int bits = 0;
    while (bits < 12 && size >> (bits + 14) > 0) ++bits;
    return bits;
  }
  /// Distributes a region by its next bits, a few keys to each value, and sorts those few.
  void sort(int64_t region) {
    KeyEntry* const entries = entries_.data() + region_begin(region);
    const int64_t size = region_begin(region + 1) - region_begin(region);
    constexpr int bits = 12;
    const auto bin_of = [&](const KeyEntry& e) { return e.hash << region_bits_ >> (64 - bits); };
    std::vector<int64_t> next((1 << bits) + 1);
    for (int64_t i = 0; i < size; ++i) ++next[bin_of(entries[i]) + 1];
    for (size_t bin = 0; bin < 1 << bits; ++bin) next[bin + 1] += next[bin];
    const std::vector<KeyEntry> copy(entries, entries + size);
    for (const KeyEntry& e : copy) entries[next[bin_of(e)]++] = e;
    int64_t begin = 0;
    for (size_t bin = 0; bin < 1 << bits; begin = next[bin++])
      std::sort(entries + begin, entries + next[bin], [](const KeyEntry& a, const KeyEntry& b) {
        return a.hash != b.hash ? a.hash < b.hash : a.row < b.row;
      });
  }

  int64_t region_of(uint64_t hash) const { return static_cast<int64_t>(hash >> 1 >> (63 - region_bits_)); }
  int64_t region_begin(int64_t region) const { return region_begin_[static_cast<size_t>(region)]; }

  Buffer<KeyEntry> entries_;
  int region_bits_;
  std::vector<int64_t> region_begin_;
};

}}}  // namespace warprank::v0::detail
