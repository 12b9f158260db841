// SPDX-License-Identifier: Apache-2.0

/// The CUDA engine: what it computes, against the interpreter with FP16 between operations, and how it runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/models/user_heavy.hpp"
#include "engine/cuda_engine_testing.hpp"
#include "golden/cases.hpp"
#include "golden/dlrm_hstu.hpp"
#include "reference/interpreter.hpp"
#include "support/counts.hpp"
#include "support/expect_within.hpp"
#include "support/hashed_values.hpp"
#include "support/kernel_testing.hpp"
#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "support/random_model.hpp"
#include "warprank/cuda.hpp"
#include "warprank/cuda_tuning.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"
#include "warprank/plan/steps.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches

using golden::Case;
using golden::GoldenFile;
using kernel_testing::build;
using kernel_testing::Build;
using kernel_testing::on_gpu;
using testing::HasSubstr;
using testing::Not;

/// FP16 between operations costs a few digits; what is wired wrongly is off by more.
constexpr double vague = 0.1;

/// A graph with weights, tables and requests, and what it should give.
struct Expectation {
  Graph graph;
  Weights weights, tables;
  std::vector<PlainRequest> requests;
  std::vector<std::map<std::string, std::vector<reference::Row>>> rows = {};  ///< by request
};

void interpret(Expectation& e, const Plan& plan, reference::Rounding rounding,
               std::map<std::string, reference::PlainFunction> functions = {}) {
  reference::Interpreter interpreter(e.graph, reference::plain_weights(plan, e.weights),
                                     reference::plain_tables(e.graph, e.tables), rounding, std::move(functions),
                                     reference::Precision::half);
  for (const PlainRequest& request : e.requests) e.rows.push_back(interpreter.run(request));
}

/// Runs all requests together and holds every score against its bound.
void expect_scores(const Expectation& e, Context& context, Batch& batch, test_support::BoundCheck& check) {
  const Scores scores = context.run(batch);
  for (size_t r = 0; r < e.requests.size(); ++r)
    for (const OutputInfo& output : e.graph.outputs) {
      SCOPED_TRACE("request " + std::to_string(r));
      check.expect_within(scores[output.name].of(static_cast<int64_t>(r)), e.rows[r].at(output.name), output.name);
    }
}

/// The model of a plan on the device, run once.
test_support::BoundCheck run_on_device(const Expectation& e, const Plan& plan, const BindOptions& options = {}) {
  const Model model = Model::bind(plan, e.weights, Tables::load(plan, e.tables, cuda()), options);
  Context context = model.context();
  Batch batch = batch_of(model, e.requests);
  test_support::BoundCheck check(vague);
  expect_scores(e, context, batch, check);
  return check;
}

BindOptions all_linears_by(LinearKernel kernel) {
  BindOptions options;
  options.linear_kernel = kernel;
  return options;
}

// --- what it computes

class CudaEngineGolden : public testing::TestWithParam<Case> {};

