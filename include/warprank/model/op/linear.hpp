// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "warprank/core/fields.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/model/op/batch_norm.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// Columns [begin, end).
struct ColumnRange {
  int64_t begin = 0;
  int64_t end = 0;
};
constexpr auto fields_of(const ColumnRange*) {
  return std::make_tuple(field("begin", &ColumnRange::begin), field("end", &ColumnRange::end));
}

/// y = act(x W^T + b [+ row_bias]) [* multiply] [+ residual], or with `residual_first`
/// y = act(x W^T + b [+ row_bias] + residual) [* multiply].
/// Inputs in this order, if present: x, row_bias (ancestor), multiply, residual.
/// "<name>.weight" is [out, in], or [groups, out, in] when stacked; "<name>.bias" [out] or [groups, out].
struct LinearOp {
  static constexpr const char* kind = "linear";
  std::string name;
  int64_t groups = 1;        ///< experts, or scenes
  bool stacked = false;      ///< the stored weight has a leading [groups] dimension
  bool shared_input = true;  ///< every group reads all of x; else x is [groups * in] and group g reads its own part
  int scene = -1;            ///< ids input that names each row's group (ancestor); only that group is computed
  bool bias = true;
  Activation activation;
  std::vector<ColumnRange> columns;     ///< columns of the stored weight that meet x, in x's order; empty: all
  int64_t stored_in = 0;                ///< columns of the stored weight, if `columns` or `ones` is given
  std::optional<BatchNorm> input_norm;  ///< batch norm of x, folded into weight and bias at bind
  std::optional<BatchNorm> norm;        ///< batch norm between the matrix product and the activation, folded likewise
  bool is_term = false;  ///< one term of a split linear: another term adds the constants (bias, folded shifts)
  bool ones = false;     ///< the one output is the sum over the columns of x: no weight is stored
  bool row_bias = false;
  bool multiply = false;
  bool residual = false;
  bool residual_first = false;  ///< the residual is added before the activation
};
constexpr auto fields_of(const LinearOp*) {
  return std::make_tuple(
      field("name", &LinearOp::name), field("groups", &LinearOp::groups), field("stacked", &LinearOp::stacked),
      field("shared_input", &LinearOp::shared_input), field("scene", &LinearOp::scene), field("bias", &LinearOp::bias),
      field("activation", &LinearOp::activation), field("columns", &LinearOp::columns),
      field("stored_in", &LinearOp::stored_in), field("input_norm", &LinearOp::input_norm),
      field("norm", &LinearOp::norm), field("is_term", &LinearOp::is_term), field("ones", &LinearOp::ones),
      field("row_bias", &LinearOp::row_bias), field("multiply", &LinearOp::multiply),
      field("residual", &LinearOp::residual), field("residual_first", &LinearOp::residual_first));
}

/// Linears that read one another become chains, and linears with scenes have launches of their own (plan/steps.hpp).
/// Late broadcast splits the weights of linears.
template <>
struct OpTraits<LinearOp> {
  static constexpr StepKind step = StepKind::linear;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;
  static constexpr bool reads_halves(const LinearOp&, size_t input) { return input == 0; }

