// SPDX-License-Identifier: Apache-2.0

/// ContextOptions::threads on the host: how steps are divided, and that nothing else changes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocation_counter.hpp"
#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "support/random_fold.hpp"
#include "support/random_model.hpp"
#include "warprank/engine/host/model.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"

namespace warprank { namespace {

using host_backend::ContextThreads;
using host_backend::Team;

TEST(Team, DoesEachPartOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Team team(threads);
    EXPECT_EQ(team.size(), threads);
    for (int turn = 0; turn < 2000; ++turn) {
      const int parts = 1 + turn % 11;
      std::vector<std::atomic<int>> done(static_cast<size_t>(parts));
      team.run(parts, [&](int part) { ++done[static_cast<size_t>(part)]; });
      for (const std::atomic<int>& times : done) ASSERT_EQ(times, 1);
    }
  }
}

TEST(Team, GivesPartsToOtherThreadsAlsoAfterTheySlept) {
  Team team(2);
  for (int turn = 0; turn < 3; ++turn) {
    std::atomic<int> begun{0};
    const auto wait_for_the_other = [&](int) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
    };
    team.run(2, wait_for_the_other);  // ends only if two threads take part
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(Team, DoesAllPartsAndPassesOneExceptionOn) {
  Team team(3);
  for (int turn = 0; turn < 50; ++turn) {
    std::atomic<int> done{0};
    const auto fail = [&](int part) {
      ++done;
      if (part % 2 == 1) throw std::runtime_error("an odd part");
    };
    EXPECT_EQ(test_support::message_of([&] { team.run(6, fail); }), "an odd part");
    EXPECT_EQ(done, 6);
    team.run(3, [&](int) { ++done; });
    EXPECT_EQ(done, 9);
  }
}

/// A model with contexts that divide each step, however small.
struct Divided {
  Divided(const Plan& plan, uint32_t seed) {
    options.custom = {{"fold", test_support::fold_on_host}};
    const Engine& engine = host_engine();
    const Weights table_weights = test_support::random_tables(plan, 50, seed);
    model = std::make_unique<host_backend::HostModel>(plan, test_support::random_weights(plan, seed),
                                                      engine.load_tables(plan, table_weights, {}, {}, 0), options);
  }
  std::unique_ptr<host_backend::HostContext> context(int threads, const ContextOptions& with = {}) const {
    return std::make_unique<host_backend::HostContext>(model->data(), with, ContextThreads{threads, 0});
  }

  BindOptions options;
  std::unique_ptr<host_backend::HostModel> model;
};

std::vector<std::vector<float>> scores_of(host_backend::HostContext& context, const Batch& batch) {
  context.submit(batch, {});
  context.wait();
  std::vector<std::vector<float>> all;
  for (const OutputView& output : context.outputs())
    all.emplace_back(output.values.data, output.values.data + output.values.rows * output.values.cols);
  return all;
}

std::vector<int64_t> numbers_of(const host_backend::HostContext& context) {
  std::vector<int64_t> all;
  for (const auto& [feature, counters] : context.counters())
    for (const int64_t number :
         {counters.ids, counters.unknown, counters.out_of_range, counters.padding, counters.empty_bags})
      all.push_back(number);
  return all;
}

TEST(HostThreads, ChangeNoBitOfRandomModelsAndNoCounter) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan = compile(test_support::RandomModel(seed, true));
    const Divided divided(plan, seed);
    const auto alone = divided.context(1);
    const auto team = divided.context(2 + static_cast<int>(seed % 4));
    for (const int64_t requests : {1, 0, 3, 2}) {
      test_support::RequestShape shape;
      shape.most_rows = requests == 1 ? 20 : 6;
      const Batch batch = test_support::random_batch(plan, requests, shape, seed);
      ASSERT_EQ(scores_of(*team, batch), scores_of(*alone, batch)) << requests << " requests\n" << plan.describe();
    }
    ASSERT_EQ(numbers_of(*team), numbers_of(*alone)) << plan.describe();
  }
}

