// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sines and angles inside kernels. CUDA's own keep the rare large numbers in local memory, which a kernel that
/// interprets programs would have to set aside for all of them.

#include <cmath>
#include <cstdint>

#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// sin(x + quarters pi / 2), quarters 0 or 1: within 4 u for |x| <= 2^20, beyond that the sine of a number within
/// 16 u |x| of x, u = 2^-24. NaN of infinity.
WARPRANK_DEVICE float sine_of(float x, uint32_t quarters) {
  float t = std::fabs(x);
  // Floats beyond 2^22 are 0.5 apart or more, and a multiple of 2 pi is within pi.
  if (t > 4194304.0f) t *= 0.0f;
  // |x| = q pi / 2 + r; q is in the lowest bits of `shifted`.
  const float shift = 12582912.0f, shifted = std::fma(t, 0.63661977237f, shift), q = shifted - shift;
  // pi / 2 in three parts: what the first leaves is exact, as multiplication and subtraction round once.
  float r = std::fma(q, -1.57079637051f, t);
  r = std::fma(q, 4.37113882867e-8f, r);
  r = std::fma(q, 1.71512451e-15f, r);
  // Minimax over |r| <= pi / 4.
  const float r2 = r * r;
  float p = -1.9515295891e-4f;
  p = std::fma(p, r2, 8.3321608736e-3f);
  p = std::fma(p, r2, -1.6666654611e-1f);
  const float sine = std::fma(p * r2, r, r);
  p = 2.4433157118e-5f;
  p = std::fma(p, r2, -1.3887316255e-3f);
  p = std::fma(p, r2, 4.1666645683e-2f);
  const float cosine = std::fma(r2 * r2, p, std::fma(-0.5f, r2, 1.0f));
  const uint32_t quarter = device::bits_of_float(shifted) + quarters, sign_of_x = quarters == 0 ? 0x80000000u : 0u;
  const uint32_t sign = (quarter << 30 & 0x80000000u) ^ (device::bits_of_float(x) & sign_of_x);
  return device::float_of_bits(device::bits_of_float((quarter & 1) != 0 ? cosine : sine) ^ sign);
}

/// The angle of the point (x, y), within 4 u of itself.
WARPRANK_DEVICE float angle_of(float y, float x) {
  const float width = std::fabs(x), height = std::fabs(y);
  // The angle to the nearer axis has a tangent of 0 to 1; of two equal sides, which may be infinite or zero, it is 1
  // or 0. Comparisons with NaN are false: the quotient is NaN.
  const bool is_steep = height > width;
  const float small = is_steep ? width : height, large = is_steep ? height : width;
  float tangent = small / large;
  if (small == large) tangent = large > 0 ? 1.0f : 0.0f;
  // Minimax for atan(t) / t - 1 over t <= 1, relative error 2^-25.8.
  const float t2 = tangent * tangent;
  float p = 2.9206922533e-3f;
  p = std::fma(p, t2, -1.6367928194e-2f);
  p = std::fma(p, t2, 4.3211861261e-2f);
  p = std::fma(p, t2, -7.5522143310e-2f);
  p = std::fma(p, t2, 1.0666004661e-1f);
  p = std::fma(p, t2, -1.4211055309e-1f);
  p = std::fma(p, t2, 1.9993772834e-1f);
  p = std::fma(p, t2, -3.3333152736e-1f);
  float angle = std::fma(p * t2, tangent, tangent);
  if (is_steep) angle = 1.57079637051f - angle;
  if (device::bits_of_float(x) >> 31 != 0) angle = 3.14159274101f - angle;
  return device::float_of_bits(device::bits_of_float(angle) | (device::bits_of_float(y) & 0x80000000u));
}

}}}  // namespace warprank::v0::detail::row_programs
