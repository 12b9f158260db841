// SPDX-License-Identifier: Apache-2.0
//
// Floating-point operations, against arithmetic that is exact or float_rounds in another way.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "execute/context.hpp"
#include "execute/half_values.hpp"
#include "t4/assembled.hpp"
#include "t4/operands.hpp"

namespace {

using t4::bits_of, t4::float_of;
using t4_testing::OneWarp, t4_testing::Words;

constexpr int float_rounds = 60;
constexpr uint32_t nan_bits = 0x7fffffff;

uint32_t canonical(float value) { return value != value ? nan_bits : bits_of(value); }

using FloatReference = std::function<uint32_t(uint32_t a, uint32_t b, uint32_t c)>;
void expect_bits(
    const std::string& line, const FloatReference& reference,
    const std::function<uint32_t(Words&)>& draw = [](Words& words) { return words.next(); }) {
  OneWarp warp(line);
  Words words;
  for (int round = 0; round < float_rounds; ++round) {
    for (size_t r = 1; r <= 3; ++r)
      for (uint32_t& value : warp.reg(r)) value = draw(words);
    warp.restart();
    warp.run();
    for (size_t lane = 0; lane < t4::warp_size; ++lane) {
      const uint32_t a = warp.reg(1)[lane], b = warp.reg(2)[lane], c = warp.reg(3)[lane];
      ASSERT_EQ(warp.reg(0)[lane], reference(a, b, c)) << line << std::hex << " of " << a << " " << b << " " << c;
    }
  }
}

/// Exact for floats of moderate size: 64 bits of mantissa.
long double wide(uint32_t bits) { return static_cast<long double>(float_of(bits)); }
/// The greatest float that is not above.
float rounded_down(long double value) {
  auto result = static_cast<float>(value);
  return static_cast<long double>(result) > value ? std::nextafter(result, -INFINITY) : result;
}
float rounded_up(long double value) { return -rounded_down(-value); }
float flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.f, value) : value;
}

TEST(T4Float, AddsMultipliesAndFuses) {
  expect_bits("FADD R0, R1, R2", [](auto a, auto b, auto) {
    return canonical(static_cast<float>(static_cast<double>(float_of(a)) + static_cast<double>(float_of(b))));
  });
  expect_bits("FADD R0, |R1|, -R2", [](auto a, auto b, auto) {
    return canonical(
        static_cast<float>(static_cast<double>(std::fabs(float_of(a))) - static_cast<double>(float_of(b))));
  });
  expect_bits("FMUL R0, R1, R2", [](auto a, auto b, auto) {
    return canonical(static_cast<float>(static_cast<double>(float_of(a)) * static_cast<double>(float_of(b))));
  });
  expect_bits("FFMA R0, R1, R2, R3",
              [](auto a, auto b, auto c) { return canonical(std::fma(float_of(a), float_of(b), float_of(c))); });
  expect_bits("FFMA.SAT R0, R1, R2, R3", [](auto a, auto b, auto c) {
    const float value = std::fma(float_of(a), float_of(b), float_of(c));
    return bits_of(value != value || value <= 0 ? 0.f : value > 1 ? 1.f : value);
  });
  expect_bits("FMUL.FTZ R0, R1, R2",
              [](auto a, auto b, auto) { return canonical(flushed(flushed(float_of(a)) * flushed(float_of(b)))); });
}

TEST(T4Float, RoundsAsItSays) {
  const auto moderate = [](Words& words) { return bits_of(words.number(8)); };
  expect_bits(
      "FADD.RM R0, R1, R2", [](auto a, auto b, auto) { return bits_of(rounded_down(wide(a) + wide(b))); }, moderate);
  expect_bits(
      "FMUL.RP R0, R1, R2", [](auto a, auto b, auto) { return bits_of(rounded_up(wide(a) * wide(b))); }, moderate);
  expect_bits(
      "FFMA.RZ R0, R1, R2, R3",
      [](auto a, auto b, auto c) {
        const __float128 exact = __float128(wide(a)) * wide(b) + wide(c);  // 113 bits
        auto result = static_cast<float>(exact);
        if (exact > 0 ? __float128(result) > exact : __float128(result) < exact) result = std::nextafter(result, 0.f);
        return bits_of(result);
      },
      moderate);
}

