// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a table on the host that are on the device as well (ops/row_cache.hpp), and which they are.
///
/// A pass takes out the keys that look-ups missed, and for their buckets which keys were found since the last one: each
/// counts once in a sketch of frequencies. A missed key gets a row where there is room; where there is none, it takes
/// the place of the key of its bucket that was not found lately, of several such of the rarest, if it is more frequent
/// itself: so keys that are asked for once do not drive away others (TinyLFU). Rows are written and erased by the
/// updates of hash tables, under the batches that read them. Passes and updates of the tables exclude one another, so
/// no row is admitted that an update has replaced meanwhile.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/table_updates.cuh"
#include "warprank/engine/placement.hpp"
#include "warprank/engine/table_options.hpp"
#include "warprank/hash_table/frequency_sketch.hpp"
#include "warprank/ops/detail/row_cache/take_marks.cuh"
#include "warprank/ops/row_cache.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Of row_cache::num_positions, how many keys a bucket of a full cache has; where there are more, the second bucket of
/// some is full as well.
inline constexpr int64_t keys_of_a_bucket = 9;

/// How many buckets there are for at most so many keys, that take at most so many bytes.
inline uint64_t cache_buckets(DType type, int64_t dim, int64_t num_keys, int64_t budget) {
  const auto wanted = static_cast<uint64_t>(num_keys / keys_of_a_bucket + 1);
  const auto most = static_cast<uint64_t>(budget / cache_shape(type, dim).bucket_bytes);
  return std::max(hash_table::min_buckets, std::min(most, wanted));
}
/// A table of such buckets, which are to be cleared.
inline HashTableView cache_rows(DType type, int64_t dim, uint64_t num_buckets, unsigned char* buckets, uint64_t* size) {
  HashTableView rows;
  rows.buckets = buckets;
  rows.size = size;
  rows.type = type;
  rows.dim = dim;
  rows.row_bytes = hash_table::row_bytes(type, dim);
  rows.is_mutable = true;
  rows.shape = cache_shape(type, dim);
  rows.placement = {0x7d1ce5f0e1a2b394u, num_buckets, 0, 2};
  return rows;
}

/// A bucket of such a table, as whoever chooses its keys sees it.
struct CacheBucket {
  struct Held {
    uint64_t key;
    int position;
    bool was_found = false;
  };
  std::vector<Held> held;
  int room = row_cache::num_positions;

  explicit CacheBucket(const uint64_t* line) {
    const uint64_t map = line[hash_table::map_word];
    for (int p = 0; p < row_cache::num_positions; ++p)
      if (hash_table::slot_at(map, p) != hash_table::no_slot) held.push_back({line[p], p});
    room -= static_cast<int>(held.size());
  }
  /// Of one of the marks of the bucket: any of them may have got the bits.
  void add_use(uint64_t use) {
    for (Held& one : held) one.was_found |= (use >> one.position & 1) != 0;
  }
  bool holds(uint64_t key) const {
    return std::any_of(held.begin(), held.end(), [key](const Held& one) { return one.key == key; });
  }
};

/// Where the parts of a cache lie in device memory, from its beginning, and how large they are.
struct CacheLayout {
  static constexpr uint32_t mark_capacity = 4096;

  /// Of at most so many keys, whose buckets take at most so many bytes. `tells_absent`: for a table in a store.
  CacheLayout(DType type, int64_t dim, int64_t num_keys, int64_t budget, bool tells_absent = false)
      : num_buckets(cache_buckets(type, dim, num_keys, budget)) {
    buckets_bytes = static_cast<int64_t>(num_buckets) * cache_shape(type, dim).bucket_bytes;
    words_at = buckets_bytes;
    marks_at = words_at + static_cast<int64_t>(num_words * sizeof(uint64_t));
    view_at = marks_at + int64_t{8} * mark_capacity;
    bytes = view_at + static_cast<int64_t>(sizeof(RowCacheView));
    if (!tells_absent) return;
    absent_at = bytes;
    bytes += int64_t{8} * mark_capacity;
  }

  uint64_t num_buckets;
  int64_t buckets_bytes, words_at, marks_at, view_at, absent_at = -1, bytes;

  /// The size of the table, how many keys were missed and taken out, how many were absent, and hits: each in a sector
  /// of its own.
  static constexpr size_t size_word = 0, num_word = 4, taken_word = 8, num_absent_word = 12, absent_taken_word = 16,
                          hits_word = 20, num_words = hits_word + row_cache::hit_counters * row_cache::hit_stride;
};

