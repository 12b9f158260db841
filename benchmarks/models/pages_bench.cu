// SPDX-License-Identifier: Apache-2.0

// Pages about users who are known, on the CUDA engine, by the clock of the thread that asks: as whole requests; as the
// divided plan has them (plan/divide.hpp), with states that are sent; and with states that the device keeps
// (engine/device_states.hpp). In turns; p50 and p99 of each, ratios of the p50, and the bytes of all users' states. The
// scores of all three are compared first. On the executor of kernels small, and once: that it runs is what counts.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu_program.hpp"
#include "pages.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/cuda.hpp"

namespace {

using namespace warprank;

using bench::on_gpu;

constexpr int64_t dim = bench::size_for(256, 64);

/// Two layers of HSTU over a long history, whose keys and values are most of what is kept of a user.
Outputs hstu(Builder& b) {
  const auto user = b.axis("user"), event = b.axis("history", user), item = b.axis("item", user);
  const auto films = b.table("films", {.dim = dim, .rows = bench::Pages::table_rows});
  std::vector<Tensor> x = {b.embed(b.ids("seen", event), films), b.embed(b.ids("film", item), films)};
  for (const char* layer : {"layer0", "layer1"}) x = b.hstu(layer, x, {.heads = 4});
  return {{"score", b.linear("score", x[1], 1)}};
}

class Latencies {
 public:
  template <class Score>
  void sample(Score&& score, int calls) {
    for (int i = 0; i < calls; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      score();
      seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  double quantile(double q) {
    const auto at = seconds_.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(seconds_.size() - 1));
    std::nth_element(seconds_.begin(), at, seconds_.end());
    return *at;
  }

 private:
  std::vector<double> seconds_;
};

std::vector<float> copy_of(const Scores& scores, const std::string& output) {
  const Matrix<const float> all = scores[output].all();
  return {all.data, all.data + all.rows * all.cols};
}
/// Sums have another order where values lie elsewhere, and then each of the 12 values that the deepest model rounds to
/// FP16 one after the other may differ by its last bit: these add up as squares do.
void expect_close(const std::vector<float>& got, const std::vector<float>& expected, const char* way) {
  if (got.size() != expected.size()) throw std::runtime_error(std::string(way) + ": another number of scores");
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - expected[i]) <= 4 * 0x1p-11f * (1 + std::fabs(expected[i]))))
      throw std::runtime_error(std::string(way) + ": score " + std::to_string(i) + ": expected " +
                               std::to_string(expected[i]) + ", got " + std::to_string(got[i]));
}

void measure(benchmark::State& state, const ModelFunction& model, const bench::BatchShape& shape) {
  bench::Pages pages(model, shape, cuda(), StateType::as_on_a_gpu);
  DeviceStates kept(cuda(), {2 * pages.state_bytes() + shape.requests * DeviceStates::page_bytes, 0});
  const std::string output = build(model).outputs.front().name;
  const std::vector<float> expected = copy_of(pages.score_whole(), output);
  expect_close(copy_of(pages.score_later(), output), expected, "later");
  for (const char* way : {"stored", "kept"}) expect_close(copy_of(pages.score_later(&kept), output), expected, way);
  if (kept.counters().hits != shape.requests) throw std::runtime_error("kept: states that are not on the device");

  Latencies whole, later, of_kept;
  for (auto _ : state) {
    constexpr int calls = on_gpu ? 20 : 1;
    whole.sample([&] { pages.score_whole(); }, calls);
    later.sample([&] { pages.score_later(); }, calls);
    of_kept.sample([&] { pages.score_later(&kept); }, calls);
    state.SetIterationTime(of_kept.quantile(0.5));
  }
  for (const auto& [way, latencies] : {std::pair{"whole", &whole}, {"later", &later}, {"kept", &of_kept}}) {
    state.counters[std::string(way) + "_p50_us"] = latencies->quantile(0.5) * 1e6;
    state.counters[std::string(way) + "_p99_us"] = latencies->quantile(0.99) * 1e6;
  }
  state.counters["later_speedup"] = whole.quantile(0.5) / later.quantile(0.5);
  state.counters["kept_speedup"] = whole.quantile(0.5) / of_kept.quantile(0.5);
  state.counters["kept_over_later"] = later.quantile(0.5) / of_kept.quantile(0.5);
  state.counters["state_bytes"] = static_cast<double>(pages.state_bytes());
}

void add(const std::string& name, const ModelFunction& model, const bench::BatchShape& shape) {
  const std::string full = "pages/" + name + "/requests:" + std::to_string(shape.requests) +
                           "/items:" + std::to_string(shape.items) + "/events:" + std::to_string(shape.events);
  const auto run = [model, shape](benchmark::State& state) {
    try {
      measure(state, model, shape);
    } catch (const out_of_device_memory& error) {
      state.SkipWithError((std::string("skipped: ") + error.what()).c_str());
    } catch (const std::exception& error) {
      ++bench::num_failed;
      state.SkipWithError(error.what());
    }
  };
  benchmark::RegisterBenchmark(full.c_str(), run)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(on_gpu ? 20 : 1);
}

const bool added = [] {
  for (const int64_t requests : {1, 16}) {
    if (!on_gpu && requests > 1) continue;
    for (const int64_t events : {100, 1000})
      add("hstu", hstu, {requests, bench::size_for(20, 3), on_gpu ? events : events / 25});
    if (!on_gpu) continue;  // others take minutes
    for (const char* name : {"user_heavy", "meituan_like"}) {
      const ModelFunction model = bench::reference_models().at(name);
      for (const int64_t items : {20, 100}) add(name, model, {requests, items});
    }
  }
  return true;
}();

}  // namespace