TEST_P(CudaEngineGolden, GivesWhatPyTorchGives) {
  const Case& c = GetParam();
  if (build != Build::plain && build != Build::gpu && c.hashed_weights) GTEST_SKIP() << "large; run by other builds";
  const GoldenFile file(c.name);
  const Graph graph = warprank::build(c.model);
  const Plan planned = plan_for(graph, {});
  Expectation e{graph,
                c.hashed_weights ? test_support::hashed_weights(planned) : file.weights("weight/", c.layout),
                c.hashed_weights ? test_support::hashed_tables(graph, 8) : file.weights("table/", Layout::pytorch),
                {}};
  for (int r = 0; r < file.num_requests(); ++r) e.requests.push_back(file.request(r));
  interpret(e, planned, reference::Rounding::independent);

  kernel_testing::for_each_target([&](const Config&) {
    for (const Plan& plan : {planned, plan_for(e.graph, Passes::none())}) {
      const test_support::BoundCheck check = run_on_device(e, plan);
      EXPECT_LE(check.num_vague(), check.num() / 2) << "of " << check.num();
    }
  });
  kernel_testing::reset(Config{});
  for (const LinearKernel kernel : {LinearKernel::tiles, LinearKernel::cublaslt}) {
    SCOPED_TRACE(name_of_enum(kernel));
    if (kernel != LinearKernel::cublaslt || has_cublaslt()) run_on_device(e, planned, all_linears_by(kernel));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaEngineGolden, testing::ValuesIn(golden::cases),
                         [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

TEST_F(CudaEngine, GivesTheScoresOfThePublicCodeOfDlrmHstu) {
  EXPECT_LE(golden::largest_difference_from_public_code(plan_for(warprank::build(golden::dlrm_hstu), {}), cuda()),
            4e-3);
}

TEST(CudaEngineRandom, GivesWhatRandomModelsAre) {
  const uint32_t num_seeds = build == Build::plain ? 40 : 3;
  int64_t num = 0, num_vague = 0;
  for (uint32_t seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    kernel_testing::reset(Config{});
    const Graph graph = warprank::build(test_support::RandomModel(seed));
    Passes passes;
    passes.place_concats = seed % 3 != 1;
    passes.late_broadcast = seed % 4 != 3;
    const Plan plan = plan_for(graph, passes);
    Expectation e{graph, test_support::random_weights(plan, seed),
                  test_support::random_tables(plan, 50, seed, {DType::f32, DType::f16, DType::i8, DType::bf16}),
                  random_requests(plan, 4, seed)};
    interpret(e, plan, reference::Rounding::worst_case);
    const test_support::BoundCheck check = run_on_device(e, plan);
    num += check.num();
    num_vague += check.num_vague();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_LE(num_vague, num / 2) << "of " << num;
}

// --- how it runs

TEST_F(CudaEngine, ARequestHasTheSameBitsWhateverItsNeighbours) {
  const RandomSetup s(11);
  const std::vector<PlainRequest> requests = random_requests(s.plan, 6, 11);
  Context context = s.model.context();
  Batch together = batch_of(s.model, requests);
  std::vector<std::vector<float>> expected;
  const Scores scores = context.run(together);
  for (int64_t r = 0; r < 6; ++r) expected.push_back(scores_of_request(s.plan, scores, r));
  for (size_t r = 0; r < 6; ++r) {
    Batch alone = batch_of(s.model, {requests[r]});
    EXPECT_TRUE(same_bits(scores_of_request(s.plan, context.run(alone), 0), expected[r])) << "request " << r;
  }
}

TEST_F(CudaEngine, WhatAnEarlierBatchLeftIsNeverRead) {
  const RandomSetup s(7);
  Context used = s.model.context(), fresh = s.model.context();
  std::vector<PlainRequest> huge = random_requests(s.plan, 8, 1);
  for (PlainRequest& request : huge)
    for (auto& [name, values] : request.dense)
      for (float& value : values) value = 3e38f;  // infinities and NaN everywhere behind
  Batch poison = batch_of(s.model, huge), small = batch_of(s.model, random_requests(s.plan, 2, 2));
  used.run(poison);
  const std::vector<float> expected = all_scores(s.plan, fresh.run(small));
  EXPECT_FALSE(expected.empty());
  EXPECT_TRUE(same_bits(all_scores(s.plan, used.run(small)), expected));
}

TEST_F(CudaEngine, RunsBatchesOfEverySize) {
  const uint32_t seed = 3;
  const RandomSetup s(seed, {{2, 16, {}}, {4, 48, {}}, {1, 200, {}}});
  Expectation e{s.plan.source(), s.weights, s.tables, {}};
  test_support::RequestShape large;
  large.rows = {{"item", 12}, {"session", 3}};
  for (const auto& requests :
       {std::vector<PlainRequest>(), random_requests(s.plan, 1, 1), random_requests(s.plan, 4, 2),
        random_requests(s.plan, 2, 3, large), random_requests(s.plan, 12, 4), random_requests(s.plan, 9, 5)}) {
    e.requests = requests;
    e.rows.clear();
    interpret(e, s.plan, reference::Rounding::worst_case);
    Context context = s.model.context();
    Batch batch = batch_of(s.model, requests);
    for (int times = 0; times < 2; ++times) {
      test_support::BoundCheck check(vague);
      expect_scores(e, context, batch, check);
    }
  }
}

TEST_F(CudaEngine, NamesTheLayerWhoseWeightsAreTooLargeForHalf) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    return {{"y", b.linear("layer", b.dense("x", b.axis("user"), 2), 2)}};
  });
  const Weights weights =
      Weights::from_tensors({{"layer.weight", make_tensor({2, 2}, std::vector<float>{1, 2, 1e6f, 4})},
                             {"layer.bias", make_tensor<float>({2}, {0, 0})}});
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  try {
    Model::bind(plan, weights, tables);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'layer': weight [1, 0]"));
  }
}

TEST_F(CudaEngine, RefusesAProgramWithTooManyValuesAliveAtOnce) {
  Graph graph = warprank::build([](Builder& b) -> Outputs {
    const auto x = b.dense("x", b.axis("user"), 2);
    return {{"y", x + x}};
  });
  auto& program = std::get<ElementwiseOp>(graph.nodes.back().op).program;
  program.num_inputs = 1;
  graph.nodes.back().inputs = {0};
  program.instructions.clear();
  constexpr int num_values = 20;  // exp(x) again and again, all kept for the sums behind
  for (int i = 0; i < num_values; ++i) program.instructions.push_back({ElementwiseFunction::exp, i});
  for (int i = 0, sum = 0; i < num_values; ++i) {
    program.instructions.push_back({ElementwiseFunction::add, sum, num_values - i});
    sum = program.first_result() + num_values + i;
  }
  const Plan plan = plan_for(graph, Passes::none());
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  try {
    Model::bind(plan, Weights::from_tensors({}), tables);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("16 values alive at once"));
  }
}

TEST_F(CudaEngine, RefusesLayersThatAreTooLargeByName) {
  const auto expect_refused = [&](const ModelFunction& model, const char* message) {
    const Plan plan = plan_for(warprank::build(model), {});
    const Model bound =
        Model::bind(plan, test_support::random_weights(plan, 1), Tables::load(plan, Weights::from_tensors({}), cuda()));
    EXPECT_THAT(test_support::message_of([&] { bound.context(); }), HasSubstr(message));
  };
  expect_refused(
      [](Builder& b) -> Outputs {
        return {{"y", b.field_attention("layer", b.dense("x", b.axis("user"), 129), 1)}};
      },
      "'layer': field_attention: fields: expected at most 128, got 129");
  expect_refused(
      [](Builder& b) -> Outputs {
        return {{"y", b.gru("layer", b.dense("x", b.axis("event", b.axis("user")), 4), 129)}};
      },
      "'layer.hidden': recurrent: hidden: expected 1 to 128 columns, got 129");
}

