// SPDX-License-Identifier: Apache-2.0

// Pages about one user on the host engine, one thread, from a packed request to scores: each page as a whole request to
// the plan, and as the divided plan has it (plan/divide.hpp), where later pages are the items alone and join the states
// that the first has left. In turns within one benchmark. Counters: microseconds of a whole request, of the first page
// and of a later one; later_speedup of a later page, first_speedup of the first, and pages_speedup of four pages over
// as many whole requests; bytes of a whole request, of a later page, and of the states.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure.hpp"
#include "reference_models.hpp"
#include "support/divided.hpp"
#include "support/random_data.hpp"
#include "warprank/engine/divided_batch.hpp"
#include "warprank/engine/servable.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

Batch packed(const BatchLayout& layout, const test_support::PlainRequest& request) {
  Batch batch(layout);
  add_to(batch, test_support::part_of(request, layout));
  batch.close();
  return batch;
}

void pages(benchmark::State& state, const std::string& name, int64_t items) {
  constexpr int64_t table_rows = 1000, num_pages = 4;
  const Graph source = build(bench::reference_models().at(name));
  bench::BatchShape shape;
  shape.items = items;
  CompileOptions options;
  options.capacities = {shape.capacity(source)};
  const Plan plan = compile(source, options);
  const Weights weights = test_support::random_weights(plan, 1);
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, table_rows, 2), host());
  const auto requests = std::make_shared<const DividedRequests>(divide(plan, "item"));
  Context context = Model::bind(plan, weights, tables).context();
  ServableContext both(Servable::bind(requests, weights, tables), {});

  const test_support::PlainRequest request = bench::random_requests(source, shape, table_rows, 3)[0];
  const Batch whole = packed(plan.layout(), request), later = packed(requests->plan().later_requests, request);
  Batch batch = plan.batch();
  DividedBatch divided(requests);
  const auto score_whole = [&] {
    batch.clear();
    batch.add_blob(whole.blobs());
    benchmark::DoNotOptimize(context.run(batch));
  };
  const auto score_divided = [&](const BlobView& blob, const DividedBatch::States& states) {
    divided.clear();
    divided.add(blob, states);
    benchmark::DoNotOptimize(divided.run(both.users(), both.context()));
  };
  const auto score_first = [&] { score_divided(whole.blob(0), nullptr); };
  score_first();
  const DividedBatch::States kept = divided.states(0);
  const auto score_later = [&] { score_divided(later.blob(0), kept); };

  bench::Minimum of_whole, of_first, of_later;
  const int64_t calls = bench::calls_for(5e-3, score_whole);
  for (auto _ : state) {
    of_whole.sample(score_whole, calls);
    of_first.sample(score_first, calls);
    of_later.sample(score_later, calls);
  }
  state.counters["whole_us"] = of_whole.value() * 1e6;
  state.counters["first_us"] = of_first.value() * 1e6;
  state.counters["later_us"] = of_later.value() * 1e6;
  state.counters["first_speedup"] = of_whole.value() / of_first.value();
  state.counters["later_speedup"] = of_whole.value() / of_later.value();
  state.counters["pages_speedup"] =
      num_pages * of_whole.value() / (of_first.value() + (num_pages - 1) * of_later.value());
  state.counters["whole_bytes"] = static_cast<double>(whole.blobs().size());
  state.counters["later_bytes"] = static_cast<double>(later.blobs().size());
  state.counters["state_bytes"] = static_cast<double>(kept->blob.size());
}

const bool added = [] {
  for (const char* name : {"user_heavy", "wide_deep", "din_mmoe", "meituan_like"})
    for (const int64_t items : {5, 20, 100, 500})
      benchmark::RegisterBenchmark((std::string(name) + "/items:" + std::to_string(items)).c_str(),
                                   [=](benchmark::State& state) { pages(state, name, items); })
          ->Iterations(15)
          ->Unit(benchmark::kMillisecond);
  return true;
}();

}}  // namespace warprank
