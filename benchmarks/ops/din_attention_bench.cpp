// SPDX-License-Identifier: Apache-2.0

// DIN attention with the first layer folded per item, against the same layers on the concatenation [q, k, q - k, q * k]
// that the formula names: made item by item, so that it too stays in cache, and made for all items at once, as a
// framework does. One thread; the three take turns.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "measure.hpp"
#include "warprank/ops/host/din_attention.hpp"

namespace warprank { namespace {

constexpr double sample_seconds = 2e-3;

/// One user with `num_items` items and `length` events, scored by 4 D -> 64 -> 32 -> 1.
class Case {
 public:
  Case(int64_t length, int64_t dim, int64_t num_items, Activation activation)
      : length_(length), dim_(dim), num_items_(num_items), items_{0, num_items}, history_{0, length} {
    const std::vector<int64_t> widths = {4 * dim, 64, 32, 1};
    std::vector<std::vector<float>> weights, learned;
    std::vector<host_ops::DinLayer> layers;
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      weights.push_back(bench::random_values(widths[i] * widths[i + 1], 1, 0.1f));
      learned.push_back(bench::random_values(widths[i + 1], 2, 0.1f));
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      const bool is_last = i + 1 == weights.size(), is_dice = activation.kind == ActivationKind::dice;
      const Span<const float> vector = is_dice && !is_last ? learned[i] : Span<const float>();
      const host_ops::ChannelActivation f = {is_last ? identity : activation, vector, vector, vector};
      layers.push_back({weights[i], learned[i], f});
      layers_.emplace_back(weights[i], learned[i], widths[i], widths[i + 1], 1, f);
    }
    packed_ = {dim, layers};
    q_ = bench::random_values(num_items * dim, 3);
    k_ = bench::random_values(length * dim, 4);
    y_.resize(q_.size());
    workspace_ = Buffer<float>(packed_.workspace_size(length));
    for (const int64_t width : widths) hidden_.emplace_back(num_items * length * width);
  }

  void run_folded() {
    host_ops::din_attention(packed_, {q_.data(), num_items_, dim_}, {k_.data(), length_, dim_}, {items_, 1},
                            {history_, 1}, {y_.data(), num_items_, dim_}, {workspace_.data(), workspace_.size()});
  }

  void run_naive(int64_t items_at_once) {
    for (int64_t first = 0; first < num_items_; first += items_at_once) {
      const int64_t count = std::min(items_at_once, num_items_ - first);
      for (int64_t n = 0; n < count; ++n) concatenate(first + n, hidden_[0].data() + n * length_ * 4 * dim_);
      for (size_t i = 0; i < layers_.size(); ++i)
        host_ops::linear(layers_[i], {hidden_[i].data(), count * length_, layers_[i].in()},
                         {hidden_[i + 1].data(), count * length_, layers_[i].out()});
      for (int64_t n = 0; n < count; ++n) pool(hidden_.back().data() + n * length_, y_.data() + (first + n) * dim_);
    }
  }

 private:
  void concatenate(int64_t n, float* to) const {
    const float* q = q_.data() + n * dim_;
    for (int64_t t = 0; t < length_; ++t, to += 4 * dim_) {
      const float* k = k_.data() + t * dim_;
      std::copy_n(q, dim_, to);
      std::copy_n(k, dim_, to + dim_);
      for (int64_t c = 0; c < dim_; ++c) to[2 * dim_ + c] = q[c] - k[c];
      for (int64_t c = 0; c < dim_; ++c) to[3 * dim_ + c] = q[c] * k[c];
    }
  }
  void pool(const float* weights, float* y) const {
    std::fill_n(y, dim_, 0.0f);
    for (int64_t t = 0; t < length_; ++t)
      for (int64_t c = 0; c < dim_; ++c) y[c] += weights[t] * k_[static_cast<size_t>(t * dim_ + c)];
  }

  int64_t length_, dim_, num_items_, items_[2], history_[2];
  host_ops::PackedDin packed_;
  std::vector<host_ops::PackedLinear> layers_;
  std::vector<float> q_, k_, y_;
  Buffer<float> workspace_;
  std::vector<Buffer<float>> hidden_;
};

void din_attention(benchmark::State& state, Activation activation) {
  const int64_t length = state.range(0), dim = state.range(1), num_items = state.range(2);
  Case shape(length, dim, num_items, activation);
  const auto run = [&] { shape.run_folded(); };
  const auto run_naive = [&] { shape.run_naive(1); };
  const auto run_naive_at_once = [&] { shape.run_naive(num_items); };
  const int64_t calls = bench::calls_for(sample_seconds, run),
                naive_calls = bench::calls_for(sample_seconds, run_naive);
  bench::Minimum time, naive, naive_at_once;
  for (auto _ : state) {
    naive.sample(run_naive, naive_calls);
    naive_at_once.sample(run_naive_at_once, naive_calls);
    state.SetIterationTime(time.sample(run, calls) / static_cast<double>(calls));
  }
  state.counters["folded_speedup"] = naive.value() / time.value();
  state.counters["folded_speedup_over_framework"] = naive_at_once.value() / time.value();
  state.counters["us_per_item"] = time.value() * 1e6 / static_cast<double>(num_items);
  const double folded_flops = 2.0 * static_cast<double>(num_items * length * (dim * 64 + 64 * 32 + 32 + dim));
  state.counters["gflops"] = folded_flops / time.value() * 1e-9;
}

void shapes(benchmark::internal::Benchmark* b) {
  for (const int64_t num_items : {1, 100, 500})
    for (const auto& [length, dim] : {std::pair<int64_t, int64_t>{50, 32}, {100, 64}, {200, 128}})
      b->Args({length, dim, num_items});
  b->ArgNames({"events", "dim", "items"})->UseManualTime()->Iterations(20);
}

BENCHMARK_CAPTURE(din_attention, relu, relu)->Apply(shapes);
BENCHMARK_CAPTURE(din_attention, dice, dice)->Apply(shapes);

}}  // namespace warprank
