// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A GPU's rows of a table in a store: some of them in mapped memory of the host, where kernels read and write them,
/// and of these some on the device (table_cache.cuh).
///
/// Rows on the host are in buckets like those of the cache, which the updates of hash tables change under the batches
/// that read them. A row that has come from the store gets a place in one of its two buckets. Where both are full it
/// takes that of a key of the first one that is asked for least, of those that have not come just now, if there are
/// others. A key that goes here goes from the device before, so the device has none that is not here.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/table_cache.cuh"
#include "warprank/engine/cuda/table_updates.cuh"
#include "warprank/engine/rows_in_memory.hpp"
#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/stored_rows.hpp"
#include "warprank/ops/hash_table.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Where the rows lie in mapped memory, buckets first.
struct StoredRowsLayout {
  /// Of at most so many keys, 0: any number; whose buckets take at most so many bytes.
  StoredRowsLayout(const StoredRows& rows, int64_t num_keys, int64_t budget)
      : num_buckets(
            cache_buckets(cache_shape(rows.type, rows.dim).bucket_bytes, num_keys == 0 ? budget : num_keys, budget)),
        size_at(static_cast<int64_t>(num_buckets) * cache_shape(rows.type, rows.dim).bucket_bytes),
        bytes(size_at + static_cast<int64_t>(sizeof(uint64_t))) {}

  int64_t num_places() const { return static_cast<int64_t>(num_buckets) * row_cache::num_positions; }

  uint64_t num_buckets;
  int64_t size_at, bytes;
};

class RowsBeforeStore final : public RowsInMemory {
 public:
  /// In mapped `memory` of layout.bytes, which becomes rows of no keys. `updating` is held by whoever changes tables of
  /// the device. All that it is given outlives it.
  RowsBeforeStore(const StoredRows& rows, const StoredRowsLayout& layout, unsigned char* memory, TableCache& cache,
                  TableUpdates& updates, std::mutex& updating, int device_index)
      : view_(cache_rows(rows.type, rows.dim, layout.num_buckets, memory,
                         reinterpret_cast<uint64_t*>(memory + layout.size_at))),
        cache_(cache),
        updates_(updates),
        updating_(updating),
        device_index_(device_index) {
    updates_.queue_and_wait([this](device::Stream stream) { hash_table::clear(view_, stream); });
  }

  const HashTableView& view() const { return view_; }

  void take_out_held(std::vector<int64_t>& keys, std::vector<int64_t>& held) const override {
    const std::lock_guard<std::mutex> alone(updating_);
    const auto is_held = [&](int64_t key) {
      if (row_of(key) == nullptr) return false;
      held.push_back(key);
      return true;
    };
    keys.erase(std::remove_if(keys.begin(), keys.end(), is_held), keys.end());
  }

  int64_t insert(Span<const int64_t> keys, const unsigned char* rows,
                 const std::function<bool(int64_t)>& is_wanted) override {
    const std::lock_guard<std::mutex> alone(updating_);
    const device::DeviceGuard current(device_index_);
    forget_who_came();
    std::vector<RowChange> wanted;
    coming_.clear();
    for (int64_t i = 0; i < keys.size(); ++i) {
      if (!is_wanted(i)) continue;
      cache_.admission().count(static_cast<uint64_t>(keys[i]));
      wanted.push_back({keys[i], i});
      coming_.insert(static_cast<uint64_t>(keys[i]));
    }
    int64_t evicted = 0;
    for (int turn = 0; turn < most_turns; ++turn) {
      const auto is_there = [&](const RowChange& one) { return row_of(one.key) != nullptr; };
      wanted.erase(std::remove_if(wanted.begin(), wanted.end(), is_there), wanted.end());
      if (wanted.empty()) break;
      evicted += insert_some(wanted, rows);
    }
    return evicted;
  }

  void change(Span<const int64_t> keys, const unsigned char* rows, const StoreStatus* statuses,
              const std::function<void(int64_t)>& was_changed) override {
    const std::lock_guard<std::mutex> alone(updating_);
    const device::DeviceGuard current(device_index_);
    std::vector<RowChange> written, erased;
    for (int64_t i = 0; i < keys.size(); ++i) {
      was_changed(keys[i]);
      if (row_of(keys[i]) == nullptr) continue;
      const bool has_row = rows != nullptr && (statuses == nullptr || statuses[i] == StoreStatus::ok);
      has_row ? written.push_back({keys[i], i}) : erased.push_back({keys[i], -1});
    }
    erase(erased);
    write(written, rows);
    cache_.follow_written(updates_, written, [this](int64_t key) { return row_of(key); });
  }

