// SPDX-License-Identifier: Apache-2.0
#pragma once

/// DIN attentions: one launch for all of a step.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/attention_segments.cuh"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/din_attention.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

struct DinNode {
  int node = -1;
  std::shared_ptr<const DinWeights> network;
  int64_t weights = -1;
};

inline DinNode make_din_node(const Graph& graph, int n, const detail::ParameterSource& source, WeightsMemory& memory) {
  const Node& node = graph.node(n);
  const auto& op = std::get<DinAttentionOp>(node.op);
  const size_t num_layers = op.hidden.size() + 1;
  std::vector<std::vector<float>> weights, biases;
  std::vector<detail::OwnedActivation> activations;
  for (size_t i = 0; i < num_layers; ++i) {
    const std::string layer = op.name + "." + std::to_string(i);
    weights.push_back(source.load(layer + ".weight"));
    biases.push_back(source.load(layer + ".bias"));
    activations.push_back(source.activation(i + 1 < num_layers ? op.activation : identity, layer));
  }
  std::vector<DinLayer> layers;
  for (size_t i = 0; i < num_layers; ++i) {
    const detail::OwnedActivation& a = activations[i];
    layers.push_back({weights[i], biases[i], a.spec, a.alpha, a.scale, a.shift});
  }
  auto network = naming(
      op.name, [&] { return std::make_shared<const DinWeights>(node.width, layers, op.normalization, op.scaled); });
  const int64_t begin = memory.add(network->bytes().data(), network->bytes().size());
  return {n, std::move(network), begin};
}

inline PreparedStep prepare_din(const std::vector<DinNode>& nodes, const Bindings& bindings, StepMemory& memory) {
  std::vector<DinHistory> histories;
  for (const DinNode& made : nodes) {
    const Node& node = bindings.graph().node(made.node);
    const AttentionSegments segments = attention_segments(bindings.graph(), made.node);
    DinHistory& history = histories.emplace_back();
    history.q = bindings.halves(node.inputs[0]);
    history.k = bindings.halves(node.inputs[1]);
    if (node.inputs.size() == 3) history.added = bindings.halves(node.inputs[2]);
    history.y = bindings.value(made.node);
    set_segments(history, segments, bindings);
    history.network = made.network.get();
    history.device_weights = bindings.weights(made.weights);
    history.longest_history = bindings.graph().axis(segments.events.first).keep_last;
  }
  return prepare_launch("din_attention", DinLaunch(histories), memory);
}

}}}  // namespace warprank::v0::cuda_backend
