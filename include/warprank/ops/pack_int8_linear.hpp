// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the weights of linear layers in INT8 (ops/int8_weights.hpp) for tensor cores, once on the host: half the bytes
/// of pack_linear (ops/pack_linear.hpp), whose order of inputs and outputs they have.
///
/// The 512 bytes of a pair of tiles and a step are 16 bytes for each lane: its 8 weights of either half of the step,
/// each as the byte 128 + q. With a byte of 0x64 above it, such a byte is the FP16 number 1024 + 128 + q. Behind the
/// weights are the biases, and then the scales, in FP32. A head is as pack_linear packs it.

#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/core/buffer.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/int8_weights.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

/// The places of a packed layer's parts.
struct PackedInt8Layout {
  int64_t in = 0, out = 0;

  static constexpr int64_t step = PackedLinearLayout::step, pair = PackedLinearLayout::pair;
  static constexpr int64_t step_bytes = 512;  ///< of one pair and step
  static constexpr unsigned char zero = 128;  ///< the byte of a weight of 0

  constexpr bool is_head() const { return as_halves().is_head(); }
  constexpr int64_t num_steps() const { return as_halves().num_steps(); }
  constexpr int64_t num_pairs() const { return as_halves().num_pairs(); }
  constexpr int64_t bias_offset() const {  ///< in bytes
    return is_head() ? as_halves().bias_offset() : num_pairs() * num_steps() * step_bytes;
  }
  /// In bytes; not of a head.
  constexpr int64_t scale_offset() const { return bias_offset() + num_pairs() * pair * 4; }
  constexpr int64_t bytes() const { return scale_offset() + (is_head() ? 0 : num_pairs() * pair * 4); }
  /// Where the byte of output n and input k is; not of a head.
  constexpr int64_t index(int64_t n, int64_t k) const {
    const int64_t lane = n % 8 * 4 + k % step / 8;
    const int64_t element = k % 8 / 4 * 8 + k % 4 / 2 * 4 + n % pair / 8 * 2 + k % 2;
    return ((n / pair * num_steps() + k / step) * 32 + lane) * 16 + element;
  }

 private:
  constexpr PackedLinearLayout as_halves() const { return {in, out}; }
};

/// The bytes of a layer that is packed in FP16, or in INT8.
constexpr int64_t packed_linear_bytes(DType weight_type, int64_t in, int64_t out) {
  return weight_type == DType::i8 ? PackedInt8Layout{in, out}.bytes() : PackedLinearLayout{in, out}.bytes();
}

/// Packs `weight` [out, in], row-major, and `bias` [out] or empty. Throws invalid_argument for wrong sizes, and for a
/// weight that INT8 cannot hold (check_int8). The bytes are for device memory, aligned to 16.
inline Buffer<unsigned char> pack_int8_linear(Span<const float> weight, Span<const float> bias, int64_t in,
                                              int64_t out) {
  const PackedInt8Layout layout{in, out};
  if (out == 1) return pack_linear(weight, bias, in, out);
  detail::check_packed_sizes(weight.size(), bias.size(), in, out);
  check_int8("weight of a linear layer", weight);
  Buffer<unsigned char> packed(layout.bytes());
  std::memset(packed.data(), layout.zero, static_cast<size_t>(layout.bias_offset()));
  std::memset(packed.data() + layout.bias_offset(), 0, static_cast<size_t>(layout.bytes() - layout.bias_offset()));
  auto* const scales = reinterpret_cast<float*>(packed.data() + layout.scale_offset());
  for (int64_t n = 0; n < out; ++n) {
    const Span<const float> row = weight.subspan(n * in, in);
    scales[n] = int8_scale(row);
    for (int64_t k = 0; k < in; ++k)
      packed[layout.index(n, k)] = static_cast<unsigned char>(layout.zero + to_int8(row[k], scales[n]));
  }
  if (!bias.empty())
    std::memcpy(packed.data() + layout.bias_offset(), bias.data(), static_cast<size_t>(out) * sizeof(float));
  return packed;
}

/// As the one or the other packs it: in FP16, or as DType::i8 says in INT8.
inline Buffer<unsigned char> pack_linear(DType weight_type, Span<const float> weight, Span<const float> bias,
                                         int64_t in, int64_t out) {
  return weight_type == DType::i8 ? pack_int8_linear(weight, bias, in, out) : pack_linear(weight, bias, in, out);
}

}}  // namespace warprank::v0
