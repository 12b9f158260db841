// SPDX-License-Identifier: Apache-2.0

// Four experts of two layers and the gates of two tasks on one thread, against the machine's FMA peak: the first layers
// as one, the second as groups of one layer; and, in turns, each expert and gate by itself.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "measure.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { namespace {

constexpr double sample_seconds = 1e-3;
constexpr int64_t num_experts = 4, hidden = 512, out = 256, num_gates = 2;

host_ops::PackedLinear layer(const std::vector<float>& weight, int64_t in, int64_t outputs, int64_t groups = 1) {
  return {weight, {}, in, outputs, groups, {relu, {}, {}, {}}};
}

/// Rows of expert e of stacked weights [experts, out, in].
std::vector<float> expert(const std::vector<float>& stacked, int64_t e) {
  const int64_t size = static_cast<int64_t>(stacked.size()) / num_experts;
  return {stacked.begin() + e * size, stacked.begin() + (e + 1) * size};
}

/// Arguments: columns of x, rows.
void experts(benchmark::State& state) {
  const int64_t in = state.range(0), rows = state.range(1);
  const auto scale = [](int64_t width) { return 1 / std::sqrt(static_cast<float>(width)); };
  const std::vector<float> first = bench::random_values(num_experts * hidden * in, 1, scale(in)),
                           second = bench::random_values(num_experts * out * hidden, 2, scale(hidden)),
                           gates = bench::random_values(num_gates * num_experts * in, 3, scale(in)),
                           x = bench::random_values(rows * in, 4);
  const auto packed_first = layer(first, in, num_experts * hidden),
             packed_second = layer(second, hidden, out, num_experts),
             packed_gates = layer(gates, in, num_gates * num_experts);
  std::vector<host_ops::PackedLinear> single_first, single_second;
  for (int64_t e = 0; e < num_experts; ++e) {
    single_first.push_back(layer(expert(first, e), in, hidden));
    single_second.push_back(layer(expert(second, e), hidden, out));
  }
  std::vector<float> h(static_cast<size_t>(rows * num_experts * hidden)),
      y(static_cast<size_t>(rows * num_experts * out)), single(y.size()),
      logits(static_cast<size_t>(rows * num_gates * num_experts));
  const Matrix<const float> input(x.data(), rows, in);
  const Matrix<float> between(h.data(), rows, num_experts * hidden),
      of_gates(logits.data(), rows, num_gates * num_experts);
  const auto run = [&] {
    host_ops::linear(packed_first, input, between);
    host_ops::linear(packed_second, between, {y.data(), rows, num_experts * out});
    host_ops::linear(packed_gates, input, of_gates);
  };
  const auto run_single = [&] {
    const Matrix<float> to(single.data(), rows, num_experts * out);
    for (int64_t e = 0; e < num_experts; ++e) {
      const auto columns = between.columns(e * hidden, hidden);
      host_ops::linear(single_first[static_cast<size_t>(e)], input, columns);
      host_ops::linear(single_second[static_cast<size_t>(e)], columns, to.columns(e * out, out));
    }
    host_ops::linear(packed_gates, input, of_gates);
  };
  run(), run_single();
  if (y != single) return state.SkipWithError("experts side by side differ");

  double peak_flops = 0;
  const auto run_peak = [&] { peak_flops = bench::run_fma_peak(); };
  const int64_t calls = bench::calls_for(sample_seconds, run), peak_calls = bench::calls_for(sample_seconds, run_peak);
  bench::Minimum time, single_time, peak_time;
  for (auto _ : state) {
    peak_time.sample(run_peak, peak_calls);
    single_time.sample(run_single, calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  const double flops = 2.0 * static_cast<double>(rows * num_experts * (in * hidden + hidden * out + num_gates * in));
  state.counters["fma_peak_fraction"] = 100 * flops / time.value() / (peak_flops / peak_time.value());
  state.counters["gflops"] = flops / time.value() * 1e-9;
  state.counters["min_us"] = time.value() * 1e6;
  state.counters["x_single"] = single_time.value() / time.value();
}
BENCHMARK(experts)
    ->ArgNames({"columns", "rows"})
    ->ArgsProduct({{600, 2528}, {50, 200}})
    ->UseManualTime()
    ->Iterations(20);

}}  // namespace warprank
