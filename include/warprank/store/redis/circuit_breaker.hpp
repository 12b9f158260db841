// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>

namespace warprank { inline namespace v0 { namespace redis {

/// Keeps callers from waiting for a node that does not answer: after some failures in a row no caller tries for a
/// pause, then one does, whose failure doubles the pause. For any threads at once.
class CircuitBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  struct Options {
    int failures = 3;  ///< in a row
    Duration first_pause = std::chrono::milliseconds(50);
    Duration longest_pause = std::chrono::seconds(5);
  };

  explicit CircuitBreaker(const Options& options) : options_(options) {}

  bool may_try(Time now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failures_ < options_.failures) return true;
    if (now < next_try_) return false;
    next_try_ = now + pause_;  // no other caller tries meanwhile
    return true;
  }
  /// Whether may_try would return false; tries nothing.
  bool is_open(Time now) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failures_ >= options_.failures && now < next_try_;
  }
  void succeeded() {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_ = 0;
    pause_ = {};
  }
  /// `random`, in [0, 1), makes the pauses of different callers differ: each takes 1/2 to 1 of its full length. `began`
  /// is the beginning of the try: a try that began before the last pause tells nothing new.
  void failed(Time began, Time now, double random) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (began < opened_) return;
    if (++failures_ < options_.failures) return;
    pause_ = std::min(options_.longest_pause, pause_ == Duration() ? options_.first_pause : 2 * pause_);
    opened_ = now;
    next_try_ = now + std::chrono::duration_cast<Duration>(pause_ * (0.5 + random / 2));
  }

 private:
  const Options options_;
  mutable std::mutex mutex_;
  int failures_ = 0;
  Duration pause_ = {};
  Time opened_ = {}, next_try_ = {};
};

}}}  // namespace warprank::v0::redis
