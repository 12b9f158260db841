// SPDX-License-Identifier: Apache-2.0

// Multi-head attention against the machine's FMA peak, and against plain loops over the same rows that the compiler
// vectorises for its baseline. One thread; the three take turns. Target attention: `queries` items over `keys` events
// of one user; self-attention, also causal: as many queries as keys.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "measure.hpp"
#include "warprank/core/buffer.hpp"
#include "warprank/ops/host/attention.hpp"

namespace warprank { namespace {

constexpr double sample_seconds = 1e-3;

/// One head, with the scores of one query in `scores`.
void plain_head(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, float scale, bool causal,
                float* scores, Matrix<float> y) {
  for (int64_t i = 0; i < q.rows; ++i) {
    const int64_t seen = causal ? i + 1 : k.rows;
    for (int64_t t = 0; t < seen; ++t) {
      scores[t] = 0;
      for (int64_t c = 0; c < q.cols; ++c) scores[t] += q.row(i)[c] * k.row(t)[c];
      scores[t] *= scale;
    }
    const float top = *std::max_element(scores, scores + seen);
    float total = 0;
    for (int64_t t = 0; t < seen; ++t) total += scores[t] = std::exp(scores[t] - top);
    std::fill_n(y.row(i), y.cols, 0.0f);
    for (int64_t t = 0; t < seen; ++t)
      for (int64_t c = 0; c < y.cols; ++c) y.row(i)[c] += scores[t] / total * v.row(t)[c];
  }
}

void attention(benchmark::State& state, bool causal) {
  const int64_t num_queries = state.range(0), num_keys = state.range(1), heads = state.range(2), dim = state.range(3);
  const int64_t width = heads * dim;
  const auto q = bench::random_values(num_queries * width, 1), k = bench::random_values(num_keys * width, 2),
             v = bench::random_values(num_keys * width, 3);
  std::vector<float> y(q.size()), scores(static_cast<size_t>(num_keys));
  const int64_t queries[] = {0, num_queries}, keys[] = {0, num_keys};
  const host_ops::AttentionOptions options{heads, 1 / std::sqrt(static_cast<float>(dim)), causal};
  Buffer<float> workspace(host_ops::attention_workspace(dim, num_keys));

  double peak_flops = 0;
  const auto run_peak = [&] { peak_flops = bench::run_fma_peak(); };
  const auto run = [&] {
    host_ops::attention({q.data(), num_queries, width}, {k.data(), num_keys, width}, {v.data(), num_keys, width},
                        {queries, 1}, {keys, 1}, options, {y.data(), num_queries, width},
                        {workspace.data(), workspace.size()});
  };
  const auto run_plain = [&] {
    for (int64_t h = 0; h < heads; ++h)
      plain_head({q.data() + h * dim, num_queries, dim, width}, {k.data() + h * dim, num_keys, dim, width},
                 {v.data() + h * dim, num_keys, dim, width}, options.scale, causal, scores.data(),
                 {y.data() + h * dim, num_queries, dim, width});
  };
  const int64_t calls = bench::calls_for(sample_seconds, run),
                plain_calls = bench::calls_for(sample_seconds, run_plain),
                peak_calls = bench::calls_for(sample_seconds, run_peak);
  bench::Minimum time, plain, peak;
  for (auto _ : state) {
    peak.sample(run_peak, peak_calls);
    plain.sample(run_plain, plain_calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  const int64_t pairs = causal ? num_keys * (num_keys + 1) / 2 : num_queries * num_keys;
  const double rate = 4.0 * static_cast<double>(pairs * width) / time.value();
  state.counters["fma_peak_fraction"] = 100 * rate / (peak_flops / peak.value());
  state.counters["gflops"] = rate * 1e-9;
  state.counters["speedup_over_plain_loops"] = plain.value() / time.value();
  state.counters["min_us"] = time.value() * 1e6;
}

void shapes(benchmark::internal::Benchmark* b, const std::vector<int64_t>& all_queries) {
  for (const int64_t queries : all_queries)
    for (const int64_t keys : {50, 100, 200})
      for (const int64_t heads : {1, 4}) b->Args({queries == 0 ? keys : queries, keys, heads, 64 / heads});
  b->ArgNames({"queries", "keys", "heads", "dim"})->UseManualTime()->Iterations(40);
}

BENCHMARK_CAPTURE(attention, over_all_keys, false)->Apply([](auto* b) { shapes(b, {1, 100, 500}); });
BENCHMARK_CAPTURE(attention, causal, true)->Apply([](auto* b) { shapes(b, {0}); });

}}  // namespace warprank
