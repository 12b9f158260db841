// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A thread for work that is not urgent, beside threads with urgent work.

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "warprank/core/rest.hpp"

namespace warprank { inline namespace v0 {

/// Which cores the work of a QuietThread gets.
enum class LoaderPriority {
  as_caller,  ///< the cores that its caller gets
  low,        ///< as of the nice value 19: some percent of a core that others want
  idle        ///< cores that no other thread wants; others take a core at once, and are placed as if it were free
};

namespace detail {

/// Threads that the calling thread makes from now on have its new priority, too. A thread without privileges cannot go
/// back, so use it for threads of one purpose. If the system refuses, the priority stays unchanged.
inline void lower_priority(LoaderPriority priority) {
  if (priority == LoaderPriority::as_caller) return;
  sched_param none = {};
  pthread_setschedparam(pthread_self(), priority == LoaderPriority::idle ? SCHED_IDLE : SCHED_BATCH, &none);
  if (priority == LoaderPriority::low) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
}

/// Runs one function after the other at a priority: with as_caller on the caller's thread, else with a share of a core.
/// For one thread at a time.
class QuietThread {
 public:
  explicit QuietThread(LoaderPriority priority, double share = 1) : priority_(priority), share_(share) {
    if (priority != LoaderPriority::as_caller) thread_ = std::thread([this] { work(); });
  }
  ~QuietThread() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  QuietThread(const QuietThread&) = delete;
  QuietThread& operator=(const QuietThread&) = delete;

  /// Whether it is not the caller's thread.
  bool is_apart() const { return thread_.joinable(); }

  /// Returns when the function is done, and passes its exception on.
  void run(std::function<void()> body) {
    if (!thread_.joinable()) return body();
    std::unique_lock<std::mutex> lock(mutex_);
    body_ = std::move(body);
    changed_.notify_all();
    changed_.wait(lock, [&] { return body_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void work() {
    lower_priority(priority_);
    Share::of_this_thread().set(share_);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_over_ || body_ != nullptr; });
      if (body_ == nullptr) return;
      std::function<void()> body = body_;
      lock.unlock();
      std::exception_ptr error;
      try {
        body();
      } catch (...) {
        error = std::current_exception();
      }
      body = nullptr;  // its captures are freed here, too
      lock.lock();
      error_ = error;
      body_ = nullptr;
      changed_.notify_all();
    }
  }

  const LoaderPriority priority_;
  const double share_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::function<void()> body_;
  std::exception_ptr error_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace detail
}}  // namespace warprank::v0
