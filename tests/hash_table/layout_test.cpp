// SPDX-License-Identifier: Apache-2.0
#include "warprank/hash_table/layout.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace warprank { inline namespace v0 { namespace hash_table { namespace {

TEST(HashTableLayout, KnownHashesStayAsTheyAre) {
  // MurmurHash3's finaliser; images that were saved depend on it.
  EXPECT_EQ(fmix64(0), 0u);
  EXPECT_EQ(fmix64(1), 0xb456bcfc34c2cb2cu);
  EXPECT_EQ(fmix64(~uint64_t{0}), 0x64b5720b4b825f21u);
}

TEST(HashTableLayout, ScalingTakesTheUpperBits) {
  EXPECT_EQ(scale_hash(0, 10), 0u);
  EXPECT_EQ(scale_hash(~uint64_t{0}, 10), 9u);
  EXPECT_EQ(scale_hash(uint64_t{1} << 63, 10), 5u);
  EXPECT_EQ(scale_hash(uint64_t{1} << 63, uint64_t{1} << 40), uint64_t{1} << 39);
}

TEST(HashTableLayout, RowsLieInTheLineWhereTwoFit) {
  const auto expect = [](int64_t row, bool is_mutable, Layout layout, int slots, int64_t stride, int64_t bytes) {
    const BucketShape shape = shape_of(row, is_mutable);
    EXPECT_EQ(shape.layout, layout) << row;
    EXPECT_EQ(shape.num_slots, slots) << row;
    EXPECT_EQ(shape.row_stride, stride) << row;
    EXPECT_EQ(shape.bucket_bytes, bytes) << row;
  };
  expect(2, false, Layout::in_line, 7, 8, 128);
  expect(8, false, Layout::in_line, 7, 8, 128);
  expect(16, false, Layout::in_line, 5, 16, 128);
  expect(32, false, Layout::in_line, 3, 32, 128);
  expect(48, false, Layout::in_line, 2, 48, 128);
  expect(49, false, Layout::header, 15, 64, 128 + 15 * 64 + 64);
  expect(4, true, Layout::header, 15, 16, 384);
  expect(64, true, Layout::header, 15, 64, 1152);
  expect(1024, false, Layout::header, 15, 1024, 128 * 121);
}

TEST(HashTableLayout, NoPartsOfABucketOverlap) {
  for (int64_t row = 2; row <= max_row_bytes; ++row) {
    for (const bool is_mutable : {false, true}) {
      const BucketShape shape = shape_of(row, is_mutable);
      std::vector<int> used(static_cast<size_t>(shape.bucket_bytes));
      const auto use = [&](int64_t begin, int64_t bytes) {
        for (int64_t i = begin; i < begin + bytes; ++i) ++used.at(static_cast<size_t>(i));
      };
      for (int slot = 0; slot < shape.num_slots; ++slot) {
        ASSERT_LE(row, shape.row_stride);
        use(shape.rows_begin + slot * shape.row_stride, shape.row_stride);
      }
      for (int place = 0; place < shape.num_keys(); ++place) use(8 * key_word(shape, place), 8);
      use(8 * (shape.layout == Layout::header ? map_word : inline_map_word), 8);
      if (shape.layout == Layout::header) use(8 * state_word, 8);
      for (const int count : used) ASSERT_LE(count, 1) << row;
      ASSERT_EQ(shape.bucket_bytes % line_bytes, 0);
      ASSERT_EQ(shape.row_stride % (shape.layout == Layout::header ? 16 : 8), 0);
    }
  }
}

TEST(HashTableLayout, RowBytesCountScaleAndOffset) {
  EXPECT_EQ(row_bytes(DType::f32, 3), 12);
  EXPECT_EQ(row_bytes(DType::f16, 3), 6);
  EXPECT_EQ(row_bytes(DType::bf16, 512), 1024);
  EXPECT_EQ(row_bytes(DType::i8, 1), 12);
  EXPECT_EQ(row_bytes(DType::i8, 4), 12);
  EXPECT_EQ(row_bytes(DType::i8, 5), 16);
}

