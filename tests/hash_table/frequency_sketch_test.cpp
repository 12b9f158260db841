// SPDX-License-Identifier: Apache-2.0

#include "warprank/hash_table/frequency_sketch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>

#include "support/zipf.hpp"

namespace warprank { namespace {

TEST(FrequencySketch, CountsUpToItsMostAndHalves) {
  FrequencySketch sketch(1000);
  EXPECT_EQ(sketch.bytes(), 62 * 64);
  for (int i = 0; i < 7; ++i) sketch.add(-5);
  EXPECT_EQ(sketch.estimate(-5), 7);
  EXPECT_EQ(sketch.estimate(6), 0);
  sketch.halve();
  EXPECT_EQ(sketch.estimate(-5), 3);
  for (int i = 0; i < 1000; ++i) sketch.add(-5);
  EXPECT_EQ(sketch.estimate(-5), 255);
}

// With four times as many keys as it is for.
TEST(FrequencySketch, IsNeverBelowAndSeldomFarAbove) {
  FrequencySketch sketch(1000);
  std::mt19937_64 random(1);
  std::map<int64_t, int> counts;
  const test_support::Zipf zipf(4000, 1.05);
  for (int i = 0; i < 4000; ++i) {
    const int64_t key = zipf(random) * 1000003;
    ++counts[key];
    sketch.add(key);
  }
  int far = 0;
  for (const auto& [key, count] : counts) {
    ASSERT_GE(sketch.estimate(key), std::min(count, 255));
    far += sketch.estimate(key) > 2 * count + 4;
  }
  EXPECT_LT(far, static_cast<int>(counts.size()) / 20);
}

}}  // namespace warprank
