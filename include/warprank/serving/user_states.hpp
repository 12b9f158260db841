// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The states of users who may be asked about again, as DividedRequests::states makes them.
///
///     UserStates states({.most_bytes = int64_t{4} << 30, .most_age = std::chrono::minutes(5)});
///     UserStates::States kept = states.find(key, context.version());              // any thread
///     if (!kept) states.keep(key, context.version(), kept = compute(user));

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/sieve.hpp"
#include "warprank/engine/kept_states.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/serving/user_key.hpp"

namespace warprank { inline namespace v0 {

struct UserStatesOptions {
  int64_t most_bytes = int64_t{1} << 30;  ///< of all states, with UserStates::record_bytes for each
  std::chrono::milliseconds most_age = std::chrono::hours(24);  ///< older states are not given
  /// States are divided by their keys among so many parts, each with a lock and its share of the bytes. Fewer where a
  /// part would have less than most_state_bytes.
  int parts = 64;
  int64_t most_state_bytes = int64_t{1} << 20;  ///< larger states are not kept
};

/// Since the store was made, but for the last two.
struct UserStatesCounters {
  int64_t hits = 0, misses = 0;
  int64_t expired = 0, outdated = 0;  ///< of the misses: too old, of another model
  double hit_age_seconds = 0;         ///< of all hits together
  int64_t kept = 0;                   ///< states that were put in
  int64_t refused = 0;                ///< states above most_state_bytes
  int64_t evicted = 0;                ///< states that made room
  int64_t states = 0, bytes = 0;      ///< now
};

/// A bounded store in memory. Any threads use it at once; a lock is held for a look-up alone, never while a batch runs.
/// A state that is evicted lives on for those that have it.
///
/// What goes first is chosen by SIEVE (core/sieve.hpp), but states that nobody may have any more go before.
class UserStates {
 public:
  using Clock = std::chrono::steady_clock;
  using States = std::shared_ptr<const KeptStates>;

  /// Throws invalid_argument for options that leave no room for a state of most_state_bytes.
  explicit UserStates(const UserStatesOptions& options = {})
      : options_(checked(options)),
        parts_(static_cast<size_t>(
            std::clamp<int64_t>(options.most_bytes / (options.most_state_bytes + record_bytes), 1, options.parts))),
        most_part_bytes_(options.most_bytes / static_cast<int64_t>(parts_.size())) {}

  /// The state of a key that was kept for this version of the model; null: there is none, or it is too old.
  States find(const UserKey& key, int64_t version, Clock::time_point now = Clock::now()) {
    const Clock::time_point oldest = oldest_at(now);
    Part& part = part_of(key);
    Entries gone;  // freed without the lock
    const std::lock_guard<std::mutex> lock(part.mutex);
    const auto found = part.entry_of.find(key);
    if (found == part.entry_of.end()) return part.miss();
    Entry& entry = *found->second;
    const bool is_expired = entry.born < oldest;
    if (is_expired || entry.version != version) {
      ++(is_expired ? part.counters.expired : part.counters.outdated);
      // A newer one is for others, whose context has the newer model already.
      if (is_expired || entry.version < version) part.remove(found->second, gone);
      return part.miss();
    }
    entry.was_asked_for = true;
    ++part.counters.hits;
    part.counters.hit_age_seconds += std::chrono::duration<double>(now - entry.born).count();
    return entry.states;
  }

  /// Keeps a state for requests that come later. A state of a newer version stays. False: it was not kept.
  bool keep(const UserKey& key, int64_t version, States states, Clock::time_point now = Clock::now()) {
    const Clock::time_point oldest = oldest_at(now);
    const int64_t bytes = bytes_of(states);
    Part& part = part_of(key);
    Entries gone;
    const std::lock_guard<std::mutex> lock(part.mutex);
    if (bytes > options_.most_state_bytes + record_bytes) {
      ++part.counters.refused;
      return false;
    }
    part.version = std::max(part.version, version);
    if (const auto found = part.entry_of.find(key); found != part.entry_of.end()) {
      if (found->second->version > version) return false;
      part.remove(found->second, gone);
    }
    while (part.counters.bytes + bytes > most_part_bytes_) part.evict(oldest, gone);
    part.entry_of.emplace(key, part.entries.add({key, version, now, std::move(states), false}));
    part.counters.bytes += bytes;
    ++part.counters.states;
    ++part.counters.kept;
    return true;
  }

  /// States that were kept up to now are not given after `time`: for what they were computed from has changed, such as
  /// rows of tables. Takes a lock of its own.
  void expire_after(std::chrono::milliseconds time, Clock::time_point now = Clock::now()) {
    const std::lock_guard<std::mutex> lock(expiry_mutex_);
    const Clock::time_point end = now + std::max(time, std::chrono::milliseconds(0));
    while (!expiries_.empty() && expiries_.back().end >= end) expiries_.pop_back();  // whose states this one has, too
    expiries_.push_back({end, now});
    next_expiry_.store(expiries_.front().end.time_since_epoch().count(), std::memory_order_release);
  }

