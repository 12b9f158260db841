// SPDX-License-Identifier: Apache-2.0
#pragma once

/// DIN attention pooling (Zhou et al. 2018, Deep Interest Network) on the host. For item n and the events t of the same
/// parent (a user):
///
///     s_t = MLP([q_n, k_t, q_n - k_t, q_n * k_t]),   w = normalization(s),   y_n = sum_t w_t k_t
///
/// | Array       | Shape                      |                                                                |
/// |-------------|----------------------------|----------------------------------------------------------------|
/// | q, y        | [N, D]                     | rows grouped by `items`                                        |
/// | k           | [T, D]                     | rows grouped by `history`, with as many segments as `items`    |
/// | layer 0     | weight [H_1, 4 D]          | bias [H_1] or none; then its activation                        |
/// | layer i     | weight [H_(i+1), H_i]      | 1 to 3 of these layers; the last has one column                |
///
/// An empty history gives zeros. Infinite scores count as the largest finite ones in a softmax.
///
/// The concatenation is never made: with the first layer's weight [Wq | Wk | Wd | Wp],
///
///     pre = c(q) + W(q) k,   c(q) = (Wq + Wd) q + b,   W(q) = (Wk - Wd) + Wp diag(q)
///
/// so an item costs a quarter of the first layer's multiplications, and its events go through all layers in cache.
///
/// FP32: rounding errors are those of the formula, with |q| + |k| in the place of |q - k|. A layer of n inputs adds an
/// error of at most (n + 6) u sum |w| |x| to its activation's input, u = 2^-24. BF16 (ops/host/products.hpp): layers
/// with more than max_dot_outputs outputs add v (2 + v) sum |w| |x| more, v = 2^-8, and have the activations that are
/// behind products in BF16 (ops/host/activation.hpp); c(q) and the sum over t stay FP32.
/// A row of y has the same bits whatever the other items and segments are. Rows may be strided and need no alignment; y
/// overlaps neither q nor k.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/attention_weights.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/simd.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// A layer of the scoring network as it was trained, row-major.
struct DinLayer {
  Span<const float> weight;
  Span<const float> bias;  ///< or empty
  ChannelActivation activation;
};

class PackedDin;

/// The signature of din_attention.
using DinKernel = void (*)(const PackedDin&, Matrix<const float> q, Matrix<const float> k, Segments items,
                           Segments history, Matrix<float> y, Span<float> workspace);

/// The scoring network, laid out for this machine; immutable. It always uses the kernels for which it was packed.
class PackedDin {
 public:
  PackedDin() = default;

  /// Copies its arguments. Throws invalid_argument for wrong sizes, for a last activation other than identity, and for
  /// a weight that BF16 cannot hold. `scaled`: scores are divided by sqrt(dim) before they are normalised.
  PackedDin(int64_t dim, Span<const DinLayer> layers, Normalization normalization = Normalization::none,
            bool scaled = false, Precision precision = Precision::fp32);

  int64_t dim() const { return query_.in(); }
  Normalization normalization() const { return normalization_; }
  int64_t bytes() const {
    int64_t bytes = query_.bytes() + event_.bytes() + product_.bytes();
    for (const PackedLinear& layer : later_) bytes += layer.bytes();
    return bytes;
  }

  /// Floats of workspace for histories of at most `max_history` events.
  int64_t workspace_size(int64_t max_history) const {
    const int64_t rounded_history = precision_ == Precision::bf16 ? max_history * pairs_stride(dim()) : 0;
    return with_room_to_align(folded_size() + items_at_once * query_.group(0).padded_out +
                              2 * events_at_once * widest_ + later_workspace() + rounded_history + max_history);
  }

  /// The rest is for kernels.
  static constexpr int64_t items_at_once = 32;   ///< items whose c(q) are one product
  static constexpr int64_t events_at_once = 48;  ///< events that pass through all layers while they are in cache
  DinKernel kernel() const { return kernel_; }
  LinearGroup query() const { return query_.group(0); }      ///< q -> c(q)
  LinearGroup event() const { return event_.group(0); }      ///< Wk - Wd, and the first activation
  LinearGroup product() const { return product_.group(0); }  ///< Wp
  int64_t num_later() const { return static_cast<int64_t>(later_.size()); }
  LinearGroup later(int64_t i) const { return later_[static_cast<size_t>(i)].group(0); }
  int64_t widest() const { return widest_; }          ///< outputs of the widest hidden layer
  Precision precision() const { return precision_; }  ///< of W(q) k
  /// Floats of W(q), packed as event() and product() are, in pairs in BF16.
  int64_t folded_size() const {
    const LinearGroup group = event_.group(0);
    if (precision_ == Precision::bf16) return group.padded_out * ((group.in + 1) / 2);
    return group.out <= max_dot_outputs ? group.out * group.padded_in : group.padded_out * group.in;
  }
  /// Floats of workspace for a later layer.
  int64_t later_workspace() const {
    int64_t most = 0;
    for (const PackedLinear& layer : later_) most = std::max(most, layer.workspace_size(events_at_once));
    return most;
  }

