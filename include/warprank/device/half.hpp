// SPDX-License-Identifier: Apache-2.0
#pragma once

/// 16-bit floats inside kernels: the same rounding as core/dtype.hpp, one instruction each on a GPU. BF16 is decoded by
/// a shift, which every target has.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/unroll.hpp"
#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// The float of these bits.
WARPRANK_DEVICE float float_of_bits(uint32_t bits) { return backend::bits_to_float(bits); }
/// The bits of this float.
WARPRANK_DEVICE uint32_t bits_of_float(float value) { return backend::float_to_bits(value); }

/// a / b, rounded like a division, for b in [1, 2] and a in [2^-100, 1], or b = 1 and any a: half the instructions and
/// no branch, which would keep the divisions of a thread from overlapping.
WARPRANK_DEVICE float divide_by_one_to_two(float a, float b) { return backend::divide_by_one_to_two(a, b); }

/// The value as a float, exactly.
WARPRANK_DEVICE float widen(float value) { return value; }
WARPRANK_DEVICE float widen(float16 value) { return backend::half_to_float(value.bits); }
WARPRANK_DEVICE float widen(bfloat16 value) { return float_of_bits(static_cast<uint32_t>(value.bits) << 16); }
WARPRANK_DEVICE float widen(int8_t value) { return static_cast<float>(value); }

/// Signed byte `i` of a word as a float, exactly: a permutation and a subtraction, where a conversion takes four times
/// as long. 2^23 + 128 + q is the float whose lower bits are 128 + q.
WARPRANK_DEVICE float widen_byte(uint32_t bytes, int i) {
  const uint32_t biased = bytes ^ 0x80808080u;
  return float_of_bits(backend::permute_bytes(biased, 0x4b000000u, 0x7440u | static_cast<uint32_t>(i))) - 8388736.0f;
}

/// The value, or the largest half of its sign if it is finite and beyond the range of halves.
WARPRANK_DEVICE float limit_to_half(float value) {
  const float magnitude = std::fabs(value);
  return magnitude > max_float16 && magnitude <= FLT_MAX ? (value < 0 ? -max_float16 : max_float16) : value;
}
/// The nearest Value (float, half or bfloat16), ties to even. A finite value stays finite as a half, of at most 65504
/// with the sign of the value; as a bfloat16 it may round up to infinity.
template <class Value>
WARPRANK_DEVICE Value narrow(float value) {
  if constexpr (std::is_same_v<Value, float16>) return {backend::float_to_half(limit_to_half(value))};
  if constexpr (std::is_same_v<Value, bfloat16>) return {backend::float_to_bfloat16(value)};
  if constexpr (std::is_same_v<Value, float>) return value;
}
/// to[i] = narrow(values[i]). One test of all values finds out whether any is too large for a half, which is rare.
template <class Value, int Size, class To>
WARPRANK_DEVICE void narrow_all(const float (&values)[Size], To& to) {
  if constexpr (std::is_same_v<Value, float16> && Size > 1) {
    float limited[Size], largest = std::fabs(values[0]);
    WARPRANK_UNROLL
    for (int i = 0; i < Size; ++i) {
      limited[i] = values[i];
      if (i > 0) largest = std::fmax(largest, std::fabs(values[i]));
    }
    if (!(largest <= max_float16)) {
      WARPRANK_UNROLL
      for (int i = 0; i < Size; ++i) limited[i] = limit_to_half(values[i]);
    }
    WARPRANK_UNROLL
    for (int i = 0; i < Size; ++i) to[i] = {backend::float_to_half(limited[i])};
  } else {
    WARPRANK_UNROLL
    for (int i = 0; i < Size; ++i) to[i] = narrow<Value>(values[i]);
  }
}

/// Two halves as tensor cores take them: `low` in the lower 16 bits.
WARPRANK_DEVICE uint32_t pack_halves(float16 low, float16 high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}
/// The nearest halves of two floats, packed: one instruction from sm_80 on. NaN stays NaN; a value beyond the range of
/// halves, infinity too, becomes the largest half of its sign.
WARPRANK_DEVICE uint32_t narrow_pair(float low, float high) { return backend::floats_to_halves<false>(low, high); }
/// As narrow_pair of max(0, value); NaN stays NaN.
WARPRANK_DEVICE uint32_t narrow_pair_relu(float low, float high) { return backend::floats_to_halves<true>(low, high); }
/// One half of a pair as a float, exactly: one instruction on the whole pair, where low_half and high_half take one
/// more to extract the half.
WARPRANK_DEVICE float widen_low(uint32_t pair) { return backend::low_half_to_float(pair); }
WARPRANK_DEVICE float widen_high(uint32_t pair) { return backend::high_half_to_float(pair); }
WARPRANK_DEVICE float16 low_half(uint32_t pair) { return {static_cast<uint16_t>(pair & 0xffffu)}; }
WARPRANK_DEVICE float16 high_half(uint32_t pair) { return {static_cast<uint16_t>(pair >> 16)}; }

/// The lower or the upper halves of two pairs, packed, by one instruction.
WARPRANK_DEVICE uint32_t pack_low_halves(uint32_t low, uint32_t high) {
  return backend::permute_bytes(low, high, 0x5410u);
}
WARPRANK_DEVICE uint32_t pack_high_halves(uint32_t low, uint32_t high) {
  return backend::permute_bytes(low, high, 0x7632u);
}

/// a b + c of pairs of halves, both results rounded once, by one instruction. A result that is too large becomes
/// infinite.
WARPRANK_DEVICE uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) { return backend::fma_halves(a, b, c); }
/// Two of a word's bytes 128 + q as halves q, exactly: bytes 0 and 1, or 2 and 3. A permutation and one more
/// instruction: 1024 + 128 + q is the half whose lower bits are 128 + q.
template <int First>
WARPRANK_DEVICE uint32_t widen_biased_bytes(uint32_t bytes) {
  static_assert(First == 0 || First == 2);
  constexpr uint32_t one = 0x3c003c00u, minus_1152 = 0xe480e480u;
  const uint32_t biased = backend::permute_bytes(bytes, 0x64646464u, First == 0 ? 0x4140u : 0x4342u);
  return fma_halves(biased, one, minus_1152);
}
/// The pair with the largest half in the place of infinity, with its sign; NaN stays NaN.
WARPRANK_DEVICE uint32_t saturate_halves(uint32_t pair) {
  // Infinity is one above the largest half.
  if ((pair & 0x00007fffu) == 0x00007c00u) pair -= 1;
  if ((pair & 0x7fff0000u) == 0x7c000000u) pair -= 0x10000u;
  return pair;
}

}}}  // namespace warprank::v0::device
