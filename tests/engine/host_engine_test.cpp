// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hash_table/table_testing.hpp"
#include "support/allocation_counter.hpp"
#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "support/random_model.hpp"
#include "support/renamed_weights.hpp"
#include "support/wait_until.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using test_support::message_of;
using test_support::num_allocations;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<float> values(Span<const float> span) { return {span.begin(), span.end()}; }

StoredTensor floats(Shape shape, const std::vector<float>& v) { return make_tensor(std::move(shape), v); }

/// score = 2 film + 10 user + context, over a direct table of 3 films and a hashed one of 2 users.
struct SmallModel {
  static Outputs describe(Builder& b) {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 1}));
    const auto who = b.embed(b.ids("user_id", user, {.default_id = 77}), b.hashed_table("who", {.dim = 1}));
    const auto context = b.dense("context", item, 1, {.default_value = 0.5f});
    const auto x = b.concat({film, b.expand(who, item), context});
    return {{"score", b.linear("head", x, 1)}};
  }
  static std::map<std::string, StoredTensor> tables_in_memory() {
    return {{"film", floats({3, 1}, {1, 2, 3})},
            {"film.default", floats({1}, {100})},
            {"who.keys", make_tensor<int64_t>({2}, {77, -1})},
            {"who.rows", floats({2, 1}, {1, 2})}};
  }

  Plan plan = compile(describe);
  Weights weights =
      Weights::from_tensors({{"head.weight", floats({1, 3}, {2, 10, 1})}, {"head.bias", floats({1}, {0})}});
  Tables tables = Tables::load(plan, Weights::from_tensors(tables_in_memory()), host());
  Model model = Model::bind(plan, weights, tables);
  Context context = model.context();
  IdsSlot film_id = plan.ids("film_id"), user_id = plan.ids("user_id");
  DenseSlot dense = plan.dense("context");
};

TEST(HostEngine, ScoresEveryRequestOfABatch) {
  SmallModel m;
  Batch batch = m.plan.batch();
  const Request a = batch.add_request().ids(m.user_id, {77}).ids(m.film_id, {0, 2}).dense(m.dense, {0.0f, 1.0f});
  const Request none = batch.add_request().ids(m.user_id, {-1});
  const Request b = batch.add_request().ids(m.user_id, {-1}).ids(m.film_id, {1}).dense(m.dense, {0.25f});
  const Scores scores = m.context.run(batch);
  EXPECT_THAT(values(scores["score"].of(a)), ElementsAre(2 + 10, 6 + 10 + 1));
  EXPECT_THAT(values(scores["score"].of(b)), ElementsAre(4 + 20 + 0.25f));
  EXPECT_TRUE(scores.scored(none));
  EXPECT_TRUE(scores["score"].of(none).empty());
  EXPECT_EQ(scores["score"].all().rows, 3);
}

TEST(HostEngine, TakesDeclaredDefaultsAndCountsOddIds) {
  SmallModel m;
  Batch batch = m.plan.batch();
  // -1 is padding in a direct table and a key of its own in a hashed one; 3 and -5 are out of range.
  const Request r = batch.add_request().ids(m.film_id, {-1, 3, -5, 0});
  const Request unknown = batch.add_request().ids(m.user_id, {12345}).ids(m.film_id, {1});
  const Scores scores = m.context.run(batch);
  EXPECT_THAT(values(scores["score"].of(r)), ElementsAre(10.5f, 210.5f, 210.5f, 12.5f));
  EXPECT_THAT(values(scores["score"].of(unknown)), ElementsAre(4.5f));
  m.context.run(batch);
  for (const FeatureCounters& f : m.context.counters()) {
    const bool film = f.feature == "embed.film_id";
    EXPECT_EQ(f.counters.ids, film ? 2 * 5 : 2 * 2) << f.feature;
    EXPECT_EQ(f.counters.padding, film ? 2 : 0) << f.feature;
    EXPECT_EQ(f.counters.out_of_range, film ? 4 : 0) << f.feature;
    EXPECT_EQ(f.counters.unknown, film ? 0 : 2) << f.feature;
  }
  EXPECT_EQ(m.context.counters().size(), 2u);
}

