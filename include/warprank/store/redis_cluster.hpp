// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows in a Redis Cluster; needs hiredis (libhiredis-dev), in CMake the target warprank::redis.
///
///     RedisCluster store({.nodes = {{"10.0.0.1", 6379}, {"10.0.0.2", 6379}}});
///
/// Keys and values are those of docs/TIERS.md. A table's keys are spread over all slots.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "warprank/store/parameter_store.hpp"
#include "warprank/store/redis/change_stream.hpp"
#include "warprank/store/redis/cluster.hpp"
#include "warprank/store/stored_value.hpp"

namespace warprank { inline namespace v0 {

class RedisCluster final : public ParameterStore {
 public:
  using Options = redis::ClusterOptions;

  /// Does not connect yet. Throws invalid_argument for options that make no sense.
  explicit RedisCluster(Options options) : cluster_(checked(std::move(options))) {}

  std::optional<StoredRows> describe(const std::string& table, Deadline deadline) override {
    redis::Requests requests;
    requests.add_for_key("GET", description_key(table));
    std::optional<StoredRows> rows;
    bool is_there = false;
    std::string got;
    const std::string trouble = cluster_.run(requests, deadline, [&](int64_t, const redisReply* reply) {
      if (reply == nullptr) return;
      is_there = true;
      if (reply->type == REDIS_REPLY_NIL) return;
      got = "'" + std::string(redis::text_of(*reply).substr(0, 80)) + "'";
      if (reply->type == REDIS_REPLY_STRING) rows = rows_of(redis::text_of(*reply));
    });
    if (!is_there) throw store_error("stored table '" + table + "'", "an answer of the cluster", trouble);
    if (!rows && !got.empty()) throw store_error("stored table '" + table + "'", "its description", got);
    return rows;
  }

  void create(const StoredTable& table, Deadline deadline) override {
    check_stored_table(table);
    const std::string text = description_of(table.rows);
    redis::Requests requests;
    requests.add_for_key("SET", description_key(table.name), text, "NX");
    std::string error = "none";
    bool is_there = false;
    const std::string trouble = cluster_.run(requests, deadline, [&](int64_t, const redisReply* reply) {
      is_there = reply != nullptr && (reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_NIL);
      if (reply != nullptr) error = std::string(redis::text_of(*reply));
    });
    if (!is_there)
      throw store_error("stored table '" + table.name + "'", "to be made", trouble.empty() ? error : trouble);
    const std::optional<StoredRows> rows = describe(table.name, deadline);
    if (rows != table.rows)
      throw invalid_argument("stored table '" + table.name + "'",
                             "rows as the store has them, " + (rows ? description_of(*rows) : "which lost them"), text);
  }

  void get(const StoredTable& table, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
           Deadline deadline) override {
    const int64_t row_bytes = table.rows.row_bytes();
    run(
        table, keys, statuses, deadline,
        [](redis::Requests& requests, std::string_view key, int64_t) { requests.add_for_key("GET", key); },
        [&](int64_t i, const redisReply& reply) {
          if (reply.type == REDIS_REPLY_NIL) return StoreStatus::absent;
          if (reply.type == REDIS_REPLY_ERROR)
            return redis::text_of(reply).substr(0, 9) == "WRONGTYPE" ? StoreStatus::damaged : StoreStatus::failed;
          if (reply.type != REDIS_REPLY_STRING) return StoreStatus::failed;
          const Span<const unsigned char> value(reinterpret_cast<const unsigned char*>(reply.str),
                                                static_cast<int64_t>(reply.len));
          return read_stored_value(table.rows, keys[i], value, rows + i * row_bytes) ? StoreStatus::ok
                                                                                     : StoreStatus::damaged;
        });
  }

  void put(const StoredTable& table, Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses,
           Deadline deadline) override {
    std::string value(static_cast<size_t>(stored_value_bytes(table.rows)), '\0');
    run(
        table, keys, statuses, deadline,
        [&](redis::Requests& requests, std::string_view key, int64_t i) {
          write_stored_value(table.rows, keys[i], rows + i * table.rows.row_bytes(),
                             reinterpret_cast<unsigned char*>(value.data()));
          requests.add_for_key("SET", key, value);
        },
        [](int64_t, const redisReply& reply) {
          return reply.type == REDIS_REPLY_STATUS ? StoreStatus::ok : StoreStatus::failed;
        });
  }

  void erase(const StoredTable& table, Span<const int64_t> keys, StoreStatus* statuses, Deadline deadline) override {
    run(
        table, keys, statuses, deadline,
        [](redis::Requests& requests, std::string_view key, int64_t) { requests.add_for_key("UNLINK", key); },
        [](int64_t, const redisReply& reply) {
          if (reply.type != REDIS_REPLY_INTEGER) return StoreStatus::failed;
          return reply.integer > 0 ? StoreStatus::ok : StoreStatus::absent;
        });
  }

