// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What ops are bound with: `bind_op(op, n, binder)` makes the step of node n, or none where there is nothing to run.
/// engine/host/op/ has one for each op of the language.

#include <memory>
#include <utility>
#include <vector>

#include "warprank/engine/host/run_state.hpp"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/host/activation.hpp"

namespace warprank::host_backend {

using StepPtr = std::unique_ptr<Step>;

struct Binder {
  Binder(const Plan& plan, const Weights& weights, const HostTableStore& from, const BindOptions& with)
      : graph(plan.graph()), source(plan, weights), tables(from), options(with), used_ids(graph.ids.size()) {}

  const Node& node(int n) const { return graph.node(n); }
  InputRef ref(int input, int axis) {
    const int input_axis = node(input).axis;
    return {input, input_axis == axis ? -1 : pairs.index_of(axis, input_axis)};
  }
  std::vector<InputRef> refs(int n) {
    std::vector<InputRef> list;
    for (int input : node(n).inputs) list.push_back(ref(input, node(n).axis));
    return list;
  }

  const Graph& graph;
  detail::ParameterSource source;
  const HostTableStore& tables;
  const BindOptions& options;
  AxisPairs pairs;             ///< whose segments steps read
  std::vector<bool> used_ids;  ///< by ids input of the graph
};

inline host_ops::ChannelActivation view(const detail::OwnedActivation& a) {
  return {a.spec, a.alpha, a.scale, a.shift};
}

}  // namespace warprank::host_backend
