// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measurement on a GPU: calls captured into one graph, timed by events, in turns with copies of as many bytes.

#include <benchmark/benchmark.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "warprank/core/cuda_error.hpp"

namespace warprank::bench {

struct DeviceFree {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <class Value>
using DevicePointer = std::unique_ptr<Value[], DeviceFree>;

/// Zeros.
template <class Value>
DevicePointer<Value> allocate(int64_t size) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<size_t>(size) * sizeof(Value)), "allocate memory");
  check_cuda(cudaMemset(memory, 0, static_cast<size_t>(size) * sizeof(Value)), "fill memory");
  return DevicePointer<Value>(static_cast<Value*>(memory));
}
template <class Value>
DevicePointer<Value> upload(const std::vector<Value>& values) {
  auto memory = allocate<Value>(static_cast<int64_t>(values.size()));
  check_cuda(cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(Value), cudaMemcpyHostToDevice), "upload");
  return memory;
}

/// How many sets of `bytes` it takes until the first has left the cache when its turn comes again.
inline int64_t num_cold_sets(int64_t bytes) {
  int device = 0, cache = 0;
  check_cuda(cudaGetDevice(&device), "find the current device");
  check_cuda(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "find the size of the cache");
  return std::max<int64_t>(2, 4 * static_cast<int64_t>(cache) / std::max<int64_t>(bytes, 1));
}

/// A graph of queue(i, stream) for i in [0, num_calls), and the shortest time of one call.
class TimedGraph {
 public:
  template <class Queue>
  TimedGraph(int64_t num_calls, Queue queue) : num_calls_(num_calls) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
    check_cuda(cudaEventCreate(&begin_), "create an event");
    check_cuda(cudaEventCreate(&end_), "create an event");
    cudaGraph_t graph;
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin a capture");
    for (int64_t i = 0; i < num_calls; ++i) queue(i, stream_);
    check_cuda(cudaStreamEndCapture(stream_, &graph), "end a capture");
    check_cuda(cudaGraphInstantiateWithFlags(&executable_, graph, 0), "instantiate a graph");
    check_cuda(cudaGraphDestroy(graph), "free a graph");
    run();
    seconds_ = std::numeric_limits<double>::infinity();  // that was to warm up
  }
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;
  ~TimedGraph() {
    cudaGraphExecDestroy(executable_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  /// Returns the seconds of one call, in the mean over this graph.
  double run() {
    check_cuda(cudaEventRecord(begin_, stream_), "record an event");
    check_cuda(cudaGraphLaunch(executable_, stream_), "launch a graph");
    check_cuda(cudaEventRecord(end_, stream_), "record an event");
    check_cuda(cudaEventSynchronize(end_), "wait for an event");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "read the time");
    const double seconds = 1e-3 * milliseconds / static_cast<double>(num_calls_);
    seconds_ = std::min(seconds_, seconds);
    return seconds;
  }
  double seconds() const { return seconds_; }

 private:
  int64_t num_calls_;
  double seconds_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// Runs queue(i, stream), which reads and writes `bytes` of set i in all, in turns with a copy that moves as many.
template <class Queue>
void measure(benchmark::State& state, int64_t num_sets, int64_t bytes, Queue queue) {
  const auto from = allocate<unsigned char>(num_sets * bytes), to = allocate<unsigned char>(num_sets * bytes);
  TimedGraph calls(num_sets, queue);
  TimedGraph copies(num_sets, [&](int64_t i, cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(&to[i * bytes], &from[i * bytes], static_cast<size_t>(bytes / 2),
                               cudaMemcpyDeviceToDevice, stream),
               "copy");
  });
  for (auto _ : state) {
    copies.run();
    state.SetIterationTime(calls.run());
  }
  state.counters["min_us"] = calls.seconds() * 1e6;
  state.counters["GB/s"] = static_cast<double>(bytes) / calls.seconds() * 1e-9;
  state.counters["copy_fraction"] = copies.seconds() / calls.seconds();
}

}  // namespace warprank::bench
