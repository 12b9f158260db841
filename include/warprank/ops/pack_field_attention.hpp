// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Packs the weights of a layer of attention over fields (ops/field_attention.cuh) for tensor cores, once on the host.
///
/// Outputs of a head and inputs are cut into tiles of 16, padded with zeros. The weights of a head lie in the order in
/// which a warp reads them, each tile as PackedFragmentLayout has it: for each tile of outputs and each of inputs that
/// of keys and that of queries, and then in the same way those of values and of the residual.

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

/// Of weights [heads * head_dim, dim].
struct FieldAttentionShape {
  int64_t dim = 1, heads = 1, head_dim = 1;

  static constexpr int64_t tile = 16;
  constexpr int64_t size() const { return heads * head_dim * dim; }
  constexpr int64_t input_tiles() const { return (dim + tile - 1) / tile; }
  constexpr int64_t output_tiles() const { return (head_dim + tile - 1) / tile; }  ///< of a head
  /// Two weights side by side, and two below the others for each head.
  constexpr PackedFragmentLayout layout() const {
    return {input_tiles() * 2 * tile, heads * output_tiles() * 2 * tile};
  }
  /// A lane has four neighbours of each tile of inputs, and of outputs: two of each half.
  static constexpr int64_t place_in_tile(int64_t i) { return i % 4 / 2 * 8 + i % tile / 4 * 2 + i % 2; }
  /// Where the weight `which` (0: keys, 1: queries, 2: values, 3: residual) of a head has output c and input d, in
  /// elements.
  constexpr int64_t index(int64_t which, int64_t head, int64_t c, int64_t d) const {
    const int64_t below = ((head * 2 + which / 2) * output_tiles() + c / tile) * tile + place_in_tile(c);
    const int64_t beside = (d / tile * 2 + which % 2) * tile + place_in_tile(d);
    return below * layout().in + beside;
  }
};

/// Packs the four weights, row-major, as FP16; `residual` may be empty. Throws invalid_argument for wrong sizes and for
/// weights that are not finite in FP16.
inline Buffer<unsigned char> pack_field_attention(const FieldAttentionShape& shape, Span<const float> query,
                                                  Span<const float> key, Span<const float> value,
                                                  Span<const float> residual) {
  const auto text = [](int64_t number) { return std::to_string(number); };
  constexpr int64_t most = int64_t{1} << 20;
  if (shape.dim < 1 || shape.heads < 1 || shape.head_dim < 1 || shape.dim > most || shape.heads > most ||
      shape.head_dim > most) {
    raise(invalid_argument("field attention", "1 to 2^20 heads of 1 to 2^20 columns, and fields of as many",
                           text(shape.heads) + " heads of " + text(shape.head_dim) + ", fields of " + text(shape.dim)));
  }
  struct Weight {
    const char* name;
    Span<const float> values;
  };
  const Weight weights[] = {{"key", key}, {"query", query}, {"value", value}, {"residual", residual}};
  Problems problems;
  for (const Weight& weight : weights) {
    const bool is_absent = weight.values.empty() && &weight == &weights[3];
    if (weight.values.size() != shape.size() && !is_absent)
      problems.add(std::string(weight.name) + " weight of a field attention", text(shape.size()) + " values",
                   text(weight.values.size()));
  }
  problems.throw_if_any();
  const PackedFragmentLayout layout = shape.layout();
  std::vector<float> padded(static_cast<size_t>(layout.in * layout.out));
  for (int64_t which = 0; which < 4; ++which) {
    const Span<const float> values = weights[which].values;
    for (int64_t i = 0; i < values.size(); ++i) {
      const int64_t row = i / shape.dim;
      padded[static_cast<size_t>(shape.index(which, row / shape.head_dim, row % shape.head_dim, i % shape.dim))] =
          values[i];
    }
  }
  return pack_linear<float, PackedFragmentLayout>({padded.data(), static_cast<int64_t>(padded.size())}, {}, layout.in,
                                                  layout.out);
}

}}  // namespace warprank::v0
