// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shapes: the axis and the number of columns of each node, and the errors that a node can have. The Builder infers one
/// node at a time; `validate` infers all nodes of a graph from elsewhere.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "warprank/core/error.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 {

/// `count` times `size`; 0, or a width that is refused, if one of them cannot be right.
constexpr int64_t width_of_all(int64_t count, int64_t size) {
  if (count < 1 || size < 1) return 0;
  return count > max_width || size > max_width ? max_width + 1 : count * size;
}

/// Whether inputs may live on an ancestor axis without `expand`.
enum class AxisMixing {
  explicit_expand,  ///< in the model language
  implicit_expand   ///< in graphs of the planner
};

namespace detail {

/// Infers the shape of one node, by the traits of its op; reports at most one problem.
class ShapeInference {
 public:
  using Result = std::optional<NodeShape>;

  ShapeInference(const Graph& graph, const Node& node, AxisMixing mixing, Problems& problems)
      : graph_(graph), node_(node), mixing_(mixing), problems_(problems) {}

  Result run() {
    for (int input : node_.inputs)
      if (!is_earlier(input)) return fail("inputs that come before the node", "node " + std::to_string(input));
    if (node_.width > max_width)
      return fail("at most " + std::to_string(max_width) + " columns", std::to_string(node_.width));
    const Result shape =
        visit_traits(node_.op, [this](const auto& op, auto traits) { return traits.infer(op, *this); });
    if (shape && shape->width > max_width)
      return fail("at most " + std::to_string(max_width) + " columns", std::to_string(shape->width));
    return shape;
  }

  // --- for traits

  const Graph& graph() const { return graph_; }
  const Node& input(size_t i) const { return graph_.node(node_.inputs[i]); }
  size_t num_inputs() const { return node_.inputs.size(); }
  /// The node's own axis and width, for ops whose inputs do not determine them.
  NodeShape asked() const { return {node_.axis, node_.width}; }
  /// Whether the graph is the planner's, which may do more than the model language.
  bool is_planned() const { return mixing_ == AxisMixing::implicit_expand; }
  const std::string& axis_name(int axis) const { return graph_.axis(axis).name; }
  std::string show(const Node& n) const {
    return "'" + n.name + "' [" + axis_name(n.axis) + ", " + std::to_string(n.width) + "]";
  }

  Result fail(std::string expected, std::string got) {
    problems_.add({node_.where, what(), std::move(expected), std::move(got)});
    return std::nullopt;
  }
  bool count_is(size_t least, size_t most) {
    if (num_inputs() >= least && num_inputs() <= most) return true;
    const std::string many = most == SIZE_MAX ? " or more" : most != least ? " to " + std::to_string(most) : "";
    fail(std::to_string(least) + many + " inputs", std::to_string(num_inputs()));
    return false;
  }

  /// Check settings that can turn good numbers into NaN.
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
  bool is_valid(const ElementwiseProgram& program) {
    Problems complaints;
    validate(program, what(), complaints);
    for (Problem problem : complaints.list()) {
      problem.where = node_.where;
      problems_.add(std::move(problem));
    }
    return complaints.empty();
  }

  /// Requires that all inputs are on one axis, or, with `ancestors` in graphs of the planner, on its ancestors. Returns
  /// that axis.
  std::optional<int> common_axis(bool ancestors) {
    const Node* deepest = &input(0);
    for (size_t i = 1; i < num_inputs(); ++i)
      if (input(i).axis != deepest->axis && graph_.is_ancestor(deepest->axis, input(i).axis)) deepest = &input(i);
    for (size_t i = 0; i < num_inputs(); ++i) {
      const Node& other = input(i);
      if (other.axis == deepest->axis) continue;
      const bool above = graph_.is_ancestor(other.axis, deepest->axis);
      if (above && ancestors && is_planned()) continue;
      fail(above ? "tensors on one axis; use expand(" + other.name + ", " + axis_name(deepest->axis) + ")"
                 : "tensors on one axis; neither axis is nested in the other",
           show(other) + " and " + show(*deepest));
      return std::nullopt;
    }
    return deepest->axis;
  }

  /// Requires that both axes are the same, or that k's axis nests directly in an axis that q is on or under. For
  /// attention over events.
  bool share_a_parent(const Node& q, const Node& k) {
    const int parent = graph_.axis(k.axis).parent;
    if (q.axis == k.axis || (parent != -1 && graph_.is_ancestor(parent, q.axis))) return true;
    fail("a history nested in an axis that the query lives on or under", show(q) + " over " + show(k));
    return false;
  }

  Result same_as_input() {
    if (!count_is(1, 1)) return {};
    return NodeShape{input(0).axis, input(0).width};
  }

  /// The shape [axis, 1] for inputs that consist of fields of `dim` columns; also counts the fields.
  Result of_fields(int64_t dim, int64_t& num_fields) {
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

 private:
  std::string what() const { return std::string(kind_of(node_.op)) + " '" + node_.name + "'"; }

  bool is_earlier(int input) const {
    const auto first = graph_.nodes.data(), last = first + graph_.nodes.size();
    const auto limit = &node_ >= first && &node_ < last ? &node_ - first : last - first;
    return input >= 0 && input < limit;
  }

  const Graph& graph_;
  const Node& node_;
  AxisMixing mixing_;
  Problems& problems_;
};

}  // namespace detail

/// The axis and width of `node`, whose inputs are nodes of `graph`; returns nothing after reporting a problem. If an op
/// leaves them open (a linear's outputs, a slice's width, expand's axis), node.axis and node.width give them.
inline std::optional<NodeShape> infer_shape(const Graph& graph, const Node& node, AxisMixing mixing,
                                            Problems& problems) {
  return detail::ShapeInference(graph, node, mixing, problems).run();
}

}}  // namespace warprank::v0
