// SPDX-License-Identifier: Apache-2.0
#include "warprank/store/stored_value.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/memory_store.hpp"
#include "support/message_of.hpp"
#include "support/store_testing.hpp"

namespace warprank { namespace {

using test_support::bytes_of_row;
using test_support::message_of;

std::vector<unsigned char> value_of(const StoredRows& rows, int64_t key) {
  std::vector<unsigned char> value(static_cast<size_t>(stored_value_bytes(rows)));
  write_stored_value(rows, key, bytes_of_row(rows, key).data(), value.data());
  return value;
}

TEST(StoredValue, GivesBackTheRow) {
  for (const StoredRows& rows : test_support::rows_of_all_types()) {
    std::vector<unsigned char> row(static_cast<size_t>(rows.row_bytes()));
    EXPECT_TRUE(read_stored_value(rows, -7, value_of(rows, -7), row.data()));
    EXPECT_EQ(row, bytes_of_row(rows, -7));
  }
}

// Other programs write and read them.
TEST(StoredValue, HasTheBytesThatItsFormatSays) {
  const StoredRows rows{DType::f16, 3};
  const unsigned char row[] = {1, 2, 3, 4, 5, 6};
  std::vector<unsigned char> value(14);
  write_stored_value(rows, 0x0102030405060708, row, value.data());
  EXPECT_THAT(std::vector<unsigned char>(value.begin(), value.begin() + 4), testing::ElementsAre(0xA7, 1, 1, 0));
  EXPECT_THAT(std::vector<unsigned char>(value.begin() + 8, value.end()), testing::ElementsAreArray(row));

  // The checksum of hash_table/detail/checksum.hpp by hand: one line, of one word.
  const auto mix = [](uint64_t h, uint64_t w) {
    h ^= w;
    return (h << 29 | h >> 35) * 0x9e3779b97f4a7c15u;
  };
  uint64_t block = 6;
  for (uint64_t lane = 0; lane < 8; ++lane) block = mix(block, mix(lane, lane == 0 ? 0x060504030201u : 0));
  block ^= block >> 32;
  const uint64_t hash = mix(mix(block, 0x0102030405060708u), 3 << 8 | 1);
  const auto checksum = static_cast<uint32_t>(hash ^ hash >> 32);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(value[4 + i], checksum >> (8 * i) & 0xff);
}

TEST(StoredValue, IsRefusedWithAnyByteChangedOrOfAnotherLength) {
  for (const StoredRows& rows : test_support::rows_of_all_types()) {
    const std::vector<unsigned char> value = value_of(rows, 5);
    std::vector<unsigned char> row(static_cast<size_t>(rows.row_bytes()), 0xEE);
    const std::vector<unsigned char> untouched = row;
    for (size_t i = 0; i < value.size(); ++i)
      for (const int flip : {1, 0x80, 0xff}) {
        std::vector<unsigned char> changed = value;
        changed[i] = static_cast<unsigned char>(changed[i] ^ flip);
        EXPECT_FALSE(read_stored_value(rows, 5, changed, row.data())) << i;
      }
    for (size_t size = 0; size < value.size(); ++size)
      EXPECT_FALSE(read_stored_value(rows, 5, {value.data(), static_cast<int64_t>(size)}, row.data()));
    std::vector<unsigned char> longer = value;
    longer.push_back(0);
    EXPECT_FALSE(read_stored_value(rows, 5, longer, row.data()));
    EXPECT_EQ(row, untouched);
  }
}

TEST(StoredValue, IsRefusedUnderAnotherKeyAndAsAnotherTablesRow) {
  unsigned char row[16];
  const std::vector<unsigned char> value = value_of({DType::f16, 8}, 5);
  EXPECT_FALSE(read_stored_value({DType::f16, 8}, 6, value, row));
  EXPECT_FALSE(read_stored_value({DType::bf16, 8}, 5, value, row));  // as many bytes
  EXPECT_FALSE(read_stored_value({DType::f32, 4}, 5, value, row));
  EXPECT_FALSE(read_stored_value({DType::f16, 7}, 5, value, row));
  EXPECT_FALSE(read_stored_value({DType::i8, 8}, 5, value, row));
  // I8 rows of 5 to 8 elements have as many bytes.
  EXPECT_FALSE(read_stored_value({DType::i8, 7}, 5, value_of({DType::i8, 8}, 5), row));
  EXPECT_TRUE(read_stored_value({DType::f16, 8}, 5, value, row));
}

TEST(StoredTable, ThatNoStoreCanHaveIsRefused) {
  EXPECT_EQ(message_of([] { check_stored_table({"film", {DType::f16, 512}}); }), "");
  EXPECT_EQ(message_of([] { check_stored_table({"", {DType::f16, 1}}); }), "stored table: expected a name, got none");
  for (const int64_t dim : {int64_t{0}, int64_t{-1}, int64_t{513}, INT64_MAX})
    EXPECT_EQ(
        message_of([&] {
          check_stored_table({"film", {DType::f16, dim}});
        }),
        "stored table 'film': dim: expected 1 to as many as 1024 bytes hold, got " + std::to_string(dim) + " of F16");
  EXPECT_EQ(message_of([] {
              check_stored_table({"film", {DType::i64, 1}});
            }),
            "stored table 'film': type: expected F32, F16, BF16 or I8, got I64");
}

TEST(MemoryStore, IsAStore) {
  test_support::MemoryStore store;
  test_support::expect_store(store);
}

TEST(MemoryStore, ThatIsAwayFailsByTheDeadline) {
  test_support::MemoryStore store;
  const StoredTable table{"film", {DType::f32, 2}};
  store.create(table, test_support::soon());
  test_support::put(store, table, {1});
  store.is_away = true;
  const Deadline deadline = test_support::in(std::chrono::milliseconds(5));
  EXPECT_THAT(test_support::get(store, table, {1, 2}, deadline).statuses, testing::Each(StoreStatus::failed));
  EXPECT_THAT(message_of([&] { store.describe("film", deadline); }), testing::HasSubstr("none in time"));
  store.is_away = false;
  EXPECT_EQ(test_support::get(store, table, {1}).statuses[0], StoreStatus::ok);
}

}}  // namespace warprank