TEST_F(CudaEngine, RefusesTimesThatALayerReadsAsHalves) {
  for (const bool is_read : {false, true}) {
    const Plan plan = plan_for(warprank::build([&](Builder& b) -> Outputs {
                                 const auto event = b.axis("event", b.axis("user"));
                                 const auto time = b.dense("time", event, 1);
                                 const auto y =
                                     b.hstu("layer", {b.dense("x", event, 4)}, {.time_buckets = 3, .times = {time}});
                                 return {{"y", y[0]}, {"z", is_read ? b.linear("other", time, 2) : y[0]}};
                               }),
                               {});
    const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
    if (!is_read) {
      EXPECT_NO_THROW(Model::bind(plan, test_support::random_weights(plan, 1), tables));
      continue;
    }
    try {
      Model::bind(plan, test_support::random_weights(plan, 1), tables);
      FAIL();
    } catch (const invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("attention 'layer' on CUDA: expected times that are FP32"));
      EXPECT_THAT(error.what(), HasSubstr("got 'time', which is FP16 for another op"));
    }
  }
}

TEST_F(CudaEngine, RunsLongSumsAndFieldsOfAlternatingAxes) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               const auto user = b.axis("user"), item = b.axis("item", user);
                               std::vector<Tensor> fields;
                               for (int i = 0; i < 24; ++i) {
                                 const std::string name = std::to_string(i);
                                 const auto x = b.dense("x" + name, i % 2 == 0 ? user : item, 4);
                                 fields.push_back(i % 2 == 0 ? b.expand(x, item) : x);
                               }
                               Tensor sum = fields[0] * fields[1];
                               for (size_t i = 1; i < fields.size(); ++i) sum = sum + fields[i] * fields[i - 1];
                               return {{"sum", sum}, {"fm", b.fm(fields, 4)}, {"dot", b.dot(fields, 4)}};
                             }),
                             {});
  Expectation e{plan.source(), Weights::from_tensors({}), Weights::from_tensors({}), random_requests(plan, 3, 1)};
  interpret(e, plan, reference::Rounding::independent);
  const test_support::BoundCheck check = run_on_device(e, plan);
  EXPECT_EQ(check.num_vague(), 0);
}

TEST_F(CudaEngine, RunsAWideLayerOfAMix) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               const auto x = b.dense("x", b.axis("item", b.axis("user")), 6);
                               const auto mixed = b.mix(b.experts("e", x, 2, {8}), b.gate("g", x, 2));
                               return {{"y", b.mlp("tower", mixed, {300, 300, 1}, relu)}};
                             }),
                             {});
  Expectation e{plan.source(), test_support::random_weights(plan, 1), Weights::from_tensors({}),
                random_requests(plan, 3, 1)};
  interpret(e, plan, reference::Rounding::independent);
  const test_support::BoundCheck check = run_on_device(e, plan);
  EXPECT_EQ(check.num_vague(), 0);
}

TEST_F(CudaEngine, MultipliesAndAddsWithinAMix) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               const auto x0 = b.dense("x", b.axis("item", b.axis("user")), 6);
                               auto x = x0;
                               for (const std::string layer : {"0", "1"}) {
                                 const auto experts = b.experts("e" + layer, x, 3, {4, 6}, relu);
                                 x = x0 * b.mix(experts, b.gate("g" + layer, x, 3)) + x;
                               }
                               return {{"y", b.mlp("tower", x, {8, 1})}};
                             }),
                             {});
  Expectation e{plan.source(), test_support::random_weights(plan, 1), Weights::from_tensors({}),
                random_requests(plan, 3, 1)};
  interpret(e, plan, reference::Rounding::independent);
  const test_support::BoundCheck check = run_on_device(e, plan);
  EXPECT_EQ(check.num_vague(), 0);
}

TEST_F(CudaEngine, NormalisesRawInputsBeforeTheyAreRounded) {
  const Plan plan =
      plan_for(warprank::build([](Builder& b) -> Outputs {
                 const auto user = b.axis("user"), item = b.axis("item", user);
                 const auto ages = b.concat({b.expand(b.dense("seconds", user, 2), item), b.dense("cents", item, 2)});
                 return {{"y", b.linear("top", b.batch_norm("norm", ages), 3)}};
               }),
               {});
  const auto vector = [](std::vector<float> values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    return make_tensor(shape, values);
  };
  const auto matrix = make_tensor({3, 4}, std::vector<float>{1, 2, -1, 0.5f, 3, 1, 2, -2, 0.25f, -1, 1, 1});
  Expectation e{plan.source(),
                Weights::from_tensors({{"norm.running_mean", vector({1e6f, 3e5f, 1e5f, 2e4f})},
                                       {"norm.running_var", vector({1e8f, 4e6f, 1e6f, 1e4f})},
                                       {"norm.weight", vector({1, 1, 1, 1})},
                                       {"norm.bias", vector({0, 0.5f, 0, 0})},
                                       {"top.weight", matrix},
                                       {"top.bias", vector({1, 2, 3})}}),
                Weights::from_tensors({}), random_requests(plan, 2, 1)};
  for (PlainRequest& request : e.requests) {
    for (float& x : request.dense["seconds"]) x = 1e6f + 1e4f * x;
    for (float& x : request.dense["cents"]) x = 1e5f + 1e3f * x;
  }
  interpret(e, plan, reference::Rounding::worst_case);
  const Model model = Model::bind(plan, e.weights, Tables::load(plan, e.tables, cuda()));
  Context context = model.context();
  Batch batch = batch_of(model, e.requests);
  const Scores scores = context.run(batch);
  for (int64_t r = 0; r < 2; ++r) {
    const Span<const float> y = scores["y"].of(r);
    for (int64_t i = 0; i < y.size(); ++i) {
      const double exact =
          e.rows[static_cast<size_t>(r)].at("y")[static_cast<size_t>(i / 3)][static_cast<size_t>(i % 3)].value;
      EXPECT_NEAR(y[i], exact, 4e-3 * (1 + std::abs(exact))) << "request " << r << ", number " << i;
    }
  }
}