TEST(HostThreads, ChangeNoValueThatATapShows) {
  const Plan plan = compile(test_support::RandomModel(8, true));
  const Divided divided(plan, 8);
  ContextOptions keep;
  keep.keep_intermediates = true;
  const auto alone = divided.context(1, keep), team = divided.context(3, keep);
  const Batch batch = test_support::random_batch(plan, 4, {}, 8);
  scores_of(*alone, batch);
  scores_of(*team, batch);
  for (size_t n = 0; n < plan.graph().nodes.size(); ++n) {
    const Matrix<const float> expected = alone->tap(static_cast<int>(n)), got = team->tap(static_cast<int>(n));
    ASSERT_EQ(got.rows, expected.rows);
    for (int64_t r = 0; r < got.rows; ++r)
      ASSERT_TRUE(std::equal(got.row(r), got.row(r) + got.cols, expected.row(r))) << plan.graph().nodes[n].name;
  }
}

/// HSTU's events attend to one another, so their heads are divided; windows, and more threads than heads, too.
TEST(HostThreads, DivideHeadsOfSelfAttention) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user), history = b.axis("history", user);
    const auto events = b.dense("events", history, 12), items = b.dense("items", item, 12);
    const HstuOptions options{.heads = 3, .max_length = 40, .window = 4};
    const auto sequence = b.hstu("second", b.hstu("first", {events, items}, options), options);
    return {{"score", b.linear("head", sequence.back(), 1)}};
  });
  const Divided divided(plan, 1);
  const auto alone = divided.context(1);
  for (const int threads : {2, 3, 5}) {
    const auto team = divided.context(threads);
    for (const int64_t requests : {1, 2, 3}) {
      test_support::RequestShape shape;
      shape.most_rows = 40;
      const Batch batch = test_support::random_batch(plan, requests, shape, 1);
      EXPECT_EQ(scores_of(*team, batch), scores_of(*alone, batch))
          << threads << " threads, " << requests << " requests";
    }
  }
}

TEST(HostThreads, AllocateNothingOnceTheyHaveSeenABatchAsLarge) {
  const Plan plan = compile(test_support::RandomModel(3));
  const auto team = Divided(plan, 3).context(3);
  const Batch large = test_support::random_batch(plan, 9, {}, 4), small = test_support::random_batch(plan, 2, {}, 5);
  team->submit(large, {});
  const int64_t before = test_support::num_allocations;
  for (int i = 0; i < 3; ++i) {
    team->submit(small, {});
    team->submit(large, {});
  }
  EXPECT_EQ(test_support::num_allocations, before);
}

TEST(HostThreads, AreNoMoreThanThereAreCoresAndAreSaid) {
  const Plan plan = compile(test_support::RandomModel(3));
  const Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, 3), host());
  const Model model = Model::bind(plan, test_support::random_weights(plan, 3), tables);
  const auto described = [&](int threads) {
    ContextOptions options;
    options.threads = threads;
    return model.context(options).describe();
  };
  EXPECT_EQ(described(1), "");
  const std::string cores = std::to_string(std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_EQ(described(1000), "a batch on " + cores + " threads in the place of 1000: there are no more cores\n");
  EXPECT_EQ(described(2), cores == "1" ? described(2) : "a batch on 2 threads\n");
  EXPECT_EQ(test_support::message_of([&] { described(0); }), "ContextOptions::threads: expected 1 or more, got 0");
  EXPECT_EQ(test_support::message_of([&] { described(-3); }), "ContextOptions::threads: expected 1 or more, got -3");
}

TEST(HostThreads, AreOfEachContextThatServes) {
  const Plan plan = compile(test_support::RandomModel(3));
  Tables tables = Tables::load(plan, test_support::random_tables(plan, 50, 3), host());
  Model model = Model::bind(plan, test_support::random_weights(plan, 3), tables);
  Batch batch = test_support::random_batch(plan, 3, {}, 3);
  Context context = model.context();
  const Matrix<const float> alone = context.run(batch)["score"].all();
  const std::vector<float> expected(alone.data, alone.data + alone.rows);

  ContextOptions options;
  options.threads = 4;
  ServedModel served(std::move(model), std::move(tables), {.contexts = 2, .context = options});
  const ContextLease first = served.acquire(), second = served.acquire();
  for (const ContextLease* lease : {&first, &second}) {
    EXPECT_THAT((*lease)->describe(), testing::StartsWith("a batch on "));
    const Matrix<const float> scores = (*lease)->run(batch)["score"].all();
    EXPECT_EQ(std::vector<float>(scores.data, scores.data + scores.rows), expected);
  }
}

}}  // namespace warprank
