// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/host/hash_index.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace warprank {
namespace {

using host_ops::HashIndex;

constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();

void expect_each_at_its_row(const HashIndex& index, const std::vector<int64_t>& keys) {
  EXPECT_EQ(index.size(), static_cast<int64_t>(keys.size()));
  int64_t wrong = 0;
  for (size_t r = 0; r < keys.size(); ++r) wrong += index.find(keys[r]) != static_cast<int64_t>(r);
  EXPECT_EQ(wrong, 0);
}

std::vector<int64_t> random_keys(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back(static_cast<int64_t>(random()));
  return keys;
}

std::string message_of_build(const std::vector<int64_t>& keys) {
  try {
    HashIndex::build(keys);
  } catch (const invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(HashIndex, FindsEveryKeyAtItsRowAndNoOther) {
  for (const int64_t size : {1, 2, 4, 5, 6, 7, 8, 9, 40, 41, 1000, 300000}) {
    SCOPED_TRACE(size);
    const std::vector<int64_t> keys = random_keys(size, 1);
    const HashIndex index = HashIndex::build(keys);
    expect_each_at_its_row(index, keys);
    int64_t found = 0;
    for (const int64_t key : random_keys(2 * size, 2)) found += index.find(key) != -1;
    EXPECT_EQ(found, 0);
  }
}

TEST(HashIndex, TakesAnyKey) {
  const std::vector<int64_t> keys{0, -1, lowest, lowest + 1, highest, highest - 1, 1, -2};
  expect_each_at_its_row(HashIndex::build(keys), keys);
  for (size_t left_out = 0; left_out < keys.size(); ++left_out) {
    std::vector<int64_t> others = keys;
    others.erase(others.begin() + static_cast<int64_t>(left_out));
    const HashIndex index = HashIndex::build(others);
    expect_each_at_its_row(index, others);
    EXPECT_EQ(index.find(keys[left_out]), -1) << keys[left_out];
    const HashIndex alone = HashIndex::build(std::vector<int64_t>{keys[left_out]});
    for (const int64_t key : keys) EXPECT_EQ(alone.find(key), key == keys[left_out] ? 0 : -1) << key;
  }
}

TEST(HashIndex, OfNoKeysFindsNothing) {
  const HashIndex built = HashIndex::build({}), none;
  for (const HashIndex* index : {&built, &none}) {
    EXPECT_EQ(index->size(), 0);
    EXPECT_EQ(index->bytes(), 0);
    for (const int64_t key : {int64_t{0}, int64_t{-1}, lowest, highest}) {
      index->prefetch(key);
      EXPECT_EQ(index->find(key), -1);
    }
  }
}

TEST(HashIndex, TakesKeysThatDifferInFewBits) {
  for (const int shift : {0, 1, 8, 32, 44}) {
    SCOPED_TRACE(shift);
    std::vector<int64_t> keys;
    for (uint64_t i = 0; i < 100000; ++i) keys.push_back(static_cast<int64_t>(i << shift));
    expect_each_at_its_row(HashIndex::build(keys), keys);
  }
}

/// The inverse of a 64-bit odd factor, by Newton's iteration.
uint64_t inverse_of(uint64_t factor) {
  uint64_t inverse = factor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - factor * inverse;
  return inverse;
}

/// The x whose MurmurHash3 finaliser is `hash`.
uint64_t unmixed(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= inverse_of(0xc4ceb9fe1a85ec53u);
  hash ^= hash >> 33;
  hash *= inverse_of(0xff51afd7ed558ccdu);
  return hash ^ hash >> 33;
}

TEST(HashIndex, SurvivesKeysMadeToCollide) {
  std::vector<int64_t> keys;
  for (uint64_t hash = 0; hash < 20000; ++hash) keys.push_back(static_cast<int64_t>(unmixed(hash)));
  const HashIndex index = HashIndex::build(keys);
  expect_each_at_its_row(index, keys);
  for (uint64_t hash = 20000; hash < 40000; ++hash)
    ASSERT_EQ(index.find(static_cast<int64_t>(unmixed(hash))), -1) << hash;
}

TEST(HashIndex, NamesTheKeysThatOccurTwice) {
  EXPECT_EQ(message_of_build({5, 7, 9, 7}), "key 7 of a hashed table: expected one row, got rows 1 and 3");
  EXPECT_EQ(message_of_build({lowest, 1, lowest}),
            "key -9223372036854775808 of a hashed table: expected one row, got rows 0 and 2");
  const std::string several = message_of_build({4, -3, 4, -3, 4});
  EXPECT_NE(several.find("key 4 of a hashed table: expected one row, got rows 0 and 2"), std::string::npos) << several;
  EXPECT_NE(several.find("key -3 of a hashed table: expected one row, got rows 1 and 3"), std::string::npos) << several;
  EXPECT_NE(several.find("key 4 of a hashed table: expected one row, got rows 0 and 4"), std::string::npos) << several;
}

TEST(HashIndex, CountsTheDuplicatesThatAreTooManyToName) {
  const std::string message = message_of_build(std::vector<int64_t>(10001, 6));
  EXPECT_NE(message.find("10000 rows too many"), std::string::npos) << message;
  EXPECT_LT(message.size(), 2000u);
}

TEST(HashIndex, FindsBatchesLikeSingleKeys) {
  const std::vector<int64_t> keys = random_keys(5000, 3);
  const HashIndex index = HashIndex::build(keys);
  for (const int64_t count : {0, 1, 2, 23, 24, 25, 26, 1000}) {
    SCOPED_TRACE(count);
    std::vector<int64_t> wanted = random_keys(count, 4);
    for (size_t i = 0; i < wanted.size(); i += 2) wanted[i] = keys[(i * 37) % keys.size()];
    std::vector<int64_t> rows(wanted.size() + 1, 77);
    index.find_batch(wanted, rows.data());
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(rows[i], index.find(wanted[i])) << i;
    EXPECT_EQ(rows.back(), 77);
  }
}

TEST(HashIndex, TakesTheBytesItStates) {
  const int64_t size = 100000;
  EXPECT_EQ(HashIndex::build(random_keys(size, 5)).bytes(), size * 128 / 5);
}

}  // namespace
}  // namespace warprank
