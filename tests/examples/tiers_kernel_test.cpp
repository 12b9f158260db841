// SPDX-License-Identifier: Apache-2.0

/// The example of tiers on the CUDA engine: most rows are found on the device, and scores are those of the host engine
/// with all rows in memory.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "../../examples/tiers/run.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/cuda.hpp"
#include "warprank/host.hpp"

namespace {

/// Of the last batch of tiers::run.
std::vector<float> scores_with_all_rows(const tiers::Options& options) {
  const warprank::Plan plan = tiers::plan_of(options.num_rows);
  const auto tables = warprank::Tables::load(plan, tiers::table_in_memory(options.num_rows), warprank::host());
  const warprank::Model model = warprank::Model::bind(plan, tiers::dense_weights(plan), tables);
  warprank::Context context = model.context();
  warprank::Batch batch = model.batch();
  tiers::SkewedItems items(options.num_rows);
  for (int64_t i = 0; i < 2 * options.num_batches; ++i) {
    batch.clear();
    for (int64_t r = 0; r < tiers::num_requests; ++r)
      batch.add_request()
          .ids(plan.ids("item_id"), items.draw(tiers::num_items))
          .ids(plan.ids("seen_id"), items.draw(tiers::num_seen));
  }
  const warprank::Scores scores = context.run(batch);
  std::vector<float> all;
  for (int64_t r = 0; r < tiers::num_requests; ++r)
    all.insert(all.end(), scores["ctr"].of(r).begin(), scores["ctr"].of(r).end());
  return all;
}

TEST(Tiers, FindMostRowsOnTheDevice) {
  const tiers::Options options{20'000, 1 << 20, 2};
  const tiers::Report report = tiers::run(warprank::cuda(), true, options);
  EXPECT_GT(report.hit_ratio, 0.6) << "with a cache of half of the table";
  EXPECT_NE(report.tables.find("pinned memory of the host, 640 KB; on the device"), std::string::npos) << report.tables;
  const std::vector<float> expected = scores_with_all_rows(options);
  ASSERT_EQ(report.scores.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(report.scores[i], expected[i], 2e-3) << i;
}

TEST(Tiers, FindRowsInAllOfThem) {
  tiers::Options options{20'000, 1 << 16, 4};
  options.host_bytes = 1 << 19;  // a third of the rows
  const tiers::Report report = tiers::run(warprank::cuda(), true, options);
  EXPECT_GT(report.hit_ratio, 0.3) << "with room for 1,400 rows";
  EXPECT_LT(report.hit_ratio, 0.9);
  EXPECT_NE(report.tables.find("a store; in pinned memory of the host those that are asked for, 5"), std::string::npos)
      << report.tables;
  EXPECT_EQ(report.scores.size(), scores_with_all_rows(options).size());
}

}  // namespace
