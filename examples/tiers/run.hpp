// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Batches of skewed items, while some of the table's rows are near and all of them somewhere else: on a GPU in the
/// host's memory or in a store behind it, on the host engine in a store.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "made_up_store.hpp"
#include "model.hpp"
#include "warprank/engine/model.hpp"
#include "warprank/store/table_in_store.hpp"

namespace tiers {

struct Options {
  int64_t num_rows = 100'000'000;
  int64_t near_bytes = int64_t{1} << 30;  ///< for rows that are near: in device memory, or in the host's over a store
  int64_t num_batches = 1000;             ///< as many more come before, by which memory fills
  int64_t host_bytes = 0;  ///< on a GPU, for rows in the host's memory, where all are in a store; 0: there are all
};

struct Report {
  std::string tables;  ///< Tables::describe
  warprank::MemoryReport memory;
  double hit_ratio = 0, seconds_per_batch = 0;
  std::vector<float> scores;  ///< of the last batch
};

struct Found {
  int64_t hits = 0, misses = 0;
};
inline Found found_so_far(const warprank::Tables& tables, bool is_gpu) {
  if (is_gpu) {
    const warprank::CacheCounters counters = tables.cache_counters().at("item");
    const auto in_stores = tables.store_counters();
    const auto found = in_stores.find("item");
    return {counters.hits, counters.misses + (found == in_stores.end() ? 0 : found->second.misses)};
  }
  const warprank::StoreCounters counters = tables.store_counters().at("item");
  return {counters.hits, counters.misses};
}

inline warprank::Tables load(const warprank::Plan& plan, warprank::Device device, bool is_gpu, const Options& options) {
  warprank::LoadOptions load;
  if (is_gpu) load.placement = {{"item", {warprank::Placement::cached, options.near_bytes}}};
  if (is_gpu && options.host_bytes == 0)
    return warprank::Tables::load(plan, table_in_memory(options.num_rows), device, load);
  warprank::TableInStore in_store;
  in_store.store = std::make_shared<MadeUpStore>(options.num_rows);
  in_store.memory_bytes = is_gpu ? options.host_bytes : options.near_bytes;
  load.stores = {{"item", in_store}};
  return warprank::Tables::load(plan, warprank::Weights::from_tensors({}), device, load);
}

inline Report run(warprank::Device device, bool is_gpu, const Options& options) {
  const warprank::Plan plan = plan_of(options.num_rows);
  warprank::Tables tables = load(plan, device, is_gpu, options);
  const warprank::Model model = warprank::Model::bind(plan, dense_weights(plan), tables);
  warprank::Context context = model.context();
  warprank::Batch batch = model.batch();
  const warprank::IdsSlot item = plan.ids("item_id"), seen = plan.ids("seen_id");
  SkewedItems items(options.num_rows);

  Report report;
  double seconds = 0;
  const auto score = [&] {
    batch.clear();
    for (int64_t r = 0; r < num_requests; ++r)
      batch.add_request().ids(item, items.draw(num_items)).ids(seen, items.draw(num_seen));
    const auto begin = std::chrono::steady_clock::now();
    const warprank::Scores scores = context.run(batch);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report.scores.clear();
    for (int64_t r = 0; r < num_requests; ++r) {
      const warprank::Span<const float> of_request = scores["ctr"].of(r);
      report.scores.insert(report.scores.end(), of_request.begin(), of_request.end());
    }
  };
  for (int64_t i = 0; i < options.num_batches; ++i) {
    score();
    tables.pass_over_caches();
  }
  const Found before = found_so_far(tables, is_gpu);
  seconds = 0;
  for (int64_t i = 0; i < options.num_batches; ++i) score();
  tables.pass_over_caches();
  const Found after = found_so_far(tables, is_gpu);

  const auto hits = static_cast<double>(after.hits - before.hits),
             misses = static_cast<double>(after.misses - before.misses);
  report.hit_ratio = hits / (hits + misses);
  report.seconds_per_batch = seconds / static_cast<double>(options.num_batches);
  report.tables = tables.describe();
  report.memory = tables.memory();
  return report;
}

}  // namespace tiers
