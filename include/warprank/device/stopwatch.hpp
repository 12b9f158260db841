// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measures the time that a stream takes for its work between two places. For measurements, not for serving: reading it
/// waits.

#include <memory>

#include "warprank/core/on_cuda.hpp"
#include "warprank/device/runtime.hpp"

#if !defined(WARPRANK_ON_CUDA)
#include <chrono>
#endif

namespace warprank { inline namespace v0 { namespace device {

#if defined(WARPRANK_ON_CUDA)

class Stopwatch {
 public:
  void start(Stream stream) { check_cuda(cudaEventRecord(start_.get(), stream), "record an event"); }
  void stop(Stream stream) { check_cuda(cudaEventRecord(stop_.get(), stream), "record an event"); }
  /// Waits until the stream has reached stop().
  double seconds() const {
    check_cuda(cudaEventSynchronize(stop_.get()), "wait for an event");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), "read the time between two events");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  using Event = std::shared_ptr<CUevent_st>;
  static Event create() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "create an event");
    return {event, [](cudaEvent_t last) { cudaEventDestroy(last); }};
  }

  Event start_ = create(), stop_ = create();
};

#else

/// Measures the time of the executor, which tells nothing about a GPU.
class Stopwatch {
 public:
  void start(Stream stream) { start_ = now(stream); }
  void stop(Stream stream) { stop_ = now(stream); }
  double seconds() const { return std::chrono::duration<double>(stop_ - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::time_point now(Stream stream) {
    synchronize(stream);
    return Clock::now();
  }

  Clock::time_point start_, stop_;
};

#endif

}}}  // namespace warprank::v0::device
