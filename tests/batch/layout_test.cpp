// SPDX-License-Identifier: Apache-2.0

#include "warprank/batch/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "batch/blob_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/batch/detail/fnv1a.hpp"
#include "warprank/model.hpp"

namespace {

using namespace warprank;
using batch_testing::small_graph;
using test_support::message_of;
using testing::HasSubstr;

Outputs films(Builder& b) {
  const auto user = b.axis("user");
  const auto item = b.axis("item", user, keep_last(9));
  const auto table = b.hashed_table("film", {8});
  const auto ids = b.ids("film_id", item, {3});
  return {{"score", b.linear("last", b.concat({b.embed(ids, table), b.dense("context", item, 2)}), 1)}};
}

TEST(BatchLayout, TakesAxesAndInputsFromAGraphInItsOrder) {
  const BatchLayout layout(build(films));
  ASSERT_EQ(layout.axes().size(), 2u);
  EXPECT_EQ(layout.axis(AxisSlot{1}).name, "item");
  EXPECT_EQ(layout.axis(AxisSlot{1}).keep_last, 9);
  ASSERT_EQ(layout.ids().size(), 1u);
  EXPECT_EQ(layout.ids(IdsSlot{0}).default_id, 3);
  ASSERT_EQ(layout.dense().size(), 1u);
  EXPECT_EQ(layout.dense(DenseSlot{0}).width, 2);
}

TEST(BatchLayout, ResolvesNamesToSlots) {
  const BatchLayout layout(small_graph());
  EXPECT_EQ(layout.ids("user_id").index, 0);
  EXPECT_EQ(layout.ids("tag").index, 5);
  EXPECT_EQ(layout.dense("context").index, 0);
  EXPECT_EQ(layout.dense("weight").index, 2);
  EXPECT_EQ(layout.axis("user").index, 0);
  EXPECT_EQ(layout.axis("history").index, 3);
}

TEST(BatchLayout, SuggestsTheNearestNameForAnUnknownOne) {
  const BatchLayout layout(small_graph());
  EXPECT_EQ(message_of([&] { layout.ids("film_idd"); }),
            "ids 'film_idd': expected an input of the model, got an unknown name; did you mean 'film_id'?");
  EXPECT_THAT(message_of([&] { layout.dense("kontext"); }), HasSubstr("did you mean 'context'?"));
  EXPECT_THAT(message_of([&] { layout.axis("histroy"); }), HasSubstr("did you mean 'history'?"));
  EXPECT_EQ(message_of([&] { layout.axis("zzz"); }), "axis 'zzz': expected an axis of the model, got an unknown name");
}

TEST(BatchLayout, SaysThatAnInputIsOfTheOtherKind) {
  const BatchLayout layout(small_graph());
  EXPECT_EQ(message_of([&] { layout.dense("genre"); }), "dense 'genre': expected a dense input, got an ids input");
  EXPECT_EQ(message_of([&] { layout.ids("hour"); }), "ids 'hour': expected an ids input, got a dense input");
}

TEST(BatchLayout, HasOffsetsForAxesThatAreNestedTwiceOnly) {
  const BatchLayout layout(small_graph());
  EXPECT_FALSE(layout.has_offsets(layout.axis("user")));
  EXPECT_FALSE(layout.has_offsets(layout.axis("item")));
  EXPECT_TRUE(layout.has_offsets(layout.axis("genres")));
  EXPECT_TRUE(layout.has_offsets(layout.axis("tags")));
}

TEST(BatchLayout, RefusesAGraphThatIsNotWellFormedWithEveryProblem) {
  Graph graph = small_graph();
  graph.axes[1].parent = -1;
  graph.axes[2].parent = 4;
  graph.axes[3].name = "item";
  graph.axes[3].keep_last = -2;
  graph.ids[1].axis = 5;
  graph.ids[2].axis = -1;
  graph.ids[4].name = "context";
  graph.dense[0].width = 0;
  graph.dense[1].width = int64_t{1} << 40;
  graph.dense[2].default_value = std::numeric_limits<float>::quiet_NaN();
  const std::string message = message_of([&] { BatchLayout layout(graph); });
  for (const char* problem : {"axis 'item': expected a parent that comes before it, got parent -1",
                              "axis 'genres': expected a parent that comes before it, got parent 4",
                              "axis 'item': expected a name not used before, got a second one",
                              "axis 'item': expected keep_last of 0 or more, got -2",
                              "ids 'film_id': expected an axis of the model, got axis 5",
                              "ids 'film_age': expected an axis of the model, got axis -1",
                              "dense 'context': expected a name not used before, got a second one",
                              "dense 'context': expected 1 to 1048576 columns, got 0",
                              "dense 'hour': expected 1 to 1048576 columns, got 1099511627776",
                              "dense 'weight': expected a finite default, got nan"})
    EXPECT_THAT(message, HasSubstr(problem));
  EXPECT_THAT(message, HasSubstr("10 problems"));
}

TEST(BatchLayout, RefusesAGraphWithoutAnOutermostAxis) {
  EXPECT_EQ(message_of([] { BatchLayout layout{Graph{}}; }), "axes: expected an outermost axis, got none");
  Graph graph;
  graph.axes = {{"user", 0, 0}};
  EXPECT_EQ(message_of([&] { BatchLayout layout(graph); }), "axis 'user': expected no parent, got parent 0");
}

TEST(Fingerprint, IsEqualForEqualLayoutsAndIgnoresAllElse) {
  Graph graph = small_graph();
  const uint64_t fingerprint = BatchLayout(graph).fingerprint();
  EXPECT_EQ(BatchLayout(small_graph()).fingerprint(), fingerprint);
  graph.tables.push_back({"film", 8, true, 0});
  graph.ids[0].padding = 4;
  graph.outputs.push_back({"score", 0});
  EXPECT_EQ(BatchLayout(graph).fingerprint(), fingerprint);
}

TEST(Fingerprint, ChangesWithEveryPartOfALayout) {
  std::set<uint64_t> seen{BatchLayout(small_graph()).fingerprint()};
  size_t changes = 0;
  const auto change = [&](auto&& edit) {
    Graph graph = small_graph();
    edit(graph);
    seen.insert(BatchLayout(graph).fingerprint());
    EXPECT_EQ(seen.size(), ++changes + 1);
  };
  change([](Graph& g) { g.axes[2].name = "genre_bag"; });
  change([](Graph& g) { g.axes[2].parent = 0; });
  change([](Graph& g) { g.axes[2].keep_last = 4; });
  change([](Graph& g) { g.axes.push_back({"more", 0, 0}); });
  change([](Graph& g) { g.ids[1].name = "film"; });
  change([](Graph& g) { g.ids[1].axis = 2; });
  change([](Graph& g) { g.ids[1].default_id = 0; });
  change([](Graph& g) { g.ids[2].default_id = 8; });
  change([](Graph& g) { std::swap(g.ids[0], g.ids[1]); });
  change([](Graph& g) { g.ids.pop_back(); });
  change([](Graph& g) { g.dense[0].name = "contexts"; });
  change([](Graph& g) { g.dense[0].axis = 2; });
  change([](Graph& g) { g.dense[0].width = 3; });
  change([](Graph& g) { g.dense[0].default_value = 0.0f; });
  change([](Graph& g) { g.dense[1].default_value = 0.25f; });
  change([](Graph& g) { g.dense.pop_back(); });
}

TEST(Fingerprint, HashesBytesByFnv1a) {
  detail::Fnv1a hash;
  EXPECT_EQ(hash.hash(), 0xcbf29ce484222325u);
  for (const char c : std::string("foobar")) hash.add_byte(static_cast<uint8_t>(c));
  EXPECT_EQ(hash.hash(), 0x85944171f73967e8u);  // the published test vector
}

}  // namespace
