// SPDX-License-Identifier: Apache-2.0

// Whole models on the host engine, one thread: the plan with all passes against the model as it is written, and against
// the passes alone that compute what belongs to the user once, in turns within one benchmark. Counters: milliseconds of
// each, items_per_second, planned_speedup over the model as it is written, deduplicated_speedup over the passes alone.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "reference_models.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

void plan_against_model(benchmark::State& state, const std::string& name, const bench::BatchShape& shape) {
  constexpr int64_t table_rows = 1000;
  const Graph source = build(bench::reference_models().at(name));
  const auto compiled = [&](const Passes& passes) {
    CompileOptions options;
    options.capacities = {shape.capacity(source)};
    options.passes = passes;
    return compile(source, options);
  };
  const Plan plan = compiled({});
  const Weights weights = test_support::random_weights(plan, 1);
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, table_rows, 2), host());
  Context planned = Model::bind(plan, weights, tables).context();
  Context deduplicated = Model::bind(compiled(bench::only_deduplicated()), weights, tables).context();
  Context unplanned = Model::bind(compiled(Passes::none()), weights, tables).context();
  Batch batch = plan.batch();
  const std::vector<test_support::PlainRequest> requests = bench::random_requests(source, shape, table_rows, 3);
  for (const auto& request : requests) add_to(batch, request);

  bench::Minimum all_passes, some_passes, no_passes;
  const auto run = [&](Context& context) { return [&] { benchmark::DoNotOptimize(context.run(batch)); }; };
  const int64_t calls = bench::calls_for(5e-3, run(planned)), fewer = std::max<int64_t>(1, calls / 4);
  for (auto _ : state) {
    all_passes.sample(run(planned), calls);
    some_passes.sample(run(deduplicated), fewer);
    no_passes.sample(run(unplanned), fewer);
  }
  state.counters["planned_ms"] = all_passes.value() * 1e3;
  state.counters["deduplicated_ms"] = some_passes.value() * 1e3;
  state.counters["unplanned_ms"] = no_passes.value() * 1e3;
  state.counters["items_per_second"] = static_cast<double>(shape.requests * shape.items) / all_passes.value();
  state.counters["planned_speedup"] = no_passes.value() / all_passes.value();
  state.counters["deduplicated_speedup"] = some_passes.value() / all_passes.value();
}

void add(const std::string& name, int64_t requests, int64_t items) {
  bench::BatchShape shape;
  shape.requests = requests;
  shape.items = items;
  benchmark::RegisterBenchmark(
      (name + "/requests:" + std::to_string(requests) + "/items:" + std::to_string(items)).c_str(),
      [=](benchmark::State& state) { plan_against_model(state, name, shape); })
      ->Iterations(requests == 1 ? 15 : 3)
      ->Unit(benchmark::kMillisecond);
}

const bool added = [] {
  const std::pair<const char*, int64_t> models[] = {{"user_heavy", 500}, {"wide_deep", 100}, {"dlrm", 100},
                                                    {"dcn_v2", 100},     {"din_mmoe", 100},  {"meituan_like", 200}};
  for (const auto& [name, items] : models)
    for (const int64_t requests : {1, 8}) add(name, requests, items);
  add("wide_deep", 64, 100);
  return true;
}();

}}  // namespace warprank
