// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables that follow the changes of others: a thread reads the changes that a store publishes, and applies them.
///
///     ChangeFollower follower(store, {{"film", {DType::f16, 32}}}, tables);

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/table_options.hpp"
#include "warprank/store/parameter_store.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank { inline namespace v0 {

struct FollowOptions {
  /// The positions to begin at, by table; other tables begin now. Rows in memory must be from this position or later:
  /// for tables that were loaded from files, give the position at which the files were written
  /// (ParameterStore::end_of_changes, called before).
  std::map<std::string, std::string> positions = {};
  std::chrono::milliseconds interval{20};         ///< between two reads
  std::chrono::milliseconds store_timeout{1000};  ///< of each read
  /// Called when changes of a table are lost. Tables in stores have then forgotten their rows; load other tables anew.
  /// Called by the follower's thread; must not throw.
  std::function<void(const std::string& table)> on_lost = nullptr;
};

/// Counters of one table, since the follower began.
struct FollowCounters {
  TableChanges changes;    ///< results by key; of equal keys that were read together, the last counts
  int64_t entries = 0;     ///< applied entries
  int64_t refused = 0;     ///< entries that the table cannot take: with keys of no row, or erased in a direct table
  int64_t garbage = 0;     ///< entries that are no changes of the table
  int64_t lost = 0;        ///< times that changes were missing
  int64_t unanswered = 0;  ///< reads that the store did not answer in time
  int64_t failed = 0;      ///< failed attempts to apply changes, which are repeated
};

namespace detail {

/// The argument of Tables::update; of equal keys the last counts.
inline Weights update_of(const StoredTable& table, const std::vector<const RowChanges*>& all) {
  const StoredRows& rows = table.rows;
  const int64_t row_bytes = rows.row_bytes();
  std::unordered_map<int64_t, const unsigned char*> last;  // null: erased
  for (const RowChanges* changes : all) {
    for (const int64_t key : changes->erased) last[key] = nullptr;
    for (size_t i = 0; i < changes->keys.size(); ++i)
      last[changes->keys[i]] = changes->rows.data() + static_cast<int64_t>(i) * row_bytes;
  }
  std::vector<int64_t> keys, erased;
  for (const auto& [key, row] : last) (row == nullptr ? erased : keys).push_back(key);
  const auto count = static_cast<int64_t>(keys.size());
  const int64_t bytes = rows.dim * size_of(rows.type);
  std::vector<std::byte> values(static_cast<size_t>(count * bytes));
  std::vector<float> scale, offset;
  for (int64_t i = 0; i < count; ++i) {
    const unsigned char* row = last[keys[static_cast<size_t>(i)]];
    std::memcpy(values.data() + i * bytes, row, static_cast<size_t>(bytes));
    if (rows.type != DType::i8) continue;
    std::memcpy(&scale.emplace_back(), row + row_bytes - 8, 4);
    std::memcpy(&offset.emplace_back(), row + row_bytes - 4, 4);
  }
  std::map<std::string, StoredTensor> tensors;
  tensors[table.name + ".keys"] = make_tensor<int64_t>({count}, keys);
  tensors[table.name + ".rows"] = StoredTensor{rows.type, {count, rows.dim}, std::move(values)};
  if (rows.type == DType::i8) {
    tensors[table.name + ".scale"] = make_tensor<float>({count}, scale);
    tensors[table.name + ".offset"] = make_tensor<float>({count}, offset);
  }
  if (!erased.empty())  // direct tables have no such tensor
    tensors[table.name + ".erase"] = make_tensor<int64_t>({static_cast<int64_t>(erased.size())}, erased);
  return Weights::from_tensors(std::move(tensors));
}

inline void add(const TableChanges& more, TableChanges& sum) {
  for (int64_t TableChanges::*member : {&TableChanges::updated, &TableChanges::inserted, &TableChanges::erased,
                                        &TableChanges::absent, &TableChanges::full, &TableChanges::failed})
    sum.*member += more.*member;
}

}  // namespace detail

/// Follows the changes of tables in a store until its destruction. For any threads at once.
class ChangeFollower {
 public:
  using Counters = std::map<std::string, FollowCounters>;
  using Positions = std::map<std::string, std::string>;

  /// `rows` are Tables, updatable except for tables in stores, or a ServedModel; they must outlive the follower, and
  /// need not be in `store`. Tables in stores that begin now forget their present rows. Throws invalid_argument for a
  /// null store, unknown tables, tables with other rows, and invalid positions; store_error if the store does not
  /// answer.
  template <class Rows>
  ChangeFollower(std::shared_ptr<ParameterStore> store, std::vector<StoredTable> tables, Rows& rows,
                 FollowOptions options = {})
      : ChangeFollower(
            std::move(store), std::move(tables), [&rows](const Weights& delta) { return rows.refresh(delta); },
            [&rows](const std::string& table) { rows.forget_rows(table); }, std::move(options)) {}
  ~ChangeFollower() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  ChangeFollower(const ChangeFollower&) = delete;
  ChangeFollower& operator=(const ChangeFollower&) = delete;

