// SPDX-License-Identifier: Apache-2.0
//
// Plans that are divided between a user and the items, on the host.

#include "warprank/plan/divide.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/divided.hpp"
#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "support/random_model.hpp"
#include "warprank/host.hpp"

namespace {

using namespace warprank;
using namespace warprank::test_support;
using testing::HasSubstr;

std::vector<PlainRequest> random_requests(const Plan& plan, int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<PlainRequest> requests;
  for (int r = 0; r < count; ++r) requests.push_back(random_request(plan.layout(), {}, random));
  return requests;
}

Batch batch_of(const Plan& plan, const std::vector<PlainRequest>& requests) {
  Batch batch = plan.batch();
  for (const PlainRequest& plain : requests) {
    const Request request = add_to(batch, plain);
    EXPECT_TRUE(request.status().ok()) << request.status().message;
  }
  return batch;
}

/// The users' sides of requests.
Batch users_of(const DividedPlan& divided, std::vector<PlainRequest> requests) {
  for (PlainRequest& request : requests) request = part_of(request, divided.user.layout());
  return batch_of(divided.user, requests);
}

void expect_same_bits(const Plan& plan, const Scores& whole, const Scores& items, int64_t num_requests) {
  for (const OutputInfo& output : plan.graph().outputs)
    for (int64_t r = 0; r < num_requests; ++r) {
      const Span<const float> expected = whole[output.name].of(r), got = items[output.name].of(r);
      ASSERT_EQ(got.size(), expected.size()) << output.name << ", request " << r;
      EXPECT_TRUE(expected.empty() || std::memcmp(got.data(), expected.data(), expected.size() * 4) == 0)
          << output.name << ", request " << r;
    }
}

TEST(Divide, GivesTheBitsOfTheUndividedPlan) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan = compile(build(RandomModel(seed)));
    const Weights weights = random_weights(plan, seed);
    const Tables tables = Tables::load(plan, random_tables(plan, 50, seed), host());
    const DividedPlan divided = divide(plan, "item");
    const std::vector<PlainRequest> requests = random_requests(plan, 4, seed);
    Context whole = Model::bind(plan, weights, tables).context(),
            user = Model::bind(divided.user, weights, tables).context(),
            items = Model::bind(divided.items, weights, tables).context();
    Batch batch = batch_of(plan, requests), users = users_of(divided, requests), pages = divided.items.batch();
    const Scores states = user.run(users);
    add_items(pages, DividedRequests(divided), requests, states, users);
    for (int64_t r = 0; r < pages.size(); ++r) EXPECT_TRUE(pages.status(r).ok()) << pages.status(r).message;
    expect_same_bits(plan, whole.run(batch), items.run(pages), 4);
  }
}

std::vector<std::byte> bytes_of(const BlobView& blob) { return {blob.data(), blob.data() + blob.bytes()}; }

/// A blob of the items' plan whose states come as a device brings them: all else is there before.
std::vector<std::byte> joined_by_sections(const DividedRequests& divided, const KeptStates& states,
                                          const BlobView& later) {
  Batch items = divided.plan().items.batch(), copied = divided.plan().items.batch();
  std::vector<StateSection> sections, of_copied;
  EXPECT_TRUE(divided.add_items(states, later, items, false, sections).status().ok());
  EXPECT_TRUE(divided.add_items(states, later, copied, true, of_copied).status().ok());
  std::vector<std::byte> blob = bytes_of(items.blob(0));
  for (const StateSection& section : sections)
    std::copy_n(states.blob.begin() + section.in_states, section.bytes, blob.begin() + section.in_blob);
  EXPECT_TRUE(sections.empty() || blob != bytes_of(items.blob(0))) << "they are in the batch already";
  EXPECT_EQ(blob, bytes_of(copied.blob(0)));
  EXPECT_EQ(sections.size(), of_copied.size());
  return blob;
}