TEST(HostEngine, ABadRequestDoesNotDisturbTheOthers) {
  SmallModel m;
  Batch batch = m.plan.batch();
  const Request bad = batch.add_request().ids(m.film_id, {0, 1}).dense(m.dense, {NAN, 1.0f});
  const Request good = batch.add_request().ids(m.film_id, {0}).dense(m.dense, {0.0f});
  const Scores scores = m.context.run(batch);
  EXPECT_FALSE(scores.scored(bad));
  EXPECT_TRUE(scores["score"].of(bad).empty());
  EXPECT_EQ(batch.status(bad.index()).code, StatusCode::not_finite);
  EXPECT_THAT(values(scores["score"].of(good)), ElementsAre(12));
  EXPECT_FALSE(scores.scored(7));
}

TEST(HostEngine, SubmitsWhatItWouldRun) {
  SmallModel m;
  Batch batch = m.plan.batch();
  const Request r = batch.add_request().ids(m.film_id, {0, 2});
  Pending pending = m.context.submit(batch);
  EXPECT_TRUE(pending.ready());
  EXPECT_EQ(test_support::message_of([&] { pending.device_scores("score"); }),
            "device scores: expected a model on a GPU, got one on the host");
  EXPECT_THAT(values(pending.wait()["score"].of(r)), ElementsAre(12.5f, 16.5f));
}

TEST(HostEngine, RunsAnEmptyBatch) {
  SmallModel m;
  Batch batch = m.plan.batch();
  EXPECT_EQ(m.context.run(batch)["score"].all().rows, 0);
}

TEST(HostEngine, RefusesABatchOfAnotherPlanAndAnUnknownOutput) {
  SmallModel m;
  const Plan other = compile([](Builder& b) -> Outputs { return {{"x", b.dense("x", b.axis("user"), 1)}}; });
  Batch foreign = other.batch(), batch = m.plan.batch();
  EXPECT_THAT(message_of([&] { m.context.run(foreign); }), HasSubstr("one of another plan"));
  EXPECT_THAT(message_of([&] { m.context.run(batch)["scores"]; }), HasSubstr("did you mean 'score'?"));
}

TEST(HostEngine, ARunAllocatesNothingOnceItHasSeenABatchAsLarge) {
  const Plan plan = compile(test_support::RandomModel(3));
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, 3), host());
  Context context = Model::bind(plan, test_support::random_weights(plan, 3), tables).context();
  Batch large = test_support::random_batch(plan, 9, {}, 4), small = test_support::random_batch(plan, 2, {}, 5);
  context.run(large);
  const int64_t before = num_allocations;
  const MemoryReport memory = context.memory();
  const int64_t of_report = num_allocations - before;
  for (int i = 0; i < 3; ++i) {
    context.run(small);
    context.run(large);
  }
  EXPECT_EQ(num_allocations - before, of_report);
  EXPECT_EQ(context.memory(), memory);
}

TEST(HostEngine, AContextIsMadeForItsCapacities) {
  CompileOptions options;
  options.capacities = {{4, 40, {{"history", 100}}}};
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
        return {{"y", b.mlp("m", b.din_attention("a", b.dense("q", item, 4), b.dense("k", history, 4)), {8, 1})}};
      },
      options);
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  Context context = Model::bind(plan, test_support::random_weights(plan, 1), tables).context();
  test_support::RequestShape shape;
  shape.rows = {{"item", 10}, {"history", 25}};
  Batch batch = test_support::random_batch(plan, 4, shape, 1);
  const MemoryReport before = context.memory();
  context.run(batch);
  const MemoryReport after = context.memory();
  EXPECT_EQ(before, after);
}

TEST(HostEngine, AContextOutlivesWhatItWasMadeFrom) {
  const auto scores_of = [](Context& context, Batch& batch) { return values(context.run(batch)["score"].of(1)); };
  std::vector<float> expected;
  std::optional<Context> context;
  std::optional<Batch> batch;
  {
    const Plan plan = compile(test_support::RandomModel(7));
    const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, 7), host());
    Context first = Model::bind(plan, test_support::random_weights(plan, 7), tables).context();
    batch = test_support::random_batch(plan, 3, {}, 7);
    expected = scores_of(first, *batch);
    context = std::move(first);
  }
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(scores_of(*context, *batch), expected);
}

