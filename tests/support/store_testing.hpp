// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What every ParameterStore does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "message_of.hpp"
#include "row_bytes.hpp"
#include "warprank/store/parameter_store.hpp"
#include "warprank/store/stored_value.hpp"

namespace warprank::test_support {

inline Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }
/// Only what hangs takes as long.
constexpr std::chrono::milliseconds a_long_time = std::chrono::minutes(1);
inline Deadline soon() { return in(a_long_time); }

/// A call's answers.
struct Answers {
  std::vector<StoreStatus> statuses;
  std::vector<unsigned char> rows;

  int64_t count(StoreStatus status) const { return std::count(statuses.begin(), statuses.end(), status); }
};

inline Answers get(ParameterStore& store, const StoredTable& table, const std::vector<int64_t>& keys,
                   Deadline deadline = soon()) {
  Answers answers{std::vector<StoreStatus>(keys.size(), StoreStatus::failed),
                  std::vector<unsigned char>(keys.size() * static_cast<size_t>(table.rows.row_bytes()), 0xEE)};
  store.get(table, keys, answers.rows.data(), answers.statuses.data(), deadline);
  return answers;
}
inline Answers put(ParameterStore& store, const StoredTable& table, const std::vector<int64_t>& keys,
                   int64_t version = 0, Deadline deadline = soon()) {
  Answers answers{std::vector<StoreStatus>(keys.size(), StoreStatus::failed), bytes_of_rows(table.rows, keys, version)};
  store.put(table, keys, answers.rows.data(), answers.statuses.data(), deadline);
  return answers;
}
inline Answers erase(ParameterStore& store, const StoredTable& table, const std::vector<int64_t>& keys) {
  Answers answers{std::vector<StoreStatus>(keys.size(), StoreStatus::failed), {}};
  store.erase(table, keys, answers.statuses.data(), soon());
  return answers;
}

inline std::vector<int64_t> keys_from(int64_t first, int64_t count) {
  std::vector<int64_t> keys(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) keys[static_cast<size_t>(i)] = first + i;
  return keys;
}

/// What all stores have in common; `store` has none of these tables.
inline void expect_store(ParameterStore& store) {
  using testing::Each;
  using testing::ElementsAre;
  for (const StoredRows& rows : rows_of_all_types()) {
    SCOPED_TRACE(std::string(name_of(rows.type)) + " " + std::to_string(rows.dim));
    const StoredTable table{std::string("table {of} \r\n ") + name_of(rows.type) + std::to_string(rows.dim), rows};
    EXPECT_EQ(store.describe(table.name, soon()), std::nullopt);
    store.create(table, soon());
    store.create(table, soon());  // is there
    EXPECT_EQ(store.describe(table.name, soon()), rows);
    const StoredTable other{table.name, {rows.type, rows.dim + 1 > 256 ? 1 : rows.dim + 1}};
    EXPECT_THAT(message_of([&] { store.create(other, soon()); }), testing::HasSubstr("expected rows as the store has"));

    const std::vector<int64_t> keys = {0, -1, 1, INT64_MIN, INT64_MAX, 0x7d7b7d7b0a0d, 42};
    EXPECT_THAT(get(store, table, keys).statuses, Each(StoreStatus::absent));
    EXPECT_THAT(put(store, table, keys).statuses, Each(StoreStatus::ok));
    Answers got = get(store, table, keys);
    EXPECT_THAT(got.statuses, Each(StoreStatus::ok));
    EXPECT_EQ(got.rows, bytes_of_rows(rows, keys));
    put(store, table, {42}, 1);
    EXPECT_EQ(get(store, table, {42, 1, 42}).rows, [&] {
      std::vector<unsigned char> all = bytes_of_row(rows, 42, 1);
      for (const auto& row : {bytes_of_row(rows, 1), bytes_of_row(rows, 42, 1)})
        all.insert(all.end(), row.begin(), row.end());
      return all;
    }());
    EXPECT_THAT(erase(store, table, {42, 43}).statuses, ElementsAre(StoreStatus::ok, StoreStatus::absent));
    got = get(store, table, {1, 42});
    EXPECT_THAT(got.statuses, ElementsAre(StoreStatus::ok, StoreStatus::absent));
    EXPECT_TRUE(std::all_of(got.rows.begin() + rows.row_bytes(), got.rows.end(), [](int b) { return b == 0xEE; }));
    // As if it was a table of other rows.
    EXPECT_THAT(get(store, other, {1, 2}).statuses, ElementsAre(StoreStatus::damaged, StoreStatus::absent));
    EXPECT_THAT(get(store, table, {}).statuses, ElementsAre());
    EXPECT_THAT(put(store, table, {}).statuses, ElementsAre());
    EXPECT_THAT(erase(store, table, {}).statuses, ElementsAre());
  }
  EXPECT_THAT(message_of([&] {
                store.create({"x", {DType::f32, 257}}, soon());
              }),
              testing::HasSubstr("stored table 'x': dim: expected 1 to as many as 1024 bytes hold, got 257 of F32"));
}

}  // namespace warprank::test_support
