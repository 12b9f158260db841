// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Threads that help another with the parts of one piece of work after the other.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace warprank { inline namespace v0 { namespace host_backend {

/// Tells the core that the thread only looks and looks again.
inline void look_again() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The calling thread and `size() - 1` others. Whoever is free takes the next part, so a thread that is late, because
/// it slept or its core is busy, delays nobody: the caller does what no other began. Threads without work look for some
/// microseconds for more, then sleep.
class Team {
 public:
  /// Throws std::system_error where the system gives no thread.
  explicit Team(int threads) {
    try {
      for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { help(); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Team() { end(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// body(part) for each part below `parts`, at most 65,535, each once and by any of the threads. Returns when all are
  /// done, and throws the first of their exceptions. Allocates nothing. For one caller at a time.
  template <class Body>
  void run(int parts, const Body& body) {
    body_ = &body;
    call_ = [](const void* of, int part) { (*static_cast<const Body*>(of))(part); };
    done_.store(0, std::memory_order_relaxed);
    const uint64_t number = turn_.load(std::memory_order_relaxed) >> 32;
    turn_.store(((number + 1) << 32) | (static_cast<uint64_t>(parts) << 16));
    if (sleeping_.load() > 0) {
      { const std::lock_guard<std::mutex> lock(mutex_); }  // who is about to sleep sees the turn or is woken
      wake_.notify_all();
    }
    while (do_part()) {
    }
    for (int looks = 0; done_.load(std::memory_order_acquire) != parts; ++looks) {
      if (looks < looks_before_yield) {
        look_again();
      } else {
        std::this_thread::yield();  // whoever has a part may wait for this core
      }
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr std::chrono::microseconds awake{100};  // after the last part
  static constexpr int looks_before_yield = 2000;

  static bool has_part(uint64_t turn) { return (turn & 0xffff) < (turn >> 16 & 0xffff); }

  /// False where all parts are taken.
  bool do_part() {
    uint64_t turn = turn_.load(std::memory_order_acquire);
    do {
      if (!has_part(turn)) return false;
    } while (!turn_.compare_exchange_weak(turn, turn + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    try {
      call_(body_, static_cast<int>(turn & 0xffff));
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    done_.fetch_add(1, std::memory_order_release);
    return true;
  }

  void help() {
    using Clock = std::chrono::steady_clock;
    while (!is_over_.load()) {
      while (do_part()) {
      }
      const auto until = Clock::now() + awake;
      while (!has_part(turn_.load()) && !is_over_.load() && Clock::now() < until)
        for (int i = 0; i < 16; ++i) look_again();
      if (has_part(turn_.load())) continue;
      std::unique_lock<std::mutex> lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [this] { return has_part(turn_.load()) || is_over_.load(); });
      --sleeping_;
    }
  }

  void end() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_.store(true);
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<uint64_t> turn_{0};  // its number, its parts, and the next part, of 32, 16 and 16 bits
  std::atomic<int> done_{0}, sleeping_{0};
  std::atomic<bool> is_over_{false};
  const void* body_ = nullptr;  // read by whoever has a part
  void (*call_)(const void*, int) = nullptr;
  std::mutex mutex_;  // guards error_, and who falls asleep
  std::condition_variable wake_;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}}}  // namespace warprank::v0::host_backend
