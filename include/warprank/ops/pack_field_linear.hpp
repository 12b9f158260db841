// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the weights of a linear layer over fields (ops/field_linear.cuh) for tensor cores, once on the host.

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

/// Of the layer's weights: [out, factors * fields], or without factors [out, fields].
struct FieldLinearShape {
  int64_t num_factors = 0;  ///< 0: none
  int64_t fields = 0, out = 0;

  constexpr int64_t factors() const { return num_factors == 0 ? 1 : num_factors; }
  constexpr int64_t terms() const { return factors() * fields; }
  /// Fields are padded to multiples of 8, which a lane has of one factor.
  constexpr int64_t padded_fields() const { return (fields + 7) / 8 * 8; }
  /// Of the weights with padding. There are two outputs or more: a layer of one is packed otherwise.
  constexpr PackedLinearLayout layout() const { return {factors() * padded_fields(), out == 1 ? 2 : out}; }
};

/// Packs `weight` [out, terms], row-major, and `bias` [out] or empty, as FP16 and FP32, as pack_linear does. Throws
/// invalid_argument for wrong sizes and for weights that are not finite in FP16.
inline Buffer<unsigned char> pack_field_linear(const FieldLinearShape& shape, Span<const float> weight,
                                               Span<const float> bias) {
  constexpr int64_t most = int64_t{1} << 30;
  if (shape.num_factors < 0 || shape.fields < 1 || shape.out < 1 || shape.num_factors > most || shape.fields > most ||
      shape.terms() > most || shape.out > most) {
    raise(invalid_argument(
        "field linear layer", "0 or more factors, 1 or more fields and outputs, with up to 2^30 terms and outputs",
        std::to_string(shape.num_factors) + ", " + std::to_string(shape.fields) + " and " + std::to_string(shape.out)));
  }
  if (!bias.empty() && bias.size() != shape.out) {
    raise(invalid_argument("bias of a field linear layer", std::to_string(shape.out) + " values",
                           std::to_string(bias.size())));
  }
  if (weight.size() != shape.out * shape.terms()) {
    raise(invalid_argument("weight of a field linear layer", std::to_string(shape.out * shape.terms()) + " values",
                           std::to_string(weight.size())));
  }
  const PackedLinearLayout layout = shape.layout();
  std::vector<float> padded(static_cast<size_t>(layout.in * layout.out)), padded_bias(bias.begin(), bias.end());
  for (int64_t n = 0; n < shape.out; ++n)
    for (int64_t i = 0; i < shape.factors(); ++i)
      for (int64_t j = 0; j < shape.fields; ++j)
        padded[static_cast<size_t>(n * layout.in + i * shape.padded_fields() + j)] =
            weight[n * shape.terms() + i * shape.fields + j];
  if (!bias.empty()) padded_bias.resize(static_cast<size_t>(layout.out));
  return pack_linear<float>({padded.data(), static_cast<int64_t>(padded.size())},
                            {padded_bias.data(), static_cast<int64_t>(padded_bias.size())}, layout.in, layout.out);
}

}}  // namespace warprank::v0
