// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// DIN attention pooling. Inputs q [rows of the node, D], k [events, D], or two whose sum k is; both axes nest in one
/// parent.
/// s_t = MLP([q, k_t, q - k_t, q * k_t]), layers `hidden` with `activation`, then one score with a bias;
/// w = normalization(s [/ sqrt(D)]); y = sum_t w_t k_t; zeros for an empty history.
/// (Zhou et al. 2018, Deep Interest Network. DeepCTR-Torch, FuxiCTR: no normalisation; the paper's code: softmax.)
/// "<name>.<i>.weight" [hidden_i, 4 D or hidden_{i-1}], the last [1, hidden_last]; "<name>.<i>.bias".
struct DinAttentionOp {
  static constexpr const char* kind = "din_attention";
  std::string name;
  std::vector<int64_t> hidden;
  Activation activation;
  Normalization normalization = Normalization::none;
  bool scaled = false;
};
constexpr auto fields_of(const DinAttentionOp*) {
  return std::make_tuple(field("name", &DinAttentionOp::name), field("hidden", &DinAttentionOp::hidden),
                         field("activation", &DinAttentionOp::activation),
                         field("normalization", &DinAttentionOp::normalization),
                         field("scaled", &DinAttentionOp::scaled));
}

template <>
struct OpTraits<DinAttentionOp> : ReadsHalves {
  static constexpr StepKind step = StepKind::din_attention;
  static constexpr Across across = Across::its_query;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const DinAttentionOp& op, Shapes& node) {
    if (!node.count_is(2, 3)) return {};
    const auto &q = node.input(0), &k = node.input(1);
    if (op.name.empty()) return node.fail("a name for the weights", "none");
    if (!node.is_good(op.activation)) return {};
    if (op.hidden.empty() || op.hidden.size() > 3)
      return node.fail("1 to 3 hidden layers", std::to_string(op.hidden.size()));
    for (int64_t width : op.hidden)
      if (width < 1 || width > max_width)
        return node.fail("hidden layers of 1 to " + std::to_string(max_width) + " columns", std::to_string(width));
    if (q.width != k.width) return node.fail("query and history of one width", node.show(q) + " and " + node.show(k));
    if (q.axis == k.axis) return node.fail("a history on an axis of its own", node.show(q) + " over " + node.show(k));
    if (node.num_inputs() == 3 && (node.input(2).axis != k.axis || node.input(2).width != k.width))
      return node.fail("two parts of a history of one shape", node.show(k) + " and " + node.show(node.input(2)));
    if (!node.share_a_parent(q, k)) return {};
    return NodeShape{q.axis, q.width};
  }

  template <class Lister>
  static void parameters(const DinAttentionOp& op, Lister& node) {
    int64_t in = 4 * node.width();
    for (size_t i = 0; i <= op.hidden.size(); ++i) {
      const std::string layer = op.name + "." + std::to_string(i);
      const bool last = i == op.hidden.size();
      const int64_t out = last ? 1 : op.hidden[i];
      node.matrix(layer + ".weight", {out, in});
      node.vector(layer + ".bias", {out});
      if (!last) node.activation(layer, op.activation, {out});
      in = out;
    }
  }

  /// The first layer is folded: the query's share of it is computed once.
  template <class Model>
  static Cost cost(const DinAttentionOp& op, const Model& node) {
    const double dim = node.width(), events = node.pairs(node.input(1));
    const double first = static_cast<double>(op.hidden[0]);
    double per_pair = 2 * dim * first + 2 * dim;  // that layer, and the pooled sum
    double weights = 4 * dim * first;
    for (size_t i = 0; i < op.hidden.size(); ++i) {
      const double in = static_cast<double>(op.hidden[i]);
      const double out = i + 1 < op.hidden.size() ? static_cast<double>(op.hidden[i + 1]) : 1;
      per_pair += 2 * in * out + in;
      weights += in * out;
    }
    return {events * per_pair + node.rows() * 4 * dim * first, node.traffic() + weights * node.value_bytes};
  }
};

}}  // namespace warprank::v0
