// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: rows that are replaced while batches are in flight.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;   // NOLINT: for models and batches
using namespace table_update_testing;  // NOLINT: for tables whose rows have versions

/// That rows are those of one of two states of the tables; of direct tables, of the first.
void expect_rows(const Scores& scores, const std::vector<VersionedTable>& old, const std::vector<VersionedTable>& next,
                 const std::vector<int64_t>& keys) {
  for (size_t t = 0; t < old.size(); ++t) {
    const Span<const float> all = scores["y_" + old[t].name].of(0);
    ASSERT_EQ(all.size(), static_cast<int64_t>(keys.size()) * old[t].dim);
    for (size_t i = 0; i < keys.size(); ++i) {
      const float* begin = all.begin() + static_cast<int64_t>(i) * old[t].dim;
      const Row row(begin, begin + old[t].dim);
      if (old[t].is_hashed && row == next[t].expected(keys[i])) continue;
      ASSERT_EQ(row, old[t].expected(keys[i])) << old[t].name << ", key " << keys[i];
    }
  }
}

TEST_F(CudaEngine, RowsAreReplacedWhileBatchesAreInFlight) {
  std::vector<VersionedTable> tables{versioned_table("direct", DType::i8, 13, false, first_keys(60)),
                                     versioned_table("hashed", DType::f16, 8, true, first_keys(40))};
  const Plan plan = plan_of(tables);
  LoadOptions options;
  options.updatable = true;
  Tables loaded = Tables::load(plan, weights_of(tables), cuda(), options);
  const Model model = Model::bind(plan, Weights::from_tensors({}), loaded);
  const std::vector<int64_t> keys = first_keys(64);
  const device::OwnedStream stream;
  std::optional<Context> contexts[] = {model.context(), model.context()};
  Batch batches[] = {model.batch(), model.batch()};
  for (Batch& batch : batches) {
    Request request = batch.add_request();
    for (const VersionedTable& table : tables) request.ids(plan.ids("id_" + table.name), keys);
  }
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= 3; ++version) {
    const std::vector<VersionedTable> old = tables;
    {
      Pending first = contexts[0]->submit(batches[0]),
              second = contexts[1]->submit(batches[1], reinterpret_cast<StreamHandle>(stream.get()));
      const TestUpdate update = random_update(tables, version, random);
      EXPECT_EQ(loaded.update(update.weights()), update.report);
      expect_rows(first.wait(), old, tables, keys);
      expect_rows(second.wait(), old, tables, keys);
    }
#if !defined(__CUDACC__)
    simt::clear_calls();
#endif
    Pending pending = contexts[0]->submit(batches[0]);
#if !defined(__CUDACC__)
    const simt::Calls calls = simt::calls();
    EXPECT_EQ(calls.graph_launches, 1);
    EXPECT_EQ(calls.copies_to_device.count, 0) << "the graph fetches the batch";
    EXPECT_EQ(calls.copies_to_host.count, 0);
    EXPECT_EQ(calls.launches, 0);
    EXPECT_EQ(calls.allocations.count, 0);
    EXPECT_EQ(calls.synchronizations, 0);
    EXPECT_EQ(calls.objects_made, 0);
#endif
    expect_rows(pending.wait(), tables, tables, keys);
  }
  contexts[1].reset();  // nobody asks for its batches any more
  const TestUpdate update = random_update(tables, 4, random);
  EXPECT_EQ(loaded.update(update.weights()), update.report);
  expect_rows(contexts[0]->run(batches[0]), tables, tables, keys);
}

TEST_F(CudaEngine, RowsOnTheHostAreScoredAsThoseOnTheDevice) {
  std::vector<VersionedTable> tables{versioned_table("direct", DType::i8, 13, false, first_keys(60)),
                                     versioned_table("hashed", DType::f16, 8, true, first_keys(40))};
  const Plan plan = plan_of(tables);
  const std::vector<int64_t> keys = first_keys(64);
  Batch batch = plan.batch();
  Request request = batch.add_request();
  for (const VersionedTable& table : tables) request.ids(plan.ids("id_" + table.name), keys);
  std::vector<Tables> placed;
  std::vector<Context> contexts;
  for (const Placement where : {Placement::device, Placement::host, Placement::cached}) {
    LoadOptions options;
    options.updatable = true;
    options.cache_pass_seconds = 0;
    options.placement = {{"*", {where, where == Placement::cached ? 1 << 14 : 0}}};
    placed.push_back(Tables::load(plan, weights_of(tables), cuda(), options));
    contexts.push_back(Model::bind(plan, Weights::from_tensors({}), placed.back()).context());
  }
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= 3; ++version) {
    for (size_t i = 0; i < placed.size(); ++i) {
      expect_rows(contexts[i].run(batch), tables, tables, keys);
      placed[i].pass_over_caches();
      expect_rows(contexts[i].run(batch), tables, tables, keys);
    }
    const TestUpdate update = random_update(tables, version, random);
    for (Tables& some : placed) EXPECT_EQ(some.update(update.weights()), update.report);
  }
  EXPECT_TRUE(placed[0].cache_counters().empty());
  EXPECT_TRUE(placed[1].cache_counters().empty());
  const auto counters = placed[2].cache_counters();
  EXPECT_GE(counters.at("direct").hits, 3 * 60);
  EXPECT_GT(counters.at("hashed").admitted, 30);
  EXPECT_EQ(placed[0].memory().size(), 3u);
  EXPECT_EQ(placed[2].memory().size(), 5u) << "what is pinned is told beside the rest";
  Context& context = contexts[0];
  try {
    context.rebind(Model::bind(plan, Weights::from_tensors({}), placed[2]));
    ADD_FAILURE() << "its kernels know no caches";
  } catch (const invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("'direct': expected I8 of 13 columns, got I8 of 13 columns, cached"),
              std::string::npos)
        << error.what();
  }
  context.rebind(Model::bind(plan, Weights::from_tensors({}), placed[1]));
  expect_rows(context.run(batch), tables, tables, keys);
}

}}  // namespace warprank
