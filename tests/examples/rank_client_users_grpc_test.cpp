// SPDX-License-Identifier: Apache-2.0
//
// examples/rank_client against a server that keeps states of users.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "../../examples/rank_client/client.hpp"
#include "examples/users_testing.hpp"
#include "support/message_of.hpp"

namespace kserve { namespace {

using rank_client::RankClient;
using rank_client::Ranking;
using testing::HasSubstr;
using warprank::Batch;
using warprank::Refusal;
using warprank::UserStates;
using warprank::test_support::message_of;

class RankClientUsersTest : public UsersTest {
 protected:
  Batch batch_of(const rank_client::RankClient& client, int user, int page) const {
    Batch batch = client.batch();
    add_to(batch, page_of(user, page));
    return batch;
  }
  static std::vector<float> scores_of(const rank_client::Ranking& ranking) {
    const warprank::Span<const float> scores = ranking.of("score", 0);
    return {scores.begin(), scores.end()};
  }
};

TEST_F(RankClientUsersTest, IsUsedAsDocumented) {
  const RankClient client(divided_->channel(), "model");
  warprank::Batch batch = batch_of(client, 1, 0);
  const Ranking page = client.score_about("user 42", batch, std::chrono::seconds(20));
  batch = batch_of(client, 1, 1);
  const Ranking next_page = client.score_about("user 42", batch, std::chrono::seconds(20));
  EXPECT_EQ(bytes(scores_of(page)), undivided_->ask(whole(1, 0)).scores);
  EXPECT_EQ(bytes(scores_of(next_page)), undivided_->ask(whole(1, 1)).scores);
}

TEST_F(RankClientUsersTest, SendsTheUsersSideOnceAndAgainWhenItIsForgotten) {
  const RankClient client(divided_->channel(), "model"), plain(undivided_->channel(), "model");
  const auto expect_as_whole = [&](int user, int page) {
    Batch batch = batch_of(client, user, page), same = batch_of(plain, user, page);
    const Ranking ranking = client.score_about("user " + std::to_string(user), batch, std::chrono::minutes(2));
    EXPECT_EQ(scores_of(ranking), scores_of(plain.score(same, std::chrono::minutes(2)))) << user << ", " << page;
    EXPECT_TRUE(ranking.is_user_kept());
  };
  for (int page = 0; page < 3; ++page)
    for (int user = 0; user < 6; ++user) expect_as_whole(user, page);
  EXPECT_EQ(states_.counters().kept, 6);
  EXPECT_EQ(divided_->counters().known_users, 12);
  EXPECT_EQ(divided_->counters().scored, 18);
  EXPECT_EQ(divided_->counters().refused(Refusal::unknown_user), 0);
  divided_->load(warprank::SwapMode::full);
  undivided_->load(warprank::SwapMode::full);
  for (int page = 0; page < 2; ++page)
    for (int user = 0; user < 6; ++user) expect_as_whole(user, page);
  EXPECT_EQ(divided_->counters().refused(Refusal::unknown_user), 6);
  EXPECT_EQ(divided_->counters().known_users, 18);
}

TEST_F(RankClientUsersTest, RemembersTheUsersThatWereAskedForLast) {
  const RankClient client(divided_->channel(), "model", {}, 2);
  const auto ask = [&](const std::string& user) {
    Batch batch = batch_of(client, 1, 0);
    EXPECT_TRUE(client.score_about(user, batch, std::chrono::minutes(2)).is_user_kept());
  };
  for (const char* user : {"a", "b", "a", "c"}) ask(user);  // c takes the place of b
  divided_->load(warprank::SwapMode::full);
  ask("a");
  EXPECT_EQ(divided_->counters().refused(Refusal::unknown_user), 1);
  ask("b");  // whole at once
  EXPECT_EQ(divided_->counters().refused(Refusal::unknown_user), 1);
}

TEST_F(RankClientUsersTest, PassesOnWhatIsNotAnUnknownUser) {
  const RankClient client(divided_->channel(), "model"), plain(undivided_->channel(), "model");
  Batch batch = batch_of(client, 1, 0), other = batch_of(plain, 1, 0);
  EXPECT_THAT(message_of([&] { plain.score_about("user", other, std::chrono::minutes(2)); }),
              HasSubstr("--keep-users"));
  EXPECT_THAT(message_of([&] { client.score_about("", batch, std::chrono::minutes(2)); }), HasSubstr("an empty text"));
  client.score_about("user", batch, std::chrono::minutes(2));
  divided_->hosted().unload();
  EXPECT_THAT(message_of([&] { client.score_about("user", batch, std::chrono::minutes(2)); }), HasSubstr("unloaded"));
  Batch two = batch_of(client, 1, 0);
  add_to(two, page_of(1, 1));
  EXPECT_EQ(message_of([&] { client.score_about("user", two, std::chrono::minutes(2)); }),
            "batch about a user: expected one request, got 2");
}

/// A store with room for a few users, whom a client takes turns with.
TEST_F(RankClientUsersTest, GoesOnWhereStatesAreEvicted) {
  warprank::UserStatesOptions few;
  few.most_state_bytes = 1000;
  few.most_bytes = few.most_state_bytes + UserStates::record_bytes;
  UserStates states(few);
  const std::unique_ptr<Running> divided = this->divided(states);
  const RankClient client(divided->channel(), "model"), plain(undivided_->channel(), "model");
  for (int turn = 0; turn < 4; ++turn)
    for (int user = 0; user < 12; ++user) {
      Batch batch = batch_of(client, user, turn), same = batch_of(plain, user, turn);
      const Ranking ranking = client.score_about(std::to_string(user), batch, std::chrono::minutes(2));
      EXPECT_EQ(scores_of(ranking), scores_of(plain.score(same, std::chrono::minutes(2)))) << user << ", " << turn;
    }
  EXPECT_EQ(divided->counters().scored, 48);
  EXPECT_GT(states.counters().evicted, 0);
  EXPECT_GT(divided->counters().refused(Refusal::unknown_user), 0);
  EXPECT_LE(states.counters().bytes, few.most_bytes);
}

/// A user whose states are larger after an exchange, and find no place.
TEST_F(RankClientUsersTest, SendsWholeRequestsOfUsersThatAreNotKept) {
  const auto bytes_of = [&](int user) {
    UserStates states;
    divided(states)->ask(about("user", whole(user, 0)));
    return states.counters().bytes;
  };
  ASSERT_LT(bytes_of(0), bytes_of(1));
  warprank::UserStatesOptions small;
  small.most_state_bytes = bytes_of(0) - UserStates::record_bytes;
  UserStates states(small);
  const std::unique_ptr<Running> divided = this->divided(states);
  const RankClient client(divided->channel(), "model");
  const auto is_kept = [&](int user) {
    Batch batch = batch_of(client, user, 0);
    return client.score_about("user", batch, std::chrono::minutes(2)).is_user_kept();
  };
  EXPECT_TRUE(is_kept(0));
  divided->load(warprank::SwapMode::full);
  for (int turn = 0; turn < 3; ++turn) EXPECT_FALSE(is_kept(1));
  EXPECT_EQ(divided->counters().refused(Refusal::unknown_user), 1);
  EXPECT_EQ(states.counters().refused, 3);
}

TEST(KnownUsers, AreThoseThatWereAskedForLast) {
  rank_client::KnownUsers users(2);
  EXPECT_FALSE(users.has("a"));
  users.add("a");
  users.add("b");
  EXPECT_TRUE(users.has("a"));
  users.add("c");  // in the place of b
  EXPECT_TRUE(users.has("a"));
  EXPECT_FALSE(users.has("b"));
  EXPECT_TRUE(users.has("c"));
  users.add("a");
  users.add("d");
  EXPECT_FALSE(users.has("c"));
  users.remove("a");
  users.remove("a");
  EXPECT_FALSE(users.has("a"));
  EXPECT_TRUE(users.has("d"));
  rank_client::KnownUsers nobody(0);
  nobody.add("a");
  EXPECT_FALSE(nobody.has("a"));
}

}}  // namespace kserve