  template <class Shapes>
  static std::optional<NodeShape> infer(const LinearOp& op, Shapes& node) {
    const bool is_planned =
        !op.columns.empty() || op.stored_in != 0 || op.input_norm || op.norm || op.is_term || op.ones || op.row_bias;
    if (is_planned && !node.is_planned())
      return node.fail("a linear of the model language",
                       "one with column ranges, folded norms, weights of 1 or a row bias, which planning adds");
    const size_t expected = 1u + op.row_bias + op.multiply + op.residual;
    if (!node.count_is(expected, expected)) return {};
    const auto& graph = node.graph();
    const auto& x = node.input(0);
    const int64_t width = node.asked().width;
    if (op.name.empty()) return node.fail("a name for the weights", "none");
    if (!node.is_good(op.activation)) return {};
    if (op.groups < 1 || op.groups > max_width) return node.fail("1 or more groups", std::to_string(op.groups));
    if (width < 1) return node.fail("1 or more output columns", std::to_string(width));
    if (op.ones && (op.stacked || op.scene >= 0 || op.input_norm || op.norm || width != 1 || op.stored_in < 1))
      return node.fail("a sum over columns with one output and without groups or norms", std::to_string(width));
    if (op.residual_first && !op.residual) return node.fail("a residual to add before the activation", "none");
    if (op.groups > 1 && !op.stacked) return node.fail("stacked weights for several groups", "not stacked");
    if (op.scene < 0 && width % op.groups != 0)
      return node.fail("output columns that divide into " + std::to_string(op.groups) + " groups",
                       std::to_string(width));
    if (!op.shared_input && x.width % op.groups != 0)
      return node.fail("input columns that divide into " + std::to_string(op.groups) + " groups", node.show(x));
    if (op.scene >= static_cast<int>(graph.ids.size()))
      return node.fail("an ids input of the graph as scene", "index " + std::to_string(op.scene));
    if (op.scene >= 0 && !graph.is_ancestor(graph.ids[static_cast<size_t>(op.scene)].axis, x.axis))
      return node.fail("scene ids on the axis of x or above it",
                       "'" + graph.ids[static_cast<size_t>(op.scene)].name + "' and " + node.show(x));
    if (op.scene >= 0 && (!op.shared_input || op.row_bias || op.multiply || op.residual))
      return node.fail("scene-selected weights on a plain input", "grouped inputs or an epilogue input");
    int64_t selected = 0;
    for (const ColumnRange& range : op.columns) {
      if (range.begin < 0 || range.begin >= range.end || range.end > op.stored_in)
        return node.fail("column ranges inside the stored weight's " + std::to_string(op.stored_in),
                         "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")");
      selected += range.end - range.begin;
    }
    if (!op.columns.empty() && selected != x.width)
      return node.fail("an input of " + std::to_string(selected) + " columns, as many as the weight columns chosen",
                       node.show(x));
    size_t next = 1;
    if (op.row_bias) {
      const auto& bias = node.input(next++);
      if (!graph.is_ancestor(bias.axis, x.axis) || bias.width != width)
        return node.fail("a row bias of " + std::to_string(width) + " columns on the axis of x or above",
                         node.show(bias));
    }
    for (; next < node.num_inputs(); ++next)
      if (node.input(next).axis != x.axis || node.input(next).width != width)
        return node.fail("[" + node.axis_name(x.axis) + ", " + std::to_string(width) + "] to multiply with or add",
                         node.show(node.input(next)));
    return NodeShape{x.axis, width};
  }

  template <class Lister>
  static void parameters(const LinearOp& op, Lister& node) {
    const int64_t x = node.input(0).width;
    const int64_t in = op.stored_in > 0 ? op.stored_in : op.shared_input ? x : x / op.groups;
    const int64_t out = op.scene >= 0 ? node.width() : node.width() / op.groups;
    const Shape shape = op.stacked ? Shape{op.groups, out} : Shape{out};
    Shape weight_shape = shape;
    weight_shape.push_back(in);
    if (!op.ones) node.matrix(op.name + ".weight", std::move(weight_shape));
    if (op.bias && !op.is_term) node.vector(op.name + ".bias", shape);
    if (op.input_norm) node.batch_norm(op.input_norm->name, op.input_norm->affine, {op.shared_input ? in : x});
    if (op.norm) node.batch_norm(op.norm->name, op.norm->affine, shape);
    node.activation(op.name, op.activation, shape);
  }

  template <class Model>
  static Cost cost(const LinearOp& op, const Model& node) {
    const double in =
        static_cast<double>(node.input(0).width) / (op.shared_input ? 1.0 : static_cast<double>(op.groups));
    const double weights = op.ones ? 0 : in * node.width() * (op.scene >= 0 ? static_cast<double>(op.groups) : 1.0);
    return {node.rows() * (2 * in * node.width() + node.width() * (1 + op.row_bias + op.multiply + op.residual)),
            node.traffic() + weights * node.value_bytes};
  }
};

}}  // namespace warprank::v0
