// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A thread that exchanges the model again and again while a service is measured.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "load.hpp"
#include "warprank/serving.hpp"

namespace serving {

/// When models are exchanged; never by default.
struct SwapTimes {
  double every = 0;         ///< seconds from the end of a swap to the next one
  double slot = 0;          ///< or: one swap at the beginning of each second slot of as many seconds
  Clock::time_point begin;  ///< of the first slot, which has none
};

/// A swap that was made; times in seconds since SwapTimes::begin.
struct Swapped {
  double began = 0, ended = 0;
};

class Swapper {
 public:
  /// The models take turns, by version: the last one serves first.
  Swapper(warprank::ServedModel& served, std::vector<warprank::NextModel> models, warprank::SwapMode mode,
          SwapTimes times, warprank::SwapOptions options)
      : times_(times) {
    if (times.every == 0 && times.slot == 0) return;
    thread_ = std::thread([this, &served, mode, models = std::move(models), options = std::move(options)] {
      try {
        while (wait_until(next())) {
          const double began = since_begin();
          served.swap(models[static_cast<size_t>(served.version() - 1) % models.size()], mode, options);
          swaps_.push_back({began, since_begin()});
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
  std::vector<Swapped> stop() {
    join();
    if (error_) std::rethrow_exception(error_);
    return swaps_;
  }

 private:
  double since_begin() const { return std::chrono::duration<double>(Clock::now() - times_.begin).count(); }

  Clock::time_point next() const {
    if (times_.slot == 0) return Clock::now() + to_duration(times_.every);
    const double slot = std::floor(std::max(since_begin(), 0.0) / times_.slot);
    return times_.begin + to_duration(times_.slot * (2 * std::floor((slot + 1) / 2) + 1));
  }
  /// False when it is to stop.
  bool wait_until(Clock::time_point time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return !changed_.wait_until(lock, time, [&] { return stops_; });
  }
  void join() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  const SwapTimes times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::vector<Swapped> swaps_;  // the thread's until it has ended
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace serving
