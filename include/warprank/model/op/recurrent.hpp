// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// A recurrent layer over the events of a nested axis. With the gates g [events, 3 hidden] that a linear layer made of
/// the events, the state h, 0 ahead of the first event, and p = U h + c,
/// r = sigmoid(g_r + p_r), z = sigmoid(g_z + p_z), n = tanh(g_n + r p_n), as PyTorch's nn.GRU.
///
/// A GRU (Cho et al. 2014) has one input, g, and gives all states, h' = (1 - z) n + z h. The GRUs of DIEN (Zhou et al.
/// 2019) have the inputs q [rows of the node, K], k [events, K] and g, and follow the shares of an attention, a =
/// softmax over t of scale <q, k_t>: augru: h' = (1 - a_t z) h + a_t z n; agru: h' = (1 - a_t) h + a_t n. They give the
/// last state for each row; 0 where there are no events.
///
/// "<name>.weight" [3 hidden, hidden] is U, "<name>.bias" [3 hidden] is c: rows of r, of z and of n.
struct RecurrentOp {
  static constexpr const char* kind = "recurrent";
  std::string name;
  RecurrentCell cell = RecurrentCell::gru;
  int64_t hidden = 1;
  float scale = 1;  ///< of the scores; 0: 1 / sqrt(K)

  bool attends() const { return cell != RecurrentCell::gru; }
  /// Which input the gates are.
  int gates() const { return attends() ? 2 : 0; }
};
constexpr auto fields_of(const RecurrentOp*) {
  return std::make_tuple(field("name", &RecurrentOp::name), field("cell", &RecurrentOp::cell),
                         field("hidden", &RecurrentOp::hidden), field("scale", &RecurrentOp::scale));
}

template <>
struct OpTraits<RecurrentOp> : ReadsHalves {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::its_own;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const RecurrentOp& op, Shapes& node) {
    if (op.name.empty()) return node.fail("a name for the weights", "none");
    const size_t inputs = op.attends() ? 3 : 1;
    if (!node.count_is(inputs, inputs) || !node.is_finite("scale", op.scale)) return {};
    if (op.hidden < 1 || op.hidden > max_width / 3)
      return node.fail("1 to " + std::to_string(max_width / 3) + " hidden columns", std::to_string(op.hidden));
    const auto& gates = node.input(inputs - 1);
    if (gates.width != 3 * op.hidden)
      return node.fail("gates of " + std::to_string(3 * op.hidden) + " columns", node.show(gates));
    if (node.graph().axis(gates.axis).parent == -1) return node.fail("events on a nested axis", node.show(gates));
    if (!op.attends()) return NodeShape{gates.axis, op.hidden};
    const auto &q = node.input(0), &k = node.input(1);
    if (k.axis != gates.axis) return node.fail("keys and gates on one axis", node.show(k) + " and " + node.show(gates));
    if (q.width != k.width) return node.fail("queries and keys of one width", node.show(q) + " and " + node.show(k));
    if (q.axis == k.axis) return node.fail("events on an axis of their own", node.show(q) + " over " + node.show(k));
    if (!node.share_a_parent(q, k)) return {};
    return NodeShape{q.axis, op.hidden};
  }
  template <class Lister>
  static void parameters(const RecurrentOp& op, Lister& node) {
    node.matrix(op.name + ".weight", {3 * op.hidden, op.hidden});
    node.vector(op.name + ".bias", {3 * op.hidden});
  }
  /// The product of a step, about as many operations as its functions take, and scores.
  template <class Model>
  static Cost cost(const RecurrentOp& op, const Model& node) {
    const double hidden = node.width(), weights = 3 * hidden * (hidden + 1);
    const double steps = op.attends() ? node.pairs(node.input(1)) : node.rows();
    const double keys = op.attends() ? static_cast<double>(node.input(0).width) : 0;
    return {steps * (2 * weights + 12 * hidden + 2 * keys), node.traffic() + weights * node.value_bytes};
  }
};

}}  // namespace warprank::v0
