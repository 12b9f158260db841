// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One table in a store with a cache of rows in front of it, and the thread that fetches what look-ups miss.
///
/// Rows in memory are changed by somebody who has the mutex of all rows alone; look-ups share it. So the fetching
/// thread asks the store without it, and takes it for some rows at a time. A row that was changed by an update while it
/// was fetched is not written: what was fetched may be from before.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "warprank/core/page_pool.hpp"
#include "warprank/core/phase_fair_mutex.hpp"
#include "warprank/core/view.hpp"
#include "warprank/store/row_cache.hpp"
#include "warprank/store/table_in_store.hpp"

namespace warprank {

class StoreTier {
 public:
  using Clock = std::chrono::steady_clock;

  /// Keys are 0 to num_keys - 1, or any where that is 0. `rows_mutex` outlives it.
  StoreTier(StoredTable table, TableInStore options, int64_t num_keys, PhaseFairMutex& rows_mutex,
            const std::shared_ptr<PagePool>& pages)
      : table_(std::move(table)),
        options_(std::move(options)),
        num_keys_(num_keys),
        rows_mutex_(rows_mutex),
        cache_(table_.rows, options_.memory_bytes, pages),
        absent_(static_cast<size_t>(num_absent)),
        fetched_(static_cast<size_t>(chunk * table_.rows.row_bytes())),
        statuses_(static_cast<size_t>(chunk)) {
    queue_.reserve(static_cast<size_t>(options_.most_queued));
    taken_.reserve(static_cast<size_t>(options_.most_queued));
    thread_ = std::thread([this] { work(); });
  }
  ~StoreTier() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  StoreTier(const StoreTier&) = delete;
  StoreTier& operator=(const StoreTier&) = delete;

  /// Rows in memory, to be looked up by whoever shares the mutex.
  const HashTableView& view() const { return cache_.view(); }
  const StoredTable& table() const { return table_; }
  const TableInStore& options() const { return options_; }
  bool waits() const { return options_.misses == Misses::wait; }
  int64_t bytes() const { return cache_.bytes(); }

  /// Tells of look-ups: their ids, padding included, and those that had no row.
  void looked_up(Span<const int64_t> ids, Span<const int64_t> missed, int64_t padding) {
    hits_ += ids.size() - missed.size() - padding;
    misses_ += missed.size();
    // Some, with the same probability: the sketch counts what is asked for, not what is missed.
    const auto begin = static_cast<int64_t>(phase_.fetch_add(7, std::memory_order_relaxed) % sampling);
    for (int64_t i = begin; i < ids.size(); i += sampling) cache_.asked_for(ids[i]);
    asked_for_ += ids.size() / sampling;
    if (missed.size() > 0) want(missed);
  }

  /// Has the keys fetched, in the background. Of a table that waits: how many it makes sense to wait for.
  int64_t want(Span<const int64_t> keys) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool was_empty = queue_.empty();
    const Clock::time_point now = waits() ? Clock::now() : Clock::time_point();
    int64_t under_way = 0;
    for (const int64_t key : keys) {
      if (!may_have(key)) continue;
      if (waits() && is_absent(key, now)) continue;
      if (waits() && pending_.count(key) != 0) {
        ++under_way;
        continue;
      }
      if (static_cast<int64_t>(queue_.size()) >= options_.most_queued) {
        ++dropped_;
        continue;
      }
      queue_.push_back(key);
      if (waits()) under_way += pending_.insert(key).second;
    }
    if (was_empty && !queue_.empty()) wake_.notify_one();
    return under_way;
  }
  /// Waits until what was wanted of these is fetched, or known not to be had; whether that was in time. Of a table that
  /// waits.
  bool wait_for(Span<const int64_t> keys, Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    int64_t arrived = 0;
    const bool have_all = arrived_.wait_until(lock, deadline, [&] {
      while (arrived < keys.size() && pending_.count(keys[arrived]) == 0) ++arrived;
      return arrived == keys.size();
    });
    late_ += have_all ? 0 : 1;
    return have_all;
  }

  /// Writes rows to the store, then to memory where they are. Those that fail are in memory no more.
  void put(Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses) {
    options_.store->put(table_, keys, rows, statuses, Clock::now() + options_.store_timeout);
    changed(keys, rows, statuses);
  }
  void erase(Span<const int64_t> keys, StoreStatus* statuses) {
    options_.store->erase(table_, keys, statuses, Clock::now() + options_.store_timeout);
    changed(keys, nullptr, statuses);
  }

