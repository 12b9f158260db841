// SPDX-License-Identifier: Apache-2.0

// Multilayer perceptrons against the machine's FMA peak, layers in BF16 and with weights in INT8 against FP32, and the
// cost of a bias per request, on one thread.

#include <cstdint>
#include <random>
#include <vector>

#include "measure.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { namespace {

using bench::random_values;

constexpr double sample_seconds = 1e-3;

host_ops::PackedLinear random_layer(int64_t in, int64_t out, Activation activation) {
  return {random_values(in * out, 1), random_values(out, 2), in, out, 1, {activation, {}, {}, {}}};
}

/// Layers of the given widths with ReLU between them, and what lies between.
struct Mlp {
  Mlp(const std::vector<int64_t>& widths, int64_t rows) : rows(rows) {
    for (size_t i = 0; i < widths.size(); ++i) values.push_back(random_values(rows * widths[i], 3));
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      layers.push_back(random_layer(widths[i], widths[i + 1], i + 2 < widths.size() ? relu : identity));
      flops += 2.0 * static_cast<double>(rows * widths[i] * widths[i + 1]);
    }
  }
  void run() {
    for (size_t i = 0; i < layers.size(); ++i)
      host_ops::linear(layers[i], {values[i].data(), rows, layers[i].in()},
                       {values[i + 1].data(), rows, layers[i].out()});
  }

  int64_t rows;
  double flops = 0;
  std::vector<host_ops::PackedLinear> layers;
  std::vector<std::vector<float>> values;
};

void mlp(benchmark::State& state, const std::vector<int64_t>& widths) {
  Mlp mlp(widths, state.range(0));
  double peak_flops = 0;
  const auto run = [&] { mlp.run(); };
  const auto run_peak = [&] { peak_flops = bench::run_fma_peak(); };
  const int64_t calls = bench::calls_for(sample_seconds, run), peak_calls = bench::calls_for(sample_seconds, run_peak);
  bench::Minimum time, peak_time;
  for (auto _ : state) {
    peak_time.sample(run_peak, peak_calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  const double rate = mlp.flops / time.value(), peak = peak_flops / peak_time.value();
  state.counters["fma_peak_fraction"] = 100 * rate / peak;
  state.counters["gflops"] = rate * 1e-9;
  state.counters["peak_gflops"] = peak * 1e-9;
  state.counters["min_us"] = time.value() * 1e6;
  state.SetLabel(mlp.layers[0].target().to_string());
}

/// The item part of a first layer, with the user part as one bias for all rows or as one of each request.
void row_bias(benchmark::State& state) {
  constexpr int64_t in = 240, out = 256;
  const int64_t requests = state.range(0), items = state.range(1);
  std::vector<int64_t> offsets{0};
  // Ragged: from none to twice the mean.
  std::mt19937 engine(4);
  for (int64_t s = 1; s < requests; ++s)
    offsets.push_back(std::max(offsets.back(), s * items + static_cast<int64_t>(engine() % (2 * items)) - items));
  offsets.push_back(requests * items);
  const int64_t rows = offsets.back();
  const auto layer = random_layer(in, out, relu);
  const auto x = random_values(rows * in, 5), biases = random_values(requests * out, 6);
  std::vector<float> y(static_cast<size_t>(rows * out));
  host_ops::LinearInputs inputs;
  inputs.row_bias = {biases.data(), requests, out};
  inputs.row_bias_segments = {offsets.data(), requests};
  const auto run_plain = [&] { host_ops::linear(layer, {x.data(), rows, in}, {y.data(), rows, out}); };
  const auto run = [&] { host_ops::linear(layer, {x.data(), rows, in}, {y.data(), rows, out}, inputs); };
  const int64_t calls = bench::calls_for(sample_seconds, run);
  bench::Minimum time, plain_time;
  for (auto _ : state) {
    plain_time.sample(run_plain, calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  state.counters["row_bias_cost"] = 100 * (time.value() / plain_time.value() - 1);
  state.counters["min_us"] = time.value() * 1e6;
}

/// A layer and the same in FP32, in turns.
void against_fp32(benchmark::State& state, int64_t in, int64_t out, host_ops::Precision precision,
                  host_ops::WeightStorage storage, const char* speedup) {
  const int64_t rows = state.range(0);
  const auto weight = random_values(in * out, 1), bias = random_values(out, 2), x = random_values(rows * in, 3);
  const Activation activation = relu;
  const host_ops::PackedLinear fp32_layer(weight, bias, in, out, 1, {activation, {}, {}, {}});
  const host_ops::PackedLinear layer(weight, bias, in, out, 1, {activation, {}, {}, {}}, precision, storage);
  std::vector<float> y(static_cast<size_t>(rows * out));
  std::vector<float> workspace(static_cast<size_t>(layer.workspace_size(rows)));
  const auto run_fp32 = [&] { host_ops::linear(fp32_layer, {x.data(), rows, in}, {y.data(), rows, out}); };
  const auto run = [&] { host_ops::linear(layer, {x.data(), rows, in}, {y.data(), rows, out}, {}, workspace); };
  const int64_t calls = bench::calls_for(sample_seconds, run);
  bench::Minimum time, fp32_time;
  for (auto _ : state) {
    fp32_time.sample(run_fp32, calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  state.counters[speedup] = fp32_time.value() / time.value();
  state.counters["bytes_ratio"] = static_cast<double>(layer.bytes()) / static_cast<double>(fp32_layer.bytes());
  state.counters["gflops"] = 2e-9 * static_cast<double>(rows * in * out) / time.value();
  state.counters["min_us"] = time.value() * 1e6;
  state.SetLabel(layer.precision() == host_ops::Precision::bf16 ? "bf16" : "fp32");
}

/// The rounding of rows included; in FP32 where there is no AVX512_BF16.
void bf16(benchmark::State& state, int64_t in, int64_t out) {
  against_fp32(state, in, out, host_ops::Precision::bf16, host_ops::WeightStorage::as_multiplied, "bf16_speedup");
}

/// The widening of weights included; products are FP32.
void int8_weights(benchmark::State& state, int64_t in, int64_t out) {
  against_fp32(state, in, out, host_ops::Precision::fp32, host_ops::WeightStorage::int8, "int8_speedup");
}

void rows_of_a_request(benchmark::internal::Benchmark* b) {
  for (const int64_t rows : {1, 17, 50, 100, 200, 500}) b->Arg(rows);
  b->ArgName("rows")->UseManualTime()->Iterations(40);
}

BENCHMARK_CAPTURE(mlp, 600_256_256_256_1, std::vector<int64_t>{600, 256, 256, 256, 1})->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(mlp, 1024_1024_512_256_1, std::vector<int64_t>{1024, 1024, 512, 256, 1})->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(bf16, 608_256, 608, 256)->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(bf16, 256_256, 256, 256)->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(bf16, 1024_1024, 1024, 1024)->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(bf16, 3456_512, 3456, 512)->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(int8_weights, 256_256, 256, 256)->Apply(rows_of_a_request);
BENCHMARK_CAPTURE(int8_weights, 2048_2048, 2048, 2048)->Apply(rows_of_a_request);
BENCHMARK(row_bias)
    ->ArgNames({"requests", "items"})
    ->ArgsProduct({{1, 5, 50}, {100}})
    ->ArgsProduct({{5, 50}, {10}})
    ->UseManualTime()
    ->Iterations(100);

}}  // namespace warprank
