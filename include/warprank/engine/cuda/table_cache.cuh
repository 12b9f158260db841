// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a table on the host that are on the device as well (ops/row_cache.hpp), and which they are.
///
/// A pass takes out the keys that look-ups missed, and for their buckets which keys were found since the last one: each
/// counts once in a sketch of frequencies. CacheAdmission chooses which of the missed keys get a row, and which others
/// give way. Rows are written and erased by the updates of hash tables, under the batches that read them. Passes and
/// updates of the tables exclude one another, so no row is admitted that an update has replaced meanwhile.

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
#include "warprank/engine/cuda/cache_admission.hpp"
#include "warprank/engine/cuda/table_updates.cuh"
#include "warprank/engine/placement.hpp"
#include "warprank/engine/table_options.hpp"
#include "warprank/ops/detail/row_cache/take_marks.cuh"
#include "warprank/ops/row_cache.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// A table of buckets, which are to be cleared.
inline HashTableView cache_rows(DType type, int64_t dim, uint64_t num_buckets, unsigned char* buckets, uint64_t* size) {
  HashTableView rows;
  rows.buckets = buckets;
  rows.size = size;
  rows.type = type;
  rows.dim = dim;
  rows.row_bytes = hash_table::row_bytes(type, dim);
  rows.is_mutable = true;
  rows.shape = cache_shape(type, dim);
  rows.placement = cache_placement(num_buckets);
  return rows;
}

/// Where the parts of a cache lie in device memory, from its beginning, and how large they are.
struct CacheLayout {
  /// Of at most so many keys, whose buckets take at most so many bytes. `tells_absent`: for a table in a store.
  CacheLayout(DType type, int64_t dim, int64_t num_keys, int64_t budget, bool tells_absent = false)
      : num_buckets(cache_buckets(cache_shape(type, dim).bucket_bytes, num_keys, budget)) {
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
      : memory_(static_cast<int64_t>(sizeof(detail::cached::TakenMarks::Counts)) +
                    (static_cast<int64_t>(sizeof(detail::cached::TakenMarks::Mark)) + 8) * mark_capacity,
                "the passes over caches of rows") {}

  detail::cached::TakenMarks marks() const {
    auto* const counts = static_cast<detail::cached::TakenMarks::Counts*>(memory_.data());
    auto* const marks = reinterpret_cast<detail::cached::TakenMarks::Mark*>(counts + 1);
    return {counts, marks, reinterpret_cast<uint64_t*>(marks + mark_capacity)};
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
        admission_(layout.num_buckets, num_counted) {
    auto* const words = reinterpret_cast<uint64_t*>(memory + layout.words_at);
    view_.rows = cache_rows(type, dim, layout.num_buckets, memory, words + CacheLayout::size_word);
    view_.missed = {reinterpret_cast<uint64_t*>(memory + layout.marks_at), words + CacheLayout::num_word,
                    words + CacheLayout::taken_word, mark_capacity};
    if (layout.absent_at >= 0)
      view_.absent = {reinterpret_cast<uint64_t*>(memory + layout.absent_at), words + CacheLayout::num_absent_word,
                      words + CacheLayout::absent_taken_word, mark_capacity};
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

  /// How often keys were asked for.
  CacheAdmission& admission() { return admission_; }
  const CacheAdmission& admission() const { return admission_; }

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
    admission_.forget();
    return absent;
  }

  /// Rows of the host's memory that were written: those that are here become the same.
  template <class RowOf>
  void follow_written(TableUpdates& updates, const std::vector<RowChange>& written, const RowOf& row_of) {
    if (written.empty()) return;
    TableChanges changes;
    updates.change<detail::hashed::CacheProtocol>(rows(), copy_from(row_of), updates.held(rows(), written), changes);
  }
  /// Keys that the table has no more.
  void follow_erased(TableUpdates& updates, const std::vector<RowChange>& erased) {
    if (erased.empty()) return;
    int64_t gone = 0;
    erase(updates, erased, gone);
  }

 private:
  template <class RowOf>
  void admit(Span<const detail::cached::TakenMarks::Mark> marks, TableUpdates& updates, const RowOf& row_of) {
    std::unordered_map<uint64_t, CacheBucket> buckets;
    std::vector<std::pair<uint64_t, uint64_t>> missed;  // with the bucket
    for (const detail::cached::TakenMarks::Mark& mark : marks) {
      const uint64_t bucket = rows().placement.first_bucket(rows().placement.hash(mark.key));
      buckets.emplace(bucket, mark.line).first->second.add_use(mark.line[row_cache::use_word]);
      missed.emplace_back(mark.key, bucket);
    }
    const auto has_row = [&](uint64_t key) { return row_of(static_cast<int64_t>(key)) != nullptr; };
    const auto [chosen_victims, chosen] = admission_.choose(std::move(missed), buckets, num_keys_, has_row);
    std::vector<RowChange> victims, admitted;
    for (const uint64_t key : chosen_victims) victims.push_back({static_cast<int64_t>(key), -1});
    for (const uint64_t key : chosen) admitted.push_back({static_cast<int64_t>(key), 0});
    erase(updates, victims, counters_.evicted);
    TableChanges changes;
    updates.change<detail::hashed::CacheProtocol>(rows(), copy_from(row_of), admitted, changes);
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
    updates.change<detail::hashed::CacheProtocol>(
        rows(), [](const RowChange&, unsigned char*) {}, keys, changes);
    erased += changes.erased;
    num_keys_ -= changes.erased;
  }

  /// How many marks there are.
  int64_t take_marks(TableUpdates& updates, const PassMemory& memory, Absent& absent) {
    const detail::cached::TakenMarks marks = memory.marks();
    updates.queue_and_wait(
        [&](device::Stream stream) { detail::cached::launch_take_marks(view_, taken_, marks, stream); });
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

  RowCacheView view_;
  const RowCacheView* on_device_;
  CacheAdmission admission_;
  CacheCounters counters_;
  detail::cached::TakenBefore taken_;
  int64_t num_keys_ = 0;
};

}}}  // namespace warprank::v0::cuda_backend
