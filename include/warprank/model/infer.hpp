// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shapes: which axis and how many columns each node has, and everything that can be wrong with a graph. The Builder
/// asks for one node at a time; `validate` asks for all nodes of a graph that came from elsewhere.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "warprank/core/error.hpp"
#include "warprank/model/graph.hpp"

namespace warprank {

/// The most columns of a tensor: far more than any model has, and small enough that no product of widths overflows.
inline constexpr int64_t max_width = int64_t{1} << 24;

/// `count` times `size`; 0 or a width that is refused where one of them cannot be right.
constexpr int64_t width_of_all(int64_t count, int64_t size) {
  if (count < 1 || size < 1) return 0;
  return count > max_width || size > max_width ? max_width + 1 : count * size;
}

struct NodeShape {
  int axis = 0;
  int64_t width = 0;
};

/// Whether inputs may live on an ancestor axis without `expand`.
enum class AxisMixing {
  explicit_expand,  ///< the model language
  implicit_expand   ///< what the planner makes of it
};

namespace detail {

/// Infers the shape of one node; reports at most one problem.
class ShapeInference {
 public:
  ShapeInference(const Graph& graph, const Node& node, AxisMixing mixing, Problems& problems)
      : graph_(graph), node_(node), mixing_(mixing), problems_(problems) {}

  std::optional<NodeShape> run() {
    for (int input : node_.inputs)
      if (!is_earlier(input)) return fail("inputs that come before the node", "node " + std::to_string(input));
    if (node_.width > max_width)
      return fail("at most " + std::to_string(max_width) + " columns", std::to_string(node_.width));
    const Result shape = std::visit([this](const auto& op) { return infer(op); }, node_.op);
    if (shape && shape->width > max_width)
      return fail("at most " + std::to_string(max_width) + " columns", std::to_string(shape->width));
    return shape;
  }

 private:
  using Result = std::optional<NodeShape>;

  bool is_earlier(int input) const {
    const auto first = graph_.nodes.data(), last = first + graph_.nodes.size();
    const auto limit = &node_ >= first && &node_ < last ? &node_ - first : last - first;
    return input >= 0 && input < limit;
  }
  const Node& input(size_t i) const { return graph_.node(node_.inputs[i]); }
  size_t num_inputs() const { return node_.inputs.size(); }
  const std::string& axis_name(int axis) const { return graph_.axis(axis).name; }
  std::string show(const Node& n) const {
    return "'" + n.name + "' [" + axis_name(n.axis) + ", " + std::to_string(n.width) + "]";
  }

  Result fail(std::string expected, std::string got) {
    problems_.add(
        {node_.where, std::string(kind_of(node_.op)) + " '" + node_.name + "'", std::move(expected), std::move(got)});
    return std::nullopt;
  }
  bool count_is(size_t least, size_t most) {
    if (num_inputs() >= least && num_inputs() <= most) return true;
    const std::string many = most == SIZE_MAX ? " or more" : most != least ? " to " + std::to_string(most) : "";
    fail(std::to_string(least) + many + " inputs", std::to_string(num_inputs()));
    return false;
  }

  /// Settings that make NaN of good numbers.
  bool eps_is_good(float eps) {
    if (std::isfinite(eps) && eps >= 0) return true;
    fail("a finite eps of 0 or more", std::to_string(eps));
    return false;
  }
  bool is_finite(const char* setting, float value) {
    if (std::isfinite(value)) return true;
    fail(std::string("a finite ") + setting, std::to_string(value));
    return false;
  }
  bool is_good(const Activation& activation) {
    return is_finite("alpha", activation.alpha) && eps_is_good(activation.eps);
  }

  /// All inputs on one axis, or, where `ancestors` and the planner's relaxed rule allow it, above one. Returns that
  /// axis.
  std::optional<int> common_axis(bool ancestors) {
    const Node* deepest = &input(0);
    for (size_t i = 1; i < num_inputs(); ++i)
      if (input(i).axis != deepest->axis && graph_.is_ancestor(deepest->axis, input(i).axis)) deepest = &input(i);
    for (size_t i = 0; i < num_inputs(); ++i) {
      const Node& other = input(i);
      if (other.axis == deepest->axis) continue;
      const bool above = graph_.is_ancestor(other.axis, deepest->axis);
      if (above && ancestors && mixing_ == AxisMixing::implicit_expand) continue;
      fail(above ? "tensors on one axis; use expand(" + other.name + ", " + axis_name(deepest->axis) + ")"
                 : "tensors on one axis; neither axis is nested in the other",
           show(other) + " and " + show(*deepest));
      return std::nullopt;
    }
    return deepest->axis;
  }

