// SPDX-License-Identifier: Apache-2.0

// Whole models on the host engine, one thread: the plan with all passes against the model as it is written, in turns
// within one benchmark. Counters: milliseconds of both, and planned_speedup.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "dcn_v2.hpp"
#include "dlrm.hpp"
#include "measure.hpp"
#include "meituan_like.hpp"
#include "support/random_data.hpp"
#include "user_heavy.hpp"
#include "warprank/host.hpp"
#include "wide_deep.hpp"

namespace warprank {
namespace {

void plan_against_model(benchmark::State& state, const ModelFunction& model, int64_t requests, int64_t items) {
  constexpr int64_t table_rows = 1000;
  CompileOptions options;
  options.capacities = {{requests, requests * items}};
  const Plan plan = compile(model, options);
  options.passes = Passes::none();
  const Plan as_written = compile(model, options);

  const Weights weights = test_support::random_weights(plan, 1);
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, table_rows, 2), host());
  Context planned = bind(plan, weights, tables).context(), unplanned = bind(as_written, weights, tables).context();
  test_support::RequestShape shape;
  shape.table_rows = table_rows;
  shape.odd_ids = false;
  shape.rows = {{"item", items}, {"sample", items}, {"clicked", 100}, {"ordered", 100}};
  Batch batch = test_support::random_batch(plan, requests, shape, 3);

  bench::Minimum with, without;
  const auto run = [&](Context& context) { return [&] { benchmark::DoNotOptimize(context.run(batch)); }; };
  const int64_t calls = bench::calls_for(5e-3, run(planned));
  for (auto _ : state) {
    with.sample(run(planned), calls);
    without.sample(run(unplanned), std::max<int64_t>(1, calls / 4));
  }
  state.counters["planned_ms"] = with.value() * 1e3;
  state.counters["unplanned_ms"] = without.value() * 1e3;
  state.counters["planned_speedup"] = without.value() / with.value();
}

void add(const std::string& name, const ModelFunction& model, int64_t requests, int64_t items) {
  benchmark::RegisterBenchmark(
      (name + "/requests:" + std::to_string(requests) + "/items:" + std::to_string(items)).c_str(),
      [=](benchmark::State& state) { plan_against_model(state, model, requests, items); })
      ->Iterations(15)
      ->Unit(benchmark::kMillisecond);
}

const bool added = [] {
  add("user_heavy", models::user_heavy, 1, 500);
  add("wide_deep", models::wide_deep, 1, 100);
  add("wide_deep", models::wide_deep, 8, 100);
  add("dlrm", models::dlrm, 1, 100);
  add("dcn_v2", models::dcn_v2, 1, 100);
  add("meituan_like", models::meituan_like, 1, 200);
  return true;
}();

}  // namespace
}  // namespace warprank
