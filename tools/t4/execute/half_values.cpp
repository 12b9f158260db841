// SPDX-License-Identifier: Apache-2.0
#include "execute/half_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace t4 {
namespace {

constexpr int mantissa_bits = 10, least_exponent = -14, most_exponent = 15;
constexpr uint16_t infinity = 0x7c00, largest = 0x7bff, nan = 0x7fff;

float value_of(uint16_t bits) {
  const int exponent = bits >> mantissa_bits & 31, mantissa = bits & ((1 << mantissa_bits) - 1);
  float value = exponent == 31
                    ? (mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN())
                : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), least_exponent - mantissa_bits)
                                : std::ldexp(static_cast<float>(mantissa | 1 << mantissa_bits),
                                             exponent - most_exponent - mantissa_bits);
  return bits >> 15 ? -value : value;
}

}  // namespace

float half_to_float(uint16_t bits) {
  static const auto all = [] {
    std::array<float, 65536> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = value_of(static_cast<uint16_t>(i));
    return values;
  }();
  return all[bits];
}

uint16_t to_half(double value, bool toward_zero) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  constexpr int bits_of_double = 52, bias_of_double = 1023;
  const auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  const int exponent = static_cast<int>(bits >> bits_of_double & 2047) - bias_of_double;
  const uint64_t fraction = bits & ((uint64_t{1} << bits_of_double) - 1);
  if (exponent > bias_of_double) return fraction != 0 ? nan : static_cast<uint16_t>(sign | infinity);
  const int unit = std::max(exponent, least_exponent);  // of the half's last bit, above its mantissa
  const int shift = bits_of_double - mantissa_bits + unit - exponent;
  if (shift > bits_of_double + 1) return sign;  // less than half of the least, or a denormal double
  const uint64_t mantissa = fraction | uint64_t{1} << bits_of_double;
  uint64_t units = mantissa >> shift;
  const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
  if (!toward_zero && (rest > half || (rest == half && units % 2 != 0))) ++units;
  // Where the mantissa overflows, the exponent becomes one more, and so do the bits.
  units += static_cast<uint64_t>(unit - least_exponent) << mantissa_bits;
  if (units >= infinity) return sign | (toward_zero ? largest : infinity);
  return static_cast<uint16_t>(sign | units);
}

}  // namespace t4