TEST(HostEngine, GivesARequestTheSameBitsWhateverItsNeighbours) {
  const Plan plan = compile(test_support::RandomModel(11));
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, 11), host());
  const Model model = Model::bind(plan, test_support::random_weights(plan, 11), tables);
  Context together = model.context(), alone = model.context();
  Batch batch = test_support::random_batch(plan, 7, {}, 11);
  const Scores scores = together.run(batch);
  for (int64_t r = 0; r < batch.size(); ++r) {
    Batch single = plan.batch();
    const BlobView blob = batch.blob(r);
    single.add_blob({blob.data(), blob.bytes()});
    const Scores single_scores = alone.run(single);
    for (const OutputInfo& output : plan.graph().outputs)
      EXPECT_EQ(values(scores[output.name].of(r)), values(single_scores[output.name].of(0))) << output.name;
  }
}

// One request's values may stay where they are in the batch, which is another for every run.
TEST(HostEngine, ReadsDenseValuesOfOneRequestOrOfSeveral) {
  const Plan plan = compile([](Builder& b) {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto x = b.dense("x", item, 2, {.default_value = 0.5f}), seen = b.dense("seen", item, 2);
    return Outputs{{"score", b.linear("head", x, 1)}, {"x", x}, {"second", b.slice(seen, 1, 2)}};
  });
  const Weights weights =
      Weights::from_tensors({{"head.weight", floats({1, 2}, {2, 10})}, {"head.bias", floats({1}, {0})}});
  Context context = Model::bind(plan, weights, Tables::load(plan, Weights::from_tensors({}), host())).context();
  const DenseSlot x = plan.dense("x"), seen = plan.dense("seen");
  for (const float value : {1.0f, 3.0f}) {
    Batch one = plan.batch(), both = plan.batch(), unset = plan.batch();
    one.add_request().dense(x, {value, 1, 0, 2}).dense(seen, {0, 5, 0, 6});
    Scores scores = context.run(one);
    EXPECT_THAT(values(scores["score"].of(0)), ElementsAre(2 * value + 10, 20));
    EXPECT_THAT(values(scores["x"].of(0)), ElementsAre(value, 1, 0, 2));
    EXPECT_THAT(values(scores["second"].of(0)), ElementsAre(5, 6));
    both.add_request().dense(x, {value, 2}).dense(seen, {0, 7});
    both.add_request().dense(x, {0, value}).dense(seen, {0, 8});
    scores = context.run(both);
    EXPECT_THAT(values(scores["score"].of(1)), ElementsAre(10 * value));
    EXPECT_THAT(values(scores["second"].of(1)), ElementsAre(8));
    unset.add_request().dense(seen, {0, 9});
    scores = context.run(unset);
    EXPECT_THAT(values(scores["score"].of(0)), ElementsAre(6));
  }
}

TEST(HostEngine, ContextsOfOneModelRunSideBySide) {
  const Plan plan = compile(test_support::RandomModel(5));
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, 5), host());
  const Model model = Model::bind(plan, test_support::random_weights(plan, 5), tables);
  Batch reference_batch = test_support::random_batch(plan, 4, {}, 5);
  Context reference = model.context();
  const std::vector<float> expected = values(reference.run(reference_batch)["score"].of(3));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      Context context = model.context();
      Batch batch = test_support::random_batch(plan, 4, {}, 5);
      for (int i = 0; i < 20; ++i)
        if (values(context.run(batch)["score"].of(3)) != expected) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(HostEngine, RefusesASecondUseOfAContextWhileOneIsUnderWay) {
  Context* context = nullptr;
  Batch* batch = nullptr;
  std::string message;
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user");
    return {{"y", b.custom("reenter", {b.dense("x", user, 1)}, user, 1)}};
  });
  BindOptions options;
  options.custom["reenter"] = [&](const CustomCall& call) {
    message = message_of([&] { context->run(*batch); });
    for (int64_t r = 0; r < call.output.rows; ++r) call.output.row(r)[0] = call.inputs[0].values.row(r)[0];
  };
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  Context owned = Model::bind(plan, Weights::from_tensors({}), tables, options).context();
  Batch owned_batch = plan.batch();
  const Request r = owned_batch.add_request().dense(plan.dense("x"), {3.0f});
  context = &owned;
  batch = &owned_batch;
  EXPECT_THAT(values(owned.run(owned_batch)["y"].of(r)), ElementsAre(3));
  EXPECT_THAT(message, HasSubstr("a second while one is under way"));
}

