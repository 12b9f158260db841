// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Attentions: one launch for all of a step.

#include <cstdint>
#include <variant>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/engine/cuda/attention_segments.cuh"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/value_layout.hpp"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/attention.cuh"
#include "warprank/ops/pack_attention_bias.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// An attention of a model.
struct AttentionNode {
  int node = -1;
  AttentionBiasShape bias;
  int64_t bias_at = -1;  ///< in the weights' memory; -1: none
};

/// Refuses times that are kept as FP16, as another op reads them or what lies in the same rows so.
inline AttentionNode make_attention_node(const Graph& graph, int n, const ValueLayout& layout,
                                         const detail::ParameterSource& source, WeightsMemory& memory) {
  const Node& node = graph.node(n);
  const auto& op = std::get<AttentionOp>(node.op);
  AttentionNode made{n, {}, -1};
  if (!op.has_bias()) return made;
  for (const size_t time : {size_t{3}, size_t{4}}) {
    if (op.time_buckets == 0 || layout.place(node.inputs[time]).type == DType::f32) continue;
    const Node& input = graph.node(node.inputs[time]);
    throw invalid_argument("attention '" + node.name + "' on CUDA",
                           "times that are FP32: a dense input that nothing else reads",
                           "'" + input.name + "', which is FP16 for another op");
  }
  made.bias = {op.bias_by_head ? op.heads : 1, op.positions, op.time_buckets, op.time_bucket_width};
  const std::vector<float> by_position = source.load_if(op.positions > 0, op.name + ".position_bias");
  const std::vector<float> by_time = source.load_if(op.time_buckets > 0, op.name + ".time_bias");
  made.bias_at = memory.add(naming(op.name, [&] { return pack_attention_bias(made.bias, by_position, by_time); }));
  return made;
}

/// A value that is FP32.
inline Matrix<const float> floats_of(const Bindings& bindings, int node) {
  const FloatMatrix<void> m = bindings.value(node);
  return {static_cast<const float*>(m.data), m.rows, m.cols, m.stride};
}

inline PreparedStep prepare_attentions(const std::vector<AttentionNode>& nodes, const Bindings& bindings,
                                       StepMemory& memory) {
  std::vector<Attention> attentions;
  for (const AttentionNode& made : nodes) {
    const Node& node = bindings.graph().node(made.node);
    const auto& op = std::get<AttentionOp>(node.op);
    Attention& attention = attentions.emplace_back();
    attention.q = bindings.halves(node.inputs[0]);
    attention.k = bindings.halves(node.inputs[1]);
    attention.v = bindings.halves(node.inputs[2]);
    attention.y = bindings.value(made.node);
    set_segments(attention, attention_segments(bindings.graph(), made.node), bindings);
    attention.heads = op.heads;
    attention.scale = op.scale;
    attention.causal = op.causal;
    attention.weights = op.weights;
    attention.divisor = op.divisor;
    attention.window = op.window;
    attention.full_last = op.full_last;
    if (made.bias_at >= 0) attention.bias = bindings.weights<float>(made.bias_at), attention.bias_shape = made.bias;
    if (made.bias.has_time()) {
      attention.item_times = floats_of(bindings, node.inputs[3]);
      attention.event_times = floats_of(bindings, node.inputs[4]);
    }
    if (const size_t own = op.own_input(); node.inputs.size() > own) {
      attention.own_k = bindings.halves(node.inputs[own]);
      attention.own_v = bindings.halves(node.inputs[own + 1]);
    }
  }
  return prepare_launch("attention", AttentionLaunch(attentions), memory);
}

}}}  // namespace warprank::v0::cuda_backend
