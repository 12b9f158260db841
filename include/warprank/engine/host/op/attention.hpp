// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
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
  std::shared_ptr<const host_ops::AttentionBiasTables> tables;
  if (op.has_bias())
    tables = std::make_shared<const host_ops::AttentionBiasTables>(
        model.source.load_if(op.positions > 0, op.name + ".position_bias"),
        model.source.load_if(op.time_buckets > 0, op.name + ".time_bias"), op.bias_by_head ? op.heads : 1,
        op.time_bucket_width);
  std::vector<InputRef> inputs;
  for (int input : model.node(n).inputs) inputs.push_back({input, -1});
  const host_ops::AttentionOptions options{op.heads,   scale,      op.causal, model.precision,
                                           op.weights, op.divisor, op.window, op.full_last};
  StepPtr step = make_plain_step(
      n, std::move(inputs),
      [pairs, options, dim, tables, first_own = static_cast<int64_t>(op.own_input())](RunState& state, auto in,
                                                                                      auto y) {
        const int64_t head = state.share.begin(options.heads), heads = state.share.end(options.heads) - head;
        if (heads == 0) return;
        const auto ours = [&](auto matrix) { return matrix.columns(head * dim, heads * dim); };
        const auto own = in.size() > first_own
                             ? host_ops::OwnKeys{ours(in[first_own].values), ours(in[first_own + 1].values)}
                             : host_ops::OwnKeys{};
        host_ops::AttentionBias bias{tables.get(), head};
        if (first_own > 3) bias.query_times = in[3].values, bias.key_times = in[4].values;
        host_ops::AttentionOptions of_heads = options;
        of_heads.heads = heads;
        host_ops::attention(ours(in[0].values), ours(in[1].values), ours(in[2].values),
                            state.segments_of(pairs.queries), state.segments_of(pairs.events), of_heads, ours(y),
                            state.workspace_span(), own, bias);
      },
      [pairs, dim, precision = model.precision](const RunState& state) {
        return host_ops::attention_workspace(dim, longest_segment(state.segments_of(pairs.events)), precision);
      },
      tables == nullptr ? 0 : tables->bytes());
  // Events that attend to one another are divided by heads.
  step->division = model.node(n).axis == model.node(model.node(n).inputs[1]).axis ? Division::shares : Division::rows;
  return step;
}

}}}  // namespace warprank::v0::host_backend
