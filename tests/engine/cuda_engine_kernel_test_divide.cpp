// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: plans that are divided between a user and the items.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "support/divided.hpp"
#include "warprank/cuda.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches

/// Scores of a random model: of the undivided plan, and of the items' plan with the states of the user's.
struct DividedScores {
  explicit DividedScores(uint32_t seed) {
    const Plan plan = plan_for(warprank::build(test_support::RandomModel(seed)), {});
    const Weights weights = test_support::random_weights(plan, seed);
    const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, seed), cuda());
    const DividedPlan divided = divide(plan, "item", StateType::as_on_a_gpu);
    for (const Node& node : plan.graph().nodes)
      sums_rows = sums_rows || std::holds_alternative<SoftmaxOp>(node.op) ||
                  std::holds_alternative<LayerNormOp>(node.op) || std::holds_alternative<ReduceOp>(node.op);
    for (const UserState& state : divided.states)
      num_halves += state.source == UserState::Source::output && state.row_bytes == 2 * state.width;
    const Model model = Model::bind(plan, weights, tables), user_model = Model::bind(divided.user, weights, tables),
                items_model = Model::bind(divided.items, weights, tables);
    Context whole = model.context(), user = user_model.context(), items = items_model.context();
    const std::vector<PlainRequest> requests = random_requests(plan, 4, seed);
    std::vector<PlainRequest> of_users;
    for (const PlainRequest& request : requests)
      of_users.push_back(test_support::part_of(request, divided.user.layout()));
    Batch batch = batch_of(model, requests), users = batch_of(user_model, of_users), pages = items_model.batch();
    expected = all_scores(plan, whole.run(batch));
    const Scores states = user.run(users);
    test_support::add_items(pages, DividedRequests(divided), requests, states, users);
    for (int64_t r = 0; r < pages.size(); ++r) EXPECT_TRUE(pages.status(r).ok()) << pages.status(r).message;
    got = all_scores(plan, items.run(pages));
  }

  std::vector<float> expected, got;
  int64_t num_halves = 0;  ///< of the states
  bool sums_rows = false;  ///< in an order that depends on where values lie, and on what shares the launch
};

TEST_F(CudaEngine, DividedPlansGiveTheScoresOfTheUndividedOne) {
  constexpr double rounding = 1e-5;
  int num_scores = 0, num_same_bits = 0;
  int64_t num_halves = 0;
  for (uint32_t seed = 0; seed < (is_sanitized ? 2 : 12); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const DividedScores scores(seed);
    ASSERT_EQ(scores.got.size(), scores.expected.size());
    for (size_t i = 0; i < scores.got.size(); ++i)
      EXPECT_NEAR(scores.got[i], scores.expected[i], rounding * (1 + std::fabs(scores.expected[i]))) << "score " << i;
    if (!scores.sums_rows) {
      EXPECT_TRUE(same_bits(scores.got, scores.expected));
      ++num_same_bits;
    }
    num_scores += static_cast<int>(scores.expected.size());
    num_halves += scores.num_halves;
  }
  EXPECT_GT(num_scores, 100);
  EXPECT_TRUE(is_sanitized || (num_halves > 0 && num_same_bits > 0));
}

}}  // namespace warprank
