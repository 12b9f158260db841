// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/model/activation_program.hpp"
#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// By node: whether its columns are dense inputs, unchanged from the requests.
inline std::vector<bool> raw_inputs_of(const Graph& graph) {
  std::vector<bool> is_raw;
  for (const Node& node : graph.nodes) {
    const Op& op = node.op;
    const bool moves = std::holds_alternative<ConcatOp>(op) || std::holds_alternative<SliceOp>(op) ||
                       std::holds_alternative<ExpandOp>(op);
    is_raw.push_back(std::holds_alternative<DenseOp>(op) ||
                     (moves && std::all_of(node.inputs.begin(), node.inputs.end(),
                                           [&](int input) { return is_raw[static_cast<size_t>(input)]; })));
  }
  return is_raw;
}

/// Batch norms at inference are a scale and a shift: they go into the weights of the linear before them
/// (diag(s) W, s b + t) or of every linear after them (W diag(s), b + W t). Batch norms of dense inputs alone stay:
/// seconds and cents must be brought into a range before they are rounded to FP16.
inline Graph fold_batch_norm(const Graph& graph) {
  const auto consumers = consumers_of(graph);
  const auto is_output = output_nodes_of(graph);
  const auto norm_of = [&](int n) { return batch_norm_of(graph.node(n).op); };
  const auto plain_linear = [&](int n) {
    const auto* linear = std::get_if<LinearOp>(&graph.node(n).op);
    return linear != nullptr && linear->scene < 0 && linear->shared_input ? linear : nullptr;
  };
  const auto folds_into_producer = [&](int n) {
    const int x = graph.node(n).inputs[0];
    const LinearOp* linear = plain_linear(x);
    return linear != nullptr && !linear->norm && linear->activation == identity && !linear->multiply &&
           !linear->residual && consumers[static_cast<size_t>(x)].size() == 1 && !is_output[static_cast<size_t>(x)];
  };
  const std::vector<bool> is_raw = raw_inputs_of(graph);
  const auto folds_into_consumers = [&](int n) {
    if (is_raw[static_cast<size_t>(graph.node(n).inputs[0])]) return false;
    for (int consumer : consumers[static_cast<size_t>(n)]) {
      const LinearOp* linear = plain_linear(consumer);
      if (linear == nullptr || linear->input_norm) return false;
      const std::vector<int>& inputs = graph.node(consumer).inputs;  // as x only, not as something to multiply or add
      for (size_t i = 1; i < inputs.size(); ++i)
        if (inputs[i] == n) return false;
    }
    return !consumers[static_cast<size_t>(n)].empty() && !is_output[static_cast<size_t>(n)];
  };

  Rewriter rewriter(graph);
  std::vector<std::optional<BatchNorm>> pending(graph.nodes.size());  // folded into the readers of the node
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    Node node = rewriter.renewed(n);
    const std::vector<int>& old_inputs = graph.node(n).inputs;
    if (auto* linear = std::get_if<LinearOp>(&node.op)) {
      if (pending[static_cast<size_t>(old_inputs[0])]) linear->input_norm = pending[static_cast<size_t>(old_inputs[0])];
      const std::vector<int>& readers = consumers[static_cast<size_t>(n)];
      if (readers.size() == 1 && norm_of(readers[0]) && folds_into_producer(readers[0])) {
        linear->norm = norm_of(readers[0]);
        node.name = graph.node(readers[0]).name;  // the name of the value, for `tap` and `compare`
        rewriter.replace(readers[0], rewriter.emit(std::move(node)));
        continue;
      }
    } else if (norm_of(n)) {
      if (folds_into_producer(n)) continue;
      if (folds_into_consumers(n)) {
        pending[static_cast<size_t>(n)] = norm_of(n);
        rewriter.replace(n, node.inputs[0]);
        continue;
      }
    }
    rewriter.replace(n, rewriter.emit(std::move(node)));
  }
  return rewriter.finish();
}

}}}  // namespace warprank::v0::plan
