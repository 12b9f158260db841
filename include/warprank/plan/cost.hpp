// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The cost of a node: floating-point operations and bytes moved, from the formulas and the number of rows. A
/// multiply-add is two operations, an activation one. Values, weights and table rows are FP16, as on GPUs; dense inputs
/// arrive as FP32; an id has eight bytes.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/plan/steps.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The bytes of a value between two steps, of a weight, and of an element of a table.
inline constexpr double value_bytes = 2;

using warprank::Cost;

/// The batches to plan for, in rows of all requests together. `items` counts rows of the axis of the first output that
/// is not on the outermost axis; if all outputs are on that axis, it has no effect. Rows of other axes are given by
/// `rows`, else by keep_last per parent row, else learned from CompileOptions::recorded, else guessed. Plan::warnings
/// reports guesses.
struct Capacity {
  int64_t requests = 1;
  int64_t items = 256;
  std::map<std::string, int64_t> rows = {};  ///< by axis name; may repeat the two above, not contradict them
};

/// The rows for each parent row, on an axis of which nothing is known.
inline constexpr int64_t guessed_rows = 8;

namespace detail {

/// The axis that a capacity's items count; -1: none.
inline int axis_of_items(const Graph& graph) {
  for (const OutputInfo& output : graph.outputs) {
    const int axis = graph.node(output.node).axis;
    if (graph.axis(axis).parent != -1) return axis;
  }
  return -1;
}

}  // namespace detail

/// Rows of every axis at a capacity, none more than 2^31.
inline std::vector<int64_t> rows_at(const Graph& graph, const Capacity& capacity) {
  constexpr int64_t most_rows = int64_t{1} << 31;  // products of two do not overflow
  const int axis_of_items = detail::axis_of_items(graph);
  std::vector<int64_t> rows(graph.axes.size(), std::min(capacity.requests, most_rows));
  for (size_t a = 0; a < graph.axes.size(); ++a) {
    const AxisInfo& axis = graph.axes[a];
    if (axis.parent == -1) continue;
    const auto given = capacity.rows.find(axis.name);
    const int64_t per_parent = axis.keep_last > 0 ? std::min(axis.keep_last, most_rows) : guessed_rows;
    rows[a] = static_cast<int>(a) == axis_of_items ? capacity.items
              : given != capacity.rows.end()       ? given->second
                                                   : rows[static_cast<size_t>(axis.parent)] * per_parent;
    rows[a] = std::min(rows[a], most_rows);
  }
  return rows;
}

/// Adds all problems of a capacity of a valid graph to `problems`.
inline void validate(const Capacity& capacity, const Graph& graph, Problems& problems) {
  const size_t num_before = problems.list().size();
  if (capacity.requests < 0 || capacity.items < 0)
    problems.add("capacity", "0 or more requests and items",
                 std::to_string(capacity.requests) + " and " + std::to_string(capacity.items));
  const auto what = [](const std::string& axis) { return "capacity: rows of axis '" + axis + "'"; };
  std::vector<std::string> axes;
  for (const AxisInfo& axis : graph.axes) axes.push_back(axis.name);
  const int axis_of_items = detail::axis_of_items(graph);
  for (const auto& [axis, rows] : capacity.rows) {
    const auto found = std::find(axes.begin(), axes.end(), axis);
    const auto a = static_cast<int>(found - axes.begin());
    if (found == axes.end())
      problems.add(what(axis), "an axis of the model", unknown_name(axis, axes));
    else if (graph.axis(a).parent == -1 && rows != capacity.requests)
      problems.add(what(axis), std::to_string(capacity.requests) + ", its requests", std::to_string(rows));
    else if (a == axis_of_items && rows != capacity.items)
      problems.add(what(axis), std::to_string(capacity.items) + ", its items", std::to_string(rows));
    else if (rows < 0)
      problems.add(what(axis), "0 or more", std::to_string(rows));
  }
  if (problems.list().size() > num_before) return;
  const std::vector<int64_t> rows = rows_at(graph, capacity);
  for (size_t a = 0; a < rows.size(); ++a) {
    const int parent = graph.axes[a].parent;
    if (parent != -1 && rows[a] > 0 && rows[static_cast<size_t>(parent)] == 0)
      problems.add(what(axes[a]), "0, as those of its parent '" + graph.axis(parent).name + "'",
                   std::to_string(rows[a]));
  }
}

namespace detail {

/// The cost of one node, by the traits of its op.
class CostModel {
 public:
  CostModel(const Graph& graph, const Node& node, const std::vector<int64_t>& rows)
      : graph_(graph), node_(node), rows_(rows) {}

  Cost run() const {
    return visit_traits(node_.op, [this](const auto& op, auto traits) { return traits.cost(op, *this); });
  }

  // --- for traits

  static constexpr double value_bytes = plan::value_bytes;

  const Graph& graph() const { return graph_; }
  size_t num_inputs() const { return node_.inputs.size(); }
  const Node& input(size_t i) const { return graph_.node(node_.inputs[i]); }
  double rows(int axis) const { return static_cast<double>(rows_[static_cast<size_t>(axis)]); }
  double rows() const { return rows(node_.axis); }
  double width() const { return static_cast<double>(node_.width); }
  double elements() const { return elements(node_); }
  double input_elements() const {
    double sum = 0;
    for (int i : node_.inputs) sum += elements(graph_.node(i));
    return sum;
  }
  /// All inputs read once, the output written once.
  double traffic() const { return (elements() + input_elements()) * value_bytes; }
  /// Pairs (row of the node, event) that an attention visits.
  double pairs(const Node& k) const {
    const int parent = graph_.axis(k.axis).parent;
    return parent == -1 || rows(parent) == 0 ? 0 : rows() * rows(k.axis) / rows(parent);
  }

 private:
  double elements(const Node& n) const { return rows(n.axis) * static_cast<double>(n.width); }

  const Graph& graph_;
  const Node& node_;
  const std::vector<int64_t>& rows_;
};

}  // namespace detail

inline Cost cost_of(const Graph& graph, const Node& node, const std::vector<int64_t>& rows) {
  return detail::CostModel(graph, node, rows).run();
}

/// The cost of bringing the dense inputs to the place where they are read.
inline Cost cost_of_inputs(const Graph& graph, const std::vector<int64_t>& rows) {
  Cost total;
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<DenseOp>(node.op)) total += cost_of(graph, node, rows);
  return total;
}

/// The cost of a step. The inner values of its chains are neither written nor read, and heads that it multiplies are
/// not read.
inline Cost cost_of(const Graph& graph, const std::vector<int>& step, const std::vector<int64_t>& rows) {
  Cost total;
  for (const std::vector<int>& chain : chains_of(graph, step))
    for (int n : chain) {
      const Node& node = graph.node(n);
      total += cost_of(graph, node, rows);
      const double elements =
          static_cast<double>(rows[static_cast<size_t>(node.axis)]) * static_cast<double>(node.width);
      if (n != chain.back()) total.bytes -= 2 * elements * value_bytes;
      const bool multiplies_heads =
          step_kind(node.op) == StepKind::rows && step_kind(graph.node(step[0]).op) != StepKind::rows;
      if (multiplies_heads) total.bytes -= static_cast<double>(node.inputs.size()) * elements * value_bytes;
    }
  return total;
}

}}}  // namespace warprank::v0::plan
