// SPDX-License-Identifier: Apache-2.0

/// What each pass finds, and what it leaves alone. That scores stay the same is passes_test.cpp's.

#include "warprank/plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/movielens/model.hpp"
#include "auto_int.hpp"
#include "dcn_v2.hpp"
#include "dien.hpp"
#include "dlrm.hpp"
#include "dlrm_hstu.hpp"
#include "hstu.hpp"
#include "meituan_like.hpp"
#include "mtgr.hpp"
#include "rank_mixer.hpp"
#include "support/counts.hpp"
#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "user_heavy.hpp"
#include "warprank/engine/cuda/run_size.hpp"
#include "warprank/plan/cards.hpp"
#include "warprank/plan/chain_cost.hpp"
#include "warprank/plan/difference.hpp"
#include "warprank/plan/late_broadcast.hpp"
#include "warprank/plan/predict.hpp"
#include "wide_deep.hpp"
#include "wukong.hpp"
#include "xdeepfm.hpp"

namespace warprank { namespace {

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

Tensor embedded(Parts& p) { return p.b.embed(p.b.ids("embedded", p.item), p.b.table("embedded", {.dim = 4})); }

TEST(FoldBatchNorm, FoldsIntoEveryLinearAfterIt) {
  const auto two_linears = [](Parts& p) {
    const auto x = p.b.batch_norm("norm", embedded(p));
    return p.b.linear("a", x, 3) + p.b.linear("b", x, 3);
  };
  EXPECT_THAT(nodes_of(plan_of(two_linears, only(&Passes::fold_batch_norm))),
              ElementsAre("embed [item, 4]", "linear [item, 3]", "linear [item, 3]", "elementwise [item, 3]"));
}

TEST(FoldBatchNorm, StaysBehindDenseInputsAlone) {
  const auto of = [](const std::function<Tensor(Parts&)>& x) {
    const auto model = [&](Parts& p) { return p.b.linear("a", p.b.batch_norm("norm", x(p)), 3); };
    return count(plan_of(model, only(&Passes::fold_batch_norm)), "elementwise");
  };
  EXPECT_EQ(of([](Parts& p) { return p.i; }), 1);
  EXPECT_EQ(of([](Parts& p) { return p.b.concat({p.on_item(p.u), p.i}); }), 1);
  EXPECT_EQ(of([](Parts& p) { return p.b.concat({embedded(p), p.i}); }), 0);
}

TEST(FoldBatchNorm, StaysBehindALinearThatIsAnOutputItself) {
  CompileOptions options;
  options.passes = only(&Passes::fold_batch_norm);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto raw = b.linear("raw", b.dense("x", b.axis("user"), 4), 3);
        return {{"raw", raw}, {"normed", b.batch_norm("norm", raw)}};
      },
      options);
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [user, 3]", "elementwise [user, 3]"));
  const std::vector<OutputInfo>& outputs = plan.graph().outputs;
  EXPECT_NE(outputs[0].node, outputs[1].node);
  EXPECT_FALSE(std::get<LinearOp>(plan.graph().node(outputs[0].node).op).norm.has_value());
}

TEST(FoldBatchNorm, StaysWhereAnythingElseReadsIt) {
  const auto also_added = [](Parts& p) {
    const auto x = p.b.batch_norm("norm", embedded(p));
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
  EXPECT_THAT(kinds([](Parts& p) { return p.b.dot_between({p.on_item(p.u)}, {p.i}, 4); }), no_expand);
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

TEST(LateBroadcast, SlicesTheLaterPartOfAConcat) {
  for (const int64_t end : {9, 12}) {  // also up to the end of it
    const Plan plan = plan_of(
        [end](Parts& p) {
          return p.b.slice(p.b.concat({p.i, p.on_item(p.u)}), 6, end);
        },
        only(&Passes::late_broadcast));
    const Graph& graph = plan.graph();
    const auto slice = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [](const Node& node) { return std::holds_alternative<SliceOp>(node.op); });
    ASSERT_NE(slice, graph.nodes.end());
    EXPECT_EQ(std::get<SliceOp>(slice->op).begin, 2) << "behind the four columns of the item";
    EXPECT_EQ(slice->width, end - 6);
    EXPECT_EQ(graph.axis(slice->axis).name, "user");
    EXPECT_EQ(graph.node(slice->inputs[0]).name, "u");
  }
}

TEST(LateBroadcast, SplitsALinearThatReadsColumnsOfAWiderWeight) {
  Graph graph = build([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto u = b.dense("u", user, 8), i = b.dense("i", item, 4);
    return {{"y", b.linear("wide", b.concat({b.expand(u, item), i}), 2)}};
  });
  const auto linear_on = [](const Graph& of, const std::string& axis) {
    for (const Node& node : of.nodes)
      if (const auto* linear = std::get_if<LinearOp>(&node.op); linear != nullptr && of.axis(node.axis).name == axis)
        return *linear;
    ADD_FAILURE() << "no linear on " << axis;
    return LinearOp();
  };
  for (Node& node : graph.nodes)
    if (auto* linear = std::get_if<LinearOp>(&node.op)) linear->columns = {{10, 16}, {0, 6}}, linear->stored_in = 20;
  const Graph split = plan::late_broadcast(graph);
  const auto columns = [&](const std::string& axis) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    const LinearOp linear = linear_on(split, axis);
    EXPECT_EQ(linear.stored_in, 20);
    for (const ColumnRange& range : linear.columns) ranges.emplace_back(range.begin, range.end);
    return ranges;
  };
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(columns("user"), (Ranges{{10, 16}, {0, 2}}));
  EXPECT_EQ(columns("item"), (Ranges{{2, 6}}));
}

TEST(LateBroadcast, AddsTheSumsOfEachAxis) {
  CompileOptions options;
  options.passes = only(&Passes::late_broadcast);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const Axis a = b.axis("a"), ab = b.axis("b", a), abc = b.axis("c", ab), abcd = b.axis("d", abc);
        const auto on = [&](const std::string& name, Axis axis) { return b.expand(b.dense(name, axis, 2), abcd); };
        const auto own = b.dense("own", abcd, 2);
        return {{"sum", b.reduce(b.concat({on("x", a), on("y", ab), on("z", abc), own}), sum)}};
      },
      options);
  EXPECT_THAT(nodes_of(plan),
              ElementsAre("reduce [a, 1]", "reduce [b, 1]", "reduce [c, 1]", "reduce [d, 1]", "elementwise [d, 1]"));
  ElementwiseProgram total;
  total.num_inputs = 4;
  total.instructions = {
      {ElementwiseFunction::add, 0, 1}, {ElementwiseFunction::add, 4, 2}, {ElementwiseFunction::add, 5, 3}};
  EXPECT_TRUE(std::get<ElementwiseOp>(plan.graph().nodes.back().op).program == total);
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

TEST(FoldBatchNorm, StaysBehindAndBeforeWhatALinearMultiplies) {
  CompileOptions options;
  options.passes = only(&Passes::fold_batch_norm);
  const auto products_of = [&](const std::function<Tensor(Parts&)>& model) {
    Graph graph = build([&](Builder& b) -> Outputs {
      Parts parts{b};
      return {{"out", model(parts)}};
    });
    for (Node& node : graph.nodes)
      if (auto* cross = std::get_if<LinearOp>(&node.op)) {
        cross->residual = false;  // as no function of Builder makes it
        node.inputs.pop_back();
      }
    return nodes_of(compile(graph, options));
  };
  EXPECT_THAT(products_of([](Parts& p) { return p.b.batch_norm("norm", p.b.cross("c", embedded(p), {.layers = 1})); }),
              ElementsAre("embed [item, 4]", "linear [item, 4]", "elementwise [item, 4]"));
  EXPECT_THAT(products_of([](Parts& p) { return p.b.cross("c", p.b.batch_norm("norm", embedded(p)), {.layers = 1}); }),
              ElementsAre("embed [item, 4]", "elementwise [item, 4]", "linear [item, 4]"));
}

TEST(SumsAsLinears, MakesASumWithALearnedBiasALinearOfOnes) {
  const auto wide = [](Parts& p) { return p.b.wide("w", {p.on_item(p.u), p.i}); };
  const Plan plan = plan_of(wide, only(&Passes::sums_as_linears));
  const Node& node = plan.graph().nodes.back();
  const auto& linear = std::get<LinearOp>(node.op);
  EXPECT_EQ(node.name, "w");
  EXPECT_TRUE(linear.ones && linear.bias && linear.name == "w");
  EXPECT_EQ(linear.stored_in, 12);

  Passes passes = only(&Passes::sums_as_linears);
  passes.late_broadcast = true;
  EXPECT_THAT(nodes_of(plan_of(wide, passes)), ElementsAre("linear [user, 1]", "linear [item, 1]"));
}

TEST(SumsAsLinears, LeavesOtherSumsAlone) {
  CompileOptions options;
  options.passes = only(&Passes::sums_as_linears);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto x = b.dense("x", b.axis("user"), 4);
        const auto read_twice = b.reduce(x, sum);
        return {{"sum", read_twice}, {"square", read_twice * read_twice}, {"mean", b.reduce(x, mean) + 0.5f}};
      },
      options);
  EXPECT_EQ(count(plan, "linear"), 0);
  Graph with_output = build([](Builder& b) -> Outputs {
    return {{"biased", b.wide("w", {b.dense("x", b.axis("user"), 4)})}};
  });
  const Node& biased = with_output.nodes.back();
  with_output.outputs.push_back({"sum", biased.inputs[0]});
  EXPECT_EQ(count(compile(with_output, options), "linear"), 0);
}

