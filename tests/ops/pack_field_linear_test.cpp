// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/pack_field_linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"

namespace {

using warprank::FieldLinearShape;
using warprank::float16;

std::vector<float> numbered(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i + 1));
  return values;
}

/// Without factors, with as many fields as are read at once, and with fewer and more; one output, and a part of a pair.
TEST(PackFieldLinear, PutsEachWeightInItsPlaceAndZerosBesides) {
  for (const FieldLinearShape shape :
       {FieldLinearShape{0, 5, 3}, FieldLinearShape{0, 40, 17}, FieldLinearShape{1, 8, 1}, FieldLinearShape{3, 8, 16},
        FieldLinearShape{4, 9, 2}, FieldLinearShape{7, 1, 5}})
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(std::to_string(shape.num_factors) + " factors, " + std::to_string(shape.fields) + " fields, " +
                   std::to_string(shape.out) + " outputs");
      const std::vector<float> weight = numbered(shape.out * shape.terms());
      const std::vector<float> bias = numbered(has_bias ? shape.out : 0);
      const auto packed = warprank::pack_field_linear(shape, weight, bias);
      const warprank::PackedLinearLayout layout = shape.layout();
      ASSERT_EQ(packed.size(), layout.bytes());
      ASSERT_EQ(layout.in % 8, 0);
      ASSERT_FALSE(layout.is_head());

      std::vector<float> halves;
      for (int64_t at = 0; at < layout.bias_offset(); at += int64_t{sizeof(float16)}) {
        float16 half;
        std::memcpy(&half, packed.data() + at, sizeof half);
        halves.push_back(warprank::to_float(half));
      }
      const int64_t padded = layout.in / (shape.num_factors == 0 ? 1 : shape.num_factors);
      for (int64_t n = 0; n < shape.out; ++n)
        for (int64_t k = 0; k < shape.terms(); ++k) {
          float& found = halves[static_cast<size_t>(layout.index(n, k / shape.fields * padded + k % shape.fields))];
          EXPECT_EQ(found, weight[static_cast<size_t>(n * shape.terms() + k)]) << n << ", " << k;
          found = 0;
        }
      EXPECT_EQ(halves, std::vector<float>(halves.size())) << "zeros besides";

      std::vector<float> biases(static_cast<size_t>(layout.num_pairs() * layout.pair));
      std::memcpy(biases.data(), packed.data() + layout.bias_offset(), biases.size() * sizeof(float));
      std::vector<float> expected = bias;
      expected.resize(biases.size());
      EXPECT_EQ(biases, expected);
    }
}

TEST(PackFieldLinear, RefusesWeightsThatDoNotFit) {
  const auto refusal = [](FieldLinearShape shape, const std::vector<float>& weight, const std::vector<float>& bias) {
    try {
      warprank::pack_field_linear(shape, weight, bias);
    } catch (const warprank::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::vector<float> weight(12, 1.0f), bias(2, 1.0f);
  EXPECT_EQ(refusal({2, 3, 2}, weight, bias), "nothing was thrown");
  EXPECT_EQ(refusal({2, 3, 3}, weight, {}), "weight of a field linear layer: expected 18 values, got 12");
  EXPECT_EQ(refusal({2, 3, 2}, weight, {1}), "bias of a field linear layer: expected 2 values, got 1");
  EXPECT_EQ(refusal({0, 3, 1}, std::vector<float>(3, 1.0f), bias),
            "bias of a field linear layer: expected 1 values, got 2")
      << "although a layer of one output is packed as one of two";
  EXPECT_EQ(refusal({2, 3, 0}, weight, {}),
            "field linear layer: expected 0 or more factors, 1 or more fields and outputs, with up to 2^30 terms and "
            "outputs, got 2, 3 and 0");
  for (const FieldLinearShape& shape :
       {FieldLinearShape{int64_t{1} << 32, int64_t{1} << 32, 1}, FieldLinearShape{0, int64_t{1} << 62, 4}})
    EXPECT_NE(refusal(shape, {}, {}).find("with up to 2^30 terms"), std::string::npos) << "the number of weights wraps";
  EXPECT_NE(refusal({2, 3, 2}, std::vector<float>(12, NAN), bias).find("expected a number whose magnitude"),
            std::string::npos);
}

}  // namespace
