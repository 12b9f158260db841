// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of a step, a group of nodes that run in one launch:
///
/// | Nodes of the step | Kernel         |                                                               |
/// |-------------------|----------------|---------------------------------------------------------------|
/// | look-ups          | embedding_bag  | copies the dense inputs, too                                  |
/// | linears           | linear         | with scenes two launches each: one sorts the rows by scene    |
/// | chains of linears | mlp            | of one depth, mixes in front not counted; see fuse_tails.hpp; |
/// |                   |                | and products of their heads (multiply_heads.hpp)              |
/// | row by row        | row_programs   | elementwise, softmax, layer_norm, reduce, expand, and concats |
/// |                   |                | that copy                                                     |
/// | others            | the op's name  |                                                               |
///
/// Every step is one launch, except steps with scenes, and chains of layers of more than 256 outputs for more than 128
/// rows, whose wide layers are launched one by one. Sums that are split into parts are combined within the launch. A
/// model whose first step is no look-up needs one launch more, for its dense inputs.

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The kind of a node by itself. Inputs, slices and concats are `none`: they have no launch, except concats that copy,
/// which may share those of row programs (group_launches.hpp).
inline StepKind step_kind(const Op& op) {
  const auto* linear = std::get_if<LinearOp>(&op);
  if (linear != nullptr && linear->scene >= 0) return StepKind::scene_linear;
  return visit_traits(op, [](const auto&, auto traits) { return traits.step; });
}

/// Which of its kind's kernels computes a node: nodes of different kernels share no launch. Layer norms that are among
/// themselves keep their rows in registers.
inline size_t kernel_variant(const Op& op) {
  const auto* attention = std::get_if<AttentionOp>(&op);
  if (attention != nullptr && attention->has_bias()) return 2;
  const bool is_silu = attention != nullptr && attention->weights == AttentionWeights::silu;
  return is_silu || std::holds_alternative<LayerNormOp>(op) ? 1 : 0;
}

/// The nodes of a step as chains, in which each node reads the one before it. A node that reads no other node of the
/// step, and a product of heads, begin a chain of their own.
inline std::vector<std::vector<int>> chains_of(const Graph& graph, const std::vector<int>& step) {
  std::vector<std::vector<int>> chains;
  for (int n : step) {
    const std::vector<int>& inputs = graph.node(n).inputs;
    const bool may_follow = std::holds_alternative<LinearOp>(graph.node(n).op);
    const auto before = std::find_if(chains.begin(), chains.end(), [&](const std::vector<int>& chain) {
      return may_follow && inputs[0] == chain.back();
    });
    if (before == chains.end()) {
      chains.push_back({n});
    } else {
      before->push_back(n);
    }
  }
  return chains;
}

/// The kernel of a step.
inline std::string kernel_of(const Graph& graph, const std::vector<int>& step) {
  if (chains_of(graph, step)[0].size() > 1) return "mlp";
  const Op& op = graph.node(step[0]).op;
  switch (step_kind(op)) {
    case StepKind::look_up:
      return "embedding_bag";
    case StepKind::none:  // a concat that copies
    case StepKind::rows:
      return "row_programs";
    default:
      return kind_of(op);
  }
}

/// The name of a step: "top/0 and 2 more".
inline std::string name_of(const Graph& graph, const std::vector<int>& step) {
  const std::string& first = graph.node(step[0]).name;
  return step.size() == 1 ? first : first + " and " + std::to_string(step.size() - 1) + " more";
}

/// How many launches a step takes.
inline int64_t launches_of(const Graph& graph, const std::vector<int>& step) {
  return step_kind(graph.node(step[0]).op) == StepKind::scene_linear ? 2 * static_cast<int64_t>(step.size()) : 1;
}

/// How many launches a whole run takes; `steps` are all steps of a plan.
inline int64_t launches_of(const Graph& graph, const std::vector<std::vector<int>>& steps) {
  const bool looks_up = !steps.empty() && step_kind(graph.node(steps[0][0]).op) == StepKind::look_up;
  int64_t launches = !graph.dense.empty() && !looks_up ? 1 : 0;
  for (const std::vector<int>& step : steps) launches += launches_of(graph, step);
  return launches;
}

/// By node: whether its value is in memory after its step, on an engine that keeps the inner values of chains on chip.
/// Inputs and views are in memory.
inline std::vector<bool> in_memory(const Graph& graph, const std::vector<std::vector<int>>& steps) {
  std::vector<bool> in_memory(graph.nodes.size(), true);
  for (const std::vector<int>& step : steps)
    for (const std::vector<int>& chain : chains_of(graph, step))
      for (size_t i = 0; i + 1 < chain.size(); ++i) in_memory[static_cast<size_t>(chain[i])] = false;
  return in_memory;
}

}}}  // namespace warprank::v0::plan
