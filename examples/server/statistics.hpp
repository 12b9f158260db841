// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What became of the requests to a model, as ModelStatistics and Prometheus are told.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "inference.pb.h"
#include "metrics.hpp"
#include "warprank/serving.hpp"

namespace kserve {

class Statistics {
 public:
  /// A request, and the seconds from when it came.
  void add(const warprank::Reply& reply, double seconds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reply.outcome != warprank::Outcome::scored) return failed_.add(seconds);
    scored_.add(seconds);
    waited_.add(reply.waited_seconds);
    computed_.add(reply.computed_seconds);
    seconds_.add(seconds);
    waited_seconds_.add(reply.waited_seconds);
    computed_seconds_.add(reply.computed_seconds);
    merged_.add(static_cast<double>(reply.merged));
    Batches& batches = by_size_[reply.merged];
    ++batches.requests;
    batches.seconds += reply.computed_seconds;
    last_ = std::chrono::system_clock::now();
  }

  void write(inference::ModelStatistics& to) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    inference::InferStatistics& all = *to.mutable_inference_stats();
    scored_.write(*all.mutable_success());
    failed_.write(*all.mutable_fail());
    waited_.write(*all.mutable_queue());
    computed_.write(*all.mutable_compute_infer());
    Sum none;
    none.count = scored_.count;  // packing and unpacking are in the total alone
    none.write(*all.mutable_compute_input());
    none.write(*all.mutable_compute_output());
    to.set_inference_count(static_cast<uint64_t>(scored_.count));
    int64_t num_batches = 0;
    for (const auto& [size, batches] : by_size_) {
      Sum sum;  // each of the requests of a batch has told its time
      sum.count = batches.requests / size;
      sum.seconds = batches.seconds / static_cast<double>(size);
      inference::InferBatchStatistics& of_size = *to.add_batch_stats();
      of_size.set_batch_size(static_cast<uint64_t>(size));
      sum.write(*of_size.mutable_compute_infer());
      num_batches += sum.count;
    }
    to.set_execution_count(static_cast<uint64_t>(num_batches));
    const auto last = std::chrono::duration_cast<std::chrono::milliseconds>(last_.time_since_epoch());
    to.set_last_inference(static_cast<uint64_t>(last.count()));
  }

  void write(MetricsText& to, const MetricsText::Labels& labels) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto add = [&](const char* name, const auto& histogram, const char* help) {
      to.begin(name, "histogram", help);
      to.add(histogram, labels);
    };
    add("warprank_request_seconds", seconds_, "From the call to the reply, of requests that were scored.");
    add("warprank_queue_seconds", waited_seconds_, "Until the batch of a request was put together.");
    add("warprank_compute_seconds", computed_seconds_, "From then on until it was scored.");
    add("warprank_merged_requests", merged_, "Requests in the batch of a request.");
  }

 private:
  static constexpr std::array<double, 14> seconds_bounds = {100e-6, 250e-6, 500e-6, 1e-3, 2e-3, 3e-3, 5e-3,
                                                            10e-3,  20e-3,  50e-3,  0.1,  0.25, 1,    5};
  static constexpr std::array<double, 8> merged_bounds = {1, 2, 4, 8, 16, 32, 64, 128};

  struct Sum {
    int64_t count = 0;
    double seconds = 0;

    void add(double more) {
      ++count;
      seconds += more;
    }
    void write(inference::StatisticDuration& to) const {
      to.set_count(static_cast<uint64_t>(count));
      to.set_ns(static_cast<uint64_t>(1e9 * seconds));
    }
  };
  struct Batches {
    int64_t requests = 0;
    double seconds = 0;
  };

  mutable std::mutex mutex_;  // what follows
  Sum scored_, failed_, waited_, computed_;
  Histogram<14> seconds_{seconds_bounds}, waited_seconds_{seconds_bounds}, computed_seconds_{seconds_bounds};
  Histogram<8> merged_{merged_bounds};
  std::map<int64_t, Batches> by_size_;  // by requests in a batch
  std::chrono::system_clock::time_point last_;
};

}  // namespace kserve
