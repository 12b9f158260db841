// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measurement on a GPU. A benchmark is a function that makes its data, and says what to run and what to hold it
/// against:
///
///     void fm(bench::Run& run, int64_t items) {
///       const half* x = run.upload(values);
///       half* y = run.allocate<half>(items);
///       run.measure({bytes, flops}, {[=](device::Stream s) { ... }, [=, &run] { ... throws WrongResult ... }},
///                   {{"unfused", {queue, check}}});
///     }
///     void bench::add_benchmarks() { bench::add("fm/items:100", [](bench::Run& run) { fm(run, 100); }); }
///
/// Each is measured twice: <name>/cold, where the cache is flushed before every call, and <name>/warm, where calls
/// follow each other. All that is compared runs in turns, and the shortest time of each counts. Counters:
///
///     min_us           of one call
///     bytes            that must be read or written, each counted once;     requested_bytes  as often as asked for
///     flops            of tensor cores
///     GB/s             bytes / min_us
///     copy_fraction    the time of a copy that reads and writes as many bytes / min_us
///     copy_GB/s        of large copies, in this run
///     tensor_fraction  flops / min_us, of what a kernel with nothing but mma reaches in this run, tensor_TFLOP/s
///     x_<name>         the time of a baseline / min_us
///
/// Of a sweep, which compares ways to do the same, Run::compare gives each way's time, warm alone: us <way>.
///
/// The same source runs on the executor of kernels (target executor_benchmarks), small, once and untimed: so set-up,
/// launches and checks are tried without a GPU.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "device_rates.cuh"
#include "gpu_program.hpp"
#include "simulated.hpp"
#include "timed_calls.cuh"
#include "warprank/core/cuda_error.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/ops/contract.hpp"

namespace warprank::bench {

/// Calls one after another.
inline Queue in_sequence(std::vector<Queue> queues) {
  return [queues = std::move(queues)](device::Stream stream) {
    for (const Queue& queue : queues) queue(stream);
  };
}

/// Of one call.
struct Work {
  double bytes = 0, flops = 0;
  double requested_bytes = 0;  ///< 0: as `bytes`
};

/// What is timed, once `check` has found its result right.
struct Call {
  Queue queue;
  std::function<void()> check;
  bool is_captured = true;  ///< its launches may be captured into a graph
};
struct Baseline {
  std::string name;
  Call call;
};

/// Memory that lasts as long as a benchmark.
class Memory {
 public:
  /// Zeros.
  template <class Value>
  Value* allocate(int64_t count) {
    const int64_t bytes = std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(Value));
    memory_.emplace_back(bytes, "benchmark");
    device::fill(memory_.back().data(), 0, bytes, stream_.get());
    device::synchronize(stream_.get());
    return static_cast<Value*>(memory_.back().data());
  }
  template <class Value>
  Value* upload(const Value* values, int64_t count) {
    Value* to = allocate<Value>(count);
    device::copy_to_device(to, values, count * static_cast<int64_t>(sizeof(Value)), stream_.get());
    device::synchronize(stream_.get());
    return to;
  }
  template <class Value>
  Value* upload(const std::vector<Value>& values) {
    return upload(values.data(), static_cast<int64_t>(values.size()));
  }
  unsigned char* upload(Span<const unsigned char> bytes) { return upload(bytes.data(), bytes.size()); }
  template <class Value>
  std::vector<Value> read(const Value* from, int64_t count) const {
    std::vector<Value> values(static_cast<size_t>(count));
    device::copy_to_host(values.data(), from, count * static_cast<int64_t>(sizeof(Value)), stream_.get());
    device::synchronize(stream_.get());
    return values;
  }
  device::Stream stream() const { return stream_.get(); }

 private:
  device::OwnedStream stream_;
  std::vector<device::DeviceMemory> memory_;
};