const LinearOp& last_linear(const Plan& plan) { return std::get<LinearOp>(plan.graph().nodes.back().op); }

TEST(FuseEpilogue, MakesActivationsAndResidualsPartOfALinear) {
  const Plan plan = plan_of([](Parts& p) { return p.b.activate(p.b.linear("l", p.i, 4), dice, "l") + p.i; },
                            only(&Passes::fuse_epilogue));
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [item, 4]"));
  EXPECT_TRUE(last_linear(plan).activation == dice && last_linear(plan).residual);
  EXPECT_FALSE(last_linear(plan).residual_first);
  const Plan residual = plan_of([](Parts& p) { return p.i + p.b.linear("l", p.i, 4); }, only(&Passes::fuse_epilogue));
  EXPECT_THAT(nodes_of(residual), ElementsAre("linear [item, 4]"));
}

TEST(FuseEpilogue, AddsWhatComesBeforeAnActivationBeforeIt) {
  const Plan plan =
      plan_of([](Parts& p) { return p.b.sigmoid(p.i + p.b.linear("l", p.i, 4)); }, only(&Passes::fuse_epilogue));
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [item, 4]"));
  EXPECT_TRUE(last_linear(plan).activation == sigmoid && last_linear(plan).residual_first);
  // An activation on both sides of the sum is one too many.
  EXPECT_EQ(count(plan_of([](Parts& p) { return p.b.sigmoid(p.i + p.b.linear("l", p.i, 4, {.activation = relu})); },
                          only(&Passes::fuse_epilogue)),
                  "elementwise"),
            1);
}

TEST(FuseEpilogue, MakesProductsAndThenSumsPartOfAMix) {
  using End = std::function<Tensor(Parts&, Tensor)>;
  const auto programs = [](const End& end) {
    const auto model = [&end](Parts& p) { return end(p, p.b.mix(p.b.concat({p.i, p.i}), p.b.slice(p.i, 0, 2))); };
    Passes passes = only(&Passes::fuse_epilogue);
    passes.late_broadcast = true;  // leaves a factor on its user's axis
    return count(plan_of(model, passes), "elementwise");
  };
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return p.i * mix + p.i; }), 0);
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return mix * p.i; }), 0);
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return p.i + mix; }), 0);
  // What is read twice, a product behind a sum, and factors of another shape stay outside.
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return p.b.concat({mix, mix * p.i}); }), 1);
  EXPECT_EQ(programs([](Parts&, Tensor mix) { return mix * mix; }), 1);
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return (mix + p.i) * p.i; }), 1);
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return mix * p.b.slice(p.i, 0, 1); }), 1);
  EXPECT_EQ(programs([](Parts& p, Tensor mix) { return mix * p.on_item(p.b.slice(p.u, 0, 4)); }), 1);
}

TEST(FuseEpilogue, AddsToTheLaterOfTwoLinears) {
  for (const bool swap : {false, true}) {
    const Plan plan = plan_of(
        [swap](Parts& p) {
          const auto early = p.b.linear("early", p.i, 1), late = p.b.mlp("late", p.i, {6, 1});
          return swap ? late + early : early + late;
        },
        only(&Passes::fuse_epilogue));
    EXPECT_EQ(count(plan, "elementwise"), 0);
    EXPECT_EQ(last_linear(plan).name, "late.1");
  }
}

TEST(FuseEpilogue, HandsTheRowBiasOfAHeadsResidualOn) {
  Passes passes = only(&Passes::fuse_epilogue);
  passes.late_broadcast = true;
  const auto two = [](int64_t width) {
    return [width](Parts& p) {
      const auto x = p.b.concat({p.on_item(p.u), p.i});
      return p.b.linear("shallow", x, width) + p.b.mlp("deep", p.i, {6, 6, width});
    };
  };
  const Plan heads = plan_of(two(1), passes);
  const Node& head = heads.graph().nodes.back();
  EXPECT_TRUE(last_linear(heads).row_bias && last_linear(heads).residual);
  EXPECT_EQ(heads.graph().node(head.inputs[1]).name, "shallow.user");
  const Node& residual = heads.graph().node(head.inputs[2]);
  EXPECT_EQ(residual.name, "shallow.item");
  EXPECT_FALSE(std::get<LinearOp>(residual.op).row_bias);
  EXPECT_TRUE(std::get<LinearOp>(residual.op).is_term);
  // An activation is of the sum with the row bias.
  const Plan activated = plan_of(
      [](Parts& p) {
        const auto x = p.b.concat({p.on_item(p.u), p.i});
        return p.b.linear("shallow", x, 1, {.activation = relu}) + p.b.mlp("deep", p.i, {6, 6, 1});
      },
      passes);
  EXPECT_TRUE(last_linear(activated).residual);
  EXPECT_FALSE(last_linear(activated).row_bias);
  // A wide layer would round the row bias as often as it has inputs.
  EXPECT_FALSE(last_linear(plan_of(two(4), passes)).row_bias);
}

TEST(FuseEpilogue, DoesNotCountTheRowBiasThatAResidualHandsOn) {
  Passes passes = only(&Passes::fuse_epilogue);
  passes.late_broadcast = true;
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto shallow = p.b.linear("shallow", p.b.concat({p.on_item(p.u), p.i}), 1);
        const auto sum = p.b.mlp("deep", p.i, {6, 1}) + shallow;
        return p.b.linear("behind", sum, 1) + p.b.mlp("deeper", p.i, {6, 6, 6, 1});
      },
      passes);
  EXPECT_EQ(count(plan, "elementwise"), 0);
  const Node& last = plan.graph().nodes.back();
  EXPECT_EQ(last_linear(plan).name, "deeper.3") << "the fourth of its layers, behind one is the third";
  EXPECT_EQ(plan.graph().node(last.inputs[1]).name, "behind");
}

TEST(FuseEpilogue, TakesAnAncestorAsRowBiasOfAHead) {
  Passes passes = only(&Passes::fuse_epilogue);
  passes.late_broadcast = true;
  const Plan plan = plan_of([](Parts& p) { return p.b.linear("l", p.i, 1) + p.on_item(p.b.slice(p.u, 0, 1)); }, passes);
  EXPECT_TRUE(last_linear(plan).row_bias);
  EXPECT_EQ(count(plan, "elementwise"), 0);
  const Plan activated = plan_of(
      [](Parts& p) { return p.b.linear("l", p.i, 1, {.activation = sigmoid}) + p.on_item(p.b.slice(p.u, 0, 1)); },
      passes);
  EXPECT_EQ(count(activated, "elementwise"), 1);  // a row bias would come before the activation
}

/// Fields by turns of the user and of the item.
std::vector<Tensor> alternating_fields(Parts& p, int count) {
  std::vector<Tensor> fields;
  for (int i = 0; i < count; ++i) {
    const std::string name = "field" + std::to_string(i);
    fields.push_back(i % 2 == 0 ? p.on_item(p.b.dense(name, p.user, 4)) : p.b.dense(name, p.item, 4));
  }
  return fields;
}

TEST(GatherFields, RepeatsFieldsOfAncestorsWhereADotHasTooManyInputs) {
  const auto dot_of = [](int count) {
    return plan_of([count](Parts& p) { return p.b.dot(alternating_fields(p, count), 4); },
                   only(&Passes::late_broadcast));
  };
  EXPECT_THAT(nodes_of(dot_of(8)), ElementsAre("dot [item, 28]"));
  EXPECT_THAT(nodes_of(dot_of(9)), ElementsAre("expand [item, 4]", "concat [item, 8]", "dot [item, 36]"));
  const Plan large = dot_of(26);
  EXPECT_EQ(count(large, "expand"), 9);  // each makes one input of three
  const std::vector<int>& inputs = large.graph().nodes.back().inputs;
  EXPECT_EQ(inputs.size(), 8u);
  EXPECT_EQ(large.graph().node(inputs.back()).width, 4 * 19);
}

TEST(GatherFields, SortsTheFieldsOfAFactorisationMachine) {
  const Plan plan =
      plan_of([](Parts& p) { return p.b.fm(alternating_fields(p, 26), 4); }, only(&Passes::late_broadcast));
  EXPECT_THAT(nodes_of(plan), ElementsAre("concat [user, 52]", "concat [item, 52]", "fm [item, 1]"));
}

TEST(FuseElementwise, MakesAChainOneProgram) {
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto half = p.b.sigmoid(p.i) * 0.5f;
        return p.b.select(p.b.apply(ElementwiseFunction::less, {half, 0.3f}), -half, half / p.b.slice(p.i, 0, 1));
      },
      only(&Passes::fuse_elementwise));
  EXPECT_EQ(count(plan, "elementwise"), 1);
}

TEST(FuseElementwise, TakesInWhatItReadsTwiceAndNoOtherOpDoes) {
  const auto programs = [](const std::function<Tensor(Parts&)>& model) {
    return count(plan_of(model, only(&Passes::fuse_elementwise)), "elementwise");
  };
  const auto gated = [](Parts& p, Tensor gate) { return gate * p.i + (1.0f - gate) * p.i * 0.25f; };
  EXPECT_EQ(programs([&](Parts& p) { return gated(p, p.b.sigmoid(p.i)); }), 1);
  EXPECT_EQ(programs([&](Parts& p) {
              const Tensor gate = p.b.sigmoid(p.i);
              return p.b.concat({gated(p, gate), p.b.reduce(gate, Pooling::sum)});
            }),
            2);
  EXPECT_EQ(programs([&](Parts& p) { return gated(p, p.b.sigmoid(p.b.slice(p.i, 0, 1))); }), 2);  // of one column
}

