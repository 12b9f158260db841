// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/linear.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

class LinearStep : public Step {
 public:
  LinearStep(const LinearOp& op, int node, host_ops::PackedLinear packed, std::vector<InputRef> inputs)
      : op_(op), node_(node), packed_(std::move(packed)), inputs_(std::move(inputs)) {}

  int64_t workspace(const RunState& state) const override { return packed_.workspace_size(state.rows_of(node_)); }
  void run(RunState& state) const override {
    host_ops::LinearInputs extra;
    size_t next = 1;
    if (op_.row_bias) {
      const InputRef ref = inputs_[next++];
      extra.row_bias = state.value(ref.node);
      extra.row_bias_segments = state.segments_of(ref.pair);
    }
    if (op_.multiply) extra.multiply = state.value(inputs_[next++].node);
    if (op_.residual) extra.residual = state.value(inputs_[next++].node);
    extra.residual_first = op_.residual_first;
    host_ops::linear(packed_, state.value(inputs_[0].node), state.value(node_), extra, state.workspace_span());
  }
  int64_t bytes() const override { return packed_.bytes(); }

 private:
  LinearOp op_;
  int node_;
  host_ops::PackedLinear packed_;
  std::vector<InputRef> inputs_;
};

/// Each row through the group that its scene names; runs of equal scenes are one call.
class SceneLinearStep : public Step {
 public:
  SceneLinearStep(int node, int x, int ids, int ids_axis, int pair, host_ops::PackedLinear packed)
      : node_(node), x_(x), ids_(ids), ids_axis_(ids_axis), pair_(pair), packed_(std::move(packed)) {}

  int64_t workspace(const RunState& state) const override { return packed_.workspace_size(state.rows_of(node_)); }
  void run(RunState& state) const override {
    const Span<const int64_t> scenes = state.ids_of(ids_, ids_axis_);
    const Matrix<const float> x = state.value(x_);
    const Matrix<float> y = state.value(node_);
    LookupCounters& counters = state.counters[static_cast<size_t>(node_)];
    const bool counts = pair_ < 0 || state.part == 0;  // scenes of outer rows are those of all parts
    if (counts) counters.ids += scenes.size();
    for (int64_t s = 0; s < scenes.size();) {
      int64_t end = s + 1;
      while (end < scenes.size() && scenes[end] == scenes[s]) ++end;
      const int64_t first = pair_ < 0 ? s : state.segments_of(pair_).begin(s);
      const int64_t last = pair_ < 0 ? end : state.segments_of(pair_).begin(end);
      if (scenes[s] >= 0 && scenes[s] < packed_.groups()) {
        host_ops::linear(packed_, scenes[s], x.row_range(first, last - first), y.row_range(first, last - first), {},
                         state.workspace_span());
      } else {
        if (counts) counters.out_of_range += end - s;
        for (int64_t r = first; r < last; ++r) std::fill_n(y.row(r), y.cols, 0.0f);
      }
      s = end;
    }
  }
  int64_t bytes() const override { return packed_.bytes(); }

 private:
  int node_, x_, ids_, ids_axis_, pair_;
  host_ops::PackedLinear packed_;
};

inline StepPtr bind_op(const LinearOp& op, int n, Binder& model) {
  const Node& x = model.node(model.node(n).inputs[0]);
  const detail::FoldedLinear folded = model.source.linear(op);
  const detail::OwnedActivation activation = model.source.activation(op.activation, op.name);
  const bool one_matrix = op.scene < 0 && op.shared_input;  // stacked weights on one input are one tall matrix
  const int64_t groups = one_matrix ? 1 : op.groups;
  const int64_t in = op.shared_input ? x.width : x.width / op.groups;
  const int64_t out = op.scene >= 0 ? model.node(n).width : model.node(n).width / groups;
  if (out > host_ops::max_dot_outputs) model.check_weight(op.name + ".weight", folded.weight, model.storage);
  host_ops::PackedLinear packed(folded.weight, folded.bias, in, out, groups, view(activation), model.precision,
                                model.storage);
  if (op.scene >= 0) {
    const int ids_axis = model.graph.ids[static_cast<size_t>(op.scene)].axis;
    model.used_ids[static_cast<size_t>(op.scene)] = true;
    const int pair = ids_axis == x.axis ? -1 : model.pairs.index_of(x.axis, ids_axis);
    return std::make_unique<SceneLinearStep>(n, model.node(n).inputs[0], op.scene, ids_axis, pair, std::move(packed));
  }
  std::vector<InputRef> inputs = model.refs(n);
  if (op.row_bias) inputs[1].pair = model.pairs.index_of(x.axis, model.node(inputs[1].node).axis);
  return std::make_unique<LinearStep>(op, n, std::move(packed), std::move(inputs));
}

}}}  // namespace warprank::v0::host_backend
