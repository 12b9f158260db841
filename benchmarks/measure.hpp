// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Fair measurement on a noisy machine: what is compared runs in turns within one benchmark, in processor time of the
/// calling thread (which other processes do not take), and its minimum counts.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "fma_peak-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {
HWY_EXPORT(fma_flops);
}}}  // namespace warprank::v0::host_ops

namespace warprank::bench {

/// Uniform in [-scale, scale].
inline std::vector<float> random_values(int64_t size, uint32_t seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> distribution(-scale, scale);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = distribution(engine);
  return values;
}

/// Processor time of the calling thread.
inline double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Processor time of all threads of the process.
inline double process_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The shortest time of one call, over samples of many calls.
class Minimum {
 public:
  template <class Function>
  double sample(Function&& function, int64_t calls) {
    const double start = thread_seconds();
    for (int64_t i = 0; i < calls; ++i) function();
    const double elapsed = thread_seconds() - start;
    best_ = std::min(best_, elapsed / static_cast<double>(calls));
    return elapsed;
  }
  double value() const { return best_; }

 private:
  double best_ = std::numeric_limits<double>::infinity();
};

/// Calls that take about `target` seconds together.
template <class Function>
int64_t calls_for(double target, Function&& function) {
  Minimum once;
  for (int i = 0; i < 3; ++i) once.sample(function, 1);
  return std::max<int64_t>(1, static_cast<int64_t>(target / once.value()));
}

/// Multiply-adds in registers of the best instruction set, on one thread: the peak of this machine, now. Returns the
/// floating-point operations done, about 1e7.
inline double run_fma_peak() {
  using namespace host_ops;
  return HWY_DYNAMIC_DISPATCH(fma_flops)(1 << 15);
}

/// Runs an op in turns with a copy that reads and writes as many bytes in all, and, where it has any, with as many
/// multiply-adds in registers. Counters: min_us, GB/s, copy_fraction; gflops, fma_peak_fraction.
template <class Function>
void measure(benchmark::State& state, double bytes, double flops, Function&& run) {
  constexpr double sample_seconds = 1e-3;
  std::vector<char> from(static_cast<size_t>(bytes / 2), 1), to(from.size());
  double peak_flops = 0;
  const auto copy = [&] {
    std::memcpy(to.data(), from.data(), to.size());
    benchmark::ClobberMemory();
  };
  const auto run_peak = [&] { peak_flops = run_fma_peak(); };
  const int64_t calls = calls_for(sample_seconds, run), copies = calls_for(sample_seconds, copy);
  Minimum time, copy_time, peak_time;
  for (auto _ : state) {
    copy_time.sample(copy, copies);
    if (flops > 0) peak_time.sample(run_peak, 1);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  state.counters["min_us"] = time.value() * 1e6;
  state.counters["GB/s"] = bytes / time.value() * 1e-9;
  state.counters["copy_fraction"] = copy_time.value() / time.value();
  if (flops == 0) return;
  state.counters["gflops"] = flops / time.value() * 1e-9;
  state.counters["fma_peak_fraction"] = flops / time.value() / (peak_flops / peak_time.value());
}

}  // namespace warprank::bench
