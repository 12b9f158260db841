// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/model/activation_program.hpp"
#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

namespace detail {

/// One fusion per node: an op after a linear becomes part of the linear, and one after a mix part of the mix.
class EpilogueFuser {
 public:
  explicit EpilogueFuser(const Graph& graph)
      : graph_(graph), rewriter_(graph), consumers_(consumers_of(graph)), is_output_(output_nodes_of(graph)) {}

  Graph run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      Node node = rewriter_.renewed(n);
      if (std::holds_alternative<ElementwiseOp>(node.op) && !fuse_activation(n, node) && !fuse_sum(n, node))
        fuse_into_mix(n, node);
      rewriter_.replace(n, emit(std::move(node)));
    }
    return rewriter_.finish();
  }

 private:
  int depth(int new_node) const { return depth_[static_cast<size_t>(new_node)]; }
  int emit(Node node) {
    const int made = rewriter_.emit(std::move(node));
    depth_.push_back(0);
    for (int input : rewriter_.node(made).inputs) depth_.back() = std::max(depth_.back(), depth(input) + 1);
    return made;
  }

  /// Whether one node reads old node `input` and no one else does, so that it need not exist by itself.
  bool read_once(int input) const {
    return consumers_[static_cast<size_t>(input)].size() == 1 && !is_output_[static_cast<size_t>(input)];
  }

  /// The linear that old node `input` has become, if it is read once; else null.
  const Node* linear_read_here(int input) const {
    const Node& made = rewriter_.node(rewriter_.replacement(input));
    const auto* linear = std::get_if<LinearOp>(&made.op);
    return linear != nullptr && linear->scene < 0 && !linear->multiply && read_once(input) ? &made : nullptr;
  }

  /// linear -> activation: the activation becomes the linear's. A residual that was added before it is still added
  /// before it.
  bool fuse_activation(int n, Node& node) {
    const Node* producer = linear_read_here(graph_.node(n).inputs[0]);
    if (producer == nullptr || node.inputs.size() != 1) return false;
    LinearOp linear = std::get<LinearOp>(producer->op);
    const auto activation = activation_of(node.op, linear.name);
    if (!activation || linear.activation != identity) return false;
    linear.activation = *activation;
    linear.residual_first = linear.residual;
    node.op = std::move(linear);
    node.inputs = producer->inputs;
    return true;
  }

  /// linear + tensor: the tensor becomes the linear's residual, or its row bias if the tensor is on an ancestor's axis.
  /// Of two linears the later one takes the other, which may then run beside earlier ops.
  bool fuse_sum(int n, Node& node) {
    if (!is_plain(ElementwiseFunction::add, node)) return false;
    const size_t later = depth(node.inputs[1]) > depth(node.inputs[0]) ? 1 : 0;
    return add_to_linear(n, later, node) || add_to_linear(n, 1 - later, node);
  }

  /// Whether a node is f of two tensors.
  static bool is_plain(ElementwiseFunction f, const Node& node) {
    ElementwiseProgram program;
    program.num_inputs = 2;
    program.instructions = {{f, 0, 1}};
    return std::get<ElementwiseOp>(node.op).program == program && node.inputs[0] != node.inputs[1];
  }

  /// mix * tensor, and mix + tensor: the tensor becomes the mix's factor or residual, if it has the mix's shape.
  void fuse_into_mix(int n, Node& node) {
    const bool is_sum = is_plain(ElementwiseFunction::add, node);
    if (!is_sum && !is_plain(ElementwiseFunction::mul, node)) return;
    for (size_t which = 0; which < 2; ++which) {
      const int old_mix = graph_.node(n).inputs[which];
      const Node &mix = rewriter_.node(node.inputs[which]), &other = rewriter_.node(node.inputs[1 - which]);
      const auto* op = std::get_if<MixOp>(&mix.op);
      if (op == nullptr || !read_once(old_mix) || op->residual || (!is_sum && op->multiply)) continue;
      if (mix.axis != node.axis || other.axis != node.axis || mix.width != node.width || other.width != node.width)
        continue;
      MixOp fused = *op;
      (is_sum ? fused.residual : fused.multiply) = true;
      std::vector<int> inputs = mix.inputs;
      inputs.push_back(node.inputs[1 - which]);
      node.op = fused;
      node.inputs = std::move(inputs);
      return;
    }
  }

  bool add_to_linear(int n, size_t which, Node& node) {
    const Node* producer = linear_read_here(graph_.node(n).inputs[which]);
    if (producer == nullptr || producer->axis != node.axis || producer->width != node.width) return false;
    LinearOp linear = std::get<LinearOp>(producer->op);
    const int other = node.inputs[1 - which];
    const bool is_row_wise = rewriter_.node(other).axis == node.axis;
    if (linear.residual || rewriter_.node(other).width != node.width) return false;
    std::vector<int> inputs = producer->inputs;
    // Wide layers start their sums from a row bias and so would round it as often as they have inputs; heads add it
    // behind the sum.
    const bool takes_row_bias = node.width == 1 && linear.activation == identity && !linear.row_bias;
    if (is_row_wise) {
      inputs.push_back(takes_row_bias ? without_row_bias(graph_.node(n).inputs[1 - which], linear, inputs) : other);
      linear.residual = true;
    } else if (takes_row_bias) {
      inputs.insert(inputs.begin() + 1, other);
      linear.row_bias = true;
    } else {
      return false;
    }
    node.op = std::move(linear);
    node.inputs = std::move(inputs);
    return true;
  }

  /// The node that `linear` gets as residual. If this node is a linear with a row bias, the row bias becomes
  /// `linear`'s, so that the residual need not wait for it.
  int without_row_bias(int old_residual, LinearOp& linear, std::vector<int>& inputs) {
    const int residual = rewriter_.replacement(old_residual);
    const Node* producer = linear_read_here(old_residual);
    if (producer == nullptr) return residual;
    Node own = *producer;
    auto& op = std::get<LinearOp>(own.op);
    if (!op.row_bias || op.residual || op.activation != identity) return residual;
    inputs.insert(inputs.begin() + 1, own.inputs[1]);
    linear.row_bias = true;
    op.row_bias = false;
    own.inputs.erase(own.inputs.begin() + 1);
    own.name += "." + rewriter_.graph().axis(own.axis).name;  // its value is the share of this axis now
    return emit(std::move(own));
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> is_output_;
  std::vector<int> depth_;  // by new node: the longest way to it
};

}  // namespace detail

/// Ops that follow a linear move into its epilogue: activations, sums with another tensor (residuals), and both, as in
/// sigmoid(deep + wide); products and then sums that follow a mix of experts move into the mix, as in DCN-Mix. Fused
/// nodes stay behind, unread; remove_dead drops them.
inline Graph fuse_epilogue(const Graph& graph) { return detail::EpilogueFuser(graph).run(); }

}}}  // namespace warprank::v0::plan
