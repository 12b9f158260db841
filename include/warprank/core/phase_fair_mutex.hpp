// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace warprank { inline namespace v0 {

/// A mutex that many threads share or one thread owns, without starvation. A thread that wants to share it while
/// another waits to own it comes after that one; then all threads that wait to share it come before the next owner.
/// (std::shared_mutex leaves this open; on Linux, a thread that wants to own it may wait for ever.) For
/// std::shared_lock and std::unique_lock; no thread may share it twice.
class PhaseFairMutex {
 public:
  PhaseFairMutex() = default;
  PhaseFairMutex(const PhaseFairMutex&) = delete;
  PhaseFairMutex& operator=(const PhaseFairMutex&) = delete;

  void lock_shared() {
    std::unique_lock<std::mutex> state(state_);
    if (!is_taken_ && waiting_for_it_ == 0) {
      ++sharing_;
      return;
    }
    ++waiting_to_share_;
    const uint64_t phase = phase_;
    shared_.wait(state, [&] { return phase_ != phase; });  // the thread that ended the phase has counted us in
  }
  void unlock_shared() {
    const std::lock_guard<std::mutex> state(state_);
    if (--sharing_ == 0 && waiting_for_it_ > 0) free_.notify_one();
  }

  void lock() {
    std::unique_lock<std::mutex> state(state_);
    ++waiting_for_it_;
    free_.wait(state, [&] { return !is_taken_ && sharing_ == 0; });
    --waiting_for_it_;
    is_taken_ = true;
  }
  void unlock() {
    const std::lock_guard<std::mutex> state(state_);
    is_taken_ = false;
    ++phase_;
    sharing_ += waiting_to_share_;
    waiting_to_share_ = 0;
    if (sharing_ > 0) {
      shared_.notify_all();
    } else if (waiting_for_it_ > 0) {
      free_.notify_one();
    }
  }

 private:
  std::mutex state_;
  std::condition_variable shared_, free_;
  int64_t sharing_ = 0, waiting_to_share_ = 0, waiting_for_it_ = 0;
  uint64_t phase_ = 0;  // the number of times that one thread has owned it
  bool is_taken_ = false;
};

}}  // namespace warprank::v0
