// SPDX-License-Identifier: Apache-2.0
//
// RankingService with divided plans, on the host engine.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/divided.hpp"
#include "support/message_of.hpp"
#include "support/plain_request.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"

namespace {

using namespace warprank;
using namespace warprank::test_support;

/// A history that a user has, and films that a page shows: with attention, so that states are ragged.
Outputs feed_model(Builder& b) {
  const auto user = b.axis("user"), event = b.axis("event", user, keep_last(6)), item = b.axis("item", user);
  const auto films = b.table("films", {.dim = 8, .rows = 40});
  const auto history = b.embed(b.ids("seen", event), films), film = b.embed(b.ids("film", item), films);
  const auto age = b.mlp("user_tower", b.dense("age", user, 3), {16, 8}, relu);
  const auto interest = b.target_attention("interest", film, history);
  return {{"score", b.mlp("tower", b.concat({film, interest, b.expand(age, item)}), {8, 1})}, {"user", age}};
}

/// Pages of users: request `page` of user `u` has the same user's side for all pages.
class Feed {
 public:
  static constexpr int num_users = 12, num_pages = 3;

  Feed() : plan_(compile(feed_model, {.capacities = {{.requests = 4, .items = 12, .rows = {{"event", 16}}}}})) {
    for (uint32_t version = 1; version <= 2; ++version) {
      dense_.push_back(random_weights(plan_, version));
      rows_.push_back(random_tables(plan_, 40, version));
    }
    std::mt19937 random(7);
    for (int u = 0; u < num_users; ++u) {
      PlainRequest user;
      user.lengths["event"] = {u % 4};  // some have none
      for (int e = 0; e < u % 4; ++e) user.ids["seen"].push_back(static_cast<int64_t>(random() % 40));
      if (user.ids.empty()) user.ids["seen"] = {};
      for (int i = 0; i < 3; ++i) user.dense["age"].push_back(static_cast<float>(random() % 100) / 50 - 1);
      for (int page = 0; page < num_pages; ++page) {
        PlainRequest request = user;
        const auto items = static_cast<int64_t>(random() % 5);
        request.lengths["item"] = {items};
        request.ids["film"] = {};
        for (int64_t i = 0; i < items; ++i) request.ids["film"].push_back(static_cast<int64_t>(random() % 40));
        requests_.push_back(std::move(request));
      }
    }
    for (size_t model = 0; model < 2; ++model) {
      Context context = Model::bind(plan_, dense_[model], Tables::load(plan_, rows_[model], host())).context();
      for (const PlainRequest& request : requests_) {
        Batch batch = plan_.batch();
        add_to(batch, request);
        const Scores scores = context.run(batch);
        expected_[model].emplace_back();
        for (const char* output : {"score", "user"})
          expected_[model].back().emplace_back(scores[output].of(0).begin(), scores[output].of(0).end());
      }
    }
  }

  const Plan& plan() const { return plan_; }
  const PlainRequest& request(int user, int page) const { return requests_[number(user, page)]; }
  /// Of version 1, 2, 1, 2 ...
  NextModel model(int64_t version) const { return {.dense = dense_[index(version)], .tables = rows_[index(version)]}; }
  const std::vector<std::vector<float>>& expected(int64_t version, int user, int page) const {
    return expected_[index(version)][number(user, page)];
  }
  ServedModel served(int contexts) const {
    Tables tables = Tables::load(plan_, rows_[0], host());
    Servable model = Servable::bind(divide(plan_, "item"), dense_[0], tables);
    return {std::move(model), std::move(tables), {.contexts = contexts}};
  }

 private:
  static size_t index(int64_t version) { return static_cast<size_t>((version - 1) % 2); }
  static size_t number(int user, int page) { return static_cast<size_t>(user * num_pages + page); }

