// SPDX-License-Identifier: Apache-2.0

/// What each pass finds, and what it leaves alone. That scores stay the same is passes_test.cpp's.

#include "warprank/plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "dcn_v2.hpp"
#include "dlrm.hpp"
#include "meituan_like.hpp"
#include "user_heavy.hpp"
#include "wide_deep.hpp"

namespace warprank {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// What a test model is made of.
struct Parts {
  Builder& b;
  Axis user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
  Tensor u = b.dense("u", user, 8), i = b.dense("i", item, 4), h = b.dense("h", history, 4);
  Tensor on_item(Tensor x) { return b.expand(x, item); }
};

/// The plan of what `model` returns, with the passes that `passes` has on.
Plan plan_of(const std::function<Tensor(Parts&)>& model, Passes passes) {
  CompileOptions options;
  options.passes = passes;
  return compile(
      [&](Builder& b) -> Outputs {
        Parts parts{b};
        return {{"out", model(parts)}};
      },
      options);
}

Passes only(bool Passes::*pass) {
  Passes passes = Passes::none();
  passes.remove_dead = true;
  passes.*pass = true;
  return passes;
}

/// "linear [user, 16]" of every node but inputs, in order.
std::vector<std::string> nodes_of(const Plan& plan) {
  std::vector<std::string> list;
  for (const Node& node : plan.graph().nodes)
    if (!std::holds_alternative<DenseOp>(node.op))
      list.push_back(std::string(kind_of(node.op)) + " [" + plan.graph().axis(node.axis).name + ", " +
                     std::to_string(node.width) + "]");
  return list;
}

int count(const Plan& plan, const std::string& kind) {
  return static_cast<int>(std::count_if(plan.graph().nodes.begin(), plan.graph().nodes.end(),
                                        [&](const Node& node) { return kind_of(node.op) == kind; }));
}

TEST(RemoveDead, DropsWhatNoOutputNeeds) {
  const auto model = [](Parts& p) {
    p.b.linear("unused", p.i, 3);
    return p.b.relu(p.i);
  };
  EXPECT_THAT(nodes_of(plan_of(model, Passes::none())), ElementsAre("linear [item, 3]", "elementwise [item, 4]"));
  EXPECT_THAT(nodes_of(plan_of(model, only(&Passes::remove_dead))), ElementsAre("elementwise [item, 4]"));
}

TEST(MergeCommon, LooksAFeatureUpOnce) {
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto id = p.b.ids("id", p.item);
        const auto table = p.b.table("t", {.dim = 4});
        return p.b.embed(id, table) + p.b.relu(p.b.embed(id, table)) * p.b.relu(p.b.embed(id, table));
      },
      only(&Passes::merge_common));
  EXPECT_EQ(count(plan, "embed"), 1);
  EXPECT_EQ(count(plan, "elementwise"), 3);  // one relu, mul, add
}

TEST(MergeCommon, KeepsApartWhatDiffersInASetting) {
  const Plan plan =
      plan_of([](Parts& p) { return p.b.linear("a", p.i, 4) + p.b.linear("b", p.i, 4); }, only(&Passes::merge_common));
  EXPECT_EQ(count(plan, "linear"), 2);
}

TEST(FoldBatchNorm, FoldsIntoTheLinearBeforeIt) {
  const Plan plan = plan_of(
      [](Parts& p) {
        return p.b.mlp("m", p.i, {6, 2}, sigmoid, {.batch_norm = true});
      },
      only(&Passes::fold_batch_norm));
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [item, 6]", "elementwise [item, 6]", "linear [item, 2]"));
  EXPECT_TRUE(std::get<LinearOp>(plan.graph().node(1).op).norm.has_value());
  EXPECT_EQ(plan.graph().node(1).name, "m.0.norm");  // whose value it has now
}

TEST(FoldBatchNorm, FoldsIntoEveryLinearAfterIt) {
  const auto two_linears = [](Parts& p) {
    const auto x = p.b.batch_norm("norm", p.i);
    return p.b.linear("a", x, 3) + p.b.linear("b", x, 3);
  };
  EXPECT_THAT(nodes_of(plan_of(two_linears, only(&Passes::fold_batch_norm))),
              ElementsAre("linear [item, 3]", "linear [item, 3]", "elementwise [item, 3]"));
}

TEST(FoldBatchNorm, StaysWhereAnythingElseReadsIt) {
  const auto also_added = [](Parts& p) {
    const auto x = p.b.batch_norm("norm", p.i);
    return p.b.linear("a", x, 4) + x;
  };
  EXPECT_EQ(count(plan_of(also_added, only(&Passes::fold_batch_norm)), "elementwise"), 2);
  const auto activated_before = [](Parts& p) {
    return p.b.relu(p.b.batch_norm("norm", p.b.linear("a", p.i, 4, {true, relu})));
  };
  EXPECT_EQ(count(plan_of(activated_before, only(&Passes::fold_batch_norm)), "elementwise"), 2);
}

