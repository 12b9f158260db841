// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pauses of threads that must not take all of a core, even if no other thread wants it.

#include <time.h>

#include <chrono>
#include <thread>

namespace warprank { inline namespace v0 { namespace detail {

/// A thread's allowed share of a core's time, in (0, 1], and the time that it has taken.
class Share {
 public:
  static Share& of_this_thread() {
    static thread_local Share share;
    return share;
  }

  double value() const { return value_; }
  void set(double value) {
    value_ = value;
    rested_at_ = now();
  }

  /// Sleeps until the time taken since the last rest is within the share.
  void rest() {
    if (value_ >= 1) return;
    constexpr double least = 5e-4;  // a sleep costs some microseconds
    const double taken = now() - rested_at_;
    if (taken < least) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(taken * (1 / value_ - 1)));
    rested_at_ = now();
  }

 private:
  /// Seconds of processor time.
  static double now() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  double value_ = 1;
  double rested_at_ = 0;
};

/// Called by long work between its pieces: does nothing but in threads that have a share of a core.
inline void rest() { Share::of_this_thread().rest(); }

}}}  // namespace warprank::v0::detail