/// Operations of a plan of a layer norm of `i` times something.
std::vector<std::string> nodes_of_product(const std::function<Tensor(Parts&, Tensor norm)>& product) {
  return nodes_of(
      plan_of([&](Parts& p) { return product(p, p.b.layer_norm("norm", p.i)); }, only(&Passes::fuse_elementwise)));
}

TEST(FuseElementwise, ALayerNormMultipliesItsResult) {
  EXPECT_THAT(nodes_of_product([](Parts& p, Tensor norm) { return norm * p.i; }), ElementsAre("layer_norm [item, 4]"));
  EXPECT_THAT(nodes_of_product([](Parts& p, Tensor norm) { return p.b.sigmoid(p.i) * norm; }),
              ElementsAre("elementwise [item, 4]", "layer_norm [item, 4]"));
  const auto stays = ElementsAre("layer_norm [item, 4]", "elementwise [item, 4]");
  EXPECT_THAT(nodes_of_product([](Parts&, Tensor norm) { return norm * norm; }), stays) << "it is its own factor";
  EXPECT_THAT(nodes_of_product([](Parts& p, Tensor norm) { return norm * p.b.slice(p.i, 0, 1); }),
              ElementsAre("layer_norm [item, 4]", "slice [item, 1]", "elementwise [item, 4]"))
      << "one column";
  EXPECT_THAT(nodes_of_product([](Parts&, Tensor norm) { return norm * 2; }), stays) << "a number";
  EXPECT_THAT(nodes_of_product([](Parts& p, Tensor norm) { return norm * p.i + p.i; }), stays) << "one program of both";
  EXPECT_THAT(nodes_of_product([](Parts& p, Tensor norm) {
                return p.b.concat({norm * p.i, norm});
              }),
              ElementsAre("layer_norm [item, 4]", "elementwise [item, 4]", "concat [item, 8]"))
      << "it is read elsewhere";
}

/// Operations of a plan of a layer norm of something made of `i` and its halves.
std::vector<std::string> nodes_of_normed(const std::function<Tensor(Parts&, Tensor other)>& made) {
  return nodes_of(plan_of(
      [&](Parts& p) {
        const Tensor other = p.b.slice(p.i, 0, 4);  // a view
        return p.b.layer_norm("norm", made(p, other));
      },
      only(&Passes::fuse_elementwise)));
}

TEST(FuseElementwise, ALayerNormFoldsItsInputs) {
  const std::string slice = "slice [item, 4]", program = "elementwise [item, 4]", norm = "layer_norm [item, 4]";
  EXPECT_THAT(nodes_of_normed([](Parts& p, Tensor other) { return p.i + other; }), ElementsAre(slice, norm));
  EXPECT_THAT(nodes_of_normed([](Parts& p, Tensor other) { return other * (p.i + other) + p.i; }).size(), 3)
      << "inputs are read twice";
  EXPECT_THAT(nodes_of_normed([](Parts& p, Tensor other) { return (p.b.sigmoid(p.i) + other) * p.i; }),
              ElementsAre(slice, program, norm))
      << "a function in between";
  EXPECT_THAT(nodes_of_normed([](Parts& p, Tensor other) { return p.i - other; }), ElementsAre(slice, program, norm));
  EXPECT_THAT(nodes_of_normed([](Parts& p, Tensor) { return p.i + 1; }).size(), 2) << "a number";
  EXPECT_THAT(nodes_of(plan_of(
                  [](Parts& p) {
                    const Tensor sum = p.i + p.b.slice(p.i, 0, 4);
                    return p.b.layer_norm("norm", sum) * sum;
                  },
                  only(&Passes::fuse_elementwise))),
              ElementsAre(slice, program, norm))
      << "the sum is read elsewhere";
}

TEST(FuseElementwise, MakesFiveLaunchesOfALayerOfMtgr) {
  const auto launches = [](int layers) {
    const Plan plan = compile([layers](Builder& b) -> Outputs {
      const auto user = b.axis("user"), item = b.axis("item", user);
      std::vector<Tensor> sequence{b.dense("static", b.axis("profile", user), 64),
                                   b.dense("x", b.axis("event", user), 64), b.dense("y", item, 64)};
      for (int i = 0; i < layers; ++i)
        sequence = b.hstu("layer" + std::to_string(i), sequence,
                          {.heads = 2, .contexts = 1, .gate = HstuGate::before_norm, .norm_by_part = true});
      return {{"y", sequence.back()}};
    });
    return plan::launches_of(plan.graph(), plan.storage().steps);
  };
  EXPECT_EQ(launches(4) - launches(3), 5);
}

/// Operations of a plan of a layer norm of `width` columns and what reads it.
std::vector<std::string> nodes_behind_norm(LayerNormOptions options, const std::function<Tensor(Parts&, Tensor)>& read,
                                           int64_t width = 8) {
  return nodes_of(
      plan_of([&](Parts& p) { return read(p, p.b.layer_norm("norm", p.b.linear("x", p.i, width), options)); },
              only(&Passes::fuse_token_norm)));
}

TEST(FuseTokenNorm, IsPartOfTheMixingThatReadsIt) {
  const auto mix = [](Parts& p, Tensor norm) { return p.b.mix_tokens("mix", norm, 2); };
  const std::string linear = "linear [item, 8]", norm = "layer_norm [item, 8]", mixed = "mix_tokens [item, 8]";
  EXPECT_THAT(nodes_behind_norm({.groups = 2}, mix), ElementsAre(linear, mixed));
  EXPECT_THAT(nodes_behind_norm({.groups = 4}, mix), ElementsAre(linear, norm, mixed)) << "other tokens";
  EXPECT_THAT(nodes_behind_norm({.groups = 2, .stacked = true}, mix), ElementsAre(linear, norm, mixed));
  EXPECT_THAT(nodes_behind_norm({.affine = false, .groups = 2}, mix), ElementsAre(linear, norm, mixed));
  const auto twice = [&](Parts& p, Tensor norm) { return mix(p, norm) + norm; };
  EXPECT_THAT(nodes_behind_norm({.groups = 2}, twice), ElementsAre(linear, norm, mixed, "elementwise [item, 8]"))
      << "it is read elsewhere";
  EXPECT_EQ(nodes_behind_norm({.groups = 2}, mix, 24 << 10).size(), 2);
  EXPECT_EQ(nodes_behind_norm({.groups = 2}, mix, (24 << 10) + 4).size(), 3) << "as FP16 too wide for shared memory";
}

TEST(FuseTokenNorm, MakesThreeLaunchesOfALayerOfRankMixer) {
  const auto launches = [](RankMixerOptions options, int64_t layers) {
    options.tokens = 16, options.dim = 768, options.layers = layers;
    const Plan plan = compile([options](Builder& b) -> Outputs {
      const auto x = b.dense("x", b.axis("item", b.axis("user")), 64);
      return {{"y", b.rank_mixer("mixer", x, options)}};
    });
    return plan::launches_of(plan.graph(), plan.storage().steps);
  };
  const auto of_a_layer = [&](const RankMixerOptions& options) { return launches(options, 3) - launches(options, 2); };
  EXPECT_EQ(of_a_layer({}), 3);
  EXPECT_EQ(of_a_layer({.hidden = 64, .experts = 4}), 4) << "routers share a launch with the experts";
  EXPECT_EQ(of_a_layer({.hidden = 64, .experts = 4, .top_k = 2}), 5);
}

TEST(GroupLaunches, MakesFiveLaunchesOfALayerOfWukong) {
  const auto launches = [](int64_t layers) {
    const Plan plan = compile([layers](Builder& b) -> Outputs {
      const auto x = b.dense("x", b.axis("item", b.axis("user")), 512);
      return {{"y", b.wukong("wukong", x, 64,
                             {.layers = layers, .machine_fields = 4, .linear_fields = 4, .rank = 8, .hidden = {64}})}};
    });
    return plan::launches_of(plan.graph(), plan.storage().steps);
  };
  EXPECT_EQ(launches(3) - launches(2), 5);
}

TEST(FuseEpilogue, KeepsWhatIsReadElsewhereOrAnOutput) {
  CompileOptions options;
  options.passes = only(&Passes::fuse_epilogue);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto l = b.linear("l", b.dense("x", b.axis("user"), 4), 4);
        return {{"logit", l}, {"score", b.sigmoid(l)}};
      },
      options);
  EXPECT_THAT(nodes_of(plan), ElementsAre("linear [user, 4]", "elementwise [user, 4]"));
}

/// "mlp: m.0, m.1" of every step of several nodes.
std::vector<std::string> steps_of(const Plan& plan, size_t at_least = 1) {
  std::vector<std::string> list;
  for (const std::vector<int>& step : plan.storage().steps) {
    if (step.size() < at_least) continue;
    std::string text = plan::kernel_of(plan.graph(), step) + ":";
    for (int n : step) text += " " + plan.graph().node(n).name;
    list.push_back(text);
  }
  return list;
}
std::vector<std::string> shared_steps_of(const Plan& plan) { return steps_of(plan, 2); }

