// SPDX-License-Identifier: Apache-2.0

// How HSTU grows with the history, on the host engine, one thread: three layers of 128 columns over histories of 128 to
// 8,192 events, whole and with a window of 128. A request of one candidate and one of 201 run in turns within one
// benchmark. Counters: microseconds of an event (of the request of one candidate) and of each further candidate.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "measure.hpp"
#include "reference_models.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

Outputs layers(Builder& b, int64_t window) {
  constexpr int64_t width = 128, longest = 8192;
  const auto user = b.axis("user"), candidate = b.axis("candidate", user), event = b.axis("event", user);
  const auto item = b.table("item", {.dim = width});
  std::vector<Tensor> sequence{b.embed(b.ids("event_item", event), item), b.embed(b.ids("item", candidate), item)};
  for (int i = 0; i < 3; ++i)
    sequence = b.hstu("layer" + std::to_string(i), sequence, {.heads = 2, .max_length = longest, .window = window});
  return {{"score", b.linear("score", sequence[1], 1)}};
}

void growth(benchmark::State& state, int64_t events, int64_t window) {
  constexpr int64_t table_rows = 1000, many = 201;
  const Graph graph = build([&](Builder& b) { return layers(b, window); });
  CompileOptions options;
  options.capacities = {{1, many, {{"event", events}}}};
  const Plan plan = compile(graph, options);
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, table_rows, 2), host());
  Context context = Model::bind(plan, test_support::random_weights(plan, 1), tables).context();
  const auto batch_of = [&](int64_t items) {
    bench::BatchShape shape;
    shape.items = items, shape.actions = events;
    Batch batch = plan.batch();
    for (const auto& request : bench::random_requests(graph, shape, table_rows, 3)) add_to(batch, request);
    return batch;
  };
  Batch of_one = batch_of(1), of_many = batch_of(many);
  const auto run = [&](Batch& batch) { return [&] { benchmark::DoNotOptimize(context.run(batch)); }; };
  bench::Minimum one, all;
  const int64_t calls = bench::calls_for(5e-3, run(of_many));
  for (auto _ : state) {
    one.sample(run(of_one), calls);
    all.sample(run(of_many), calls);
  }
  state.counters["us_per_event"] = one.value() * 1e6 / static_cast<double>(events);
  state.counters["us_per_candidate"] = (all.value() - one.value()) * 1e6 / static_cast<double>(many - 1);
}

const bool added = [] {
  for (const int64_t window : {0, 128})
    for (const int64_t events : {128, 512, 2048, 8192})
      benchmark::RegisterBenchmark(
          ("hstu/events:" + std::to_string(events) + "/window:" + std::to_string(window)).c_str(),
          [=](benchmark::State& state) { growth(state, events, window); })
          ->Iterations(5)
          ->Unit(benchmark::kMillisecond);
  return true;
}();

}}  // namespace warprank
