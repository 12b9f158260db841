// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/field_attention.hpp"
#include "warprank/ops/host/field_attention.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const FieldAttentionOp& op, int n, Binder& model) {
  const auto load = [&](const std::string& which) {
    std::vector<float> weight = model.source.load(op.name + which);
    model.check_weight(op.name + which, weight);
    return weight;
  };
  std::vector<float> projections;
  for (const char* which : {".query.weight", ".key.weight", ".value.weight"}) {
    const std::vector<float> weight = load(which);
    projections.insert(projections.end(), weight.begin(), weight.end());
  }
  host_ops::FieldAttentionLayer layer;
  layer.projections = {projections, {}, op.dim, 3 * op.columns(), 1, {}, model.precision};
  layer.has_residual = op.residual;
  layer.activation = op.activation;
  if (op.residual)
    layer.residual = {load(".residual.weight"), {}, op.dim, op.columns(), 1, {op.activation, {}, {}, {}},
                      model.precision};
  const float scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<float>(op.head_dim));
  layer.attention = {op.heads, scale, false, model.precision, AttentionWeights::softmax, 1};
  const int64_t bytes = layer.projections.bytes() + layer.residual.bytes();
  const int64_t workspace = host_ops::field_attention_workspace(layer, model.node(n).width / op.columns());
  return make_plain_step(
      n, model.refs(n),
      [layer = std::move(layer)](RunState& state, auto in, auto y) {
        host_ops::field_attention(layer, in[0].values, y, state.workspace_span());
      },
      [workspace](const RunState&) { return workspace; }, bytes);
}

}}}  // namespace warprank::v0::host_backend
