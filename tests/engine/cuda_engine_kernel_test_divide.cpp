// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: plans that are divided between a user and the items.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/cuda.hpp"
#include "warprank/engine/divided_batch.hpp"
#include "warprank/engine/servable.hpp"
#include "warprank/plan/divide.hpp"
#include "warprank/serving.hpp"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches
using test_support::message_of;

/// Scores of a random model: of the undivided plan, and of the divided one, four times: with the users' sides of all
/// requests, with the states that these have left of every second, with these and a device that is to keep all states,
/// and with those that it has kept.
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
    DeviceStates kept(cuda(), {16 * DeviceStates::page_bytes, 0});
    for (std::vector<float>* scores : {&first, &later, &stored, &read}) {
      divided.clear();
      for (size_t r = 0; r < plain.size(); ++r) divided.add(batch.blob(static_cast<int64_t>(r)), states[r]);
      const bool is_kept = scores == &stored || scores == &read;
      *scores = all_scores(plan, divided.run(both.users(), both.context(), is_kept ? &kept : nullptr));
      for (int64_t r = 0; r < divided.size(); ++r) EXPECT_TRUE(divided.status(r).ok()) << divided.status(r).message;
      for (size_t r = 0; r < plain.size(); r += 2) states[r] = divided.states(static_cast<int64_t>(r));
    }
    EXPECT_EQ(kept.counters().hits, static_cast<int64_t>(plain.size() + 1) / 2);
  }

  std::vector<float> expected, first, later, stored, read;
  int64_t num_halves = 0;  ///< of the states
  bool sums_rows = false;  ///< in an order that depends on where values lie, and on what shares the launch
};

