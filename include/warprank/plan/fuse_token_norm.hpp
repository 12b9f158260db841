// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/model/op/layer_norm.hpp"
#include "warprank/model/op/mix_tokens.hpp"
#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The most columns of a row that is normed and mixed in one launch: as FP16 they fit the shared memory of every card.
inline constexpr int64_t max_normed_token_columns = 24 << 10;

/// A layer norm of each token that only token mixing reads becomes a part of it.
inline Graph fuse_token_norm(const Graph& graph) {
  const auto consumers = consumers_of(graph);
  const auto is_output = output_nodes_of(graph);
  Rewriter rewriter(graph);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    Node node = rewriter.renewed(n);
    if (auto* mix = std::get_if<MixTokensOp>(&node.op); mix != nullptr && !mix->input_norm) {
      const int x = graph.node(n).inputs[0];
      const Node& before = graph.node(x);
      const auto* norm = std::get_if<LayerNormOp>(&before.op);
      const bool is_only_here = consumers[static_cast<size_t>(x)].size() == 1 && !is_output[static_cast<size_t>(x)];
      const bool is_of_tokens =
          norm != nullptr && norm->groups == mix->tokens && norm->affine && !norm->stacked && before.inputs.size() == 1;
      if (is_of_tokens && is_only_here && node.axis == before.axis && before.width <= max_normed_token_columns) {
        mix->input_norm = {norm->name, norm->eps};
        node.inputs = {rewriter.replacement(before.inputs[0])};
      }
    }
    rewriter.replace(n, rewriter.emit(std::move(node)));
  }
  return rewriter.finish();
}

}}}  // namespace warprank::v0::plan
