// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#include "warprank/core/rest.hpp"

namespace warprank { inline namespace v0 {

/// Limits copies to a number of bytes per second, so that others keep their share of memory bandwidth and caches. It
/// also limits the thread that made it to its share of a core (rest.hpp).
class Pace {
 public:
  /// 0: no limit.
  explicit Pace(int64_t bytes_per_second = 0)
      : bytes_per_second_(bytes_per_second), has_share_(detail::Share::of_this_thread().value() < 1) {}

  bool is_limited() const { return bytes_per_second_ > 0 || has_share_; }

  /// Call it after each piece, from any thread; it waits until the next piece may be moved.
  void moved(int64_t bytes) {
    detail::rest();
    if (bytes_per_second_ == 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    Clock::time_point next;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      next_ = std::max(next_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
      next = next_;
    }
    std::this_thread::sleep_until(next);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const int64_t bytes_per_second_;
  const bool has_share_;
  std::mutex mutex_;
  Clock::time_point next_;
};

}}  // namespace warprank::v0
