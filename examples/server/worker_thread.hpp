// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace kserve {

/// A thread for what takes long, one after the other. Its destructor waits until all is done.
class WorkerThread {
 public:
  WorkerThread() : thread_([this] { run(); }) {}
  ~WorkerThread() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stops_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  /// `work` must not throw.
  void add(std::function<void()> work) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      works_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stops_ || !works_.empty(); });
      if (works_.empty()) return;
      const std::function<void()> work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;  // what follows, up to stops_
  std::deque<std::function<void()>> works_;
  bool stops_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace kserve
