// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the weights of linear layers for tensor cores, once on the host, the same for every GPU.
///
/// Weights are A, and rows of x are B: y^T = W x^T. Outputs are cut into pairs of tiles of 8 and inputs into steps of
/// 32; both are padded with zeros. The 1024 bytes of (pair, step) are 16 bytes for each lane of a warp and half h of
/// the step: with g = lane / 4, t = lane % 4, n = 16 pair + g, k = 32 step + 8 t + 4 h
///
///     W[n][k], W[n][k + 1], W[n + 8][k], W[n + 8][k + 1], W[n][k + 2], W[n][k + 3], W[n + 8][k + 2], W[n + 8][k + 3]
///
/// as FP16, [half][lane]. One load gives the four registers of A of an mma.m16n8k16, or of two mma.m16n8k8. Its B is
/// x[row g][32 step + 8 t .. + 7] for both halves, as x lies in memory. Steps of a pair are neighbours. A layer of one
/// output, a head, is computed in FP32 and has FP32 weights: of every 64 inputs, the first four of each eight come
/// first, then the other four, as 8 lanes with 8 inputs each read them. The bias follows the weights, in FP32.
///
/// DIN attention chains products in registers, and so has rows as A and weights as B (PackedFragmentLayout). Neither
/// order suits the other kernels: each register would cost a move.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "warprank/core/buffer.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// The places of a packed layer's parts.
struct PackedLinearLayout {
  int64_t in = 0, out = 0;

  static constexpr int64_t step = 32;          ///< inputs that are packed together
  static constexpr int64_t pair = 16;          ///< outputs that are packed together
  static constexpr int64_t step_bytes = 1024;  ///< of one pair and step
  static constexpr int64_t head_step = 64;     ///< inputs of a head that are packed together

  WARPRANK_HOST_DEVICE constexpr bool is_head() const { return out == 1; }
  WARPRANK_HOST_DEVICE constexpr int64_t num_steps() const { return (in + step - 1) / step; }
  WARPRANK_HOST_DEVICE constexpr int64_t num_pairs() const { return (out + pair - 1) / pair; }
  WARPRANK_HOST_DEVICE constexpr int64_t bias_offset() const {  ///< in bytes
    return is_head() ? (in + head_step - 1) / head_step * head_step * 4 : num_pairs() * num_steps() * step_bytes;
  }
  constexpr int64_t bytes() const { return bias_offset() + num_pairs() * pair * 4; }
  /// Where a head's input k is, in elements.
  static WARPRANK_HOST_DEVICE constexpr int64_t head_index(int64_t k) {
    return k / head_step * head_step + k % 8 / 4 * (head_step / 2) + k % head_step / 8 * 4 + k % 4;
  }
  /// Where the FP16 of output n and input k is, in elements.
  WARPRANK_HOST_DEVICE constexpr int64_t index(int64_t n, int64_t k) const {
    const int64_t lane = n % 8 * 4 + k % step / 8;
    const int64_t element = k % 4 / 2 * 4 + n % pair / 8 * 2 + k % 2;
    return (((n / pair * num_steps() + k / step) * 2 + k % 8 / 4) * 32 + lane) * 8 + element;
  }
};

/// The same with weights as B and rows as A, in steps of 16 inputs: a lane has, with n = 16 pair + g, k = 16 step + 2 t
///
///     W[n][k], W[n][k + 1], W[n][k + 8], W[n][k + 9], W[n + 8][k], W[n + 8][k + 1], W[n + 8][k + 8], W[n + 8][k + 9]
///
/// in one load: B of two mma.m16n8k16, or of four mma.m16n8k8. A layer of one output is packed as any other.
struct PackedFragmentLayout {
  int64_t in = 0, out = 0;

  static constexpr int64_t step = 16, pair = 16;

  static constexpr bool is_head() { return false; }
  static constexpr int64_t head_index(int64_t k) { return k; }
  constexpr int64_t num_steps() const { return (in + step - 1) / step; }
  constexpr int64_t num_pairs() const { return (out + pair - 1) / pair; }
  constexpr int64_t bias_offset() const { return num_pairs() * num_steps() * 512; }
  constexpr int64_t bytes() const { return bias_offset() + num_pairs() * pair * 4; }
  constexpr int64_t index(int64_t n, int64_t k) const {
    const int64_t lane = n % 8 * 4 + k % 8 / 2;
    const int64_t element = n % pair / 8 * 4 + k % step / 8 * 2 + k % 2;
    return ((n / pair * num_steps() + k / step) * 32 + lane) * 8 + element;
  }
};

namespace detail {

/// Throws invalid_argument for sizes of packed layers that do not fit, all problems together.
inline void check_packed_sizes(int64_t num_weights, int64_t num_biases, int64_t in, int64_t out) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  Problems problems;
  constexpr int64_t most = int64_t{1} << 30;
  if (in < 1 || out < 1 || in > most || out > most)
    raise(invalid_argument("linear layer", "in and out of 1 to 2^30", text(in) + " and " + text(out)));
  if (num_weights != in * out) problems.add("weight of a linear layer", text(in * out) + " values", text(num_weights));
  if (num_biases != 0 && num_biases != out)
    problems.add("bias of a linear layer", text(out) + " values", text(num_biases));
  problems.throw_if_any();
}

}  // namespace detail

/// Packs `weight` [out, in], row-major, float or half, and `bias` [out] or empty. Weights are rounded to the nearest
/// FP16 (below 2^-14 to a multiple of 2^-24); weights of a head stay in FP32. Throws invalid_argument for wrong sizes,
/// and for a weight that is NaN, or infinite after rounding: an infinity would spoil whole scores later. The bytes are
/// for device memory, aligned to 16.
template <class Value, class Layout = PackedLinearLayout>
Buffer<unsigned char> pack_linear(Span<const Value> weight, Span<const float> bias, int64_t in, int64_t out) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  detail::check_packed_sizes(weight.size(), bias.size(), in, out);
  const Layout layout{in, out};
  const float limit = layout.is_head() ? std::numeric_limits<float>::max() : max_float16;
  Buffer<unsigned char> packed(layout.bytes());
  std::memset(packed.data(), 0, static_cast<size_t>(packed.size()));
  auto* halves = reinterpret_cast<float16*>(packed.data());
  auto* floats = reinterpret_cast<float*>(packed.data());
  for (int64_t n = 0; n < out; ++n)
    for (int64_t k = 0; k < in; ++k) {
      const float value = to_float(weight[n * in + k]);
      const float rounded = layout.is_head() ? value : to_float(to_float16(value));
      if (!(std::fabs(rounded) <= limit)) {
        raise(invalid_argument("weight [" + text(n) + ", " + text(k) + "] of a linear layer",
                               "a number whose magnitude is at most " + std::to_string(limit), std::to_string(value)));
      }
      if (layout.is_head())
        floats[layout.head_index(k)] = value;
      else
        halves[layout.index(n, k)] = to_float16(value);
    }
  if (!bias.empty())
    std::memcpy(packed.data() + layout.bias_offset(), bias.data(), static_cast<size_t>(out) * sizeof(float));
  return packed;
}

}}  // namespace warprank::v0