TEST(HostEngine, RunsCustomOperationsAndNamesMissingOnes) {
  const auto model = [](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto u = b.dense("u", user, 1), i = b.dense("i", item, 2);
    return {{"y", b.custom("rotate", {i, u}, item, 2, "settings")}};
  };
  const Plan plan = compile(model);
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  EXPECT_THAT(message_of([&] { Model::bind(plan, Weights::from_tensors({}), tables); }),
              AllOf(HasSubstr("custom 'rotate'"), HasSubstr("host_engine_test.cpp")));
  BindOptions options;
  options.custom["rotate"] = [](const CustomCall& call) {
    EXPECT_EQ(call.settings, "settings");
    for (int64_t r = 0; r < call.output.rows; ++r) {
      const float* x = call.inputs[0].values.row(r);
      const float u = call.inputs[1].values.row(call.inputs[1].row_serving(r))[0];
      call.output.row(r)[0] = u * x[1];
      call.output.row(r)[1] = u * x[0];
    }
  };
  Context context = Model::bind(plan, Weights::from_tensors({}), tables, options).context();
  Batch batch = plan.batch();
  const Request r = batch.add_request().dense(plan.dense("u"), {10.0f}).dense(plan.dense("i"), {1, 2, 3, 4});
  EXPECT_THAT(values(context.run(batch)["y"].of(r)), ElementsAre(20, 10, 40, 30));
}

TEST(HostEngine, SceneIdsOutsideTheScenesGiveZerosAndAreCounted) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    return {{"y", b.scene_experts("e", b.dense("x", item, 1), b.ids("scene", item), 2, {1}, identity)}};
  });
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  const Weights weights =
      Weights::from_tensors({{"e.0.weight", floats({2, 1, 1}, {2, 3})}, {"e.0.bias", floats({2, 1}, {0.5f, 0.25f})}});
  Context context = Model::bind(plan, weights, tables).context();
  Batch batch = plan.batch();
  const Request r =
      batch.add_request().ids(plan.ids("scene"), {0, 1, 1, 2, -1}).dense(plan.dense("x"), {1, 1, 2, 1, 1});
  EXPECT_THAT(values(context.run(batch)["y"].of(r)), ElementsAre(2.5f, 3.25f, 6.25f, 0, 0));
  EXPECT_EQ(context.counters()[0].counters.out_of_range, 2);
}

TEST(HostEngine, TapShowsIntermediatesAndSuggestsNames) {
  SmallModel m;
  Batch batch = m.plan.batch();
  batch.add_request().ids(m.film_id, {0, 2});
  EXPECT_THAT(message_of([&] { m.context.tap("head"); }), HasSubstr("keep_intermediates"));
  Context context = m.model.context({true});
  EXPECT_EQ(context.tap("embed.film_id").rows, 0);
  context.run(batch);
  const Matrix<const float> film = context.tap("embed.film_id");
  EXPECT_EQ(film.rows, 2);
  EXPECT_EQ(film.row(1)[0], 3);
  EXPECT_THAT(message_of([&] { context.tap("embed.film"); }), HasSubstr("did you mean 'embed.film_id'?"));
}

TEST(HostEngine, CompareFindsTheFirstIntermediateThatDiffers) {
  SmallModel m;
  auto changed_tables = SmallModel::tables_in_memory();
  changed_tables["film"] = floats({3, 1}, {1, 2, 3.5f});
  const Model changed =
      Model::bind(m.plan, m.weights, Tables::load(m.plan, Weights::from_tensors(changed_tables), host()));
  Batch batch = m.plan.batch();
  batch.add_request().ids(m.film_id, {0, 2});
  EXPECT_EQ(compare(m.model, m.model, batch).first(), nullptr);
  const Comparison comparison = compare(m.model, changed, batch);
  ASSERT_NE(comparison.first(), nullptr);
  EXPECT_EQ(comparison.first()->node, "embed.film_id");
  EXPECT_EQ(comparison.first()->row, 1);
  EXPECT_NEAR(comparison.first()->largest, 0.5, 1e-6);
  EXPECT_THAT(comparison.to_string(), HasSubstr("first difference at 'embed.film_id'"));
}

TEST(HostEngine, ComparesAPlanWithTheModelAsWrittenNodeByNode) {
  CompileOptions plain;
  plain.passes = Passes::none();
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Graph graph = build(test_support::RandomModel(seed));
    const Plan plan = compile(graph), as_written = compile(graph, plain);
    const Weights weights = test_support::random_weights(plan, seed);
    const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, seed), host());
    Batch batch = test_support::random_batch(plan, 4, {}, seed);
    const Comparison comparison =
        compare(Model::bind(plan, weights, tables), Model::bind(as_written, weights, tables), batch);
    EXPECT_EQ(comparison.first(), nullptr) << "seed " << seed << ": " << comparison.to_string();
    EXPECT_GT(comparison.nodes.size(), 10u);
  }
}

