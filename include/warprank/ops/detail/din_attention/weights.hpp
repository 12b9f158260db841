// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scoring network of DIN attention, packed once on the host, the same for every GPU.
///
/// With the first layer's weight [Wq | Wk | Wd | Wp] over [q, k, q - k, q * k],
///
///     pre = c(q) + W(q) k,   c(q) = (Wq + Wd) q + b,   W(q) = (Wk - Wd) + Wp diag(q)
///
/// A network is packed for one of two kernels. The chained one (chained/layout.hpp), whose W(q) and hidden outputs
/// never leave the registers, takes two hidden layers, both with relu or both with Dice, the second of at most 48
/// outputs, of at most 128 columns, as far as the weights fit into the shared memory of any card and Wk - Wd into FP16.
///
/// The staged one (staged/) takes all others. There Wk - Wd stays FP32, Wp and Wq + Wd are FP16, four columns of each
/// in turn, so that a thread has both in one load; later layers are packed as all linear layers (ops/pack_linear.hpp),
/// the head stays FP32, and widths are padded to multiples of 16 with zeros.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/din_attention/chained/layout.hpp"
#include "warprank/ops/detail/din_attention/staged/partition.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

/// A layer of the scoring network as it was trained, row-major.
struct DinLayer {
  Span<const float> weight;  ///< [out, in]; the first layer's in is 4 dim, the last layer's out is 1
  Span<const float> bias;    ///< [out] or empty
  Activation activation;     ///< none for the last layer
  Span<const float> alpha;   ///< [out] prelu, dice
  Span<const float> scale;   ///< [out] dice: p = sigmoid(scale x + shift)
  Span<const float> shift;   ///< [out] dice
};

class DinWeights;

namespace detail::din {

/// A hidden layer in the bytes of DinWeights. Offsets are in bytes; those of vectors that the activation does not use
/// are -1.
struct PackedLayer {
  int64_t width = 0, weights = 0, bias = 0;
  Activation activation;
  int64_t alpha = -1, scale = -1, shift = -1;
};

/// What the op knows of a network, beside its sizes.
struct PackedNetwork {
  std::vector<PackedLayer> hidden;
  float factor = 1;  ///< of scores

  // Of the chained kernel.
  chained::Shape shape;
  float chained_head_bias = 0;
  uint16_t safe_query = 0;  ///< FP16: up to this |q| no weight of W(q) is too large

