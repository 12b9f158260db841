// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// softmax(q k^T * scale) v per head. Inputs q [rows of the node, heads * d], k, v [events, heads * d]; both axes nest
/// in one parent, or are the same. No learned tensors: projections are linears. Zeros where there are no keys.
struct AttentionOp {
  static constexpr const char* kind = "attention";
  int64_t heads = 1;
  float scale = 0;      ///< 0: 1 / sqrt(d)
  bool causal = false;  ///< self-attention only: an event sees itself and earlier events
};
constexpr auto fields_of(const AttentionOp*) {
  return std::make_tuple(field("heads", &AttentionOp::heads), field("scale", &AttentionOp::scale),
                         field("causal", &AttentionOp::causal));
}

template <>
struct OpTraits<AttentionOp> : NoParameters, ReadsHalves {
  static constexpr StepKind step = StepKind::attention;
  static constexpr Across across = Across::its_query;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const AttentionOp& op, Shapes& node) {
    if (!node.count_is(3, 3)) return {};
    if (!node.is_finite("scale", op.scale)) return {};
    const auto &q = node.input(0), &k = node.input(1), &v = node.input(2);
    if (k.axis != v.axis) return node.fail("keys and values on one axis", node.show(k) + " and " + node.show(v));
    if (q.width != k.width) return node.fail("queries and keys of one width", node.show(q) + " and " + node.show(k));
    if (op.heads < 1 || q.width % op.heads != 0 || v.width % op.heads != 0)
      return node.fail("widths that divide into heads",
                       std::to_string(op.heads) + " heads, " + node.show(q) + ", " + node.show(v));
    if (q.width != v.width) return node.fail("keys and values of one width", node.show(k) + " and " + node.show(v));
    if (op.causal && q.axis != k.axis)
      return node.fail("causal attention of an axis over itself", node.show(q) + " over " + node.show(k));
    if (q.axis == k.axis && node.graph().axis(q.axis).parent == -1)
      return node.fail("self-attention over a nested axis", node.show(q));
    if (!node.share_a_parent(q, k)) return {};
    return NodeShape{q.axis, v.width};
  }
  template <class Model>
  static Cost cost(const AttentionOp& op, const Model& node) {
    const double factor = op.causal ? 0.5 : 1;
    return {factor * node.pairs(node.input(1)) * (4 * node.width() + 4 * static_cast<double>(op.heads)),
            node.traffic()};
  }
};

}}  // namespace warprank::v0
