// SPDX-License-Identifier: Apache-2.0

// One batch on several threads of the host (ContextOptions::threads) and on one, in turns within one benchmark, by the
// clock. Counters: milliseconds of a batch on one thread and on several, medians of the turns; threads_ratio, the
// several's over one's; processor_ratio, the same of the processor time of all threads.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "reference_models.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

/// Medians of what a batch takes.
class Times {
 public:
  template <class Function>
  void sample(Function&& run, int64_t calls) {
    const auto begin = std::chrono::steady_clock::now();
    const double processor_begin = bench::process_seconds();
    for (int64_t i = 0; i < calls; ++i) run();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    seconds_.push_back(elapsed.count() / static_cast<double>(calls));
    processor_seconds_.push_back((bench::process_seconds() - processor_begin) / static_cast<double>(calls));
  }
  double seconds() const { return bench::median(seconds_); }
  double of_processor() const { return bench::median(processor_seconds_); }

 private:
  std::vector<double> seconds_, processor_seconds_;
};

void threads_against_one(benchmark::State& state, const std::string& name, int64_t items, int threads) {
  constexpr int64_t table_rows = 1000;
  bench::BatchShape shape;
  shape.items = items;
  const Graph source = build(bench::reference_models().at(name));
  CompileOptions options;
  options.capacities = {shape.capacity(source)};
  const Plan plan = compile(source, options);
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, table_rows, 2), host());
  const Model model = Model::bind(plan, test_support::random_weights(plan, 1), tables);
  ContextOptions of_several;
  of_several.threads = threads;
  Context alone = model.context(), several = model.context(of_several);
  Batch batch = plan.batch();
  for (const auto& request : bench::random_requests(source, shape, table_rows, 3)) add_to(batch, request);

  Times one, all;
  const auto run = [&](Context& context) { return [&] { benchmark::DoNotOptimize(context.run(batch)); }; };
  const int64_t calls = bench::calls_for(2e-2, run(alone));
  for (auto _ : state) {
    one.sample(run(alone), calls);
    all.sample(run(several), calls);
  }
  state.counters["one_thread_ms"] = one.seconds() * 1e3;
  state.counters["threads_ms"] = all.seconds() * 1e3;
  state.counters["threads_ratio"] = all.seconds() / one.seconds();
  state.counters["processor_ratio"] = all.of_processor() / one.of_processor();
}

const bool added = [] {
  const std::pair<const char*, int64_t> models[] = {{"user_heavy", 500}, {"wide_deep", 100},  {"dlrm", 100},
                                                    {"dcn_v2", 100},     {"din_mmoe", 100},   {"meituan_like", 200},
                                                    {"hstu", 200},       {"rank_mixer", 100}, {"xdeepfm", 100},
                                                    {"mtgr", 200},       {"dien", 100}};
  for (int threads = 2; threads <= 8 && threads <= static_cast<int>(std::thread::hardware_concurrency()); threads *= 2)
    for (const auto& [name, items] : models)
      benchmark::RegisterBenchmark(
          (std::string(name) + "/items:" + std::to_string(items) + "/threads_of_a_batch:" + std::to_string(threads))
              .c_str(),
          [name = std::string(name), items = items, threads](benchmark::State& state) {
            threads_against_one(state, name, items, threads);
          })
          ->Iterations(9)
          ->Unit(benchmark::kMillisecond);
  return true;
}();

}}  // namespace warprank