  Plan plan_;
  std::vector<Weights> dense_, rows_;
  std::vector<PlainRequest> requests_;
  std::vector<std::vector<std::vector<float>>> expected_[2];
};

const Feed& feed() {
  static const Feed feed;
  return feed;
}

CallOptions about(int user) {
  CallOptions how;
  how.user = UserKey{static_cast<uint64_t>(user), 1};
  return how;
}

/// Sets the inputs of a whole request, or of its items' side.
void set_inputs(Request& request, const PlainRequest& plain, const BatchLayout& layout) {
  const PlainRequest part = part_of(plain, layout);
  for (const auto& [axis, lengths] : part.lengths) request.lengths(layout.axis(axis), Lengths(lengths));
  for (const auto& [name, ids] : part.ids) request.ids(layout.ids(name), ids);
  for (const auto& [name, values] : part.dense) request.dense(layout.dense(name), values);
}
auto fill(const PlainRequest& plain, const BatchLayout& layout) {
  return [&plain, &layout](Request request) { set_inputs(request, plain, layout); };
}

class DividedService : public testing::Test {
 protected:
  Reply whole(int user, int page) {
    return service_.score(fill(feed().request(user, page), feed().plan().layout()), about(user)).get();
  }
  Reply later(int user, int page) {
    return service_.score_later(fill(feed().request(user, page), later_layout()), about(user)).get();
  }
  const BatchLayout& later_layout() const { return served_.requests()->plan().later_requests; }
  static void expect_scores(const Reply& reply, int user, int page) {
    ASSERT_EQ(reply.outcome, Outcome::scored) << reply.message;
    EXPECT_EQ(reply.scores, feed().expected(reply.version, user, page)) << "user " << user << ", page " << page;
  }