TEST(HashTableLayout, ProbesAreDistinctAndInTheirRegions) {
  std::mt19937_64 random(1);
  for (const Placement& placement : {Placement{1, 4, 0, 2}, Placement{2, 4, 4, 4}, Placement{3, 1000, 7, 5},
                                     Placement{4, (uint64_t{1} << 33) + 5, 1 << 20, 6}}) {
    for (int i = 0; i < 2000; ++i) {
      const uint64_t hash = placement.hash(random());
      std::set<uint64_t> buckets;
      for (int probe = 0; probe < placement.max_probes; ++probe) {
        const uint64_t bucket = placement.bucket(hash, probe);
        ASSERT_EQ(bucket < placement.num_buckets, probe < 2);
        ASSERT_LT(bucket, placement.num_buckets + placement.num_overflow);
        ASSERT_TRUE(placement.may_hold(bucket, hash));
        buckets.insert(bucket);
      }
      ASSERT_EQ(buckets.size(), static_cast<size_t>(placement.max_probes));
    }
  }
}

TEST(HashTableLayout, BothBucketsOfAKeyAreSpreadEvenlyAndIndependently) {
  // Chi-squared over 16 x 15 pairs of buckets: 239 degrees of freedom, mean 239, deviation 21.9; five of them.
  const Placement placement{9, 16, 0, 2};
  constexpr int keys = 240 * 400;
  std::vector<double> counts(16 * 16);
  for (uint64_t key = 0; key < keys; ++key) {
    const uint64_t hash = placement.hash(key);
    ++counts[placement.first_bucket(hash) * 16 + placement.second_bucket(hash)];
  }
  double chi_squared = 0;
  for (int pair = 0; pair < 256; ++pair) {
    if (pair / 16 == pair % 16) {
      EXPECT_EQ(counts[static_cast<size_t>(pair)], 0);
      continue;
    }
    const double difference = counts[static_cast<size_t>(pair)] - 400;
    chi_squared += difference * difference / 400;
  }
  EXPECT_LT(chi_squared, 239 + 5 * 21.9);
}

TEST(HashTableLayout, ForeignKeysAreNeverLookedForInTheirBucket) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Placement placement{seed, 4, 8, 6};  // as few buckets, and as many probes, as there may be
    for (uint64_t bucket = 0; bucket < 12; ++bucket) {
      const uint64_t hash = placement.hash(placement.foreign_key(bucket));
      for (int probe = 0; probe < placement.max_probes; ++probe) ASSERT_NE(placement.bucket(hash, probe), bucket);
    }
  }
}

TEST(HashTableLayout, MapsHoldSlotsAndCounts) {
  uint64_t map = empty_map;
  EXPECT_EQ(held_positions(map), 0u);
  EXPECT_EQ(held_slots(map), 0u);
  map = with_slot(with_slot(map, 0, 14), 13, 3);
  EXPECT_EQ(slot_at(map, 0), 14);
  EXPECT_EQ(slot_at(map, 13), 3);
  EXPECT_EQ(slot_at(map, 1), no_slot);
  EXPECT_EQ(held_positions(map), 1u | 1u << 13);
  EXPECT_EQ(held_slots(map), 1u << 14 | 1u << 3);
  EXPECT_EQ(with_slot(with_slot(map, 0, no_slot), 13, no_slot), empty_map);

  for (const Displaced where : {Displaced::spilled, Displaced::overflowed}) {
    EXPECT_FALSE(has(map, where));
    uint64_t counted = with_one_more(map, where);
    EXPECT_TRUE(has(counted, where));
    EXPECT_FALSE(has(counted, where == Displaced::spilled ? Displaced::overflowed : Displaced::spilled));
    EXPECT_EQ(with_one_less(counted, where), map);
    for (int i = 0; i < 30; ++i) counted = with_one_more(counted, where);
    for (int i = 0; i < 60; ++i) counted = with_one_less(counted, where);
    EXPECT_TRUE(has(counted, where)) << "who counted to the limit does not know any more";
    EXPECT_EQ(held_positions(counted), held_positions(map));
  }
}

TEST(HashTableLayout, StatesComeBackFromTheirWords) {
  const BucketState none = BucketState::from(0);
  EXPECT_EQ(none.retired_slots, 0u);
  EXPECT_EQ(none.word(), 0u);
  const BucketState full{0x7fff, 0x3fff, max_epoch};
  const BucketState again = BucketState::from(full.word() | lock_bit);
  EXPECT_EQ(again.retired_slots, full.retired_slots);
  EXPECT_EQ(again.retired_positions, full.retired_positions);
  EXPECT_EQ(again.epoch, full.epoch);
  EXPECT_EQ(full.word() & lock_bit, 0u);
  const BucketState some{1u << 14, 1, 5};
  EXPECT_EQ(BucketState::from(some.word()).retired_slots, 1u << 14);
  EXPECT_EQ(BucketState::from(some.word()).retired_positions, 1u);
  EXPECT_EQ(BucketState::from(some.word()).epoch, 5u);
}

}}}}  // namespace warprank::v0::hash_table