TEST_F(CudaEngine, DividedPlansGiveTheScoresOfTheUndividedOne) {
  constexpr double rounding = 1e-5;
  int num_scores = 0, num_same_bits = 0;
  int64_t num_halves = 0;
  for (uint32_t seed = 0; seed < (is_sanitized ? 2 : 20); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const DividedScores scores(seed);
    for (const std::vector<float>& got : {scores.first, scores.later, scores.stored, scores.read}) {
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

/// A history whose rows are several pages of a DeviceStates, and films that attend to it.
Outputs long_history_model(Builder& b) {
  const auto user = b.axis("user"), event = b.axis("event", user), item = b.axis("item", user);
  const auto films = b.table("films", {.dim = 256, .rows = 40});
  const auto film = b.linear("query", b.embed(b.ids("film", item), films), 256);
  const auto interest = b.target_attention("interest", film, b.embed(b.ids("seen", event), films));
  return {{"score", b.linear("score", interest, 1)}};
}

/// A service on the device, and the scores of two models of its plan.
class LongHistories {
 public:
  LongHistories() : plan_(plan_for(warprank::build(long_history_model), {}, {{2, 8, {{"event", 64}}}})) {
    for (uint32_t seed = 1; seed <= 2; ++seed) {
      dense_.push_back(test_support::random_weights(plan_, seed));
      rows_.push_back(test_support::random_tables(plan_, 40, seed));
    }
    Tables tables = Tables::load(plan_, rows_[0], cuda());
    Servable both = Servable::bind(divide(plan_, "item", StateType::as_on_a_gpu), dense_[0], tables);
    served_.emplace(std::move(both), std::move(tables), ServedOptions{1, {}});
  }

  ServedModel& served() { return *served_; }
  void swap_to_the_second() { served_->swap({.dense = dense_[1], .tables = rows_[1]}, SwapMode::drain); }

  static CallOptions about(uint64_t user) {
    CallOptions how;
    how.user = UserKey{user, 0};
    return how;
  }
  /// Sets the inputs of a user with 20 + `user` events, or of three films alone.
  auto fill(uint64_t user, bool is_later) const {
    return [user, is_later, this](Request request) {
      const BatchLayout& layout = is_later ? served_->requests()->plan().later_requests : plan_.layout();
      const auto number = static_cast<int64_t>(user);
      std::vector<int64_t> seen;
      for (int64_t e = 0; e < 20 + number; ++e) seen.push_back((e * 7 + number) % 40);
      if (!is_later) request.ids(layout.ids("seen"), seen);
      request.ids(layout.ids("film"), {number, 3, 39});
    };
  }
  std::vector<float> expected(size_t model, uint64_t user) const {
    Context context = Model::bind(plan_, dense_[model], Tables::load(plan_, rows_[model], cuda())).context();
    Batch batch = plan_.batch();
    fill(user, false)(batch.add_request());
    return all_scores(plan_, context.run(batch));
  }

 private:
  Plan plan_;
  std::vector<Weights> dense_, rows_;
  std::optional<ServedModel> served_;
};

TEST_F(CudaEngine, AServiceReadsStatesThatTheDeviceKeeps) {
  constexpr uint64_t num_users = 3;
  LongHistories histories;
  UserStates states;
  ServiceOptions options;
  options.device_states = {16 * DeviceStates::page_bytes, DeviceStates::page_bytes};  // of one user, or two
  RankingService service(histories.served(), states, options);
  const auto score = [&](size_t model, uint64_t user, bool is_later) {
    const auto fill = histories.fill(user, is_later);
    const Reply reply = is_later ? service.score_later(fill, histories.about(user)).get()
                                 : service.score(fill, histories.about(user)).get();
    ASSERT_EQ(reply.outcome, Outcome::scored) << reply.message;
    const std::vector<float> expected = histories.expected(model, user);
    ASSERT_EQ(reply.scores[0].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(reply.scores[0][i], expected[i], 1e-5 * (1 + std::fabs(expected[i]))) << "score " << i;
  };
  for (uint64_t user = 0; user < num_users; ++user) {
    score(0, user, false);
    score(0, user, true);
  }
  DeviceStatesCounters counters = service.device_states_counters();
  EXPECT_EQ(counters.hits, num_users);
  EXPECT_EQ(counters.misses, num_users);
  EXPECT_GT(counters.evicted, 0);
  EXPECT_LE(counters.bytes, options.device_states.most_bytes);
  score(0, 0, true);
  EXPECT_EQ(service.device_states_counters().misses, num_users + 1) << "its pages went to others";

  histories.swap_to_the_second();
  EXPECT_EQ(service.score_later(histories.fill(0, true), histories.about(0)).get().refusal, Refusal::unknown_user);
  for (const bool is_later : {false, true}) score(1, 0, is_later);
  EXPECT_EQ(service.device_states_counters().hits, num_users + 1);
}

TEST_F(CudaEngine, StatesOfARequestThatIsBadAreNotOnTheDevice) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
    return {{"score", b.dense("price", item, 1) * b.expand(b.linear("mood", b.dense("mood", session, 1), 1), item)}};
  });
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  const auto requests = std::make_shared<const DividedRequests>(divide(plan, "item", StateType::as_on_a_gpu));
  ServableContext both(Servable::bind(requests, test_support::random_weights(plan, 1), tables), {});
  const auto page_of = [&](const BatchLayout& layout, const Lengths& items) {
    Batch batch(layout);
    Request request = batch.add_request();
    request.lengths(layout.axis("item"), items).dense(layout.dense("price"), {5, 6, 7});
    if (layout.fingerprint() == plan.layout().fingerprint()) request.dense(layout.dense("mood"), {1, 2});
    batch.close();
    return batch;
  };
  const Batch whole = page_of(plan.layout(), Lengths({2, 1})),
              later = page_of(requests->plan().later_requests, Lengths({2, 1})),
              other = page_of(requests->plan().later_requests, Lengths({2, 1, 0}));
  DividedBatch batch(requests);
  DeviceStates kept(cuda(), {4 * DeviceStates::page_bytes, 0});
  const auto score = [&](std::vector<std::pair<const Batch&, DividedBatch::States>> pages, DeviceStates* on_device) {
    batch.clear();
    for (const auto& [page, states] : pages) batch.add(page.blob(0), states);
    return all_scores(plan, batch.run(both.users(), both.context(), on_device));
  };
  const std::vector<float> expected = score({{whole, nullptr}, {whole, nullptr}}, nullptr);
  const DividedBatch::States one = batch.states(0), two = batch.states(1);
  EXPECT_EQ(score({{other, one}, {later, two}}, &kept).size(), expected.size() / 2);
  EXPECT_EQ(batch.status(0).message, "blob: rows of axis 'session': expected 2, got 3");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(score({{later, one}, {later, two}}, &kept), expected));
  EXPECT_EQ(kept.counters().hits, 3) << "one was not stored by the first batch";
}

TEST_F(CudaEngine, AServiceThatKeepsNoStatesRefusesToKeepThemOnTheDevice) {
  LongHistories histories;
  ServiceOptions options;
  options.device_states = {1 << 20};
  EXPECT_EQ(message_of([&] { RankingService(histories.served(), options); }),
            "ServiceOptions::device_states: expected a service that keeps states of users, got one that does not");
}

}}  // namespace warprank