TEST(HostEngine, ProfilesItsSteps) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto item = b.axis("item", b.axis("user"));
    const auto x = b.embed(b.ids("film", item), b.table("film", {.dim = 1}));
    return {{"score", b.linear("head", b.custom("slow", {x}, item, 1), 1)}};
  });
  BindOptions options;
  options.custom["slow"] = [](const CustomCall& call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (int64_t r = 0; r < call.output.rows; ++r) *call.output.row(r) = *call.inputs[0].values.row(r);
  };
  const Weights weights =
      Weights::from_tensors({{"head.weight", floats({1, 1}, {2})}, {"head.bias", floats({1}, {0})}});
  const Weights tables = Weights::from_tensors({{"film", floats({3, 1}, {1, 2, 3})}});
  const Model model = Model::bind(plan, weights, Tables::load(plan, tables, host()), options);
  Context context = model.context();
  Batch batch = model.batch();
  batch.add_request().ids(plan.ids("film"), {2, 0, 5});
  context.run(batch);

  Profile profile;
  // On a busy machine another step may have to wait as long, once.
  EXPECT_TRUE(test_support::wait_until([&] {
    profile = context.profile(batch, {2, 3});
    return std::all_of(profile.steps.begin(), profile.steps.end(), [](const StepTime& step) {
      return step.kernel == "custom" ? step.seconds >= 2e-3 : step.seconds < 2e-3;
    });
  })) << profile.to_string();
  std::vector<std::string> steps;
  double sum = 0;
  for (const StepTime& step : profile.steps) {
    steps.push_back(step.kernel + " " + step.name);
    sum += step.seconds;
  }
  EXPECT_THAT(steps, ElementsAre("unpack inputs", "embed embed.film", "custom slow", "linear head", "copy outputs"));
  EXPECT_DOUBLE_EQ(profile.seconds, sum);
  EXPECT_EQ(profile.launches(), 0);
  EXPECT_EQ(context.counters()[0].counters.ids, 3) << "of the run alone";
  EXPECT_THAT(values(context.run(batch)["score"].of(0)), ElementsAre(6, 2, 0));
  EXPECT_THAT(profile.to_string(), testing::StartsWith("     %         us  step\n"));
  EXPECT_THAT(profile.to_string(), HasSubstr("  custom slow\n"));

  EXPECT_EQ(message_of([&] {
              context.profile(batch, {0, -1});
            }),
            "2 problems:\n  profile: turns: expected 1 or more, got 0\n  profile: runs: expected 1 or more, got -1");
  Batch foreign = SmallModel().model.batch();
  EXPECT_THAT(message_of([&] { context.profile(foreign); }), HasSubstr("of this plan's axes"));
}

TEST(HostEngine, ReportsItsMemory) {
  SmallModel m;
  std::map<std::string, int64_t> bytes;
  for (const auto& [what, size] : m.model.memory()) bytes[what] = size;
  EXPECT_EQ(bytes["table film"], 4 * 3 + 4);
  EXPECT_GT(bytes["table who"], 2 * (4 + 8));
  EXPECT_GE(bytes["weights"], 4 * 4);
  EXPECT_FALSE(m.context.memory().empty());
}

// --- bad weights and tables
// -----------------------------------------------------------------------------------------------

TEST(Bind, ReportsMissingExtraAndMisshapenWeightsTogether) {
  SmallModel m;
  const Weights weights =
      Weights::from_tensors({{"head.weight", floats({1, 4}, {1, 2, 3, 4})}, {"other", floats({1}, {0})}});
  EXPECT_THAT(message_of([&] { Model::bind(m.plan, weights, m.tables); }),
              AllOf(HasSubstr("3 problems"), HasSubstr("head.weight"), HasSubstr("head.bias"), HasSubstr("other")));
}

TEST(Bind, RefusesWeightsThatAreNotFinite) {
  SmallModel m;
  const Weights weights =
      Weights::from_tensors({{"head.weight", floats({1, 3}, {1, NAN, 3})}, {"head.bias", floats({1}, {0})}});
  EXPECT_THAT(message_of([&] { Model::bind(m.plan, weights, m.tables); }), HasSubstr("'head.weight', element 1"));
}