TEST(T4Float, ComparesWithNaN) {
  const std::vector<std::pair<std::string, std::function<bool(float, float)>>> relations = {
      {"GE", [](float a, float b) { return a >= b; }},
      {"GT", [](float a, float b) { return a > b; }},
      {"LE", [](float a, float b) { return a <= b; }},
      {"LT", [](float a, float b) { return a < b; }},
      {"EQ", [](float a, float b) { return a == b; }},
      {"NE", [](float a, float b) { return a < b || a > b; }},
      {"GEU", [](float a, float b) { return !(a < b); }},
      {"GTU", [](float a, float b) { return !(a <= b); }},
      {"LEU", [](float a, float b) { return !(a > b); }},
      {"LTU", [](float a, float b) { return !(a >= b); }},
      {"EQU", [](float a, float b) { return !(a < b || a > b); }},
      {"NEU", [](float a, float b) { return a != b; }},
      {"NUM", [](float a, float b) { return a == a && b == b; }},
      {"NAN", [](float a, float b) { return a != a || b != b; }}};
  for (const auto& [name, holds] : relations) {
    const auto& relation = holds;
    expect_bits("FSETP." + name + ".AND P0, PT, R1, R2, PT\nSEL R0, R1, R3, P0",
                [&](auto a, auto b, auto c) { return relation(float_of(a), float_of(b)) ? a : c; });
    expect_bits("FSET.BF." + name + ".AND R0, R1, R2, PT",
                [&](auto a, auto b, auto) { return relation(float_of(a), float_of(b)) ? bits_of(1.f) : 0; });
  }
  expect_bits("FMNMX R0, R1, R2, PT", [](auto a, auto b, auto) {
    const float x = float_of(a), y = float_of(b);
    if (x != x || y != y) return canonical(x != x ? y : x);
    return x == y ? (std::signbit(x) ? a : b) : x < y ? a : b;
  });
}

TEST(T4Float, FunctionsAreCloseAndRightAtTheEnds) {
  OneWarp warp("MUFU.RCP R0, R1\nMUFU.EX2 R2, R1\nMUFU.LG2 R3, |R1|\nMUFU.RSQ R4, |R1|");
  Words words;
  for (uint32_t& value : warp.reg(1)) value = bits_of(words.number(5));
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const auto x = static_cast<double>(float_of(warp.reg(1)[lane]));
    const auto result = [&](size_t r) { return static_cast<double>(float_of(warp.reg(r)[lane])); };
    EXPECT_NEAR(result(0) * x, 1, 1e-6);
    EXPECT_NEAR(std::log2(result(2)), x, 1e-5);
    EXPECT_NEAR(std::exp2(result(3)), std::fabs(x), 1e-5 * std::fabs(x));
    EXPECT_NEAR(result(4) * result(4) * std::fabs(x), 1, 1e-6);
  }
  OneWarp ends("MUFU.RCP R0, RZ\nMUFU.EX2 R1, -INF # ff800000\nMUFU.LG2 R2, RZ\nMUFU.RSQ R3, -1 # bf800000");
  ends.run();
  EXPECT_EQ(float_of(ends.reg(0)[7]), INFINITY);
  EXPECT_EQ(float_of(ends.reg(1)[7]), 0);
  EXPECT_EQ(float_of(ends.reg(2)[7]), -INFINITY);
  EXPECT_EQ(ends.reg(3)[7], nan_bits);
}

// ---- Halves

/// By trying all of them: the nearest, of two the one whose last bit is 0.
uint16_t nearest_half(double value) {
  if (value != value) return 0x7fff;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (size >= 65520) return sign | 0x7c00;  // as far from the largest as from what would come next
  uint16_t best = 0;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double distance = std::fabs(static_cast<double>(t4::half_to_float(static_cast<uint16_t>(bits))) - size);
    const double least = std::fabs(static_cast<double>(t4::half_to_float(best)) - size);
    if (distance < least || (distance == least && bits % 2 == 0)) best = static_cast<uint16_t>(bits);
  }
  return sign | best;
}

TEST(T4Half, IsWidenedAndRoundedOnce) {
  EXPECT_EQ(t4::half_to_float(0x3c00), 1);
  EXPECT_EQ(t4::half_to_float(0xc001), -2.001953125f);
  EXPECT_EQ(t4::half_to_float(0x0001), std::ldexp(1.f, -24));
  EXPECT_EQ(t4::half_to_float(0x7bff), 65504);
  EXPECT_EQ(t4::half_to_float(0xfc00), -INFINITY);
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto value = static_cast<double>(t4::half_to_float(half)),
               next = static_cast<double>(t4::half_to_float(half + 1));
    ASSERT_EQ(t4::to_half(value), half);
    if (half == 0x7bff) continue;
    const double middle = (value + next) / 2;
    ASSERT_EQ(t4::to_half(middle), bits % 2 == 0 ? half : half + 1);
    ASSERT_EQ(t4::to_half(std::nextafter(middle, 0)), half);
    ASSERT_EQ(t4::to_half(-std::nextafter(middle, INFINITY)), 0x8000 | (half + 1));
    ASSERT_EQ(t4::to_half(std::nextafter(next, 0), true), half);
  }
  EXPECT_EQ(t4::to_half(65519.99), 0x7bff);
  EXPECT_EQ(t4::to_half(65520), 0x7c00);
  EXPECT_EQ(t4::to_half(1e30, true), 0x7bff);
  EXPECT_EQ(t4::to_half(std::ldexp(1, -25)), 0);
  EXPECT_EQ(t4::to_half(std::ldexp(1.001, -25)), 1);
  EXPECT_EQ(t4::to_half(NAN), 0x7fff);
}