TEST(FuseTails, MakesTheNarrowEndOfAnMlpOneStep) {
  const auto steps = [](const std::vector<int64_t>& sizes) {
    return shared_steps_of(
        plan_of([&](Parts& p) { return p.b.mlp("m", p.i, sizes, relu); }, only(&Passes::fuse_tails)));
  };
  EXPECT_THAT(steps({16, 8, 1}), ElementsAre("mlp: m.0 m.1 m.2"));
  EXPECT_THAT(steps({512, 256, 1}), ElementsAre("mlp: m.0 m.1 m.2"));          // wide, but of few inputs
  EXPECT_THAT(steps({65, 512, 256, 1}), ElementsAre("mlp: m.0 m.1 m.2 m.3"));  // wide, and shared among blocks
  EXPECT_THAT(steps({1024, 1024, 512, 256, 1}), ElementsAre("mlp: m.0 m.1 m.2 m.3 m.4"));
  EXPECT_THAT(steps({3456, 1024, 512, 1}), ElementsAre("mlp: m.2 m.3"));  // rows of many inputs are read too often
  EXPECT_THAT(steps({16, 4096, 4096}), ElementsAre());
  EXPECT_THAT(steps({8, 4096, 8, 1}), ElementsAre("mlp: m.0 m.1 m.2 m.3"));
  EXPECT_THAT(steps({8, 4097, 8, 1}), ElementsAre());  // wider than any that is shared
  EXPECT_THAT(steps({1, 1}), ElementsAre());           // a layer of one output is the last
  EXPECT_THAT(steps({2, 3, 4, 5, 6, 7, 8, 9, 10, 11}),
              ElementsAre("mlp: m.0 m.1 m.2 m.3 m.4 m.5 m.6 m.7", "mlp: m.8 m.9"));
}

/// By the T4 and the H100 for 100 rows: what blocks read of the second-level cache, against launches.
TEST(FuseTails, MakesOneLaunchOfWideLayersWhereThatIsNoSlower) {
  const auto first = [](std::vector<plan::ChainLayer> layers) { return plan::first_of_chain(layers); };
  EXPECT_EQ(first({{479, 1024}, {1024, 1024}, {1024, 512}, {512, 256}, {256, 1}}), 0U);   // DLRM's
  EXPECT_EQ(first({{3456, 1024}, {1024, 1024}, {1024, 512}, {512, 256}, {256, 1}}), 1U);  // DCN-v2's
  EXPECT_EQ(first({{3456, 512}, {512, 3456}}), 1U);                                       // its cross layers: apart
  EXPECT_EQ(first({{64, 2048}, {2048, 512}, {512, 64}, {64, 1}}), 2U);  // by the T4; the H100 would take all
  const std::vector<plan::ChainLayer> low_rank = {{3456, 512}, {512, 3456}},
                                      narrow = {{512, 256}, {256, 128}, {128, 1}};
  for (const char* name : {"T4", "H100"}) {
    const plan::Card& card = plan::card_named(name);
    EXPECT_GT(plan::seconds_of_chain(low_rank, 0, card), plan::seconds_of_chain(low_rank, 1, card)) << name;
  }
  for (const plan::Card& card : plan::cards) {
    SCOPED_TRACE(card.name);
    EXPECT_LT(plan::seconds_of_chain(narrow, 0, card), plan::seconds_of_chain(narrow, 2, card));
  }
}

TEST(FuseTails, KeepsInMemoryWhatOthersRead) {
  const auto steps = [](const std::function<Tensor(Parts&)>& model) {
    return shared_steps_of(plan_of(model, only(&Passes::fuse_tails)));
  };
  EXPECT_THAT(steps([](Parts& p) {
                const auto x = p.b.linear("a", p.i, 4);
                return p.b.linear("b", x, 4) * x;
              }),
              ElementsAre());
  EXPECT_THAT(steps([](Parts& p) { return p.b.cross("c", p.b.linear("a", p.i, 4)); }), ElementsAre());
  Passes passes = only(&Passes::fuse_tails);
  passes.fuse_epilogue = true;  // only the last layer of a chain has a residual
  EXPECT_THAT(
      shared_steps_of(plan_of([](Parts& p) { return p.b.linear("b", p.b.linear("a", p.i, 4) + p.i, 4); }, passes)),
      ElementsAre());
  CompileOptions options;
  options.passes = only(&Passes::fuse_tails);
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto x = b.linear("a", b.dense("x", b.axis("user"), 4), 4);
        return {{"x", x}, {"y", b.mlp("m", x, {4, 2})}};
      },
      options);
  EXPECT_THAT(shared_steps_of(plan), ElementsAre("mlp: m.0 m.1"));
  const std::vector<bool> in_memory = plan::in_memory(plan.graph(), plan.storage().steps);
  EXPECT_THAT(in_memory, ElementsAre(true, true, false, true));  // x, a, m.0, m.1
}

TEST(FuseTails, BeginsWithARowBiasOrAMixAndEndsWithAResidual) {
  Passes passes = Passes{};
  passes.group_launches = false;
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) {
                    return p.b.mlp("m", p.b.concat({p.on_item(p.u), p.i}), {6, 4}) + p.i;
                  },
                  passes)),
              ElementsAre("mlp: m.0 add"));  // as the sum is called that m.1 is now part of
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) {
                    const auto x = p.b.mlp("m", p.i, {6, 6}, relu);
                    return p.b.mlp("n", p.b.concat({p.on_item(p.u), x}), {6, 6, 4});
                  },
                  passes)),
              ElementsAre("mlp: m.0 m.1 n.0", "mlp: n.1 n.2"));  // none amid a chain
  const auto mixed = [](const std::function<Tensor(Parts&)>& gate) {
    return [gate](Parts& p) { return p.b.linear("l", p.b.mix(p.b.concat({p.i, p.i}), gate(p)), 3); };
  };
  EXPECT_THAT(shared_steps_of(plan_of(mixed([](Parts& p) { return p.b.slice(p.i, 0, 2); }), passes)),
              ElementsAre("mlp: mix l"));
  EXPECT_THAT(shared_steps_of(plan_of(mixed([](Parts& p) { return p.on_item(p.b.slice(p.u, 0, 2)); }), passes)),
              ElementsAre("mlp: mix l"));
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) { return p.b.linear("l", p.b.mix(p.on_item(p.u), p.b.slice(p.i, 0, 2)), 3); }, passes)),
              ElementsAre());  // experts of the user
  const auto of_experts = [&](int64_t num_experts) {
    return shared_steps_of(plan_of(
        [&](Parts& p) {
          const auto x = p.b.dense("x", p.item, 4 * num_experts), gate = p.b.dense("gate", p.item, num_experts);
          return p.b.linear("l", p.b.mix(x, gate), 3);
        },
        passes));
  };
  EXPECT_THAT(of_experts(64), ElementsAre("mlp: mix l"));
  EXPECT_THAT(of_experts(65), ElementsAre());
}

TEST(FuseTails, TakesAMixIntoAWideLayerOfFewInputs) {
  const auto steps = [](int64_t width, const std::vector<int64_t>& sizes) {
    return shared_steps_of(plan_of(
        [&](Parts& p) {
          const auto experts = p.b.experts("e", p.i, 2, {width});
          return p.b.mlp("m", p.b.mix(experts, p.b.slice(p.i, 0, 2)), sizes);
        },
        only(&Passes::fuse_tails)));
  };
  EXPECT_THAT(steps(64, {512, 512, 1}), ElementsAre("mlp: mix m.0", "mlp: m.1 m.2"));
  EXPECT_THAT(steps(64, {512, 256, 1}), ElementsAre("mlp: mix m.0 m.1 m.2"));
  EXPECT_THAT(steps(64, {513, 256, 8, 1}), ElementsAre("mlp: m.1 m.2 m.3"));  // where a mix is read, none is wider
  EXPECT_THAT(steps(65, {257}), ElementsAre());
}

TEST(FuseTails, TakesExpertsAsStacksSideBySide) {
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) {
                    return p.b.experts("e", p.i, 3, {8, 4});
                  },
                  only(&Passes::fuse_tails))),
              ElementsAre("mlp: e.0 e.1"));
  // The second layer would read the first one's outputs across its groups.
  EXPECT_THAT(shared_steps_of(plan_of([](Parts& p) { return p.b.linear("l", p.b.experts("e", p.i, 3, {8}), 4); },
                                      only(&Passes::fuse_tails))),
              ElementsAre());
  EXPECT_THAT(shared_steps_of(plan_of([](Parts& p) { return p.b.experts("f", p.b.experts("e", p.i, 3, {8}), 3, {4}); },
                                      only(&Passes::fuse_tails))),
              ElementsAre());
}

TEST(GroupLaunches, LetsALaunchWaitForWhatCanJoinIt) {
  const auto steps = [](const std::function<Tensor(Parts&)>& model) {
    return shared_steps_of(plan_of(model, only(&Passes::group_launches)));
  };
  EXPECT_THAT(steps([](Parts& p) {
                const auto early = p.b.linear("early", p.i, 4), late = p.b.linear("late", p.b.relu(p.i), 4);
                return p.b.fm({early, late}, 4);
              }),
              ElementsAre("linear: early late"));
  EXPECT_THAT(steps([](Parts& p) {
                const auto early = p.b.relu(p.i), late = p.b.sigmoid(p.b.linear("l", p.i, 4));
                return p.b.fm({early, late}, 4);
              }),
              ElementsAre("row_programs: relu sigmoid"));
}

