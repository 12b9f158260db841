// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// Drops nodes that no output depends on.
inline Graph remove_dead(const Graph& graph) {
  std::vector<bool> live = output_nodes_of(graph);
  for (size_t n = graph.nodes.size(); n-- > 0;)
    if (live[n])
      for (int input : graph.nodes[n].inputs) live[static_cast<size_t>(input)] = true;

  Rewriter rewriter(graph);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
    if (live[static_cast<size_t>(n)]) rewriter.replace(n, rewriter.emit(rewriter.renewed(n)));
  return rewriter.finish();
}

}}}  // namespace warprank::v0::plan