TEST_F(CudaEngine, RunsBatchesThatWereMadeForAnotherPlanOfTheModel) {
  const RandomSetup s(8, {{4, 40, {}}, {8, 200, {}}});
  Context context = s.model.context();
  const std::vector<PlainRequest> requests = random_requests(s.plan, 3, 8);
  Batch own = batch_of(s.model, requests), other(s.plan.layout()), empty(s.plan.layout());
  for (const PlainRequest& request : requests) add_to(other, request);
  const std::vector<float> expected = all_scores(s.plan, context.run(own));
  EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(other)), expected));
  EXPECT_EQ(context.run(empty)["score"].all().rows, 0);
  const MemoryReport memory = context.memory();
  for (const auto& [what, bytes] : memory) EXPECT_NE(what, "a batch above all capacities");
}

TEST_F(CudaEngine, RequestsThatAreNotOkGetNoScoresAndDisturbNobody) {
  const RandomSetup s(5);
  const std::vector<PlainRequest> requests = random_requests(s.plan, 3, 5);
  Context context = s.model.context();
  Batch good = batch_of(s.model, requests);
  const std::vector<float> expected = scores_of_request(s.plan, context.run(good), 2);
  Batch batch = s.model.batch();
  add_to(batch, requests[0]);
  const Request bad = batch.add_request();  // lacks inputs
  add_to(batch, requests[2]);
  const Scores scores = context.run(batch);
  EXPECT_FALSE(bad.status().ok());
  EXPECT_FALSE(scores.scored(1));
  EXPECT_TRUE(scores["score"].of(1).empty());
  EXPECT_TRUE(same_bits(scores_of_request(s.plan, scores, 2), expected));
}

TEST_F(CudaEngine, ContextsRunSideBySideInStreamsOfTheirOwnOrTheCallers) {
  const RandomSetup s(9);
  Context first = s.model.context(), second = s.model.context(), third = s.model.context();
  const device::OwnedStream stream;
  Batch a = batch_of(s.model, random_requests(s.plan, 3, 1)), b = batch_of(s.model, random_requests(s.plan, 5, 2));
  const std::vector<float> of_a = all_scores(s.plan, first.run(a)), of_b = all_scores(s.plan, first.run(b));
  Pending pending_a = first.submit(a), pending_b = second.submit(b),
          pending_c = third.submit(a, reinterpret_cast<StreamHandle>(stream.get()));
  EXPECT_TRUE(same_bits(all_scores(s.plan, pending_c.wait()), of_a));
  EXPECT_TRUE(same_bits(all_scores(s.plan, pending_b.wait()), of_b));
  EXPECT_TRUE(same_bits(all_scores(s.plan, pending_a.wait()), of_a));
  EXPECT_TRUE(same_bits(all_scores(s.plan, first.submit(b, nullptr).wait()), of_b)) << "in the default stream";
}

/// Two outputs that lie side by side, and one of another axis.
Outputs three_outputs(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto x = b.dense("x", item, 3), u = b.dense("u", user, 2);
  return {
      {"click", b.sigmoid(b.linear("click", x, 1))}, {"pair", b.linear("pair", x, 2)}, {"user", b.linear("u1", u, 4)}};
}

TEST_F(CudaEngine, LeavesScoresWhereKernelsOfTheStreamReadThem) {
  const Plan plan = plan_for(warprank::build(three_outputs), {});
  const Model model =
      Model::bind(plan, test_support::random_weights(plan, 1), Tables::load(plan, Weights::from_tensors({}), cuda()));
  Context context = model.context();
  const device::OwnedStream stream;
  const auto submit = [&](Batch& batch) { return context.submit(batch, reinterpret_cast<StreamHandle>(stream.get())); };
  for (const int count : {3, 0}) {
    Batch batch = batch_of(model, random_requests(plan, count, 1));
    Pending pending = submit(batch);
    std::map<std::string, std::vector<float>> on_device;
    for (const OutputInfo& output : plan.graph().outputs) {
      const DeviceScores scores = pending.device_scores(output.name);
      ASSERT_EQ(scores.requests.count, count);
      ASSERT_EQ(scores.requests.rows(), scores.values.rows);
      std::vector<float>& rows = on_device[output.name];
      rows.resize(static_cast<size_t>(scores.values.rows * scores.values.cols));
      for (int64_t r = 0; r < scores.values.rows; ++r)
        device::copy_to_host(rows.data() + r * scores.values.cols, scores.values.row(r), scores.values.cols * 4,
                             stream.get());
    }
    device::synchronize(stream.get());
    const Scores scores = pending.wait();
    for (const auto& [name, rows] : on_device) {
      const Matrix<const float> expected = scores[name].all();
      ASSERT_EQ(rows.size(), static_cast<size_t>(expected.rows * expected.cols)) << name;
      EXPECT_TRUE(rows.empty() || std::memcmp(rows.data(), expected.data, rows.size() * 4) == 0) << name;
    }
    EXPECT_THROW(pending.device_scores("click"), usage_error);
  }

  Batch large = batch_of(model, random_requests(plan, 20, 1));
  Pending pending = submit(large);
  EXPECT_THAT(test_support::message_of([&] { pending.device_scores("click"); }),
              HasSubstr("device scores: expected a batch within a capacity, got one that runs in 3 parts"));
  EXPECT_THAT(
      test_support::message_of([&] { pending.device_scores("clicks"); }),
      HasSubstr("output 'clicks': expected an output of the model, got an unknown name; did you mean 'click'?"));
}

