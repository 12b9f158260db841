// SPDX-License-Identifier: Apache-2.0

/// Whatever passes run, every score is what the interpreter makes of the model as its author wrote it, within the bound
/// that it has for the score.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "reference/interpreter.hpp"
#include "support/expect_within.hpp"
#include "support/random_data.hpp"
#include "support/random_fold.hpp"
#include "support/random_model.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using test_support::RandomModel;

uint32_t num_seeds() {
  const char* seeds = std::getenv("WARPRANK_TEST_SEEDS");
  return seeds != nullptr ? static_cast<uint32_t>(std::atoi(seeds)) : 500;  // check_all.sh tries 20,000
}

Passes any_passes(std::mt19937& random) {
  const auto flip = [&] { return random() % 2 == 0; };
  return {flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip()};
}

/// How often a pass found something that the scores of this test then covered.
struct Findings {
  static bool is_elementwise(const Plan& plan, int n) {
    return std::holds_alternative<ElementwiseOp>(plan.graph().node(n).op);
  }
  int sums = 0, residuals_first = 0, row_biases_of_heads = 0, chains = 0, mixed_chains = 0, shared_launches = 0;
  int products_of_heads = 0, sums_of_histories = 0;

  void count(const Plan& plan) {
    for (const Node& node : plan.graph().nodes) {
      sums_of_histories += std::holds_alternative<DinAttentionOp>(node.op) && node.inputs.size() == 3;
      const auto* linear = std::get_if<LinearOp>(&node.op);
      if (linear == nullptr) continue;
      sums += linear->ones;
      residuals_first += linear->residual_first;
      row_biases_of_heads += linear->row_bias && linear->residual && !linear->is_term;
    }
    for (const std::vector<int>& step : plan.storage().steps) {
      const auto chain = plan::chains_of(plan.graph(), step)[0];
      chains += chain.size() > 1;
      mixed_chains += chain.size() > 1 && std::holds_alternative<MixOp>(plan.graph().node(chain[0]).op);
      shared_launches += step.size() > chain.size();
      products_of_heads += chain.size() > 1 && is_elementwise(plan, step.back());
    }
  }
};

TEST(Passes, AnySubsetGivesTheExactScoresWithinTheirBoundsOnRandomModelsAndRaggedBatches) {
  constexpr int num_requests = 4, num_variants = 5;
  constexpr int64_t table_rows = 50;
  test_support::BoundCheck check;
  Findings findings;
  for (uint32_t seed = 0; seed < num_seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Graph graph = build(RandomModel(seed, true));
    CompileOptions options;
    options.passes = Passes::none();
    const Plan unplanned = compile(graph, options);
    const std::vector<DType> types[] = {{DType::f32}, {DType::f16, DType::i8}, {DType::i8, DType::bf16}};
    const Weights weights = test_support::random_weights(unplanned, seed);
    const Weights table_weights = test_support::random_tables(unplanned, table_rows, seed, types[seed % 3]);
    const Tables tables = Tables::load(unplanned, table_weights, host());

    reference::Interpreter interpreter(graph, reference::plain_weights(unplanned, weights),
                                       reference::plain_tables(graph, table_weights), reference::Rounding::worst_case,
                                       {{"fold", test_support::fold}});
    std::vector<test_support::PlainRequest> requests;
    std::vector<std::map<std::string, std::vector<reference::Row>>> expected;
    for (int r = 0; r < num_requests; ++r) {
      requests.push_back(test_support::random_request(unplanned.layout(), {.table_rows = table_rows}, random));
      expected.push_back(interpreter.run(requests.back()));
    }
    for (int variant = 0; variant < num_variants; ++variant) {
      options.passes = variant == 0 ? Passes::none() : variant == 1 ? Passes{} : any_passes(random);
      const Plan plan = compile(graph, options);
      if (variant == 1) findings.count(plan);
      Batch batch = plan.batch();
      for (const test_support::PlainRequest& request : requests)
        ASSERT_TRUE(add_to(batch, request).status().ok()) << batch.status(batch.size() - 1).message;
      Context context =
          Model::bind(plan, weights, tables, {.custom = {{"fold", test_support::fold_on_host}}}).context();
      const Scores scores = context.run(batch);
      for (int r = 0; r < num_requests; ++r)
        for (const OutputInfo& output : graph.outputs)
          check.expect_within(scores[output.name].of(r), expected[static_cast<size_t>(r)][output.name],
                              output.name + " of request " + std::to_string(r));
      ASSERT_FALSE(HasFailure()) << plan.describe();
    }
  }
  EXPECT_LE(check.num_vague(), check.num() / 100) << "bounds that say little: the test does not see much";
  const int often = static_cast<int>(num_seeds() / 20);
  const std::pair<const char*, int> found[] = {{"sums", findings.sums},
                                               {"residuals first", findings.residuals_first},
                                               {"row biases of heads", findings.row_biases_of_heads},
                                               {"chains", findings.chains},
                                               {"mixed chains", findings.mixed_chains},
                                               {"shared launches", findings.shared_launches},
                                               {"products of heads", findings.products_of_heads},
                                               {"sums of histories", findings.sums_of_histories}};
  for (const auto& [what, count] : found) EXPECT_GE(count, often) << what << ": models that a pass finds nothing in";
}

}}  // namespace warprank
