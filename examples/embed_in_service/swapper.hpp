// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A thread that exchanges the model again and again while a service is measured.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/serving.hpp"

namespace serving {

struct SwapTimes {
  int64_t count = 0;
  double longest_ms = 0;
};

class Swapper {
 public:
  /// Waits `every` seconds, swaps, and so on; does nothing when `every` is 0. The models take turns, by version: the
  /// last one serves first.
  Swapper(warprank::ServedModel& served, std::vector<warprank::NextModel> models, warprank::SwapMode mode, double every,
          warprank::SwapOptions options) {
    if (every == 0) return;
    thread_ = std::thread([this, &served, mode, every, models = std::move(models), options = std::move(options)] {
      try {
        while (wait(every)) {
          const Clock::time_point begin = Clock::now();
          served.swap(models[static_cast<size_t>(served.version() - 1) % models.size()], mode, options);
          const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
          ++times_.count;
          times_.longest_ms = std::max(times_.longest_ms, took.count());
        }
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  }
  ~Swapper() { join(); }
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

  /// Lets the swap under way end. Throws what a swap threw.
  SwapTimes stop() {
    join();
    if (error_) std::rethrow_exception(error_);
    return times_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// False when it is to stop.
  bool wait(double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    return !changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stops_; });
  }
  void join() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  SwapTimes times_;  // the thread's until it has ended
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace serving
