// SPDX-License-Identifier: Apache-2.0

/// The example of tiers on the host engine: rows that are made when they are asked for are those of the table in
/// memory. tiers_kernel_test.cpp is about a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "../../examples/tiers/run.hpp"
#include "support/message_of.hpp"
#include "support/store_testing.hpp"
#include "support/wait_until.hpp"
#include "warprank/host.hpp"

namespace {

using namespace warprank;
using test_support::message_of;

constexpr int64_t num_rows = 3000;

TEST(TiersStore, HasTheRowsOfTheTableInMemory) {
  tiers::MadeUpStore store(num_rows);
  const StoredTable table{"item", *store.describe("item", test_support::soon())};
  const std::vector<int64_t> keys = test_support::keys_from(-1, num_rows + 2);
  const test_support::Answers answers = test_support::get(store, table, keys);
  EXPECT_EQ(answers.count(StoreStatus::ok), num_rows);
  EXPECT_EQ(answers.statuses.front(), StoreStatus::absent);
  EXPECT_EQ(answers.statuses.back(), StoreStatus::absent);
  const Weights in_memory = tiers::table_in_memory(num_rows);
  const TensorView& rows = *in_memory.find("item");
  ASSERT_EQ(rows.bytes, num_rows * table.rows.row_bytes());
  EXPECT_EQ(std::memcmp(answers.rows.data() + table.rows.row_bytes(), rows.data, static_cast<size_t>(rows.bytes)), 0);
  std::map<std::vector<unsigned char>, int> different;
  for (auto row = answers.rows.begin(); row < answers.rows.end(); row += table.rows.row_bytes())
    ++different[{row, row + table.rows.row_bytes()}];
  EXPECT_EQ(different.size(), num_rows + 1);  // and what nobody has written
}

TEST(TiersStore, ChangesNoRows) {
  tiers::MadeUpStore store(num_rows);
  const StoredTable table{"item", {DType::f16, tiers::dim}};
  EXPECT_EQ(test_support::put(store, table, {1, 2}).count(StoreStatus::failed), 2);
  EXPECT_EQ(test_support::erase(store, table, {1, 2}).count(StoreStatus::failed), 2);
  EXPECT_THAT(message_of([&] { store.publish_changes(table); }), testing::HasSubstr("rows that are made up"));
}

TEST(TiersItems, AreSkewedAllOverTheTable) {
  tiers::SkewedItems items(num_rows);
  std::map<int64_t, int> counts;
  for (const int64_t item : items.draw(100'000)) ++counts[item];
  EXPECT_GE(counts.begin()->first, 0);
  EXPECT_LT(counts.rbegin()->first, num_rows);
  EXPECT_GT(counts.size(), num_rows / 2);
  EXPECT_GT(counts.rbegin()->first - counts.begin()->first, num_rows * 9 / 10);
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_NEAR(most->second, 100'000 / 11.5, 1000) << "ln 2 / ln 3001 of them";
}

TEST(TiersOnTheHost, ScoreAsWithAllRowsInMemory) {
  const Plan plan = tiers::plan_of(num_rows);
  const Tables near = tiers::load(plan, host(), false, {num_rows, 1 << 20, 1});
  const Tables whole = Tables::load(plan, tiers::table_in_memory(num_rows), host());
  tiers::SkewedItems items(num_rows);
  Batch batch = Model::bind(plan, tiers::dense_weights(plan), whole).batch();
  for (int64_t r = 0; r < tiers::num_requests; ++r)
    batch.add_request()
        .ids(plan.ids("item_id"), items.draw(tiers::num_items))
        .ids(plan.ids("seen_id"), items.draw(tiers::num_seen));
  const auto scores_with = [&](const Tables& tables) {
    Context context = Model::bind(plan, tiers::dense_weights(plan), tables).context();
    const Scores scores = context.run(batch);
    std::vector<float> all;
    for (int64_t r = 0; r < tiers::num_requests; ++r)
      all.insert(all.end(), scores["ctr"].of(r).begin(), scores["ctr"].of(r).end());
    return all;
  };
  const std::vector<float> expected = scores_with(whole);
  EXPECT_NE(scores_with(near), expected) << "nothing was near at first";
  EXPECT_TRUE(test_support::wait_until([&] { return scores_with(near) == expected; }));
}

TEST(TiersOnTheHost, FindMoreRowsInMoreMemory) {
  const auto found = [](int64_t near_bytes) {
    const tiers::Report report = tiers::run(host(), false, {100'000, near_bytes, 100});
    EXPECT_EQ(report.scores.size(), static_cast<size_t>(tiers::num_requests * tiers::num_items));
    EXPECT_GT(report.seconds_per_batch, 0);
    EXPECT_THAT(report.tables, testing::HasSubstr("item  100 K x 16 F16  a store; in memory"));
    return report.hit_ratio;
  };
  // A thread fetches rows, which a busy machine may keep from its core until the last batch.
  double little = 0, much = 0;
  EXPECT_TRUE(test_support::wait_until([&] { return (little = found(16 << 10)) > 0; }));
  EXPECT_LT(little, 0.6) << "of some 250 rows";
  EXPECT_TRUE(test_support::wait_until([&] { return (much = found(8 << 20)) > little + 0.1; })) << much;
  EXPECT_LT(much, 1) << "some items come for the first time";
}

}  // namespace
