// SPDX-License-Identifier: Apache-2.0

/// BindOptions::host_precision: what is taken and said, what it does to scores, what it refuses.

#include "warprank/engine/host_precision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "reference/interpreter.hpp"
#include "support/allocation_counter.hpp"
#include "support/expect_within.hpp"
#include "support/host_op_testing.hpp"
#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "support/random_fold.hpp"
#include "support/random_model.hpp"
#include "warprank/host.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/products.hpp"

namespace warprank { namespace {

/// y = relu(W x), of 3 inputs and 9 outputs.
struct NineOutputs {
  static Outputs describe(Builder& b) {
    return {{"y", b.linear("wide", b.dense("x", b.axis("user"), 3), 9, {.bias = false})}};
  }
  Model bind(HostPrecision precision, float weight = 1.0f / 3) const {
    BindOptions options;
    options.host_precision = precision;
    const Weights weights =
        Weights::from_tensors({{"wide.weight", make_tensor({9, 3}, std::vector<float>(27, weight))}});
    return warprank::Model::bind(plan, weights, Tables::load(plan, Weights::from_tensors({}), host()), options);
  }
  /// Of the first output, of inputs of 1, in a context.
  static float score(const Model& model) {
    Context context = model.context();
    Batch batch = model.batch();
    const Request request = batch.add_request().dense(model.plan().dense("x"), {1, 1, 1});
    return context.run(batch)["y"].of(request)[0];
  }

