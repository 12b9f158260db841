// SPDX-License-Identifier: Apache-2.0

// A model whose table lies in a store, a tenth of its rows in memory, against the same with all rows in memory: rounds
// of batches in turns, once memory has what is asked for most; and batches that need no row of the store, while it is
// well and while it is away.
//
//     in_memory_ratio = the median over rounds of (seconds with all rows in memory) / (seconds with a tenth)
//     away_p99_ratio  = (99th percentile while the store is away) / (that while it is well)
//
// The store is in the process: what it does, and what the tier's thread does, takes its share of the cores.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/memory_store.hpp"
#include "support/random_data.hpp"
#include "support/zipf.hpp"
#include "warprank/host.hpp"
#include "warprank/store/table_in_store.hpp"

namespace {

using namespace warprank;
using Clock = std::chrono::steady_clock;

constexpr int64_t num_rows = 1000000, dim = 32, num_items = 100, num_requests = 8, bag = 10, num_features = 4;

Plan make_plan() {
  return compile([](Builder& b) -> Outputs {
    const Axis item = b.axis("item", b.axis("user"));
    const Table table = b.hashed_table("id", {dim, 0});
    std::vector<Tensor> parts;
    for (int64_t f = 0; f < num_features; ++f) {
      const std::string name = "ids_" + std::to_string(f);
      parts.push_back(b.embed_bag(b.ids(name, b.axis(name, item)), table, Pooling::mean));
    }
    return {{"y", b.mlp("top", b.concat(parts), {256, 128, 1})}};
  });
}

/// The same model, with all rows in memory and with a tenth of them.
struct Setup {
  Setup() {
    std::mt19937_64 random(1);
    for (int64_t k = 0; k < num_rows; ++k) keys.push_back(k * 1000003);
    std::vector<float16> rows(static_cast<size_t>(num_rows * dim));
    for (float16& x : rows) x = to_float16(static_cast<float>(random() % 200) / 100 - 1);
    const StoredTable table{"id", {DType::f16, dim}};
    const Deadline soon = Clock::now() + std::chrono::minutes(5);
    store->create(table, soon);
    std::vector<StoreStatus> statuses(keys.size());
    store->put(table, keys, reinterpret_cast<const unsigned char*>(rows.data()), statuses.data(), soon);

    std::map<std::string, StoredTensor> tensors;
    tensors["id.keys"] = make_tensor<int64_t>({num_rows}, keys);
    tensors["id.rows"] = make_tensor<float16>({num_rows, dim}, rows);
    all = std::make_unique<Tables>(Tables::load(plan, Weights::from_tensors(tensors), host()));
    TableInStore in_store;
    in_store.store = store;
    in_store.memory_bytes = all->memory()[0].second / 10;
    in_store.store_timeout = std::chrono::milliseconds(100);
    LoadOptions options;
    options.stores = {{"id", in_store}};
    some = std::make_unique<Tables>(Tables::load(plan, Weights::from_tensors({}), host(), options));
    const Weights weights = test_support::random_weights(plan, 1);
    model_all = std::make_unique<Model>(Model::bind(plan, weights, *all));
    model_some = std::make_unique<Model>(Model::bind(plan, weights, *some));
  }

  /// Ids are drawn by `next`.
  template <class Next>
  Batch make_batch(const Next& next) const {
    Batch batch = model_all->batch();
    for (int64_t r = 0; r < num_requests; ++r) {
      Request request = batch.add_request();
      request.lengths(plan.axis("item"), {num_items});
      for (int64_t f = 0; f < num_features; ++f) {
        std::vector<int64_t> ids(num_items * bag), sizes(num_items, bag);
        for (int64_t& id : ids) id = next();
        request.ids(plan.ids("ids_" + std::to_string(f)), ids, Lengths(sizes));
      }
    }
    return batch;
  }
  StoreCounters counters() const { return some->store_counters().at("id"); }

