// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/model/activation_program.hpp"
#include "warprank/plan/rewrite.hpp"

namespace warprank::plan {

namespace detail {

/// One fusion per node: into the linear before it, or the elementwise programs before it into it.
class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(const Graph& graph)
      : graph_(graph), rewriter_(graph), uses_(graph.nodes.size(), 0), is_output_(output_nodes_of(graph)) {
    for (const Node& node : graph.nodes)
      for (int input : node.inputs) ++uses_[static_cast<size_t>(input)];
  }

  Graph run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      Node node = rewriter_.renewed(n);
      if (!std::holds_alternative<ElementwiseOp>(node.op) || !fuse_into_linear(n, node)) {
        if (std::holds_alternative<ElementwiseOp>(node.op)) pull_in_producers(n, node);
        rewriter_.replace(n, rewriter_.emit(std::move(node)));
      }
    }
    return rewriter_.finish();
  }

 private:
  /// Whether old node `input` is read here and nowhere else, so that it need not exist by itself.
  bool only_read_here(int input) const {
    return uses_[static_cast<size_t>(input)] == 1 && !is_output_[static_cast<size_t>(input)];
  }

  /// linear -> activation becomes the linear's; linear + tensor becomes its residual.
  bool fuse_into_linear(int n, const Node& node) {
    const std::vector<int>& old_inputs = graph_.node(n).inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& producer = rewriter_.node(node.inputs[i]);
      const auto* linear = std::get_if<LinearOp>(&producer.op);
      if (linear == nullptr || !only_read_here(old_inputs[i]) || linear->scene >= 0 || linear->residual ||
          linear->multiply || producer.axis != node.axis || producer.width != node.width)
        continue;
      Node fused = producer;
      auto& op = std::get<LinearOp>(fused.op);
      const auto activation = activation_of(node.op, linear->name);
      if (activation && op.activation == identity) {
        op.activation = *activation;
      } else if (is_plain_sum(node) && rewriter_.node(node.inputs[1 - i]).axis == node.axis &&
                 rewriter_.node(node.inputs[1 - i]).width == node.width) {
        op.residual = true;
        fused.inputs.push_back(node.inputs[1 - i]);
      } else {
        continue;
      }
      fused.name = node.name;
      rewriter_.replace(n, rewriter_.emit(std::move(fused)));
      return true;
    }
    return false;
  }

  static bool is_plain_sum(const Node& node) {
    ElementwiseProgram sum;
    sum.num_inputs = 2;
    sum.instructions = {{ElementwiseFunction::add, 0, 1}};
    return std::get<ElementwiseOp>(node.op).program == sum && node.inputs[0] != node.inputs[1];
  }

  /// Chains become one program. A producer of one column feeding a wider consumer stays outside when it has learned
  /// vectors (they are of one column), one above the consumer's axis always (it runs once per parent row).
  void pull_in_producers(int n, Node& node) {
    std::vector<int> candidates = graph_.node(n).inputs;  // old ids of what may be pulled in
    for (int old_input : candidates) {
      const int input = rewriter_.replacement(old_input);
      const Node& producer = rewriter_.node(input);
      const auto* source = std::get_if<ElementwiseOp>(&producer.op);
      if (source == nullptr || !only_read_here(old_input) || producer.axis != node.axis) continue;
      if (producer.width != node.width && !source->vectors.empty()) continue;
      auto& op = std::get<ElementwiseOp>(node.op);
      if (op.program.num_registers() + source->program.num_registers() > max_elementwise_registers) continue;
      int position = 0;
      while (node.inputs[static_cast<size_t>(position)] != input) ++position;
      InlinedProgram inlined = inline_program(op.program, node.inputs, position, source->program, producer.inputs);
      op.program = std::move(inlined.program);
      op.vectors.insert(op.vectors.end(), source->vectors.begin(), source->vectors.end());
      node.inputs = std::move(inlined.inputs);
    }
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<int> uses_;
  std::vector<bool> is_output_;
};

}  // namespace detail

/// Elementwise work rides along: activations and residuals in the epilogue of the linear before them, chains of the
/// rest as one program that reads its inputs once. What was pulled in stays behind unread; remove_dead drops it.
inline Graph fuse_elementwise(const Graph& graph) { return detail::ElementwiseFuser(graph).run(); }

}  // namespace warprank::plan