  void clear() override {
    constexpr uint64_t buckets_at_once = 1024;
    for (uint64_t begin = 0; begin < view_.placement.num_buckets; begin += buckets_at_once) {
      const std::lock_guard<std::mutex> alone(updating_);
      const device::DeviceGuard current(device_index_);
      std::vector<RowChange> erased;
      const uint64_t end = std::min(begin + buckets_at_once, view_.placement.num_buckets);
      for (uint64_t bucket = begin; bucket < end; ++bucket)
        for (const CacheBucket::Held& held : CacheBucket(view_.line(bucket)).held)
          erased.push_back({static_cast<int64_t>(held.key), -1});
      erase(erased);
    }
  }

  int64_t size() const override {
    const std::lock_guard<std::mutex> alone(updating_);
    return static_cast<int64_t>(*view_.size);
  }

 private:
  static constexpr int most_turns = 3;

  /// How many others gave way. Keys take their places in any order, so some that was found for one may be another's:
  /// those that have none then are given here again.
  int64_t insert_some(const std::vector<RowChange>& wanted, const unsigned char* rows) {
    std::unordered_map<uint64_t, CacheBucket> buckets;
    std::vector<RowChange> victims, with_room, in_place_of_others;
    for (const RowChange& one : wanted) {
      const size_t num_victims = victims.size();
      if (!find_room(static_cast<uint64_t>(one.key), buckets, victims)) continue;
      just_came_.insert(static_cast<uint64_t>(one.key));
      (victims.size() == num_victims ? with_room : in_place_of_others).push_back(one);
    }
    write(with_room, rows);
    erase(victims);
    write(in_place_of_others, rows);
    return static_cast<int64_t>(victims.size());
  }

  /// Between updates; null for a key that has none.
  const unsigned char* row_of(int64_t key) const { return find_row(view_, key); }

  /// First from the device, where others find them first.
  void erase(const std::vector<RowChange>& keys) {
    if (keys.empty()) return;
    cache_.follow_erased(updates_, keys);
    TableChanges changes;
    updates_.change<detail::hashed::CacheProtocol>(
        view_, [](const RowChange&, unsigned char*) {}, keys, changes);
  }
  void write(const std::vector<RowChange>& keys, const unsigned char* rows) {
    if (keys.empty()) return;
    const auto copy_row = [&](const RowChange& change, unsigned char* to) {
      std::memcpy(to, rows + change.row * view_.row_bytes, static_cast<size_t>(view_.row_bytes));
    };
    TableChanges changes;
    updates_.change<detail::hashed::CacheProtocol>(view_, copy_row, keys, changes);
  }

  /// Whether there is a place for a key once `victims` are gone. `buckets` are those that were looked at, as they will
  /// be then.
  bool find_room(uint64_t key, std::unordered_map<uint64_t, CacheBucket>& buckets, std::vector<RowChange>& victims) {
    const uint64_t hash = view_.placement.hash(key);
    const auto bucket = [&](uint64_t index) -> CacheBucket& {
      return buckets.try_emplace(index, view_.line(index)).first->second;
    };
    CacheBucket& first = bucket(view_.placement.first_bucket(hash));
    CacheBucket& second = bucket(view_.placement.second_bucket(hash));
    for (CacheBucket* one : {&first, &second}) {
      if (one->room == 0) continue;
      --one->room;
      return true;
    }
    // Among equals it goes round, so that who came last does not go first.
    const int turn = turn_ = (turn_ + 1) % row_cache::num_positions;
    const auto rank = [&](const CacheBucket::Held& held) {
      return std::tuple(just_came_.count(held.key) + came_before_.count(held.key),
                        cache_.admission().frequency(held.key), (held.position + turn) % row_cache::num_positions);
    };
    const auto victim = std::min_element(first.held.begin(), first.held.end(),
                                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    if (victim == first.held.end() || coming_.count(victim->key) != 0) return false;
    victims.push_back({static_cast<int64_t>(victim->key), -1});
    first.held.erase(victim);
    return true;
  }

  /// What batches wait for stays until they have read it, if they do so within some time.
  void forget_who_came() {
    using std::chrono::milliseconds, std::chrono::steady_clock;
    const int64_t now = steady_clock::now().time_since_epoch() / milliseconds(20);
    if (now == since_) return;
    came_before_ = now == since_ + 1 ? std::move(just_came_) : std::unordered_set<uint64_t>();
    just_came_.clear();
    since_ = now;
  }

  const HashTableView view_;
  TableCache& cache_;
  TableUpdates& updates_;
  std::mutex& updating_;
  const int device_index_;
  int turn_ = 0;
  std::unordered_set<uint64_t> coming_;                   // that are inserted now
  std::unordered_set<uint64_t> just_came_, came_before_;  // within 20 ms, and within the 20 ms before
  int64_t since_ = 0;
};

}}}  // namespace warprank::v0::cuda_backend
