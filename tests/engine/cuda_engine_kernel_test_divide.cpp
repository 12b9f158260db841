// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: plans that are divided between a user and the items.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "warprank/cuda.hpp"
#include "warprank/engine/divided_batch.hpp"
#include "warprank/engine/servable.hpp"
#include "warprank/plan/divide.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches

/// Scores of a random model: of the undivided plan, and of the divided one, twice: with the users' sides of all
/// requests, and with the states that these have left of every second.
struct DividedScores {
  explicit DividedScores(uint32_t seed) {
    const Plan plan = plan_for(warprank::build(test_support::RandomModel(seed)), {});
    const Weights weights = test_support::random_weights(plan, seed);
    const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, seed), cuda());
    const auto requests = std::make_shared<const DividedRequests>(divide(plan, "item", StateType::as_on_a_gpu));
    for (const Node& node : plan.graph().nodes)
      sums_rows = sums_rows || std::holds_alternative<SoftmaxOp>(node.op) ||
                  std::holds_alternative<LayerNormOp>(node.op) || std::holds_alternative<ReduceOp>(node.op);
    for (const UserState& state : requests->plan().states)
      num_halves += state.source == UserState::Source::output && state.row_bytes == 2 * state.width;
    const Model model = Model::bind(plan, weights, tables);
    ServableContext both(Servable::bind(requests, weights, tables), {});
    const std::vector<PlainRequest> plain = random_requests(plan, 4, seed);
    Batch batch = batch_of(model, plain);
    expected = all_scores(plan, model.context().run(batch));
    DividedBatch divided(requests, model.backend()->batch_allocator());
    std::vector<DividedBatch::States> states(plain.size());
    for (std::vector<float>* scores : {&first, &later}) {
      divided.clear();
      for (size_t r = 0; r < plain.size(); ++r) divided.add(batch.blob(static_cast<int64_t>(r)), states[r]);
      *scores = all_scores(plan, divided.run(both.users(), both.context()));
      for (int64_t r = 0; r < divided.size(); ++r) EXPECT_TRUE(divided.status(r).ok()) << divided.status(r).message;
      for (size_t r = 0; r < plain.size(); r += 2) states[r] = divided.states(static_cast<int64_t>(r));
    }
  }

  std::vector<float> expected, first, later;
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
    for (const std::vector<float>& got : {scores.first, scores.later}) {
      ASSERT_EQ(got.size(), scores.expected.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], scores.expected[i], rounding * (1 + std::fabs(scores.expected[i]))) << "score " << i;
      if (!scores.sums_rows) {
        EXPECT_TRUE(same_bits(got, scores.expected));
        ++num_same_bits;
      }
    }
    num_scores += static_cast<int>(scores.expected.size());
    num_halves += scores.num_halves;
  }
  EXPECT_GT(num_scores, 100);
  EXPECT_TRUE(is_sanitized || (num_halves > 0 && num_same_bits > 0));
}

}}  // namespace warprank
