// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

namespace detail {

/// The layer "<name>" if `op` only adds the learned vector "<name>.bias" to its input; else empty.
inline std::string layer_of_bias(const Op& op) {
  ElementwiseProgram add_vector;
  add_vector.num_inputs = add_vector.num_vectors = 1;
  add_vector.instructions = {{ElementwiseFunction::add, 0, 1}};
  const auto* elementwise = std::get_if<ElementwiseOp>(&op);
  if (elementwise == nullptr || elementwise->program != add_vector) return "";
  const LearnedVector& vector = elementwise->vectors[0];
  const std::string suffix = ".bias";
  const std::string& name = vector.name;
  if (vector.kind != LearnedVector::Kind::stored || name.size() <= suffix.size()) return "";
  const size_t length = name.size() - suffix.size();
  return name.compare(length, suffix.size(), suffix) == 0 ? name.substr(0, length) : "";
}

}  // namespace detail

/// A sum over columns plus a learned bias (Builder::wide) becomes a linear with weights 1. So, like other linears, it
/// is split between user and item, launched beside others, and added in the epilogue of another one.
inline Graph sums_as_linears(const Graph& graph) {
  const auto consumers = consumers_of(graph);
  const auto is_output = output_nodes_of(graph);
  Rewriter rewriter(graph);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    Node node = rewriter.renewed(n);
    const std::string layer = detail::layer_of_bias(node.op);
    if (!layer.empty() && node.width == 1) {
      const auto sum = static_cast<size_t>(graph.node(n).inputs[0]);
      const auto* reduce = std::get_if<ReduceOp>(&graph.nodes[sum].op);
      if (reduce != nullptr && reduce->pooling == Pooling::sum && consumers[sum].size() == 1 && !is_output[sum]) {
        LinearOp linear;
        linear.name = layer;
        linear.ones = true;
        node.inputs = {rewriter.replacement(graph.nodes[sum].inputs[0])};
        linear.stored_in = rewriter.node(node.inputs[0]).width;
        node.op = std::move(linear);
      }
    }
    rewriter.replace(n, rewriter.emit(std::move(node)));
  }
  return rewriter.finish();
}

}}}  // namespace warprank::v0::plan
