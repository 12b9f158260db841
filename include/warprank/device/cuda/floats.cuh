// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Conversions and approximate functions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace warprank { inline namespace v0 { namespace device::backend {

WARPRANK_DEVICE float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
WARPRANK_DEVICE uint16_t float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
WARPRANK_DEVICE uint16_t float_to_bfloat16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
WARPRANK_DEVICE float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
WARPRANK_DEVICE uint32_t float_to_bits(float value) { return __float_as_uint(value); }
/// The compiler's code for a / b, without its test for numbers for which this code is wrong.
WARPRANK_DEVICE float divide_by_one_to_two(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);
  const float q = __fmul_rn(a, r);
  return __fmaf_rn(r, __fmaf_rn(-b, q, a), q);
}
WARPRANK_DEVICE __half2 half2_of(uint32_t pair) { return *reinterpret_cast<const __half2*>(&pair); }
WARPRANK_DEVICE float low_half_to_float(uint32_t pair) { return __low2float(half2_of(pair)); }
WARPRANK_DEVICE float high_half_to_float(uint32_t pair) { return __high2float(half2_of(pair)); }
WARPRANK_DEVICE uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
WARPRANK_DEVICE uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}
template <bool Relu>
WARPRANK_DEVICE uint32_t floats_to_halves(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (Relu) {
    asm("cvt.rn.satfinite.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  if constexpr (Relu) low = low < 0 ? 0 : low, high = high < 0 ? 0 : high;  // keeps NaN
  const __half2 halves = __floats2half2_rn(low, high);
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(&halves);
  uint32_t is_infinite;  // all bits of a half that is infinite
  asm("{ .reg .b32 magnitude; abs.f16x2 magnitude, %1; set.gt.u32.f16x2 %0, magnitude, %2; }"
      : "=r"(is_infinite)
      : "r"(pair), "r"(0x7bff7bffu));
  return pair - (is_infinite & 0x00010001u);  // infinity is one above the largest half
#endif
}

WARPRANK_DEVICE float fast_exp(float x) { return __expf(x); }
WARPRANK_DEVICE float fast_divide(float a, float b) { return __fdividef(a, b); }
WARPRANK_DEVICE float fast_reciprocal_sqrt(float x) { return rsqrtf(x); }

}}}  // namespace warprank::v0::device::backend
