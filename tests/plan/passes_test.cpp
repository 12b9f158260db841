// SPDX-License-Identifier: Apache-2.0

/// Whatever passes run, scores stay the same within the rounding bound.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "support/random_data.hpp"
#include "support/random_model.hpp"
#include "warprank/graph_json.hpp"
#include "warprank/host.hpp"

namespace warprank {
namespace {

using test_support::RandomModel;

uint32_t num_seeds() {
  const char* seeds = std::getenv("WARPRANK_TEST_SEEDS");
  return seeds != nullptr ? static_cast<uint32_t>(std::atoi(seeds)) : 60;
}

Passes any_passes(std::mt19937& random) {
  const auto flip = [&] { return random() % 2 == 0; };
  return {flip(), flip(), flip(), flip(), flip(), flip(), flip(), flip()};
}

void expect_same_scores(const Scores& scores, const Scores& expected, const Graph& graph, int64_t requests) {
  for (const OutputInfo& output : graph.outputs)
    for (int64_t r = 0; r < requests; ++r) {
      const Span<const float> a = scores[output.name].of(r), b = expected[output.name].of(r);
      ASSERT_EQ(a.size(), b.size());
      for (int64_t i = 0; i < a.size(); ++i) {
        if (std::isnan(b[i]) && std::isnan(a[i])) continue;
        ASSERT_NEAR(a[i], b[i], 2e-4 * std::max(1.0f, std::abs(b[i])))
            << output.name << " of request " << r << ", " << i;
      }
    }
}

TEST(Passes, AnySubsetGivesTheSameScoresOnRandomModelsAndRaggedBatches) {
  for (uint32_t seed = 0; seed < num_seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = build(RandomModel(seed));
    CompileOptions plain;
    plain.passes = Passes::none();
    const Plan unplanned = compile(graph, plain);
    const Weights weights = test_support::random_weights(unplanned, seed);
    const Tables tables = Tables::load(unplanned, test_support::random_tables(unplanned, 50, seed), host());
    Batch batch = test_support::random_batch(unplanned, 5, {}, seed);
    for (int64_t r = 0; r < batch.size(); ++r) ASSERT_TRUE(batch.status(r).ok()) << batch.status(r).message;
    Context expected_context = bind(unplanned, weights, tables).context();
    const Scores expected = expected_context.run(batch);

    std::mt19937 random(seed);
    for (int variant = 0; variant < 4; ++variant) {
      CompileOptions options;
      if (variant > 0) options.passes = any_passes(random);
      const Plan plan = compile(graph, options);
      Context context = bind(plan, weights, tables).context();
      ASSERT_NO_FATAL_FAILURE(expect_same_scores(context.run(batch), expected, graph, batch.size())) << plan.describe();
    }
  }
}

}  // namespace
}  // namespace warprank
