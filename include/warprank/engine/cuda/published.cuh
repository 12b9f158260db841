// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Numbers batches, and waits until one was published (publish.cuh).

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>

#include "warprank/core/error.hpp"
#include "warprank/device/event.hpp"
#include "warprank/device/owned_memory.hpp"
#include "warprank/engine/cuda/publish.cuh"
#include "warprank/engine/engine.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline const ContextOptions& checked_wait(const ContextOptions& options) {
  if (options.spin_seconds >= 0 && std::isfinite(options.spin_seconds)) return options;
  throw invalid_argument("ContextOptions::spin_seconds", "0 or more seconds", std::to_string(options.spin_seconds));
}
/// Whether it waits by looking without a rest at all.
inline bool spins(const ContextOptions& options) {
  return options.wait == Wait::spin || (options.wait == Wait::spin_then_sleep && options.spin_seconds > 0);
}
inline std::string text_of_wait(const ContextOptions& options) {
  if (!spins(options)) {
    return options.wait == Wait::sleep ? "sleeps between looks" : "sleeps between looks, as spin_seconds is 0";
  }
  if (options.wait == Wait::spin) return "spins";
  return "spins for " + std::to_string(std::lround(options.spin_seconds * 1e6)) + " us, then sleeps between looks";
}

/// A place among the threads that may spin while others of the process need cores, too: half as many as there are
/// cores. With 32 threads that spin on 16 cores, p99 was 13 times what it is with 16 (H100).
class SpinningPlace {
 public:
  explicit SpinningPlace(bool wanted) : is_taken_(wanted && count().fetch_add(1) < most()), wanted_(wanted) {}
  ~SpinningPlace() {
    if (wanted_) count().fetch_sub(1);
  }
  SpinningPlace(const SpinningPlace&) = delete;
  SpinningPlace& operator=(const SpinningPlace&) = delete;
  bool is_taken() const { return is_taken_; }

 private:
  static std::atomic<int>& count() {
    static std::atomic<int> spinning{0};
    return spinning;
  }
  static int most() {
    static const int half = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
    return half;
  }

  const bool is_taken_, wanted_;
};

/// Of one context: one batch at a time.
class Published {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  Published() = default;  ///< to be assigned to
  static Published make() {
    Published made;
    made.flag_ = device::PinnedMemory(sizeof(uint32_t), "a context's flag");
    made.flag() = 0;
    return made;
  }

  /// For a part of a batch; the flag that the last part sets is for the batch.
  Publish next(float* to, const float* from, int64_t count, uint32_t* ticket, bool is_last) {
    if (!is_last) return {to, from, count, ticket, nullptr, 0};
    ++number_, queued_ = Clock::now();
    return {to, from, count, ticket, static_cast<uint32_t*>(flag_.data()), number_};
  }
  bool is_done() const { return flag().load(std::memory_order_acquire) == number_; }

  /// Returns when the last batch was published; throws what went wrong before `done`, which is recorded behind it.
  /// `expected` is how many seconds such batches take at least, and becomes what was seen of it; 0: unknown.
  void wait(const ContextOptions& options, const device::Event& done, double& expected) const {
    done.relax();
    if (is_done()) return;
    constexpr double wakes_up_within = 100e-6, worth_it = 200e-6;
    if (options.wait != Wait::spin && expected > worth_it)
      std::this_thread::sleep_until(queued_ + clocks(expected - wakes_up_within));
    if (!spin(options, done)) {
      while (!is_done() && !done.is_done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    const double took = Seconds(Clock::now() - queued_).count();
    expected = took < expected || expected == 0 ? took : expected + (took - expected) / 16;
  }

  int64_t pinned_bytes() const { return flag_.bytes(); }

 private:
  static Clock::duration clocks(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  }

  /// Whether it was published, or is done, before the time to look without a rest was over.
  bool spin(const ContextOptions& options, const device::Event& done) const {
    const bool is_limited = options.wait != Wait::spin;
    const SpinningPlace place(is_limited && spins(options));
    if (is_limited && !place.is_taken()) return false;
    const double seconds = is_limited ? options.spin_seconds : std::numeric_limits<double>::infinity();
    const auto begin = Clock::now();
    for (double asked = 0;;) {
      for (int looks = 0; looks < 64; ++looks) {
        if (is_done()) return true;
        done.relax();
      }
      const double passed = Seconds(Clock::now() - begin).count();
      if (passed >= seconds) return false;
      if (passed < asked + 1e-3) continue;
      asked = passed;  // a batch that went wrong is never published
      if (done.is_done()) return true;
    }
  }

  std::atomic<uint32_t>& flag() const { return *static_cast<std::atomic<uint32_t>*>(flag_.data()); }

  device::PinnedMemory flag_;
  uint32_t number_ = 0;
  Clock::time_point queued_;
};

}}}  // namespace warprank::v0::cuda_backend
