// SPDX-License-Identifier: Apache-2.0

// Whole models on the CUDA engine, by the clock of the thread that asks, from a batch in pinned memory to scores in
// pinned memory. `plan`: with all passes, with those alone that compute what belongs to the user once, and with none,
// in turns; p50 and p99 of a batch each, and the ratios of the p50. Of all passes, also what kernels take of it without
// copies; what as many kernels that do nothing would take of that; and the slowest steps. `throughput`: batches of
// several contexts side by side, a thread each. On the executor of kernels small, and once: that it runs is what
// counts.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_program.hpp"
#include "reference_models.hpp"
#include "support/random_data.hpp"
#include "warprank/core/cuda_error.hpp"
#include "warprank/cuda.hpp"

namespace {

using namespace warprank;

using bench::on_gpu;

constexpr int64_t table_rows = bench::size_for(10000, 100);

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// A model compiled with some passes, and batches of one size for it.
struct BoundModel {
  BoundModel(const Graph& source, const bench::BatchShape& shape, const Passes& passes, const Weights& weights,
             const Tables& tables)
      : model(Model::bind(compiled(source, shape, passes), weights, tables)) {}

  static Plan compiled(const Graph& source, const bench::BatchShape& shape, const Passes& passes) {
    CompileOptions options;
    options.capacities = {shape.capacity(source)};
    options.passes = passes;
    return compile(source, options);
  }
  Batch batch(const bench::BatchShape& shape, uint32_t seed) const {
    Batch batch = model.batch();
    for (const auto& request : bench::random_requests(model.plan().source(), shape, table_rows, seed))
      add_to(batch, request);
    batch.close();
    return batch;
  }

  Model model;
};

struct WeightsAndTables {
  WeightsAndTables(const Graph& source)
      : plan(compile(source)),
        weights(test_support::random_weights(plan, 1)),
        tables(Tables::load(plan, test_support::random_tables(plan, table_rows, 2), cuda())) {}

  Plan plan;
  Weights weights;
  Tables tables;
};

/// Of the model that was asked for last: its benchmarks follow one another.
const WeightsAndTables& weights_and_tables(const std::string& name, const Graph& source) {
  static std::string last;
  static std::unique_ptr<WeightsAndTables> kept;
  if (last != name) {
    kept.reset();
    kept = std::make_unique<WeightsAndTables>(source);
    last = name;
  }
  return *kept;
}

/// Seconds of single batches.
class Latencies {
 public:
  Latencies(const BoundModel& bound, const bench::BatchShape& shape)
      : context_(bound.model.context()), batch_(bound.batch(shape, 3)) {
    for (int i = 0; i < (on_gpu ? 10 : 1); ++i) context_.run(batch_);
  }
  void sample(int calls) {
    for (int i = 0; i < calls; ++i) {
      const double start = seconds();
      context_.run(batch_);
      seconds_.push_back(seconds() - start);
    }
  }
  double quantile(double q) {
    const auto at = seconds_.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(seconds_.size() - 1));
    std::nth_element(seconds_.begin(), at, seconds_.end());
    return *at;
  }
  Profile profile() { return context_.profile(batch_, on_gpu ? ProfileOptions{} : ProfileOptions{1, 1}); }

 private:
  Context context_;
  Batch batch_;
  std::vector<double> seconds_;
};

/// "41 % mlp top/0 and 2 more; ..."
std::string slowest_steps(Profile profile) {
  std::stable_sort(profile.steps.begin(), profile.steps.end(),
                   [](const StepTime& a, const StepTime& b) { return a.seconds > b.seconds; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, profile.steps.size()); ++i) {
    const StepTime& step = profile.steps[i];
    const auto percent = static_cast<int>(100 * step.seconds / profile.seconds + 0.5);
    text += (i == 0 ? "" : "; ") + std::to_string(percent) + " % " + step.kernel + " " + step.name;
  }
  return text;
}