  ServedModel served_ = feed().served(1);
  UserStates states_;
  RankingService service_{served_, states_};
};

TEST_F(DividedService, ScoresLaterRequestsByStatesThatItKept) {
  for (int user = 0; user < Feed::num_users; ++user) {
    Reply reply = later(user, 0);
    EXPECT_EQ(reply.refusal, Refusal::unknown_user);
    reply = whole(user, 0);
    expect_scores(reply, user, 0);
    EXPECT_TRUE(reply.is_user_kept);
    for (int page = 1; page < Feed::num_pages; ++page) {
      reply = later(user, page);
      expect_scores(reply, user, page);
      EXPECT_TRUE(reply.is_user_kept);
    }
    expect_scores(whole(user, 1), user, 1);
  }
  const ServiceCounters counters = service_.counters();
  EXPECT_EQ(counters.scored, 4 * Feed::num_users);
  EXPECT_EQ(counters.known_users, 3 * Feed::num_users);
  EXPECT_EQ(counters.refused(Refusal::unknown_user), Feed::num_users);
  EXPECT_EQ(states_.counters().states, Feed::num_users);
  EXPECT_EQ(states_.counters().hits, 3 * Feed::num_users);
  EXPECT_EQ(states_.counters().misses, 2 * Feed::num_users) << "one of each request of an unknown user";
}

TEST_F(DividedService, KeepsNothingOfRequestsWithoutAKey) {
  const Reply reply = service_.score(fill(feed().request(1, 0), feed().plan().layout())).get();
  expect_scores(reply, 1, 0);
  EXPECT_FALSE(reply.is_user_kept);
  EXPECT_EQ(states_.counters().kept, 0);
  EXPECT_EQ(service_.score_later(fill(feed().request(1, 0), later_layout()), {}).get().refusal, Refusal::unknown_user);
}

TEST_F(DividedService, KnowsNoUserOfTheModelBefore) {
  for (const SwapMode mode : {SwapMode::full, SwapMode::drain}) {
    expect_scores(whole(3, 0), 3, 0);
    expect_scores(later(3, 1), 3, 1);
    served_.swap(feed().model(served_.version() + 1), mode);
    EXPECT_EQ(later(3, 1).refusal, Refusal::unknown_user);
    const Reply reply = whole(3, 2);
    EXPECT_EQ(reply.version, served_.version());
    expect_scores(reply, 3, 2);
    expect_scores(later(3, 1), 3, 1);
  }
}

TEST_F(DividedService, ComparesRecordedRequestsBeforeItTakesAModel) {
  Batch batch = feed().plan().batch();
  for (int user = 0; user < 3; ++user) add_to(batch, feed().request(user, 0));
  SwapOptions options;
  for (int64_t r = 0; r < 3; ++r)
    options.recorded.emplace_back(batch.blob(r).data(), batch.blob(r).data() + batch.blob(r).bytes());
  options.most_difference = 0;
  EXPECT_EQ(served_.swap(feed().model(1), SwapMode::full, options).comparison.largest(), 0);
  EXPECT_THROW(served_.swap(feed().model(2), SwapMode::full, options), swap_refused);
}

TEST_F(DividedService, TakesBlobsOfBothKinds) {
  const auto blob_of = [](const BatchLayout& layout, int user, int page) {
    Batch batch(layout);
    add_to(batch, part_of(feed().request(user, page), layout));
    return std::vector<std::byte>(batch.blob(0).data(), batch.blob(0).data() + batch.blob(0).bytes());
  };
  const auto score = [&](const std::vector<std::byte>& blob, int user) {
    std::promise<Reply> reply;
    service_.score_blob(
        Span<const std::byte>(blob), [&](Reply got) { reply.set_value(std::move(got)); }, about(user));
    return reply.get_future().get();
  };
  expect_scores(score(blob_of(feed().plan().layout(), 5, 0), 5), 5, 0);
  expect_scores(score(blob_of(later_layout(), 5, 1), 5), 5, 1);
  EXPECT_EQ(score(blob_of(later_layout(), 6, 1), 6).refusal, Refusal::unknown_user);
  EXPECT_EQ(score({}, 6).outcome, Outcome::bad_request);
}

TEST_F(DividedService, GivesTheStatesOfTheKeyUnlessItIsToldToCompare) {
  expect_scores(whole(1, 0), 1, 0);
  const auto other_user_with_key_1 = [](RankingService& service) {
    return service.score(fill(feed().request(2, 0), feed().plan().layout()), about(1)).get();
  };
  EXPECT_NE(other_user_with_key_1(service_).scores, feed().expected(1, 2, 0)) << "as the caller said";
  ServiceOptions options;
  options.compare_users = true;
  RankingService comparing(served_, states_, options);
  expect_scores(other_user_with_key_1(comparing), 2, 0);
  EXPECT_EQ(comparing.counters().changed_users, 1);
  expect_scores(other_user_with_key_1(comparing), 2, 0);
  EXPECT_EQ(comparing.counters().changed_users, 1) << "the new states are of the new side";
  EXPECT_EQ(comparing.counters().known_users, 1);
}

TEST(DividedServiceOf, UndividedPlansSaysSo) {
  Tables tables = Tables::load(feed().plan(), feed().model(1).tables, host());
  Model model = Model::bind(feed().plan(), feed().model(1).dense, tables);
  ServedModel served(std::move(model), std::move(tables));
  UserStates states;
  EXPECT_EQ(message_of([&] { RankingService(served, states); }),
            "RankingService: states of users: expected a divided plan, got one that is not divided");
  RankingService service(served);
  EXPECT_EQ(message_of([&] { service.score_later([](Request) {}, about(1)); }),
            "score_later: expected a divided plan, got one that is not");
  EXPECT_EQ(message_of([&] { served.acquire().users(); }),
            "context of the users' side: expected a divided plan, got one that is not");
}

TEST(DividedServiceOf, RequestsThatDoNotFitTheStatesAnswersThemAndScoresTheOthers) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
    return {{"score", b.dense("price", item, 1) * b.expand(b.linear("mood", b.dense("mood", session, 1), 1), item)}};
  });
  const Weights weights = random_weights(plan, 1);
  Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  ServedModel served(Servable::bind(divide(plan, "item"), weights, tables), tables, {.contexts = 1});
  UserStates states;
  RankingService service(served, states);
  PlainRequest request;
  request.lengths = {{"session", {2}}, {"item", {2, 1}}};
  request.dense = {{"price", {5, 6, 7}}, {"mood", {1, 2}}};
  const Reply whole = service.score(fill(request, plan.layout()), about(1)).get();
  ASSERT_EQ(whole.outcome, Outcome::scored) << whole.message;
  const BatchLayout& layout = served.requests()->plan().later_requests;
  EXPECT_EQ(service.score_later(fill(request, layout), about(1)).get().scores, whole.scores);
  request.lengths = {{"session", {3}}, {"item", {2, 1, 0}}};
  const Reply bad = service.score_later(fill(request, layout), about(1)).get();
  EXPECT_EQ(bad.outcome, Outcome::bad_request);
  EXPECT_EQ(bad.message, "blob: rows of axis 'session': expected 2, got 3");
  EXPECT_TRUE(bad.scores.empty());
  EXPECT_EQ(service.counters().bad, 1);

  // A whole request has all that is needed: a session more is no error.
  request.dense["mood"] = {1, 2, 3};
  Context context = Model::bind(plan, weights, tables).context();
  Batch batch = plan.batch();
  add_to(batch, request);
  const Span<const float> alone = context.run(batch)["score"].of(0);
  const Reply grown = service.score(fill(request, plan.layout()), about(1)).get();
  ASSERT_EQ(grown.outcome, Outcome::scored) << grown.message;
  EXPECT_EQ(grown.scores[0], std::vector<float>(alone.begin(), alone.end()));
  EXPECT_EQ(service.score_later(fill(request, layout), about(1)).get().scores, grown.scores);
  EXPECT_EQ(service.counters().changed_users, 1);
}

