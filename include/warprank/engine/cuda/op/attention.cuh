// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Attentions: one launch for all of a step.

#include <variant>
#include <vector>

#include "warprank/engine/cuda/attention_segments.cuh"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/ops/attention.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline PreparedStep prepare_attentions(const std::vector<int>& nodes, const Bindings& bindings, StepMemory& memory) {
  std::vector<Attention> attentions;
  for (const int n : nodes) {
    const Node& node = bindings.graph().node(n);
    const auto& op = std::get<AttentionOp>(node.op);
    Attention& attention = attentions.emplace_back();
    attention.q = bindings.halves(node.inputs[0]);
    attention.k = bindings.halves(node.inputs[1]);
    attention.v = bindings.halves(node.inputs[2]);
    attention.y = bindings.value(n);
    set_segments(attention, attention_segments(bindings.graph(), n), bindings);
    attention.heads = op.heads;
    attention.scale = op.scale;
    attention.causal = op.causal;
    attention.weights = op.weights;
    attention.divisor = op.divisor;
    attention.window = op.window;
    attention.full_last = op.full_last;
    if (node.inputs.size() > 3) {
      attention.own_k = bindings.halves(node.inputs[3]);
      attention.own_v = bindings.halves(node.inputs[4]);
    }
  }
  return prepare_launch("attention", AttentionLaunch(attentions), memory);
}

}}}  // namespace warprank::v0::cuda_backend
