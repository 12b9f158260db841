// SPDX-License-Identifier: Apache-2.0
//
// Ids from words to scores: features share one hashed table by their slots, and direct tables have buckets as rows.
// docs/IDS.md shows parts of this file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "warprank/host.hpp"
#include "warprank/ids/buckets.hpp"
#include "warprank/ids/slot.hpp"

namespace {

using namespace warprank;

constexpr ids::Slot city{"city", 12}, city_hour{"city x hour", 13};
constexpr ids::HashBuckets genres{1000};
constexpr ids::Boundaries age_groups{18, 25, 35};

/// The sum of what the tables say.
Outputs describe(Builder& b) {
  const auto user = b.axis("user");
  const auto shared = b.hashed_table("shared", {.dim = 1});
  const auto x = b.concat({b.embed(b.ids("city", user), shared), b.embed(b.ids("city_hour", user), shared),
                           b.embed(b.ids("genre", user), b.table("genre", {.dim = 1})),
                           b.embed(b.ids("age", user), b.table("age", {.dim = 1}))});
  return {{"score", b.linear("sum", x, 1)}};
}

TEST(SlotCodedIds, ShareAHashedTable) {
  const Plan plan = compile(describe);
  const std::vector<int64_t> keys = {ids::encode(city, "Berlin"), ids::encode(city_hour, ids::cross({"Berlin", 17})),
                                     ids::encode(city_hour, ids::cross({"Berlin", 18}))};
  std::vector<float> genre_rows(1000, 0), age_rows(4, 0);
  genre_rows[static_cast<size_t>(genres.bucket("comedy"))] = 100;
  age_rows[2] = 1000;
  const Tables tables = Tables::load(plan,
                                     Weights::from_tensors({{"shared.keys", make_tensor<int64_t>({3}, keys)},
                                                            {"shared.rows", make_tensor<float>({3, 1}, {1, 10, 20})},
                                                            {"genre", make_tensor<float>({1000, 1}, genre_rows)},
                                                            {"age", make_tensor<float>({4, 1}, age_rows)}}),
                                     host());
  const Model model = Model::bind(plan,
                                  Weights::from_tensors({{"sum.weight", make_tensor<float>({1, 4}, {1, 1, 1, 1})},
                                                         {"sum.bias", make_tensor<float>({1}, {0})}}),
                                  tables);
  const IdsSlot city_id = plan.ids("city"), city_hour_id = plan.ids("city_hour"), genre_row = plan.ids("genre"),
                age_row = plan.ids("age");
  Context context = model.context();
  Batch batch = plan.batch();
  Request request = batch.add_request();
  request.ids(city_id, {ids::encode(city, "Berlin")})
      .ids(city_hour_id, {ids::encode(city_hour, ids::cross({"Berlin", 17}))})
      .ids(genre_row, {genres.bucket("comedy")})
      .ids(age_row, {age_groups.bucket(31.f)});
  Request elsewhere = batch.add_request();
  elsewhere
      .ids(city_id, {ids::encode(city_hour, "Berlin")})  // the word in another slot
      .ids(city_hour_id, {ids::encode(city_hour, ids::cross({"Berlin", 18}))})
      .ids(genre_row, {genres.bucket("drama")})
      .ids(age_row, {age_groups.bucket(17.f)});
  const Scores scores = context.run(batch);
  EXPECT_EQ(scores["score"].of(request)[0], 1 + 10 + 100 + 1000);
  EXPECT_EQ(scores["score"].of(elsewhere)[0], 20);
}

}  // namespace
