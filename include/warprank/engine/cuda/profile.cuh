// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What each step of a run takes on a GPU.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "warprank/device/empty_kernel.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/stopwatch.hpp"
#include "warprank/engine/cuda/run_set.cuh"
#include "warprank/engine/profile.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Runs of the same, captured in a row; the shortest time that one of them took.
class TimedGraph {
 public:
  template <class QueueOne>
  TimedGraph(int runs, device::Stream stream, QueueOne queue_one)
      : runs_(runs), graph_(device::Graph::capture(stream, [&] {
          for (int i = 0; i < runs; ++i) queue_one();
        })) {}

  int num_kernels() const { return graph_.num_kernels() / runs_; }
  double seconds() const { return seconds_; }
  /// Takes a turn. Behind the same once more, so that the device need not wait for the host within what is timed.
  void run(device::Stopwatch& stopwatch, device::Stream stream) {
    graph_.launch(stream);
    stopwatch.start(stream);
    graph_.launch(stream);
    stopwatch.stop(stream);
    seconds_ = std::min(seconds_, stopwatch.seconds() / runs_);
  }

 private:
  int runs_;
  device::Graph graph_;
  double seconds_ = std::numeric_limits<double>::infinity();
};

/// Of a run whose batch is on the device and which ran before.
inline Profile profile_of(const PreparedRun& run, const ProfileOptions& options, device::Stream stream) {
  std::vector<TimedGraph> first;  // of the first 1, 2, ... steps
  for (size_t count = 1; count <= run.steps().size(); ++count)
    first.emplace_back(options.runs, stream, [&] { run.queue(stream, count); });
  const int num_launches = first.empty() ? 0 : first.back().num_kernels();
  device::launch_empty(stream);  // loads it, which a capture must not wait for
  device::synchronize(stream);
  TimedGraph empty(options.runs, stream, [&] {
    for (int i = 0; i < num_launches; ++i) device::launch_empty(stream);
  });
  device::Stopwatch stopwatch;
  const struct Settled {  // graphs are not destroyed while they run, whatever is thrown
    device::Stream stream;
    ~Settled() { settle(stream); }
  } settled{stream};
  for (int turn = 0; turn < options.turns; ++turn) {
    empty.run(stopwatch, stream);
    for (TimedGraph& graph : first) graph.run(stopwatch, stream);  // all steps last, as a run leaves things
  }

  Profile profile;
  int launches_before = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    const PreparedStep& step = run.steps()[i];
    const double until = std::max(first[i].seconds(), profile.seconds);  // of times so close, noise decides
    profile.steps.push_back(
        {step.name, step.kernel, first[i].num_kernels() - launches_before, until - profile.seconds});
    launches_before = first[i].num_kernels();
    profile.seconds = until;
  }
  if (num_launches > 0) profile.empty_seconds = empty.seconds();
  return profile;
}

}}}  // namespace warprank::v0::cuda_backend