/// Memory of the host that passes over all caches of a store share.
class PassMemory {
 public:
  PassMemory()
      : memory_(static_cast<int64_t>(sizeof(detail::TakenMarks::Counts)) +
                    (static_cast<int64_t>(sizeof(detail::TakenMarks::Mark)) + 8) * CacheLayout::mark_capacity,
                "the passes over caches of rows") {}

  detail::TakenMarks marks() const {
    auto* const counts = static_cast<detail::TakenMarks::Counts*>(memory_.data());
    auto* const marks = reinterpret_cast<detail::TakenMarks::Mark*>(counts + 1);
    return {counts, marks, reinterpret_cast<uint64_t*>(marks + CacheLayout::mark_capacity)};
  }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  device::MappedMemory memory_;
};

/// Nothing here may run beside an update of the table or another pass. `row_of(key)` is the row on the host, as the
/// cache has rows; null where the table has none.
class TableCache {
 public:
  /// In `memory`, aligned to 256 bytes, of layout.bytes; queues that it becomes an empty cache. Tells how often keys
  /// are asked for, for `num_counted` keys or as many as it has places for.
  TableCache(DType type, int64_t dim, const CacheLayout& layout, unsigned char* memory, device::Stream stream,
             int64_t num_counted = 0)
      : on_device_(reinterpret_cast<const RowCacheView*>(memory + layout.view_at)),
        num_counted_keys_(std::max(num_counted, static_cast<int64_t>(layout.num_buckets) * row_cache::num_positions)),
        sketch_(std::max(num_counted_keys_, least_counted)),
        has_room_until_(static_cast<int64_t>(layout.num_buckets) * keys_of_a_bucket) {
    auto* const words = reinterpret_cast<uint64_t*>(memory + layout.words_at);
    view_.rows = cache_rows(type, dim, layout.num_buckets, memory, words + CacheLayout::size_word);
    view_.missed = {reinterpret_cast<uint64_t*>(memory + layout.marks_at), words + CacheLayout::num_word,
                    words + CacheLayout::taken_word, CacheLayout::mark_capacity};
    if (layout.absent_at >= 0)
      view_.absent = {reinterpret_cast<uint64_t*>(memory + layout.absent_at), words + CacheLayout::num_absent_word,
                      words + CacheLayout::absent_taken_word, CacheLayout::mark_capacity};
    view_.hits = words + CacheLayout::hits_word;
    device::fill(memory, 0, layout.bytes, stream);
    device::copy_to_device(memory + layout.view_at, &view_, sizeof view_, stream);
    hash_table::clear(view_.rows, stream);
    device::synchronize(stream);
  }

  const RowCacheView* on_device() const { return on_device_; }
  const HashTableView& rows() const { return view_.rows; }
  /// As of the last pass.
  CacheCounters counters() const { return counters_; }
  /// How many ids had no row anywhere, as of the last pass; of a table in a store.
  int64_t num_absent() const { return static_cast<int64_t>(taken_.absent); }

  void count(uint64_t key) {
    sketch_.add(static_cast<int64_t>(key));
    ++num_counts_;
  }
  /// How often a key was counted, as far as that is not forgotten.
  int frequency(uint64_t key) const { return sketch_.estimate(static_cast<int64_t>(key)); }

  /// Keys that had no row anywhere, of those that there was room for: of a table in a store.
  struct Absent {
    std::vector<int64_t> keys;
    int64_t dropped = 0;
  };
  template <class RowOf>
  Absent pass(TableUpdates& updates, const PassMemory& memory, const RowOf& row_of) {
    Absent absent;
    const int64_t count = take_marks(updates, memory, absent);
    if (count > 0) admit({memory.marks().marks, count}, updates, row_of);
    forget();
    return absent;
  }

  /// Rows of the host's memory that were written: those that are here become the same.
  template <class RowOf>
  void follow_written(TableUpdates& updates, const std::vector<RowChange>& written, const RowOf& row_of) {
    if (written.empty()) return;
    TableChanges changes;
    updates.change<detail::CacheProtocol>(rows(), copy_from(row_of), updates.held(rows(), written), changes);
  }
  /// Keys that the table has no more.
  void follow_erased(TableUpdates& updates, const std::vector<RowChange>& erased) {
    if (erased.empty()) return;
    int64_t gone = 0;
    erase(updates, erased, gone);
  }

 private:
  template <class RowOf>
  void admit(Span<const detail::TakenMarks::Mark> marks, TableUpdates& updates, const RowOf& row_of) {
    std::vector<RowChange> victims, admitted;
    choose(marks, row_of, victims, admitted);
    erase(updates, victims, counters_.evicted);
    TableChanges changes;
    updates.change<detail::CacheProtocol>(rows(), copy_from(row_of), admitted, changes);
    counters_.admitted += changes.inserted;
    num_keys_ += changes.inserted;
  }

