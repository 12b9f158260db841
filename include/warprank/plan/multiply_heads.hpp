// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

namespace detail {

/// Whether the program is the product of its inputs, two or more, each used once.
inline bool is_product(const ElementwiseProgram& program) {
  const auto num_inputs = static_cast<size_t>(program.num_inputs);
  if (num_inputs < 2 || program.num_vectors > 0 || !program.constants.empty()) return false;
  if (program.instructions.size() != num_inputs - 1) return false;
  std::vector<bool> is_taken(static_cast<size_t>(program.num_registers()), false);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.function != ElementwiseFunction::mul) return false;
    for (const int operand : {instruction.a, instruction.b}) {
      if (is_taken[static_cast<size_t>(operand)]) return false;
      is_taken[static_cast<size_t>(operand)] = true;
    }
  }
  return true;  // so many factors for so many products: none is left over
}

class HeadMultiplier {
 public:
  explicit HeadMultiplier(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) num_groups_ = std::max(num_groups_, node.group + 1);
  }

  Graph run() const {
    const std::vector<int> target = targets();
    std::vector<int> last(static_cast<size_t>(num_groups_), -1);  // node, by group
    for (int n = 0; n < num_nodes(); ++n)
      if (graph_.node(n).group != -1) last[static_cast<size_t>(graph_.node(n).group)] = n;
    Rewriter rewriter(graph_);
    const auto emit = [&](int n, int group) {
      Node node = rewriter.renewed(n);
      node.group = group;
      rewriter.replace(n, rewriter.emit(std::move(node)));
    };
    for (int n = 0; n < num_nodes(); ++n) {
      if (target[static_cast<size_t>(n)] != -1) continue;  // it is there already
      const int group = graph_.node(n).group;
      emit(n, group);
      if (group == -1 || last[static_cast<size_t>(group)] != n) continue;
      for (int product = 0; product < num_nodes(); ++product)
        if (target[static_cast<size_t>(product)] == group) emit(product, group);
    }
    return rewriter.finish();
  }

 private:
  int num_nodes() const { return static_cast<int>(graph_.nodes.size()); }

  /// The launch of chains in which node `n` is a head; -1: none.
  int launch_of_head(int n) const {
    const Node& node = graph_.node(n);
    const auto* op = std::get_if<LinearOp>(&node.op);
    if (op == nullptr || op->scene >= 0 || op->groups != 1 || node.width != 1 || node.group == -1) return -1;
    return graph_.node(node.inputs[0]).group == node.group ? node.group : -1;
  }
  /// The launch whose heads the node multiplies; -1: it does something else.
  int launch_of_product(int n) const {
    const Node& node = graph_.node(n);
    const auto* op = std::get_if<ElementwiseOp>(&node.op);
    if (op == nullptr || !is_product(op->program)) return -1;
    const int launch = launch_of_head(node.inputs[0]);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int input = node.inputs[i];
      const bool is_new = std::find(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(i), input) ==
                          node.inputs.begin() + static_cast<std::ptrdiff_t>(i);
      if (launch_of_head(input) != launch || graph_.node(input).axis != node.axis || !is_new) return -1;
    }
    return launch;
  }

  /// By node: the group that it moves to, or -1. All nodes of a launch move, or none: if one stays, the launch stays,
  /// and nothing is gained.
  std::vector<int> targets() const {
    std::vector<int> target(graph_.nodes.size(), -1);
    std::vector<bool> stays(static_cast<size_t>(num_groups_), false);
    for (int n = 0; n < num_nodes(); ++n) {
      const int group = graph_.node(n).group;
      if (group == -1) continue;
      target[static_cast<size_t>(n)] = launch_of_product(n);
      if (target[static_cast<size_t>(n)] == -1) stays[static_cast<size_t>(group)] = true;
    }
    for (int n = 0; n < num_nodes(); ++n)
      if (const int group = graph_.node(n).group; group != -1 && stays[static_cast<size_t>(group)])
        target[static_cast<size_t>(n)] = -1;
    return target;
  }

  const Graph& graph_;
  int num_groups_ = 0;
};

}  // namespace detail

/// Products of targets (pCTCVR = pCTR x pCVR) join the launch that computes their factors, if these are heads of chains
/// that run side by side: the product of a row is computed with its last factor. So a launch disappears.
inline Graph multiply_heads(const Graph& graph) { return detail::HeadMultiplier(graph).run(); }

}}}  // namespace warprank::v0::plan
