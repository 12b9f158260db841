// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// Computes equal nodes once: the same operation on the same inputs, most often one feature that several parts of a
/// model look up in one table. (A custom function is assumed to depend on its inputs alone.)
inline Graph merge_common(const Graph& graph) {
  Rewriter rewriter(graph);
  std::map<std::tuple<size_t, std::vector<int>, int, int64_t>, std::vector<int>> seen;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    Node node = rewriter.renewed(n);
    std::vector<int>& candidates = seen[{node.op.index(), node.inputs, node.axis, node.width}];
    int same = -1;
    for (int candidate : candidates)
      if (rewriter.node(candidate).op == node.op) same = candidate;
    if (same == -1) candidates.push_back(same = rewriter.emit(std::move(node)));
    rewriter.replace(n, same);
  }
  return rewriter.finish();
}

}}}  // namespace warprank::v0::plan
