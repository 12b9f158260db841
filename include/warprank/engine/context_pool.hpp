// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Contexts that threads borrow, and whose model is exchanged meanwhile.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "warprank/engine/servable.hpp"
#include "warprank/engine/swap.hpp"

namespace warprank { inline namespace v0 { namespace detail {

class ContextPool {
  using Lock = std::unique_lock<std::mutex>;

 public:
  using Clock = std::chrono::steady_clock;

  /// A context and the version of its model.
  struct Slot {
    ServableContext context;
    int64_t version;
    bool is_idle = true;
    std::string error = {};                      ///< why it could not take the newest model
    std::vector<FeatureCounters> counters = {};  ///< as they were read last
    bool is_asked = false;                       ///< to read them when it is given back
  };

  /// Waits for an idle context. It has the newest model, unless it failed to take it. Throws no_model when there is no
  /// model.
  Slot& take() {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_closed_ && (!model_ || find_idle() != nullptr); });
    if (!model_) throw no_model(why_none_);
    Slot& slot = *find_idle();
    slot.is_idle = false;
    try_update(slot, lock);
    return slot;
  }
  /// The context first takes the newest model: perhaps no thread borrows it for a long time, and it would keep the old
  /// model's memory.
  void give_back(Slot& slot) {
    Lock lock(mutex_);
    try_update(slot, lock);
    if (slot.is_asked) read_counters(slot, lock);
    slot.is_idle = true;
    lock.unlock();
    changed_.notify_all();
  }
  /// The counters of the features of all contexts. Contexts in use are read when they are given back; if this is after
  /// the deadline, their last reading counts.
  std::vector<FeatureCounters> counters(Clock::time_point deadline) {
    Lock lock(mutex_);
    for (const auto& slot : slots_) {  // which stay, since a drain waits until all are idle
      if (is_closed_ || !slot->is_idle) {
        slot->is_asked = !slot->is_idle;
        continue;
      }
      slot->is_idle = false;
      read_counters(*slot, lock);
      slot->is_idle = true;
    }
    changed_.notify_all();
    changed_.wait_until(lock, deadline, [&] {
      return std::none_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->is_asked; });
    });
    std::vector<FeatureCounters> sums;
    for (const auto& slot : slots_)
      for (size_t f = 0; f < slot->counters.size(); ++f) {
        if (f == sums.size()) sums.push_back({slot->counters[f].feature, {}});
        sums[f].counters += slot->counters[f].counters;
      }
    return sums;
  }
  /// Idle contexts that could not take the newest model try again.
  void catch_up() {
    Lock lock(mutex_);
    catch_up(lock);
  }
  /// Contexts without the newest model, and the reason why the last of them could not take it.
  ContextsBehind behind() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    ContextsBehind behind;
    for (const auto& slot : slots_) {
      if (!is_behind(*slot)) continue;
      ++behind.count;
      if (!slot->error.empty()) behind.error = slot->error;
    }
    return behind;
  }

  /// Contexts that are borrowed from now on have this model. Returns when all have it, or at `deadline`, with the
  /// number of contexts that do not. If a context cannot take it, the others get the old model again, if they can, and
  /// the error is thrown.
  int64_t exchange(const Servable& next, int64_t version, Clock::time_point deadline) {
    Servable other = next;  // from now on the old one: whose memory is not freed with the lock held
    Lock lock(mutex_);
    std::swap(*model_, other);
    std::swap(version_, version);
    try {
      return update_all(lock, deadline);
    } catch (...) {
      std::swap(*model_, other);
      version_ = version;
      catch_up(lock);  // those in use do when they are given back
      throw;
    }
  }

  /// Lends no more contexts, and waits until all are back. If they are not back at `deadline`, returns false and lends
  /// again.
  bool close(Clock::time_point deadline) {
    Lock lock(mutex_);
    is_closed_ = true;
    const auto all_back = [&] {
      return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->is_idle; });
    };
    if (changed_.wait_until(lock, deadline, all_back)) return true;
    open(lock);
    return false;
  }
  void open() {
    Lock lock(mutex_);
    open(lock);
  }

  // Only while it is closed, or while no other thread knows it:

  /// Lends these from now on.
  void open(const Servable& model, int64_t version, std::vector<ServableContext> contexts) {
    Lock lock(mutex_);
    slots_.clear();
    for (ServableContext& context : contexts)
      slots_.push_back(std::make_unique<Slot>(Slot{std::move(context), version, true, {}}));
    model_ = model;
    version_ = version;
    open(lock);
  }
  /// Forgets contexts and model.
  void clear() {
    std::vector<std::unique_ptr<Slot>> slots;
    std::optional<Servable> model;
    const std::lock_guard<std::mutex> lock(mutex_);
    slots_.swap(slots);
    model_.swap(model);
  }
  /// There is no model from now on; a thread that wants a context gets the error `why`.
  void open_without_model(const std::string& why) {
    Lock lock(mutex_);
    why_none_ = why;
    open(lock);
  }
  /// A context with the newest model. If none can take it, throws the error of the last try.
  ServableContext& newest() {
    Lock lock(mutex_);
    Slot& slot = *find_idle();
    update(slot, lock);
    return slot.context;
  }

  std::optional<Servable> model() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return model_;
  }
  int64_t version() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return version_;
  }

 private:
  void open(Lock& lock) {
    is_closed_ = false;
    lock.unlock();
    changed_.notify_all();
  }

  bool is_behind(const Slot& slot) const { return slot.version != version_; }

  /// A context with the newest model if there is one.
  Slot* find_idle() const {
    Slot* found = nullptr;
    for (const auto& slot : slots_)
      if (slot->is_idle && (found == nullptr || is_behind(*found))) found = slot.get();
    return found;
  }

  /// Gives the newest model to a slot that no other thread has. `lock` is held, except while it does so.
  void update(Slot& slot, Lock& lock) {
    if (!is_behind(slot)) return;
    const Servable next = *model_;
    const int64_t version = version_;
    lock.unlock();
    try {
      slot.context.rebind(next);
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
    slot.version = version;
    slot.error.clear();
  }
  /// The same; if the slot cannot take the model, it keeps its own, and the error.
  void try_update(Slot& slot, Lock& lock) {
    try {
      while (is_behind(slot)) update(slot, lock);
    } catch (const std::exception& error) {
      slot.error = error.what();
    } catch (...) {
      slot.error = "an unknown error";
    }
  }
  /// For a slot that no other thread has. Errors of the device reach the threads that score.
  static void read_counters(Slot& slot, Lock& lock) {
    lock.unlock();
    std::vector<FeatureCounters> counters;
    try {
      counters = slot.context.counters();
    } catch (...) {  // NOLINT: the last ones stay
    }
    lock.lock();
    if (!counters.empty()) slot.counters = std::move(counters);
    slot.is_asked = false;
  }
  void catch_up(Lock& lock) {
    for (const auto& slot : slots_) {  // no other thread changes them: exchanges run one at a time
      if (!slot->is_idle || !is_behind(*slot)) continue;
      slot->is_idle = false;
      try_update(*slot, lock);
      slot->is_idle = true;
    }
    changed_.notify_all();
  }

  /// As soon as they are idle. Returns the number of contexts that were not idle until the deadline.
  int64_t update_all(Lock& lock, Clock::time_point deadline) {
    const auto behind = [&](bool idle_only) {
      return std::find_if(slots_.begin(), slots_.end(),
                          [&](const auto& slot) { return is_behind(*slot) && (slot->is_idle || !idle_only); });
    };
    while (behind(false) != slots_.end()) {
      const auto idle_or_none = [&] { return behind(true) != slots_.end() || behind(false) == slots_.end(); };
      if (!changed_.wait_until(lock, deadline, idle_or_none)) break;
      const auto found = behind(true);
      if (found == slots_.end()) break;
      Slot& slot = **found;
      slot.is_idle = false;
      const struct GiveBack {
        ContextPool& pool;
        Slot& slot;
        ~GiveBack() {
          slot.is_idle = true;
          pool.changed_.notify_all();
        }
      } give_back{*this, slot};
      update(slot, lock);
    }
    return std::count_if(slots_.begin(), slots_.end(), [&](const auto& slot) { return is_behind(*slot); });
  }

  mutable std::mutex mutex_;  // all that follows; of slots_, contexts are their borrowers'
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::optional<Servable> model_;
  int64_t version_ = 0;
  bool is_closed_ = true;
  std::string why_none_;
};

}}}  // namespace warprank::v0::detail