/// Launches of a primitive, with memory that lasts as long as the benchmark.
template <class Launch>
Queue queue_launch(Memory& memory, Launch launch) {
  void* const workspace = memory.allocate<unsigned char>(launch.workspace_bytes());
  const LaunchMemory of_launch{memory.upload(launch.descriptors(workspace)), workspace};
  return [launch = std::make_shared<const Launch>(std::move(launch)), of_launch](device::Stream stream) {
    launch->launch(of_launch, stream);
  };
}

/// What this card can do now; its memory lasts as long as the program.
class Card {
 public:
  static Card& current() {
    static Card& card = *new Card;  // goes with the program: when statics are destroyed CUDA may be no more
    return card;
  }
  Queue flush() {
    return [this](device::Stream stream) {
      device::launch({num_blocks_, 512, 0, stream}, read_kernel, zeros_, num_zeros_ / 4, never_written_);
    };
  }
  void run() { copy_.run(), rate_calls_.run(); }
  /// For calls that share it: nothing here runs beside something else.
  void* workspace() { return workspace_; }
  static constexpr int64_t workspace_bytes = on_gpu ? 32 << 20 : 1;
  double copied_bytes_per_second() const { return 2 * static_cast<double>(copied_bytes_) / copy_.seconds(); }
  double tensor_flops_per_second() const { return rate_.flops() / rate_calls_.seconds(); }

 private:
  static int64_t cache_bytes() {
    int bytes = 1 << 20;
#if defined(__CUDACC__)
    int device = 0;
    check_cuda(cudaGetDevice(&device), "find the current device");
    check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "find the size of the cache");
#endif
    return bytes;
  }

  Memory memory_;
  unsigned num_blocks_ = static_cast<unsigned>(4 * device::num_multiprocessors());
  void* workspace_ = memory_.allocate<unsigned char>(workspace_bytes);
  int64_t num_zeros_ = 4 * cache_bytes() / 4;  // words of four times the cache
  uint32_t* zeros_ = memory_.allocate<uint32_t>(num_zeros_);
  uint32_t* never_written_ = memory_.allocate<uint32_t>(1);
  int64_t copied_bytes_ = std::max<int64_t>(size_for(64 << 20, 4), 2 * cache_bytes());
  unsigned char* copied_ = memory_.allocate<unsigned char>(2 * copied_bytes_);
  TensorRate rate_;
  int32_t* sums_ = memory_.allocate<int32_t>(rate_.num_threads());
  TimedCalls copy_{[this](device::Stream stream) {
                     device::copy_on_device(copied_, copied_ + copied_bytes_, copied_bytes_, stream);
                   },
                   nullptr, true};
  TimedCalls rate_calls_{[this](device::Stream stream) { rate_.launch(sums_, stream); }, nullptr, true};
};

/// One benchmark while it runs.
class Run : public Memory {
 public:
  Run(benchmark::State& state, bool is_cold) : state_(state), is_cold_(is_cold) {}

  /// What is said beside the figures: what could not be compared, for example.
  void note(const std::string& text) { state_.SetLabel(text); }

  void count(const std::string& name, double value) { state_.counters[name] = value; }

