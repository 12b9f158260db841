// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The code that the passes share: it writes a new graph node by node from an old one, so that the new graph is always
/// in order.

#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/model/infer.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// For every node, the nodes that read it, once per reading.
inline std::vector<std::vector<int>> consumers_of(const Graph& graph) {
  std::vector<std::vector<int>> consumers(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (int input : graph.nodes[n].inputs) consumers[static_cast<size_t>(input)].push_back(static_cast<int>(n));
  return consumers;
}

inline std::vector<bool> output_nodes_of(const Graph& graph) {
  std::vector<bool> is_output(graph.nodes.size(), false);
  for (const OutputInfo& output : graph.outputs) is_output[static_cast<size_t>(output.node)] = true;
  return is_output;
}

/// Writes a new graph from an old one. A pass visits the old nodes in order, emits the nodes that take their place, and
/// registers them with `replace`.
class Rewriter {
 public:
  explicit Rewriter(const Graph& old) : old_(old), replacement_(old.nodes.size(), -1) {
    graph_.axes = old.axes;
    graph_.tables = old.tables;
    graph_.ids = old.ids;
    graph_.dense = old.dense;
  }

  const Graph& graph() const { return graph_; }
  const Node& node(int new_node) const { return graph_.node(new_node); }

  /// An old node as it would stand in the new graph: its inputs are the replacements of its old inputs.
  Node renewed(int old_node) const {
    Node node = old_.node(old_node);
    for (int& input : node.inputs) input = replacement_[static_cast<size_t>(input)];
    return node;
  }

  /// Adds a node and returns its number; its axis and width are inferred anew. Throws internal_error for a wrong node,
  /// which is a bug of the pass.
  int emit(Node node) {
    Problems problems;
    const auto shape = infer_shape(graph_, node, AxisMixing::implicit_expand, problems);
    if (!shape) throw internal_error("a pass made a node that is wrong: " + problems.list()[0].to_string());
    node.axis = shape->axis;
    node.width = shape->width;
    node.name = names_.make(node.name);
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }

  void replace(int old_node, int new_node) { replacement_[static_cast<size_t>(old_node)] = new_node; }
  int replacement(int old_node) const { return replacement_[static_cast<size_t>(old_node)]; }

  Graph finish() {
    for (const OutputInfo& output : old_.outputs)
      graph_.outputs.push_back({output.name, replacement_[static_cast<size_t>(output.node)]});
    return std::move(graph_);
  }

 private:
  const Graph& old_;
  Graph graph_;
  std::vector<int> replacement_;
  warprank::detail::UniqueNames names_;
};

}}}  // namespace warprank::v0::plan