TEST(DividedServiceOf, AUserIsMadeAndAskedAsDocumented) {
  const Plan& plan = feed().plan();
  const Weights dense = feed().model(1).dense, rows = feed().model(1).tables;
  const uint64_t user_id = 17, slot = 3;
  const BatchLayout layout = divide(plan, "item").later_requests;
  const auto fill = [&](Request request) { set_inputs(request, feed().request(1, 0), plan.layout()); };
  const auto fill_items = [&](Request request) { set_inputs(request, feed().request(1, 1), layout); };

  Tables tables = Tables::load(plan, rows, host());
  Servable both = Servable::bind(divide(plan, "item"), dense, tables);
  ServedModel served(std::move(both), std::move(tables), {.contexts = 4});
  UserStates states({.most_bytes = int64_t{4} << 30, .most_age = std::chrono::minutes(5)});
  RankingService service(served, states);

  CallOptions how;
  how.user = UserKey{user_id, slot};                               // any 128 bits
  const Reply first = service.score(fill, how).get();              // all inputs, as ever
  const Reply later = service.score_later(fill_items, how).get();  // the inputs of items alone
  EXPECT_EQ(first.scores, feed().expected(1, 1, 0));
  EXPECT_EQ(later.scores, feed().expected(1, 1, 1));
}

/// Rows of tables that change while a batch runs: its states may be of the rows before.
TEST(DividedCalls, KeepsStatesAsOldAsTheBatchIs) {
  struct Call : detail::PackedCall {
    using PackedCall::PackedCall;
    Reply reply;
  };
  ServedModel served = feed().served(1);
  UserStates states;
  HostAllocator allocator, plain;
  bool changes_rows = false;
  allocator.allocate = [&](int64_t bytes) {  // while the batch is packed
    if (changes_rows) states.expire_after(std::chrono::milliseconds(0));
    return plain.allocate(bytes);
  };
  const auto whole = std::make_shared<const BatchLayout>(served.plan().layout());
  const auto later = std::make_shared<const BatchLayout>(served.requests()->plan().later_requests);
  const auto are_kept = [&](uint64_t user) {
    detail::DividedCalls<Call> divided(served.requests(), &states, nullptr, false, allocator);
    std::list<Call> calls, unknown;
    Call& call = calls.emplace_back(whole, later);
    call.user = UserKey{user, 0};
    add_to(call.packed(), feed().request(1, 0));
    call.packed().close();
    divided.run(served.acquire(), calls, unknown);
    EXPECT_TRUE(call.reply.is_user_kept);
    return states.find({user, 0}, 1) != nullptr;
  };
  EXPECT_TRUE(are_kept(1));
  changes_rows = true;
  EXPECT_FALSE(are_kept(2));
}

/// Clients that ask for pages as the protocol says, in a store that is too small for all, while models are exchanged:
/// each reply has the bits that the undivided plan gives with the model that the reply names.
TEST(DividedServiceUnderSwaps, ScoresAsTheUndividedPlanOfTheSameModel) {
  ServedModel served = feed().served(3);
  UserStatesOptions few;
  few.parts = 2;
  few.most_state_bytes = 600;
  few.most_bytes = 4 * (600 + UserStates::record_bytes);
  UserStates states(few);
  ServiceOptions options;
  options.most_merged = 3;
  RankingService service(served, states, options);
  const BatchLayout& layout = served.requests()->plan().later_requests;
  constexpr int num_clients = 4;
  std::atomic<int> num_later{0}, num_unknown{0}, num_swaps{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < num_clients; ++c)
    clients.emplace_back([&, c] {
      std::mt19937 random(static_cast<uint32_t>(c));
      // Until each way was gone: the swaps end when they have seen it.
      for (int i = 0; i < 200 || num_swaps < 4; ++i) {
        const int user = static_cast<int>(random() % Feed::num_users), page = static_cast<int>(random() % 3);
        Reply reply = service.score_later(fill(feed().request(user, page), layout), about(user)).get();
        if (reply.refusal == Refusal::unknown_user) {
          ++num_unknown;
          reply = service.score(fill(feed().request(user, page), feed().plan().layout()), about(user)).get();
        } else {
          ++num_later;
        }
        ASSERT_EQ(reply.outcome, Outcome::scored) << reply.message;
        ASSERT_EQ(reply.scores, feed().expected(reply.version, user, page)) << user << ", " << page;
      }
    });
  for (const SwapMode mode : {SwapMode::full, SwapMode::drain, SwapMode::full, SwapMode::full}) {
    served.swap(feed().model(served.version() + 1), mode);
    ++num_swaps;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(num_later, 0);
  EXPECT_GT(num_unknown, 0);
  EXPECT_GT(states.counters().evicted, 0);
  EXPECT_LE(states.counters().bytes, few.most_bytes);
  EXPECT_EQ(states.counters().refused, 0);
}

}  // namespace
