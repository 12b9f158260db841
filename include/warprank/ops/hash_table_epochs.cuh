// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tells when memory that updates of hash tables have retired may be used again.
///
///     hash_table::Epochs epochs;               // of one table, or of all tables of a store
///     epochs.add_reader(serving_stream);       // before it looks anything up; once for each stream
///
///     const auto epoch = epochs.begin();       // never waits
///     hash_table::insert_or_assign(table, keys, rows, stride, epoch, statuses, update_stream);
///     epochs.end(update_stream);
///
/// Readers need no call, lock or event for it. An epoch becomes safe in two steps; `begin` and `poll` see both by
/// querying events. First the epoch's updates are done. Then an event is recorded in every registered stream. When all
/// these events are done, all readers that may have seen the retired memory are done, too; later work in the streams
/// starts after the updates.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/device/event.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/update.hpp"

namespace warprank { inline namespace v0 { namespace hash_table {

/// Numbers updates, and knows which are safe. Any thread may call; calls are short and wait only for each other.
class Epochs {
 public:
  /// From now on, look-ups and exports are launched in this stream. Launches in streams that are not registered must
  /// not read tables that are updated. While a registered stream is being captured, no other function may be called.
  /// Throws invalid_argument for a stream that is registered already.
  void add_reader(device::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::count(readers_.begin(), readers_.end(), stream) != 0) {
      raise(invalid_argument("epochs: reader", "a stream that is not registered", "one that is"));
    }
    readers_.push_back(stream);
  }

  /// Nothing reads tables in this stream any more, and all earlier readers in it are done. Throws invalid_argument for
  /// a stream that is not registered.
  void remove_reader(device::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find(readers_.begin(), readers_.end(), stream);
    if (found == readers_.end()) raise(invalid_argument("epochs: reader", "a registered stream", "another one"));
    readers_.erase(found);
  }

  /// Begins an epoch. Call `end` behind the updates that are launched with it, before the next epoch begins. Throws
  /// invalid_argument if the epoch before has no end, and after 2^34 - 1 epochs.
  Epoch begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (begun_) raise(invalid_argument("epochs: begin", "an end of the epoch before", "none"));
    if (current_ == max_epoch) {
      raise(invalid_argument("epochs: begin", "at most 2^34 - 1 epochs", "more: load the tables anew"));
    }
    advance();
    begun_ = true;
    return {++current_, safe_};
  }

  /// Ends the epoch, whose updates are all in this stream. Throws invalid_argument if no epoch has begun.
  void end(device::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!begun_) raise(invalid_argument("epochs: end", "an epoch that has begun", "none"));
    updating_.emplace_back(current_, record(stream));
    begun_ = false;
  }

  /// Queries the events. Returns the latest epoch that is safe.
  uint64_t poll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    advance();
    return safe_;
  }

 private:
  device::Event record(device::Stream stream) {
    device::Event event = spare_.empty() ? device::Event() : spare_.back();
    if (!spare_.empty()) spare_.pop_back();
    event.record(stream);
    return event;
  }

  void advance() {
    leave_readers_behind();
    if (!reading_.empty() || updating_.empty() || !updating_.front().second.is_done()) return;
    // Updates of several epochs that are done wait for readers together.
    while (!updating_.empty() && updating_.front().second.is_done()) {
      updated_ = updating_.front().first;
      for (const device::Stream reader : readers_) updating_.front().second.wait_in(reader);
      spare_.push_back(updating_.front().second);
      updating_.pop_front();
    }
    for (const device::Stream reader : readers_) reading_.push_back(record(reader));
    leave_readers_behind();
  }

  void leave_readers_behind() {
    while (!reading_.empty() && reading_.back().is_done()) {
      spare_.push_back(reading_.back());
      reading_.pop_back();
    }
    if (reading_.empty()) safe_ = updated_;
  }

  std::mutex mutex_;
  std::vector<device::Stream> readers_;
  std::deque<std::pair<uint64_t, device::Event>> updating_;  // epochs that have ended, oldest first
  std::vector<device::Event> reading_;                       // in streams that may still read what was retired
  std::vector<device::Event> spare_;
  uint64_t current_ = 0, updated_ = 0, safe_ = 0;
  bool begun_ = false;
};

}}}  // namespace warprank::v0::hash_table
