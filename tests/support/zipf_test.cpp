// SPDX-License-Identifier: Apache-2.0
#include "support/zipf.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace {

using warprank::test_support::uniform_01;
using warprank::test_support::Zipf;

/// How often each rank is drawn.
std::vector<int64_t> count_ranks(const Zipf& zipf, int64_t size, int64_t draws) {
  std::mt19937_64 random(1);
  std::vector<int64_t> counts(static_cast<size_t>(size));
  for (int64_t i = 0; i < draws; ++i) ++counts.at(static_cast<size_t>(zipf.rank(random)));
  return counts;
}

TEST(Zipf, DrawsEachRankAsOftenAsItsProbabilitySays) {
  for (const int64_t size : {1, 2, 3, 1000})
    for (const double alpha : {0.0, 0.5, 1.0, 1.05, 1.15, 3.0}) {
      SCOPED_TRACE("size " + std::to_string(size) + ", alpha " + std::to_string(alpha));
      const Zipf zipf(size, alpha);
      constexpr int64_t draws = 200000;
      const std::vector<int64_t> counts = count_ranks(zipf, size, draws);
      int64_t of_others = 0;
      double probability_of_others = 0;
      const auto expect_near = [](double probability, int64_t count) {
        const double expected = probability * draws, deviation = std::sqrt(expected * (1 - probability));
        EXPECT_LE(std::fabs(static_cast<double>(count) - expected), 5 * deviation + 1e-6);
      };
      for (int64_t rank = 0; rank < size; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const int64_t count = counts[static_cast<size_t>(rank)];
        if (rank < 10) {
          expect_near(zipf.probability(rank), count);
        } else {
          of_others += count;
        }
      }
      for (int64_t rank = 0; rank < std::min<int64_t>(size, 10); ++rank)
        probability_of_others -= zipf.probability(rank);
      expect_near(std::max(0.0, 1 + probability_of_others), of_others);
    }
}

TEST(Zipf, DrawsFromManyMillions) {
  const Zipf zipf(int64_t{1} << 31, 1.05);
  std::mt19937_64 random(2);
  for (int i = 0; i < 10000; ++i) {
    const int64_t id = zipf(random);
    ASSERT_TRUE(0 <= id && id < int64_t{1} << 31);
  }
}

TEST(Zipf, GivesEachRankAnIdOfItsOwnFarFromTheOthers) {
  for (const int64_t size : {1, 2, 7, 10, 1000, 1024}) {
    const Zipf zipf(size, 1.15);
    std::set<int64_t> ids;
    for (int64_t rank = 0; rank < size; ++rank) ids.insert(zipf.id_of_rank(rank));
    EXPECT_EQ(static_cast<int64_t>(ids.size()), size);
    EXPECT_EQ(*ids.begin(), 0);
    EXPECT_EQ(*ids.rbegin(), size - 1);
  }
  const Zipf zipf(1000, 1.15);
  for (int64_t rank = 1; rank < 10; ++rank) EXPECT_GT(std::abs(zipf.id_of_rank(rank) - zipf.id_of_rank(rank - 1)), 100);
}

TEST(Zipf, DrawsTheSameIdsFromTheSameSeedOnEveryMachine) {
  const Zipf zipf(100000, 1.05);
  std::mt19937_64 random(7);
  std::mt19937 narrow(7);
  std::vector<int64_t> ids, from_narrow;
  for (int i = 0; i < 6; ++i) ids.push_back(zipf(random)), from_narrow.push_back(zipf(narrow));
  EXPECT_EQ(ids, (std::vector<int64_t>{9015, 0, 20757, 15338, 69278, 23606}));
  EXPECT_EQ(from_narrow, (std::vector<int64_t>{98251, 47212, 98797, 32621, 0, 8180}));
}

TEST(Uniform, IsBelowOneAndUsesAllBits) {
  std::mt19937 random(1);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = uniform_01(random);
    ASSERT_TRUE(0 <= x && x < 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 5 / std::sqrt(12 * 10000.0));
}

}  // namespace