  UserStatesCounters counters() const {
    UserStatesCounters sum;
    for (const Part& part : parts_) {
      const std::lock_guard<std::mutex> lock(part.mutex);
      const UserStatesCounters& of = part.counters;
      sum.hits += of.hits, sum.misses += of.misses;
      sum.expired += of.expired, sum.outdated += of.outdated;
      sum.hit_age_seconds += of.hit_age_seconds;
      sum.kept += of.kept, sum.refused += of.refused, sum.evicted += of.evicted;
      sum.states += of.states, sum.bytes += of.bytes;
    }
    return sum;
  }

 private:
  struct Entry {
    UserKey key;
    int64_t version;
    Clock::time_point born;
    States states;
    bool was_asked_for;  ///< since the hand passed it
  };
  using Place = Sieve<Entry>::Place;
  using Entries = Sieve<Entry>::Entries;
  struct Hash {
    size_t operator()(const UserKey& key) const {
      return static_cast<size_t>(hash_table::fmix64(key.low ^ hash_table::fmix64(key.high + 1)));
    }
  };

 public:
  /// What the store takes for each state beside its bytes: a node of the list, one of the index with its place, the
  /// state's owner, and what an allocator adds to these and to the bytes.
  static constexpr int64_t record_bytes =
      static_cast<int64_t>(sizeof(Entry) + sizeof(KeptStates) + sizeof(UserKey) + 17 * sizeof(void*));

 private:
  static int64_t bytes_of(const States& states) { return static_cast<int64_t>(states->blob.size()) + record_bytes; }

  /// The states of some keys.
  struct alignas(64) Part {
    mutable std::mutex mutex;
    Sieve<Entry> entries;
    std::unordered_map<UserKey, Place, Hash> entry_of;
    int64_t version = 0;  ///< the newest
    UserStatesCounters counters;

    States miss() {
      ++counters.misses;
      return nullptr;
    }
    void remove(Place entry, Entries& gone) {
      counters.bytes -= bytes_of(entry->states);
      --counters.states;
      entry_of.erase(entry->key);
      entries.remove(entry, gone);
    }
    /// There is one.
    void evict(Clock::time_point oldest, Entries& gone) {
      const auto stays = [&](Entry& entry) {
        const bool is_of_use = entry.version == version && entry.born >= oldest;
        return is_of_use && std::exchange(entry.was_asked_for, false);
      };
      remove(*entries.first(stays), gone);
      ++counters.evicted;
    }
  };
  /// From `end` on, no state is given that was kept before or at `born`.
  struct Expiry {
    Clock::time_point end, born;
  };

  static const UserStatesOptions& checked(const UserStatesOptions& options) {
    Problems problems;
    if (options.parts < 1) problems.add("parts", "1 or more", std::to_string(options.parts));
    if (options.most_state_bytes < 1)
      problems.add("most_state_bytes", "1 or more", std::to_string(options.most_state_bytes));
    else if (options.most_bytes < options.most_state_bytes + record_bytes)
      problems.add("most_bytes",
                   "room for a state of " + std::to_string(options.most_state_bytes) + " bytes, and " +
                       std::to_string(record_bytes),
                   std::to_string(options.most_bytes));
    if (options.most_age <= std::chrono::milliseconds(0))
      problems.add("most_age", "above 0", std::to_string(options.most_age.count()) + " ms");
    problems.throw_if_any();
    return options;
  }

  Part& part_of(const UserKey& key) { return parts_[static_cast<size_t>(Hash{}(key) >> 32) % parts_.size()]; }

  /// When a state was kept, at least, that is given now.
  Clock::time_point oldest_at(Clock::time_point now) {
    if (now.time_since_epoch().count() >= next_expiry_.load(std::memory_order_acquire)) {
      const std::lock_guard<std::mutex> lock(expiry_mutex_);
      while (!expiries_.empty() && expiries_.front().end <= now) {
        const auto born = expiries_.front().born + Clock::duration(1);
        oldest_.store(born.time_since_epoch().count(), std::memory_order_release);
        expiries_.pop_front();
      }
      next_expiry_.store(
          expiries_.empty() ? Clock::duration::max().count() : expiries_.front().end.time_since_epoch().count(),
          std::memory_order_release);
    }
    const Clock::time_point changed{Clock::duration(oldest_.load(std::memory_order_acquire))};
    return std::max(changed, now - std::chrono::duration_cast<Clock::duration>(options_.most_age));
  }

  const UserStatesOptions options_;
  std::vector<Part> parts_;
  const int64_t most_part_bytes_;

  std::mutex expiry_mutex_;
  std::deque<Expiry> expiries_;  // by their ends, which come in the order of `born`
  std::atomic<Clock::rep> next_expiry_{Clock::duration::max().count()};
  std::atomic<Clock::rep> oldest_{Clock::duration::min().count()};
};

}}  // namespace warprank::v0
