// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rest of served_model.hpp: how models are exchanged.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/engine/served_model.hpp"

namespace warprank { inline namespace v0 {
namespace detail {

/// Of the device's memory, or of the host's that is pinned for it.
inline int64_t total(const MemoryReport& report, bool pinned = false) {
  int64_t bytes = 0;
  for (const auto& [what, size] : report)
    if ((what.rfind("pinned", 0) == 0) == pinned) bytes += size;
  return bytes;
}

inline ContextPool::Clock::time_point end_of(const SwapOptions& options) {
  const std::chrono::milliseconds year = std::chrono::hours(365 * 24), none{0};
  return ContextPool::Clock::now() + std::max(none, std::min(options.patience, year));
}

/// Waits for what tells nobody when it comes; false when it has not until the deadline.
template <class Condition>
bool wait_for(const Condition& condition, ContextPool::Clock::time_point deadline) {
  while (!condition()) {
    if (ContextPool::Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace detail

inline ServedModel::ServedModel(Servable model, Tables tables, const ServedOptions& options)
    : plan_(model.plan()),
      requests_(model.requests()),
      device_(tables.device()),
      allocator_(model.model().backend()->batch_allocator()),
      options_(options),
      weights_bytes_(detail::total(model.memory()) - detail::total(tables.memory())),
      tables_(std::move(tables)),
      load_(tables_->options()),
      pages_(load_.pages) {
  if (options.contexts < 1)
    throw invalid_argument("ServedOptions::contexts", "1 or more", std::to_string(options.contexts));
  if (model.model().backend()->tables() != tables_->store().get() ||
      (model.users() && model.users()->backend()->tables() != tables_->store().get()))
    throw invalid_argument("ServedModel: tables", "those that the model is bound to", "others");
  std::vector<ServableContext> contexts = make_contexts(model);
  context_bytes_ = detail::total(contexts[0].memory());
  context_pinned_bytes_ = detail::total(contexts[0].memory(), true);
  pool_.open(model, last_version_, std::move(contexts));
}

inline Servable ServedModel::bind(const NextModel& next, const Tables& tables) const {
  if (requests_) return Servable::bind(requests_, next.dense, tables, next.bind);
  return Model::bind(plan_, next.dense, tables, next.bind);
}

inline std::vector<ServableContext> ServedModel::make_contexts(const Servable& model) const {
  std::vector<ServableContext> contexts;
  for (int i = 0; i < options_.contexts; ++i) contexts.emplace_back(model, options_.context);
  return contexts;
}

inline detail::RecordedScores ServedModel::score(Trial& trial, ServableContext& context) const {
  if (!requests_) return trial.recorded.score([&](Batch& batch) { return context.context().run(batch); });
  DividedBatch divided(requests_, allocator_);
  return trial.recorded.score([&](Batch& batch) {
    divided.clear();
    batch.close();
    for (int64_t r = 0; r < batch.size(); ++r) divided.add(batch.blob(r), nullptr);
    return divided.run(context.users(), context.context());
  });
}

inline Tables& ServedModel::tables() {
  if (!tables_) throw no_model("served model: there is none");
  return *tables_;
}

inline UpdateReport ServedModel::update(const Weights& delta) {
  const std::lock_guard<std::mutex> lock(swapping_);
  return tables().update(delta);
}

inline UpdateReport ServedModel::refresh(const Weights& delta) {
  const std::lock_guard<std::mutex> lock(swapping_);
  return tables().refresh(delta);
}

inline void ServedModel::forget_rows(const std::string& table) {
  const std::lock_guard<std::mutex> lock(swapping_);
  tables().forget_rows(table);
}

inline std::map<std::string, StoreCounters> ServedModel::store_counters() const {
  const std::optional<Servable> model = pool_.model();
  return model ? model->model().backend()->tables()->store_counters() : std::map<std::string, StoreCounters>();
}

inline std::map<std::string, CacheCounters> ServedModel::cache_counters() const {
  const std::optional<Servable> model = pool_.model();
  return model ? model->model().backend()->tables()->cache_counters() : std::map<std::string, CacheCounters>();
}

inline MemoryReport ServedModel::memory() const {
  const std::optional<Servable> model = pool_.model();
  MemoryReport report = model ? model->memory() : MemoryReport{};
  report.emplace_back("contexts", model ? options_.contexts * context_bytes_ : 0);
  if (model && context_pinned_bytes_ > 0)
    report.emplace_back("pinned memory of contexts", options_.contexts * context_pinned_bytes_);
  if (pages_) report.emplace_back("pages for the next tables", pages_->free_bytes());
  return report;
}

inline SwapReport ServedModel::swap(const NextModel& next, SwapMode mode, const SwapOptions& options) {
  if (!(options.loader_share > 0 && options.loader_share <= 1))
    throw invalid_argument("SwapOptions::loader_share", "above 0, at most 1", std::to_string(options.loader_share));
  const std::lock_guard<std::mutex> one_at_a_time(swapping_);
  Trial trial{next, mode, options, detail::RecordedRequests(plan_, options.recorded), next.load.value_or(load_)};
  if (!trial.load.pages) trial.load.pages = pages_;
  pool_.catch_up();  // so that no memory is of models before the one that serves
  const bool has_model = pool_.model().has_value();
  if (mode == SwapMode::dense_and_rows) {
    if (!has_model) throw swap_refused("swap (dense_and_rows): expected tables that are loaded, got none");
    if (!next.images.empty())
      throw invalid_argument("swap (dense_and_rows): images", "none", std::to_string(next.images.size()));
  }
  if (mode == SwapMode::full && has_model && trial.load.updatable != load_.updatable &&
      !device_.engine->rebinds_to_updatable(plan_))
    throw invalid_argument("swap (full): LoadOptions::updatable", "as of the tables that serve; drain may change it",
                           trial.load.updatable ? "updatable" : "not updatable");
  if (mode == SwapMode::drain || !has_model) {
    swap_alone(trial);
  } else {
    detail::QuietThread loader(options.loader, options.loader_share);
    if (loader.is_apart()) loader.run([&] { device_.engine->begin_thread(device_.index); });
    swap_beside(trial, loader);
  }
  trial.report.version = last_version_;
  return std::move(trial.report);
}

/// The old model serves on meanwhile. Rows are written and contexts exchanged by the caller: the loader may be kept
/// from its core while it has what look-ups wait for. All else is the loader's, above all what is freed.
inline void ServedModel::swap_beside(Trial& trial, detail::QuietThread& loader) {
  const NextModel& next = trial.next;
  const bool is_full = trial.mode == SwapMode::full;
  std::optional<Servable> old = pool_.model(), model;
  std::optional<Tables> tables;
  loader.run([&] {
    need(trial, 1, is_full);
    check_room(trial, 0);
    Tables loaded = is_full ? Tables::load(plan_, next.tables, next.images, device_, trial.load) : *tables_;
    const Servable bound = bind(next, loaded);
    {
      ServableContext context(*old, options_.context);
      const detail::RecordedScores expected = score(trial, context);
      context.rebind(bound);
      compare(trial, expected, score(trial, context));
    }
    tables = std::move(loaded);
    model = bound;
  });
  const auto free_old = [&] { old.reset(), model.reset(), tables.reset(); };
  try {
    if (!is_full && !next.tables.names().empty()) trial.report.rows = tables->update(next.tables);
    trial.report.contexts_behind = pool_.exchange(*model, ++last_version_, detail::end_of(trial.options));
  } catch (...) {
    loader.run(free_old);
    throw;
  }
  load_ = tables->options();
  std::swap(*tables_, *tables);
  loader.run(free_old);
}

/// When nobody has a context, or there is no old model.
inline void ServedModel::swap_alone(Trial& trial) {
  const NextModel& next = trial.next;
  std::optional<Servable> old = pool_.model();
  need(trial, options_.contexts, true);
  detail::RecordedScores expected;
  if (old) {
    check_room(trial, detail::total(old->memory()) + options_.contexts * context_bytes_);
    close_and_free(trial, *std::exchange(old, std::nullopt), expected);
  } else {
    check_room(trial, 0);
  }
  try {
    Tables tables = Tables::load(plan_, next.tables, next.images, device_, trial.load);
    const Servable model = bind(next, tables);
    std::vector<ServableContext> contexts = make_contexts(model);
    const detail::RecordedScores got = score(trial, contexts[0]);
    compare(trial, expected, got);
    pool_.open(model, ++last_version_, std::move(contexts));
    load_ = tables.options();
    tables_ = std::move(tables);
  } catch (const std::exception& error) {
    go_without(error.what());
    throw;
  } catch (...) {
    go_without("of an unknown error");
    throw;
  }
}

/// Refuses, with the old model serving on, while contexts are lent or others have the model or its tables.
inline void ServedModel::close_and_free(Trial& trial, Servable old, detail::RecordedScores& expected) {
  const std::string within = " within " + std::to_string(trial.options.patience.count()) + " ms, got ";
  const auto owners = [&] { return tables_->store().use_count(); };
  std::optional<Servable> next(bind(trial.next, *tables_));  // to see what is wrong
  if (!pool_.close(detail::end_of(trial.options)))
    throw swap_refused("swap (drain): expected all contexts back" + within + "some still in use");
  int64_t most_owners = 2 + owners();  // `tables_`, what owners() looks at, and what a model adds
  next.reset();
  most_owners -= owners();  // now that contexts, which own tables as well, neither come nor go
  try {
    expected = score(trial, pool_.newest());
  } catch (...) {
    pool_.open();
    throw;
  }
  pool_.clear();
  const auto has_one_owner = [](const Model& model) { return model.backend().use_count() == 1; };
  const auto is_alone = [&] {
    return has_one_owner(old.model()) && (!old.users() || has_one_owner(*old.users())) && owners() <= most_owners;
  };
  if (!detail::wait_for(is_alone, detail::end_of(trial.options))) {
    try {
      pool_.open(old, pool_.version(), make_contexts(old));
    } catch (...) {
      go_without("others had the old model, and contexts of it could not be made again");
      throw;
    }
    throw swap_refused("swap (drain): expected nobody else to have the old model or its tables" + within +
                       "copies of them");
  }
  const std::weak_ptr<const TableStore> store = tables_->store();
  { const Servable freed = std::move(old); }
  tables_.reset();
  if (detail::wait_for([&] { return store.expired(); }, detail::end_of(trial.options))) return;
  const std::string error = "swap (drain): expected the old tables to be freed" + within + "a context that has them";
  go_without(error.c_str());
  throw swap_refused(error);
}

inline void ServedModel::go_without(const char* error) {
  pool_.open_without_model(std::string("served model: there is none, since the last swap failed: ") + error);
}

/// Puts down what is going to be allocated. Throws what is wrong with the files of tables.
inline void ServedModel::need(Trial& trial, int64_t contexts, bool tables) const {
  const NextModel& next = trial.next;
  MemoryReport& needed = trial.report.needed;
  if (tables) needed = device_.engine->table_needs(plan_, next.tables, next.images, trial.load);
  needed.emplace_back("weights", weights_bytes_);
  needed.emplace_back(contexts == 1 ? "a context" : "contexts", contexts * context_bytes_);
}

/// Throws unless all that is needed fits in what is free, when `old_bytes` are freed before.
inline void ServedModel::check_room(Trial& trial, int64_t old_bytes) const {
  SwapReport& report = trial.report;
  const int64_t needed = detail::total(report.needed),
                free_now = device_.engine->free_memory(device_.index, trial.load);
  const int64_t at_once = old_bytes > 0 ? weights_bytes_ : needed;  // beside the old model
  report.free_bytes = free_now + old_bytes;
  if (needed <= report.free_bytes && at_once <= free_now) return;
  std::string each;
  for (const auto& [what, bytes] : report.needed)
    each += (each.empty() ? "" : ", ") + what + " " + std::to_string(bytes);
  throw swap_refused(std::string("swap (") + to_string(trial.mode) + "): expected " + std::to_string(needed) +
                     " bytes of memory (" + each + "), got " + std::to_string(free_now) + " free" +
                     (old_bytes > 0 ? " and " + std::to_string(old_bytes) + " of the old model" : ""));
}

inline void ServedModel::compare(Trial& trial, const detail::RecordedScores& expected,
                                 const detail::RecordedScores& got) {
  if (expected.entries.empty()) return;  // none was recorded, or there was no model
  ScoreComparison& comparison = trial.report.comparison;
  comparison = trial.recorded.compare(expected, got);
  const double largest = comparison.largest();
  if (largest <= trial.options.most_difference && !std::isinf(largest)) return;
  throw swap_refused(std::string("swap (") + to_string(trial.mode) + "): expected scores that differ by at most " +
                     std::to_string(trial.options.most_difference) + ", got " + comparison.to_string());
}

}}  // namespace warprank::v0