TEST(LateBroadcast, SplitsALinearSoThatTheUserIsComputedOnce) {
  const Plan plan = plan_of(
      [](Parts& p) {
        return p.b.linear("l", p.b.concat({p.i, p.on_item(p.u), p.i}), 16);
      },
      only(&Passes::late_broadcast));
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [user, 16]", "concat [item, 8]", "linear [item, 16]"));
  const auto& of_user = std::get<LinearOp>(plan.graph().nodes[2].op);
  const auto& of_item = std::get<LinearOp>(plan.graph().nodes.back().op);
  EXPECT_FALSE(of_user.is_term);
  EXPECT_TRUE(of_item.is_term && of_item.row_bias);
  EXPECT_EQ(of_user.columns, (std::vector<ColumnRange>{{4, 12}}));
  EXPECT_EQ(of_item.columns, (std::vector<ColumnRange>{{0, 4}, {12, 16}}));
}

TEST(LateBroadcast, ReachesThroughEveryOperationThatAllows) {
  const auto kinds = [](const std::function<Tensor(Parts&)>& model) {
    return nodes_of(plan_of(model, only(&Passes::late_broadcast)));
  };
  const auto no_expand = Not(testing::Contains(HasSubstr("expand")));
  EXPECT_THAT(kinds([](Parts& p) { return p.b.fm({p.on_item(p.b.slice(p.u, 0, 4)), p.i}, 4); }), no_expand);
  EXPECT_THAT(kinds([](Parts& p) { return p.b.fm({p.b.concat({p.on_item(p.u), p.i})}, 4); }), no_expand);
  EXPECT_THAT(kinds([](Parts& p) { return p.b.dot({p.on_item(p.u), p.i}, 4); }), no_expand);
  EXPECT_THAT(kinds([](Parts& p) {
                return p.b.mix(p.b.concat({p.i, p.i}), p.on_item(p.b.slice(p.u, 0, 2)));
              }),
              no_expand);
  EXPECT_THAT(kinds([](Parts& p) { return p.i * p.on_item(p.b.slice(p.u, 0, 1)); }), no_expand);
  EXPECT_THAT(kinds([](Parts& p) { return p.b.wide("w", {p.on_item(p.u), p.i}); }), no_expand);
  EXPECT_THAT(kinds([](Parts& p) {
                const auto x = p.b.concat({p.on_item(p.u), p.i});
                return p.b.mix(p.b.experts("e", x, 2, {8, 4}), p.b.gate("g", x, 2));
              }),
              no_expand);
  // The cross layer's product with x0 needs the row itself, but its matrix meets the user once.
  EXPECT_THAT(kinds([](Parts& p) {
                return p.b.cross("c", p.b.concat({p.on_item(p.u), p.i}));
              }),
              testing::Contains("linear [user, 12]"));
}

TEST(LateBroadcast, LiftsWhatDependsOnTheUserAlone) {
  const Plan plan = plan_of(
      [](Parts& p) {
        return p.b.layer_norm("n", p.b.mlp("m", p.b.concat({p.on_item(p.u), p.on_item(p.u)}), {6, 4})) * p.i;
      },
      only(&Passes::late_broadcast));
  EXPECT_THAT(nodes_of(plan), ElementsAre("concat [user, 16]", "linear [user, 6]", "linear [user, 4]",
                                          "layer_norm [user, 4]", "elementwise [item, 4]"));
}

TEST(LateBroadcast, AsksOncePerUserWhenTheQueryIsTheUsers) {
  const Plan plan =
      plan_of([](Parts& p) { return p.b.din_attention("a", p.on_item(p.b.slice(p.u, 0, 4)), p.h, {{3}}) + p.i; },
              only(&Passes::late_broadcast));
  EXPECT_THAT(nodes_of(plan), ElementsAre("slice [user, 4]", "din_attention [user, 4]", "elementwise [item, 4]"));
}

/// Sessions of a user have items and events of their own.
TEST(LateBroadcast, AsksOncePerParentOfTheHistoryWhenTheQueryComesFromAbove) {
  CompileOptions options;
  options.passes = only(&Passes::late_broadcast);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
        const auto u = b.expand(b.dense("u", user, 4), item), i = b.dense("i", item, 4);
        return {{"out", b.din_attention("a", u, b.dense("k", b.axis("events", session), 4), {{3}}) + i}};
      },
      options);
  EXPECT_THAT(nodes_of(plan),
              ElementsAre("expand [session, 4]", "din_attention [session, 4]", "elementwise [item, 4]"));
}

