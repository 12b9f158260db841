// SPDX-License-Identifier: Apache-2.0
#pragma once

/// bind on the host: a plan's nodes become steps with packed weights.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/op/attention.hpp"
#include "warprank/engine/host/op/concat.hpp"
#include "warprank/engine/host/op/custom.hpp"
#include "warprank/engine/host/op/dense.hpp"
#include "warprank/engine/host/op/din_attention.hpp"
#include "warprank/engine/host/op/dot.hpp"
#include "warprank/engine/host/op/elementwise.hpp"
#include "warprank/engine/host/op/embed.hpp"
#include "warprank/engine/host/op/expand.hpp"
#include "warprank/engine/host/op/field_attention.hpp"
#include "warprank/engine/host/op/field_linear.hpp"
#include "warprank/engine/host/op/fm.hpp"
#include "warprank/engine/host/op/layer_norm.hpp"
#include "warprank/engine/host/op/linear.hpp"
#include "warprank/engine/host/op/mix.hpp"
#include "warprank/engine/host/op/mix_tokens.hpp"
#include "warprank/engine/host/op/pool.hpp"
#include "warprank/engine/host/op/recurrent.hpp"
#include "warprank/engine/host/op/reduce.hpp"
#include "warprank/engine/host/op/slice.hpp"
#include "warprank/engine/host/op/softmax.hpp"
#include "warprank/plan/cost.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// What threads need to know to divide a step: ops whose rows do not depend on one another say so in their traits,
/// others in bind_op.
inline void describe_work(Step& step, const std::vector<int64_t>& rows, const Binder& model) {
  step.row_seconds.assign(step.nodes.size(), 0);
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    const Node& node = model.node(step.nodes[i]);
    constexpr double flops_per_second = 4e10, bytes_per_second = 4e9;  // of values of 16 bits, which have 32 here
    const Cost cost = plan::cost_of(model.graph, node, rows);
    const int64_t count = std::max<int64_t>(rows[static_cast<size_t>(node.axis)], 1);
    step.row_seconds[i] = (cost.flops / flops_per_second + cost.bytes / bytes_per_second) / static_cast<double>(count);
  }
  const bool is_by_rows = visit_traits(model.node(step.nodes[0]).op, [](const auto&, auto traits) {
    return decltype(traits)::across == Across::row_by_row;
  });
  if (is_by_rows) step.division = Division::rows;
}

/// Steps in order; what they read beyond values is left in `model`.
inline std::vector<StepPtr> make_steps(const plan::Storage& storage, Binder& model) {
  const std::vector<int64_t> rows = plan::rows_at(model.graph, {});
  std::vector<StepPtr> steps;
  for (const std::vector<int>& launch : storage.steps) {
    if (std::holds_alternative<EmbedOp>(model.node(launch[0]).op)) {
      steps.push_back(bind_look_ups(launch, model));
      steps.back()->nodes = launch;
      describe_work(*steps.back(), rows, model);
      continue;
    }
    for (int n : launch) {
      StepPtr step = std::visit([&](const auto& op) { return bind_op(op, n, model); }, model.node(n).op);
      if (step == nullptr) continue;
      step->nodes = {n};
      describe_work(*step, rows, model);
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

}}}  // namespace warprank::v0::host_backend