TEST(T4Half, PairsAreComputed) {
  const auto halves = [](Words& words) {
    const auto half = [&] { return uint32_t{t4::to_half(static_cast<double>(words.number(9)))}; };
    return words.coin() ? words.next() : half() | half() << 16;
  };
  const auto value = [](uint32_t pair, int i) {
    return static_cast<double>(t4::half_to_float(static_cast<uint16_t>(pair >> 16 * i)));
  };
  const auto pair = [](auto&& function) {
    return uint32_t{nearest_half(function(0))} | uint32_t{nearest_half(function(1))} << 16;
  };
  OneWarp warp(
      "HADD2 R4, R1, R2\nHMUL2 R5, R1, R2.H0_H0\nHFMA2 R6, R1.H1_H1, R2, -R3\nHADD2.F32 R7, -RZ.H0_H0, R1.H1_H1");
  Words words;
  for (size_t r = 1; r <= 3; ++r)
    for (uint32_t& bits : warp.reg(r)) bits = halves(words);
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const uint32_t a = warp.reg(1)[lane], b = warp.reg(2)[lane], c = warp.reg(3)[lane];
    EXPECT_EQ(warp.reg(4)[lane], pair([&](int i) { return value(a, i) + value(b, i); }));
    EXPECT_EQ(warp.reg(5)[lane], pair([&](int i) { return value(a, i) * value(b, 0); }));
    EXPECT_EQ(warp.reg(6)[lane], pair([&](int i) { return value(a, 1) * value(b, i) - value(c, i); }));
    EXPECT_EQ(warp.reg(7)[lane], canonical(static_cast<float>(value(a, 1))));
  }
}

// ---- Conversions

TEST(T4Convert, BetweenWholeNumbersAndFloats) {
  expect_bits("I2F R0, R1", [](auto a, auto, auto) { return bits_of(static_cast<float>(static_cast<int32_t>(a))); });
  expect_bits("I2F.U32.RP R0, R1", [](auto a, auto, auto) { return bits_of(rounded_up(static_cast<long double>(a))); });
  expect_bits("I2F.S8 R0, R1.B2", [](auto a, auto, auto) { return bits_of(static_cast<float>(int8_t(a >> 16))); });
  expect_bits("F2I.TRUNC.NTZ R0, R1", [](auto a, auto, auto) -> uint32_t {
    const float x = float_of(a);
    if (x != x) return 0;
    if (x >= 2147483648.f) return 0x7fffffff;
    if (x <= -2147483648.f) return 0x80000000;
    return static_cast<uint32_t>(static_cast<int32_t>(x));
  });
  expect_bits("F2I.U32.FLOOR R0, R1", [](auto a, auto, auto) -> uint32_t {
    const auto x = std::floor(static_cast<double>(float_of(a)));
    return x != x || x <= 0 ? 0 : x >= 4294967295.0 ? 0xffffffff : static_cast<uint32_t>(x);
  });
  expect_bits("F2F.F16.F32 R0, R1",
              [](auto a, auto, auto) { return uint32_t{nearest_half(static_cast<double>(float_of(a)))}; });
}

TEST(T4Convert, PairsOfWords) {
  OneWarp warp("I2F.U64.RP R0, R2\nF2I.S64.TRUNC R4, R6\nF2F.F64.F32 R8, R6\nDFMA R8, R8, R8, R8\nF2F.F32.F64 R10, R8");
  Words words;
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    warp.set64(2, lane, words.next64());
    warp.reg(6)[lane] = bits_of(words.number(40));
  }
  warp.run();
  for (size_t lane = 0; lane < t4::warp_size; ++lane) {
    const float x = float_of(warp.reg(6)[lane]);
    EXPECT_EQ(warp.reg(0)[lane], bits_of(rounded_up(static_cast<long double>(warp.get64(2, lane)))));
    EXPECT_EQ(warp.get64(4, lane), static_cast<uint64_t>(static_cast<int64_t>(x)));
    const double twice = std::fma(double{x}, double{x}, double{x});
    EXPECT_EQ(warp.get64(8, lane), bits_of(twice));
    EXPECT_EQ(warp.reg(10)[lane], bits_of(static_cast<float>(twice)));
  }
}

}  // namespace