  /// Runs and checks everything once, and then measures; to be called once.
  void measure(const Work& work, const Call& call, const std::vector<Baseline>& baselines = {}) {
    try_once(call);
    TimedCalls ours = timed(call);
    if (is_simulated()) return simulate(ours, work);
    std::vector<std::pair<std::string, TimedCalls>> others;
    for (const Baseline& baseline : baselines) {
      try_once(baseline.call);
      others.emplace_back("x_" + baseline.name, timed(baseline.call));
    }
    const int64_t half_of_bytes = std::max<int64_t>(1, static_cast<int64_t>(work.bytes / 2));
    auto* const to = allocate<unsigned char>(half_of_bytes);
    const auto* const from = allocate<unsigned char>(half_of_bytes);
    TimedCalls copies =
        timed({[=](device::Stream stream) { device::copy_on_device(to, from, half_of_bytes, stream); }, nullptr});
    for (auto _ : state_) {
      Card::current().run();
      copies.run();
      for (auto& [name, calls] : others) calls.run();
      state_.SetIterationTime(ours.run());
    }
    state_.counters["bytes"] = work.bytes;
    state_.counters["requested_bytes"] = work.requested_bytes == 0 ? work.bytes : work.requested_bytes;
    state_.counters["flops"] = work.flops;
    if (!on_gpu) return;
    const double seconds = ours.seconds();
    state_.counters["min_us"] = seconds * 1e6;
    state_.counters["GB/s"] = work.bytes / seconds * 1e-9;
    state_.counters["copy_fraction"] = copies.seconds() / seconds;
    state_.counters["copy_GB/s"] = Card::current().copied_bytes_per_second() * 1e-9;
    state_.counters["tensor_fraction"] = work.flops / seconds / Card::current().tensor_flops_per_second();
    state_.counters["tensor_TFLOP/s"] = Card::current().tensor_flops_per_second() * 1e-12;
    for (const auto& [name, calls] : others) state_.counters[name] = calls.seconds() / seconds;
  }

  /// Runs and checks each way once, and then measures all in turns; to be called once, in place of measure().
  void compare(const std::vector<std::pair<std::string, Call>>& ways) {
    std::vector<std::pair<std::string, TimedCalls>> timed_ways;
    for (const auto& [name, call] : ways) {
      try_once(call);
      timed_ways.emplace_back("us " + name, timed(call));
    }
    for (auto _ : state_) {
      double seconds = 0;
      for (auto& [name, calls] : timed_ways) seconds += calls.run();
      state_.SetIterationTime(seconds);
    }
    if (!on_gpu) return;
    for (const auto& [name, calls] : timed_ways) state_.counters[name] = calls.seconds() * 1e6;
  }

 private:
  void simulate(TimedCalls& ours, const Work& work) {
    for (auto _ : state_) state_.SetIterationTime(ours.run());
    state_.counters["bytes"] = work.bytes;
    state_.counters["flops"] = work.flops;
    state_.counters["min_us"] = ours.seconds() * 1e6;
  }
  void try_once(const Call& call) {
    call.queue(stream());
    device::synchronize(stream());
    if (call.check) call.check();
  }
  TimedCalls timed(const Call& call) const {
    return {call.queue, is_cold_ ? Card::current().flush() : Queue(), call.is_captured};
  }

  benchmark::State& state_;
  bool is_cold_;
};

/// What a benchmark needs is not in this machine.
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void run_benchmark(benchmark::State& state, bool is_cold, const std::function<void(Run&)>& body) {
  try {
    Run run(state, is_cold);
    body(run);
  } catch (const NotHere& error) {
    state.SkipWithError((std::string("skipped: ") + error.what()).c_str());
  } catch (const out_of_device_memory& error) {
    state.SkipWithError((std::string("skipped: ") + error.what()).c_str());
  } catch (const cuda_error& error) {
    constexpr int out_of_memory = 2;
    num_failed += error.code() != out_of_memory;
    state.SkipWithError(((error.code() == out_of_memory ? "skipped: " : "") + std::string(error.what())).c_str());
  } catch (const std::exception& error) {
    ++num_failed;
    state.SkipWithError(error.what());
  }
}

inline void add_once(const std::string& name, bool is_cold, const std::function<void(Run&)>& body) {
  benchmark::RegisterBenchmark((name + (is_cold ? "/cold" : "/warm")).c_str(),
                               [is_cold, body](benchmark::State& state) { run_benchmark(state, is_cold, body); })
      ->UseManualTime()
      ->Iterations(is_simulated() ? 1 : size_for(20, 1))
      ->Unit(benchmark::kMicrosecond);
}

/// To be called by add_benchmarks.
inline void add(const std::string& name, const std::function<void(Run&)>& body) {
  for (const bool is_cold : {true, false}) add_once(name, is_cold, body);
}
inline void add_sweep(const std::string& name, const std::function<void(Run&)>& body) { add_once(name, false, body); }

}  // namespace warprank::bench
