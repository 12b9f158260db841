// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The implementation of store/table_in_store.hpp in loaded tables: one table in a store with some rows in memory in
/// front of it, and the code that fetches rows that look-ups miss.
///
/// No thread has exclusive access to the rows in memory while the store is asked. If an update changes a row while it
/// is fetched, the fetched row is not written, since it may be older.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/row_source.hpp"
#include "warprank/engine/rows_in_memory.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/store/parameter_store.hpp"
#include "warprank/store/table_in_store.hpp"

namespace warprank { inline namespace v0 {

class StoreTier final : public RowTier {
 public:
  using Clock = std::chrono::steady_clock;

  StoreTier(StoredTable table, TableInStore options, int64_t num_keys, RowsInMemory& rows, Fetching fetching)
      : table_(std::move(table)),
        options_(std::move(options)),
        num_keys_(num_keys),
        rows_(rows),
        absent_(static_cast<size_t>(num_absent)),
        fetched_(static_cast<size_t>(chunk * table_.rows.row_bytes())),
        statuses_(static_cast<size_t>(chunk)) {
    queue_.reserve(static_cast<size_t>(options_.most_queued));
    taken_.reserve(static_cast<size_t>(options_.most_queued));
    if (fetching == Fetching::by_itself) thread_ = std::thread([this] { work(); });
  }
  ~StoreTier() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  StoreTier(const StoreTier&) = delete;
  StoreTier& operator=(const StoreTier&) = delete;

  bool waits() const override { return options_.misses == Misses::wait; }

  void looked_up(int64_t hits, int64_t misses) override {
    hits_ += hits;
    misses_ += misses;
  }
  void were_dropped(int64_t count) override { dropped_ += count; }

  int64_t want(Span<const int64_t> keys) override {
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
  void fetch_wanted() override {
    if (thread_.joinable()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    if (!queue_.empty()) fetch_queued(lock);
  }
  bool wait_for(Span<const int64_t> keys, Clock::time_point begin) override {
    const Deadline deadline = begin + options_.longest_wait;
    fetch_wanted();
    std::unique_lock<std::mutex> lock(mutex_);
    int64_t arrived = 0;
    const bool have_all = arrived_.wait_until(lock, deadline, [&] {
      while (arrived < keys.size() && pending_.count(keys[arrived]) == 0) ++arrived;
      return arrived == keys.size();
    });
    late_ += have_all ? 0 : 1;
    return have_all && Clock::now() < deadline;
  }

  void put(Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses) override {
    options_.store->put(table_, keys, rows, statuses, Clock::now() + options_.store_timeout);
    changed(keys, rows, statuses);
  }
  void erase(Span<const int64_t> keys, StoreStatus* statuses) override {
    options_.store->erase(table_, keys, statuses, Clock::now() + options_.store_timeout);
    changed(keys, nullptr, statuses);
  }

  void refresh(Span<const int64_t> keys, const unsigned char* rows) override { changed(keys, rows, nullptr); }
  void forget() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++times_forgotten_;
      std::fill(absent_.begin(), absent_.end(), Absent());
    }
    rows_.clear();
  }

  StoreCounters counters() const override {
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
    all.rows = rows_.size();
    return all;
  }

 private:
  static constexpr int64_t chunk = 1024;                   // keys of one call of the store
  static constexpr int64_t num_absent = int64_t{1} << 16;  // places for keys that are known to be absent

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

  /// Takes the rows that the store has now; null: the keys are erased. Without statuses all are ok.
  void changed(Span<const int64_t> keys, const unsigned char* rows, const StoreStatus* statuses) {
    rows_.change(keys, rows, statuses, [this](int64_t key) {
      const std::lock_guard<std::mutex> lock(mutex_);
      absent(key) = {};
      if (is_fetching_) changed_.insert(key);
    });
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
      if (is_over_) return;
      fetch_queued(lock);
    }
  }
  void fetch_queued(std::unique_lock<std::mutex>& lock) {
    taken_.swap(queue_);
    is_fetching_ = true;
    const Clock::time_point now = Clock::now();
    if (!waits())  // else absent keys are not queued
      taken_.erase(std::remove_if(taken_.begin(), taken_.end(), [&](int64_t key) { return is_absent(key, now); }),
                   taken_.end());
    lock.unlock();
    drop_what_is_there();
    for (int64_t begin = 0; begin < static_cast<int64_t>(taken_.size()) && !is_over_; begin += chunk)
      fetch(Span<const int64_t>(taken_).subspan(begin, std::min(chunk, static_cast<int64_t>(taken_.size()) - begin)));
    lock.lock();
    taken_.clear();
    is_fetching_ = false;
    changed_.clear();
  }

