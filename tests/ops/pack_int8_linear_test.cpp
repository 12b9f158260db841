// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/pack_int8_linear.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "support/message_of.hpp"

namespace warprank { namespace {

using test_support::message_of;

constexpr int64_t shapes[][2] = {{1, 2}, {16, 8}, {33, 16}, {53, 19}, {64, 40}};

/// From the text of ops/pack_linear.hpp, lane by lane.
int64_t place_of(int64_t in, int64_t n, int64_t k) {
  const int64_t num_steps = (in + 31) / 32;
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t first_n = n / 16 * 16 + lane / 4, first_k = k / 32 * 32 + lane % 4 * 8 + half * 4;
      const int64_t of_lane[8][2] = {{first_n, first_k},         {first_n, first_k + 1},    {first_n + 8, first_k},
                                     {first_n + 8, first_k + 1}, {first_n, first_k + 2},    {first_n, first_k + 3},
                                     {first_n + 8, first_k + 2}, {first_n + 8, first_k + 3}};
      for (int64_t i = 0; i < 8; ++i)
        if (of_lane[i][0] == n && of_lane[i][1] == k)
          return (n / 16 * num_steps + k / 32) * 512 + lane * 16 + half * 8 + i;
    }
  return -1;
}

TEST(PackedInt8, PutsEveryWeightItsScaleAndItsBiasWhereTheLayoutSays) {
  for (const auto& [in, out] : shapes) {
    std::vector<float> weight, bias;
    for (int64_t n = 0; n < out; ++n) {
      bias.push_back(static_cast<float>(n) + 0.5f);
      const float scale = std::ldexp(1.0f, static_cast<int>(n % 7) - 3);
      for (int64_t k = 0; k < in; ++k)
        weight.push_back(scale * static_cast<float>(k == n % in ? 127 : (n * 31 + k * 17) % 255 - 127));
    }
    const Buffer<unsigned char> packed = pack_int8_linear(weight, bias, in, out);
    const PackedInt8Layout layout{in, out};
    ASSERT_EQ(packed.size(), layout.bytes());
    std::set<int64_t> places;
    const auto* biases = reinterpret_cast<const float*>(packed.data() + layout.bias_offset());
    const auto* scales = reinterpret_cast<const float*>(packed.data() + layout.scale_offset());
    for (int64_t n = 0; n < out; ++n) {
      EXPECT_EQ(biases[n], bias[static_cast<size_t>(n)]);
      EXPECT_EQ(scales[n], std::ldexp(1.0f, static_cast<int>(n % 7) - 3));
      for (int64_t k = 0; k < in; ++k) {
        EXPECT_EQ(layout.index(n, k), place_of(in, n, k));
        places.insert(layout.index(n, k));
        EXPECT_EQ((static_cast<float>(packed[layout.index(n, k)]) - 128) * scales[n],
                  weight[static_cast<size_t>(n * in + k)]);
      }
    }
    for (int64_t i = 0; i < layout.bias_offset(); ++i)
      EXPECT_TRUE(places.count(i) != 0 || packed[i] == layout.zero) << "padding " << i;
    for (int64_t n = out; n < layout.num_pairs() * 16; ++n) EXPECT_EQ(scales[n] + biases[n], 0);
  }
}

TEST(PackedInt8, HasABiasOfZerosWhereThereIsNoneAndWeightsOfZeroWithoutAScale) {
  const std::vector<float> weight(6);
  const Buffer<unsigned char> packed = pack_int8_linear(weight, {}, 3, 2);
  const PackedInt8Layout layout{3, 2};
  for (int64_t i = 0; i < layout.bytes(); ++i) EXPECT_EQ(packed[i], i < layout.bias_offset() ? layout.zero : 0);
}

TEST(PackedInt8, PacksAHeadAsFp32) {
  const std::vector<float> weight{1.0f / 3, 2, -7e5f}, bias{4};
  const Buffer<unsigned char> packed = pack_int8_linear(weight, bias, 3, 1),
                              floats = pack_linear<float>(weight, bias, 3, 1);
  ASSERT_EQ(packed.size(), PackedInt8Layout({3, 1}).bytes());
  EXPECT_EQ(std::vector<unsigned char>(packed.data(), packed.data() + packed.size()),
            std::vector<unsigned char>(floats.data(), floats.data() + floats.size()));
}

TEST(PackedInt8, RefusesWeightsThatAreNotFiniteAndWrongSizes) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {NAN, infinity, -infinity})
    EXPECT_THAT(message_of([&] {
                  pack_int8_linear(std::vector<float>{0, 0, 0, value}, {}, 2, 2);
                }),
                testing::StartsWith("weight of a linear layer, element 3: expected a number that is finite in INT8"));
  EXPECT_EQ(message_of([] { pack_int8_linear(std::vector<float>(6), std::vector<float>(2), 5, 3); }),
            "2 problems:\n  weight of a linear layer: expected 15 values, got 6\n"
            "  bias of a linear layer: expected 3 values, got 2");
  EXPECT_EQ(message_of([] { pack_int8_linear({}, {}, 0, 2); }),
            "linear layer: expected in and out of 1 to 2^30, got 0 and 2");
}

}}  // namespace warprank