TEST(GroupLaunches, LetsConcatsThatCopyShareALaunchWithRowPrograms) {
  const auto steps = [](const std::function<Tensor(Parts&)>& model) {
    return shared_steps_of(plan_of(model, only(&Passes::group_launches)));
  };
  const auto turned = [](Parts& p, Tensor x, int64_t by) {
    return p.b.concat({p.b.slice(x, by, 4), p.b.slice(x, 0, by)});
  };
  EXPECT_THAT(steps([&](Parts& p) {
                const auto late = turned(p, p.b.linear("l", p.i, 4), 2);
                return p.b.fm({turned(p, p.i, 1), turned(p, p.i, 3), p.b.relu(p.i), late}, 4);
              }),
              ElementsAre("row_programs: concat concat#2 concat#3 relu"));
  // Parts that are in place need none.
  EXPECT_THAT(steps([](Parts& p) {
                const auto in_place = p.b.concat({p.b.linear("l", p.i, 2), p.b.linear("m", p.i, 2)});
                return p.b.fm({in_place, p.b.relu(p.i)}, 4);
              }),
              ElementsAre("linear: l m"));
}

/// A gate's halves and their product: the product is written in place while the half beside it is copied.
TEST(GroupLaunches, CopiesPartsOfAConcatWhileOthersAreWrittenInPlace) {
  Passes passes = only(&Passes::group_launches);
  const auto steps = [&] {
    return shared_steps_of(plan_of(
        [](Parts& p) {
          const auto x = p.b.linear("l", p.i, 4), left = p.b.slice(x, 0, 2), right = p.b.slice(x, 2, 4);
          return p.b.linear("m", p.b.concat({left, left * right}), 3);
        },
        passes));
  };
  EXPECT_THAT(steps(), ElementsAre());  // it is copied, too
  passes.place_concats = true;
  EXPECT_THAT(steps(), ElementsAre("row_programs: mul concat"));
}

/// In PLE a concat that waited for one of the next level would part the mixes of the tasks.
TEST(GroupLaunches, LetsNoConcatWaitWhereThatCostsALaunch) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("item", b.axis("user")), 64);
    const auto tasks = b.ple("ple", x, {.tasks = 2, .levels = {{32}, {16}}});
    return {{"ctr", b.mlp("ctr", tasks[0], {1})}, {"cvr", b.mlp("cvr", tasks[1], {1})}};
  });
  EXPECT_EQ(plan.storage().steps.size(), 7u);
}

TEST(GroupLaunches, LooksUpAheadOfCopies) {
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto turned = p.b.concat({p.b.slice(p.i, 1, 4), p.b.slice(p.i, 0, 1)});
        return p.b.fm({turned, p.b.embed(p.b.ids("id", p.item), p.b.table("t", {.dim = 4}))}, 4);
      },
      only(&Passes::group_launches));
  EXPECT_EQ(plan::kernel_of(plan.graph(), plan.storage().steps[0]), "embedding_bag");
  EXPECT_EQ(plan::launches_of(plan.graph(), plan.storage().steps), 3);  // the first copies the dense inputs
}

TEST(GroupLaunches, TakesAChainOfTwoApartWhereItsLayersJoinOthers) {
  const auto kernels = [](int64_t crosses) {
    Passes passes = only(&Passes::group_launches);
    passes.fuse_tails = true;
    const Plan plan = plan_of(
        [crosses](Parts& p) {
          const auto deep = p.b.mlp("deep", p.i, {8, 8}, relu);
          return crosses == 0 ? deep : p.b.concat({p.b.cross("cross", p.i, {.layers = crosses}), deep});
        },
        passes);
    std::vector<std::string> of_steps;
    for (const std::vector<int>& step : plan.storage().steps) of_steps.push_back(plan::kernel_of(plan.graph(), step));
    return of_steps;
  };
  EXPECT_THAT(kernels(3), ElementsAre("linear", "linear", "linear", "row_programs"));  // of the concat
  EXPECT_THAT(kernels(0), ElementsAre("mlp"));
}

TEST(GroupLaunches, PutsChainsOfOneDepthTogether) {
  Passes passes = only(&Passes::group_launches);
  passes.fuse_tails = true;
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) {
                    const auto tower = [&](const std::string& name, std::vector<int64_t> sizes) {
                      return p.b.mlp(name, p.i, sizes);
                    };
                    return p.b.concat({tower("a", {3, 2}), tower("b", {4, 1}), tower("c", {4, 4, 4})});
                  },
                  passes)),
              ElementsAre("mlp: a.0 a.1 b.0 b.1", "mlp: c.0 c.1 c.2"));
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) {
                    const auto mixed = p.b.mix(p.b.concat({p.i, p.i}), p.b.slice(p.i, 0, 2));
                    return p.b.concat({p.b.mlp("a", p.i, {3, 2}), p.b.mlp("m", mixed, {3, 2})});
                  },
                  passes)),
              ElementsAre("mlp: a.0 a.1 mix m.0 m.1"));  // a mix in front is no layer
}

TEST(MultiplyHeads, LetsALaunchOfChainsMultiplyItsHeads) {
  Passes passes = only(&Passes::multiply_heads);
  passes.fuse_tails = passes.group_launches = true;
  const auto steps = [&](const std::function<std::vector<Tensor>(Parts&)>& model) {
    CompileOptions options;
    options.passes = passes;
    return steps_of(compile(
        [&](Builder& b) -> Outputs {
          Parts parts{b};
          Outputs outputs;
          for (const Tensor& output : model(parts)) outputs.push_back({"out" + std::to_string(outputs.size()), output});
          return outputs;
        },
        options));
  };
  const auto head = [](Parts& p, const std::string& name) { return p.b.mlp(name, p.i, {3, 1}); };
  EXPECT_THAT(steps([&](Parts& p) {
                const auto a = head(p, "a"), b = head(p, "b");
                return std::vector<Tensor>{a, b, a * b};
              }),
              ElementsAre("mlp: a.0 a.1 b.0 b.1 mul"));
  EXPECT_THAT(steps([&](Parts& p) {  // one in two products, one behind which something comes
                const auto a = head(p, "a"), b = head(p, "b"), c = head(p, "c");
                return std::vector<Tensor>{p.b.linear("l", p.b.concat({a * b, p.i}), 2), a * c};
              }),
              ElementsAre("mlp: a.0 a.1 b.0 b.1 c.0 c.1 mul mul#2", "row_programs: concat", "linear: l"));
  const auto stays = [&](const std::function<Tensor(Parts&, Tensor, Tensor)>& of_heads) {
    return steps([&](Parts& p) {
             const auto a = head(p, "a"), b = head(p, "b");
             return std::vector<Tensor>{of_heads(p, a, b)};
           })
        .back();
  };
  EXPECT_EQ(stays([](Parts&, Tensor a, Tensor b) { return a + b; }), "row_programs: add");
  EXPECT_EQ(stays([](Parts&, Tensor a, Tensor b) { return 2 * a * b; }).substr(0, 12), "row_programs");
  EXPECT_EQ(stays([](Parts&, Tensor a, Tensor) { return a * a; }), "row_programs: mul");
  EXPECT_EQ(stays([](Parts& p, Tensor a, Tensor b) { return a * b * p.b.linear("l", p.i, 1); }).substr(0, 12),
            "row_programs");
  EXPECT_EQ(stays([](Parts& p, Tensor a, Tensor) { return a * p.b.mlp("deep", p.i, {3, 3, 1}); }), "row_programs: mul");
  EXPECT_EQ(stays([](Parts& p, Tensor a, Tensor) {
              return p.b.mlp("w", p.i, {3, 2}) * a;  // one of the factors is no head
            }),
            "row_programs: mul");
  passes.late_broadcast = true;
  EXPECT_EQ(stays([&](Parts& p, Tensor a, Tensor) {  // one of the factors has other rows
              return p.on_item(p.b.mlp("w", p.u, {3, 1})) * a;
            }),
            "row_programs: mul");
  passes.late_broadcast = false;
  // What shares a launch with a product keeps it.
  EXPECT_THAT(steps([&](Parts& p) {
                const auto a = head(p, "a"), b = head(p, "b");
                return std::vector<Tensor>{a * b, a + b};
              }),
              ElementsAre("mlp: a.0 a.1 b.0 b.1", "row_programs: mul add"));
}

TEST(MultiplyHeads, LeavesWhatFactorsComputeWhereItWas) {
  const Plan plan = compile(models::meituan_like);
  const std::vector<int64_t> rows = plan::rows_at(plan.graph(), {});
  const std::vector<int>& last = plan.storage().steps.back();
  const plan::Cost with = plan::cost_of(plan.graph(), last, rows);
  const std::vector<int> chains(last.begin(), last.end() - 1);
  const plan::Cost without = plan::cost_of(plan.graph(), chains, rows);
  EXPECT_EQ(with.flops - without.flops, 256);
  EXPECT_EQ(with.bytes - without.bytes, 256 * 2) << "a product is stored, its factors are not read";
}

