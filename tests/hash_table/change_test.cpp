// SPDX-License-Identifier: Apache-2.0

#include "warprank/hash_table/change.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hash_table/table_testing.hpp"
#include "warprank/hash_table/file.hpp"

namespace warprank { namespace {

using hash_table::erase, hash_table::insert_or_assign, hash_table::Status;

HashTable table_for(int64_t capacity, int64_t dim, double load_factor = 0.8) {
  HashTableOptions options;
  options.capacity = capacity;
  options.load_factor = load_factor;
  options.threads = 1;
  return build_hash_table({DType::f32, dim, true}, HashTableChunk{}, options);
}

std::vector<unsigned char> row_of(uint64_t content, int64_t dim) {
  std::vector<unsigned char> row(static_cast<size_t>(4 * dim));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<unsigned char>(content >> (i % 8 * 8));
  return row;
}

/// As those who load it will see it.
void expect_holds(const HashTable& table, const std::map<int64_t, uint64_t>& expected, int64_t dim) {
  HashTableHeader header = make_hash_table_header(table.view(), static_cast<uint64_t>(table.size()));
  EXPECT_NO_THROW(detail::verify("table", table.view(), 1));
  EXPECT_EQ(header.size, expected.size());
  for (const auto& [key, content] : expected) {
    const unsigned char* row = table.find(key);
    ASSERT_NE(row, nullptr) << key;
    EXPECT_EQ(std::vector<unsigned char>(row, row + 4 * dim), row_of(content, dim)) << key;
  }
}

TEST(HashTableChange, DoesWhatAMapDoes) {
  std::mt19937_64 random(1);
  // Four buckets and their overflow: from a load factor of 0.7 on, most keys are displaced.
  for (const auto& [capacity, num_keys] : {std::pair<int64_t, uint64_t>{400, 400}, {10, 50}}) {
    const int64_t dim = 5;
    const HashTable table = table_for(capacity, dim);
    const std::vector<int64_t> keys = test::random_keys(static_cast<int64_t>(num_keys), 3);
    std::map<int64_t, uint64_t> expected;
    for (int i = 0; i < 4000; ++i) {
      const int64_t key = keys[random() % num_keys];
      const bool is_there = expected.count(key) != 0;
      if (random() % 3 == 0) {
        EXPECT_EQ(erase(table.view(), key), is_there ? Status::erased : Status::absent);
        EXPECT_EQ(table.find(key), nullptr);
        expected.erase(key);
      } else {
        const uint64_t content = random();
        EXPECT_EQ(insert_or_assign(table.view(), key, row_of(content, dim).data()),
                  is_there ? Status::updated : Status::inserted);
        expected[key] = content;
      }
      if (i % 500 == 0) expect_holds(table, expected, dim);
    }
    expect_holds(table, expected, dim);
  }
}

TEST(HashTableChange, ForgetsThatErasedKeysWereInOtherBuckets) {
  const HashTable table = table_for(1, 2, 1);
  const auto num_with_others = [&] {
    int64_t count = 0;
    for (uint64_t bucket = 0; bucket < table.view().num_buckets(); ++bucket)
      count += table.view().line(bucket)[hash_table::map_word] != hash_table::empty_map;
    return count;
  };
  for (int64_t key = 0; key < 50; ++key) insert_or_assign(table.view(), key, row_of(1, 2).data());
  EXPECT_GT(num_with_others(), 3);
  bool has_displaced = false;
  for (uint64_t bucket = 0; bucket < table.view().num_buckets(); ++bucket)
    has_displaced |= has(table.view().line(bucket)[hash_table::map_word], hash_table::Displaced::spilled);
  EXPECT_TRUE(has_displaced);
  for (int64_t key = 0; key < 50; ++key) ASSERT_EQ(erase(table.view(), key), Status::erased);
  EXPECT_EQ(num_with_others(), 0) << "as before: none in any bucket, none beside it";
}

TEST(HashTableChange, SaysWhenTheTableIsFull) {
  const HashTable table = table_for(1, 2, 1);
  std::map<int64_t, uint64_t> expected;
  int full = 0;
  for (int64_t key = 0; key < 400; ++key) {
    const Status status = insert_or_assign(table.view(), key, row_of(static_cast<uint64_t>(key), 2).data());
    if (status == Status::inserted) expected[key] = static_cast<uint64_t>(key);
    full += status == Status::full;
  }
  EXPECT_EQ(expected.size() + static_cast<size_t>(full), 400u);
  EXPECT_GT(expected.size(), 56u) << "as many as the four buckets have";
  EXPECT_GT(full, 0);
  expect_holds(table, expected, 2);
  const int64_t first = expected.begin()->first;
  EXPECT_EQ(insert_or_assign(table.view(), first, row_of(7, 2).data()), Status::updated);
  EXPECT_EQ(erase(table.view(), first), Status::erased);
  EXPECT_EQ(insert_or_assign(table.view(), first, row_of(8, 2).data()), Status::inserted);
}

}}  // namespace warprank