  /// Rows that the store has already, null where it has none any more: written where memory has older ones.
  void refresh(Span<const int64_t> keys, const unsigned char* rows) { changed(keys, rows, nullptr); }
  /// Nothing is in memory any more, so all rows are fetched anew.
  void forget() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++times_forgotten_;
      std::fill(absent_.begin(), absent_.end(), Absent());
    }
    constexpr int64_t few_buckets = few / hash_table::header_positions;
    for (int64_t begin = 0; begin < cache_.num_buckets(); begin += few_buckets) {
      const std::lock_guard<PhaseFairMutex> alone(rows_mutex_);
      cache_.clear_buckets(begin, std::min(begin + few_buckets, cache_.num_buckets()));
    }
  }

  StoreCounters counters() const {
    StoreCounters all;
    all.hits = hits_;
    all.misses = misses_;
    all.fetched = fetched_rows_;
    all.absent = absent_keys_;
    all.damaged = damaged_;
    all.failed = failed_;
    all.evicted = evicted_;
    all.dropped = dropped_;
    all.late = late_;
    const std::shared_lock<PhaseFairMutex> reading(rows_mutex_);
    all.rows = cache_.size();
    return all;
  }

 private:
  static constexpr int64_t chunk = 1024;    // keys of one call of the store
  static constexpr int64_t few = 256;       // rows that are written while nobody looks up: some tens of microseconds
  static constexpr uint64_t sampling = 16;  // of so many ids one is counted
  static constexpr int64_t num_absent = int64_t{1} << 16;  // keys that are known to be absent, or half as many
  static constexpr int64_t asked_for_each = 8;             // samples for each key in memory, then they count half

  struct Absent {
    int64_t key = 0;
    Clock::time_point until = {};
  };

  bool may_have(int64_t key) const { return num_keys_ == 0 || (key >= 0 && key < num_keys_); }
  Absent& absent(int64_t key) {
    return absent_[hash_table::fmix64(static_cast<uint64_t>(key)) % static_cast<uint64_t>(num_absent)];
  }
  bool is_absent(int64_t key, Clock::time_point now) {
    const Absent& known = absent(key);
    return known.key == key && now < known.until;
  }

  /// The rows of keys that the store has now, null where they are erased. Without statuses all are ok.
  void changed(Span<const int64_t> keys, const unsigned char* rows, const StoreStatus* statuses) {
    for (int64_t begin = 0; begin < keys.size(); begin += few) {
      const std::lock_guard<PhaseFairMutex> alone(rows_mutex_);
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int64_t i = begin; i < std::min(begin + few, keys.size()); ++i) {
        if (rows != nullptr && (statuses == nullptr || statuses[i] == StoreStatus::ok))
          cache_.assign(keys[i], rows + i * table_.rows.row_bytes());
        else
          cache_.erase(keys[i]);
        absent(keys[i]) = {};
        if (is_fetching_) changed_.insert(keys[i]);
      }
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
      if (is_over_) return;
      taken_.swap(queue_);
      is_fetching_ = true;
      const Clock::time_point now = Clock::now();
      if (!waits())  // else they are not queued
        taken_.erase(std::remove_if(taken_.begin(), taken_.end(), [&](int64_t key) { return is_absent(key, now); }),
                     taken_.end());
      lock.unlock();
      drop_what_is_there();
      for (int64_t begin = 0; begin < static_cast<int64_t>(taken_.size()) && !is_over_; begin += chunk)
        fetch(Span<const int64_t>(taken_).subspan(begin, std::min(chunk, static_cast<int64_t>(taken_.size()) - begin)));
      age();
      lock.lock();
      taken_.clear();
      is_fetching_ = false;
      changed_.clear();
    }
  }

  /// Keys that several have missed, or that have come since.
  void drop_what_is_there() {
    std::sort(taken_.begin(), taken_.end());
    taken_.erase(std::unique(taken_.begin(), taken_.end()), taken_.end());
    arrived_before_.clear();
    {
      const std::shared_lock<PhaseFairMutex> reading(rows_mutex_);
      const auto is_there = [&](int64_t key) {
        const bool is = cache_.find(key) != nullptr;
        if (is) arrived_before_.push_back(key);
        return is;
      };
      taken_.erase(std::remove_if(taken_.begin(), taken_.end(), is_there), taken_.end());
    }
    have_arrived(arrived_before_);
  }

  void fetch(Span<const int64_t> keys) {
    const int64_t times_forgotten = times_forgotten_;
    std::fill_n(statuses_.begin(), keys.size(), StoreStatus::failed);
    try {
      options_.store->get(table_, keys, fetched_.data(), statuses_.data(), Clock::now() + options_.store_timeout);
    } catch (const std::exception&) {  // memory: as if it had not answered
      std::fill_n(statuses_.begin(), keys.size(), StoreStatus::failed);
    }
    // What batches wait for stays until they have read it, if they do so within some time.
    if (waits()) generation_ = static_cast<uint64_t>(Clock::now().time_since_epoch() / std::chrono::milliseconds(20));
    for (int64_t begin = 0; begin < keys.size(); begin += few) {
      choose_victims(keys.subspan(begin, std::min(few, keys.size() - begin)));
      const std::lock_guard<PhaseFairMutex> alone(rows_mutex_);
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int64_t i = begin; i < std::min(begin + few, keys.size()); ++i)
        if (times_forgotten_ == times_forgotten)
          write(keys[i], i, victims_[static_cast<size_t>(i - begin)]);  // else it may be from before
    }
    have_arrived(keys);
  }
  /// Most of the time that a row takes is for this, and nobody need wait for it.
  void choose_victims(Span<const int64_t> keys) {
    const std::shared_lock<PhaseFairMutex> reading(rows_mutex_);
    for (int64_t i = 0; i < keys.size(); ++i)
      victims_[static_cast<size_t>(i)] = cache_.victim_for(keys[i], generation_);
  }
  void write(int64_t key, int64_t i, RowVictim victim) {
    switch (statuses_[static_cast<size_t>(i)]) {
      case StoreStatus::ok:
        ++fetched_rows_;
        if (changed_.count(key) != 0) return;
        evicted_ += cache_.insert_or_assign(key, fetched_.data() + i * table_.rows.row_bytes(), generation_, victim) ==
                    RowCache::Admission::evicted;
        return;
      case StoreStatus::absent:
      case StoreStatus::damaged:
        ++(statuses_[static_cast<size_t>(i)] == StoreStatus::absent ? absent_keys_ : damaged_);
        if (changed_.count(key) == 0) absent(key) = {key, Clock::now() + options_.absent_for};
        return;
      case StoreStatus::failed:
        ++failed_;
        return;
    }
  }
  void have_arrived(Span<const int64_t> keys) {
    if (!waits() || keys.size() == 0) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const int64_t key : keys) pending_.erase(key);
    }
    arrived_.notify_all();
  }

  void age() {
    if (asked_for_ < asked_for_each * cache_.num_places()) return;
    asked_for_ = 0;
    cache_.age();
  }

  const StoredTable table_;
  const TableInStore options_;
  const int64_t num_keys_;
  PhaseFairMutex& rows_mutex_;
  RowCache cache_;  // its rows under rows_mutex_
  std::atomic<uint64_t> phase_{0};
  std::atomic<int64_t> asked_for_{0}, hits_{0}, misses_{0}, fetched_rows_{0}, absent_keys_{0}, damaged_{0}, failed_{0},
      evicted_{0}, dropped_{0}, late_{0};

  std::mutex mutex_;  // what follows; whoever has rows_mutex_, too, took that first
  std::condition_variable wake_, arrived_;
  std::vector<int64_t> queue_;
  std::unordered_set<int64_t> pending_;  // of a table that waits: queued, or being fetched
  std::unordered_set<int64_t> changed_;  // while something is fetched
  std::vector<Absent> absent_;           // each in the one place that its hash gives
  bool is_fetching_ = false;
  std::atomic<int64_t> times_forgotten_{0};
  std::atomic<bool> is_over_{false};

  // The thread's own.
  std::vector<int64_t> taken_, arrived_before_;
  std::vector<unsigned char> fetched_;
  std::vector<StoreStatus> statuses_;
  std::vector<RowVictim> victims_{static_cast<size_t>(few)};
  uint64_t generation_ = 0;
  std::thread thread_;
};

}  // namespace warprank
