// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/host/attention_pairs.hpp"
#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/recurrent.hpp"
#include "warprank/ops/host/recurrent.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const RecurrentOp& op, int n, Binder& model) {
  const std::vector<float> weight = model.source.load(op.name + ".weight");
  const std::vector<float> bias = model.source.load(op.name + ".bias");
  model.check_weight(op.name + ".weight", weight);
  const std::vector<int>& inputs = model.node(n).inputs;
  host_ops::RecurrentLayer layer;
  layer.cell = op.cell;
  layer.product = {weight, bias, op.hidden, 3 * op.hidden, 1, {}, model.precision};
  layer.scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<float>(model.node(inputs[0]).width));
  const int event_axis = model.node(inputs[static_cast<size_t>(op.gates())]).axis;
  const int parent = model.graph.axis(event_axis).parent;
  const int events = model.pairs.index_of(event_axis, parent);
  const int rows = op.attends() ? model.pairs.index_of(model.node(n).axis, parent) : events;
  std::vector<InputRef> refs;
  for (const int input : inputs) refs.push_back({input, -1});
  const int64_t of_states = host_ops::recurrent_workspace(layer, 0);
  const int64_t of_event = host_ops::recurrent_workspace(layer, 1) - of_states;
  const int64_t bytes = layer.product.bytes();
  StepPtr step = make_plain_step(
      n, std::move(refs),
      [layer = std::move(layer), events, rows, attends = op.attends()](RunState& state, auto in, auto y) {
        host_ops::RecurrentInputs given;
        given.events = state.segments_of(events);
        given.gates = in[attends ? 2 : 0].values;
        if (attends) given.q = in[0].values, given.k = in[1].values, given.rows = state.segments_of(rows);
        host_ops::recurrent(layer, given, y, state.workspace_span());
      },
      [of_states, of_event, events](const RunState& state) {
        return of_states + of_event * longest_segment(state.segments_of(events));
      },
      bytes);
  if (op.attends()) step->division = Division::rows;  // parts of a GRU's events would cut histories
  return step;
}

}}}  // namespace warprank::v0::host_backend
