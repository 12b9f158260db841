// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/pack_attention_bias.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/message_of.hpp"

namespace warprank { namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> counted(int64_t count, float from) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(from + static_cast<float>(i));
  return values;
}

TEST(PackAttentionBias, PutsCellsOfAllTablesBeforeTheirPositions) {
  for (const int64_t tables : {1, 3})
    for (const int64_t positions : {0, 1, 5})
      for (const int64_t buckets : {0, 1, 4, 300}) {
        SCOPED_TRACE(testing::Message() << tables << " tables, " << positions << " positions, " << buckets
                                        << " buckets");
        const AttentionBiasShape shape{tables, positions, buckets, 0.301f};
        const int64_t of_table = buckets > 0 ? buckets + 1 : 0;
        const std::vector<float> by_position = counted(tables * positions, 1),
                                 by_time = counted(tables * of_table, 1000);
        const std::vector<float> packed = pack_attention_bias(shape, by_position, by_time);
        ASSERT_EQ(packed.size(), static_cast<size_t>(shape.floats()));
        ASSERT_EQ(packed.size(), static_cast<size_t>(4 * tables * of_table + tables * positions));
        for (int64_t i = 0; i < tables * of_table; ++i) {
          const float* const cell = &packed[static_cast<size_t>(4 * i)];
          const float own = by_time[static_cast<size_t>(i)];
          const int64_t bucket = i % of_table;
          // The least float that a later bucket has; FP32 ends in bucket 294, and the last bucket has no later one.
          const double limit = std::exp(static_cast<double>(0.301f) * static_cast<double>(bucket + 1));
          if (bucket == buckets || limit > std::numeric_limits<float>::max()) {
            EXPECT_EQ(cell[0], infinity);
            EXPECT_EQ(cell[2], own) << "an infinite difference has the bias of this bucket";
          } else {
            EXPECT_GE(cell[0], limit);
            EXPECT_LT(std::nextafter(cell[0], 0.0f), limit);
            EXPECT_EQ(cell[2], own + 1);
          }
          EXPECT_EQ(cell[1], own);
        }
        const std::vector<float> behind(packed.begin() + shape.positions_offset(), packed.end());
        EXPECT_EQ(behind, by_position);
      }
}

TEST(PackAttentionBias, RefusesWrongSizesAndNumbers) {
  using testing::HasSubstr;
  const auto refusal = [](const AttentionBiasShape& shape, const std::vector<float>& positions,
                          const std::vector<float>& times) {
    return test_support::message_of([&] { pack_attention_bias(shape, positions, times); });
  };
  EXPECT_EQ(refusal({2, 1, 1}, {1, 2}, {1, 2, 3, 4}), "");
  EXPECT_THAT(refusal({2, 1, 1}, {1}, {1, 2, 3, 4}), HasSubstr("biases by position: expected 2 numbers, got 1"));
  EXPECT_THAT(refusal({2, 1, 1}, {1, 2}, {1, 2}), HasSubstr("biases by time: expected 4 numbers, got 2"));
  EXPECT_THAT(refusal({1, 1, 0}, {infinity}, {}), HasSubstr("biases by position: expected finite numbers"));
  EXPECT_THAT(refusal({1, 0, 1}, {}, {1, NAN}), HasSubstr("biases by time: expected finite numbers"));
  EXPECT_THAT(refusal({0, 1, 0}, {}, {}), HasSubstr("an attention bias' tables: expected 1 to"));
  EXPECT_THAT(refusal({1, -1, 0}, {}, {}), HasSubstr("an attention bias' positions: expected 0 to"));
  EXPECT_THAT(refusal({1, 0, 1425}, {}, {}), HasSubstr("an attention bias' time buckets: expected 0 to 1424"));
  for (const float width : {0.01f, 0.0f, infinity, std::nanf("")})
    EXPECT_THAT(refusal({1, 0, 1, width}, {}, {1, 2}), HasSubstr("a width of 0.0625"));
  EXPECT_EQ(refusal({1, 1, 0, 0}, {1}, {}), "") << "without buckets no width matters";
}

}}  // namespace warprank
