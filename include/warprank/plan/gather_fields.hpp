// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank::plan {

/// What kernels of dots and factorisation machines read fields from at most.
inline constexpr size_t max_field_inputs = 8;

namespace detail {

class FieldGatherer {
 public:
  explicit FieldGatherer(const Graph& graph) : graph_(graph), consumers_(consumers_of(graph)), rewriter_(graph) {}

  Graph run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const Op& op = graph_.node(n).op;
      const bool has_fields = std::holds_alternative<DotOp>(op) || std::holds_alternative<FmOp>(op);
      rewriter_.replace(n, rewriter_.emit(has_fields ? gathered(n) : rewriter_.renewed(n)));
    }
    return rewriter_.finish();
  }

 private:
  /// The node with neighbouring inputs of one axis as one concat: those that nothing else reads, whose producers can
  /// write there; and where too many are left, others as well, which are copied.
  Node gathered(int n) {
    Node node = rewriter_.renewed(n);
    std::vector<int> inputs = graph_.node(n).inputs;
    const auto runs_if = [&](bool any) {
      std::vector<std::vector<int>> runs;
      int last = -1;
      for (const int input : inputs) {
        const bool joins =
            last != -1 && graph_.node(last).axis == graph_.node(input).axis && (any || (is_own(last) && is_own(input)));
        if (!joins) runs.emplace_back();
        runs.back().push_back(rewriter_.replacement(input));
        last = input;
      }
      return runs;
    };
    std::vector<std::vector<int>> runs = runs_if(false);
    if (runs.size() > max_field_inputs) runs = runs_if(true);
    if (runs.size() > max_field_inputs && std::holds_alternative<FmOp>(node.op)) {  // whose fields have no order
      std::stable_sort(inputs.begin(), inputs.end(),
                       [&](int a, int b) { return graph_.node(a).axis < graph_.node(b).axis; });
      runs = runs_if(true);
    }
    node.inputs.clear();
    for (std::vector<int>& run : runs) {
      const int only = run[0];
      node.inputs.push_back(run.size() == 1 ? only : concat(std::move(run), node));
    }
    return node;
  }
  bool is_own(int n) const {
    return consumers_[static_cast<size_t>(n)].size() == 1 && !std::holds_alternative<ConcatOp>(graph_.node(n).op);
  }
  int concat(std::vector<int> parts, const Node& like) {
    Node node;
    node.name = like.name + ".fields";
    node.op = ConcatOp{};
    node.inputs = std::move(parts);
    node.where = like.where;
    return rewriter_.emit(std::move(node));
  }

  const Graph& graph_;
  std::vector<std::vector<int>> consumers_;
  Rewriter rewriter_;
};

}  // namespace detail

/// Puts the fields of dots and factorisation machines side by side, so that kernels read whole rows: producers write
/// into the concat, which costs nothing.
inline Graph gather_fields(const Graph& graph) { return detail::FieldGatherer(graph).run(); }

}  // namespace warprank::plan
