// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Puts all rows of a file into a store, goes on where an earlier run was ended, and reads all of them back.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "row_source.hpp"
#include "warprank/core/file_writer.hpp"
#include "warprank/hash_table/detail/checksum.hpp"
#include "warprank/store/parameter_store.hpp"

namespace load_redis {

using warprank::StoreStatus;

struct LoadOptions {
  std::string state = {};             ///< a file that tells how far it has come; empty: none
  std::string identity = {};          ///< of what is loaded: a state of something else is refused
  int64_t batch = 8192;               ///< rows of a call
  std::chrono::seconds patience{30};  ///< without a row that is taken, then it ends
  std::function<void(const char* what, int64_t done, int64_t of)> progress = nullptr;  ///< about once a second
};

/// What was read back.
struct Verified {
  int64_t rows = 0;  ///< of the file
  int64_t same = 0, absent = 0, damaged = 0, different = 0;
  uint64_t file_checksum = 0, store_checksum = 0;  ///< sums over rows, each with its key
  bool is_whole() const { return same == rows && file_checksum == store_checksum; }
};

class Loader {
 public:
  Loader(warprank::ParameterStore& store, warprank::StoredTable table, const RowSource& source, LoadOptions options)
      : store_(store), table_(std::move(table)), source_(source), options_(std::move(options)) {}

  /// Throws invalid_argument for another file's state, and for a table that the store has with other rows; store_error
  /// when the store does not answer, and then goes on from there the next time.
  void load() {
    auto [at, done] = read_state();
    tell("loaded", done);
    create_table();
    Rows rows;
    Clock::time_point saved = Clock::now();
    while (at < source_.end()) {
      const int64_t next = source_.read(at, options_.batch, rows);
      try {
        put(rows, done);
      } catch (const warprank::store_error&) {
        save_state(at, done);
        throw;
      }
      at = next;
      done += static_cast<int64_t>(rows.keys.size());
      if (Clock::now() - saved < std::chrono::seconds(1)) continue;
      saved = Clock::now();
      save_state(at, done);
      tell("loaded", done);
    }
    save_state(at, done);
  }

  /// Throws store_error when the store does not answer.
  Verified verify() {
    Verified result;
    result.rows = source_.size();
    Rows rows;
    std::vector<unsigned char> got;
    Clock::time_point told = Clock::now();
    int64_t done = 0;
    tell("verified", done);
    for (int64_t at = 0; at < source_.end();) {
      at = source_.read(at, options_.batch, rows);
      got.resize(rows.bytes.size());
      const std::vector<StoreStatus> statuses =
          until_answered(rows.keys, done, [&](const std::vector<int64_t>& keys, const std::vector<size_t>& places) {
            std::vector<unsigned char> some(keys.size() * row_bytes());
            std::vector<StoreStatus> some_statuses(keys.size(), StoreStatus::failed);
            store_.get(table_, keys, some.data(), some_statuses.data(), Clock::now() + call_time);
            for (size_t i = 0; i < keys.size(); ++i)
              std::copy_n(some.begin() + static_cast<int64_t>(i * row_bytes()), row_bytes(),
                          got.begin() + static_cast<int64_t>(places[i] * row_bytes()));
            return some_statuses;
          });
      for (size_t i = 0; i < statuses.size(); ++i) compare(rows, i, statuses[i], got, result);
      done += static_cast<int64_t>(rows.keys.size());
      if (Clock::now() - told < std::chrono::seconds(1)) continue;
      told = Clock::now();
      tell("verified", done);
    }
    return result;
  }

