// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine's rows of a table in a store: a RowCache that look-ups share and whoever changes it has alone.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "warprank/core/page_pool.hpp"
#include "warprank/core/phase_fair_mutex.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/rows_in_memory.hpp"
#include "warprank/hash_table/row_cache.hpp"
#include "warprank/hash_table/stored_rows.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

class CachedRows final : public RowsInMemory {
 public:
  /// In at most `bytes`. `mutex` outlives it. `are_awaited`: whoever misses rows waits for them, so they stay until
  /// they were read, if that is done within some time.
  CachedRows(const StoredRows& rows, int64_t bytes, bool are_awaited, PhaseFairMutex& mutex,
             const std::shared_ptr<PagePool>& pages)
      : row_bytes_(rows.row_bytes()), are_awaited_(are_awaited), mutex_(mutex), cache_(rows, bytes, pages) {}

  /// To be looked up by whoever shares the mutex.
  const HashTableView& view() const { return cache_.view(); }

  /// Tells of ids that were looked up.
  void looked_up(Span<const int64_t> ids) {
    // Some, with the same probability: the sketch counts what is asked for, not what is missed.
    const auto begin = static_cast<int64_t>(phase_.fetch_add(7, std::memory_order_relaxed) % sampling);
    for (int64_t i = begin; i < ids.size(); i += sampling) cache_.asked_for(ids[i]);
    asked_for_ += ids.size() / sampling;
  }

  void take_out_held(std::vector<int64_t>& keys, std::vector<int64_t>& held) const override {
    const std::shared_lock<PhaseFairMutex> reading(mutex_);
    const auto is_held = [&](int64_t key) {
      const bool is = cache_.find(key) != nullptr;
      if (is) held.push_back(key);
      return is;
    };
    keys.erase(std::remove_if(keys.begin(), keys.end(), is_held), keys.end());
  }
  int64_t insert(Span<const int64_t> keys, const unsigned char* rows,
                 const std::function<bool(int64_t)>& is_wanted) override {
    using std::chrono::milliseconds, std::chrono::steady_clock;
    if (are_awaited_) generation_ = static_cast<uint64_t>(steady_clock::now().time_since_epoch() / milliseconds(20));
    int64_t evicted = 0;
    for (int64_t begin = 0; begin < keys.size(); begin += few) {
      const int64_t end = std::min(begin + few, keys.size());
      choose_victims(keys.subspan(begin, end - begin));
      const std::lock_guard<PhaseFairMutex> alone(mutex_);
      for (int64_t i = begin; i < end; ++i)
        if (is_wanted(i))
          evicted += cache_.insert_or_assign(keys[i], rows + i * row_bytes_, generation_,
                                             victims_[static_cast<size_t>(i - begin)]) == RowCache::Admission::evicted;
    }
    age();
    return evicted;
  }
  void change(Span<const int64_t> keys, const unsigned char* rows, const StoreStatus* statuses,
              const std::function<void(int64_t)>& was_changed) override {
    for (int64_t begin = 0; begin < keys.size(); begin += few) {
      const std::lock_guard<PhaseFairMutex> alone(mutex_);
      for (int64_t i = begin; i < std::min(begin + few, keys.size()); ++i) {
        if (rows != nullptr && (statuses == nullptr || statuses[i] == StoreStatus::ok))
          cache_.assign(keys[i], rows + i * row_bytes_);
        else
          cache_.erase(keys[i]);
        was_changed(keys[i]);
      }
    }
  }
  void clear() override {
    constexpr int64_t few_buckets = few / hash_table::header_positions;
    for (int64_t begin = 0; begin < cache_.num_buckets(); begin += few_buckets) {
      const std::lock_guard<PhaseFairMutex> alone(mutex_);
      cache_.clear_buckets(begin, std::min(begin + few_buckets, cache_.num_buckets()));
    }
  }

  int64_t size() const override {
    const std::shared_lock<PhaseFairMutex> reading(mutex_);
    return cache_.size();
  }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t bytes() const { return cache_.bytes(); }

 private:
  static constexpr int64_t few = 256;       // rows that are written while nobody looks up: some tens of microseconds
  static constexpr uint64_t sampling = 16;  // of so many ids one is counted
  static constexpr int64_t asked_for_each = 8;  // samples for each key in memory, then they count half

  /// Most of the time that a row takes is for this, and nobody need wait for it.
  void choose_victims(Span<const int64_t> keys) {
    const std::shared_lock<PhaseFairMutex> reading(mutex_);
    for (int64_t i = 0; i < keys.size(); ++i)
      victims_[static_cast<size_t>(i)] = cache_.victim_for(keys[i], generation_);
  }
  void age() {
    if (asked_for_ < asked_for_each * cache_.num_places()) return;
    asked_for_ = 0;
    cache_.age();
  }

  const int64_t row_bytes_;
  const bool are_awaited_;
  PhaseFairMutex& mutex_;
  RowCache cache_;  // its rows under the mutex
  std::atomic<uint64_t> phase_{0};
  std::atomic<int64_t> asked_for_{0};

  // Of whoever inserts, one at a time.
  std::array<RowVictim, static_cast<size_t>(few)> victims_;
  uint64_t generation_ = 0;
};

}}}  // namespace warprank::v0::host_backend