TEST_F(CudaEngine, ShowsIntermediatesAndComparesPlans) {
  const RandomSetup s(2), as_written(2, {{8, 64, {}}}, Passes::none());
  Batch batch = batch_of(s.model, random_requests(s.plan, 3, 2));
  const Comparison comparison = compare(s.model, as_written.model, batch, 0.05);
  EXPECT_GT(comparison.nodes.size(), 10u);
  EXPECT_EQ(comparison.first(), nullptr) << comparison.to_string();
  Context context = s.model.context({true});
  int64_t on_chip = 0;
  for (const Node& node : s.plan.graph().nodes) {
    if (context.keeps(node.name)) continue;
    ++on_chip;
    try {
      context.tap(node.name);
      FAIL() << node.name;
    } catch (const invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("fuse_tails"));
    }
  }
  EXPECT_GT(on_chip, 0);
}

TEST_F(CudaEngine, CountsWhatLookUpsMeet) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto item = b.axis("item", b.axis("user"));
    return {{"y", b.embed(b.ids("film", item), b.table("films", {.dim = 2}))}};
  });
  const auto floats = [](Shape shape, std::vector<float> values) { return make_tensor(std::move(shape), values); };
  const Weights tables = Weights::from_tensors({{"films", floats({2, 2}, {1, 2, 3, 4})}});
  Context context = Model::bind(plan, Weights::from_tensors({}), Tables::load(plan, tables, cuda())).context();
  Batch batch = plan.batch();
  batch.add_request().ids(plan.ids("film"), {0, 1, 7, -1, 9});
  const Scores scores = context.run(batch);
  const Span<const float> y = scores["y"].of(0);
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), std::vector<float>({1, 2, 3, 4, 0, 0, 0, 0, 0, 0}));
  const std::vector<FeatureCounters> counters = context.counters();
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0].counters.ids, 5);
  EXPECT_EQ(counters[0].counters.out_of_range, 2);
  EXPECT_EQ(counters[0].counters.padding, 1);
}

/// y = a x + the row of u that serves it, a column each.
WARPRANK_KERNEL(64, 1)
scale_and_add_kernel(float a, const float* x, int64_t x_stride, const float* u, int64_t u_stride,
                     const int64_t* offsets, const int64_t* num_segments, float* y, const int64_t* num_rows) {
  const int64_t rows = device::load(num_rows), segments = device::load(num_segments);
  for (int64_t r = device::thread_rank(); r < rows; r += 64) {
    int64_t segment = 0;
    while (segment + 1 < segments && device::load(&offsets[segment + 1]) <= r) ++segment;
    device::store(&y[r], a * device::load(&x[r * x_stride]) + device::load(&u[segment * u_stride]));
  }
}

TEST_F(CudaEngine, RunsCustomKernelsAndNamesMissingOnes) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               const auto user = b.axis("user"), item = b.axis("item", user);
                               const auto x = b.dense("x", item, 1), u = b.dense("u", user, 1);
                               return {{"y", b.custom("mine", {x, u}, item, 1, "settings")}};
                             }),
                             {});
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  try {
    Model::bind(plan, Weights::from_tensors({}), tables);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("custom 'mine': expected a function of that name in BindOptions::cuda_custom"));
  }
  const auto model_of = [&](float a) {
    BindOptions options;
    options.cuda_custom["mine"] = [a](const CudaCustomCall& call) {
      EXPECT_EQ(call.settings, "settings");
      const AxisInput<void>&x = call.inputs[0], &u = call.inputs[1];
      for (const FloatMatrix<const void>& m : {x.values, u.values}) ASSERT_EQ(m.type, DType::f32);
      const int64_t strides[] = {x.values.stride, u.values.stride, call.output.stride};
      EXPECT_EQ(strides[2], 1);
      device::launch({1, 64, 0, reinterpret_cast<device::Stream>(call.stream)}, scale_and_add_kernel, a,
                     static_cast<const float*>(x.values.data), strides[0], static_cast<const float*>(u.values.data),
                     strides[1], u.offsets, u.num_segments, static_cast<float*>(call.output.data), call.num_rows);
    };
    return Model::bind(plan, Weights::from_tensors({}), tables, options);
  };
  Context context = model_of(2).context();
  Batch batch = plan.batch();
  batch.add_request().dense(plan.dense("x"), {1.0f, 2.0f, 3.0f}).dense(plan.dense("u"), {10.0f});
  batch.add_request().dense(plan.dense("x"), {4.0f}).dense(plan.dense("u"), {20.0f});
  EXPECT_EQ(all_scores(plan, context.run(batch)), std::vector<float>({12, 14, 16, 28}));
  context.rebind(model_of(3));
  EXPECT_EQ(all_scores(plan, context.run(batch)), std::vector<float>({13, 16, 19, 32}));
}

// --- which kernels compute linears

TEST_F(CudaEngine, GivesWhatRandomModelsAreWithEveryKernelOfLinears) {
  for (const LinearKernel kernel : {LinearKernel::tiles, LinearKernel::cublaslt}) {
    if (kernel == LinearKernel::cublaslt && !has_cublaslt()) continue;
    for (uint32_t seed = 100; seed < (build == Build::plain ? 108u : 102u); ++seed) {
      SCOPED_TRACE(std::string(name_of_enum(kernel)) + ", seed " + std::to_string(seed));
      const Plan plan = plan_for(warprank::build(test_support::RandomModel(seed)), {});
      Expectation e{plan.source(), test_support::random_weights(plan, seed),
                    test_support::random_tables(plan, 50, seed), random_requests(plan, 4, seed)};
      interpret(e, plan, reference::Rounding::worst_case);
      run_on_device(e, plan, all_linears_by(kernel));
    }
  }
}

