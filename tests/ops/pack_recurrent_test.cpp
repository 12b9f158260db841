// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/pack_recurrent.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"

namespace {

using warprank::float16;
using warprank::RecurrentShape;

/// With parts of tiles, whole ones, and more.
TEST(PackRecurrent, PutsEachWeightInItsPlaceAndZerosBesides) {
  for (const int64_t hidden : {1, 7, 8, 16, 17, 36}) {
    SCOPED_TRACE(hidden);
    const RecurrentShape shape{hidden};
    std::vector<float> weight, bias;
    for (int64_t i = 0; i < 3 * hidden * hidden; ++i) weight.push_back(static_cast<float>(i % 2000 + 1));
    for (int64_t i = 0; i < 3 * hidden; ++i) bias.push_back(static_cast<float>(i + 1) / 3);
    const auto packed = warprank::pack_recurrent(shape, weight, bias);
    const int64_t tiles = (hidden + 7) / 8, steps = (hidden + 15) / 16, num_halves = tiles * steps * 3 * 128;
    ASSERT_EQ(packed.size(), num_halves * 2 + 3 * tiles * 8 * 4);
    std::vector<float> halves, biases(static_cast<size_t>(3 * tiles * 8));
    for (int64_t at = 0; at < num_halves; ++at) {
      float16 half;
      std::memcpy(&half, packed.data() + 2 * at, sizeof half);
      halves.push_back(warprank::to_float(half));
    }
    std::memcpy(biases.data(), packed.data() + 2 * num_halves, biases.size() * sizeof(float));
    // As a warp keeps them: lane 4 g + t has column g of the result and of each half of 16 columns of the state 2 t and
    // the next.
    for (int64_t gate = 0; gate < 3; ++gate)
      for (int64_t n = 0; n < hidden; ++n) {
        const int64_t row = gate * hidden + n;
        for (int64_t k = 0; k < hidden; ++k) {
          const int64_t of_warp = (n / 8 * steps + k / 16) * 3 + gate, lane = n % 8 * 4 + k % 8 / 2;
          float& found = halves[static_cast<size_t>(of_warp * 128 + lane * 4 + k % 16 / 8 * 2 + k % 2)];
          EXPECT_EQ(found, weight[static_cast<size_t>(row * hidden + k)]) << row << ", " << k;
          found = 0;
        }
        float& found = biases[static_cast<size_t>(gate * tiles * 8 + n)];
        EXPECT_EQ(found, bias[static_cast<size_t>(row)]) << row;
        found = 0;
      }
    EXPECT_EQ(halves, std::vector<float>(halves.size())) << "zeros besides";
    EXPECT_EQ(biases, std::vector<float>(biases.size())) << "zeros besides";
  }
}

TEST(PackRecurrent, RefusesWeightsThatDoNotFit) {
  const std::vector<float> weight(12, 1.0f), bias(6, 1.0f), too_large(12, 65520.0f), not_finite(12, NAN);
  const auto refusal = [&](int64_t hidden, const std::vector<float>& of_weight, const std::vector<float>& of_bias) {
    try {
      warprank::pack_recurrent({hidden}, of_weight, of_bias);
    } catch (const warprank::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(refusal(2, weight, bias), "nothing was thrown");
  EXPECT_EQ(refusal(0, weight, bias), "recurrent layer: expected 1 to 2^30 columns, got 0");
  EXPECT_EQ(refusal(int64_t{1} << 32, {}, {}), "recurrent layer: expected 1 to 2^30 columns, got 4294967296");
  EXPECT_EQ(refusal(2, bias, bias), "weight of a recurrent layer: expected 12 values, got 6");
  EXPECT_EQ(refusal(2, weight, weight), "bias of a recurrent layer: expected 6 values, got 12");
  for (const auto& values : {too_large, not_finite})
    EXPECT_NE(refusal(2, values, bias).find("weight [0, 0] of a recurrent layer: expected a number whose magnitude"),
              std::string::npos);
}

}  // namespace