TEST(LateBroadcast, KeepsAQueryOffTheAxisOfItsHistory) {
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto tags = p.b.axis("tags", p.history);
        return p.b.din_attention("a", p.b.expand(p.h, tags), p.h, {{3}}) + p.b.dense("t", tags, 4);
      },
      only(&Passes::late_broadcast));
  EXPECT_THAT(nodes_of(plan), ElementsAre("expand [tags, 4]", "din_attention [tags, 4]", "elementwise [tags, 4]"));
}

TEST(LateBroadcast, FindsTheUserInWhatWasExpandedTwice) {
  CompileOptions options;
  options.passes = only(&Passes::late_broadcast);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
        const auto of_session = b.concat({b.expand(b.dense("u", user, 8), session), b.dense("s", session, 4)});
        const auto x = b.concat({b.expand(of_session, item), b.dense("i", item, 4)});
        return {
            {"linear", b.linear("l", x, 16)}, {"dot", b.dot({x}, 4)}, {"fm", b.fm({b.expand(of_session, item)}, 4)}};
      },
      options);
  EXPECT_THAT(nodes_of(plan),
              testing::UnorderedElementsAre("linear [user, 16]", "linear [session, 16]", "linear [item, 16]",
                                            "dot [item, 6]", "fm [session, 1]", "expand [item, 1]"));
}

TEST(LateBroadcast, MaterialisesWhereNothingElseIsPossible) {
  const Plan plan = plan_of(
      [](Parts& p) {
        return p.b.layer_norm("n", p.b.concat({p.on_item(p.u), p.i}));
      },
      only(&Passes::late_broadcast));
  EXPECT_THAT(nodes_of(plan), ElementsAre("expand [item, 8]", "concat [item, 12]", "layer_norm [item, 12]"));
}

TEST(FuseElementwise, MakesActivationsAndResidualsPartOfALinear) {
  const Plan plan = plan_of([](Parts& p) { return p.b.activate(p.b.linear("l", p.i, 4), dice, "l") + p.i; },
                            only(&Passes::fuse_elementwise));
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [item, 4]"));
  const auto& linear = std::get<LinearOp>(plan.graph().nodes.back().op);
  EXPECT_TRUE(linear.activation == dice && linear.residual);
  const Plan residual =
      plan_of([](Parts& p) { return p.i + p.b.linear("l", p.i, 4); }, only(&Passes::fuse_elementwise));
  EXPECT_THAT(nodes_of(residual), ElementsAre("linear [item, 4]"));
}

TEST(FuseElementwise, MakesAChainOneProgram) {
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto half = p.b.sigmoid(p.i) * 0.5f;
        return p.b.select(p.b.apply(ElementwiseFunction::less, {half, 0.3f}), -half, half / p.b.slice(p.i, 0, 1));
      },
      only(&Passes::fuse_elementwise));
  EXPECT_LE(count(plan, "elementwise"), 2);  // `half` is read twice and stays
}

TEST(FuseElementwise, KeepsWhatIsReadElsewhereOrAnOutput) {
  CompileOptions options;
  options.passes = only(&Passes::fuse_elementwise);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto l = b.linear("l", b.dense("x", b.axis("user"), 4), 4);
        return {{"logit", l}, {"score", b.sigmoid(l)}};
      },
      options);
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [user, 4]", "elementwise [user, 4]"));
}

TEST(GroupLaunches, PutsLookupsTowersAndTheUsersSharesTogether) {
  const Plan plan = compile(models::meituan_like);
  EXPECT_LE(plan.storage().steps.size(), 10u);
  EXPECT_EQ(plan.storage().steps[0].size(), 90u + 50u + 1u + 2u);  // every look-up
}

TEST(Storage, LetsProducersWriteIntoTheirConcat) {
  for (const auto& model : {ModelFunction(models::wide_deep), ModelFunction(models::meituan_like)}) {
    const Plan plan = compile(model);
    for (const auto& step : plan.storage().steps)
      for (int n : step) EXPECT_NE(std::string(kind_of(plan.graph().node(n).op)), "concat");
  }
}

