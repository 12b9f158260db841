// SPDX-License-Identifier: Apache-2.0
//
// examples/rank_client against the server. That it packs what the library packs is for tests/client.

#include "../../examples/rank_client/client.hpp"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "examples/server_testing.hpp"
#include "support/message_of.hpp"

namespace kserve { namespace {

using rank_client::call_failed;
using rank_client::RankClient;
using rank_client::Ranking;
using testing::ElementsAre;
using testing::HasSubstr;
using warprank::test_support::message_of;

class RankClientTest : public GrpcServerTest {
 protected:
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials());
  }
};

TEST_F(RankClientTest, IsUsedAsDocumented) {
  start();
  const auto channel = this->channel();
  const std::vector<float> x = {0, 1, 2};

  RankClient client(channel, "model");
  warprank::Batch batch = client.batch();
  batch.add_request().dense(client.layout().dense("x"), x);
  const Ranking ranking = client.score(batch, std::chrono::seconds(20));
  const warprank::Span<const float> scores = ranking.of("y", 0);

  ASSERT_EQ(scores.size(), 3);
  for (int64_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(scores[i], sigmoid(x[static_cast<size_t>(i)]));
  EXPECT_EQ(ranking.version(), "1");
  EXPECT_THAT(ranking.outputs(), ElementsAre("y"));
  EXPECT_EQ(ranking.error(0), "");
}

TEST_F(RankClientTest, TellsWhichScoresAreOfWhichRequestAndWhatWentWrong) {
  start();
  const RankClient client(channel(), "model");
  warprank::Batch batch = client.batch();
  const auto add = [&](const std::vector<float>& x) { batch.add_request().dense(client.layout().dense("x"), x); };
  add({1, 2});
  add(std::vector<float>(201));
  add({});
  add({3});
  const Ranking ranking = client.score(batch, std::chrono::seconds(20), true);
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < 4; ++r) rows.push_back(ranking.of("y", r).size());
  EXPECT_THAT(rows, ElementsAre(2, 0, 0, 1));
  EXPECT_FLOAT_EQ(ranking.of("y", 3)[0], sigmoid(3));
  EXPECT_EQ(ranking.error(1), "rows of 'item': expected at most 200, got 201");
  EXPECT_EQ(ranking.error(2), "");
  EXPECT_THROW(ranking.of("z", 0), std::out_of_range);
  EXPECT_THROW(ranking.of("y", 4), std::out_of_range);
}

TEST_F(RankClientTest, PassesOnWhatTheServerSays) {
  start({.token = "secret"});
  const auto code_of = [](const auto& call) {
    try {
      call();
    } catch (const call_failed& error) {
      return error.status().error_code();
    }
    return grpc::StatusCode::OK;
  };
  EXPECT_EQ(code_of([&] { RankClient(channel(), "model"); }), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code_of([&] { RankClient(channel(), "other", "secret"); }), grpc::StatusCode::NOT_FOUND);
  const RankClient client(channel(), "model", "secret");
  warprank::Batch batch = client.batch();
  batch.add_request().dense(client.layout().dense("x"), {1.0f});
  hosted_.unload();
  EXPECT_EQ(code_of([&] { client.score(batch, std::chrono::seconds(20)); }), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RankClientTest, SendsNoRequestThatIsWrong) {
  start();
  const RankClient client(channel(), "model");
  warprank::Batch batch = client.batch();
  batch.add_request().dense(client.layout().dense("x"), {1.0f});
  batch.add_request().dense(client.layout().dense("x"), {std::numeric_limits<float>::infinity()});
  EXPECT_THAT(message_of([&] { client.score(batch, std::chrono::seconds(20)); }), HasSubstr("request 1: expected"));
  EXPECT_EQ(hosted_.service().counters().scored, 0);
}

TEST(LayoutJson, ComesBackAsItWas) {
  EXPECT_THAT(message_of([] { layout_of("{}"); }), HasSubstr("layout of requests: expected JSON as a warprank server"));
  EXPECT_THAT(message_of([] { layout_of("no JSON"); }), HasSubstr("layout of requests: expected JSON"));
  EXPECT_THAT(message_of([] { layout_of(R"({"axes": [{"name": "a", "parent": 5}], "ids": [], "dense": []})"); }),
              HasSubstr("axis"));
}

}}  // namespace kserve