  // Of the staged kernel, in bytes; Wk - Wd, float [width 0, dim], padded, comes first.
  int64_t pair_weights = 0, head = 0, head_bias = 0;
};

inline const PackedNetwork& packed(const DinWeights& network);

}  // namespace detail::din

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
      : normalization_(normalization) {
    if (scaled) packed_.factor = 1 / std::sqrt(static_cast<float>(std::max<int64_t>(dim, 1)));
    const auto text = [](int64_t value) { return std::to_string(value); };
    if (dim < 1 || dim > max_dim)
      raise(invalid_argument("columns of DIN attention", "1 to " + text(max_dim), text(dim)));
    constexpr int64_t most_layers = detail::din::max_hidden_layers + 1;
    if (layers.size() < 2 || layers.size() > most_layers)
      raise(invalid_argument("layers of DIN attention", "2 to " + text(most_layers), text(layers.size())));
    dim_ = dim;
    check(layers);
    const FirstLayer first = fold_first(layers[0]);
    if (choose_chained(layers, first)) {
      pack_chained(layers, first);
      return;
    }
    pack_first(layers[0], first);
    for (int64_t i = 1; i + 1 < layers.size(); ++i) pack_hidden(layers[i], width(i - 1));
    pack_head(layers[layers.size() - 1]);
  }

  int64_t dim() const { return dim_; }
  int num_hidden() const { return static_cast<int>(packed_.hidden.size()); }
  int64_t width(int64_t i) const { return packed_.hidden[static_cast<size_t>(i)].width; }
  Normalization normalization() const { return normalization_; }
  Span<const unsigned char> bytes() const { return bytes_; }
  /// Whether it is packed for the chained kernel.
  bool is_chained() const { return packed_.shape.chunks > 0; }

 private:
  friend const detail::din::PackedNetwork& detail::din::packed(const DinWeights& network);
  using HiddenLayer = detail::din::PackedLayer;

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
      if (!std::isfinite(layer.activation.alpha))
        problems.add("alpha of " + name, "a finite number", std::to_string(layer.activation.alpha));
      const bool is_dice = kind == ActivationKind::dice;
      expect("bias", layer.bias, true, true);
      expect("alpha", layer.alpha, is_dice || kind == ActivationKind::prelu);
      expect("scale", layer.scale, is_dice);
      expect("shift", layer.shift, is_dice);
      in = out;
    }
    problems.throw_if_any();
  }

  HiddenLayer& add_hidden(const Activation& activation, int64_t width) {
    HiddenLayer& hidden = packed_.hidden.emplace_back();
    hidden.width = width;
    hidden.activation = activation;
    return hidden;
  }
  /// And its learned vectors, for the staged kernel.
  HiddenLayer& add_learned(const DinLayer& layer, int64_t width) {
    HiddenLayer& hidden = add_hidden(layer.activation, width);
    if (!layer.alpha.empty()) hidden.alpha = append(layer.alpha);
    if (!layer.scale.empty()) hidden.scale = append(layer.scale);
    if (!layer.shift.empty()) hidden.shift = append(layer.shift);
    return hidden;
  }

  /// Wk - Wd, Wp and Wq + Wd, [out, dim].
  struct FirstLayer {
    int64_t out = 0;
    std::vector<float> event, pair, query;
  };
  FirstLayer fold_first(const DinLayer& layer) const {
    FirstLayer first;
    first.out = layer.weight.size() / (4 * dim_);
    for (int64_t h = 0; h < first.out; ++h) {
      const float *of_q = layer.weight.data() + h * 4 * dim_, *of_k = of_q + dim_, *of_d = of_k + dim_,
                  *of_p = of_d + dim_;
      for (int64_t c = 0; c < dim_; ++c) {
        const float event = of_k[c] - of_d[c], query = of_q[c] + of_d[c];
        if (!std::isfinite(event) || !is_finite_half(of_p[c]) || !is_finite_half(query))
          raise(invalid_argument(
              "first layer of DIN attention, row " + std::to_string(h) + ", column " + std::to_string(c),
              "Wk - Wd finite, Wp and Wq + Wd finite as FP16",
              std::to_string(event) + ", " + std::to_string(of_p[c]) + " and " + std::to_string(query)));
        first.event.push_back(event), first.pair.push_back(of_p[c]), first.query.push_back(query);
      }
    }
    return first;
  }
  static bool is_finite_half(float value) { return std::isfinite(to_float(to_float16(value))); }

  /// Whether the chained kernel takes it; sets its shape.
  bool choose_chained(Span<const DinLayer> layers, const FirstLayer& first) {
    namespace chained = detail::din::chained;
    const ActivationKind kind = layers[0].activation.kind;
    if (layers.size() != 3 || kind != layers[1].activation.kind) return false;
    if (kind != ActivationKind::relu && kind != ActivationKind::dice) return false;
    const int64_t later = layers[1].weight.size() / first.out;
    if (dim_ > chained::max_dim || later > chained::max_later_width) return false;
    if (!std::all_of(first.event.begin(), first.event.end(), is_finite_half)) return false;
    const chained::Shape shape{static_cast<int>((first.out + 15) / 16),
                               dim_ <= 32   ? 2
                               : dim_ <= 64 ? 4
                                            : 8,
                               later <= 32 ? 2 : 3, kind == ActivationKind::dice};
    if (!chained::fits(shape)) return false;
    packed_.shape = shape;
    return true;
  }

  void pack_chained(Span<const DinLayer> layers, const FirstLayer& first) {
    const detail::din::chained::Shape& shape = packed_.shape;
    bytes_.resize(static_cast<size_t>(shape.bytes()));
    const auto copy = [&](int place, const void* from, int64_t count) {
      if (count > 0) std::memcpy(&bytes_[static_cast<size_t>(place)], from, static_cast<size_t>(count));
    };
    const auto copy_floats = [&](int place, Span<const float> values) {
      copy(place, values.data(), values.size() * 4);
    };
    // Fragments of a chunk and step from [first.out, dim], to where `place_of` says.
    const auto copy_first = [&](const std::vector<float>& values, auto place_of) {
      for (int64_t h = 0; h < first.out; ++h)
        for (int64_t c = 0; c < dim_; ++c) {
          const float16 value = to_float16(values[static_cast<size_t>(h * dim_ + c)]);
          const auto in_fragment = static_cast<int>(PackedFragmentLayout{16, 16}.index(h % 16, c % 16) * 2);
          copy(place_of(static_cast<int>(h / 16), static_cast<int>(c / 16)) + in_fragment, &value, 2);
        }
    };
    constexpr int fragment = detail::din::chained::Shape::fragment_bytes;
    const auto of_chunk = [&](int chunk, int i) { return chunk * shape.chunk_bytes() + i * fragment; };
    copy_first(first.event, [&](int chunk, int step) { return of_chunk(chunk, 2 * step); });
    copy_first(first.pair, [&](int chunk, int step) { return of_chunk(chunk, 2 * step + 1); });
    copy_first(first.query,
               [&](int chunk, int step) { return shape.query() + (chunk * shape.steps + step) * fragment; });
    copy_floats(shape.bias(), layers[0].bias);
    add_hidden(layers[0].activation, first.out);

    const auto later = pack_fragments(layers[1], first.out);
    add_hidden(layers[1].activation, layers[1].weight.size() / first.out);
    for (int pair = 0; pair * 16 < width(1); ++pair)
      for (int chunk = 0; chunk < shape.chunks; ++chunk)
        copy(of_chunk(chunk, 2 * shape.steps + pair), later.data() + (pair * shape.chunks + chunk) * fragment,
             fragment);
    copy_floats(shape.later_bias(), layers[1].bias);

    check_head(layers[2]);
    copy_floats(shape.head(), layers[2].weight);
    packed_.chained_head_bias = layers[2].bias.empty() ? 0 : layers[2].bias[0];
    if (shape.is_dice)
      for (const auto& [layer, place, width] : {std::make_tuple(0, shape.dice(), shape.width()),
                                                std::make_tuple(1, shape.later_dice(), shape.later_width())}) {
        copy_floats(place, layers[layer].alpha);
        copy_floats(place + width * 4, layers[layer].scale);
        copy_floats(place + 2 * width * 4, layers[layer].shift);
      }

    const auto largest_half = [](const std::vector<float>& values) {
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::fabs(to_float(to_float16(value))));
      return largest;
    };
    const float of_pair = largest_half(first.pair), room = max_float16 - largest_half(first.event);
    const float safe = of_pair * max_float16 <= room ? max_float16 : room / of_pair;
    float16 query = to_float16(safe);
    if (to_float(query) > safe) query.bits -= 1;
    packed_.safe_query = query.bits;
  }

  void pack_first(const DinLayer& layer, const FirstLayer& first) {
    const int64_t columns = padded(dim_), size = padded(first.out) * columns;
    std::vector<float> of_events(static_cast<size_t>(size));
    std::vector<float16> pairs(static_cast<size_t>(2 * size));
    for (int64_t h = 0; h < first.out; ++h)
      for (int64_t c = 0; c < dim_; ++c) {
        const auto from = static_cast<size_t>(h * dim_ + c);
        const int64_t at = h * columns + c;
        const float16 halves[2] = {to_float16(first.pair[from]), to_float16(first.query[from])};
        of_events[static_cast<size_t>(at)] = first.event[from];
        for (int i = 0; i < 2; ++i) pairs[static_cast<size_t>(at / 4 * 8 + 4 * i + at % 4)] = halves[i];
      }
    append(of_events);
    packed_.pair_weights = append(pairs.data(), static_cast<int64_t>(pairs.size()) * 2);
    std::vector<float> bias(layer.bias.begin(), layer.bias.end());
    bias.resize(static_cast<size_t>(first.out));
    const int64_t bias_at = append(bias);
    add_learned(layer, first.out).bias = bias_at;
  }

  static Buffer<unsigned char> pack_fragments(const DinLayer& layer, int64_t in) {
    return pack_linear<float, PackedFragmentLayout>(Span<const float>(layer.weight), Span<const float>(layer.bias), in,
                                                    layer.weight.size() / in);
  }

  void pack_hidden(const DinLayer& layer, int64_t in) {
    const int64_t out = layer.weight.size() / in;
    const auto packed = pack_fragments(layer, in);
    HiddenLayer& hidden = add_learned(layer, out);
    hidden.weights = append(packed.data(), packed.size());
    hidden.bias = hidden.weights + PackedFragmentLayout{in, out}.bias_offset();
  }

  static void check_head(const DinLayer& layer) {
    for (const float weight : layer.weight)
      if (!std::isfinite(weight))
        raise(invalid_argument("weight of the last layer of DIN attention", "finite values", std::to_string(weight)));
  }
  void pack_head(const DinLayer& layer) {
    check_head(layer);
    const float bias = layer.bias.empty() ? 0 : layer.bias[0];
    packed_.head = append(layer.weight);
    packed_.head_bias = append(&bias, sizeof bias);
  }

  int64_t dim_ = 0;
  Normalization normalization_;
  detail::din::PackedNetwork packed_;
  std::vector<unsigned char> bytes_;
};

inline const detail::din::PackedNetwork& detail::din::packed(const DinWeights& network) { return network.packed_; }

}}  // namespace warprank::v0
