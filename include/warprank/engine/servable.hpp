// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What serves as one model: a plan's, or the two of a divided plan.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/divided_requests.hpp"
#include "warprank/engine/int8_linears.hpp"
#include "warprank/engine/model.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank { inline namespace v0 {

/// A model, or the models of both sides of a divided plan, of the same weights and tables. Immutable; copies share it.
class Servable {
 public:
  Servable(Model model) : model_(std::move(model)) {}  // NOLINT: a model is one

  /// Binds both plans of a divided one, as Model::bind does.
  static Servable bind(std::shared_ptr<const DividedRequests> requests, const Weights& weights, const Tables& tables,
                       const BindOptions& options = {}) {
    const Plan &items = requests->plan().items, &user = requests->plan().user;
    BindOptions of_side = options;
    of_side.cuda_int8 = detail::int8_names_for(items.source(), user.source(), options.cuda_int8);
    Servable both(Model::bind(items, weights, tables, of_side));
    of_side.cuda_int8 = detail::int8_names_for(user.source(), items.source(), options.cuda_int8);
    both.users_ = Model::bind(user, weights, tables, of_side);
    both.requests_ = std::move(requests);
    return both;
  }
  static Servable bind(DividedPlan divided, const Weights& weights, const Tables& tables,
                       const BindOptions& options = {}) {
    return bind(std::make_shared<const DividedRequests>(std::move(divided)), weights, tables, options);
  }

  /// The plan that is served: the undivided one.
  const Plan& plan() const { return requests_ ? requests_->plan().whole : model_.plan(); }
  /// The model, or that of the items' side.
  const Model& model() const { return model_; }
  /// That of the users' side; none: the plan is not divided.
  const std::optional<Model>& users() const { return users_; }
  /// Null: the plan is not divided.
  const std::shared_ptr<const DividedRequests>& requests() const { return requests_; }

  /// The memory of the tables, and of all weights.
  MemoryReport memory() const {
    MemoryReport report = model_.memory();
    if (!users_) return report;
    int64_t bytes = 0;
    for (const auto& [what, size] : users_->memory()) bytes += size;
    for (const auto& [what, size] : users_->backend()->tables()->memory()) bytes -= size;
    report.emplace_back("weights of the users' side", bytes);
    return report;
  }

 private:
  Model model_;
  std::optional<Model> users_;
  std::shared_ptr<const DividedRequests> requests_;
};

/// The contexts for one batch of a Servable: of its model, and of that of the users' side. Movable.
class ServableContext {
 public:
  ServableContext(Servable servable, const ContextOptions& options)
      : servable_(std::move(servable)), context_(servable_.model().context(options)) {
    if (servable_.users()) users_ = servable_.users()->context(options);
  }

  const Servable& servable() const { return servable_; }
  Context& context() { return context_; }
  /// Throws usage_error where the plan is not divided, and after a rebind that could neither be done nor be undone.
  Context& users() {
    if (!users_) throw usage_error("context of the users' side: expected a divided plan, got one that is not");
    if (is_torn_) throw usage_error("context: expected both sides of one model, got those of two");
    return *users_;
  }

  /// As Context::rebind, of both.
  void rebind(const Servable& next) {
    if (users_.has_value() != next.users().has_value())
      throw invalid_argument("rebind", users_ ? "a divided plan" : "an undivided plan", "the other");
    if (users_) users_->rebind(*next.users());
    try {
      is_torn_ = users_.has_value();
      context_.rebind(next.model());
    } catch (...) {
      if (users_) users_->rebind(*servable_.users());
      is_torn_ = false;
      throw;
    }
    is_torn_ = false;
    servable_ = next;
  }

  MemoryReport memory() const {
    MemoryReport report = context_.memory();
    if (users_)
      for (const auto& [what, size] : users_->memory()) report.emplace_back(what + ", users", size);
    return report;
  }
  /// Of the features of both sides.
  std::vector<FeatureCounters> counters() const {
    std::vector<FeatureCounters> counters = context_.counters();
    if (!users_) return counters;
    for (FeatureCounters& of_users : users_->counters()) counters.push_back(std::move(of_users));
    return counters;
  }

 private:
  Servable servable_;
  Context context_;
  std::optional<Context> users_;
  bool is_torn_ = false;
};

}}  // namespace warprank::v0