  /// There is nothing to go on with.
  void remove_state() const {
    if (!options_.state.empty()) std::filesystem::remove(options_.state);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds call_time{5};
  static constexpr std::chrono::milliseconds pause{50};  ///< before the store is asked again

  size_t row_bytes() const { return static_cast<size_t>(table_.rows.row_bytes()); }
  void tell(const char* what, int64_t done) const {
    if (options_.progress) options_.progress(what, done, source_.size());
  }
  std::string head() const { return "warprank load_redis 1\n" + table_.name + ", " + options_.identity + "\n"; }

  /// The place in the file, and how many rows are before it.
  std::pair<int64_t, int64_t> read_state() const {
    if (options_.state.empty()) return {0, 0};
    std::ifstream file(options_.state, std::ios::binary);
    if (!file) return {0, 0};
    const std::string text(std::istreambuf_iterator<char>(file), {}), head = this->head();
    long long at = 0, done = 0;
    int length = 0;
    if (text.substr(0, head.size()) != head ||
        std::sscanf(text.c_str() + head.size(), "%lld %lld\n%n", &at, &done, &length) != 2 ||
        head.size() + static_cast<size_t>(length) != text.size() || at < 0 || at > source_.end() || done < 0)
      throw warprank::invalid_argument(
          "state in '" + options_.state + "'",
          "that of loading " + head.substr(head.find('\n') + 1, head.size()) + "or no such file, to begin anew",
          "'" + text.substr(0, 200) + "'");
    return {at, done};
  }
  void save_state(int64_t at, int64_t done) const {
    if (options_.state.empty()) return;
    const std::string text = head() + std::to_string(at) + " " + std::to_string(done) + "\n";
    warprank::detail::FileWriter file(options_.state);
    file.write(text.data(), static_cast<int64_t>(text.size()));
    file.commit();
  }

  void put(const Rows& rows, int64_t done) {
    check_unique(rows.keys);
    until_answered(rows.keys, done, [&](const std::vector<int64_t>& keys, const std::vector<size_t>& places) {
      std::vector<unsigned char> some;
      const unsigned char* bytes = rows.bytes.data();
      if (keys.size() < rows.keys.size()) {
        for (const size_t place : places)
          some.insert(some.end(), bytes + place * row_bytes(), bytes + (place + 1) * row_bytes());
        bytes = some.data();
      }
      std::vector<StoreStatus> statuses(keys.size(), StoreStatus::failed);
      store_.put(table_, keys, bytes, statuses.data(), Clock::now() + call_time);
      return statuses;
    });
  }
  static void check_unique(std::vector<int64_t> keys) {
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end())
      throw warprank::invalid_argument("key " + std::to_string(*twice), "one row", "two, at least");
  }

  /// Makes the table, as soon as the store answers.
  void create_table() {
    const Clock::time_point end = Clock::now() + options_.patience;
    for (;;) {
      try {
        return store_.create(table_, Clock::now() + call_time);
      } catch (const warprank::store_error&) {
        if (Clock::now() > end) throw;
      }
      std::this_thread::sleep_for(pause);
    }
  }

  /// Calls ask(keys, places) for those that have no answer yet, as long as some get one.
  template <class Ask>
  std::vector<StoreStatus> until_answered(const std::vector<int64_t>& all, int64_t done, const Ask& ask) {
    std::vector<StoreStatus> statuses(all.size(), StoreStatus::failed);
    std::vector<size_t> places(all.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = i;
    Clock::time_point last_answer = Clock::now();
    while (!places.empty()) {
      std::vector<int64_t> keys;
      for (const size_t place : places) keys.push_back(all[place]);
      const std::vector<StoreStatus> answers = ask(keys, places);
      std::vector<size_t> open;
      for (size_t i = 0; i < places.size(); ++i) {
        statuses[places[i]] = answers[i];
        if (answers[i] == StoreStatus::failed) open.push_back(places[i]);
      }
      if (open.size() < places.size()) last_answer = Clock::now();
      if (!open.empty()) {
        if (Clock::now() - last_answer > options_.patience)
          throw warprank::store_error("table '" + table_.name + "', behind row " + std::to_string(done) + " of " +
                                          std::to_string(source_.size()),
                                      "an answer of the store",
                                      "none for " + std::to_string(options_.patience.count()) + " s");
        std::this_thread::sleep_for(pause);
      }
      places = std::move(open);
    }
    return statuses;
  }

  void compare(const Rows& rows, size_t i, StoreStatus status, const std::vector<unsigned char>& got,
               Verified& result) const {
    const auto checksum = [&](const unsigned char* row) {
      return warprank::detail::checksum_mix(warprank::detail::checksum_of_block(row, table_.rows.row_bytes()),
                                            static_cast<uint64_t>(rows.keys[i]));
    };
    const unsigned char* of_file = rows.bytes.data() + i * row_bytes();
    const unsigned char* of_store = got.data() + i * row_bytes();
    result.file_checksum += checksum(of_file);
    result.absent += status == StoreStatus::absent;
    result.damaged += status == StoreStatus::damaged;
    if (status != StoreStatus::ok) return;
    result.store_checksum += checksum(of_store);
    ++(std::equal(of_file, of_file + row_bytes(), of_store) ? result.same : result.different);
  }

  warprank::ParameterStore& store_;
  const warprank::StoredTable table_;
  const RowSource& source_;
  const LoadOptions options_;
};

}  // namespace load_redis
