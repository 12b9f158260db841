// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/pack_field_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"

namespace {

using warprank::FieldAttentionShape;
using warprank::float16;

/// With parts of tiles, whole ones, and more.
TEST(PackFieldAttention, PutsEachWeightInItsPlaceAndZerosBesides) {
  for (const FieldAttentionShape shape : {FieldAttentionShape{1, 1, 1}, FieldAttentionShape{5, 2, 3},
                                          FieldAttentionShape{16, 1, 16}, FieldAttentionShape{17, 2, 20}})
    for (const bool has_residual : {false, true}) {
      SCOPED_TRACE(std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_dim) + ", fields of " +
                   std::to_string(shape.dim));
      std::vector<float> weights[4];
      for (int which = 0; which < 4; ++which)
        for (int64_t i = 0; i < (which < 3 || has_residual ? shape.size() : 0); ++i)
          weights[which].push_back(static_cast<float>((which * shape.size() + i) % 2000 + 1));
      const auto packed = warprank::pack_field_attention(shape, weights[1], weights[0], weights[2], weights[3]);
      std::vector<float> halves;
      for (int64_t at = 0; at < shape.layout().bias_offset(); at += int64_t{sizeof(float16)}) {
        float16 half;
        std::memcpy(&half, packed.data() + at, sizeof half);
        halves.push_back(warprank::to_float(half));
      }
      // As a warp reads them: lane 4 g + t of a tile has outputs 4 (g / 2) + g % 2 and, in its second half, the two
      // behind the next, and of each inputs 4 t to 4 t + 3.
      const int64_t inputs = (shape.dim + 15) / 16, outputs = (shape.head_dim + 15) / 16;
      for (int64_t which = 0; which < 4; ++which)
        for (size_t i = 0; i < weights[which].size(); ++i) {
          const int64_t row = static_cast<int64_t>(i) / shape.dim, d = static_cast<int64_t>(i) % shape.dim;
          const int64_t head = row / shape.head_dim, c = row % shape.head_dim;
          const int64_t tile = (((head * 2 + which / 2) * outputs + c / 16) * inputs + d / 16) * 2 + which % 2;
          const int64_t g = c % 16 / 4 * 2 + c % 2, t = d % 16 / 4;
          float& found = halves[static_cast<size_t>(tile * 256 + (g * 4 + t) * 8 + c % 4 / 2 * 4 + d % 4)];
          EXPECT_EQ(found, weights[which][i]) << which << ", " << i;
          found = 0;
        }
      EXPECT_EQ(halves, std::vector<float>(halves.size())) << "zeros besides";
    }
}

TEST(PackFieldAttention, RefusesWeightsThatDoNotFit) {
  const std::vector<float> weight(12, 1.0f), fewer(11, 1.0f), none, not_finite(12, NAN);
  const auto refusal = [&](FieldAttentionShape shape, const std::vector<float>& query, const std::vector<float>& key,
                           const std::vector<float>& residual) {
    try {
      warprank::pack_field_attention(shape, query, key, weight, residual);
    } catch (const warprank::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(refusal({2, 2, 3}, weight, weight, weight), "nothing was thrown");
  EXPECT_EQ(refusal({2, 2, 3}, weight, weight, none), "nothing was thrown");
  EXPECT_EQ(refusal({2, 2, 3}, fewer, weight, none), "query weight of a field attention: expected 12 values, got 11");
  EXPECT_EQ(refusal({2, 2, 3}, weight, none, none), "key weight of a field attention: expected 12 values, got 0");
  EXPECT_EQ(refusal({2, 2, 3}, weight, weight, fewer),
            "residual weight of a field attention: expected 12 values, got 11");
  EXPECT_EQ(refusal({2, 0, 3}, weight, weight, none),
            "field attention: expected 1 to 2^20 heads of 1 to 2^20 columns, and fields of as many, got 0 heads of 3, "
            "fields of 2");
  EXPECT_NE(refusal({int64_t{1} << 32, int64_t{1} << 32, 1}, none, none, none).find("1 to 2^20 heads"),
            std::string::npos)
      << "the number of weights wraps";
  EXPECT_NE(refusal({2, 2, 3}, weight, not_finite, none).find("expected a number whose magnitude"), std::string::npos);
}

}  // namespace
