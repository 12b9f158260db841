// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Conversions and approximate functions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace warprank::device::backend {

WARPRANK_DEVICE float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
WARPRANK_DEVICE uint16_t float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
WARPRANK_DEVICE uint16_t float_to_bfloat16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
WARPRANK_DEVICE float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
WARPRANK_DEVICE uint32_t float_to_bits(float value) { return __float_as_uint(value); }
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
  const uint32_t pair = static_cast<uint32_t>(float_to_half(low)) | static_cast<uint32_t>(float_to_half(high)) << 16;
  return pair - __vseteq2(pair & 0x7fff7fffu, 0x7c007c00u);  // infinity is one above the largest half
#endif
}

WARPRANK_DEVICE float fast_exp(float x) { return __expf(x); }
WARPRANK_DEVICE float fast_divide(float a, float b) { return __fdividef(a, b); }

}  // namespace warprank::device::backend
