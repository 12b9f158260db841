// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Users' states in the memory of a device, so that batches about known users need not send them. Plain C++, no device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/sieve.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/kept_states.hpp"

namespace warprank { inline namespace v0 {

struct DeviceStatesOptions {
  int64_t most_bytes = 0;  ///< of the device's memory; 0: no state is kept there
  /// Smaller states are sent with each batch: a kernel of its own brings those that are kept, which takes some 3 us,
  /// as long as 32 KB take on the bus of a T4 (estimated, not measured).
  int64_t least_state_bytes = 32 << 10;
};

/// Since the store was made, but for the last two.
struct DeviceStatesCounters {
  int64_t hits = 0;        ///< states that a batch has read in the device's memory
  int64_t misses = 0;      ///< states that a batch was sent with, of least_state_bytes or more
  int64_t sent_bytes = 0;  ///< of misses
  int64_t evicted = 0;     ///< states that made room
  int64_t refused = 0;     ///< misses that found no room
  int64_t states = 0;      ///< now
  int64_t bytes = 0;       ///< now, of all pages that states have
};

/// A bounded store of states in pages of one size, so that states of any size leave no gaps that others cannot use. The
/// host keeps all states, too: this saves their way to the device. A batch that brings a state stores it; batches that
/// begin once that one is done read it. Any threads use it at once; a lock is held for a look-up alone. What goes first
/// is chosen by SIEVE (core/sieve.hpp), and never what a batch under way reads or stores.
///
///     DeviceStates kept(model.tables().device(), {int64_t{1} << 30});
///     divided_batch.run(users, items, &kept);
class DeviceStates {
 public:
  static constexpr int64_t page_bytes = 4096;

  /// Takes its memory from the device at once. Throws invalid_argument for options below 0 or for less than a page, and
  /// on the host; throws out_of_device_memory.
  DeviceStates(const Device& device, const DeviceStatesOptions& options)
      : DeviceStates(device.engine->allocate(device.index, checked(options).most_bytes, "states of users"), options) {}
  /// `memory`: [most_bytes] of the device, aligned to 8 bytes.
  DeviceStates(std::shared_ptr<std::byte> memory, const DeviceStatesOptions& options)
      : options_(checked(options)), memory_(std::move(memory)) {
    for (int64_t page = num_pages(); page-- > 0;) free_.push_back(page);
  }

  /// body(in_section, bytes, at) for the bytes of a section on each of the pages of its states, `at` of memory().
  template <class Body>
  static void for_each_page(const StateSection& section, Span<const int64_t> pages, Body&& body) {
    for (int64_t done = 0; done < section.bytes;) {
      const int64_t at = section.in_states + done, in_page = at % page_bytes;
      const int64_t bytes = std::min(page_bytes - in_page, section.bytes - done);
      body(done, bytes, pages[at / page_bytes] * page_bytes + in_page);
      done += bytes;
    }
  }

  /// All pages.
  Span<std::byte> memory() const { return {memory_.get(), num_pages() * page_bytes}; }

  DeviceStatesCounters counters() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counters_;
  }

 private:
  struct Entry {
    uint64_t number;  ///< of the KeptStates
    std::vector<int64_t> pages;
    int batches = 0;             ///< that are under way and read or store it
    bool is_there = false;       ///< the batch that stores it is done
    bool was_asked_for = false;  ///< since the hand passed it
  };
  using Place = Sieve<Entry>::Place;

 public:
  /// The states of one batch. Their pages are no other states' until it is destroyed, which is when the batch is done.
  class InUse {
   public:
    /// `all` outlives it.
    explicit InUse(DeviceStates& all) : all_(all) {}
    ~InUse() { all_.end(*this); }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

    /// Where states are, or are to be stored.
    struct Pages {
      Span<const int64_t> pages;  ///< by number; none: the batch sends these states, and they are not stored
      bool is_there = false;      ///< they are read there; else the batch sends them, and they are stored there
    };
    Pages add(const KeptStates& states) { return all_.add(states, *this); }
    /// The states that were added last, and were to be stored, are not sent.
    void drop_last() { all_.drop_last(*this); }
    /// The batch was scored: what it stored is there. Without this call that is forgotten.
    void succeed() { all_.succeed(*this); }

   private:
    friend class DeviceStates;

    DeviceStates& all_;
    std::vector<Place> read_, stored_;
  };

 private:
  static const DeviceStatesOptions& checked(const DeviceStatesOptions& options) {
    Problems problems;
    if (options.most_bytes < page_bytes)
      problems.add("most_bytes", "a page of " + std::to_string(page_bytes) + " bytes or more",
                   std::to_string(options.most_bytes));
    if (options.least_state_bytes < 0)
      problems.add("least_state_bytes", "0 or more", std::to_string(options.least_state_bytes));
    problems.throw_if_any();
    return options;
  }

  InUse::Pages add(const KeptStates& states, InUse& batch) {
    const auto bytes = static_cast<int64_t>(states.blob.size());
    if (states.number == 0 || bytes == 0 || bytes < options_.least_state_bytes) return {};
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = place_of_.find(states.number);
    if (found != place_of_.end() && found->second->is_there) {
      Entry& entry = *found->second;
      batch.read_.push_back(found->second);
      ++entry.batches;
      entry.was_asked_for = true;
      ++counters_.hits;
      return {entry.pages, true};
    }
    ++counters_.misses;
    counters_.sent_bytes += bytes;
    if (found != place_of_.end()) return {};  // another request or batch stores it
    const auto needed = static_cast<size_t>((bytes + page_bytes - 1) / page_bytes);
    if (!make_room(needed)) {
      ++counters_.refused;
      return {};
    }
    const Place place = entries_.add({states.number, {free_.end() - static_cast<int64_t>(needed), free_.end()}, 1});
    free_.resize(free_.size() - needed);
    place_of_.emplace(states.number, place);
    batch.stored_.push_back(place);
    ++counters_.states;
    counters_.bytes += static_cast<int64_t>(needed) * page_bytes;
    return {place->pages, false};
  }
  void succeed(InUse& batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Place place : batch.stored_) place->is_there = true;
  }
  void drop_last(InUse& batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    remove(batch.stored_.back());
    batch.stored_.pop_back();
  }
  void end(InUse& batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Place place : batch.read_) --place->batches;
    for (const Place place : batch.stored_) {
      --place->batches;
      if (!place->is_there) remove(place);
    }
  }

  int64_t num_pages() const { return options_.most_bytes / page_bytes; }
  bool make_room(size_t needed) {
    if (static_cast<int64_t>(needed) > num_pages()) return false;
    const auto stays = [](Entry& entry) { return entry.batches > 0 || std::exchange(entry.was_asked_for, false); };
    while (free_.size() < needed) {
      const auto first = entries_.first(stays);
      if (!first) return false;
      remove(*first);
      ++counters_.evicted;
    }
    return true;
  }
  void remove(Place place) {
    free_.insert(free_.end(), place->pages.begin(), place->pages.end());
    --counters_.states;
    counters_.bytes -= static_cast<int64_t>(place->pages.size()) * page_bytes;
    place_of_.erase(place->number);
    Sieve<Entry>::Entries gone;
    entries_.remove(place, gone);
  }

  const DeviceStatesOptions options_;
  const std::shared_ptr<std::byte> memory_;

  mutable std::mutex mutex_;   // guards the members below
  std::vector<int64_t> free_;  // pages
  Sieve<Entry> entries_;
  std::unordered_map<uint64_t, Place> place_of_;
  DeviceStatesCounters counters_;
};

}}  // namespace warprank::v0
