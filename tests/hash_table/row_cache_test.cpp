// SPDX-License-Identifier: Apache-2.0
#include "warprank/hash_table/row_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "support/row_bytes.hpp"
#include "support/zipf.hpp"

namespace warprank { namespace {

using test_support::bytes_of_row;
using Admission = RowCache::Admission;

std::vector<unsigned char> row_in(const RowCache& cache, int64_t key) {
  const unsigned char* row = cache.find(key);
  if (row == nullptr) return {};
  return {row, row + cache.view().row_bytes};
}

TEST(RowCache, TakesTheBytesThatItIsGiven) {
  for (const StoredRows& rows : test_support::rows_of_all_types()) {
    EXPECT_LE(RowCache(rows, RowCache::least_bytes(rows)).view().num_buckets(), 16u);
    for (const int64_t bytes : {int64_t{1} << 18, int64_t{3000000}, int64_t{40000000}}) {
      const RowCache cache(rows, bytes);
      const int64_t table = cache.bytes() - cache.num_places() / 16 * 64;
      EXPECT_LE(table, bytes);
      EXPECT_GE(table, bytes - bytes / 16 - 2 * cache.view().shape.bucket_bytes);
    }
  }
}

// As many keys as there are, some of them far more often than others; a map knows what it should have.
TEST(RowCache, HasWhatWasLastPutOrNothing) {
  for (const StoredRows& rows : {StoredRows{DType::f16, 16}, StoredRows{DType::i8, 13}}) {
    RowCache cache(rows, RowCache::least_bytes(rows));
    ASSERT_EQ(cache.num_places(), 56);
    std::mt19937_64 random(1);
    std::map<int64_t, int64_t> versions;
    int64_t evicted = 0;
    for (int64_t version = 0; version < 20000; ++version) {
      const auto key = static_cast<int64_t>(random() % 200) - 100;
      if (random() % 4 == 0) cache.asked_for(key);
      const bool had = cache.find(key) != nullptr;
      if (random() % 8 == 0) {
        ASSERT_EQ(cache.erase(key), had);
        versions.erase(key);
      } else if (random() % 8 == 0) {
        ASSERT_EQ(cache.assign(key, bytes_of_row(rows, key, version).data()), had);
        if (had) versions[key] = version;
      } else {
        const Admission admission = cache.insert_or_assign(key, bytes_of_row(rows, key, version).data());
        ASSERT_EQ(admission == Admission::updated, had);
        evicted += admission == Admission::evicted;
        versions[key] = version;
        ASSERT_EQ(row_in(cache, key), bytes_of_row(rows, key, version));
      }
      int64_t size = 0;
      for (int64_t k = -100; k < 100 && version % 16 == 0; ++k) {
        if (cache.find(k) == nullptr) continue;
        ++size;
        ASSERT_EQ(row_in(cache, k), bytes_of_row(rows, k, versions.at(k)));
      }
      if (version % 16 == 0) {
        ASSERT_EQ(cache.size(), size);
      }
    }
    EXPECT_GT(evicted, 1000);
    EXPECT_GT(cache.size(), 40);
  }
}

// Skewed keys, a tenth of them in memory: nearly as many hits as if the most frequent ones were there from the start.
TEST(RowCache, KeepsWhatIsAskedForMost) {
  const StoredRows rows{DType::f16, 8};
  constexpr int64_t num_keys = 100000;
  for (const double alpha : {1.05, 0.8}) {
    RowCache cache(rows, (int64_t{1} << 12) * 256);
    while (cache.num_places() < num_keys / 10) cache = RowCache(rows, cache.bytes() * 5 / 4);
    const test_support::Zipf zipf(num_keys, alpha);
    std::mt19937_64 random(1);
    int64_t hits = 0, best = 0, looked_up = 0;
    for (int64_t i = 0; i < 2000000; ++i) {
      const int64_t rank = zipf.rank(random), key = zipf.id_of_rank(rank);
      if (random() % 16 == 0) cache.asked_for(key);
      if (i % (16 * 8 * cache.num_places()) == 0) cache.age();
      const bool is_hit = cache.find(key) != nullptr;
      if (!is_hit) cache.insert_or_assign(key, bytes_of_row(rows, key).data());
      if (i < 1000000) continue;
      ++looked_up;
      hits += is_hit;
      best += rank < cache.num_places();
    }
    RecordProperty("hits", std::to_string(static_cast<double>(hits) / static_cast<double>(looked_up)));
    EXPECT_GT(static_cast<double>(hits), 0.9 * static_cast<double>(best)) << hits << " of " << best;
  }
}

// Among keys that nobody asks for the last to come is not the first to go.
TEST(RowCache, GoesRoundAmongEquals) {
  const StoredRows rows{DType::f16, 8};
  RowCache cache(rows, RowCache::least_bytes(rows));
  const std::vector<unsigned char> row = bytes_of_row(rows, 0);
  for (int64_t key = 0; key < 1000; ++key) cache.insert_or_assign(key, row.data());
  int64_t kept = 0;
  for (int64_t key = 1000; key < 1008; ++key) cache.insert_or_assign(key, row.data());
  for (int64_t key = 1000; key < 1008; ++key) kept += cache.find(key) != nullptr;
  EXPECT_GE(kept, 7);
}

// What a batch waits for is there when all of it has come, though others are asked for more.
TEST(RowCache, KeepsTheKeysOfAGenerationTogether) {
  const StoredRows rows{DType::f16, 8};
  RowCache cache(rows, RowCache::least_bytes(rows));
  const std::vector<unsigned char> row = bytes_of_row(rows, 0);
  for (int64_t key = 0; key < 1000; ++key) {
    for (int i = 0; i < 5; ++i) cache.asked_for(key);
    cache.insert_or_assign(key, row.data(), 1);
  }
  const auto count = [&](int64_t first) {
    int64_t found = 0;
    for (int64_t key = first; key < first + 10; ++key) found += cache.find(key) != nullptr;
    return found;
  };
  const auto insert = [&](int64_t first, uint64_t generation) {
    for (int64_t key = first; key < first + 10; ++key) cache.insert_or_assign(key, row.data(), generation);
  };
  insert(1000, 0);
  EXPECT_LT(count(1000), 10);  // the later ones took the places of the earlier ones
  insert(2000, 7);
  EXPECT_EQ(count(2000), 10);
  insert(2000, 7);  // again
  insert(3000, 8);
  EXPECT_EQ(count(2000) + count(3000), 20);
  for (uint64_t generation = 9; generation < 40; ++generation) {
    const auto first = static_cast<int64_t>(generation) * 1000;
    insert(first, generation);
    ASSERT_EQ(count(first), 10);
  }
  EXPECT_EQ(count(2000), 0);
  for (int64_t key = 50000; key < 50300; ++key) {  // more than there is room for
    cache.insert_or_assign(key, row.data(), 50);
    ASSERT_NE(cache.find(key), nullptr);
  }
}

TEST(RowCache, TakesThePlaceOfTheVictimWhileThatIsThere) {
  const StoredRows rows{DType::f32, 2};
  RowCache cache(rows, RowCache::least_bytes(rows));
  const std::vector<unsigned char> row(8);
  const auto bucket_of = [&](int64_t key) {
    const hash_table::Placement& placement = cache.view().placement;
    return placement.first_bucket(placement.hash(static_cast<uint64_t>(key)));
  };
  EXPECT_EQ(cache.victim_for(1000, 0).position, -1);  // there is room
  for (int64_t key = 0; key < 1000; ++key) cache.insert_or_assign(key, row.data());
  int64_t other = 1001;
  while (bucket_of(other) != bucket_of(1000)) ++other;
  const RowVictim victim = cache.victim_for(1000, 0);
  ASSERT_GE(victim.position, 0);
  EXPECT_EQ(cache.insert_or_assign(1000, row.data(), 0, victim), RowCache::Admission::evicted);
  EXPECT_EQ(cache.find(static_cast<int64_t>(victim.key)), nullptr);
  EXPECT_EQ(cache.insert_or_assign(other, row.data(), 0, victim), RowCache::Admission::evicted);
  EXPECT_NE(cache.find(1000), nullptr);  // which has its place now
  EXPECT_NE(cache.find(other), nullptr);
  while (bucket_of(++other) != bucket_of(1000)) continue;
  const RowVictim written = cache.victim_for(other, 7);
  ASSERT_EQ(cache.insert_or_assign(static_cast<int64_t>(written.key), row.data(), 7), RowCache::Admission::updated);
  EXPECT_EQ(cache.insert_or_assign(other, row.data(), 7, written), RowCache::Admission::evicted);
  EXPECT_NE(cache.find(static_cast<int64_t>(written.key)), nullptr) << "it has come again since it was chosen";
  EXPECT_NE(cache.find(other), nullptr);
}

}}  // namespace warprank
