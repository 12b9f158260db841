// SPDX-License-Identifier: Apache-2.0
#pragma once

/// compile: Graph -> Plan. A Plan has the computations, their order and the places of values; it has no weights and no
/// device, is immutable, and cheap to copy.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/model/builder.hpp"
#include "warprank/model/parameters.hpp"
#include "warprank/plan/cost.hpp"
#include "warprank/plan/storage.hpp"

namespace warprank { inline namespace v0 {

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
  bool fuse_token_norm = true;
  bool sum_histories = true;
  bool fuse_tails = true;
  bool group_launches = true;
  bool multiply_heads = true;
  bool place_concats = true;  ///< producers write into the concat that reads them
  bool reuse_memory = true;   ///< values whose lifetimes do not overlap share memory

  static constexpr Passes none() {
    return {false, false, false, false, false, false, false, false, false, false, false, false, false, false};
  }
};

struct CompileOptions {
  std::vector<Capacity> capacities = {{}};  ///< contexts reserve memory for these; `describe` shows the first
  Passes passes = {};
  /// Real requests, as blobs (docs/BATCH_FORMAT.md): rows that a capacity does not give are learned from them. A plan
  /// does not keep them.
  std::vector<std::vector<std::byte>> recorded = {};
};

/// The changes of a pass, at the first capacity.
struct PassReport {
  std::string name;
  int64_t steps_before = 0, steps_after = 0;
  plan::Cost cost_before, cost_after;
};

struct DividedPlan;
enum class StateType;

class Plan {
 public:
  /// Compiles a graph; throws invalid_argument with all its errors.
  explicit Plan(Graph source, CompileOptions options = {});

  /// As the user wrote it; of a plan that divide made, as it is executed.
  const Graph& source() const { return impl_->source; }
  const Graph& graph() const { return impl_->graph; }  ///< as it is executed
  const plan::Storage& storage() const { return impl_->storage; }
  const CompileOptions& options() const { return impl_->options; }
  const std::vector<PassReport>& reports() const { return impl_->reports; }
  const std::vector<Parameter>& parameters() const { return impl_->parameters; }  ///< learned tensors, tables apart
  /// Warnings for the operator of a server, a line each: rows of axes at the capacities that are guesses.
  const std::vector<std::string>& warnings() const { return impl_->warnings; }
  const BatchLayout& layout() const { return impl_->layout; }

  /// Inputs and axes by name; resolve once, pack often.
  IdsSlot ids(const std::string& name) const { return layout().ids(name); }
  DenseSlot dense(const std::string& name) const { return layout().dense(name); }
  AxisSlot axis(const std::string& name) const { return layout().axis(name); }
  /// An empty batch of requests for this plan, which takes memory from `allocator`. Model::batch() uses a better one.
  Batch batch(HostAllocator allocator = {}) const {
    return Batch(std::shared_ptr<const BatchLayout>(impl_, &impl_->layout), std::move(allocator), most_requests());
  }
  /// The most requests of the capacities: the index of a batch has room for at least as many.
  int64_t most_requests() const {
    int64_t most = 0;
    for (const Capacity& capacity : impl_->options.capacities)
      most = std::max(most, plan::rows_at(impl_->source, capacity)[0]);
    return most;
  }

  /// Every step with its kernel, operations, shapes, FLOPs, bytes and predicted time on a card (plan/cards.hpp) at the
  /// first capacity, the same plan without passes beside it, and the savings of each pass. Tables::describe tells where
  /// tables lie. Throws invalid_argument for an unknown card.
  std::string describe(const std::string& card = "T4") const;
  /// The executed graph in Graphviz' language, one colour per step.
  std::string dot() const;

 private:
  friend DividedPlan divide(const Plan& plan, const std::string& axis, StateType type);

  struct Impl {
    Graph source;
    Graph graph;
    plan::Storage storage;
    CompileOptions options;
    std::vector<PassReport> reports;
    std::vector<Parameter> parameters;
    BatchLayout layout;
    std::vector<std::string> warnings;
  };
  static void run_passes(Impl& impl);
  /// A plan of some of the nodes as they are executed, with all parameters.
  Plan part(Graph graph) const;

  std::shared_ptr<const Impl> impl_;
};

/// Builds and compiles a model function.
inline Plan compile(const ModelFunction& model, CompileOptions options = {}) {
  return Plan(build(model), std::move(options));
}
inline Plan compile(Graph graph, CompileOptions options = {}) { return Plan(std::move(graph), std::move(options)); }

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/plan/plan_definitions.hpp"
#endif
