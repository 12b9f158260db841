// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of Plan: the checks, and the passes in their order.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/model/parameters.hpp"
#include "warprank/model/validate.hpp"
#include "warprank/plan/cost.hpp"
#include "warprank/plan/describe.hpp"
#include "warprank/plan/fold_batch_norm.hpp"
#include "warprank/plan/fuse_elementwise.hpp"
#include "warprank/plan/fuse_epilogue.hpp"
#include "warprank/plan/fuse_tails.hpp"
#include "warprank/plan/fuse_token_norm.hpp"
#include "warprank/plan/gather_fields.hpp"
#include "warprank/plan/group_launches.hpp"
#include "warprank/plan/late_broadcast.hpp"
#include "warprank/plan/learn_rows.hpp"
#include "warprank/plan/merge_common.hpp"
#include "warprank/plan/multiply_heads.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/plan/remove_dead.hpp"
#include "warprank/plan/storage.hpp"
#include "warprank/plan/sum_histories.hpp"
#include "warprank/plan/sums_as_linears.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE Plan::Plan(Graph source, CompileOptions options) {
  Problems problems;
  validate(source, problems);
  problems.throw_if_any();
  if (options.capacities.empty()) problems.add("capacities", "one or more", "none");
  for (const Capacity& capacity : options.capacities) plan::validate(capacity, source, problems);
  problems.throw_if_any();
  std::vector<Parameter> parameters = parameters_of(source, problems);
  problems.throw_if_any();

  if (!options.recorded.empty()) plan::learn_rows(source, options.recorded, options.capacities);
  options.recorded.clear();
  std::vector<std::string> warnings = plan::guesses(source, options.capacities);
  BatchLayout layout(source);
  auto impl = std::make_shared<Impl>(Impl{std::move(source),
                                          {},
                                          {},
                                          std::move(options),
                                          {},
                                          std::move(parameters),
                                          std::move(layout),
                                          std::move(warnings)});
  run_passes(*impl);
  impl_ = std::move(impl);
}

WARPRANK_HOST_INLINE void Plan::run_passes(Impl& impl) {
  const Passes& passes = impl.options.passes;
  const std::vector<int64_t> rows = plan::rows_at(impl.source, impl.options.capacities[0]);
  const auto measure = [&](const Graph& graph, int64_t& num_steps, plan::Cost& cost) {
    const plan::Storage storage = plan::plan_storage(graph, true, true);
    num_steps = static_cast<int64_t>(storage.steps.size());
    cost = plan::cost_of_inputs(graph, rows);
    for (const std::vector<int>& step : storage.steps) cost += plan::cost_of(graph, step, rows);
  };
  Graph graph = impl.source;
  const auto run = [&](const char* name, bool enabled, const std::function<Graph(const Graph&)>& pass) {
    if (!enabled) return;
    PassReport report{name, 0, 0, {}, {}};
    measure(graph, report.steps_before, report.cost_before);
    graph = pass(graph);
    if (passes.remove_dead) graph = plan::remove_dead(graph);
    measure(graph, report.steps_after, report.cost_after);
    impl.reports.push_back(std::move(report));
  };
  run("remove_dead", passes.remove_dead, [](const Graph& g) { return g; });
  run("merge_common", passes.merge_common, plan::merge_common);
  run("fold_batch_norm", passes.fold_batch_norm, plan::fold_batch_norm);
  run("sums_as_linears", passes.sums_as_linears, plan::sums_as_linears);
  run("late_broadcast", passes.late_broadcast, [&](const Graph& g) {
    const Graph split = plan::late_broadcast(g);
    return passes.merge_common ? plan::merge_common(split) : split;  // several linears split one concat alike
  });
  run("gather_fields", true, plan::gather_fields);  // kernels rely on it
  run("fuse_epilogue", passes.fuse_epilogue, plan::fuse_epilogue);
  run("fuse_elementwise", passes.fuse_elementwise, plan::fuse_elementwise);
  run("fuse_token_norm", passes.fuse_token_norm, plan::fuse_token_norm);
  run("sum_histories", passes.sum_histories, plan::sum_histories);
  run("fuse_tails", passes.fuse_tails, plan::fuse_tails);
  run("group_launches", passes.group_launches, plan::group_launches);
  run("multiply_heads", passes.multiply_heads, plan::multiply_heads);
  impl.graph = std::move(graph);
  impl.storage = plan::plan_storage(impl.graph, passes.place_concats, passes.reuse_memory);
}

}}  // namespace warprank::v0