  template <class RowOf>
  auto copy_from(const RowOf& row_of) const {
    return [&row_of, bytes = static_cast<size_t>(rows().row_bytes)](const RowChange& change, unsigned char* to) {
      std::memcpy(to, row_of(change.key), bytes);
    };
  }

  void erase(TableUpdates& updates, const std::vector<RowChange>& keys, int64_t& erased) {
    TableChanges changes;
    updates.change<detail::CacheProtocol>(
        rows(), [](const RowChange&, unsigned char*) {}, keys, changes);
    erased += changes.erased;
    num_keys_ -= changes.erased;
  }

  /// How many marks there are.
  int64_t take_marks(TableUpdates& updates, const PassMemory& memory, Absent& absent) {
    const detail::TakenMarks marks = memory.marks();
    updates.queue_and_wait([&](device::Stream stream) { detail::launch_take_marks(view_, taken_, marks, stream); });
    const uint64_t num = marks.counts->num_missed - taken_.missed;
    const uint64_t num_absent = marks.counts->num_absent - taken_.absent;
    const uint64_t count = std::min(num, uint64_t{view_.missed.capacity});
    const uint64_t absent_count = std::min(num_absent, uint64_t{view_.absent.capacity});
    taken_ = {marks.counts->num_missed, marks.counts->num_absent};
    counters_.misses = static_cast<int64_t>(taken_.missed);
    counters_.dropped += static_cast<int64_t>(num - count);
    counters_.hits = static_cast<int64_t>(marks.counts->num_hits);
    absent.keys.assign(marks.absent, marks.absent + absent_count);
    absent.dropped = static_cast<int64_t>(num_absent - absent_count);
    return static_cast<int64_t>(count);
  }

  /// Half of what was counted, now and then.
  void forget() {
    if (num_counts_ < counted_for_each * num_counted_keys_) return;
    sketch_.halve();
    num_counts_ = 0;
  }

  template <class RowOf>
  void choose(Span<const detail::TakenMarks::Mark> marks, const RowOf& row_of, std::vector<RowChange>& victims,
              std::vector<RowChange>& admitted) {
    std::unordered_map<uint64_t, CacheBucket> buckets;
    std::vector<std::pair<uint64_t, uint64_t>> missed;  // with the bucket
    for (const detail::TakenMarks::Mark& mark : marks) {
      const uint64_t bucket = rows().placement.first_bucket(rows().placement.hash(mark.key));
      buckets.emplace(bucket, mark.line).first->second.add_use(mark.line[row_cache::use_word]);
      missed.emplace_back(mark.key, bucket);
    }
    std::sort(missed.begin(), missed.end());
    missed.erase(std::unique(missed.begin(), missed.end()), missed.end());
    for (const auto& [key, bucket] : missed) count(key);
    for (const auto& [index, bucket] : buckets)
      for (const CacheBucket::Held& held : bucket.held)
        if (held.was_found) count(held.key);
    std::stable_sort(missed.begin(), missed.end(),
                     [this](const auto& a, const auto& b) { return frequency(a.first) > frequency(b.first); });
    int64_t num_keys = num_keys_;
    for (const auto& [key, index] : missed) {
      CacheBucket& bucket = buckets.at(index);
      const auto change = static_cast<int64_t>(key);
      if (bucket.holds(key) || row_of(change) == nullptr) continue;
      if (bucket.room > 0) {
        --bucket.room;
      } else if (num_keys >= has_room_until_) {
        const auto victim =
            std::min_element(bucket.held.begin(), bucket.held.end(), [this](const auto& a, const auto& b) {
              return std::pair(a.was_found, frequency(a.key)) < std::pair(b.was_found, frequency(b.key));
            });
        if (victim == bucket.held.end() || frequency(victim->key) >= frequency(key)) continue;
        victims.push_back({static_cast<int64_t>(victim->key), -1});
        bucket.held.erase(victim);
        --num_keys;
      }  // else there may be room in the second bucket
      ++num_keys;
      admitted.push_back({change, 0});
    }
  }

  RowCacheView view_;
  const RowCacheView* on_device_;
  static constexpr int64_t counted_for_each = 10;    // key that is told apart, then counts are halved
  static constexpr int64_t least_counted = 1 << 14;  // keys that are told apart: small caches see many as well
  int64_t num_counted_keys_;
  FrequencySketch sketch_;
  int64_t num_counts_ = 0;
  CacheCounters counters_;
  detail::TakenBefore taken_;
  int64_t num_keys_ = 0, has_room_until_;
};

}}}  // namespace warprank::v0::cuda_backend
