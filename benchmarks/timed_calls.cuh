// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The time of calls on a GPU, by events. Where the executor of kernels stands in for a GPU nothing is timed.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gpu_program.hpp"
#include "simulated.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank::bench {

/// What a benchmark queues for one call.
using Queue = std::function<void(device::Stream)>;

#if defined(__CUDACC__)
/// Some calls in a row, as often as wanted, and the shortest time of one of them in the mean over a row. Without
/// `flush` they follow each other, and find in the cache what the one before has left there. With it they do not, and
/// each is timed by itself, from an event before it to one behind it.
class TimedCalls {
 public:
  /// `is_captured`: in a graph, so that nothing depends on how fast the host launches.
  TimedCalls(Queue queue, Queue flush, bool is_captured)
      : queue_(std::move(queue)), flush_(std::move(flush)), is_captured_(is_captured) {
    if (is_simulated()) {
      prepare(1);
      return;
    }
    if (flush_) flush_(stream_.get());  // loads kernels, which a capture may not
    queue_(stream_.get());
    device::synchronize(stream_.get());
    prepare(1);
    run();
    constexpr double wanted = 5e-4, shortest = 1e-6;
    prepare(std::clamp<int64_t>(static_cast<int64_t>(wanted / std::max(seconds_, shortest)), 1, flush_ ? 10 : 50));
    run();
    seconds_ = std::numeric_limits<double>::infinity();
  }

  /// Returns the seconds of one call.
  double run() {
    if (is_simulated()) return simulate();
    if (!flush_) events_[0].record(stream_.get(), false);
    if (is_captured_) {
      graph_.launch(stream_.get());
    } else {
      queue_all();
    }
    if (!flush_) events_[1].record(stream_.get(), false);
    device::synchronize(stream_.get());
    double seconds = 0;
    for (size_t i = 0; i < events_.size(); i += 2) seconds += events_[i + 1].seconds_since(events_[i]);
    seconds /= static_cast<double>(num_calls_);
    seconds_ = std::min(seconds_, seconds);
    return seconds;
  }
  double seconds() const { return seconds_; }

 private:
  class TimingEvent {
   public:
    TimingEvent() {
      cudaEvent_t event = nullptr;
      check_cuda(cudaEventCreate(&event), "create an event");
      event_ = {event, [](cudaEvent_t last) { cudaEventDestroy(last); }};
    }
    void record(cudaStream_t stream, bool in_graph) const {
      check_cuda(
          cudaEventRecordWithFlags(event_.get(), stream, in_graph ? cudaEventRecordExternal : cudaEventRecordDefault),
          "record an event");
    }
    double seconds_since(const TimingEvent& before) const {
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, before.event_.get(), event_.get()), "read the time");
      return 1e-3 * static_cast<double>(milliseconds);
    }

   private:
    std::shared_ptr<CUevent_st> event_;
  };

  /// One call by the model, without a cache or behind another call.
  double simulate() {
    t4_time(1);
    if (flush_) {
      t4_cold();
    } else {
      t4_label("-");
      queue_(stream_.get());
      t4_label("");
    }
    events_[0].record(stream_.get(), false);
    queue_(stream_.get());
    events_[1].record(stream_.get(), false);
    t4_time(0);
    return seconds_ = events_[1].seconds_since(events_[0]);
  }

  void prepare(int64_t num_calls) {
    num_calls_ = num_calls;
    events_ = std::vector<TimingEvent>(flush_ ? static_cast<size_t>(2 * num_calls) : 2);
    if (is_simulated()) return;
    if (is_captured_) graph_ = device::Graph::capture(stream_.get(), [&] { queue_all(); });
  }
  void queue_all() {
    for (int64_t i = 0; i < num_calls_; ++i) {
      if (flush_) flush_(stream_.get()), events_[static_cast<size_t>(2 * i)].record(stream_.get(), is_captured_);
      queue_(stream_.get());
      if (flush_) events_[static_cast<size_t>(2 * i + 1)].record(stream_.get(), is_captured_);
    }
  }

  device::OwnedStream stream_;
  Queue queue_, flush_;
  bool is_captured_;
  int64_t num_calls_ = 1;
  std::vector<TimingEvent> events_;
  device::Graph graph_;
  double seconds_ = std::numeric_limits<double>::infinity();
};

#else
class TimedCalls {
 public:
  TimedCalls(const Queue&, const Queue&, bool) {}
  double run() { return seconds(); }
  double seconds() const { return 1; }
};
#endif

}  // namespace warprank::bench