/// cuBLASLt computes all rows of a capacity: those behind a batch's are what an earlier one left.
TEST_F(CudaEngine, RowsThatCublasltComputesBeyondTheBatchAreNeverRead) {
  if (!has_cublaslt()) GTEST_SKIP() << "cuBLASLt: " << describe_cublaslt();
  const RandomSetup s(7);
  const Model model =
      Model::bind(s.plan, s.weights, Tables::load(s.plan, s.tables, cuda()), all_linears_by(LinearKernel::cublaslt));
  Context used = model.context(), fresh = model.context();
  std::vector<PlainRequest> huge = random_requests(s.plan, 8, 1);
  for (PlainRequest& request : huge)
    for (auto& [name, values] : request.dense)
      for (float& value : values) value = 3e38f;
  Batch poison = batch_of(model, huge), small = batch_of(model, random_requests(s.plan, 2, 2));
  used.run(poison);
  const std::vector<float> expected = all_scores(s.plan, fresh.run(small));
  EXPECT_FALSE(expected.empty());
  EXPECT_TRUE(same_bits(all_scores(s.plan, used.run(small)), expected));
}

/// Two layers side by side, a chain of three behind one of them, and two layers whose ends cuBLASLt does not compute.
Outputs model_to_tune(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto x = b.dense("x", item, 24), u = b.dense("u", user, 8);
  const auto wide = b.linear("wide", x, 40, {.activation = relu}), narrow = b.linear("narrow", x, 20);
  const auto tower = b.mlp("tower", b.concat({wide, b.expand(u, item)}), {16, 8, 1}, relu);
  const auto dice_layer = b.linear("dice_layer", narrow, 12, {.activation = dice});
  return {{"score", b.sigmoid(tower)}, {"dice", dice_layer}, {"wide_out", b.linear("last", wide, 6)}};
}

/// cuBLASLt is said to win where there are 40 or 16 outputs, or 12; elsewhere what is fused loses.
double claimed_seconds(const LinearChoice& choice) {
  double seconds = 0;
  for (size_t i = 0; i < choice.layers.size(); ++i) {
    const int64_t out = choice.layers[i].out;
    const bool suits_cublaslt = out == 40 || out == 16 || out == 12;
    const LinearKernel kernel = choice.kernels[i];
    seconds += kernel == LinearKernel::tiles ? 10 : kernel == LinearKernel::fused ? 12 : suits_cublaslt ? 5 : 20;
  }
  return seconds;
}

LinearKernel kernel_for(const Tuning& tuning, int64_t rows, int64_t out) {
  for (const LinearChoice& choice : tuning.choices)
    for (size_t i = 0; i < choice.layers.size(); ++i)
      if (choice.layers[i].rows == rows && choice.layers[i].out == out) return choice.kernels[i];
  ADD_FAILURE() << "no layer of " << rows << " rows and " << out << " outputs in\n" << tuning.to_string();
  return LinearKernel::tiles;
}

TEST_F(CudaEngine, TakesTheFastestKernelOfEachLayerAsMeasured) {
  if (!has_cublaslt()) GTEST_SKIP() << "cuBLASLt: " << describe_cublaslt();
  const Plan plan = plan_for(warprank::build(model_to_tune), {}, {{4, 32, {}}, {4, 64, {}}});
  Expectation e{plan.source(), test_support::random_weights(plan, 3), Weights::from_tensors({}),
                random_requests(plan, 4, 3)};
  const Tables tables = Tables::load(plan, e.tables, cuda());
  TuneOptions options;
  options.turns = options.runs = 2;
  options.seconds = claimed_seconds;
  const Tuning tuning = tune(plan, e.weights, tables, {}, options);
  for (const int64_t rows : {32, 64}) {
    SCOPED_TRACE(rows);
    for (const int64_t out : {40, 16, 12}) EXPECT_EQ(kernel_for(tuning, rows, out), LinearKernel::cublaslt) << out;
    for (const int64_t out : {20, 8, 1, 6}) EXPECT_EQ(kernel_for(tuning, rows, out), LinearKernel::tiles) << out;
  }
  for (const LinearChoice& choice : tuning.choices) {
    EXPECT_EQ(choice.seconds, claimed_seconds(choice));
    EXPECT_GE(choice.seconds_by_rule, choice.seconds);
    EXPECT_GE(choice.launches, 1);
  }
  const auto num_faster = [](const Tuning& of) {
    return std::count_if(of.choices.begin(), of.choices.end(),
                         [](const LinearChoice& choice) { return choice.seconds < choice.seconds_by_rule; });
  };
  EXPECT_GT(num_faster(tuning), 0);
  options.min_gain = 0.999;
  EXPECT_EQ(num_faster(tune(plan, e.weights, tables, {}, options)), 0) << "of those that gain less";

  BindOptions bind_options;
  bind_options.tuning = std::make_shared<const Tuning>(tuning_from_json(to_json(tuning)));
  EXPECT_TRUE(*bind_options.tuning == tuning);
  interpret(e, plan, reference::Rounding::worst_case);
  const test_support::BoundCheck check = run_on_device(e, plan, bind_options);
  EXPECT_EQ(check.num_vague(), 0);
#if !defined(__CUDACC__)
  const auto launches_with = [&](const BindOptions& with) {
    const Model model = Model::bind(plan, e.weights, tables, with);
    Context context = model.context();
    Batch batch = batch_of(model, e.requests);
    batch.close();
    EXPECT_LE(batch.num_rows(plan.axis("item")), 32);
    simt::clear_counters();
    context.run(batch);
    return simt::counters().launches;
  };
  int64_t launches = 0, num_steps = 0;
  for (const LinearChoice& choice : tuning.choices) {
    const auto is_of_64 = [](const LinearShape& layer) { return layer.rows == 64; };
    if (std::none_of(choice.layers.begin(), choice.layers.end(), is_of_64)) launches += choice.launches, ++num_steps;
  }
  const int64_t by_rule = launches_with({});
  EXPECT_EQ(launches_with(bind_options), by_rule - num_steps + launches);
  EXPECT_GT(launches, num_steps);
#endif

  Tuning foreign = tuning;
  foreign.on.driver += 10;
  bind_options.tuning = std::make_shared<const Tuning>(foreign);
  try {
    Model::bind(plan, e.weights, tables, bind_options);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("tuning: driver: expected " + std::to_string(tuning.on.driver) + ", got"));
  }
  bind_options.foreign_tuning = ForeignTuning::ignore;