TEST(Divide, MakesBlobsAsRequestPacksThem) {
  int64_t num_parts_below_users = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan = compile(build(RandomModel(seed)));
    const Tables tables = Tables::load(plan, random_tables(plan, 50, seed), host());
    const DividedRequests divided(divide(plan, "item", seed % 2 == 0 ? StateType::f32 : StateType::as_on_a_gpu));
    const std::vector<PlainRequest> requests = random_requests(plan, 3, seed);
    Batch whole = batch_of(plan, requests), users = users_of(divided.plan(), requests);
    Context user = Model::bind(divided.plan().user, random_weights(plan, seed), tables).context();
    const Scores scores = user.run(users);
    for (int64_t r = 0; r < whole.size(); ++r) {
      Batch user_side = divided.plan().user.batch(), items = divided.plan().items.batch();
      EXPECT_TRUE(divided.add_user(whole.blob(r), user_side).status().ok());
      EXPECT_EQ(bytes_of(user_side.blob(0)), bytes_of(users.blob(r)));
      KeptStates states;
      EXPECT_TRUE(divided.states(scores, users, r, states).ok());
      EXPECT_TRUE(validate_blob(Span<const std::byte>(states.blob), divided.plan().kept_states).ok());
      EXPECT_EQ(states.side, DividedRequests::hash(users.blob(r)));
      Batch later(divided.plan().later_requests);
      add_to(later, part_of(requests[static_cast<size_t>(r)], later.layout()));
      EXPECT_TRUE(divided.add_items(states, whole.blob(r), items).status().ok());
      EXPECT_TRUE(divided.add_items(states, later.blob(0), items).status().ok());
      const std::vector<std::byte> of_whole = bytes_of(items.blob(0));
      EXPECT_EQ(of_whole, bytes_of(items.blob(1)));
      const Status status = validate_blob(Span<const std::byte>(of_whole), divided.plan().items.layout());
      EXPECT_TRUE(status.ok()) << status.message;
      EXPECT_EQ(of_whole, joined_by_sections(divided, states, later.blob(0)));
      for (const AxisInfo& axis : plan.layout().axes()) num_parts_below_users += axis.parent > 0;
    }
  }
  EXPECT_GT(num_parts_below_users, 0) << "no axis has offsets";
}

TEST(Divide, RefusesItemsThatAreDividedAmongOtherRows) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
    return {{"score", b.dense("price", item, 1) * b.expand(b.linear("mood", b.dense("mood", session, 1), 1), item)}};
  });
  const DividedRequests divided(divide(plan, "item"));
  const Weights weights = random_weights(plan, 1);
  Context user =
      Model::bind(divided.plan().user, weights, Tables::load(plan, Weights::from_tensors({}), host())).context();
  PlainRequest request;
  request.lengths = {{"session", {2}}, {"item", {2, 1}}};
  request.dense = {{"price", {5, 6, 7}}, {"mood", {1, 2}}};
  Batch users = users_of(divided.plan(), {request});
  KeptStates states;
  EXPECT_TRUE(divided.states(user.run(users), users, 0, states).ok());
  request.lengths = {{"session", {3}}, {"item", {2, 1, 0}}};
  Batch later(divided.plan().later_requests);
  add_to(later, part_of(request, later.layout()));
  Batch items = divided.plan().items.batch();
  EXPECT_EQ(divided.add_items(states, later.blob(0), items).status().message,
            "blob: rows of axis 'session': expected 2, got 3");
  EXPECT_EQ(message_of([&] { divided.add_items(states, users.blob(0), items); }),
            "request of a divided plan: expected a whole one, or one of its items' side, got another");
  EXPECT_EQ(message_of([&] { divided.add_user(later.blob(0), users); }),
            "request of a divided plan: expected a whole one, as states of its user are not known, got another");
  EXPECT_EQ(message_of([&] { divided.states(user.run(users), later, 0, states); }),
            "states of request 0: expected a batch of the divided plan's user side, got one of another plan");
}

/// The states, as "name [axis, width]".
std::vector<std::string> states_of(const DividedPlan& divided) {
  std::vector<std::string> texts;
  for (const UserState& state : divided.states)
    texts.push_back(state.name + " [" + divided.items.source().axis(state.axis).name + ", " +
                    std::to_string(state.width) + "]");
  return texts;
}

TEST(Divide, KeepsARowBiasAndNotTheValuesItIsMadeOf) {
  const DividedPlan divided = divide(compile([](Builder& b) -> Outputs {
                                       const auto user = b.axis("user"), item = b.axis("item", user);
                                       const auto wide = b.mlp("user", b.dense("wide", user, 300), {200}, relu);
                                       const auto x = b.concat({b.dense("price", item, 1), b.expand(wide, item)});
                                       return {{"score", b.mlp("tower", x, {16, 1})}};
                                     }),
                                     "item");
  ASSERT_EQ(states_of(divided).size(), 1u);
  EXPECT_THAT(states_of(divided)[0], testing::EndsWith("[user, 16]"));
  EXPECT_EQ(divided.states[0].row_bytes, 64);
  EXPECT_THAT(divided.describe(), HasSubstr("computed once for a user: "));
}

