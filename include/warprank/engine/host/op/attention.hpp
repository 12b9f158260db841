// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/engine/host/attention_pairs.hpp"
#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/attention.hpp"
#include "warprank/ops/host/attention.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const AttentionOp& op, int n, Binder& model) {
  const int64_t dim = model.node(n).width / op.heads;
  const float scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<float>(dim));
  const AttentionPairs pairs = attention_pairs(n, model);
  std::vector<InputRef> inputs;
  for (int input : model.node(n).inputs) inputs.push_back({input, -1});
  const host_ops::AttentionOptions options{op.heads,   scale,      op.causal, model.precision,
                                           op.weights, op.divisor, op.window, op.full_last};
  StepPtr step = make_plain_step(
      n, std::move(inputs),
      [pairs, options, dim](RunState& state, auto in, auto y) {
        const int64_t head = state.share.begin(options.heads), heads = state.share.end(options.heads) - head;
        if (heads == 0) return;
        const auto ours = [&](auto matrix) { return matrix.columns(head * dim, heads * dim); };
        const auto own =
            in.size() > 3 ? host_ops::OwnKeys{ours(in[3].values), ours(in[4].values)} : host_ops::OwnKeys{};
        host_ops::AttentionOptions of_heads = options;
        of_heads.heads = heads;
        host_ops::attention(ours(in[0].values), ours(in[1].values), ours(in[2].values),
                            state.segments_of(pairs.queries), state.segments_of(pairs.events), of_heads, ours(y),
                            state.workspace_span(), own);
      },
      [pairs, dim, precision = model.precision](const RunState& state) {
        return host_ops::attention_workspace(dim, longest_segment(state.segments_of(pairs.events)), precision);
      });
  // Events that attend to one another are divided by heads.
  step->division = model.node(n).axis == model.node(model.node(n).inputs[1]).axis ? Division::shares : Division::rows;
  return step;
}

}}}  // namespace warprank::v0::host_backend
