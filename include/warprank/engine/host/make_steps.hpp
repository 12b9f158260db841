// SPDX-License-Identifier: Apache-2.0
#pragma once

/// bind on the host: a plan's nodes become steps with packed weights.

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/host/steps.hpp"
#include "warprank/engine/parameter_source.hpp"

namespace warprank::host_backend {

class StepMaker {
 public:
  StepMaker(const Plan& plan, const Weights& weights, const HostTableStore& tables, const BindOptions& options)
      : graph_(plan.graph()), source_(plan, weights), tables_(tables), options_(options) {}

  /// Steps in order; what they read beyond values is in pairs() and used_ids().
  std::vector<std::unique_ptr<Step>> make(const plan::Storage& storage) {
    used_ids_.assign(graph_.ids.size(), false);
    std::vector<std::unique_ptr<Step>> steps;
    for (const std::vector<int>& launch : storage.steps) {
      if (std::holds_alternative<EmbedOp>(graph_.node(launch[0]).op)) {
        steps.push_back(make_embed(launch));
        steps.back()->nodes = launch;
        continue;
      }
      for (int n : launch) {
        auto step = std::visit([&](const auto& op) { return make_step(n, op); }, graph_.node(n).op);
        if (step == nullptr) continue;
        step->nodes = {n};
        steps.push_back(std::move(step));
      }
    }
    return steps;
  }

  AxisPairs& pairs() { return pairs_; }
  const std::vector<bool>& used_ids() const { return used_ids_; }

 private:
  using StepPtr = std::unique_ptr<Step>;

  const Node& node(int n) const { return graph_.node(n); }

  static host_ops::ChannelActivation view(const detail::OwnedActivation& a) {
    return {a.spec, a.alpha, a.scale, a.shift};
  }

  InputRef ref(int input, int axis) {
    const int input_axis = node(input).axis;
    return {input, input_axis == axis ? -1 : pairs_.index_of(axis, input_axis)};
  }
  std::vector<InputRef> refs(int n) {
    std::vector<InputRef> list;
    for (int input : node(n).inputs) list.push_back(ref(input, node(n).axis));
    return list;
  }

  StepPtr make_embed(const std::vector<int>& launch) {
    std::vector<EmbedStep::Feature> features;
    for (int n : launch) {
      const auto& op = std::get<EmbedOp>(node(n).op);
      const IdsInfo& ids = graph_.ids[static_cast<size_t>(op.ids)];
      used_ids_[static_cast<size_t>(op.ids)] = true;
      const int bags = op.pooling == Pooling::none ? -1 : pairs_.index_of(ids.axis, graph_.axis(ids.axis).parent);
      const int weights = node(n).inputs.empty() ? -1 : node(n).inputs[0];
      features.push_back({n, tables_.find(graph_.tables[static_cast<size_t>(op.table)].name), op.ids, ids.axis, bags,
                          weights, op.pooling, ids.padding});
    }
    return std::make_unique<EmbedStep>(std::move(features), tables_);
  }

  StepPtr make_step(int n, const LinearOp& op) {
    const Node& x = node(node(n).inputs[0]);
    const detail::FoldedLinear folded = source_.linear(op);
    const detail::OwnedActivation activation = source_.activation(op.activation, op.name);
    const bool one_matrix = op.scene < 0 && op.shared_input;  // stacked weights on one input are one tall matrix
    const int64_t groups = one_matrix ? 1 : op.groups;
    const int64_t in = op.shared_input ? x.width : x.width / op.groups;
    const int64_t out = op.scene >= 0 ? node(n).width : node(n).width / groups;
    host_ops::PackedLinear packed(folded.weight, folded.bias, in, out, groups, view(activation));
    if (op.scene >= 0) {
      const int ids_axis = graph_.ids[static_cast<size_t>(op.scene)].axis;
      used_ids_[static_cast<size_t>(op.scene)] = true;
      const int pair = ids_axis == x.axis ? -1 : pairs_.index_of(x.axis, ids_axis);
      return std::make_unique<SceneLinearStep>(n, node(n).inputs[0], op.scene, ids_axis, pair, std::move(packed));
    }
    std::vector<InputRef> inputs = refs(n);
    if (op.row_bias) inputs[1].pair = pairs_.index_of(x.axis, node(inputs[1].node).axis);
    return std::make_unique<LinearStep>(op, n, std::move(packed), std::move(inputs));
  }

  StepPtr make_step(int n, const ElementwiseOp& op) {
    std::vector<std::vector<float>> vectors;
    for (const LearnedVector& v : op.vectors) vectors.push_back(source_.learned_vector(v));
    return std::make_unique<ElementwiseStep>(n, op.program, refs(n), std::move(vectors));
  }

