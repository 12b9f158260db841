// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: inputs that requests hold in half the bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "warprank/batch/blob.hpp"
#include "warprank/cuda.hpp"
#include "warprank/engine/cuda/run_size.hpp"
#include "warprank/narrow_inputs.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: written for these tests

/// A random model that says nothing of its requests' types, and says how many rows its direct table has.
Graph wide_graph(uint32_t seed) {
  Graph graph = warprank::build(test_support::RandomModel(seed));
  for (IdsInfo& info : graph.ids) info.wire = IdsWire::i64;
  for (DenseInfo& info : graph.dense) info.wire = DenseWire::f32;
  for (TableInfo& table : graph.tables) table.rows = table.hashed ? 0 : 50;
  return graph;
}

Model bound(const Plan& plan, uint32_t seed) {
  return Model::bind(plan, test_support::random_weights(plan, seed),
                     Tables::load(plan, test_support::random_tables(plan, 50, seed), cuda()));
}

TEST_F(CudaEngine, NarrowInputsThatItChoosesCostNoBitOfAScore) {
  int64_t num_ids = 0, num_dense = 0, num_wide = 0;
  for (uint32_t seed = 0; seed < (kernel_testing::build == kernel_testing::Build::plain ? 12 : 2); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan wide = plan_for(wide_graph(seed), {}), narrow = plan_for(narrow_inputs(wide), {});
    EXPECT_EQ(narrow.layout().fingerprint(), wide.layout().fingerprint());
    std::vector<PlainRequest> requests = random_requests(wide, 4, seed);
    for (const IdsInfo& info : narrow.layout().ids()) {
      num_ids += info.wire == IdsWire::i32;
      std::vector<int64_t>& ids = requests[0].ids[info.name];
      if (info.wire == IdsWire::i32 && !ids.empty()) ids.back() = int64_t{1} << 32;  // row 0, if it were cut off
      if (ids.empty()) requests[0].ids.erase(info.name);
    }
    for (const DenseInfo& info : narrow.layout().dense()) {
      (info.wire == DenseWire::f16 ? num_dense : num_wide) += 1;
      std::vector<float>& values = requests[1].dense[info.name];
      if (info.wire == DenseWire::f16 && !values.empty()) values.back() = -1e6f;
      if (values.empty()) requests[1].dense.erase(info.name);
    }
    const Model wide_model = bound(wide, seed), narrow_model = bound(narrow, seed);
    Context wide_context = wide_model.context(), narrow_context = narrow_model.context();
    Batch wide_batch = batch_of(wide_model, requests), narrow_batch = batch_of(narrow_model, requests);
    const std::vector<float> expected = all_scores(wide, wide_context.run(wide_batch));
    EXPECT_FALSE(expected.empty());
    EXPECT_TRUE(same_bits(all_scores(narrow, narrow_context.run(narrow_batch)), expected));
  }
  EXPECT_GT(num_ids, 0);
  EXPECT_GT(num_dense, 0);
  EXPECT_GT(num_wide, 0);
}

TEST_F(CudaEngine, TakesRequestsOfBothVersionsInOneBatch) {
  const RandomSetup s(7);
  const std::vector<PlainRequest> requests = random_requests(s.plan, 6, 3);
  Batch packed = batch_of(s.model, requests), old(s.plan.layout().wide()), mixed = s.model.batch();
  for (const PlainRequest& request : requests) add_to(old, request);
  for (int64_t r = 0; r < old.size(); ++r) {
    const BlobView blob = r % 2 == 0 ? old.blob(r) : packed.blob(r);
    EXPECT_EQ(reinterpret_cast<const BlobHeader*>(blob.data())->version, r % 2 == 0 ? 1u : 2u);
    EXPECT_TRUE(mixed.add_blob({blob.data(), blob.bytes()}).status().ok());
  }
  Context context = s.model.context();
  const std::vector<float> expected = all_scores(s.plan, context.run(packed));
  EXPECT_FALSE(expected.empty());
  EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(mixed)), expected));
}

TEST(RunSize, HasRoomForWhatRequestsCanBe) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    for (const bool is_wide : {false, true}) {
      const Graph graph = is_wide ? wide_graph(seed) : warprank::build(test_support::RandomModel(seed));
      const Plan plan = plan_for(graph, {});
      const Batch batch = test_support::random_batch(plan, 1 + seed % 9, {}, seed);
      std::vector<int64_t> rows;
      for (size_t a = 0; a < graph.axes.size(); ++a) rows.push_back(batch.num_rows({static_cast<int>(a)}));
      const int64_t bytes = batch.bytes().size() - batch.index().bytes();
      EXPECT_LE(bytes, most_blob_bytes(plan.layout(), rows)) << "seed " << seed;
    }
  }
}

}}  // namespace warprank
