// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank::plan {

/// Horizontal fusion: nodes of one kind that do not depend on one another share a group and so a launch. All look-ups
/// that need no computed weights are one group; linears, attentions and elementwise programs are grouped by their depth
/// (experts, gates and towers side by side; the user's shares of all split linears).
inline Graph group_launches(const Graph& graph) {
  std::vector<int> depth(graph.nodes.size(), 0);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (int input : graph.nodes[n].inputs) depth[n] = std::max(depth[n], depth[static_cast<size_t>(input)] + 1);

  const auto kind_to_group = [&](int n) {
    const Op& op = graph.node(n).op;
    if (std::holds_alternative<EmbedOp>(op)) return 1;
    if (std::holds_alternative<LinearOp>(op)) return 2;
    if (std::holds_alternative<DinAttentionOp>(op)) return 3;
    if (std::holds_alternative<AttentionOp>(op)) return 4;
    if (std::holds_alternative<ElementwiseOp>(op)) return 5;
    if (std::holds_alternative<MixOp>(op)) return 6;
    return 0;
  };

  std::vector<int> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::make_pair(depth[static_cast<size_t>(a)], kind_to_group(a)) <
           std::make_pair(depth[static_cast<size_t>(b)], kind_to_group(b));
  });

  std::map<std::pair<int, int>, int> group_of;  // (depth, kind) -> group
  Rewriter rewriter(graph);
  for (int n : order) {
    Node node = rewriter.renewed(n);
    const int kind = kind_to_group(n);
    node.group = kind == 0
                     ? -1
                     : group_of.try_emplace({depth[static_cast<size_t>(n)], kind}, static_cast<int>(group_of.size()))
                           .first->second;
    rewriter.replace(n, rewriter.emit(std::move(node)));
  }
  return rewriter.finish();
}

}  // namespace warprank::plan