  Counters counters() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counters_;
  }
  /// The positions behind the applied changes. Save them with a copy of the tables' rows that is made later, and give
  /// them to FollowOptions::positions when this copy is loaded.
  Positions positions() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return positions_;
  }

 private:
  using Refresh = std::function<UpdateReport(const Weights&)>;
  using Forget = std::function<void(const std::string&)>;

  ChangeFollower(std::shared_ptr<ParameterStore> store, std::vector<StoredTable> tables, Refresh refresh, Forget forget,
                 FollowOptions options)
      : store_(std::move(store)),
        tables_(std::move(tables)),
        refresh_(std::move(refresh)),
        forget_(std::move(forget)),
        options_(std::move(options)) {
    if (store_ == nullptr) throw invalid_argument("ChangeFollower", "a store", "none");
    std::vector<FollowedTable> followed;
    for (const StoredTable& table : tables_) {
      refresh_(detail::update_of(table, {}));  // throws for what does not fit
      const auto given = options_.positions.find(table.name);
      const bool is_given = given != options_.positions.end();
      positions_[table.name] =
          is_given ? given->second
                   : store_->end_of_changes(table.name, std::chrono::steady_clock::now() + options_.store_timeout);
      if (!is_given) forget_(table.name);
      counters_[table.name] = {};
      followed.push_back({table, positions_[table.name]});
    }
    for (const auto& [name, position] : options_.positions)
      if (positions_.count(name) == 0)
        throw invalid_argument("ChangeFollower: position of '" + name + "'", "a table that is followed", "another");
    reader_ = store_->read_changes(std::move(followed));
    thread_ = std::thread([this] { work(); });
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_over_) {
      lock.unlock();
      const bool has_more = turn();
      lock.lock();
      if (!has_more) wake_.wait_for(lock, options_.interval, [&] { return is_over_; });
    }
  }
  /// Reads and applies changes. Returns whether there are more to read at once; reads nothing new before all are
  /// applied.
  bool turn() {
    if (read_.empty()) read_ = reader_->read(std::chrono::steady_clock::now() + options_.store_timeout);
    bool all_applied = true, has_more = false;
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (!read_[t].is_answer) continue;
      all_applied = apply(tables_[t], read_[t]) && all_applied;
      has_more = has_more || read_[t].has_more;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!all_applied) return false;
    for (size_t t = 0; t < tables_.size(); ++t) counters_[tables_[t].name].unanswered += !read_[t].is_answer;
    read_.clear();
    return has_more;
  }
  /// Returns whether the changes are applied, now or before.
  bool apply(const StoredTable& table, ReadChanges& read) {
    FollowCounters more;
    try {
      if (read.has_lost) forget_(table.name);
      std::vector<const RowChanges*> all;
      for (const RowChanges& changes : read.changes) all.push_back(&changes);
      if (!all.empty()) more = applied(table, all);
    } catch (const std::exception&) {  // a device that fails, or no model: it may be back later
      const std::lock_guard<std::mutex> lock(mutex_);
      ++counters_[table.name].failed;
      return false;
    }
    const bool has_lost = std::exchange(read.has_lost, false);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      FollowCounters& counters = counters_[table.name];
      detail::add(more.changes, counters.changes);
      counters.entries += more.entries;
      counters.refused += more.refused;
      counters.garbage += std::exchange(read.garbage, 0);
      counters.lost += has_lost;
      positions_[table.name] = read.position;
    }
    read.changes.clear();
    if (has_lost && options_.on_lost) options_.on_lost(table.name);
    return true;
  }
  /// Applies all changes at once or, if that is refused, one by one.
  FollowCounters applied(const StoredTable& table, const std::vector<const RowChanges*>& all) {
    FollowCounters more;
    try {
      detail::add(refresh_(detail::update_of(table, all))[table.name], more.changes);
      more.entries = static_cast<int64_t>(all.size());
    } catch (const invalid_argument&) {
      if (all.size() == 1) {
        more.refused = 1;
        return more;
      }
      for (const RowChanges* changes : all) {
        const FollowCounters one = applied(table, {changes});
        detail::add(one.changes, more.changes);
        more.entries += one.entries;
        more.refused += one.refused;
      }
    }
    return more;
  }

  const std::shared_ptr<ParameterStore> store_;
  const std::vector<StoredTable> tables_;
  const Refresh refresh_;
  const Forget forget_;
  const FollowOptions options_;
  std::unique_ptr<ChangeReader> reader_;
  std::vector<ReadChanges> read_;  // not all applied yet; the thread's own

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  Counters counters_;
  Positions positions_;
  bool is_over_ = false;
  std::thread thread_;
};

}}  // namespace warprank::v0
