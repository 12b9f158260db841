// SPDX-License-Identifier: Apache-2.0
#include "warprank/core/time_buckets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace warprank { namespace {

int64_t bucket_by_the_formula(float difference, int64_t count, float width) {
  const double exact =
      std::floor(std::log(std::max(1.0, static_cast<double>(difference))) / static_cast<double>(width));
  return static_cast<int64_t>(std::min(exact, static_cast<double>(count)));
}

/// By comparisons with all limits.
int64_t bucket_by_limits(float difference, const std::vector<float>& limits) {
  const auto is_behind = [&](float limit) { return difference >= limit && limit < INFINITY; };
  return std::count_if(limits.begin(), limits.end(), is_behind);
}

/// What the bits tell.
int64_t bucket_told(float difference, float width) {
  int32_t bits;
  const float least = std::max(difference, 1.0f);
  std::memcpy(&bits, &least, sizeof bits);
  return static_cast<int64_t>(static_cast<float>(bits - bits_of_one) * time_buckets_per_bit(width));
}

TEST(TimeBuckets, HaveTheLimitsOfTheFormulaAndTheBitsTellThemOrTheOneBefore) {
  for (const float width : {min_time_bucket_width, 0.1f, 0.301f, 1.0f, 7.5f})
    for (const int64_t count : {int64_t{1}, int64_t{40}, int64_t{128}, max_time_buckets}) {
      const std::vector<float> limits = time_bucket_limits(count, width);
      ASSERT_EQ(limits.size(), static_cast<size_t>(count) + 1);
      EXPECT_TRUE(std::is_sorted(limits.begin(), limits.end()));
      std::vector<float> differences{0, 0.5f, 1, 2, 59, 3600, 86400, 0x1p24f, std::numeric_limits<float>::max()};
      for (const float limit : limits)
        if (limit < INFINITY)
          differences.insert(differences.end(), {std::nextafter(limit, 0.0f), limit, std::nextafter(limit, INFINITY)});
      for (float x = 1; x < 1e38f; x *= 1.0078125f) differences.push_back(x);
      for (const float difference : differences) {
        if (std::isinf(difference)) continue;
        const int64_t bucket = bucket_by_the_formula(difference, count, width);
        EXPECT_EQ(bucket_by_limits(difference, limits), bucket) << difference << ", " << width;
        const int64_t told = bucket_told(difference, width), of_all = bucket_by_the_formula(difference, 4096, width);
        EXPECT_TRUE(told == of_all || told + 1 == of_all) << difference << ", " << width << ": " << told;
      }
    }
}

TEST(TimeBuckets, EndWithALimitThatNoDifferenceReaches) {
  EXPECT_EQ(time_bucket_limits(0, 1), std::vector<float>{INFINITY});
  const std::vector<float> limits = time_bucket_limits(3, 60);  // exp(120) is no float
  EXPECT_LT(limits[0], INFINITY);
  EXPECT_EQ(limits[1], INFINITY);
  EXPECT_EQ(limits[3], INFINITY);
}

}}  // namespace warprank