#if !defined(__CUDACC__)
  EXPECT_EQ(launches_with(bind_options), by_rule);
#endif
}

TEST_F(CudaEngine, TunesByTheClockAndRefusesWhatMeasuresNothing) {
  const Plan plan = plan_for(warprank::build(model_to_tune), {}, {{1, 4, {}}, {0, 0, {}}});
  const Weights weights = test_support::random_weights(plan, 3);
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  TuneOptions options;
  options.turns = options.runs = 1;
  const Tuning tuning = tune(plan, weights, tables, {}, options);
  EXPECT_FALSE(tuning.choices.empty());
  for (const LinearChoice& choice : tuning.choices) {
    EXPECT_GT(choice.layers[0].rows, 0);
    EXPECT_GT(choice.seconds, 0);
  }
  options.turns = options.runs = 0;
  try {
    tune(plan, weights, tables, {}, options);
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_EQ(error.problems().size(), 2u);
  }
}

TEST_F(CudaEngine, TakesAnotherModelWhoseWeightsCublasltReads) {
  if (!has_cublaslt()) GTEST_SKIP() << "cuBLASLt: " << describe_cublaslt();
  const RandomSetup s(7);
  const Tables tables = Tables::load(s.plan, s.tables, cuda());
  const BindOptions cublaslt = all_linears_by(LinearKernel::cublaslt);
  const Weights other_weights = test_support::random_weights(s.plan, 8);
  const Model first = Model::bind(s.plan, s.weights, tables, cublaslt),
              next = Model::bind(s.plan, other_weights, tables, cublaslt);
  Context context = first.context(), fresh = next.context();
  Batch batch = batch_of(next, random_requests(s.plan, 3, 1));
  const std::vector<float> expected = all_scores(s.plan, fresh.run(batch));
  EXPECT_FALSE(same_bits(all_scores(s.plan, context.run(batch)), expected));
  context.rebind(next);
  EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(batch)), expected));
  try {
    context.rebind(Model::bind(s.plan, other_weights, tables, all_linears_by(LinearKernel::tiles)));
    FAIL();
  } catch (const invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("Context::rebind: expected a model, bound with the same tuning, "
                                        "linear_kernel and cuda_int8, whose "));
  }
  EXPECT_TRUE(same_bits(all_scores(s.plan, context.run(batch)), expected));
}

#if !defined(__CUDACC__)
// What only the executor can tell.

/// While it is there, cuBLASLt has no algorithm for layers of so many outputs.
struct NoAlgorithm {
  explicit NoAlgorithm(int64_t out) { detail::gemm::stand_in_has_none_for = out; }
  ~NoAlgorithm() { detail::gemm::stand_in_has_none_for = -1; }
};

TEST_F(CudaEngine, TakesTilesWhereCublasltHasNoAlgorithm) {
  const NoAlgorithm none(40);
  const Plan plan = plan_for(warprank::build(model_to_tune), {}, {{4, 32, {}}});
  Expectation e{plan.source(), test_support::random_weights(plan, 3), Weights::from_tensors({}),
                random_requests(plan, 4, 3)};
  interpret(e, plan, reference::Rounding::worst_case);
  const test_support::BoundCheck check = run_on_device(e, plan, all_linears_by(LinearKernel::cublaslt));
  EXPECT_EQ(check.num_vague(), 0);
}

TEST_F(CudaEngine, TunesWhereCublasltHasNoAlgorithmForWhatTheRuleLeavesToIt) {
  if (build != Build::plain) GTEST_SKIP() << "large; run by another build";
  constexpr int64_t rows = 240, width = 248;
  const NoAlgorithm none(width);
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               return {{"y", b.linear("large", b.dense("x", b.axis("user"), width), width)}};
                             }),
                             {}, {{rows, rows, {}}});
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  TuneOptions options;
  options.turns = options.runs = 1;
  options.seconds = [](const LinearChoice&) { return 1.0; };
  const Tuning tuning = tune(plan, test_support::random_weights(plan, 1), tables, {}, options);
  ASSERT_EQ(tuning.choices.size(), 1u);
  EXPECT_GE(tuning.choices[0].layers[0].intensity(), min_cublaslt_intensity(tuning.on.target));
  EXPECT_EQ(tuning.choices[0].kernels, std::vector<LinearKernel>{LinearKernel::tiles});
  EXPECT_EQ(tuning.choices[0].seconds, tuning.choices[0].seconds_by_rule);
  EXPECT_TRUE(tuning_from_json(to_json(tuning)) == tuning);
}

