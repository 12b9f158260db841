// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Validates a graph that did not come from a Builder: read from JSON, or made by hand.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "warprank/model/infer.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

template <class Info>
void check_names(const std::vector<Info>& list, const char* what, std::map<std::string, int>& seen,
                 Problems& problems) {
  for (const Info& info : list) {
    if (info.name.empty()) problems.add(what, "a name", "an empty one");
    if (seen[info.name]++ == 1)
      problems.add(std::string(what) + " '" + info.name + "'", "a unique name", "a second one");
  }
}

}  // namespace detail

/// Adds the errors that it finds to `problems`; a graph that passes can be compiled.
inline void validate(const Graph& graph, Problems& problems) {
  std::map<std::string, int> axis_names, table_names, input_names, node_names, output_names;
  detail::check_names(graph.axes, "axis", axis_names, problems);
  detail::check_names(graph.tables, "table", table_names, problems);
  detail::check_names(graph.ids, "input", input_names, problems);
  detail::check_names(graph.dense, "input", input_names, problems);
  detail::check_names(graph.nodes, "node", node_names, problems);
  detail::check_names(graph.outputs, "output", output_names, problems);

  const int num_axes = static_cast<int>(graph.axes.size());
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (graph.axes.empty()) problems.add("axes", "one or more", "none");
  for (int a = 0; a < num_axes; ++a) {
    const AxisInfo& axis = graph.axis(a);
    if (a == 0 ? axis.parent != -1 : axis.parent < 0 || axis.parent >= a)
      problems.add("axis '" + axis.name + "'", a == 0 ? "no parent" : "a parent that comes before it",
                   number(axis.parent));
    if (axis.keep_last < 0) problems.add("axis '" + axis.name + "'", "keep_last of 0 or more", number(axis.keep_last));
  }
  for (const TableInfo& table : graph.tables)
    if (table.dim < 1 || table.rows < 0)
      problems.add("table '" + table.name + "'", "a dim of 1 or more and 0 rows or more",
                   "dim " + number(table.dim) + ", rows " + number(table.rows));
  for (const IdsInfo& ids : graph.ids) {
    if (ids.axis < 0 || ids.axis >= num_axes)
      problems.add("ids '" + ids.name + "'", "an axis of the graph", "index " + number(ids.axis));
    if (ids.padding && !holds(ids.wire, *ids.padding))
      problems.add("ids '" + ids.name + "'", "a padding of 32 bits, as its ids", number(*ids.padding));
  }
  for (const DenseInfo& dense : graph.dense) {
    if (dense.axis < 0 || dense.axis >= num_axes)
      problems.add("dense '" + dense.name + "'", "an axis of the graph", "index " + number(dense.axis));
    if (dense.width < 1 || dense.width > max_dense_width)
      problems.add("dense '" + dense.name + "'", "1 to " + number(max_dense_width) + " columns", number(dense.width));
    if (dense.default_value && !std::isfinite(*dense.default_value))
      problems.add("dense '" + dense.name + "'", "a finite default", std::to_string(*dense.default_value));
  }
  if (!problems.empty()) return;  // shapes below index into what was wrong above

  for (const Node& node : graph.nodes) {
    const auto shape = infer_shape(graph, node, AxisMixing::explicit_expand, problems);
    if (shape && (shape->axis != node.axis || shape->width != node.width))
      problems.add({node.where, std::string(kind_of(node.op)) + " '" + node.name + "'",
                    "axis " + number(shape->axis) + ", width " + number(shape->width),
                    "axis " + number(node.axis) + ", width " + number(node.width)});
    if (!problems.empty()) return;  // later nodes rely on this one
  }
  if (graph.outputs.empty()) problems.add("outputs", "one or more", "none");
  for (const OutputInfo& output : graph.outputs)
    if (output.node < 0 || output.node >= static_cast<int>(graph.nodes.size()))
      problems.add("output '" + output.name + "'", "a node of the graph", "index " + number(output.node));
}

}}  // namespace warprank::v0