void measure_plan(benchmark::State& state, const std::string& name, bench::BatchShape shape) {
  const Graph source = build(bench::reference_models().at(name));
  const auto& [plan, weights, tables] = weights_and_tables(name, source);
  const std::pair<const char*, Passes> ways[] = {
      {"planned", Passes{}}, {"deduplicated", bench::only_deduplicated()}, {"unplanned", Passes::none()}};
  std::vector<Latencies> latencies;
  for (const auto& [way, passes] : ways)
    latencies.emplace_back(BoundModel(source, shape, passes, weights, tables), shape);
  for (auto _ : state) {
    constexpr int calls = on_gpu ? 20 : 1;
    const double start = seconds();
    latencies[0].sample(calls);
    state.SetIterationTime((seconds() - start) / calls);
    for (size_t i = 1; i < latencies.size(); ++i) latencies[i].sample(on_gpu ? 10 : 1);
  }
  for (size_t i = 0; i < latencies.size(); ++i) {
    const std::string way = ways[i].first;
    state.counters[way + "_p50_us"] = latencies[i].quantile(0.5) * 1e6;
    state.counters[way + "_p99_us"] = latencies[i].quantile(0.99) * 1e6;
    if (i > 0) state.counters["over_" + way] = latencies[i].quantile(0.5) / latencies[0].quantile(0.5);
  }
  const Profile profile = latencies[0].profile();
  state.counters["kernels_us"] = profile.seconds * 1e6;
  state.counters["outside_us"] = (profile.batch_seconds - profile.seconds) * 1e6;
  state.counters["gap_fraction"] = profile.empty_seconds / profile.seconds;
  state.SetLabel(slowest_steps(profile));
}

void measure_throughput(benchmark::State& state, const std::string& name, bench::BatchShape shape, int num_contexts) {
  const Graph source = build(bench::reference_models().at(name));
  const auto& [plan, weights, tables] = weights_and_tables(name, source);
  const BoundModel bound(source, shape, Passes{}, weights, tables);
  std::vector<Context> contexts;
  std::vector<Batch> batches;
  for (int c = 0; c < num_contexts; ++c) {
    contexts.push_back(bound.model.context());
    batches.push_back(bound.batch(shape, static_cast<uint32_t>(3 + c)));
    contexts.back().run(batches.back());
  }
  constexpr int calls = on_gpu ? 50 : 1;
  double total = 0;
  for (auto _ : state) {
    const double start = seconds();
    std::vector<std::thread> threads;
    for (size_t c = 0; c < contexts.size(); ++c)
      threads.emplace_back([&, c] {
        for (int i = 0; i < calls; ++i) contexts[c].run(batches[c]);
      });
    for (std::thread& thread : threads) thread.join();
    const double elapsed = seconds() - start;
    state.SetIterationTime(elapsed / (calls * num_contexts));
    total += elapsed;
  }
  const double runs = static_cast<double>(state.iterations()) * calls * num_contexts;
  state.counters["batches/s"] = runs / total;
  state.counters["items/s"] = runs * static_cast<double>(shape.requests * shape.items) / total;
}

/// Memory that does not suffice is no failure.
template <class Measure>
void run(benchmark::State& state, Measure measure) {
  try {
    measure();
  } catch (const out_of_device_memory& error) {
    state.SkipWithError((std::string("skipped: ") + error.what()).c_str());
  } catch (const std::exception& error) {
    ++bench::num_failed;
    state.SkipWithError(error.what());
  }
}

const bool added = [] {
  const std::pair<const char*, int64_t> models[] = {{"wide_deep", 100}, {"dlrm", 100},         {"dcn_v2", 100},
                                                    {"din_mmoe", 100},  {"meituan_like", 200}, {"user_heavy", 500}};
  for (const auto& [name, items] : models) {
    const std::string model = name;
    if (!on_gpu && model != "wide_deep") continue;  // others take minutes
    bench::BatchShape shape;
    shape.items = bench::size_for(items, 3);
    shape.events = bench::size_for(shape.events, 5);
    const auto add = [&](const std::string& kind, const std::string& argument, auto&& function) {
      const std::string full = kind + "/" + model + "/requests:" + std::to_string(shape.requests) +
                               "/items:" + std::to_string(shape.items) + argument;
      benchmark::RegisterBenchmark(full.c_str(), function)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond)
          ->Iterations(on_gpu ? 20 : 1);
    };
    for (const int64_t requests : {1, 4, 16, 64}) {
      if (!on_gpu && requests > 4) continue;
      shape.requests = requests;
      add("plan", "", [=](benchmark::State& state) { run(state, [&] { measure_plan(state, model, shape); }); });
    }
    shape.requests = 4;
    for (const int contexts : {1, 2, 4, 8}) {
      if (!on_gpu && contexts > 1) continue;  // the executor has one thread
      add("throughput", "/contexts:" + std::to_string(contexts),
          [=](benchmark::State& state) { run(state, [&] { measure_throughput(state, model, shape, contexts); }); });
    }
  }
  return true;
}();

}  // namespace
