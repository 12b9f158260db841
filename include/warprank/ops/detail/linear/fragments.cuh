// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What direct.cuh and staged.cuh have in common: y^T = W x^T with the weights as A, of 16 outputs, and 8 rows of x as
/// B. 16 bytes of packed weights are A in four registers as they come, and 16 bytes of x are B of 32 inputs, as
/// PackedLinearLayout orders inputs within a step.

#include <cstdint>
#include <cstring>

#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/ops/detail/linear/descriptor.cuh"
#include "warprank/ops/detail/linear/tiling.hpp"

namespace warprank { inline namespace v0 { namespace detail::linear {

/// 16 bytes: of weights, or 8 inputs of a row.
using Fragment = device::Vector<uint32_t, 4>;

/// Words of the weights of 16 outputs and one step, and of half of it, which is A of one mma.m16n8k16.
inline constexpr int step_words = 256, half_step_words = 128;

/// How weights lie that are float16 (PackedLinearLayout) or int8_t (PackedInt8Layout): 16 bytes of a lane are half a
/// step, or a whole one.
template <class Weight>
struct PackedSteps {
  static constexpr int loads = sizeof(Weight);  ///< of a lane, for the weights of 16 outputs and one step
  static constexpr int words = loads * half_step_words;
};

/// A of half `Half` of a step, from the whole step in INT8.
template <int Half>
WARPRANK_DEVICE Fragment widen_half(const Fragment& step) {
  Fragment half;
  WARPRANK_UNROLL
  for (int i = 0; i < 2; ++i) {
    half[2 * i] = device::widen_biased_bytes<0>(step[2 * Half + i]);
    half[2 * i + 1] = device::widen_biased_bytes<2>(step[2 * Half + i]);
  }
  return half;
}

/// sums [16 outputs][8 rows] += W x over half `Half` of a step.
template <int Target, int Half>
WARPRANK_DEVICE void multiply_half_step(float (&sums)[4], const Fragment& w, const Fragment& x) {
  if constexpr (Target >= 80) {
    const uint32_t a[4] = {w[0], w[1], w[2], w[3]}, b[2] = {x[2 * Half], x[2 * Half + 1]};
    device::mma_m16n8k16(sums, a, b, sums);
  } else {
    const uint32_t a_first[2] = {w[0], w[1]}, a_second[2] = {w[2], w[3]};
    const uint32_t b_first[1] = {x[2 * Half]}, b_second[1] = {x[2 * Half + 1]};
    device::mma_m16n8k8(sums, a_first, b_first, sums);
    device::mma_m16n8k8(sums, a_second, b_second, sums);
  }
}

/// sums [Pairs of 16 outputs][Strips of 8 rows] += W x over half a step. Products of one sum are as far apart as can
/// be.
template <int Target, int Half, int Pairs, int Strips>
WARPRANK_DEVICE void multiply_half_steps(float (&sums)[Pairs][Strips][4], const Fragment (&w)[Pairs],
                                         const Fragment (&x)[Strips]) {
  constexpr int quarters = Target >= 80 ? 1 : 2;
  WARPRANK_UNROLL
  for (int q = 0; q < quarters; ++q) {
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      WARPRANK_UNROLL
      for (int j = 0; j < Pairs; ++j) {
        if constexpr (Target >= 80) {
          multiply_half_step<Target, Half>(sums[j][r], w[j], x[r]);
        } else {
          const uint32_t a[2] = {w[j][2 * q], w[j][2 * q + 1]}, b[1] = {x[r][2 * Half + q]};
          device::mma_m16n8k8(sums[j][r], a, b, sums[j][r]);
        }
      }
    }
  }
}

/// sums += W x over a step, of FP16 weights.
template <int Target, int Pairs, int Strips>
WARPRANK_DEVICE void multiply_step(float (&sums)[Pairs][Strips][4], const Fragment (&w)[2][Pairs],
                                   const Fragment (&x)[Strips]) {
  multiply_half_steps<Target, 0>(sums, w[0], x);
  multiply_half_steps<Target, 1>(sums, w[1], x);
}
/// The same of INT8 weights.
template <int Target, int Pairs, int Strips>
WARPRANK_DEVICE void multiply_step(float (&sums)[Pairs][Strips][4], const Fragment (&w)[1][Pairs],
                                   const Fragment (&x)[Strips]) {
  Fragment halves[2][Pairs];
  WARPRANK_UNROLL
  for (int j = 0; j < Pairs; ++j) halves[0][j] = widen_half<0>(w[0][j]), halves[1][j] = widen_half<1>(w[0][j]);
  multiply_step<Target>(sums, halves, x);
}

/// The inputs [k, k + 8) of a row, for a `k` below their number, one by one: 0 behind the last.
WARPRANK_DEVICE Fragment gather_inputs(const float16* row, int k, int inputs) {
  device::Vector<float16, 8> piece{};
  WARPRANK_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (k + i < inputs) piece[i] = device::load(row + k + i);
  }
  Fragment fragment;
  memcpy(&fragment, &piece, sizeof fragment);
  return fragment;
}

/// Whether the inputs [k, k + 8) can be read by one instruction; k is below their number.
template <bool IsPlain>
WARPRANK_DEVICE bool reads_whole(const ProductDescriptor& layer, int k) {
  return IsPlain || (layer.x_is_aligned && k + 8 <= layer.inputs);
}

WARPRANK_DEVICE Fragment request_inputs(const float16* from) {
  return device::load_vector_ahead<4>(reinterpret_cast<const uint32_t*>(from));
}

}}}  // namespace warprank::v0::detail::linear
