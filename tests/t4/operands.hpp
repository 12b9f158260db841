// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

#include "execute/half_values.hpp"

namespace t4_testing {

/// Two halves as a word.
inline uint32_t pair_of(double low, double high) { return t4::to_half(low) | uint32_t{t4::to_half(high)} << 16; }

/// Words that are zeros, denormals, infinities, NaN, largest and least numbers half of the time, else any.
class Words {
 public:
  uint32_t next() {
    static constexpr std::array<uint32_t, 24> special = {
        0,          1,          2,          31,         32,         33,         0x7fffffff, 0x80000000,
        0xffffffff, 0xfffffffe, 0x3f800000, 0xbf800000, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff,
        0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7bff7c00, 0x7e000001, 0x80003c00, 0x03ff8400};
    const uint32_t word = generator_();
    return word % 2 == 0 ? special[word / 2 % special.size()] : static_cast<uint32_t>(generator_());
  }
  uint64_t next64() { return uint64_t{next()} << 32 | next(); }
  bool coin() { return generator_() % 2 != 0; }
  /// A float between 2^-exponent and 2^exponent, of any sign.
  float number(int exponent) {
    std::uniform_real_distribution<float> mantissa(1, 2);
    std::uniform_int_distribution<int> power(-exponent, exponent - 1);
    const float value = std::ldexp(mantissa(generator_), power(generator_));
    return coin() ? -value : value;
  }

 private:
  std::mt19937 generator_{36};
};

}  // namespace t4_testing