/// Two values may share memory only when no step reads one while the other is live.
TEST(Storage, NeverHandsOnMemoryThatIsStillRead) {
  for (const auto& model : {ModelFunction(models::dlrm), ModelFunction(models::dcn_v2),
                            ModelFunction(models::meituan_like), ModelFunction(models::wide_deep)}) {
    const Plan plan = compile(model);
    const Graph& graph = plan.graph();
    const plan::Storage& storage = plan.storage();
    // Replays the steps over owners of arena columns: each read must find what its producer wrote.
    std::vector<std::vector<int>> owner(storage.slots.size());
    for (size_t s = 0; s < owner.size(); ++s) owner[s].assign(static_cast<size_t>(storage.slots[s].floats_per_row), -1);
    const auto write = [&](int n) {
      const plan::Placement& p = storage.placements[static_cast<size_t>(n)];
      for (int64_t c = 0; c < graph.node(n).width; ++c)
        owner[static_cast<size_t>(p.slot)][static_cast<size_t>(p.column + c)] = n;
    };
    std::function<int(int, int64_t)> producer = [&](int n, int64_t column) {  // of a column of n's value
      if (const auto* slice = std::get_if<SliceOp>(&graph.node(n).op))
        return producer(graph.node(n).inputs[0], slice->begin + column);
      const auto& placed = storage.part_placed[static_cast<size_t>(n)];
      for (size_t i = 0; i < placed.size(); ++i) {
        const int part = graph.node(n).inputs[i];
        if (column < graph.node(part).width) return placed[i] ? part : n;
        column -= graph.node(part).width;
      }
      return n;
    };
    const auto check = [&](int n, const std::string& reader) {
      const plan::Placement& p = storage.placements[static_cast<size_t>(n)];
      for (int64_t c = 0; c < graph.node(n).width; ++c)
        ASSERT_EQ(owner[static_cast<size_t>(p.slot)][static_cast<size_t>(p.column + c)], producer(n, c))
            << graph.node(n).name << " read by " << reader << ", column " << c;
    };
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
      if (std::holds_alternative<DenseOp>(graph.node(n).op)) write(n);
    for (const auto& step : storage.steps) {
      for (int n : step) write(n);  // a launch may run its nodes in any order
      for (int n : step)
        for (int input : graph.node(n).inputs) check(input, graph.node(n).name);
    }
    for (const OutputInfo& output : graph.outputs) check(output.node, "output " + output.name);
  }
}

TEST(Describe, ShowsStepsCostsAndWhatPassesSaved) {
  CompileOptions options;
  options.capacities = {{1, 500}};
  const Plan plan = compile(models::user_heavy, options);
  const std::string text = plan.describe();
  EXPECT_THAT(text, HasSubstr("user 1, item 500"));
  EXPECT_THAT(text, HasSubstr("linear tower.0.user [user, 256] <- user_columns"));
  EXPECT_THAT(text, HasSubstr("late_broadcast"));
  const PassReport* late_broadcast = nullptr;
  for (const PassReport& report : plan.reports())
    if (report.name == "late_broadcast") late_broadcast = &report;
  ASSERT_NE(late_broadcast, nullptr);
  // 500 x (1400 x 256 + 256 x 128 + 128) against 1200 x 256 + 500 x (200 x 256 + 256 x 128 + 128) multiply-adds.
  EXPECT_NEAR(late_broadcast->cost_before.flops / late_broadcast->cost_after.flops, 4.6, 0.1);
}

TEST(Describe, DrawsEveryNodeOnce) {
  const Plan plan = compile(models::dlrm);
  const std::string text = plan.dot();
  EXPECT_THAT(text, HasSubstr("digraph plan {"));
  size_t nodes = 0;
  for (size_t at = text.find("[label=\""); at != std::string::npos; at = text.find("[label=\"", at + 1)) ++nodes;
  EXPECT_EQ(nodes, plan.graph().nodes.size());
  EXPECT_THAT(text, HasSubstr("\"out ctr\" [shape=oval]"));
}

TEST(Compile, RefusesGraphsAndCapacitiesThatAreWrong) {
  Graph graph = build(models::user_heavy);
  graph.nodes[2].inputs = {99};
  EXPECT_THROW(compile(graph), invalid_argument);
  CompileOptions none;
  none.capacities.clear();
  EXPECT_THROW(compile(models::user_heavy, none), invalid_argument);
  CompileOptions negative;
  negative.capacities = {{-1, 5}};
  EXPECT_THROW(compile(models::user_heavy, negative), invalid_argument);
  negative.capacities = {{1, 5, {{"item", -1}}}};
  EXPECT_THROW(compile(models::user_heavy, negative), invalid_argument);
  CompileOptions mistyped;
  mistyped.capacities = {{1, 5, {{"itme", 5}}}};
  try {
    compile(models::user_heavy, mistyped);
    ADD_FAILURE() << "an unknown axis was accepted";
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("rows of axis 'itme': expected an axis of the model, got an unknown name; did "
                                        "you mean 'item'?"));
  }
}

TEST(Compile, BoundsTheRowsThatHugeLimitsAskFor) {
  Graph graph;
  graph.axes = {{"user"}, {"a", 0, INT64_MAX}, {"b", 1, INT64_MAX}};
  EXPECT_THAT(plan::rows_at(graph, {INT64_MAX, 1}), testing::Each(int64_t{1} << 31));
}

}  // namespace
}  // namespace warprank