TEST(Divide, CopiesOnTheItemsSideWhatIsFewerBytesThere) {
  const auto model = [](bool has_output) {
    return [has_output](Builder& b) -> Outputs {
      const auto user = b.axis("user"), item = b.axis("item", user);
      const auto few = b.dense("few", user, 2), thrice = b.concat({few, few, few});
      Outputs outputs{{"score", b.linear("of_price", b.dense("price", item, 1), 6) * b.expand(thrice, item)}};
      if (has_output) outputs.emplace_back("thrice", thrice);
      return outputs;
    };
  };
  EXPECT_THAT(states_of(divide(compile(model(false)), "item")), testing::ElementsAre("state.few [user, 2]"));
  const DividedPlan divided = divide(compile(model(true)), "item");
  EXPECT_THAT(states_of(divided), testing::ElementsAre("state.few [user, 2]")) << "outputs are copied there, too";
}

TEST(Divide, LeavesHeadsThatALaunchMultipliesTogether) {
  const DividedPlan divided = divide(
      compile([](Builder& b) -> Outputs {
        const auto user = b.axis("user"), item = b.axis("item", user);
        const auto of_items = b.pool(b.dense("price", item, 4), Pooling::sum);
        const auto a = b.mlp("of_items", of_items, {8, 1}), c = b.mlp("of_user", b.dense("age", user, 4), {8, 1});
        return {{"product", a * c}};
      }),
      "item");
  EXPECT_THAT(states_of(divided), testing::ElementsAre("state.age [user, 4]"));
  std::vector<std::string> kernels;
  for (const std::vector<int>& step : divided.items.storage().steps)
    kernels.push_back(plan::kernel_of(divided.items.graph(), step));
  EXPECT_THAT(kernels, testing::ElementsAre("pool", "mlp"));
}

TEST(Divide, GivesRowsToAxesWhoseValuesNobodyReads) {
  const DividedPlan divided = divide(
      compile([](Builder& b) -> Outputs {
        const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
        const auto unread = b.dense("unread", session, 1);
        return {{"score", b.dense("price", item, 1) * b.expand(b.dense("age", user, 1), item)}, {"sessions", unread}};
      }),
      "item");
  EXPECT_THAT(states_of(divided), testing::Contains(testing::EndsWith("[session, 1]")));
}

/// The rows of sessions are told by an input that nobody reads, where the only one that is read is left out.
TEST(Divide, KeepsTheRowsOfAxesWhoseInputsAreLeftOut) {
  for (const bool has_visit : {true, false}) {
    const Plan plan = compile([has_visit](Builder& b) -> Outputs {
      const auto user = b.axis("user"), session = b.axis("session", user), item = b.axis("item", session);
      if (has_visit) b.dense("visit", session, 1);
      const auto mood = b.dense("mood", session, 1, {.default_value = 3}),
                 other = b.dense("other", session, 1, {.default_value = 0});
      return {{"score", b.dense("price", item, 1) * b.expand(mood, item)}, {"mood", mood}, {"other", other}};
    });
    const DividedPlan divided = divide(plan, "item");
    const Weights none = Weights::from_tensors({});
    const Tables tables = Tables::load(plan, none, host());
    Context whole = Model::bind(plan, none, tables).context(), user = Model::bind(divided.user, none, tables).context(),
            items = Model::bind(divided.items, none, tables).context();
    PlainRequest request;
    request.lengths = {{"session", {2}}, {"item", {2, 1}}};
    request.dense = {{"price", {5, 6, 7}}, {has_visit ? "visit" : "other", {1, 2}}};
    Batch batch = batch_of(plan, {request}), users = users_of(divided, {request}), pages = divided.items.batch();
    const Scores states = user.run(users);
    add_items(pages, DividedRequests(divided), {request}, states, users);
    ASSERT_TRUE(pages.status(0).ok()) << pages.status(0).message;
    const Scores expected = whole.run(batch);
    EXPECT_EQ(expected["mood"].of(0).size(), 2);
    expect_same_bits(plan, expected, items.run(pages), 1);
  }
}

TEST(Divide, SaysWhatCannotBeDivided) {
  const auto graph = warprank::build([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    return {{"user", b.dense("age", user, 1)}, {"item", b.dense("price", item, 1)}};
  });
  const Plan plan = compile(graph);
  EXPECT_EQ(
      message_of([&] { divide(plan, "itme"); }),
      "divide: axis 'itme': expected an axis of items below the outermost, got an unknown name; did you mean 'item'?");
  EXPECT_EQ(message_of([&] { divide(plan, "user"); }),
            "divide: axis 'user': expected an axis of items below the outermost, got the outermost");
  const Plan without_users = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    return {{"item", b.linear("linear", b.dense("price", item, 1), 1)}};
  });
  EXPECT_EQ(message_of([&] { divide(without_users, "item"); }),
            "divide: axis 'item': expected outputs that depend on it, and values that do not, got no such values");
}

}  // namespace
