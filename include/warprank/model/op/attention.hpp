// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// sum_t w_t v_t per head, where w are the weights of the scores s_t = scale <q, k_t>: softmax(s), or silu(s) /
/// divisor. Inputs q [rows of the node, heads * d], k, v [events, heads * d]; both axes nest in one parent, or are the
/// same. With the weights of silu, two more may follow, a key and a value of each row of the node: the row also attends
/// to these, its own, as targets of HSTU do (Zhai et al. 2024). No learned tensors: projections are linears. Zeros
/// where there are no keys.
///
/// With the weights of silu a row may see a window of the events: an event of a causal attention those at most
/// `window` places before it, and rows of another axis, which come behind all events, the last `window` ones. The last
/// `full_last` events, and rows of another axis if it is not 0, see all events before them nevertheless.
struct AttentionOp {
  static constexpr const char* kind = "attention";
  int64_t heads = 1;
  float scale = 0;      ///< 0: 1 / sqrt(d)
  bool causal = false;  ///< self-attention only: an event sees itself and earlier events
  AttentionWeights weights = AttentionWeights::softmax;
  float divisor = 1;      ///< of the weights of silu: in HSTU the length of the longest sequence
  int64_t window = 0;     ///< events before a row that it sees; 0: all
  int64_t full_last = 0;  ///< of a sequence, so many last events have no window
};
constexpr auto fields_of(const AttentionOp*) {
  return std::make_tuple(field("heads", &AttentionOp::heads), field("scale", &AttentionOp::scale),
                         field("causal", &AttentionOp::causal), field("weights", &AttentionOp::weights),
                         field("divisor", &AttentionOp::divisor), optional_field("window", &AttentionOp::window),
                         optional_field("full_last", &AttentionOp::full_last));
}

template <>
struct OpTraits<AttentionOp> : NoParameters, ReadsHalves {
  static constexpr int64_t max_window = int64_t{1} << 30;
  static constexpr StepKind step = StepKind::attention;
  static constexpr Across across = Across::its_query;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const AttentionOp& op, Shapes& node) {
    const bool silu = op.weights == AttentionWeights::silu, sees_itself = silu && node.num_inputs() > 3;
    if (!node.count_is(sees_itself ? 5 : 3, sees_itself ? 5 : 3)) return {};
    if (!node.is_finite("scale", op.scale) || !node.is_finite("divisor", op.divisor)) return {};
    if (!(op.divisor > 0 && std::isfinite(1 / op.divisor)) || (!silu && op.divisor != 1))
      return node.fail(silu ? "a divisor above 0" : "no divisor of the weights of a softmax",
                       std::to_string(op.divisor));
    const auto &q = node.input(0), &k = node.input(1), &v = node.input(2);
    if (k.axis != v.axis) return node.fail("keys and values on one axis", node.show(k) + " and " + node.show(v));
    if (q.width != k.width) return node.fail("queries and keys of one width", node.show(q) + " and " + node.show(k));
    if (op.heads < 1 || q.width % op.heads != 0 || v.width % op.heads != 0)
      return node.fail("widths that divide into heads",
                       std::to_string(op.heads) + " heads, " + node.show(q) + ", " + node.show(v));
    if (q.width != v.width) return node.fail("keys and values of one width", node.show(k) + " and " + node.show(v));
    if (op.causal && q.axis != k.axis)
      return node.fail("causal attention of an axis over itself", node.show(q) + " over " + node.show(k));
    if (sees_itself) {
      if (q.axis == k.axis) return node.fail("keys of its own for rows that are not the events", node.show(q));
      const auto &own_k = node.input(3), &own_v = node.input(4);
      if (own_k.axis != q.axis || own_v.axis != q.axis || own_k.width != q.width || own_v.width != v.width)
        return node.fail("a key and a value of each row, as wide as the events'",
                         node.show(q) + " with " + node.show(own_k) + " and " + node.show(own_v));
    }
    if (op.window < 0 || op.full_last < 0 || op.window > max_window || op.full_last > max_window)
      return node.fail("a window and full_last of 0 to " + std::to_string(max_window),
                       std::to_string(op.window) + " and " + std::to_string(op.full_last));
    if (op.window == 0 && op.full_last > 0) return node.fail("full_last only with a window", "no window");
    if (op.window > 0 && !silu) return node.fail("a window only with the weights of silu", "a softmax");
    if (op.window > 0 && q.axis == k.axis && !op.causal)
      return node.fail("a window only where attention is causal or of another axis", node.show(q) + " over itself");
    if (q.axis == k.axis && node.graph().axis(q.axis).parent == -1)
      return node.fail("self-attention over a nested axis", node.show(q));
    if (!node.share_a_parent(q, k)) return {};
    return NodeShape{q.axis, v.width};
  }
  template <class Model>
  static Cost cost(const AttentionOp& op, const Model& node) {
    const double pairs = node.pairs(node.input(1));
    double share = op.causal ? 0.5 : 1;
    if (op.window > 0 && (op.causal || op.full_last == 0)) {
      const double events = std::max(pairs / std::max(node.rows(), 1.0), 1.0);
      const double full = std::min(static_cast<double>(op.full_last) / events, 1.0);
      share = std::min(share, full + (1 - full) * static_cast<double>(op.window) / events);
    }
    return {share * pairs * (4 * node.width() + 4 * static_cast<double>(op.heads)), node.traffic()};
  }
};

}}  // namespace warprank::v0
