// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scoring network of DIN attention, packed once on the host, the same for every GPU.
///
/// With the first layer's weight [Wq | Wk | Wd | Wp] over [q, k, q - k, q * k],
///
///     pre = c(q) + W(q) k,   c(q) = (Wq + Wd) q + b,   W(q) = (Wk - Wd) + Wp diag(q)
///
/// W(q) is rounded to FP16 once per item: Wk - Wd stays FP32. Wp and Wq + Wd are FP16, four columns of each in turn, so
/// that a thread has both in one load. Later layers are packed as all linear layers (gemm/weights.hpp), the head stays
/// FP32. Widths are padded to multiples of 16 with zeros.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/din_attention/partition.hpp"
#include "warprank/ops/detail/gemm/weights.hpp"

namespace warprank {

/// A layer of the scoring network as it was trained, row-major.
struct DinLayer {
  Span<const float> weight;  ///< [out, in]; the first layer's in is 4 dim, the last layer's out is 1
  Span<const float> bias;    ///< [out] or empty
  Activation activation;     ///< none for the last layer
  Span<const float> alpha;   ///< [out] prelu, dice
  Span<const float> scale;   ///< [out] dice: p = sigmoid(scale x + shift)
  Span<const float> shift;   ///< [out] dice
};

/// The scoring network as kernels take it. Its bytes are for device memory, aligned to 16; the object stays on the host
/// and knows where what lies.
class DinWeights {
 public:
  static constexpr int64_t max_dim = 256, max_hidden = 512;

  /// 1 to 3 hidden layers and the last one, of one output, whose scores are divided by sqrt(dim) when `scaled`. Copies
  /// what it is given. Throws invalid_argument for wrong sizes, for numbers that are not finite, and for a weight that
  /// becomes FP16 and is above its largest finite number.
  DinWeights(int64_t dim, Span<const DinLayer> layers, Normalization normalization = Normalization::none,
             bool scaled = false)
      : normalization_(normalization),
        factor_(scaled ? 1 / std::sqrt(static_cast<float>(std::max<int64_t>(dim, 1))) : 1) {
    const auto text = [](int64_t value) { return std::to_string(value); };
    if (dim < 1 || dim > max_dim)
      throw invalid_argument("columns of DIN attention", "1 to " + text(max_dim), text(dim));
    constexpr int64_t most_layers = detail::din::max_hidden_layers + 1;
    if (layers.size() < 2 || layers.size() > most_layers)
      throw invalid_argument("layers of DIN attention", "2 to " + text(most_layers), text(layers.size()));
    dim_ = dim;
    check(layers);
    pack_first(layers[0]);
    for (int64_t i = 1; i + 1 < layers.size(); ++i) pack_hidden(layers[i], width(i - 1));
    pack_head(layers[layers.size() - 1]);
  }

  int64_t dim() const { return dim_; }
  int num_hidden() const { return static_cast<int>(hidden_.size()); }
  int64_t width(int64_t i) const { return hidden_[static_cast<size_t>(i)].width; }
  Normalization normalization() const { return normalization_; }
  Span<const unsigned char> bytes() const { return bytes_; }

  /// What follows is for the op. Offsets are in bytes; those of vectors that the activation does not use are -1.
  struct HiddenLayer {
    int64_t width = 0, weights = 0, bias = 0;
    Activation activation;
    int64_t alpha = -1, scale = -1, shift = -1;
  };
  const HiddenLayer& hidden(int i) const { return hidden_[static_cast<size_t>(i)]; }
  int64_t event_weights() const { return 0; }  ///< Wk - Wd, float [width 0, dim], padded
  int64_t pair_weights() const { return pair_weights_; }
  int64_t head() const { return head_; }
  int64_t head_bias() const { return head_bias_; }
  float factor() const { return factor_; }  ///< of scores

 private:
  static constexpr int64_t padded(int64_t width) { return (width + 15) / 16 * 16; }

  int64_t reserve(int64_t count) {
    const auto begin = static_cast<int64_t>(bytes_.size());
    bytes_.resize(static_cast<size_t>(begin + (count + 15) / 16 * 16));
    return begin;
  }
  int64_t append(const void* data, int64_t count) {
    const int64_t begin = reserve(count);
    if (count > 0) std::memcpy(&bytes_[static_cast<size_t>(begin)], data, static_cast<size_t>(count));
    return begin;
  }
  int64_t append(Span<const float> values) { return append(values.data(), values.size() * 4); }