  /// Both axes are the same or nest directly in one parent (or one of them is that parent). For attention over events.
  bool share_a_parent(const Node& q, const Node& k) {
    const int parent = graph_.axis(k.axis).parent;
    if (q.axis == k.axis || (parent != -1 && graph_.is_ancestor(parent, q.axis))) return true;
    fail("a history nested in an axis that the query lives on or under", show(q) + " over " + show(k));
    return false;
  }

  Result infer(const DenseOp& op) {
    if (!count_is(0, 0)) return {};
    if (op.input < 0 || op.input >= static_cast<int>(graph_.dense.size()))
      return fail("a dense input of the graph", "index " + std::to_string(op.input));
    const DenseInfo& info = graph_.dense[static_cast<size_t>(op.input)];
    return NodeShape{info.axis, info.width};
  }

  Result infer(const EmbedOp& op) {
    if (!count_is(0, 1)) return {};
    if (op.ids < 0 || op.ids >= static_cast<int>(graph_.ids.size()))
      return fail("an ids input of the graph", "index " + std::to_string(op.ids));
    if (op.table < 0 || op.table >= static_cast<int>(graph_.tables.size()))
      return fail("a table of the graph", "index " + std::to_string(op.table));
    const IdsInfo& ids = graph_.ids[static_cast<size_t>(op.ids)];
    const int64_t dim = graph_.tables[static_cast<size_t>(op.table)].dim;
    if (op.pooling == Pooling::none) {
      if (num_inputs() != 0) return fail("weights only with a pooled look-up", show(input(0)));
      return NodeShape{ids.axis, dim};
    }
    if (num_inputs() == 1) {
      if (op.pooling == Pooling::max) return fail("no weights with max pooling", show(input(0)));
      if (input(0).axis != ids.axis || input(0).width != 1)
        return fail("weights of 1 column on axis '" + axis_name(ids.axis) + "'", show(input(0)));
    }
    const int parent = graph_.axis(ids.axis).parent;
    if (parent == -1)
      return fail("ids on a nested axis, pooled onto its parent",
                  "'" + ids.name + "' on the outermost axis '" + axis_name(ids.axis) + "'");
    return NodeShape{parent, dim};
  }

  Result infer(const ConcatOp&) {
    if (!count_is(1, SIZE_MAX)) return {};
    const auto axis = common_axis(false);
    if (!axis) return {};
    int64_t width = 0;
    for (size_t i = 0; i < num_inputs(); ++i) width += input(i).width;
    return NodeShape{*axis, width};
  }

  Result infer(const ExpandOp&) {
    if (!count_is(1, 1)) return {};
    if (node_.axis < 0 || node_.axis >= static_cast<int>(graph_.axes.size()))
      return fail("an axis of the graph", "index " + std::to_string(node_.axis));
    if (!graph_.is_ancestor(input(0).axis, node_.axis))
      return fail("an axis nested in '" + axis_name(input(0).axis) + "'", "'" + axis_name(node_.axis) + "'");
    return NodeShape{node_.axis, input(0).width};
  }

  Result infer(const SliceOp& op) {
    if (!count_is(1, 1)) return {};
    if (op.begin < 0 || node_.width < 1 || op.begin > input(0).width - node_.width)
      return fail("a non-empty range inside " + std::to_string(input(0).width) + " columns",
                  "begin " + std::to_string(op.begin) + ", width " + std::to_string(node_.width));
    return NodeShape{input(0).axis, node_.width};
  }

