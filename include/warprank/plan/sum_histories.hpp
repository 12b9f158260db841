// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

namespace detail {

class HistorySummer {
 public:
  explicit HistorySummer(const Graph& graph)
      : graph_(graph), consumers_(consumers_of(graph)), is_output_(output_nodes_of(graph)) {}

  Graph run() const {
    Rewriter rewriter(graph_);
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      Node node = rewriter.renewed(n);
      if (is_attention(n) && node.inputs.size() == 2 && can_go(graph_.node(n).inputs[1])) {
        const std::vector<int> parts = rewriter.node(node.inputs[1]).inputs;
        node.inputs = {node.inputs[0], parts[0], parts[1]};
      }
      rewriter.replace(n, rewriter.emit(std::move(node)));
    }
    return rewriter.finish();
  }

 private:
  bool is_attention(int n) const { return std::holds_alternative<DinAttentionOp>(graph_.node(n).op); }

  /// Whether `n` is a sum of two values of its own shape that is needed only as a history without a second part: then
  /// its launch disappears.
  bool can_go(int n) const {
    const Node& sum = graph_.node(n);
    ElementwiseProgram plain;
    plain.num_inputs = 2;
    plain.instructions = {{ElementwiseFunction::add, 0, 1}};
    const auto* op = std::get_if<ElementwiseOp>(&sum.op);
    if (op == nullptr || op->program != plain || is_output_[static_cast<size_t>(n)]) return false;
    const auto is_like_sum = [&](int input) {
      return graph_.node(input).axis == sum.axis && graph_.node(input).width == sum.width;
    };
    const auto takes_a_sum = [&](int reader) {
      const std::vector<int>& inputs = graph_.node(reader).inputs;
      return is_attention(reader) && inputs.size() == 2 && inputs[0] != n && inputs[1] == n;
    };
    const std::vector<int>& readers = consumers_[static_cast<size_t>(n)];
    return std::all_of(sum.inputs.begin(), sum.inputs.end(), is_like_sum) &&
           std::all_of(readers.begin(), readers.end(), takes_a_sum);
  }

  const Graph& graph_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> is_output_;
};

}  // namespace detail

/// A history that is a sum of two values, such as seen items and their ratings, is summed while DIN attention brings it
/// on chip. The sum stays behind, unread; remove_dead drops it.
inline Graph sum_histories(const Graph& graph) { return detail::HistorySummer(graph).run(); }

}}}  // namespace warprank::v0::plan
