// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "warprank/core/quiet_thread.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Calls a function again and again, with pauses, on a thread that gives way to others, until it is destroyed. An
/// exception of the call is kept for the owner, and the next call still comes.
class RepeatingThread {
 public:
  RepeatingThread(std::function<void()> body, double pause_seconds)
      : body_(std::move(body)), pause_(pause_seconds), thread_([this] { work(); }) {}
  ~RepeatingThread() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  RepeatingThread(const RepeatingThread&) = delete;
  RepeatingThread& operator=(const RepeatingThread&) = delete;

  /// Throws the exception of the last failed call, once.
  void rethrow() {
    std::exception_ptr thrown;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      thrown = std::exchange(thrown_, nullptr);
    }
    if (thrown) std::rethrow_exception(thrown);
  }

 private:
  void work() {
    lower_priority(LoaderPriority::low);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!over_.wait_for(lock, pause_, [this] { return is_over_; })) {
      lock.unlock();
      std::exception_ptr thrown;
      try {
        body_();
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown) thrown_ = thrown;
    }
  }

  const std::function<void()> body_;
  const std::chrono::duration<double> pause_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;  // mutex_'s, as what follows
  std::exception_ptr thrown_;
  std::thread thread_;
};

}}}  // namespace warprank::v0::detail