  void check(Span<const DinLayer> layers) const {
    Problems problems;
    int64_t in = 4 * dim_;
    for (int64_t i = 0; i < layers.size(); ++i) {
      const DinLayer& layer = layers[i];
      const bool is_last = i + 1 == layers.size();
      const int64_t size = layer.weight.size(), out = std::max<int64_t>(size / in, 1);
      const std::string name = "layer " + std::to_string(i) + " of DIN attention";
      if (size != out * in || (is_last && out != 1) || out > max_hidden)
        problems.add("weight of " + name,
                     (is_last ? "" : "a multiple, 1 to " + std::to_string(max_hidden) + ", of ") + std::to_string(in) +
                         " values",
                     std::to_string(size));
      const ActivationKind kind = layer.activation.kind;
      if (is_last && kind != ActivationKind::identity)
        problems.add("activation of " + name, "identity", name_of_enum(kind));
      const auto expect = [&](const char* what, Span<const float> values, bool is_needed, bool may_be_empty = false) {
        const int64_t expected = is_needed ? out : 0;
        if (values.size() != expected && !(may_be_empty && values.empty()))
          problems.add(what + (" of " + name), std::to_string(expected) + " values", std::to_string(values.size()));
        for (const float value : values)
          if (!std::isfinite(value))
            return problems.add(what + (" of " + name), "finite values", std::to_string(value));
      };
      const bool is_dice = kind == ActivationKind::dice;
      expect("bias", layer.bias, true, true);
      expect("alpha", layer.alpha, is_dice || kind == ActivationKind::prelu);
      expect("scale", layer.scale, is_dice);
      expect("shift", layer.shift, is_dice);
      in = out;
    }
    problems.throw_if_any();
  }

  HiddenLayer& add_hidden(const DinLayer& layer, int64_t width) {
    HiddenLayer hidden;
    hidden.width = width;
    hidden.activation = layer.activation;
    if (!layer.alpha.empty()) hidden.alpha = append(layer.alpha);
    if (!layer.scale.empty()) hidden.scale = append(layer.scale);
    if (!layer.shift.empty()) hidden.shift = append(layer.shift);
    hidden_.push_back(hidden);
    return hidden_.back();
  }

  void pack_first(const DinLayer& layer) {
    const int64_t out = layer.weight.size() / (4 * dim_), columns = padded(dim_), size = padded(out) * columns;
    std::vector<float> of_events(static_cast<size_t>(size));
    std::vector<half> pairs(static_cast<size_t>(2 * size));
    for (int64_t h = 0; h < out; ++h) {
      const float *of_q = layer.weight.data() + h * 4 * dim_, *of_k = of_q + dim_, *of_d = of_k + dim_,
                  *of_p = of_d + dim_;
      for (int64_t c = 0; c < dim_; ++c) {
        const int64_t at = h * columns + c;
        const float event = of_k[c] - of_d[c], query = of_q[c] + of_d[c];
        const half halves[2] = {to_half(of_p[c]), to_half(query)};
        of_events[static_cast<size_t>(at)] = event;
        for (int i = 0; i < 2; ++i) pairs[static_cast<size_t>(at / 4 * 8 + 4 * i + at % 4)] = halves[i];
        if (!std::isfinite(event) || !std::isfinite(to_float(halves[0])) || !std::isfinite(to_float(halves[1])))
          throw invalid_argument(
              "first layer of DIN attention, row " + std::to_string(h) + ", column " + std::to_string(c),
              "Wk - Wd finite, Wp and Wq + Wd finite as FP16",
              std::to_string(event) + ", " + std::to_string(of_p[c]) + " and " + std::to_string(query));
      }
    }
    append(of_events);
    pair_weights_ = append(pairs.data(), static_cast<int64_t>(pairs.size()) * 2);
    std::vector<float> bias(layer.bias.begin(), layer.bias.end());
    bias.resize(static_cast<size_t>(out));
    const int64_t bias_at = append(bias);
    add_hidden(layer, out).bias = bias_at;
  }

  void pack_hidden(const DinLayer& layer, int64_t in) {
    // A layer of one output is packed as one of two: alone it would be packed as a head.
    const int64_t out = layer.weight.size() / in, packed_out = std::max<int64_t>(out, 2);
    std::vector<float> weight(layer.weight.begin(), layer.weight.end()), bias(layer.bias.begin(), layer.bias.end());
    weight.resize(static_cast<size_t>(packed_out * in));
    bias.resize(static_cast<size_t>(packed_out));
    const auto packed = pack_linear(Span<const float>(weight), Span<const float>(bias), in, packed_out);
    HiddenLayer& hidden = add_hidden(layer, out);
    hidden.weights = append(packed.data(), packed.size());
    hidden.bias = hidden.weights + PackedLinearLayout{in, packed_out}.bias_offset();
  }

  void pack_head(const DinLayer& layer) {
    for (const float weight : layer.weight)
      if (!std::isfinite(weight))
        throw invalid_argument("weight of the last layer of DIN attention", "finite values", std::to_string(weight));
    const float bias = layer.bias.empty() ? 0 : layer.bias[0];
    head_ = append(layer.weight);
    head_bias_ = append(&bias, sizeof bias);
  }

  int64_t dim_ = 0, pair_weights_ = 0, head_ = 0, head_bias_ = 0;
  Normalization normalization_;
  float factor_;
  std::vector<HiddenLayer> hidden_;
  std::vector<unsigned char> bytes_;
};

}  // namespace warprank
