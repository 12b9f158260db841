// SPDX-License-Identifier: Apache-2.0
#include "warprank/store/row_changes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/memory_store.hpp"
#include "support/message_of.hpp"
#include "support/store_testing.hpp"

namespace warprank { namespace {

using namespace test_support;
using testing::ElementsAre;
using testing::IsEmpty;

Span<const unsigned char> bytes_of(const std::string& text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), static_cast<int64_t>(text.size())};
}
RowChanges changes_of(const StoredRows& rows, const std::vector<int64_t>& keys, const std::vector<int64_t>& erased,
                      int64_t version = 0) {
  return {keys, bytes_of_rows(rows, keys, version), erased};
}

TEST(RowChanges, AreReadAsTheyWereWritten) {
  for (const StoredRows& rows : rows_of_all_types())
    for (const RowChanges& changes : {RowChanges{}, changes_of(rows, {7}, {}), changes_of(rows, {}, {-1, INT64_MIN}),
                                      changes_of(rows, keys_from(-50, 200), keys_from(INT64_MAX - 9, 10))}) {
      const std::string text = write_row_changes(rows, changes);
      RowChanges read;
      ASSERT_TRUE(read_row_changes(rows, bytes_of(text), read));
      EXPECT_EQ(read.keys, changes.keys);
      EXPECT_EQ(read.erased, changes.erased);
      EXPECT_EQ(read.rows, changes.rows);
    }
}

TEST(RowChanges, HaveTheBytesThatTheHeaderSays) {
  const std::string text = write_row_changes({DType::f16, 3}, changes_of({DType::f16, 3}, {5}, {9}));
  ASSERT_EQ(text.size(), 32u + 8 + 8 + 6);
  EXPECT_EQ(text.substr(0, 4), std::string("\xA8\x01\x01\x00", 4));
  EXPECT_EQ(text[8], 3);
  EXPECT_EQ(text[16], 1);
  EXPECT_EQ(text[24], 1);
  EXPECT_EQ(text[32], 5);
  EXPECT_EQ(text[40], 9);
}

TEST(RowChanges, AreNoneWhereAnythingIsWrong) {
  const StoredRows rows{DType::i8, 13};
  const std::string good = write_row_changes(rows, changes_of(rows, {1, 2, 3}, {4}));
  RowChanges read;
  for (size_t size = 0; size < good.size(); ++size)
    ASSERT_FALSE(read_row_changes(rows, bytes_of(good.substr(0, size)), read)) << size;
  EXPECT_FALSE(read_row_changes(rows, bytes_of(good + "x"), read));
  for (size_t i = 0; i < good.size(); ++i)
    for (const int bit : {0, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << bit);
      ASSERT_FALSE(read_row_changes(rows, bytes_of(bad), read)) << i;
    }
  EXPECT_FALSE(read_row_changes({DType::i8, 12}, bytes_of(good), read));  // a row of as many bytes
  EXPECT_FALSE(read_row_changes({DType::f32, 6}, bytes_of(good), read));
  EXPECT_THAT(read.keys, IsEmpty());
}

TEST(RowChanges, ComeInPartsWhatIsErasedFirst) {
  const StoredRows rows{DType::f32, 2};
  const RowChanges all = changes_of(rows, keys_from(0, 5), {10, 11, 12});
  RowChanges sum;
  std::vector<size_t> sizes;
  each_part(rows, all, 2, [&](const RowChanges& part) {
    sizes.push_back(part.keys.size() + part.erased.size());
    sum.keys.insert(sum.keys.end(), part.keys.begin(), part.keys.end());
    sum.rows.insert(sum.rows.end(), part.rows.begin(), part.rows.end());
    sum.erased.insert(sum.erased.end(), part.erased.begin(), part.erased.end());
  });
  EXPECT_THAT(sizes, ElementsAre(2, 1, 2, 2, 1));
  EXPECT_EQ(sum.keys, all.keys);
  EXPECT_EQ(sum.rows, all.rows);
  EXPECT_EQ(sum.erased, all.erased);
}

// With docs/TIERS.md.
TEST(RowChanges, GoToTheStoreAndToThoseWhoFollow) {
  MemoryStore store;
  const StoredTable table{"film", {DType::f16, 4}};
  store.create(table, soon());
  const auto publisher = store.publish_changes(table);
  const auto reader = store.read_changes({{table, store.end_of_changes("film", soon())}});
  const RowChanges all = changes_of(table.rows, {1, 2}, {3});
  EXPECT_TRUE(change_and_publish(store, *publisher, table, all, soon()).empty());
  EXPECT_EQ(get(store, table, {1, 2, 3}).statuses,
            (std::vector<StoreStatus>{StoreStatus::ok, StoreStatus::ok, StoreStatus::absent}));
  const std::vector<ReadChanges> read = reader->read(soon());
  ASSERT_EQ(read[0].changes.size(), 1u);
  EXPECT_EQ(read[0].changes[0].rows, all.rows);
  EXPECT_THAT(read[0].changes[0].erased, ElementsAre(3));

  store.is_away = true;  // nothing is told of what was not put
  const RowChanges failed = change_and_publish(store, *publisher, table, all, in(std::chrono::milliseconds(10)));
  EXPECT_EQ(failed.keys, all.keys);
  EXPECT_EQ(failed.rows, all.rows);
  EXPECT_EQ(failed.erased, all.erased);
  EXPECT_EQ(publisher->unsent(), 0);

  RowChanges bad = all;
  bad.rows.pop_back();
  EXPECT_EQ(message_of([&] { change_and_publish(store, *publisher, table, bad, soon()); }),
            "changes of table 'film', rows: expected 16 bytes for 2 keys, got 15");
}

}}  // namespace warprank