TEST(SumHistories, AddsWhereAttentionReads) {
  const auto plan_with = [](const std::function<Tensor(Parts&, Tensor, Tensor)>& model) {
    return nodes_of(plan_of(
        [&](Parts& p) {
          const auto other = p.b.dense("other", p.history, 4);
          return model(p, p.h, other);
        },
        only(&Passes::sum_histories)));
  };
  const auto din = [](Parts& p, const std::string& name, Tensor k) { return p.b.din_attention(name, p.i, k, {{3}}); };
  EXPECT_THAT(plan_with([&](Parts& p, Tensor a, Tensor b) { return din(p, "d", a + b); }),
              ElementsAre("din_attention [item, 4]"));
  EXPECT_THAT(plan_with([&](Parts& p, Tensor a, Tensor b) {
                const auto sum = a + b;
                return p.b.concat({din(p, "d", sum), din(p, "e", sum)});
              }),
              ElementsAre("din_attention [item, 4]", "din_attention [item, 4]", "concat [item, 8]"));
  const auto stays = [&](const std::function<Tensor(Parts&, Tensor, Tensor)>& model) {
    const std::vector<std::string> nodes = plan_with(model);
    return std::count(nodes.begin(), nodes.end(), "elementwise [history, 4]") > 0;
  };
  EXPECT_TRUE(stays([&](Parts& p, Tensor a, Tensor b) { return din(p, "d", a * b); }));
  EXPECT_TRUE(stays([&](Parts& p, Tensor a, Tensor) { return din(p, "d", a + p.b.slice(a, 0, 1)); }));
  EXPECT_TRUE(stays([&](Parts& p, Tensor a, Tensor b) {  // something else reads the sum
    const auto sum = a + b;
    return din(p, "d", sum) + p.on_item(p.b.pool(sum, warprank::sum));
  }));
  EXPECT_TRUE(stays([&](Parts& p, Tensor a, Tensor b) {  // of which one part is the user's
    return din(p, "d", a + b + p.b.expand(p.b.slice(p.u, 0, 4), p.history));
  }));
}

/// Many rows of wide ones are launched layer by layer, which those beside them need not be, and with a mix cannot.
TEST(GroupLaunches, KeepsWideChainsApartFromNarrowOnes) {
  Passes passes = only(&Passes::group_launches);
  passes.fuse_tails = true;
  EXPECT_THAT(shared_steps_of(plan_of(
                  [](Parts& p) {
                    const auto mixed = p.b.mlp("b", p.b.mix(p.b.concat({p.i, p.i}), p.b.slice(p.i, 0, 2)), {4, 2});
                    return p.b.concat({p.b.mlp("a", p.i, {600, 4}), mixed, p.b.mlp("c", p.i, {700, 2})});
                  },
                  passes)),
              testing::UnorderedElementsAre("mlp: a.0 a.1 c.0 c.1", "mlp: mix b.0 b.1"));
}

/// Launches of a run as planned, and without any pass.
std::pair<int64_t, int64_t> launches_of(const ModelFunction& model) {
  CompileOptions without;
  without.passes = Passes::none();
  const auto count = [](const Plan& plan) { return plan::launches_of(plan.graph(), plan.storage().steps); };
  return {count(compile(model)), count(compile(model, without))};
}

TEST(Launches, AreWithinTheBudgetsOfTheReferenceModels) {
  using testing::Pair;  // (all passes, none)
  EXPECT_THAT(launches_of(models::wide_deep), Pair(3, 156));
  EXPECT_THAT(launches_of(models::dlrm), Pair(4, 39));
  EXPECT_THAT(launches_of(models::dcn_v2), Pair(10, 43));
  EXPECT_THAT(launches_of(movielens::din_mmoe), Pair(6, 30));
  EXPECT_THAT(launches_of(models::meituan_like), Pair(7, 166));
  EXPECT_THAT(launches_of(models::rank_mixer), Pair(12, 81));
  EXPECT_THAT(launches_of(models::hstu), Pair(19, 75));
  EXPECT_THAT(launches_of(models::xdeepfm), Pair(9, 73));
  EXPECT_THAT(launches_of(models::dlrm_hstu), Pair(43, 240));
  EXPECT_THAT(launches_of(models::mtgr), Pair(18, 177));
  EXPECT_THAT(launches_of(models::auto_int), Pair(7, 47));
  EXPECT_THAT(launches_of(models::dien), Pair(8, 21));
  EXPECT_THAT(launches_of(models::wukong), Pair(21, 70));
}