TEST(Bind, RefusesAVarianceThatHasNoRoot) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    return {{"y", b.batch_norm("n", b.dense("x", b.axis("user"), 2), {.affine = false})}};
  });
  const Weights weights =
      Weights::from_tensors({{"n.running_mean", floats({2}, {0, 0})}, {"n.running_var", floats({2}, {1, -1})}});
  EXPECT_THAT(message_of([&] { Model::bind(plan, weights, Tables::load(plan, Weights::from_tensors({}), host())); }),
              AllOf(HasSubstr("'n.running_var', element 1"), HasSubstr("got -1")));
}

TEST(Bind, KnowsTheTensorsOfAGraphThatReadsHalfABatchNorm) {
  Graph graph = build([](Builder& b) -> Outputs {
    return {{"y", b.batch_norm("n", b.dense("x", b.axis("user"), 1))}};
  });
  auto& op = std::get<ElementwiseOp>(graph.nodes.back().op);
  op.vectors.erase(op.vectors.begin());  // the scale
  op.program.num_vectors = 1;
  op.program.instructions = {{ElementwiseFunction::add, 0, 1}};
  const Plan plan = compile(graph);
  EXPECT_EQ(plan.parameters().size(), 4u);
  Model::bind(plan, test_support::random_weights(plan, 1), Tables::load(plan, Weights::from_tensors({}), host()));
}

TEST(Bind, ReportsEverythingWrongWithTables) {
  SmallModel m;
  const auto message_with = [&](const std::string& name, const StoredTensor* replacement) {
    auto tensors = SmallModel::tables_in_memory();
    if (replacement == nullptr) {
      tensors.erase(name);
    } else {
      tensors[name] = *replacement;
    }
    return message_of([&] { Tables::load(m.plan, Weights::from_tensors(tensors), host()); });
  };
  const StoredTensor two_columns = floats({3, 2}, {1, 2, 3, 4, 5, 6}), bytes = make_tensor<int8_t>({3, 1}, {1, 2, 3});
  const StoredTensor three_keys = make_tensor<int64_t>({3}, {1, 2, 3}), same_keys = make_tensor<int64_t>({2}, {5, 5});
  EXPECT_THAT(message_with("film", nullptr), AllOf(HasSubstr("'film'"), HasSubstr("got none")));
  EXPECT_THAT(message_with("film", &two_columns), AllOf(HasSubstr("[any, 1]"), HasSubstr("[3, 2]")));
  EXPECT_THAT(message_with("film", &bytes), AllOf(HasSubstr("film.scale"), HasSubstr("film.offset")));
  EXPECT_THAT(message_with("who.keys", nullptr), HasSubstr("'who.keys'"));
  EXPECT_THAT(message_with("who.keys", &three_keys), HasSubstr("I64 [2]"));
  EXPECT_THAT(message_with("who.keys", &same_keys), AllOf(HasSubstr("key 5"), HasSubstr("rows 0 and 1")));
  EXPECT_THAT(message_with("extra", &bytes), HasSubstr("one that none reads"));
  EXPECT_THAT(message_of([&] { Tables::load(m.plan, "/nonexistent", host()); }), HasSubstr("/nonexistent"));
  const test::Folder empty("no_tables");
  EXPECT_THAT(message_of([&] { Tables::load(m.plan, empty.path(), host()); }), HasSubstr("safetensors"));
}