TEST_F(CudaEngine, ABatchIsOneGraphThatFetchesItOrHasACopyBeforeIt) {
  const RandomSetup s(4, {{8, 1000, {}}, {2, 100, {}}});
  ContextOptions fetching, copying;
  fetching.fetch_bytes = 1 << 20;
  copying.fetch_bytes = 0;
  Context fetches = s.model.context(fetching), copies = s.model.context(copying);
  EXPECT_THAT(fetches.describe(), HasSubstr("  fetch: "));
  EXPECT_THAT(copies.describe(), Not(HasSubstr("  fetch: ")));
  for (const int count : {5, 1, 0}) {
    SCOPED_TRACE(std::to_string(count) + " requests");
    const auto requests = random_requests(s.plan, count, 6);
    Batch pinned = batch_of(s.model, requests), pageable(s.plan.layout(), {}, s.plan.most_requests());
    for (const PlainRequest& request : requests) add_to(pageable, request);
    std::vector<float> expected;
    const auto expect_calls = [&](Context& context, Batch& batch, int64_t num_copies) {
      batch.close();
      expected = all_scores(s.plan, context.run(batch));
      simt::clear_calls();
      Pending pending = context.submit(batch);
      const simt::Calls calls = simt::calls();
      EXPECT_TRUE(same_bits(all_scores(s.plan, pending.wait()), expected));
      EXPECT_EQ(calls.copies_to_device, (simt::Calls::Transfers{num_copies, num_copies * batch.bytes().size()}));
      EXPECT_EQ(calls.graph_launches, 1);
      EXPECT_EQ(calls.launches, 0);
      EXPECT_EQ(calls.copies_to_host.count, 0) << "scores are stored by the graph's last kernel";
      EXPECT_EQ(calls.unpinned_copies, &batch == &pageable ? 1 : 0);
      EXPECT_EQ(calls.allocations.count + calls.fills.count + calls.copies_on_device.count, 0);
      EXPECT_EQ(calls.synchronizations + calls.objects_made, 0);
      return expected;
    };
    const std::vector<float> copied = expect_calls(copies, pinned, 1);
    EXPECT_EQ(copied.empty(), count == 0);
    EXPECT_TRUE(same_bits(expect_calls(fetches, pinned, 0), copied));
    EXPECT_TRUE(same_bits(expect_calls(fetches, pageable, 1), copied)) << "a kernel cannot read it";
    EXPECT_TRUE(same_bits(expect_calls(fetches, pinned, 0), copied)) << "after one that was copied";
  }
}

TEST(CudaEngineCounts, KeepTheLaunchBudgetsOfTheReferenceModels) {
  if (is_sanitized) GTEST_SKIP() << "takes minutes; the plain build counts the same";
  kernel_testing::reset(Config{});
  kernel_testing::CountTable table({"model", "kernels", "graphs", "copies in", "bytes in", "copies out", "bytes out",
                                    "arena bytes", "other bytes of a context"});
  struct {
    const char* name;
    Outputs (*model)(Builder&);
    int64_t budget;
  } const models[] = {{"wide_deep", models::wide_deep, 3},
                      {"dlrm", models::dlrm, 4},
                      {"dcn_v2", models::dcn_v2, 10},
                      {"din_mmoe", movielens::din_mmoe, 8},
                      {"meituan_like", models::meituan_like, 8},
                      {"user_heavy", models::user_heavy, 3},
                      {"user_heavy in FP32", models::user_heavy, 3}};
  for (const auto& m : models) {
    SCOPED_TRACE(m.name);
    Graph graph = warprank::build(m.model);
    if (std::string(m.name) == "user_heavy in FP32")
      for (DenseInfo& info : graph.dense) info.wire = DenseWire::f32;
    const Plan plan = plan_for(graph, {}, {{1, 100, {}}});
    const Model model = Model::bind(plan, test_support::hashed_weights(plan),
                                    Tables::load(plan, test_support::hashed_tables(plan.source(), 8), cuda()));
    ContextOptions copying;
    copying.fetch_bytes = 0;
    Context context = model.context(copying);
    test_support::RequestShape shape;
    shape.rows = {{"item", 1}, {"sample", 1}};
    Batch batch = batch_of(model, random_requests(plan, 1, 1, shape));
    simt::clear_counters();
    simt::clear_calls();
    context.run(batch);
    const simt::Calls calls = simt::calls();
    const auto launches = simt::counters().launches;
    EXPECT_LE(launches, m.budget + 1) << "and what publishes the scores";
    EXPECT_EQ(launches, plan::launches_of(plan.graph(), plan.storage().steps) + 1) << "as planned";
    const std::string described = context.describe();
    EXPECT_EQ(std::count(described.begin(), described.end(), '\n'), 5 + launches) << described;
    EXPECT_NE(described.find("\ncuBLASLt: 1 (a stand-in)\nlinear layers: by rule\n"), std::string::npos) << described;
    EXPECT_NE(described.find("  embedding_bag: "), std::string::npos) << described;
    EXPECT_EQ(simt::counters().launches, launches) << "nothing is launched to describe it";
    int64_t arena = 0, others = 0;
    for (const auto& [what, bytes] : context.memory()) (what == "arena" ? arena : others) += bytes;
    table.add(m.name, simt::counters().launches, calls.graph_launches, calls.copies_to_device.count,
              calls.copies_to_device.bytes, calls.copies_to_host.count, calls.copies_to_host.bytes, arena, others);
  }
}

#endif

}}  // namespace warprank
