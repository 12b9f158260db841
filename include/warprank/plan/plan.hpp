// SPDX-License-Identifier: Apache-2.0
#pragma once

/// compile: Graph -> Plan. A Plan says what is computed in which order and where values lie; it has no weights and no
/// device, is immutable, and cheap to copy.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/model/builder.hpp"
#include "warprank/model/parameters.hpp"
#include "warprank/model/validate.hpp"
#include "warprank/plan/cost.hpp"
#include "warprank/plan/fold_batch_norm.hpp"
#include "warprank/plan/fuse_elementwise.hpp"
#include "warprank/plan/fuse_epilogue.hpp"
#include "warprank/plan/fuse_tails.hpp"
#include "warprank/plan/gather_fields.hpp"
#include "warprank/plan/group_launches.hpp"
#include "warprank/plan/late_broadcast.hpp"
#include "warprank/plan/merge_common.hpp"
#include "warprank/plan/remove_dead.hpp"
#include "warprank/plan/storage.hpp"
#include "warprank/plan/sums_as_linears.hpp"

namespace warprank {

using plan::Capacity;

/// A switch for each pass. All of them leave every score the same within the rounding bound.
struct Passes {
  bool remove_dead = true;
  bool merge_common = true;
  bool fold_batch_norm = true;
  bool sums_as_linears = true;
  bool late_broadcast = true;
  bool fuse_epilogue = true;
  bool fuse_elementwise = true;
  bool fuse_tails = true;
  bool group_launches = true;
  bool place_concats = true;  ///< producers write into the concat that reads them
  bool reuse_memory = true;   ///< values whose lives do not overlap share memory

  static constexpr Passes none() {
    return {false, false, false, false, false, false, false, false, false, false, false};
  }
};

struct CompileOptions {
  std::vector<Capacity> capacities = {{}};  ///< what contexts reserve memory for; the first is what `describe` shows
  Passes passes = {};
};

/// What a pass changed, at the first capacity.
struct PassReport {
  std::string name;
  int64_t steps_before = 0, steps_after = 0;
  plan::Cost cost_before, cost_after;
};

class Plan {
 public:
  /// Compiles a graph; throws invalid_argument with everything that is wrong with it.
  explicit Plan(Graph source, CompileOptions options = {});

  const Graph& source() const { return impl_->source; }  ///< as the user wrote it
  const Graph& graph() const { return impl_->graph; }    ///< as it is executed
  const plan::Storage& storage() const { return impl_->storage; }
  const CompileOptions& options() const { return impl_->options; }
  const std::vector<PassReport>& reports() const { return impl_->reports; }
  const std::vector<Parameter>& parameters() const { return impl_->parameters; }  ///< learned tensors, tables apart
  const BatchLayout& layout() const { return impl_->layout; }

  /// Inputs and axes by name; resolve once, pack often.
  IdsSlot ids(const std::string& name) const { return layout().ids(name); }
  DenseSlot dense(const std::string& name) const { return layout().dense(name); }
  AxisSlot axis(const std::string& name) const { return layout().axis(name); }
  /// An empty batch of requests for this plan, which asks `allocator` for memory. Model::batch() knows a better one.
  Batch batch(HostAllocator allocator = {}) const {
    return Batch(std::shared_ptr<const BatchLayout>(impl_, &impl_->layout), std::move(allocator), most_requests());
  }
  /// Of the capacities: what the index of a batch has room for at least.
  int64_t most_requests() const {
    int64_t most = 0;
    for (const Capacity& capacity : impl_->options.capacities)
      most = std::max(most, plan::rows_at(impl_->source, capacity)[0]);
    return most;
  }

  /// Every step with its kernel, operations, shapes, FLOPs, bytes and predicted time on a card (plan/cards.hpp) at the
  /// first capacity, the same plan without passes beside it, and what each pass saved. Throws invalid_argument for a
  /// card that is not known.
  std::string describe(const std::string& card = "T4") const;
  /// The executed graph in Graphviz' language, one colour a step.
  std::string dot() const;

 private:
  struct Impl {
    Graph source;
    Graph graph;
    plan::Storage storage;
    CompileOptions options;
    std::vector<PassReport> reports;
    std::vector<Parameter> parameters;
    BatchLayout layout;
  };
  static void run_passes(Impl& impl);

  std::shared_ptr<const Impl> impl_;
};

/// Builds and compiles a model function.
inline Plan compile(const ModelFunction& model, CompileOptions options = {}) {
  return Plan(build(model), std::move(options));
}
inline Plan compile(Graph graph, CompileOptions options = {}) { return Plan(std::move(graph), std::move(options)); }

inline Plan::Plan(Graph source, CompileOptions options) {
  Problems problems;
  validate(source, problems);
  problems.throw_if_any();
  if (options.capacities.empty()) problems.add("capacities", "one or more", "none");
  for (const Capacity& capacity : options.capacities) plan::validate(capacity, source, problems);
  problems.throw_if_any();
  std::vector<Parameter> parameters = parameters_of(source, problems);
  problems.throw_if_any();

  BatchLayout layout(source);
  auto impl = std::make_shared<Impl>(
      Impl{std::move(source), {}, {}, std::move(options), {}, std::move(parameters), std::move(layout)});
  run_passes(*impl);
  impl_ = std::move(impl);
}

inline void Plan::run_passes(Impl& impl) {
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
  run("fuse_tails", passes.fuse_tails, plan::fuse_tails);
  run("group_launches", passes.group_launches, plan::group_launches);
  impl.graph = std::move(graph);
  impl.storage = plan::plan_storage(impl.graph, passes.place_concats, passes.reuse_memory);
}

}  // namespace warprank

#include "warprank/plan/describe.hpp"