  Plan plan = make_plan();
  std::vector<int64_t> keys;
  std::shared_ptr<test_support::MemoryStore> store = std::make_shared<test_support::MemoryStore>();
  std::unique_ptr<Tables> all, some;
  std::unique_ptr<Model> model_all, model_some;
};

Setup& setup() {
  static Setup one;
  return one;
}

double seconds_of(Context& context, Batch& batch) {
  const auto begin = Clock::now();
  benchmark::DoNotOptimize(context.run(batch));
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
double quantile(std::vector<double> values, double q) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// Runs all batches, split over threads with a context each; the seconds of all together.
double seconds_of(std::vector<Context>& contexts, std::vector<Batch>& batches) {
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (size_t t = 0; t < contexts.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < batches.size(); i += contexts.size())
        benchmark::DoNotOptimize(contexts[t].run(batches[i]));
    });
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Rounds of batches one behind the other, whose ids nobody has seen before.
void from_store(benchmark::State& state) {
  Setup& model = setup();
  const test_support::Zipf zipf(num_rows, 1.05);
  std::mt19937_64 random(2);
  const auto next = [&] { return model.keys[static_cast<size_t>(zipf(random))]; };
  std::vector<Context> all, some;
  for (int64_t t = 0; t < state.range(0); ++t) {
    all.push_back(model.model_all->context());
    some.push_back(model.model_some->context());
  }
  const auto new_batches = [&] {
    std::vector<Batch> batches;
    for (int i = 0; i < 20; ++i) batches.push_back(model.make_batch(next));
    return batches;
  };
  for (int round = 0; round < 30; ++round) {
    std::vector<Batch> batches = new_batches();
    seconds_of(some, batches);
  }
  std::vector<double> ratios;
  const StoreCounters before = model.counters();
  for (auto _ : state) {
    std::vector<Batch> batches = new_batches();
    // Whoever comes second finds the ids in the processor's caches.
    const bool all_first = ratios.size() % 2 == 0;
    double with_all = all_first ? seconds_of(all, batches) : 0;
    const double with_some = seconds_of(some, batches);
    if (!all_first) with_all = seconds_of(all, batches);
    ratios.push_back(with_all / with_some);
    state.SetIterationTime(with_some / static_cast<double>(batches.size()));
  }
  const StoreCounters after = model.counters();
  const auto hits = static_cast<double>(after.hits - before.hits),
             misses = static_cast<double>(after.misses - before.misses);
  state.counters["in_memory_ratio"] = quantile(ratios, 0.5);
  state.counters["hit_ratio"] = hits / (hits + misses);
  state.counters["fetched_share"] = static_cast<double>(after.fetched - before.fetched) / misses;
  state.counters["memory_share"] = static_cast<double>(after.rows) / num_rows;
}
BENCHMARK(from_store)
    ->Name("stores/default_row_now_fetch_later/zipf:1.05/in_memory_percent:10")
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Iterations(30)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

/// Batches whose rows are in memory, behind one that misses some each: the store is well in one phase of some batches,
/// away in the next.
void away(benchmark::State& state) {
  Setup& model = setup();
  std::mt19937_64 random(3);
  const auto known = [&] { return model.keys[random() % 2000]; };
  const auto any = [&] { return model.keys[random() % model.keys.size()]; };
  Context some = model.model_some->context();
  std::vector<Batch> hits, misses;
  for (int i = 0; i < 50; ++i) {
    hits.push_back(model.make_batch(known));
    misses.push_back(model.make_batch(any));
  }
  for (int turn = 0; turn < 20; ++turn)
    for (Batch& batch : hits) seconds_of(some, batch);
  std::vector<double> well, gone;
  size_t at = 0;
  for (auto _ : state) {
    model.store->is_away = at / 50 % 2 == 1;
    seconds_of(some, misses[at % misses.size()]);
    std::vector<double>& of = model.store->is_away ? gone : well;
    of.push_back(seconds_of(some, hits[at++ % hits.size()]));
    state.SetIterationTime(of.back());
  }
  model.store->is_away = false;
  state.counters["well_p99_us"] = 1e6 * quantile(well, 0.99);
  state.counters["away_p99_us"] = 1e6 * quantile(gone, 0.99);
  state.counters["away_p99_ratio"] = quantile(gone, 0.99) / quantile(well, 0.99);
}
BENCHMARK(away)
    ->Name("stores/rows_in_memory/store_away")
    ->Iterations(4000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
