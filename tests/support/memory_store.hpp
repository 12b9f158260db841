// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A ParameterStore in this process, for tests and benchmarks: its values can be damaged, it can be slow, and away.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/store/parameter_store.hpp"
#include "warprank/store/row_changes.hpp"
#include "warprank/store/stored_value.hpp"

namespace warprank::test_support {

class MemoryStore : public ParameterStore {
 public:
  using Value = std::vector<unsigned char>;

  std::optional<StoredRows> describe(const std::string& table, Deadline deadline) override {
    if (!answers(deadline)) throw store_error("table '" + table + "'", "an answer of the store", "none in time");
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = tables_.find(table);
    if (found == tables_.end()) return std::nullopt;
    return found->second.rows;
  }
  void create(const StoredTable& table, Deadline deadline) override {
    check_stored_table(table);
    if (!answers(deadline)) throw store_error("table '" + table.name + "'", "an answer of the store", "none in time");
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [at, is_new] = tables_.try_emplace(table.name, Table{table.rows});
    if (!is_new && at->second.rows != table.rows)
      throw invalid_argument("stored table '" + table.name + "'", "rows as the store has them", "others");
  }
  void get(const StoredTable& table, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
           Deadline deadline) override {
    ++gets;
    keys_asked += keys.size();
    const bool is_there = answers(deadline);
    read(table, keys, rows, statuses, is_there);
    for (num_held += holds_replies; holds_replies;) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void put(const StoredTable& table, Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses,
           Deadline deadline) override {
    const bool is_there = answers(deadline);
    for (int64_t i = 0; i < keys.size(); ++i) {
      statuses[i] = is_there ? StoreStatus::ok : StoreStatus::failed;
      Value value(static_cast<size_t>(stored_value_bytes(table.rows)));
      write_stored_value(table.rows, keys[i], rows + i * table.rows.row_bytes(), value.data());
      if (is_there) put_value(table.name, keys[i], std::move(value));
    }
  }
  void erase(const StoredTable& table, Span<const int64_t> keys, StoreStatus* statuses, Deadline deadline) override {
    const bool is_there = answers(deadline);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < keys.size(); ++i)
      statuses[i] = !is_there                                        ? StoreStatus::failed
                    : tables_[table.name].values.erase(keys[i]) != 0 ? StoreStatus::ok
                                                                     : StoreStatus::absent;
  }

  std::unique_ptr<ChangePublisher> publish_changes(const StoredTable& table) override {
    return std::make_unique<Publisher>(*this, table);
  }
  std::unique_ptr<ChangeReader> read_changes(std::vector<FollowedTable> tables) override {
    return std::make_unique<Reader>(*this, std::move(tables));
  }
  std::string end_of_changes(const std::string& table, Deadline deadline) override {
    if (!answers(deadline)) throw store_error("changes of '" + table + "'", "an answer of the store", "none in time");
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::to_string(tables_[table].changes.size());
  }

  /// An entry of any bytes among the changes of a table.
  void add_entry(const std::string& table, std::string bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tables_[table].changes.push_back(std::move(bytes));
  }
  /// Nobody can read any more what was published until now.
  void cut_off_changes(const std::string& table) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tables_[table].cut_off = tables_[table].changes.size();
  }

  /// Any bytes as the value of a key.
  void put_value(const std::string& table, int64_t key, Value value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tables_[table].values[key] = std::move(value);
  }
  Value value(const std::string& table, int64_t key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Value* found = find(table, key);
    return found == nullptr ? Value() : *found;
  }

  std::atomic<bool> is_away = false;        ///< nothing is answered, until it is false or the deadline
  std::atomic<int64_t> latency_us = 0;      ///< of each call
  std::atomic<bool> holds_replies = false;  ///< to gets, whose rows were read
  std::atomic<int64_t> num_held = 0;        ///< so far
  std::atomic<int64_t> gets = 0;            ///< calls
  std::atomic<int64_t> keys_asked = 0;      ///< keys of them

 private:
  struct Table {
    StoredRows rows;
    std::unordered_map<int64_t, Value> values = {};
    std::vector<std::string> changes = {};
    size_t cut_off = 0;  ///< of these
  };

  class Publisher final : public ChangePublisher {
   public:
    Publisher(MemoryStore& store, StoredTable table) : store_(store), table_(std::move(table)) {}
    bool publish(const RowChanges& changes, Deadline deadline) override {
      check_row_changes(table_, changes);
      if (!changes.empty()) entries_.push_back(write_row_changes(table_.rows, changes));
      unsent_ += static_cast<int64_t>(changes.keys.size() + changes.erased.size());
      if (!store_.answers(deadline)) return false;
      for (std::string& entry : entries_) store_.add_entry(table_.name, std::move(entry));
      entries_.clear();
      unsent_ = 0;
      return true;
    }
    int64_t unsent() const override { return unsent_; }
    const std::string& trouble() const override { return trouble_; }

   private:
    MemoryStore& store_;
    const StoredTable table_;
    std::vector<std::string> entries_;
    int64_t unsent_ = 0;
    std::string trouble_ = "the store is away";
  };
  class Reader final : public ChangeReader {
   public:
    Reader(MemoryStore& store, std::vector<FollowedTable> tables) : store_(store), tables_(std::move(tables)) {}
    std::vector<ReadChanges> read(Deadline deadline) override {
      const bool is_there = store_.answers(deadline);
      const std::lock_guard<std::mutex> lock(store_.mutex_);
      std::vector<ReadChanges> results;
      for (FollowedTable& followed : tables_) {
        ReadChanges& result = results.emplace_back();
        result.is_answer = is_there;
        if (is_there) read(store_.tables_[followed.table.name], followed, result);
        result.position = followed.position;
      }
      return results;
    }

   private:
    static void read(const Table& table, FollowedTable& followed, ReadChanges& result) {
      auto at = static_cast<size_t>(std::atoll(followed.position.c_str()));
      result.has_lost = at < table.cut_off;
      for (at = std::max(at, table.cut_off); at < table.changes.size(); ++at) {
        const std::string& bytes = table.changes[at];
        RowChanges changes;
        if (read_row_changes(followed.table.rows,
                             {reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int64_t>(bytes.size())},
                             changes))
          result.changes.push_back(std::move(changes));
        else
          ++result.garbage;
      }
      followed.position = std::to_string(at);
    }

    MemoryStore& store_;
    std::vector<FollowedTable> tables_;
  };

  void read(const StoredTable& table, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
            bool is_there) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < keys.size(); ++i) {
      const Value* value = find(table.name, keys[i]);
      const bool is_row = value != nullptr && is_there &&
                          read_stored_value(table.rows, keys[i], *value, rows + i * table.rows.row_bytes());
      statuses[i] = !is_there          ? StoreStatus::failed
                    : value == nullptr ? StoreStatus::absent
                    : is_row           ? StoreStatus::ok
                                       : StoreStatus::damaged;
    }
  }
  bool answers(Deadline deadline) const {
    const auto now = std::chrono::steady_clock::now(), after = now + std::chrono::microseconds(latency_us.load());
    if (latency_us > 0) std::this_thread::sleep_until(std::min(after, deadline));
    while (is_away && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    return !is_away && after <= deadline;
  }
  const Value* find(const std::string& table, int64_t key) const {
    const auto found = tables_.find(table);
    if (found == tables_.end()) return nullptr;
    const auto value = found->second.values.find(key);
    return value == found->second.values.end() ? nullptr : &value->second;
  }

  mutable std::mutex mutex_;
  std::map<std::string, Table> tables_;
};

}  // namespace warprank::test_support
