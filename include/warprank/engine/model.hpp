// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "warprank/engine/context.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/tables.hpp"
#include "warprank/plan/difference.hpp"

namespace warprank { inline namespace v0 {

/// A plan with its weights on a device. Immutable; copies share it; any number of contexts run it side by side.
class Model {
 public:
  Model(Plan plan, std::shared_ptr<const ModelBackend> backend)
      : plan_(std::move(plan)), backend_(std::move(backend)) {}

  /// Packs the dense weights for the device that the tables are on. Throws invalid_argument with every tensor that is
  /// missing, mis-shaped or not needed, and every missing custom function; and with the first weight that the chosen
  /// precision cannot hold.
  static Model bind(const Plan& plan, const Weights& weights, const Tables& tables, const BindOptions& options = {}) {
    const Device device = tables.device();
    return {plan, device.engine->bind(plan, weights, tables.store(), device.index, options)};
  }

  /// A context with memory for the plan's capacities. May be called by several threads at once.
  Context context(ContextOptions options = {}) const { return {plan_, backend_->make_context(options), options}; }
  /// An empty batch for the model's plan, in the memory from which the model's device copies fastest. Every context of
  /// every model of the plan takes it.
  Batch batch() const { return plan_.batch(backend_->batch_allocator()); }
  const Plan& plan() const { return plan_; }
  /// The memory of its tables and its own.
  MemoryReport memory() const { return backend_->memory(); }
  /// The choices of binding, a line each: on the host the instruction set, and the precision with the reason. Empty on
  /// engines that choose when contexts are made (Context::describe).
  std::string describe() const { return backend_->describe(); }
  const std::shared_ptr<const ModelBackend>& backend() const { return backend_; }

 private:
  Plan plan_;
  std::shared_ptr<const ModelBackend> backend_;
};

inline void Context::rebind(const Model& next) {
  const std::string difference = plan::difference(plan_, next.plan());
  if (!difference.empty())
    throw invalid_argument("Context::rebind", "a model of the context's plan", "one with other " + difference);
  const detail::ContextUse use(state_);
  use.backend().rebind(next.backend());
  plan_ = next.plan();
}

}}  // namespace warprank::v0