  Result infer(const LinearOp& op) {
    const bool is_planned =
        !op.columns.empty() || op.stored_in != 0 || op.input_norm || op.norm || op.is_term || op.ones || op.row_bias;
    if (is_planned && mixing_ == AxisMixing::explicit_expand)
      return fail("a linear of the model language",
                  "one with column ranges, folded norms, weights of 1 or a row bias, which planning adds");
    const size_t expected = 1u + op.row_bias + op.multiply + op.residual;
    if (!count_is(expected, expected)) return {};
    const Node& x = input(0);
    if (op.name.empty()) return fail("a name for the weights", "none");
    if (!is_good(op.activation)) return {};
    if (op.groups < 1 || op.groups > max_width) return fail("1 or more groups", std::to_string(op.groups));
    if (node_.width < 1) return fail("1 or more output columns", std::to_string(node_.width));
    if (op.ones && (op.stacked || op.scene >= 0 || op.input_norm || op.norm || node_.width != 1 || op.stored_in < 1))
      return fail("a sum over columns with one output and without groups or norms", std::to_string(node_.width));
    if (op.residual_first && !op.residual) return fail("a residual to add before the activation", "none");
    if (op.groups > 1 && !op.stacked) return fail("stacked weights for several groups", "not stacked");
    if (op.scene < 0 && node_.width % op.groups != 0)
      return fail("output columns that divide into " + std::to_string(op.groups) + " groups",
                  std::to_string(node_.width));
    if (!op.shared_input && x.width % op.groups != 0)
      return fail("input columns that divide into " + std::to_string(op.groups) + " groups", show(x));
    if (op.scene >= static_cast<int>(graph_.ids.size()))
      return fail("an ids input of the graph as scene", "index " + std::to_string(op.scene));
    if (op.scene >= 0 && !graph_.is_ancestor(graph_.ids[static_cast<size_t>(op.scene)].axis, x.axis))
      return fail("scene ids on the axis of x or above it",
                  "'" + graph_.ids[static_cast<size_t>(op.scene)].name + "' and " + show(x));
    if (op.scene >= 0 && (!op.shared_input || op.row_bias || op.multiply || op.residual))
      return fail("scene-selected weights on a plain input", "grouped inputs or an epilogue input");
    int64_t selected = 0;
    for (const ColumnRange& range : op.columns) {
      if (range.begin < 0 || range.begin >= range.end || range.end > op.stored_in)
        return fail("column ranges inside the stored weight's " + std::to_string(op.stored_in),
                    "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")");
      selected += range.end - range.begin;
    }
    if (!op.columns.empty() && selected != x.width)
      return fail("an input of " + std::to_string(selected) + " columns, as many as the weight columns chosen",
                  show(x));
    size_t next = 1;
    if (op.row_bias) {
      const Node& bias = input(next++);
      if (!graph_.is_ancestor(bias.axis, x.axis) || bias.width != node_.width)
        return fail("a row bias of " + std::to_string(node_.width) + " columns on the axis of x or above", show(bias));
    }
    for (; next < num_inputs(); ++next)
      if (input(next).axis != x.axis || input(next).width != node_.width)
        return fail("[" + axis_name(x.axis) + ", " + std::to_string(node_.width) + "] to multiply with or add",
                    show(input(next)));
    return NodeShape{x.axis, node_.width};
  }

  Result infer(const DinAttentionOp& op) {
    if (!count_is(2, 3)) return {};
    const Node &q = input(0), &k = input(1);
    if (op.name.empty()) return fail("a name for the weights", "none");
    if (!is_good(op.activation)) return {};
    if (op.hidden.empty() || op.hidden.size() > 3)
      return fail("1 to 3 hidden layers", std::to_string(op.hidden.size()));
    for (int64_t width : op.hidden)
      if (width < 1 || width > max_width)
        return fail("hidden layers of 1 to " + std::to_string(max_width) + " columns", std::to_string(width));
    if (q.width != k.width) return fail("query and history of one width", show(q) + " and " + show(k));
    if (q.axis == k.axis) return fail("a history on an axis of its own", show(q) + " over " + show(k));
    if (num_inputs() == 3 && (input(2).axis != k.axis || input(2).width != k.width))
      return fail("two parts of a history of one shape", show(k) + " and " + show(input(2)));
    if (!share_a_parent(q, k)) return {};
    return NodeShape{q.axis, q.width};
  }

  Result infer(const AttentionOp& op) {
    if (!count_is(3, 3)) return {};
    if (!is_finite("scale", op.scale)) return {};
    const Node &q = input(0), &k = input(1), &v = input(2);
    if (k.axis != v.axis) return fail("keys and values on one axis", show(k) + " and " + show(v));
    if (q.width != k.width) return fail("queries and keys of one width", show(q) + " and " + show(k));
    if (op.heads < 1 || q.width % op.heads != 0 || v.width % op.heads != 0)
      return fail("widths that divide into heads", std::to_string(op.heads) + " heads, " + show(q) + ", " + show(v));
    if (q.width != v.width) return fail("keys and values of one width", show(k) + " and " + show(v));
    if (op.causal && q.axis != k.axis)
      return fail("causal attention of an axis over itself", show(q) + " over " + show(k));
    if (q.axis == k.axis && graph_.axis(q.axis).parent == -1) return fail("self-attention over a nested axis", show(q));
    if (!share_a_parent(q, k)) return {};
    return NodeShape{q.axis, v.width};
  }

  Result infer_fields(int64_t dim, int64_t& num_fields) {
    if (!count_is(1, SIZE_MAX)) return {};
    if (dim < 1 || dim > max_width) return fail("a field dim of 1 or more", std::to_string(dim));
    const auto axis = common_axis(true);
    if (!axis) return {};
    num_fields = 0;
    for (size_t i = 0; i < num_inputs(); ++i) {
      if (input(i).width % dim != 0)
        return fail("inputs made of fields of " + std::to_string(dim) + " columns", show(input(i)));
      num_fields += input(i).width / dim;
      if (num_fields > max_width) return fail("at most " + std::to_string(max_width) + " fields", show(input(i)));
    }
    return NodeShape{*axis, 1};
  }

