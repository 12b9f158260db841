// SPDX-License-Identifier: Apache-2.0
//
// RankingService with models of the host engine.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../examples/movielens/generated.hpp"
#include "../../examples/movielens/inputs.hpp"
#include "../../examples/movielens/model.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"

namespace {

using namespace warprank;

TEST(RankingServiceOnTheHost, ScoresEachRequestAsAContextAloneDoesWhileModelsAreSwapped) {
  const Plan plan = compile(movielens::din_mmoe, {.capacities = {{.requests = 8, .items = 600}}});
  const std::string weights = WARPRANK_TEST_DATA "/../examples/movielens/weights";
  const Weights dense = Weights::open(weights + "/dense.safetensors");
  const Weights rows = Weights::open(weights + "/tables.safetensors");
  const movielens::Inputs inputs(plan);
  const movielens::Data data = movielens::generate();
  const movielens::Features features(data);

  constexpr size_t num_requests = 40, num_clients = 4;
  std::vector<movielens::RequestFeatures> requests;
  std::vector<std::vector<std::vector<float>>> alone;  // [requests][outputs]
  Context context = Model::bind(plan, dense, Tables::load(plan, rows, host())).context();
  Batch batch = plan.batch();
  for (size_t r = 0; r < num_requests; ++r) {
    std::vector<int64_t> films = features.unseen_films(static_cast<int64_t>(r));
    films.resize(r * 7);  // from none; above the capacity when three or more of the last ones meet
    requests.push_back(features.request(static_cast<int64_t>(r), films));
    batch.clear();
    const Request request = batch.add_request();
    inputs.fill(request, requests.back());
    const Scores scores = context.run(batch);
    alone.emplace_back();
    for (const char* output : {"ctr", "ctcvr"}) {
      const Span<const float> values = scores[output].of(request);
      alone.back().emplace_back(values.begin(), values.end());
      ASSERT_EQ(alone.back().back().size(), r * 7);
    }
  }

  Tables tables = Tables::load(plan, rows, host());
  Model model = Model::bind(plan, dense, tables);
  ServedModel served(std::move(model), std::move(tables), {.contexts = 2});
  RankingService service(served, {.most_waiting = 1000, .most_merged = 6});
  ASSERT_EQ(service.outputs(), (std::vector<std::string>{"ctr", "ctcvr"}));
  std::vector<std::vector<std::future<Reply>>> replies(num_clients);
  std::vector<std::future<Reply>> bad(num_clients);
  std::vector<std::thread> clients;
  for (size_t c = 0; c < num_clients; ++c)
    clients.emplace_back([&, c] {
      for (size_t r = 0; r < num_requests; ++r) {
        replies[c].push_back(service.score([&](Request request) { inputs.fill(request, requests[r]); }));
        if (r != num_requests / 2) continue;
        movielens::RequestFeatures wrong = requests[r];
        wrong.film_context[c] = std::numeric_limits<float>::quiet_NaN();
        bad[c] = service.score([&](Request request) { inputs.fill(request, wrong); });
      }
    });
  for (const SwapMode mode : {SwapMode::full, SwapMode::dense_and_rows, SwapMode::drain})
    served.swap({.dense = dense, .tables = mode == SwapMode::dense_and_rows ? Weights::from_tensors({}) : rows}, mode);
  for (std::thread& client : clients) client.join();
  for (size_t c = 0; c < num_clients; ++c) {
    for (size_t r = 0; r < num_requests; ++r) {
      const Reply reply = replies[c][r].get();
      ASSERT_EQ(reply.outcome, Outcome::scored) << reply.message;
      EXPECT_EQ(reply.scores, alone[r]) << "request " << r << " of client " << c;
    }
    const Reply reply = bad[c].get();
    EXPECT_EQ(reply.outcome, Outcome::bad_request);
    EXPECT_NE(reply.message.find("film_context"), std::string::npos) << reply.message;
    EXPECT_TRUE(reply.scores.empty());
  }
  const ServiceCounters counters = service.counters();
  EXPECT_EQ(counters.scored, static_cast<int64_t>(num_requests * num_clients));
  EXPECT_EQ(counters.bad, static_cast<int64_t>(num_clients));
  EXPECT_GE(counters.batches, counters.scored / 6);
  EXPECT_EQ(counters.refused() + counters.failed, 0);
}

TEST(RankingServiceOnTheHost, IsMadeAndAskedAsDocumented) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    auto user = b.axis("user"), item = b.axis("item", user);
    return {{"y", b.sigmoid(b.dense("x", item, 1))}};
  });
  Tables tables = Tables::load(plan, Weights::from_tensors({}), host());
  Model model = Model::bind(plan, Weights::from_tensors({}), tables);
  const auto fill = [&](Request request) { request.dense(plan.dense("x"), {0.0f, 100.0f}); };

  ServedModel served(std::move(model), std::move(tables), {.contexts = 4});
  RankingService service(served, {.most_waiting = 40, .most_merged = 16});

  CallOptions how;
  how.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  std::future<Reply> reply = service.score(fill, how);  // any thread; returns before it is scored
  const Reply got = reply.get();
  if (got.refusal == Refusal::late) return;  // on a machine that is busy with other things
  EXPECT_EQ(got.scores, (std::vector<std::vector<float>>{{0.5f, 1.0f}})) << got.message;
}

}  // namespace