  Plan plan = compile(describe);
};

TEST(HostPrecision, IsSaidByTheModelWithTheReason) {
  const NineOutputs m;
  test_support::for_each_target([&] {
    const std::string set = std::string("instruction set ") + host_ops::linear_target().name + "; precision ";
    const bool has = host_ops::has_bf16_products();
    const std::string bf16 = host_ops::has_amx_products() ? "bf16 by AMX" : "bf16";
    EXPECT_EQ(m.bind(HostPrecision::fp32).describe(), set + "fp32, as asked for\n");
    EXPECT_EQ(m.bind(HostPrecision::bf16).describe(),
              set + (has ? bf16 + ", as asked for\n" : "fp32 in the place of bf16: there is no AVX512_BF16\n"));
    EXPECT_EQ(m.bind(HostPrecision::automatic).describe(),
              set + (has ? bf16 + ", automatically: there is AVX512_BF16\n"
                         : "fp32, automatically: there is no AVX512_BF16\n"));
    EXPECT_EQ(m.bind(HostPrecision::int8_weights).describe(),
              set + (has ? bf16 + ", weights int8, as asked for: there is AVX512_BF16\n"
                         : "fp32, weights int8, as asked for: there is no AVX512_BF16\n"));
  });
}

TEST(HostPrecision, IsFp32UnlessAnotherIsAskedFor) {
  EXPECT_EQ(BindOptions().host_precision, HostPrecision::fp32);
  const NineOutputs m;
  EXPECT_EQ(NineOutputs::score(m.bind(HostPrecision::fp32)), 3 * (1.0f / 3));
}

TEST(HostPrecision, RoundsWeightsWhereTheProcessorGainsFromIt) {
  const NineOutputs m;
  const float rounded = to_float(to_bfloat16(1.0f / 3));
  test_support::for_each_target([&] {
    for (const HostPrecision precision : {HostPrecision::bf16, HostPrecision::automatic})
      EXPECT_EQ(NineOutputs::score(m.bind(precision)), host_ops::has_bf16_products() ? 3 * rounded : 1.0f);
  });
}

TEST(HostPrecision, NamesWeightsThatBf16CannotHold) {
  const NineOutputs m;
  EXPECT_EQ(test_support::message_of([&] { m.bind(HostPrecision::fp32, 3.4e38f); }), "");
  if (!host_ops::has_bf16_products()) GTEST_SKIP() << "this processor has no products of BF16";
  EXPECT_THAT(test_support::message_of([&] { m.bind(HostPrecision::bf16, 3.4e38f); }),
              testing::StartsWith("weight 'wide.weight', element 0: expected a number whose magnitude is at most "
                                  "3.3895e+38, the largest of BF16, got 3399999"));
  EXPECT_EQ(test_support::message_of([&] { m.bind(HostPrecision::bf16, max_bfloat16); }), "");
}

TEST(HostPrecision, KeepsWeightsInInt8) {
  const NineOutputs m;
  const float scale = 1.0f / 3 / 127, rounded = 127 * scale;
  test_support::for_each_target([&] {
    const float expected = host_ops::has_bf16_products() ? to_float(to_bfloat16(rounded)) : rounded;
    EXPECT_EQ(NineOutputs::score(m.bind(HostPrecision::int8_weights)), 3 * expected);
  });
  EXPECT_EQ(test_support::message_of([&] { m.bind(HostPrecision::int8_weights, INFINITY); }),
            "weight 'wide.weight', element 0: expected a finite number, got inf");
}

TEST(HostPrecision, IsComparedWithFp32NodeByNode) {
  const Plan plan = compile(NineOutputs::describe);
  const Weights weights = Weights::from_tensors({{"wide.weight", make_tensor({9, 3}, std::vector<float>(27, 1.01f))}});
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  BindOptions options;
  options.host_precision = HostPrecision::automatic;
  const Model model = Model::bind(plan, weights, tables, options);
  Batch batch = model.batch();
  batch.add_request().dense(plan.dense("x"), {1, 1, 1});
  const Comparison comparison = compare(Model::bind(plan, weights, tables), model, batch);
  const float rounded = to_float(to_bfloat16(1.01f));
  ASSERT_EQ(comparison.first() != nullptr, host_ops::has_bf16_products());
  if (comparison.first() == nullptr) return;
  EXPECT_EQ(comparison.first()->node, "wide");
  EXPECT_NEAR(comparison.first()->largest, 3 * std::abs(1.01 - rounded), 1e-6);
}

TEST(HostPrecision, HasNames) {
  for (const HostPrecision precision :
       {HostPrecision::fp32, HostPrecision::bf16, HostPrecision::int8_weights, HostPrecision::automatic})
    EXPECT_EQ(host_precision_of(name_of_enum(precision), "--precision"), precision);
  EXPECT_EQ(test_support::message_of([] { host_precision_of("fp16", "--precision"); }),
            "--precision: expected fp32, bf16, int8_weights or automatic, got 'fp16'");
}

/// Whatever is planned, scores are off by what rounding weights and their factors to BF16, by 2^-8 of each, can do.
TEST(HostPrecision, GivesWhatRandomModelsAreWithinTheBoundOfBf16) {
  constexpr int num_models = 200, num_requests = 3;
  test_support::BoundCheck check(0.3);
  int changed = 0;
  for (uint32_t seed = 0; seed < uint32_t{num_models}; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Graph graph = build(test_support::RandomModel(seed, true));
    const Plan plan = compile(graph);
    const Weights weights = test_support::random_weights(plan, seed);
    const Weights table_weights = test_support::random_tables(plan, 50, seed);
    const Tables tables = Tables::load(plan, table_weights, host());
    reference::Interpreter interpreter(graph, reference::plain_weights(plan, weights),
                                       reference::plain_tables(graph, table_weights), reference::Rounding::worst_case,
                                       {{"fold", test_support::fold}}, reference::Precision::bf16_products);
    std::vector<std::map<std::string, std::vector<reference::Row>>> expected;
    Batch batch = plan.batch();
    for (int r = 0; r < num_requests; ++r) {
      const auto request = test_support::random_request(plan.layout(), {.table_rows = 50}, random);
      expected.push_back(interpreter.run(request));
      ASSERT_TRUE(add_to(batch, request).status().ok());
    }
    BindOptions options;
    options.custom = {{"fold", test_support::fold_on_host}};
    Context in_fp32 = Model::bind(plan, weights, tables, options).context();
    options.host_precision = HostPrecision::bf16;
    Context in_bf16 = Model::bind(plan, weights, tables, options).context();
    const Scores exacter = in_fp32.run(batch), scores = in_bf16.run(batch);
    bool has_changed = false;
    for (const OutputInfo& output : graph.outputs)
      for (int r = 0; r < num_requests; ++r) {
        const Span<const float> rough = scores[output.name].of(r), exact = exacter[output.name].of(r);
        check.expect_within(rough, expected[static_cast<size_t>(r)][output.name], output.name);
        has_changed |= !std::equal(rough.begin(), rough.end(), exact.begin());
      }
    changed += has_changed;
    ASSERT_FALSE(HasFailure()) << plan.describe();
  }
  EXPECT_LT(check.num_vague(), check.num() / 2) << "of " << check.num();
  // Of many all layers have up to 8 outputs.
  EXPECT_EQ(changed > num_models / 4, host_ops::has_bf16_products()) << changed;
}

TEST(HostPrecision, NeedsNoMemoryWhileItRuns) {
  const NineOutputs m;
  const Model model = m.bind(HostPrecision::bf16);
  Context context = model.context();
  Batch batch = model.batch();
  for (int r = 0; r < 200; ++r) batch.add_request().dense(m.plan.dense("x"), {1, 2, 3});
  context.run(batch);
  const int64_t before = test_support::num_allocations;
  context.run(batch);
  EXPECT_EQ(test_support::num_allocations, before);
}

}}  // namespace warprank