TEST(Bind, RefusesTablesWithRowsThatAreNotFinite) {
  SmallModel m;
  const auto message_with = [&](const std::map<std::string, StoredTensor>& changed) {
    auto tensors = SmallModel::tables_in_memory();
    for (const auto& [name, tensor] : changed) tensors[name] = tensor;
    return message_of([&] { Tables::load(m.plan, Weights::from_tensors(tensors), host()); });
  };
  const StoredTensor keys = make_tensor<int64_t>({2}, {-1, 7});
  EXPECT_EQ(message_with({{"film", floats({4, 1}, {1, NAN, 3, -INFINITY})}}),
            "table 'film', row 1: expected finite numbers, got NaN or infinity, as in 2 rows");
  EXPECT_EQ(message_with({{"film", make_tensor<float16>({2, 1}, {to_float16(1), float16{0x7c01}})}}),
            "table 'film', row 1: expected finite numbers, got NaN or infinity, as in 1 row");
  EXPECT_EQ(message_with({{"film", make_tensor<bfloat16>({2, 1}, {bfloat16{0xff80}, to_bfloat16(1)})}}),
            "table 'film', row 0: expected finite numbers, got NaN or infinity, as in 1 row");
  EXPECT_EQ(message_with({{"film", make_tensor<int8_t>({2, 1}, {-128, 127})},
                          {"film.scale", floats({2}, {1, 2})},
                          {"film.offset", floats({2}, {1, NAN})}}),
            "table 'film', row 1: expected finite numbers, got NaN or infinity, as in 1 row");
  EXPECT_EQ(message_with({{"who.keys", keys}, {"who.rows", floats({2, 1}, {INFINITY, 3})}}),
            "table 'who', row 0: expected finite numbers, got NaN or infinity, as in 1 row");
  EXPECT_EQ(message_with({{"who.default", floats({1}, {NAN})}}),
            "tables: tensor 'who.default': expected finite numbers, got NaN or infinity");
  EXPECT_EQ(message_with({{"film", floats({2, 1}, {3e38f, -1e-45f})}}), "");

  const test::Folder folder("tables_without_numbers");
  const StoredTensor film = floats({1, 1}, {1}), row = floats({1, 1}, {NAN}), key = make_tensor<int64_t>({1}, {42});
  write_safetensors(folder.path() + "film.safetensors", {{"film", film.view()}});
  for (const bool is_mutable : {false, true}) {  // with keys among the rows, and apart from them
    save_hash_table(folder.path() + "who.hash_table",
                    build_hash_table({DType::f32, 1, is_mutable}, chunk_of(key.view(), row.view())));
    EXPECT_EQ(message_of([&] { Tables::load(m.plan, folder.path(), host()); }),
              "table 'who', key 42: expected finite numbers, got NaN or infinity, as in 1 row");
  }
}

TEST(Bind, FindsTablesUnderTheNamesOfTheMap) {
  SmallModel m;
  using test_support::renamed_weights;
  const auto tensors = SmallModel::tables_in_memory();
  Context context = Model::bind(m.plan, m.weights, Tables::load(m.plan, renamed_weights(tensors), host())).context();
  Batch batch = m.plan.batch();
  batch.add_request().ids(m.user_id, {-1}).ids(m.film_id, {2}).dense(m.dense, {0.0f});
  EXPECT_THAT(values(context.run(batch)["score"].of(0)), ElementsAre(6 + 20));
  EXPECT_EQ(message_of([&] {
              Tables::load(m.plan, renamed_weights(tensors, {{"film", tensors.at("film")}}), host());
            }),
            "tables: tensor 'film': expected a tensor that a table of the model reads, got one that none reads");
}

TEST(Bind, BlamesNoOtherTensorOfATableThatIsWrong) {
  SmallModel m;
  auto tensors = SmallModel::tables_in_memory();
  const auto message = [&] {
    return message_of([&] { Tables::load(m.plan, Weights::from_tensors(tensors), host()); });
  };
  const std::string expected = "expected F32, F16, BF16 or I8 [any, 1], got ";
  tensors["film.scale"] = tensors["film.offset"] = floats({3}, {1, 1, 1});
  EXPECT_THAT(message(), AllOf(HasSubstr("2 problems"), HasSubstr("'film.scale': expected a tensor that a table of the "
                                                                  "model reads, got one that none reads")));
  tensors["film"] = make_tensor<int8_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(message(), "tables: tensor 'film': " + expected + "I8 [3, 2]");
  tensors.erase("film");
  EXPECT_EQ(message(), "tables: tensor 'film': " + expected + "none");

  tensors = SmallModel::tables_in_memory();
  tensors.erase("who.rows");
  tensors["who.scale"] = tensors["who.offset"] = floats({2}, {1, 1});
  tensors["who.default"] = floats({1}, {1});
  EXPECT_EQ(message(), "tables: tensor 'who.rows': " + expected + "none");
}

/// As many files open as may be.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_ = {};
};

TEST(Bind, ReportsPathsOfTablesThatCannotBeRead) {
  SmallModel m;
  const test::Folder folder("unreadable_tables");
  const auto message = [&](const std::string& path) { return message_of([&] { Tables::load(m.plan, path, host()); }); };
  const std::string loop = folder.path() + "loop";
  std::filesystem::create_symlink("loop", loop);
  EXPECT_EQ(message(loop), loop + ": expected a readable file, got Too many levels of symbolic links");
  const NoMoreFiles limit;
  EXPECT_EQ(message(folder.path()), folder.path() + ": expected a readable folder, got Too many open files");
}