  StepPtr make_step(int n, const ConcatOp&) { return std::make_unique<ConcatStep>(n, refs(n)); }
  StepPtr make_step(int n, const ExpandOp&) {
    std::vector<InputRef> inputs = refs(n);
    inputs[0].pair = pairs_.index_of(node(n).axis, node(inputs[0].node).axis);
    return make_plain_step(
        n, std::move(inputs), [](RunState&, auto in, auto y) { host_ops::expand(in[0].values, in[0].segments, y); },
        no_workspace);
  }
  StepPtr make_step(int n, const FmOp& op) {
    return make_plain_step(
        n, refs(n),
        [op](RunState& state, auto in, auto y) { host_ops::fm(in, op.dim, op.reduce, y, state.workspace_span()); },
        [op](const RunState&) { return host_ops::fm_workspace(op.dim); });
  }
  StepPtr make_step(int n, const DotOp& op) {
    int64_t num_fields = 0;
    for (int input : node(n).inputs) num_fields += node(input).width / op.dim;
    return make_plain_step(
        n, refs(n),
        [op](RunState& state, auto in, auto y) {
          host_ops::dot(in, op.dim, op.order, op.self, y, state.workspace_span());
        },
        [op, num_fields](const RunState&) { return host_ops::dot_workspace(num_fields, op.dim, op.order, op.self); });
  }
  StepPtr make_step(int n, const MixOp& op) {
    const int64_t num_experts = node(node(n).inputs[1]).width;
    return make_plain_step(
        n, refs(n),
        [op](RunState& state, auto in, auto y) {
          host_ops::mix(in[0], in[1], op.normalization, y, state.workspace_span());
        },
        [num_experts](const RunState&) { return host_ops::mix_workspace(num_experts); });
  }
  StepPtr make_step(int n, const LayerNormOp& op) {
    std::vector<float> weight, bias;
    if (op.affine) {
      weight = source_.load(op.name + ".weight");
      bias = source_.load(op.name + ".bias");
    }
    return make_plain_step(
        n, refs(n),
        [eps = op.eps, weight = std::move(weight), bias = std::move(bias)](RunState&, auto in, auto y) {
          host_ops::layer_norm(in[0].values, eps, weight, bias, y);
        },
        no_workspace);
  }
  StepPtr make_step(int n, const SoftmaxOp&) {
    return make_plain_step(
        n, refs(n), [](RunState&, auto in, auto y) { host_ops::softmax(in[0].values, y); }, no_workspace);
  }
  StepPtr make_step(int n, const ReduceOp& op) {
    return make_plain_step(
        n, refs(n), [op](RunState&, auto in, auto y) { host_ops::reduce(in[0].values, op.pooling, y); }, no_workspace);
  }
  StepPtr make_step(int n, const PoolOp& op) {
    const int input = node(n).inputs[0];
    const int pair = pairs_.index_of(node(input).axis, node(n).axis);
    return make_plain_step(
        n, {{input, -1}},
        [op, pair](RunState& state, auto in, auto y) {
          host_ops::segment_reduce(in[0].values, state.segments_of(pair), op.pooling, y);
        },
        no_workspace);
  }
  StepPtr make_step(int n, const CustomOp& op) {
    return make_plain_step(
        n, refs(n),
        [function = options_.custom.at(op.function), settings = op.settings](RunState&, auto in, auto y) {
          function({in, y, settings});
        },
        no_workspace);
  }
  StepPtr make_step(int, const DenseOp&) { return nullptr; }  // unpacked before the first step
  StepPtr make_step(int, const SliceOp&) { return nullptr; }  // a view
  StepPtr make_step(int n, const EmbedOp&) { return make_embed({n}); }

  AttentionPairs attention_pairs(int n) {
    const int query_axis = node(n).axis, event_axis = node(node(n).inputs[1]).axis;
    const int parent = graph_.axis(event_axis).parent;
    return {pairs_.index_of(query_axis, parent), pairs_.index_of(event_axis, parent)};
  }
  StepPtr make_step(int n, const DinAttentionOp& op) {
    const size_t num_layers = op.hidden.size() + 1;
    std::vector<std::vector<float>> weights, biases;
    std::vector<detail::OwnedActivation> activations;
    std::vector<host_ops::DinLayer> layers;
    for (size_t i = 0; i < num_layers; ++i) {
      const std::string layer = op.name + "." + std::to_string(i);
      weights.push_back(source_.load(layer + ".weight"));
      biases.push_back(source_.load(layer + ".bias"));
      activations.push_back(source_.activation(i + 1 < num_layers ? op.activation : identity, layer));
    }
    for (size_t i = 0; i < num_layers; ++i) layers.push_back({weights[i], biases[i], view(activations[i])});
    std::vector<InputRef> parts;  // of the history
    for (size_t i = 1; i < node(n).inputs.size(); ++i) parts.push_back({node(n).inputs[i], -1});
    return std::make_unique<DinStep>(n, node(n).inputs[0], std::move(parts), attention_pairs(n),
                                     host_ops::PackedDin(node(n).width, layers, op.normalization, op.scaled));
  }

  StepPtr make_step(int n, const AttentionOp& op) {
    const int64_t dim = node(n).width / op.heads;
    const float scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<float>(dim));
    const AttentionPairs pairs = attention_pairs(n);
    std::vector<InputRef> inputs;
    for (int input : node(n).inputs) inputs.push_back({input, -1});
    return make_plain_step(
        n, std::move(inputs),
        [pairs, options = host_ops::AttentionOptions{op.heads, scale, op.causal}](RunState& state, auto in, auto y) {
          host_ops::attention(in[0].values, in[1].values, in[2].values, state.segments_of(pairs.queries),
                              state.segments_of(pairs.events), options, y, state.workspace_span());
        },
        [pairs, dim](const RunState& state) {
          return host_ops::attention_workspace(dim, longest_segment(state.segments_of(pairs.events)));
        });
  }

  const Graph& graph_;
  detail::ParameterSource source_;
  const HostTableStore& tables_;
  const BindOptions& options_;
  AxisPairs pairs_;
  std::vector<bool> used_ids_;
};

}  // namespace warprank::host_backend