  std::unique_ptr<ChangePublisher> publish_changes(const StoredTable& table) override {
    check_stored_table(table);
    return std::make_unique<redis::StreamPublisher>(cluster_, table);
  }
  std::unique_ptr<ChangeReader> read_changes(std::vector<FollowedTable> tables) override {
    return std::make_unique<redis::StreamReader>(cluster_, std::move(tables));
  }
  std::string end_of_changes(const std::string& table, Deadline deadline) override {
    redis::Requests requests;
    requests.add_for_key("GET", redis::last_entry_key(table));
    std::optional<redis::EntryId> end;
    std::string got;
    const std::string trouble = cluster_.run(requests, deadline, [&](int64_t, const redisReply* reply) {
      if (reply == nullptr) return;
      got = "'" + std::string(redis::text_of(*reply).substr(0, 80)) + "'";
      if (reply->type == REDIS_REPLY_NIL) end = redis::EntryId();
      if (reply->type == REDIS_REPLY_STRING) end = redis::EntryId::from(redis::text_of(*reply));
    });
    if (!end)
      throw store_error("end of changes of table '" + table + "'", "an entry's id", got.empty() ? trouble : got);
    return end->text();
  }

  const redis::ClusterCounters& counters() { return cluster_.counters(); }

  /// The name of a key: its 16 hexadecimal digits in braces, which alone choose the slot, then the table's name, which
  /// may be any bytes.
  static std::string key_name(const std::string& table, int64_t key) {
    std::string name = "{0000000000000000}";
    auto rest = static_cast<uint64_t>(key);
    for (size_t i = 16; i > 0; --i, rest >>= 4) name[i] = "0123456789abcdef"[rest & 15];
    return name + table;
  }
  static std::string description_key(const std::string& table) { return "{warprank:table}" + table; }

 private:
  static Options checked(Options options) {
    Problems problems;
    const auto expect = [&](bool holds, const char* what, const char* expected, int64_t got) {
      if (!holds) problems.add(std::string("RedisCluster: ") + what, expected, std::to_string(got));
    };
    expect(!options.nodes.empty(), "nodes", "at least 1", 0);
    for (const redis::Address& address : options.nodes)
      expect(address.port > 0 && address.port < 65536, "port", "1 to 65535", address.port);
    expect(options.connect_timeout.count() > 0, "connect_timeout", "more than 0", options.connect_timeout.count());
    expect(options.command_timeout.count() > 0, "command_timeout", "more than 0", options.command_timeout.count());
    expect(options.longest_back_off.count() > 0, "longest_back_off", "more than 0", options.longest_back_off.count());
    expect(options.most_in_flight > 0, "most_in_flight", "more than 0", options.most_in_flight);
    expect(options.breaker.failures > 0, "breaker.failures", "more than 0", options.breaker.failures);
    expect(options.changes.replicas >= 0, "changes.replicas", "0 or more", options.changes.replicas);
    expect(options.changes.most_entries > 0, "changes.most_entries", "more than 0", options.changes.most_entries);
    const int64_t remember = options.changes.remember_publishers.count();
    expect(remember > 0, "changes.remember_publishers", "more than 0", remember);
    problems.throw_if_any();
    return options;
  }

  static std::string description_of(const StoredRows& rows) {
    return std::string("warprank 1 ") + name_of(rows.type) + " " + std::to_string(rows.dim);
  }
  /// Nothing if the text is no description, or describes rows that no table can have.
  static std::optional<StoredRows> rows_of(std::string_view text) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::i8}) {
      const std::string start = std::string("warprank 1 ") + name_of(type) + " ";
      if (text.substr(0, start.size()) != start) continue;
      const std::string digits(text.substr(start.size()));
      if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos) break;
      const StoredRows rows{type, std::atoi(digits.c_str())};
      if (rows.dim > 0 && rows.row_bytes() <= hash_table::max_row_bytes) return rows;
    }
    return std::nullopt;
  }

  /// Calls add(requests, name, i) for the keys of a chunk, then status_of(i, reply) for each key that was answered.
  template <class Add, class StatusOf>
  void run(const StoredTable& table, Span<const int64_t> keys, StoreStatus* statuses, Deadline deadline, const Add& add,
           const StatusOf& status_of) {
    constexpr int64_t most = 8192;  // keys, whose commands are in memory at once
    redis::Requests requests;
    for (int64_t begin = 0; begin < keys.size(); begin += most) {
      const int64_t count = std::min(most, keys.size() - begin);
      requests.clear();
      for (int64_t i = begin; i < begin + count; ++i) add(requests, key_name(table.name, keys[i]), i);
      cluster_.run(requests, deadline, [&](int64_t i, const redisReply* reply) {
        statuses[begin + i] = reply == nullptr ? StoreStatus::failed : status_of(begin + i, *reply);
      });
    }
  }

  redis::Cluster cluster_;
};

}}  // namespace warprank::v0