/// Of one request of 100 items, 512 actions and 100 events of each history.
TEST(Launches, AndOperationsAreInTheDocumentsAsTheyAre) {
  std::ifstream file(WARPRANK_TEST_DATA "/../docs/MODELS.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::vector<std::pair<std::string, ModelFunction>> models = {{"wide_deep", models::wide_deep},
                                                                     {"dlrm", models::dlrm},
                                                                     {"dcn_v2", models::dcn_v2},
                                                                     {"din_mmoe", movielens::din_mmoe},
                                                                     {"meituan_like", models::meituan_like},
                                                                     {"user_heavy", models::user_heavy},
                                                                     {"hstu", models::hstu},
                                                                     {"rank_mixer", models::rank_mixer},
                                                                     {"xdeepfm", models::xdeepfm},
                                                                     {"auto_int", models::auto_int},
                                                                     {"wukong", models::wukong},
                                                                     {"dien", models::dien},
                                                                     {"dlrm_hstu", models::dlrm_hstu},
                                                                     {"mtgr", models::mtgr}};
  for (const auto& [name, model] : models) {
    const Graph graph = build(model);
    CompileOptions options;
    options.capacities = {{1, 100, {}}};
    for (const AxisInfo& axis : graph.axes)
      if (axis.keep_last > 0) options.capacities[0].rows[axis.name] = axis.keep_last;
    const auto megaflops = [&] {
      const Plan plan = compile(graph, options);
      const std::vector<int64_t> rows = plan::rows_at(plan.source(), options.capacities[0]);
      plan::Cost cost;
      for (const std::vector<int>& step : plan.storage().steps) cost += plan::cost_of(plan.graph(), step, rows);
      return std::pair(plan::launches_of(plan.graph(), plan.storage().steps), std::llround(cost.flops / 1e6));
    };
    const auto [launches, planned] = megaflops();
    options.passes.late_broadcast = false;
    const std::string row = "| " + name + " | " + std::to_string(launches) + " | " + std::to_string(planned) + " | " +
                            std::to_string(megaflops().second) + " |";
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

TEST(Launches, AreOneOfEachLayerOfMaps) {
  const auto launches = [](const std::vector<int64_t>& layers, bool split_half) {
    const Plan plan = compile([&](Builder& b) -> Outputs {
      const auto user = b.axis("user"), item = b.axis("item", user);
      const auto fields = b.concat({b.expand(b.dense("u", user, 8), item), b.dense("i", item, 12)});
      const auto maps = b.cin("cin", fields, 4, {.layers = layers, .split_half = split_half});
      return {{"ctr", b.sigmoid(b.linear("of_maps", maps, 1) + b.mlp("deep", fields, {16, 1}))}};
    });
    return plan::launches_of(plan.graph(), plan.storage().steps);
  };
  for (const bool split_half : {true, false})
    EXPECT_EQ(launches({6, 6, 6}, split_half) - launches({6, 6}, split_half), 1) << split_half;
}

TEST(Launches, CountWhatStepsDoNotShow) {
  const Plan scenes =
      plan_of([](Parts& p) { return p.b.scene_experts("s", p.i, p.b.ids("scene", p.item), 4, {3}); }, Passes{});
  EXPECT_EQ(scenes.storage().steps.size(), 1u);
  EXPECT_EQ(plan::launches_of(scenes.graph(), scenes.storage().steps), 3);  // inputs, rows by scene, the layer
}

TEST(Storage, LetsProducersWriteIntoTheirConcat) {
  for (const auto& model :
       {ModelFunction(models::wide_deep), ModelFunction(models::meituan_like), ModelFunction(movielens::din_mmoe)}) {
    const Plan plan = compile(model);
    for (const auto& step : plan.storage().steps)
      for (int n : step) EXPECT_NE(std::string(kind_of(plan.graph().node(n).op)), "concat");
  }
}

TEST(Storage, FindsAConcatInAWiderOne) {
  const Plan plan = plan_of(
      [](Parts& p) {
        const auto a = p.b.relu(p.i), b = p.b.sigmoid(p.i);
        const auto narrow = p.b.linear("narrow", p.b.concat({a, b}), 3),
                   swapped = p.b.linear("swapped", p.b.concat({b, a}), 3);
        return p.b.linear("wide", p.b.concat({p.i, a, b}), 3) + narrow + swapped;
      },
      only(&Passes::place_concats));
  std::vector<bool> copied;
  for (size_t n = 0; n < plan.graph().nodes.size(); ++n)
    if (std::holds_alternative<ConcatOp>(plan.graph().nodes[n].op))
      copied.push_back(plan.storage().placements[n].copied);
  EXPECT_THAT(copied, ElementsAre(false, true, false));  // as found, in another order, the wide one
}

/// Two values may share memory only when no step reads one while the other is live.
TEST(Storage, NeverHandsOnMemoryThatIsStillRead) {
  for (const auto& model :
       {ModelFunction(models::dlrm), ModelFunction(models::dcn_v2), ModelFunction(models::meituan_like),
        ModelFunction(models::wide_deep), ModelFunction(movielens::din_mmoe)}) {
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

/// The table of tests/counts.json that docs/PERFORMANCE.md predicts times from, in microseconds for each card.
TEST(PlanCounts, OfReferenceModels) {
  std::vector<const char*> columns = {"model", "requests", "items", "launches"};
  columns.insert(columns.end(), {"launches as written", "FLOPs", "bytes", "arena bytes"});
  for (const plan::Card& card : plan::cards) columns.push_back(card.name);
  kernel_testing::CountTable table(columns);
  const struct {
    const char* name;
    ModelFunction model;
    std::vector<Capacity> capacities;
  } models[] = {{"wide_deep", models::wide_deep, {{1, 100}, {1, 500}, {16, 1600}, {64, 6400}}},
                {"dlrm", models::dlrm, {{1, 100}, {1, 256}, {1, 1024}, {1, 4096}}},
                {"dcn_v2", models::dcn_v2, {{1, 100}, {1, 256}, {1, 1024}, {1, 4096}}},
                {"din_mmoe", movielens::din_mmoe, {{1, 100}, {1, 500}, {16, 1600}, {64, 6400}}},
                {"meituan_like", models::meituan_like, {{1, 200}, {1, 500}, {16, 3200}}},
                {"user_heavy", models::user_heavy, {{1, 100}, {1, 500}}}};
  for (const auto& m : models)
    for (const Capacity& capacity : m.capacities) {
      CompileOptions options;
      options.capacities = {capacity};
      const Plan plan = compile(m.model, options);
      options.passes = Passes::none();
      const Plan as_written = compile(m.model, options);
      const std::vector<int64_t> rows = plan::rows_at(plan.source(), capacity);
      const cuda_backend::ValueLayout values(plan.graph(), plan.storage());
      const plan::Prediction total = plan::predict(plan.graph(), plan.storage(), rows, plan::cards[0]);

      std::vector<std::string> cells = {m.name, std::to_string(capacity.requests), std::to_string(capacity.items)};
      cells.push_back(std::to_string(total.launches));
      cells.push_back(std::to_string(plan::launches_of(as_written.graph(), as_written.storage().steps)));
      cells.push_back(std::to_string(std::llround(total.cost.flops)));
      cells.push_back(std::to_string(std::llround(total.cost.bytes)));
      cells.push_back(std::to_string(cuda_backend::ArenaLayout(values, plan.storage(), rows).bytes));
      for (const plan::Card& card : plan::cards) {
        char microseconds[32];
        std::snprintf(microseconds, sizeof microseconds, "%.1f",
                      plan::predict(plan.graph(), plan.storage(), rows, card).seconds * 1e6);
        cells.emplace_back(microseconds);
      }
      table.add_row(cells);
    }
}

TEST(Describe, PredictsTimesOnANamedCard) {
  const Plan plan = compile(models::wide_deep);
  EXPECT_THAT(plan.describe(), HasSubstr("predicted for one T4, not measured"));
  EXPECT_THAT(plan.describe("H200"), HasSubstr("predicted for one H200, not measured"));
  EXPECT_THAT(plan.describe(), HasSubstr("without any pass"));
  try {
    plan.describe("H20");
    ADD_FAILURE() << "an unknown card was accepted";
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'H200'?"));
  }
  // 236 MB at 236 GB/s; beside 48 GFLOP at 24 TFLOP/s that is hidden.
  const plan::Card &t4 = plan::card_named("T4"), &h100 = plan::card_named("H100");
  EXPECT_NEAR(plan::predicted_seconds({0, 236e6}, {}, 0, t4), 1e-3, 1e-9);
  EXPECT_NEAR(plan::predicted_seconds({48e9, 236e6}, {}, 0, t4), 2e-3, 1e-9);
  // Kernels, trips and instructions are the H100's, and slower where the clock is.
  EXPECT_NEAR(plan::predicted_seconds({}, {4, 500}, 2, h100), 2 * 0.75e-6 + 4 * 0.5e-6 + 500 * 1.6e-9, 1e-12);
  EXPECT_NEAR(plan::predicted_seconds({}, {4, 500}, 2, t4), (2 * 1.27e-6 + 4 * 0.5e-6 + 500 * 1.6e-9) * 1.98 / 1.59,
              1e-12);
  EXPECT_NEAR(plan::predicted_seconds_outside(55.2e3, h100), 2.1e-6 + 1e-6 + 4.4e-6, 1e-12) << "fetched";
  EXPECT_NEAR(plan::predicted_seconds_outside(552e3, h100), 8.2e-6 + 10e-6 + 4.4e-6, 1e-12) << "copied";
}

TEST(Describe, CountsNoBytesForWhatStaysOnChip) {
  const auto bytes = [](bool fuse) {
    Passes passes = Passes::none();
    passes.fuse_tails = fuse;
    const Plan plan = plan_of([](Parts& p) { return p.b.mlp("m", p.i, {6, 5}); }, passes);
    plan::Cost cost;
    for (const auto& step : plan.storage().steps) cost += plan::cost_of(plan.graph(), step, {1, 100, 0});
    return cost.bytes;
  };
  EXPECT_EQ(bytes(false) - bytes(true), 100 * 6 * 2 * 2);  // rows, columns, written and read, FP16
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

/// docs/ARCHITECTURE.md says how the picture was made.
TEST(Describe, IsDrawnInTheDocumentsAsItIs) {
  std::ifstream file(WARPRANK_TEST_DATA "/../docs/din_mmoe.svg");
  const std::string picture((std::istreambuf_iterator<char>(file)), {});
  const auto count_of = [&](const std::string& text) {
    size_t count = 0;
    for (size_t at = picture.find(text); at != std::string::npos; at = picture.find(text, at + 1)) ++count;
    return count;
  };
  const Plan plan = compile(movielens::din_mmoe);
  const Graph& graph = plan.graph();
  EXPECT_EQ(count_of("<g id=\"node"), graph.nodes.size() + graph.outputs.size());
  EXPECT_EQ(count_of("<g id=\"clust"), plan.storage().steps.size());
  for (const Node& node : graph.nodes)
    EXPECT_THAT(picture, HasSubstr(">" + std::string(kind_of(node.op)) + " " + node.name + "<"));
  for (size_t s = 0; s < plan.storage().steps.size(); ++s)
    EXPECT_THAT(picture,
                HasSubstr(">" + std::to_string(s) + " " + plan::kernel_of(graph, plan.storage().steps[s]) + "<"));
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

/// A model with outputs on the named axes of user > session > item, and tags of an item.
ModelFunction with_outputs_on(std::vector<std::string> axes) {
  return [axes = std::move(axes)](Builder& b) -> Outputs {
    const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
    std::map<std::string, Tensor> of{{"user", b.dense("u", user, 2)}, {"session", b.dense("s", session, 2)}};
    of["item"] = b.dense("i", item, 2) + b.expand(of["user"], item);
    of["tags"] = b.dense("t", b.axis("tags", item, keep_last(3)), 2);
    Outputs outputs;
    for (const std::string& axis : axes) outputs.emplace_back(axis, of.at(axis));
    return outputs;
  };
}

TEST(Compile, TakesTheRowsOfACapacity) {
  const auto rows = [](const std::vector<std::string>& outputs, const Capacity& capacity) {
    const Plan plan = compile(with_outputs_on(outputs), {.capacities = {capacity}});
    return plan::rows_at(plan.source(), plan.options().capacities[0]);
  };
  EXPECT_THAT(rows({"item"}, {}), ElementsAre(1, 8, 256, 768));
  EXPECT_THAT(rows({"item", "user"}, {2, 100, {{"session", 5}, {"tags", 7}}}), ElementsAre(2, 5, 100, 7));
  EXPECT_THAT(rows({"item"}, {2, 100, {{"user", 2}, {"item", 100}}}), ElementsAre(2, 16, 100, 300));
  EXPECT_THAT(rows({"user", "item", "session"}, {2, 100}), ElementsAre(2, 16, 100, 300));
  EXPECT_THAT(rows({"user"}, {2}), ElementsAre(2, 16, 128, 384));  // items are of no axis
  EXPECT_THAT(rows({"user"}, {2, 256, {{"item", 9}}}), ElementsAre(2, 16, 9, 27));
  EXPECT_THAT(rows({"item"}, {0, 0}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(rows({"item"}, {1, 0}), ElementsAre(1, 8, 0, 0));
}

TEST(Compile, RefusesCapacitiesThatContradictThemselves) {
  const auto refused = [](const std::vector<std::string>& outputs, const Capacity& capacity) {
    return test_support::message_of([&] { compile(with_outputs_on(outputs), {.capacities = {capacity}}); });
  };
  EXPECT_EQ(refused({"item"}, {.rows = {{"item", 4096}}}),
            "capacity: rows of axis 'item': expected 256, its items, got 4096");
  EXPECT_EQ(refused({"user", "item"}, {.rows = {{"item", 4096}}}),
            "capacity: rows of axis 'item': expected 256, its items, got 4096");
  EXPECT_EQ(refused({"item"}, {.requests = 4, .rows = {{"user", 8}}}),
            "capacity: rows of axis 'user': expected 4, its requests, got 8");
  EXPECT_EQ(refused({"item"}, {.requests = 0}),
            "capacity: rows of axis 'item': expected 0, as those of its parent 'session', got 256");
  EXPECT_EQ(refused({"item"}, {.rows = {{"session", 0}}}),
            "capacity: rows of axis 'item': expected 0, as those of its parent 'session', got 256");
  EXPECT_EQ(refused({"session"}, {.rows = {{"item", 0}, {"tags", 5}}}),
            "capacity: rows of axis 'tags': expected 0, as those of its parent 'item', got 5");
}

/// Items, events with words, and events of which the last 20 count.
Outputs with_histories(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user), event = b.axis("event", user);
  const auto words = b.dense("w", b.axis("word", event), 2);
  const auto recent = b.dense("r", b.axis("recent", user, keep_last(20)), 2);
  const auto sum = b.pool(b.pool(words, Pooling::sum), Pooling::sum) + b.pool(recent, Pooling::sum);
  return {{"out", b.dense("i", item, 2) + b.expand(sum, item)}};
}
std::vector<std::byte> request_of(int64_t items, int64_t events) {
  const test_support::RequestShape shape{50, 1, {{"item", items}, {"event", events}, {"word", 2}}};
  const Batch batch = test_support::random_batch(compile(with_histories), 1, shape, 1);
  const BlobView blob = batch.blob(0);
  return {blob.data(), blob.data() + blob.bytes()};
}

TEST(Compile, LearnsTheRowsOfACapacityOrWarnsOfItsGuess) {
  CompileOptions options{.capacities = {{1, 100}, {4, 400, {{"event", 50}}}}};
  const auto rows = [](const Plan& plan, size_t capacity) {
    return plan::rows_at(plan.source(), plan.options().capacities[capacity]);
  };
  const Plan guessed = compile(with_histories, options);
  EXPECT_THAT(rows(guessed, 0), ElementsAre(1, 100, 8, 64, 20));
  ASSERT_EQ(guessed.warnings().size(), 2u);
  EXPECT_THAT(guessed.warnings()[0], HasSubstr("rows of axis 'event' are a guess: 8 for each row of 'user'; "));
  EXPECT_THAT(guessed.warnings()[1], HasSubstr("rows of axis 'word' are a guess: 8 for each row of 'event'; "));
  EXPECT_THAT(guessed.describe(), HasSubstr("\nWarning: rows of axis 'event' are a guess"));

  options.recorded = {request_of(30, 3), request_of(500, 9), request_of(1, 0)};
  const Plan learned = compile(with_histories, options);
  EXPECT_THAT(rows(learned, 0), ElementsAre(1, 100, 9, 18, 20));
  EXPECT_THAT(rows(learned, 1), ElementsAre(4, 400, 50, 100, 80)) << "what is given counts";
  EXPECT_TRUE(learned.warnings().empty());
  EXPECT_THAT(learned.describe(), Not(HasSubstr("Warning")));
  EXPECT_TRUE(learned.options().recorded.empty());

  const Batch ragged = test_support::random_batch(guessed, 1, {50, 5, {{"item", 3}, {"event", 9}}}, 1);
  const int64_t words = ragged.num_rows(guessed.axis("word"));
  ASSERT_NE(words % 9, 0) << "or this shows nothing";
  const BlobView blob = ragged.blob(0);
  options.recorded = {{blob.data(), blob.data() + blob.bytes()}};
  EXPECT_EQ(rows(compile(with_histories, options), 0)[3], (words + 8) / 9 * 9) << "holds the request";

  options.recorded.push_back({options.recorded[0].begin(), options.recorded[0].end() - 8});
  EXPECT_THAT(test_support::message_of([&] { compile(with_histories, options); }),
              HasSubstr("recorded request 1: expected a request of the model, got"));
}

TEST(Difference, IsAlsoInWhatSharesALaunch) {
  const auto model = [](Parts& p) { return p.b.concat({p.b.linear("a", p.i, 2), p.b.linear("b", p.i, 2)}); };
  const Plan together = plan_of(model, only(&Passes::group_launches));
  EXPECT_EQ(plan::difference(together, plan_of(model, only(&Passes::group_launches))), "");
  EXPECT_EQ(plan::difference(together, plan_of(model, only(&Passes::remove_dead))), "node 'a'");
}

TEST(RunSize, IsRoundedUpWhereItIsAboveTheLargestCapacity) {
  using cuda_backend::next_of_four;
  for (const auto& [count, expected] : std::map<int64_t, int64_t>{
           {0, 0}, {1, 1}, {7, 7}, {8, 8}, {9, 10}, {10, 10}, {15, 16}, {17, 20}, {1000, 1024}, {1025, 1280}})
    EXPECT_EQ(next_of_four(count), expected);
  for (int64_t count = 0; count < 5000; ++count) {
    EXPECT_GE(next_of_four(count), count);
    EXPECT_LE(4 * next_of_four(count), 5 * count);
  }
  const BatchLayout layout(build(with_histories));
  const cuda_backend::RunSize largest{{2, 100, 16, 128, 40}, 2, 100000};
  const auto rounded = [&](std::vector<int64_t> rows, int64_t bytes) {
    return cuda_backend::RunSize{std::move(rows), 1, bytes}.rounded_up(largest, layout);
  };
  const cuda_backend::RunSize size = rounded({1, 3, 17, 5, 1}, 300);
  EXPECT_THAT(size.rows, ElementsAre(2, 100, 20, 128, 40));
  EXPECT_EQ(size.max_requests, 2);
  EXPECT_EQ(size.blob_bytes, most_blob_bytes(layout, size.rows));
  EXPECT_TRUE(rounded({2, 99, 20, 1, 1}, 900) == size) << "one of many batches";
  EXPECT_TRUE(rounded({2, 100, 20, 128, 40}, 900) == size) << "which has as many rows as the largest capacity";
  EXPECT_EQ(rounded({1, 3, 17, 5, 1}, 1000001).blob_bytes, next_of_four(1000001)) << "as nobody should send it";
  EXPECT_EQ(rounded({1, (int64_t{1} << 31) - 1, 0, 0, 0}, 0).rows[1], int64_t{1} << 31);
}

TEST(Compile, RefusesLinearsThatAddNoResidualFirstOrThatOnlyPlanningMakes) {
  const auto refused = [](bool LinearOp::*attribute) {
    Graph graph = build(models::user_heavy);
    for (Node& node : graph.nodes)
      if (auto* linear = std::get_if<LinearOp>(&node.op)) linear->*attribute = true;
    try {
      compile(graph);
    } catch (const invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused(&LinearOp::residual_first), HasSubstr("a residual to add before the activation, got none"));
  EXPECT_THAT(refused(&LinearOp::ones), HasSubstr("which planning adds"));
}

/// What compiling HSTU says, one of whose nodes is changed.
template <class Op>
std::string refusal_of(const std::function<void(Op&)>& change) {
  Graph graph = build(models::hstu);
  for (Node& node : graph.nodes)
    if (auto* op = std::get_if<Op>(&node.op); op != nullptr) {
      change(*op);
      break;
    }
  try {
    compile(graph);
  } catch (const invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Compile, RefusesWindowsAndFoldsThatAreNone) {
  const auto attention = [](auto change) { return refusal_of<AttentionOp>(change); };
  EXPECT_EQ(attention([](AttentionOp& op) { op.window = 3, op.full_last = 2; }), "accepted");
  EXPECT_THAT(attention([](AttentionOp& op) { op.window = int64_t{1} << 31; }), HasSubstr("0 to 1073741824"));
  EXPECT_THAT(attention([](AttentionOp& op) { op.window = 3, op.weights = AttentionWeights::softmax, op.divisor = 1; }),
              HasSubstr("a window only with the weights of silu, got a softmax"));
  EXPECT_THAT(attention([](AttentionOp& op) { op.window = 3, op.causal = false; }),
              HasSubstr("a window only where attention is causal or of another axis"));
  const auto biased = [&](auto change) {
    return attention([&](AttentionOp& op) {
      op.name = "a", op.positions = 4, op.clamp_positions = true;
      change(op);
    });
  };
  EXPECT_EQ(biased([](AttentionOp&) {}), "accepted");
  EXPECT_THAT(biased([](AttentionOp& op) { op.weights = AttentionWeights::softmax, op.divisor = 1, op.window = 0; }),
              HasSubstr("a bias by position or time only with the weights of silu, got a softmax"));
  EXPECT_THAT(biased([](AttentionOp& op) { op.name.clear(); }), HasSubstr("a name for the biases, got none"));
  EXPECT_THAT(biased([](AttentionOp& op) { op.causal = false; }),
              HasSubstr("a bias by position only where attention is causal or of another axis"));
  EXPECT_THAT(biased([](AttentionOp& op) { op.time_buckets = 2; }), HasSubstr("5 inputs, got 3"));
  EXPECT_THAT(attention([](AttentionOp& op) { op.bias_by_head = true; }), HasSubstr("bias_by_head with a bias"));
  const auto norm = [](std::vector<ElementwiseFunction> folds) {
    return refusal_of<LayerNormOp>([folds](LayerNormOp& op) { op.folds = folds; });
  };
  EXPECT_THAT(norm({ElementwiseFunction::add}), HasSubstr("2 to 3 inputs, got 1"));
  EXPECT_THAT(norm({ElementwiseFunction::sub}), HasSubstr("folds that are sums or products, got sub"));
  EXPECT_THAT(norm(std::vector<ElementwiseFunction>(4, ElementwiseFunction::add)), HasSubstr("at most 3 folds, got 4"));
}

TEST(Compile, BoundsTheRowsThatHugeLimitsAskFor) {
  Graph graph;
  graph.axes = {{"user"}, {"a", 0, INT64_MAX}, {"b", 1, INT64_MAX}};
  EXPECT_THAT(plan::rows_at(graph, {INT64_MAX, 1}), testing::Each(int64_t{1} << 31));
}

}}  // namespace warprank
