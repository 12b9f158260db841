// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "warprank/core/fields.hpp"
#include "warprank/core/time_buckets.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// sum_t w_t v_t per head, where w are the weights of the scores s_t = scale <q, k_t>: softmax(s), or silu(s) /
/// divisor. Inputs q [rows of the node, heads * d], k, v [events, heads * d]; both axes nest in one parent, or are the
/// same. With the weights of silu, two more may follow, a key and a value of each row of the node: the row also attends
/// to these, its own, as targets of HSTU do (Zhai et al. 2024). Projections are linears. Zeros where there are no keys.
///
/// With the weights of silu a row may see a window of the events: an event of a causal attention those at most
/// `window` places before it, and rows of another axis, which come behind all events, the last `window` ones. The last
/// `full_last` events, and rows of another axis if it is not 0, see all events before them nevertheless.
///
/// With the weights of silu a score may have relative biases, s_t = scale <q, k_t> + position + time: of its row and
/// its event the learned number "<name>.position_bias" [positions] by how many places the event is before the row,
/// which needs causal attention, or rows of another axis, which are one place behind all events; and "<name>.time_bias"
/// [time_buckets + 1] by the bucket of the time between them (core/time_buckets.hpp), which is the absolute difference
/// of two inputs that stand behind v: the times of the rows, [rows, 1], and those of the events, [events, 1]. Own keys
/// are 0 places and no time away. A time that is NaN counts as no difference.
struct AttentionOp {
  static constexpr const char* kind = "attention";
  int64_t heads = 1;
  float scale = 0;      ///< 0: 1 / sqrt(d)
  bool causal = false;  ///< self-attention only: an event sees itself and earlier events
  AttentionWeights weights = AttentionWeights::softmax;
  float divisor = 1;                 ///< of the weights of silu: in HSTU the length of the longest sequence
  int64_t window = 0;                ///< events before a row that it sees; 0: all
  int64_t full_last = 0;             ///< of a sequence, so many last events have no window
  std::string name = {};             ///< of the biases
  int64_t positions = 0;             ///< distances that have a bias, from 0 on; 0: there is no such bias
  bool clamp_positions = false;      ///< longer distances have the bias of the longest; false: there may be none
  int64_t time_buckets = 0;          ///< behind the first bucket; 0: there is no such bias
  float time_bucket_width = 0.301f;  ///< of the logarithm of a difference, in what times are measured in
  bool bias_by_head = false;         ///< each head has biases of its own: [heads, positions], [heads, time_buckets + 1]

  bool has_bias() const { return positions != 0 || time_buckets != 0; }
  /// The first input of those that are keys of the rows' own.
  size_t own_input() const { return time_buckets != 0 ? 5 : 3; }
};
constexpr auto fields_of(const AttentionOp*) {
  return std::make_tuple(
      field("heads", &AttentionOp::heads), field("scale", &AttentionOp::scale), field("causal", &AttentionOp::causal),
      field("weights", &AttentionOp::weights), field("divisor", &AttentionOp::divisor),
      optional_field("window", &AttentionOp::window), optional_field("full_last", &AttentionOp::full_last),
      optional_field("name", &AttentionOp::name), optional_field("positions", &AttentionOp::positions),
      optional_field("clamp_positions", &AttentionOp::clamp_positions),
      optional_field("time_buckets", &AttentionOp::time_buckets),
      optional_field("time_bucket_width", &AttentionOp::time_bucket_width),
      optional_field("bias_by_head", &AttentionOp::bias_by_head));
}

template <>
struct OpTraits<AttentionOp> {
  static constexpr int64_t max_window = int64_t{1} << 30;
  static constexpr StepKind step = StepKind::attention;
  static constexpr Across across = Across::its_query;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;
  /// Times are FP32.
  static constexpr bool reads_halves(const AttentionOp& op, size_t input) {
    return op.time_buckets == 0 || (input != 3 && input != 4);
  }