  Result infer(const FmOp& op) {
    int64_t num_fields = 0;
    Result shape = infer_fields(op.dim, num_fields);
    if (shape && !op.reduce) shape->width = op.dim;
    return shape;
  }

  Result infer(const DotOp& op) {
    int64_t num_fields = 0;
    Result shape = infer_fields(op.dim, num_fields);
    if (!shape) return shape;
    shape->width =
        num_fields * (num_fields - 1) / 2 + (op.self ? num_fields : 0) + (op.order == DotOrder::lower_padded);
    if (shape->width == 0) return fail("two fields or more", std::to_string(num_fields));
    return shape;
  }

  Result infer(const MixOp&) {
    if (!count_is(2, 2)) return {};
    const Node &experts = input(0), &gate = input(1);
    const auto axis = common_axis(true);
    if (!axis) return {};
    if (gate.width < 1 || experts.width % gate.width != 0)
      return fail("a gate with one logit per expert", show(gate) + " for " + show(experts));
    return NodeShape{*axis, experts.width / gate.width};
  }

  Result infer(const ElementwiseOp& op) {
    if (!count_is(1, SIZE_MAX)) return {};
    Problems complaints;
    validate(op.program, std::string(kind_of(node_.op)) + " '" + node_.name + "'", complaints);
    for (Problem problem : complaints.list()) {
      problem.where = node_.where;
      problems_.add(std::move(problem));
    }
    if (!complaints.empty()) return {};
    if (static_cast<size_t>(op.program.num_inputs) != num_inputs() ||
        static_cast<size_t>(op.program.num_vectors) != op.vectors.size())
      return fail(std::to_string(op.program.num_inputs) + " inputs and " + std::to_string(op.program.num_vectors) +
                      " learned vectors",
                  std::to_string(num_inputs()) + " and " + std::to_string(op.vectors.size()));
    for (const Instruction& instruction : op.program.instructions)
      if (!is_finite("alpha", instruction.alpha)) return {};
    for (const LearnedVector& vector : op.vectors)
      if (!eps_is_good(vector.eps)) return {};
    const auto axis = common_axis(true);
    if (!axis) return {};
    int64_t width = 1;
    const Node* widest = &input(0);
    for (size_t i = 0; i < num_inputs(); ++i)
      if (input(i).width > width) width = (widest = &input(i))->width;
    for (size_t i = 0; i < num_inputs(); ++i)
      if (input(i).width != width && input(i).width != 1)
        return fail("inputs of one width, or of 1 column", show(input(i)) + " and " + show(*widest));
    return NodeShape{*axis, width};
  }

  Result infer(const LayerNormOp& op) {
    if (op.affine && op.name.empty()) return fail("a name for the weights", "none");
    if (!eps_is_good(op.eps)) return {};
    return same_as_input();
  }
  Result infer(const SoftmaxOp&) { return same_as_input(); }
  Result same_as_input() {
    if (!count_is(1, 1)) return {};
    return NodeShape{input(0).axis, input(0).width};
  }

  Result infer(const ReduceOp& op) {
    if (!count_is(1, 1)) return {};
    if (op.pooling == Pooling::none) return fail("sum, mean, sqrtn or max", "none");
    return NodeShape{input(0).axis, 1};
  }

  Result infer(const PoolOp& op) {
    if (!count_is(1, 1)) return {};
    if (op.pooling == Pooling::none) return fail("sum, mean, sqrtn or max", "none");
    const int parent = graph_.axis(input(0).axis).parent;
    if (parent == -1) return fail("a tensor on a nested axis", show(input(0)));
    return NodeShape{parent, input(0).width};
  }

  Result infer(const CustomOp& op) {
    if (op.function.empty()) return fail("the name of a function", "none");
    if (node_.axis < 0 || node_.axis >= static_cast<int>(graph_.axes.size()))
      return fail("an axis of the graph", "index " + std::to_string(node_.axis));
    if (node_.width < 1) return fail("1 or more output columns", std::to_string(node_.width));
    for (size_t i = 0; i < num_inputs(); ++i)
      if (!graph_.is_ancestor(input(i).axis, node_.axis))
        return fail("inputs on axis '" + axis_name(node_.axis) + "' or above", show(input(i)));
    return NodeShape{node_.axis, node_.width};
  }

  const Graph& graph_;
  const Node& node_;
  AxisMixing mixing_;
  Problems& problems_;
};

}  // namespace detail

/// The axis and width of `node`, whose inputs are nodes of `graph`; reports a problem and returns nothing when there is
/// none. Where an op leaves them open (a linear's outputs, a slice's width, expand's axis), node.axis and node.width
/// say.
inline std::optional<NodeShape> infer_shape(const Graph& graph, const Node& node, AxisMixing mixing,
                                            Problems& problems) {
  return detail::ShapeInference(graph, node, mixing, problems).run();
}

}  // namespace warprank
