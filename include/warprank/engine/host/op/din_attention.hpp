// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/host/attention_pairs.hpp"
#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/din_attention.hpp"
#include "warprank/ops/host/din_attention.hpp"
#include "warprank/ops/host/elementwise.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

class DinStep : public Step {
 public:
  /// `k`: the parts of the history, one or two, which are added.
  DinStep(int node, int q, std::vector<InputRef> k, AttentionPairs pairs, host_ops::PackedDin packed)
      : node_(node), q_(q), k_(std::move(k)), pairs_(pairs), packed_(std::move(packed)) {
    sum_.num_inputs = 2;
    sum_.instructions = {{ElementwiseFunction::add, 0, 1}};
  }
  int64_t workspace(const RunState& state) const override {
    return sum_size(state) + std::max(packed_.workspace_size(longest_segment(state.segments_of(pairs_.events))),
                                      host_ops::elementwise_workspace(sum_));
  }
  void run(RunState& state) const override {
    const Span<float> all = state.workspace_span(), rest = all.subspan(sum_size(state), all.size() - sum_size(state));
    Matrix<const float> k = state.value(k_[0].node);
    if (k_.size() == 2) {
      const Matrix<float> sum(all.data(), k.rows, k.cols);
      host_ops::elementwise(sum_, state.inputs(k_), {}, sum, rest);
      k = sum;
    }
    host_ops::din_attention(packed_, state.value(q_), k, state.segments_of(pairs_.queries),
                            state.segments_of(pairs_.events), state.value(node_), rest);
  }
  int64_t bytes() const override { return packed_.bytes(); }

 private:
  int64_t sum_size(const RunState& state) const {
    if (k_.size() == 1) return 0;
    const int k = k_[0].node;
    return (state.rows_of(k) * state.graph().node(k).width + 15) / 16 * 16;  // what is behind it stays aligned
  }

  int node_, q_;
  std::vector<InputRef> k_;
  ElementwiseProgram sum_;
  AttentionPairs pairs_;
  host_ops::PackedDin packed_;
};

inline StepPtr bind_op(const DinAttentionOp& op, int n, Binder& model) {
  const size_t num_layers = op.hidden.size() + 1;
  std::vector<std::vector<float>> weights, biases;
  std::vector<detail::OwnedActivation> activations;
  std::vector<host_ops::DinLayer> layers;
  for (size_t i = 0; i < num_layers; ++i) {
    const std::string layer = op.name + "." + std::to_string(i);
    weights.push_back(model.source.load(layer + ".weight"));
    model.check_weight(layer + ".weight", weights.back());
    biases.push_back(model.source.load(layer + ".bias"));
    activations.push_back(model.source.activation(i + 1 < num_layers ? op.activation : identity, layer));
  }
  for (size_t i = 0; i < num_layers; ++i) layers.push_back({weights[i], biases[i], view(activations[i])});
  std::vector<InputRef> parts;  // of the history
  for (size_t i = 1; i < model.node(n).inputs.size(); ++i) parts.push_back({model.node(n).inputs[i], -1});
  auto step = std::make_unique<DinStep>(
      n, model.node(n).inputs[0], std::move(parts), attention_pairs(n, model),
      host_ops::PackedDin(model.node(n).width, layers, op.normalization, op.scaled, model.precision));
  if (model.node(n).axis != model.node(model.node(n).inputs[1]).axis) step->division = Division::rows;
  return step;
}

}}}  // namespace warprank::v0::host_backend