  template <class Shapes>
  static std::optional<NodeShape> infer(const AttentionOp& op, Shapes& node) {
    const bool silu = op.weights == AttentionWeights::silu;
    const size_t own = op.own_input(), sees_itself = silu && node.num_inputs() > own ? 1 : 0;
    if (!node.count_is(own + 2 * sees_itself, own + 2 * sees_itself)) return {};
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
    if (sees_itself != 0) {
      if (q.axis == k.axis) return node.fail("keys of its own for rows that are not the events", node.show(q));
      const auto &own_k = node.input(own), &own_v = node.input(own + 1);
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
    if (!node.share_a_parent(q, k) || !biases_are_good(op, node)) return {};
    return NodeShape{q.axis, v.width};
  }
  template <class Lister>
  static void parameters(const AttentionOp& op, Lister& node) {
    const auto list = [&](const char* which, int64_t count) {
      if (op.bias_by_head)
        node.matrix(op.name + which, {op.heads, count});
      else
        node.vector(op.name + which, {count});
    };
    if (op.positions > 0) list(".position_bias", op.positions);
    if (op.time_buckets > 0) list(".time_bias", op.time_buckets + 1);
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
    const double of_bias = (op.positions > 0 ? 2 : 0) + (op.time_buckets > 0 ? 8 : 0);
    return {share * pairs * (4 * node.width() + (4 + of_bias) * static_cast<double>(op.heads)), node.traffic()};
  }

 private:
  template <class Shapes>
  static bool biases_are_good(const AttentionOp& op, Shapes& node) {
    const auto refuse = [&](std::string expected, std::string got) {
      node.fail(std::move(expected), std::move(got));
      return false;
    };
    const auto &q = node.input(0), &k = node.input(1);
    if (op.positions < 0 || op.positions > max_width)
      return refuse("0 to " + std::to_string(max_width) + " positions", std::to_string(op.positions));
    if (op.time_buckets < 0 || op.time_buckets > max_time_buckets)
      return refuse("0 to " + std::to_string(max_time_buckets) + " time_buckets", std::to_string(op.time_buckets));
    if ((op.bias_by_head && !op.has_bias()) || (op.clamp_positions && op.positions == 0))
      return refuse("bias_by_head with a bias, and clamp_positions with one by position", "none");
    if (!op.has_bias()) return true;
    if (op.weights != AttentionWeights::silu)
      return refuse("a bias by position or time only with the weights of silu", "a softmax");
    if (op.name.empty()) return refuse("a name for the biases", "none");
    if (op.positions > 0 && q.axis == k.axis && !op.causal)
      return refuse("a bias by position only where attention is causal or of another axis",
                    node.show(q) + " over itself");
    if (op.positions > 0 && !op.clamp_positions && !has_all_positions(op, node)) return false;
    if (op.time_buckets == 0) return true;
    if (!std::isfinite(op.time_bucket_width) || op.time_bucket_width < min_time_bucket_width)
      return refuse("a time_bucket_width of " + std::to_string(min_time_bucket_width) + " or more",
                    std::to_string(op.time_bucket_width));
    const auto &of_rows = node.input(3), &of_events = node.input(4);
    if (of_rows.axis != q.axis || of_events.axis != k.axis || of_rows.width != 1 || of_events.width != 1)
      return refuse("a time of each row [" + node.axis_name(q.axis) + ", 1] and of each event [" +
                        node.axis_name(k.axis) + ", 1]",
                    node.show(of_rows) + " and " + node.show(of_events));
    return true;
  }
  /// Whether every distance that there may be has a bias: histories are as long as their axis keeps.
  template <class Shapes>
  static bool has_all_positions(const AttentionOp& op, Shapes& node) {
    const auto& k = node.input(1);
    const int64_t kept = node.graph().axis(k.axis).keep_last, behind = op.causal ? 0 : 1;
    int64_t longest = kept > 0 ? kept - 1 + behind : max_window;
    if (op.window > 0 && op.full_last == 0) longest = std::min(longest, op.window);
    if (longest < op.positions) return true;
    const std::string which = kept > 0 ? "'s last " + std::to_string(kept) + " rows" : " of any length";
    node.fail("a position for each distance of a row and an event that it sees, or clamp_positions",
              std::to_string(op.positions) + " positions, " + node.axis_name(k.axis) + which);
    return false;
  }
};

}}  // namespace warprank::v0