 private:
  DinKernel kernel_ = nullptr;
  PackedLinear query_, event_, product_;
  std::vector<PackedLinear> later_;
  int64_t widest_ = 0;
  Precision precision_ = Precision::fp32;
  Normalization normalization_ = Normalization::none;
};

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/din_attention-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(din_kernel);

inline PackedDin::PackedDin(int64_t dim, Span<const DinLayer> layers, Normalization normalization, bool scaled,
                            Precision precision)
    : normalization_(normalization) {
  if (dim < 1) throw invalid_argument("DIN attention", "1 or more columns", std::to_string(dim));
  if (layers.size() < 2 || layers.size() > 4)
    throw invalid_argument("DIN attention", "2 to 4 layers", std::to_string(layers.size()));

  Problems problems;
  std::vector<int64_t> widths = {4 * dim};
  for (int64_t i = 0; i < layers.size(); ++i) {
    const int64_t in = widths.back(), size = layers[i].weight.size(), out = std::max<int64_t>(size / in, 1);
    const bool is_last = i + 1 == layers.size();
    const std::string name = "layer " + std::to_string(i) + " of DIN attention";
    if (size != out * in || (is_last && out != 1))
      problems.add("weight of " + name, (is_last ? "" : "a multiple of ") + std::to_string(in) + " values",
                   std::to_string(size));
    if (is_last && layers[i].activation.spec.kind != ActivationKind::identity)
      problems.add("activation of " + name, "identity", name_of_enum(layers[i].activation.spec.kind));
    widths.push_back(out);
  }
  problems.throw_if_any();
  widest_ = *std::max_element(widths.begin() + 1, widths.end());

  const DinLayer& first = layers[0];
  std::vector<float> query, event, product;
  for (int64_t j = 0; j < widths[1]; ++j) {
    const float *of_q = first.weight.data() + j * 4 * dim, *of_k = of_q + dim, *of_d = of_k + dim, *of_p = of_d + dim;
    for (int64_t c = 0; c < dim; ++c) {
      query.push_back(of_q[c] + of_d[c]);
      event.push_back(of_k[c] - of_d[c]);
      product.push_back(of_p[c]);
    }
  }
  query_ = PackedLinear(query, first.bias, dim, widths[1]);
  event_ = PackedLinear(event, {}, dim, widths[1], 1, first.activation);
  product_ = PackedLinear(product, {}, dim, widths[1]);
  if (query_.target().has_bf16 && widths[1] > max_dot_outputs) precision_ = precision;
  kernel_ = HWY_DYNAMIC_DISPATCH(din_kernel)(precision_);
  if (precision_ == Precision::bf16) check_bf16("weight of layer 0 of DIN attention", first.weight);

  const float factor = scaled ? 1 / std::sqrt(static_cast<float>(dim)) : 1.0f;
  for (int64_t i = 1; i < layers.size(); ++i) {
    const DinLayer& layer = layers[i];
    std::vector<float> weight(layer.weight.begin(), layer.weight.end()), bias(layer.bias.begin(), layer.bias.end());
    if (i + 1 == layers.size())
      for (std::vector<float>* values : {&weight, &bias})
        for (float& value : *values) value *= factor;
    later_.emplace_back(weight, bias, widths[static_cast<size_t>(i)], widths[static_cast<size_t>(i) + 1], 1,
                        layer.activation, precision);
  }
}

/// `workspace`: packed.workspace_size(longest history) floats. Allocates nothing.
inline void din_attention(const PackedDin& packed, Matrix<const float> q, Matrix<const float> k, Segments items,
                          Segments history, Matrix<float> y, Span<float> workspace) {
  packed.kernel()(packed, q, k, items, history, y, workspace);
}

}}}  // namespace warprank::v0::host_ops
