// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Attentions, and pooling of nested axes: launches over segments.

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/attention.cuh"
#include "warprank/ops/detail/segments.cuh"
#include "warprank/ops/din_attention.cuh"
#include "warprank/ops/segment_reduce.cuh"

namespace warprank::cuda_backend {

/// Rows of the queries and of the events of an attention, by the parent that they share.
struct AttentionSegments {
  AxisPair queries, events;
};
inline AttentionSegments attention_segments(const Graph& graph, int n) {
  const Node& node = graph.node(n);
  const int event_axis = graph.node(node.inputs[1]).axis, parent = graph.axis(event_axis).parent;
  return {{node.axis, parent}, {event_axis, parent}};
}

/// A launch that is queued with nothing but its descriptors.
template <class Launch>
PreparedStep prepare_described(const char* kernel, std::shared_ptr<const Launch> launch, StepMemory& memory) {
  PreparedStep step;
  step.kernel = kernel;
  step.queue = [launch, descriptors = memory.copied(launch->descriptors())](device::Stream to) {
    launch->run(descriptors, to);
  };
  return step;
}

/// A launch whose descriptions travel with it.
template <class Launch>
PreparedStep prepare_undescribed(const char* kernel, std::shared_ptr<const Launch> launch) {
  PreparedStep step;
  step.kernel = kernel;
  step.num_launches = launch->num_launches();
  step.queue = [launch](device::Stream to) { launch->run(to); };
  return step;
}

/// What DinHistory and Attention have in common.
template <class Attention>
void set_segments(Attention& to, const AttentionSegments& segments, const Bindings& bindings) {
  const int parent = segments.events.second;
  to.item_offsets = bindings.offsets(segments.queries);
  to.history_offsets = bindings.offsets(segments.events);
  to.max_parents = bindings.max_rows(parent);
  to.num_parents = bindings.num_rows(parent);
}

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
  const auto launch = std::make_shared<const DinLaunch>(histories);
  PreparedStep step = prepare_described("din_attention", launch, memory);
  step.num_launches = static_cast<int>(launch->num_launches());
  return step;
}

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
  }
  return prepare_described("attention", std::make_shared<const AttentionLaunch>(attentions), memory);
}

inline PreparedStep prepare_pools(const std::vector<int>& nodes, const Bindings& bindings) {
  std::vector<SegmentReduction> reductions;
  for (const int n : nodes) {
    const Node& node = bindings.graph().node(n);
    SegmentReduction& reduction = reductions.emplace_back();
    reduction.x = bindings.input(node.inputs[0]);
    reduction.offsets = bindings.offsets({bindings.graph().node(node.inputs[0]).axis, node.axis});
    reduction.num_segments = bindings.num_rows(node.axis);
    reduction.pooling = std::get<PoolOp>(node.op).pooling;
    reduction.y = bindings.value(n);
  }
  return prepare_undescribed("segment_reduce", std::make_shared<const SegmentReduceLaunch>(reductions));
}

/// Offsets of pairs that a batch's index does not have.
inline PreparedStep prepare_segments(const std::vector<AxisPair>& pairs, const Bindings& bindings) {
  std::vector<int> parents;
  for (const AxisInfo& axis : bindings.graph().axes) parents.push_back(axis.parent);
  std::vector<detail::SegmentsOfAxis> wanted;
  for (const AxisPair& pair : pairs)
    if (pair.first != pair.second)
      wanted.push_back({pair.first, pair.second, bindings.max_rows(pair.second), bindings.segments(pair)});
  return prepare_undescribed("segments",
                             std::make_shared<const detail::SegmentsLaunch>(bindings.requests(), parents, wanted));
}

}  // namespace warprank::cuda_backend