  /// Drops repeated keys, and keys whose rows have come since.
  void drop_what_is_there() {
    std::sort(taken_.begin(), taken_.end());
    taken_.erase(std::unique(taken_.begin(), taken_.end()), taken_.end());
    held_.clear();
    rows_.take_out_held(taken_, held_);
    have_arrived(held_);
  }

  void fetch(Span<const int64_t> keys) {
    const int64_t times_forgotten = times_forgotten_;
    std::fill_n(statuses_.begin(), keys.size(), StoreStatus::failed);
    try {
      options_.store->get(table_, keys, fetched_.data(), statuses_.data(), Clock::now() + options_.store_timeout);
      evicted_ += rows_.insert(keys, fetched_.data(), [&](int64_t i) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return statuses_[static_cast<size_t>(i)] == StoreStatus::ok && changed_.count(keys[i]) == 0 &&
               times_forgotten_ == times_forgotten;  // else the row may be an old one
      });
    } catch (const std::exception&) {  // of memory, or of a device: as if the store had not answered
      std::fill_n(statuses_.begin(), keys.size(), StoreStatus::failed);
    }
    count(keys, times_forgotten);
    have_arrived(keys);
  }
  /// Counts the results for requested keys, and remembers absent ones.
  void count(Span<const int64_t> keys, int64_t times_forgotten) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < keys.size(); ++i) {
      const StoreStatus status = statuses_[static_cast<size_t>(i)];
      ++(status == StoreStatus::ok       ? fetched_rows_
         : status == StoreStatus::absent ? absent_keys_
         : status == StoreStatus::failed ? failed_
                                         : damaged_);
      const bool is_known = status == StoreStatus::absent || status == StoreStatus::damaged;
      if (is_known && changed_.count(keys[i]) == 0 && times_forgotten_ == times_forgotten)
        absent(keys[i]) = {keys[i], Clock::now() + options_.absent_for};
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

  const StoredTable table_;
  const TableInStore options_;
  const int64_t num_keys_;
  RowsInMemory& rows_;
  std::atomic<int64_t> hits_{0}, misses_{0}, fetched_rows_{0}, absent_keys_{0}, damaged_{0}, failed_{0}, evicted_{0},
      dropped_{0}, late_{0};

  std::mutex mutex_;  // guards the members below; a thread with exclusive access to the rows took that first
  std::condition_variable wake_, arrived_;
  std::vector<int64_t> queue_;
  std::unordered_set<int64_t> pending_;  // of a table that waits: queued, or being fetched
  std::unordered_set<int64_t> changed_;  // while rows are fetched
  std::vector<Absent> absent_;           // each key in the one place of its hash
  bool is_fetching_ = false;
  std::atomic<int64_t> times_forgotten_{0};
  std::atomic<bool> is_over_{false};

  // Of the fetching thread.
  std::vector<int64_t> taken_, held_;
  std::vector<unsigned char> fetched_;
  std::vector<StoreStatus> statuses_;
  std::thread thread_;
};

/// Tables in a store, with the same options.
class TablesInStore final : public RowSource {
 public:
  explicit TablesInStore(TableInStore options) : options_(std::move(options)) {}

  void check(const std::string& what, Problems& problems) const override {
    if (options_.store == nullptr) problems.add(what, "a store", "none");
    const auto expect_positive = [&](const char* name, int64_t got) {
      if (got < 1) problems.add(what + ", " + name, "more than 0", std::to_string(got));
    };
    expect_positive("longest_wait", options_.longest_wait.count());
    expect_positive("store_timeout", options_.store_timeout.count());
    expect_positive("most_queued", options_.most_queued);
    if (options_.absent_for.count() < 0)
      problems.add(what + ", absent_for", "0 or more", std::to_string(options_.absent_for.count()));
  }
  std::optional<StoredRows> describe(const std::string& table, Problems& problems) const override {
    std::string got = "none";
    if (options_.store == nullptr) return std::nullopt;
    try {
      const auto rows = options_.store->describe(table, std::chrono::steady_clock::now() + options_.store_timeout);
      if (rows) return rows;
    } catch (const store_error& error) {
      got = error.what();
    }
    problems.add("table '" + table + "'", "a description in its store", got);
    return std::nullopt;
  }
  int64_t memory_bytes() const override { return options_.memory_bytes; }
  bool waits() const override { return options_.misses == Misses::wait; }
  std::unique_ptr<RowTier> make_tier(StoredTable table, int64_t num_keys, RowsInMemory& rows,
                                     Fetching fetching) const override {
    return std::make_unique<StoreTier>(std::move(table), options_, num_keys, rows, fetching);
  }

 private:
  const TableInStore options_;
};

inline TableInStore::operator std::shared_ptr<const RowSource>() const {
  return std::make_shared<TablesInStore>(*this);
}

}}  // namespace warprank::v0
