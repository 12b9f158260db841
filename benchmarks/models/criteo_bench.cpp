// SPDX-License-Identifier: Apache-2.0

// Rows of Criteo's layout, 13 integers and 26 words: from text to ids by transforms, and from ids to scores by a DeepFM
// on the host engine. Each thread has columns and a context of its own; items_per_second are rows of all threads.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/criteo.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

constexpr int64_t rows_per_batch = 512, buckets = 10000;

ids::Transforms criteo_transforms() {
  std::string columns, features;
  for (size_t i = 1; i <= test_support::criteo_integers; ++i) {
    const std::string name = "\"I" + std::to_string(i) + "\"";
    columns += R"({"name": )" + name + R"(, "type": "f32"},)";
    features += R"({"name": )" + name + R"(, "op": "bucketize", "of": [{"column": )" + name +
                R"(}], "settings": {"boundaries": [0, 1, 2, 4, 8, 16, 64, 256, 1024]}},)";
  }
  for (size_t i = 1; i <= test_support::criteo_words; ++i) {
    const std::string name = "\"C" + std::to_string(i) + "\"";
    columns += R"({"name": )" + name + R"(, "type": "text"},)";
    features += R"({"name": )" + name + R"(, "op": "hash", "of": [{"column": )" + name +
                R"(}], "settings": {"buckets": )" + std::to_string(buckets - 1) +
                R"(, "first": 1, "mask": {"text": "", "id": 0}}},)";
  }
  columns.pop_back(), features.pop_back();
  return ids::Transforms::from_json(R"({"format": "warprank.transforms", "version": 1, "scheme": "warprank-ids-1",
    "columns": [)" + columns + R"(], "features": [)" +
                                    features + "]}");
}

/// A DeepFM (Guo et al. 2017) of all 39 fields, 16 columns each.
Outputs deepfm(Builder& b, const ids::Transforms& transforms) {
  constexpr int64_t dim = 16;
  const Axis row = b.axis("row", b.axis("batch"));
  std::vector<Tensor> fields, wide;
  for (const ids::TransformFeature& feature : transforms.features()) {
    const Ids ids = b.ids(feature.name, row);
    TableOptions options;
    options.dim = dim;
    fields.push_back(b.embed(ids, b.table(feature.name, options)));
    options.dim = 1;
    wide.push_back(b.embed(ids, b.table(feature.name + ".wide", options)));
  }
  const Tensor logits = b.fm(fields, dim) + b.wide("wide", wide) + b.mlp("deep", b.concat(fields), {64, 32, 1});
  return {{"ctr", b.sigmoid(logits)}};
}

void text_to_ids(benchmark::State& state) {
  const ids::Transforms transforms = criteo_transforms();
  const std::string text = test_support::criteo_lines(rows_per_batch, static_cast<uint32_t>(state.thread_index()));
  test_support::CriteoColumns rows;
  ids::Features features;
  for (auto _ : state) {
    rows.read(text);
    transforms.run(rows.columns(transforms), features);
    benchmark::DoNotOptimize(features.ids(0).data());
  }
  state.SetItemsProcessed(state.iterations() * rows_per_batch);
}
BENCHMARK(text_to_ids)->Threads(1)->Threads(2)->UseRealTime()->Unit(benchmark::kMillisecond);

/// A batch is filled with ids, and scored.
void ids_to_scores(benchmark::State& state) {
  const ids::Transforms transforms = criteo_transforms();
  const Plan plan = compile([&](Builder& b) { return deepfm(b, transforms); });
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, buckets, 2), host());
  Context context = Model::bind(plan, test_support::random_weights(plan, 1), tables).context();
  const std::string text = test_support::criteo_lines(rows_per_batch, static_cast<uint32_t>(state.thread_index()));
  test_support::CriteoColumns rows;
  rows.read(text);
  ids::Features features;
  transforms.run(rows.columns(transforms), features);
  std::vector<IdsSlot> slots;
  for (const ids::TransformFeature& feature : transforms.features()) slots.push_back(plan.ids(feature.name));
  Batch batch = plan.batch();
  for (auto _ : state) {
    batch.clear();
    Request request = batch.add_request();
    for (size_t i = 0; i < slots.size(); ++i) request.ids(slots[i], features.ids(static_cast<int>(i)));
    request.finish();
    benchmark::DoNotOptimize(context.run(batch));
  }
  state.SetItemsProcessed(state.iterations() * rows_per_batch);
}
BENCHMARK(ids_to_scores)->Threads(1)->Threads(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}}  // namespace warprank
