// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace warprank;

/// A 16-bit float by its definition: `mantissa_bits` bits of fraction, the rest of its 15 bits exponent.
struct Format {
  int mantissa_bits;
  int bias;
  float (*decode)(uint16_t);
  uint16_t (*encode)(float);

  int infinity_bits() const { return 0x7fff >> mantissa_bits << mantissa_bits; }

  /// The value of finite, non-negative `bits`, from the formula; for `infinity_bits` what the next exponent would hold.
  double value(int bits) const {
    const int exponent = bits >> mantissa_bits;
    const int fraction = bits & ((1 << mantissa_bits) - 1);
    const int significand = exponent == 0 ? fraction : fraction + (1 << mantissa_bits);
    return std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
  }

  /// Nearest, ties to even, by search; rounding to 2^emax or more gives infinity.
  int nearest(double magnitude) const {
    int low = 0, high = infinity_bits();  // value(low) <= magnitude
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (value(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - value(low), above = value(low + 1) - magnitude;
    if (magnitude >= value(infinity_bits()) || above < below) return low + 1;
    return above == below ? low + (low & 1) : low;
  }
};

const Format fp16{10, 15, [](uint16_t bits) { return to_float(float16{bits}); },
                  [](float x) { return to_float16(x).bits; }};
const Format bf16{7, 127, [](uint16_t bits) { return to_float(bfloat16{bits}); },
                  [](float x) { return to_bfloat16(x).bits; }};

class SixteenBits : public ::testing::TestWithParam<const Format*> {
 protected:
  const Format& format = *GetParam();

  void expect_nearest(float x) const {
    const int expected = std::isinf(x) ? format.infinity_bits() : format.nearest(std::abs(double{x}));
    ASSERT_EQ(format.encode(x), expected | (std::signbit(x) ? 0x8000 : 0)) << x;
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits, ::testing::Values(&fp16, &bf16),
                         [](const auto& info) { return info.param == &fp16 ? "half" : "bfloat16"; });

TEST_P(SixteenBits, DecodeToTheirValueForAllBits) {
  for (int bits = 0; bits < 0x8000; ++bits) {
    const float positive = format.decode(static_cast<uint16_t>(bits));
    const float negative = format.decode(static_cast<uint16_t>(bits | 0x8000));
    if (bits > format.infinity_bits()) {
      ASSERT_TRUE(std::isnan(positive) && std::isnan(negative)) << bits;
    } else if (bits == format.infinity_bits()) {
      ASSERT_EQ(positive, std::numeric_limits<float>::infinity());
      ASSERT_EQ(negative, -std::numeric_limits<float>::infinity());
    } else {
      ASSERT_EQ(double{positive}, format.value(bits)) << bits;
      ASSERT_EQ(float_bits(negative), float_bits(-positive)) << bits;  // signed zeros too
    }
  }
}

TEST_P(SixteenBits, SurviveDecodingAndEncodingForAllBits) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t encoded = format.encode(format.decode(static_cast<uint16_t>(bits)));
    if ((bits & 0x7fff) > format.infinity_bits()) {
      ASSERT_GT(encoded & 0x7fff, format.infinity_bits()) << bits;
      ASSERT_EQ(encoded & 0x8000, bits & 0x8000) << bits;
    } else {
      ASSERT_EQ(encoded, bits);
    }
  }
}

TEST_P(SixteenBits, RoundToNearestEvenAroundEveryMidpoint) {
  for (int bits = 0; bits < format.infinity_bits(); ++bits) {
    const auto middle = static_cast<float>((format.value(bits) + format.value(bits + 1)) / 2);
    ASSERT_EQ(double{middle}, (format.value(bits) + format.value(bits + 1)) / 2) << "midpoints are FP32 numbers";
    for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, HUGE_VALF)}) {
      expect_nearest(x);
      expect_nearest(-x);
    }
  }
}

TEST_P(SixteenBits, RoundToNearestEvenOverAllOfFp32) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = bits_float(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) expect_nearest(x);
  }
  expect_nearest(std::numeric_limits<float>::max());
  expect_nearest(std::numeric_limits<float>::denorm_min());
  expect_nearest(std::numeric_limits<float>::infinity());
  expect_nearest(-std::numeric_limits<float>::infinity());
}

TEST_P(SixteenBits, KeepEveryNanANan) {
  for (uint32_t payload = 1; payload < 0x800000; payload += 101)
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const uint16_t encoded = format.encode(bits_float(sign | 0x7f800000u | payload));
      ASSERT_GT(encoded & 0x7fff, format.infinity_bits()) << payload;
      ASSERT_EQ(encoded & 0x8000, sign >> 16) << payload;
    }
}

TEST(DType, HasTheSizeAndTheTagOfItsCppType) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::i8}) {
    dispatch_dtype(type, [&](auto tag) {
      using Value = typename decltype(tag)::type;
      EXPECT_EQ(dtype_of<Value>, type);
      EXPECT_EQ(size_of(type), static_cast<int64_t>(sizeof(Value)));
    });
  }
  EXPECT_EQ(dtype_of<int64_t>, DType::i64);
  EXPECT_EQ(size_of(DType::i64), 8);
}

TEST(DType, RefusesToComputeWithKeys) {
  try {
    dispatch_dtype(DType::i64, [](auto) {});
    FAIL() << "expected an exception";
  } catch (const invalid_argument& error) {
    EXPECT_STREQ(error.what(), "dtype: expected F32, F16, BF16 or I8, got I64");
  }
}

}  // namespace
