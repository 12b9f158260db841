// SPDX-License-Identifier: Apache-2.0

// Cross layers of DCN-v2 on one thread, against the machine's FMA peak, and against the same products with x0 * (.) + x
// in a pass of its own. All take turns.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "measure.hpp"
#include "warprank/ops/host/elementwise.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { namespace {

constexpr double sample_seconds = 1e-3;

/// y = x0 * (W (V x) + b) + x; without V for rank 0. Arguments: dim, rank, rows.
void cross(benchmark::State& state) {
  const int64_t dim = state.range(0), rank = state.range(1), rows = state.range(2), inner = rank > 0 ? rank : dim;
  const auto scale = [](int64_t in) { return 1 / std::sqrt(static_cast<float>(in)); };
  const host_ops::PackedLinear up(bench::random_values(dim * inner, 1, scale(inner)), bench::random_values(dim, 2),
                                  inner, dim);
  host_ops::PackedLinear down;
  if (rank > 0) down = {bench::random_values(rank * dim, 3, scale(dim)), {}, dim, rank};
  const std::vector<float> x = bench::random_values(rows * dim, 4), x0 = bench::random_values(rows * dim, 5);
  std::vector<float> v(static_cast<size_t>(rows * inner)), y(x.size()), product(x.size()), unfused(x.size());
  const auto matrix = [&](const std::vector<float>& values) { return Matrix<const float>(values.data(), rows, dim); };

  const auto project = [&] {
    if (rank > 0) host_ops::linear(down, matrix(x), {v.data(), rows, rank});
    return rank > 0 ? Matrix<const float>(v.data(), rows, rank) : matrix(x);
  };
  host_ops::LinearInputs beside;
  beside.multiply = matrix(x0), beside.residual = matrix(x);
  const auto run = [&] { host_ops::linear(up, project(), {y.data(), rows, dim}, beside); };

  const ElementwiseProgram program{3, 0, {}, {{ElementwiseFunction::mul, 0, 1}, {ElementwiseFunction::add, 3, 2}}};
  const std::vector<SegmentedInput> inputs{{matrix(x0)}, {matrix(product)}, {matrix(x)}};
  std::vector<float> workspace(static_cast<size_t>(host_ops::elementwise_workspace(program)));
  const auto run_unfused = [&] {
    host_ops::linear(up, project(), {product.data(), rows, dim});
    host_ops::elementwise(program, inputs, {}, {unfused.data(), rows, dim}, workspace);
  };
  run(), run_unfused();
  for (size_t i = 0; i < y.size(); ++i)
    if (!(std::fabs(y[i] - unfused[i]) <= 0x1p-20f * (std::fabs(x0[i] * product[i]) + std::fabs(y[i]))))
      return state.SkipWithError("the fused layer differs");

  double peak_flops = 0;
  const auto run_peak = [&] { peak_flops = bench::run_fma_peak(); };
  const int64_t calls = bench::calls_for(sample_seconds, run), peak_calls = bench::calls_for(sample_seconds, run_peak);
  bench::Minimum time, unfused_time, peak_time;
  for (auto _ : state) {
    peak_time.sample(run_peak, peak_calls);
    unfused_time.sample(run_unfused, calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  const double rate = 2.0 * static_cast<double>(rows * dim * inner * (rank > 0 ? 2 : 1)) / time.value();
  state.counters["fma_peak_fraction"] = 100 * rate / (peak_flops / peak_time.value());
  state.counters["gflops"] = rate * 1e-9;
  state.counters["min_us"] = time.value() * 1e6;
  state.counters["x_unfused"] = unfused_time.value() / time.value();
}
BENCHMARK(cross)
    ->ArgNames({"dim", "rank", "rows"})
    ->ArgsProduct({{600}, {0}, {50, 200}})
    ->ArgsProduct({{3456}, {512}, {50, 200}})
    ->UseManualTime()
    ->Iterations(20);

}}  // namespace warprank