TEST(Bind, LoadsHashedTablesFromTheirImages) {
  SmallModel m;
  const test::Folder folder("images");
  auto tensors = SmallModel::tables_in_memory();
  const StoredTensor film = tensors["film"], keys = tensors["who.keys"], rows = tensors["who.rows"];
  const StoredTensor unknown = floats({1}, {5});
  write_safetensors(folder.path() + "film.safetensors", {{"film", film.view()}, {"who.default", unknown.view()}});
  const HashTable who = build_hash_table({DType::f32, 1}, chunk_of(keys.view(), rows.view()));
  save_hash_table(folder.path() + "who.hash_table", who);
  const Tables tables = Tables::load(m.plan, folder.path(), host());
  Context context = Model::bind(m.plan, m.weights, tables).context();
  Batch batch = m.plan.batch();
  const Request known = batch.add_request().ids(m.user_id, {-1}).ids(m.film_id, {0, 2}).dense(m.dense, {0.0f, 1.0f});
  const Request other = batch.add_request().ids(m.user_id, {4}).ids(m.film_id, {0}).dense(m.dense, {0.0f});
  const Scores scores = context.run(batch);
  EXPECT_THAT(values(scores["score"].of(known)), ElementsAre(2 + 20, 6 + 20 + 1));
  EXPECT_THAT(values(scores["score"].of(other)), ElementsAre(2 + 50));
  EXPECT_EQ(tables.memory(), (MemoryReport{{"table film", 3 * 4}, {"table who", who.bytes() + 4}}));
}

TEST(Bind, ReportsEverythingWrongWithImages) {
  SmallModel m;
  const auto message_with = [&](const std::string& file, const HashTable& table, bool damaged = false) {
    const test::Folder folder("wrong_images");
    const StoredTensor film = floats({3, 1}, {1, 2, 3}), unknown = floats({1}, {5});
    write_safetensors(folder.path() + "film.safetensors", {{"film", film.view()}, {"who.default", unknown.view()}});
    save_hash_table(folder.path() + file, table);
    if (damaged) std::filesystem::resize_file(folder.path() + file, 200);
    return message_of([&] { Tables::load(m.plan, folder.path(), host()); });
  };
  const int64_t key = 1;
  const float row[2] = {1, 2};
  const HashTable one = build_hash_table({DType::f32, 1}, HashTableChunk{1, &key, row});
  const HashTable wide = build_hash_table({DType::f32, 2}, HashTableChunk{1, &key, row});
  EXPECT_THAT(message_with("who.hash_table", wide),
              AllOf(HasSubstr("table 'who'"), HasSubstr("dim: expected 1, got 2"), Not(HasSubstr("'who.default'"))));
  EXPECT_THAT(message_with("film.hash_table", one),
              AllOf(HasSubstr("'who.rows'"), HasSubstr("the image of a hashed table of the model, got table 'film'")));
  EXPECT_THAT(message_with("who.hash_table", one, true), AllOf(HasSubstr("who.hash_table"), HasSubstr("got 200")));
}

TEST(Bind, RefusesTablesOfAnotherModel) {
  SmallModel m;
  const Plan other = compile([](Builder& b) -> Outputs {
    return {{"x", b.embed(b.ids("film_id", b.axis("user")), b.table("film", {.dim = 1}))}};
  });
  const Tables tables = Tables::load(other, Weights::from_tensors({{"film", floats({3, 1}, {1, 2, 3})}}), host());
  EXPECT_THAT(message_of([&] { Model::bind(m.plan, m.weights, tables); }),
              AllOf(HasSubstr("table 'who'"), HasSubstr("none in these Tables")));
}

TEST(Bind, ChecksADeclaredNumberOfRows) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    return {{"x", b.embed(b.ids("id", b.axis("user")), b.table("t", {.dim = 1, .rows = 4}))}};
  });
  EXPECT_THAT(message_of([&] {
                Tables::load(plan, Weights::from_tensors({{"t", floats({3, 1}, {1, 2, 3})}}), host());
              }),
              AllOf(HasSubstr("[4, 1]"), HasSubstr("[3, 1]")));
}

}}  // namespace warprank
