// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model that is exchanged while it serves.
///
///     ServedModel served(model, tables, options);                         // keep no copy of the model and the tables
///     const std::vector<float> y = copy_of(served.acquire()->run(batch)); // any thread: a context for one batch
///     served.swap(next, SwapMode::full, {recorded, 0.1});                 // another thread, now and then

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/context_pool.hpp"
#include "warprank/engine/divided_batch.hpp"
#include "warprank/engine/servable.hpp"
#include "warprank/engine/swap.hpp"

namespace warprank { inline namespace v0 {

struct ServedOptions {
  int contexts = 2;  ///< the most batches under way at a time
  ContextOptions context = {};
};

/// A borrowed context; it goes back when the lease is destroyed. The wait for its batch must be over by then. Movable.
class ContextLease {
 public:
  ContextLease(ContextLease&& other) noexcept : pool_(other.pool_), slot_(std::exchange(other.slot_, nullptr)) {}
  ContextLease& operator=(ContextLease&&) = delete;
  ~ContextLease() {
    if (slot_ != nullptr) pool_->give_back(*slot_);
  }

  Context& operator*() const { return slot_->context.context(); }
  Context* operator->() const { return &slot_->context.context(); }
  /// The context of the users' side of a divided plan, whose items' side the other context has, of the same model.
  /// Throws usage_error where the plan is not divided.
  Context& users() const { return slot_->context.users(); }
  /// The version of the context's model during the lease; each new model has a larger version.
  int64_t version() const { return slot_->version; }

 private:
  friend class ServedModel;
  explicit ContextLease(detail::ContextPool& pool) : pool_(&pool), slot_(&pool.take()) {}

  detail::ContextPool* pool_;
  detail::ContextPool::Slot* slot_;
};

class ServedModel {
 public:
  /// Owns the model and its tables: a swap frees memory only when no other code has copies of them, and only update()
  /// changes rows, so that swaps know of it. Both models of a divided plan (Servable::bind) are exchanged together: no
  /// lease has two of different weights. Throws invalid_argument for less than one context and for tables that are
  /// not the model's, and the errors of Model::context.
  ServedModel(Servable model, Tables tables, const ServedOptions& options = {});

  /// A context for one batch, with the newest model, or, if it could not take this model, with its old one
  /// (contexts_behind). Waits while all contexts are in use, and during a drain. Any threads at once. Throws no_model
  /// when a drain has failed after the old model was freed.
  ContextLease acquire() { return ContextLease(pool_); }

  /// Exchanges the model. Before it touches the old model, it checks the files, and refuses if memory does not suffice.
  /// The new model scores the recorded requests before it takes over. When it returns, all contexts have the new model,
  /// and the old model's memory is free, unless SwapReport::contexts_behind says otherwise. When it throws, the old
  /// model goes on serving, also in contexts that had the new model and could go back (contexts_behind); but
  ///   - dense_and_rows may have changed rows, when the very last step failed, on the device;
  ///   - drain has no old model any more when it fails after the wait: acquire() throws until a swap has succeeded. It
  ///     is refused before, if other code has copies of the old model or its tables, since these would not be freed.
  /// Throws swap_refused, invalid_argument for files, and the errors of loading. One swap runs at a time, others wait.
  /// Not for a thread that has a lease.
  SwapReport swap(const NextModel& next, SwapMode mode, const SwapOptions& options = {});

  /// Tables::update of the serving tables; waits while a swap is under way, so that no rows go to tables that are about
  /// to be dropped. Not for a thread that has a lease. Throws no_model like acquire.
  UpdateReport update(const Weights& delta);

  /// Tables::refresh and Tables::forget_rows, likewise.
  UpdateReport refresh(const Weights& delta);
  void forget_rows(const std::string& table);

  /// The plan; the undivided one where a divided plan serves.
  const Plan& plan() const { return plan_; }
  /// Null: the plan is not divided.
  const std::shared_ptr<const DividedRequests>& requests() const { return requests_; }
  /// Like Model::batch().
  Batch batch() const { return plan_.batch(allocator_); }
  const HostAllocator& batch_allocator() const { return allocator_; }
  const Device& device() const { return device_; }
  int contexts() const { return options_.contexts; }
  /// The version of the model that acquire() gives; the first is 1.
  int64_t version() const { return pool_.version(); }
  /// Contexts that keep an old model's memory, and the reason.
  ContextsBehind contexts_behind() const { return pool_.behind(); }
  /// The counters of each feature in all contexts, since these were made; a drain makes new contexts. A context in use
  /// reports when it is given back; after `patience` its last report counts.
  std::vector<FeatureCounters> counters(std::chrono::milliseconds patience = std::chrono::milliseconds(100)) {
    return pool_.counters(Clock::now() + patience);
  }
  /// The counters of the serving tables (Tables); counters of new tables begin with 0. Neither function waits for a
  /// swap.
  std::map<std::string, StoreCounters> store_counters() const;
  std::map<std::string, CacheCounters> cache_counters() const;
  /// The memory of the model, its tables and the contexts.
  MemoryReport memory() const;

 private:
  using Clock = detail::ContextPool::Clock;

  struct Trial {
    const NextModel& next;
    const SwapMode mode;
    const SwapOptions& options;
    detail::RecordedRequests recorded;
    LoadOptions load;
    SwapReport report = {};
  };

  void swap_beside(Trial& trial, detail::QuietThread& loader);
  void swap_alone(Trial& trial);
  void need(Trial& trial, int64_t contexts, bool tables) const;
  void check_room(Trial& trial, int64_t old_bytes) const;
  static void compare(Trial& trial, const detail::RecordedScores& expected, const detail::RecordedScores& got);
  Servable bind(const NextModel& next, const Tables& tables) const;
  std::vector<ServableContext> make_contexts(const Servable& model) const;
  detail::RecordedScores score(Trial& trial, ServableContext& context) const;
  void close_and_free(Trial& trial, Servable old, detail::RecordedScores& expected);
  void go_without(const char* error);
  Tables& tables();  // that serve; under swapping_

  const Plan plan_;
  const std::shared_ptr<const DividedRequests> requests_;
  const Device device_;
  const HostAllocator allocator_;
  const ServedOptions options_;
  const int64_t weights_bytes_;  // of any model of the plan
  int64_t context_bytes_ = 0, context_pinned_bytes_ = 0;
  detail::ContextPool pool_;

  std::mutex swapping_;  // guards the members below
  int64_t last_version_ = 1;
  std::optional<Tables> tables_;
  LoadOptions load_;  // of the last tables

  const std::shared_ptr<PagePool> pages_;  // of the first tables
};

}}  // namespace warprank::v0

#include "warprank/engine/served_model_definitions.hpp"
