// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/allocation_counter.hpp"
#include "support/wait_until.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"

namespace {

using namespace warprank;

/// What a gated engine did, and whether it may go on.
class Gate {
 public:
  void open() {
    set([&] { is_open_ = true; });
  }
  void fail_next(std::function<void()> raise) {
    set([&] { raise_ = std::move(raise); });
  }
  void wait_for_batches(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return batches_.size() >= count; });
  }
  /// Items of each request of each batch.
  std::vector<std::vector<int64_t>> batches() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return batches_;
  }
  void enter(std::vector<int64_t> items) {
    std::unique_lock<std::mutex> lock(mutex_);
    batches_.push_back(std::move(items));
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
    if (raise_) std::exchange(raise_, nullptr)();
  }

 private:
  template <class Change>
  void set(Change change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<int64_t>> batches_;
  bool is_open_ = false;
  std::function<void()> raise_;
};

/// Passes its input through, once the gate is open.
class GatedContext : public ContextBackend {
 public:
  explicit GatedContext(Gate& gate) : gate_(gate) {}

  void submit(const Batch& batch, std::optional<StreamHandle>) override {
    values_.clear();
    scored_.clear();
    std::vector<int64_t> items;
    for (int64_t r = 0; r < batch.size(); ++r) {
      const Span<const float> x = batch.blob(r).dense(batch.layout().dense("x"));
      values_.insert(values_.end(), x.begin(), x.end());
      items.push_back(x.size());
      scored_.push_back(r);
    }
    const Span<const int64_t> starts = batch.row_starts({1});
    starts_.assign(starts.begin(), starts.end());
    outputs_ = {{"y",
                 {values_.data(), static_cast<int64_t>(values_.size()), 1},
                 {starts_.data(), static_cast<int64_t>(starts_.size()) - 1}}};
    gate_.enter(std::move(items));
  }
  bool ready() const override { return true; }
  void wait() override {}
  void rebind(std::shared_ptr<const ModelBackend>) override {}
  Span<const OutputView> outputs() const override { return outputs_; }
  Span<const int64_t> scored() const override { return scored_; }
  Matrix<const float> tap(int) override { return {}; }
  std::vector<FeatureCounters> counters() const override { return {}; }
  MemoryReport memory() const override { return {}; }

 private:
  Gate& gate_;
  std::vector<float> values_;
  std::vector<int64_t> starts_, scored_;
  std::vector<OutputView> outputs_;
};

class GatedModel : public ModelBackend {
 public:
  GatedModel(Gate& gate, Tables tables) : gate_(gate), tables_(std::move(tables)) {}
  std::unique_ptr<ContextBackend> make_context(const ContextOptions&) const override {
    return std::make_unique<GatedContext>(gate_);
  }
  const TableStore* tables() const override { return tables_.store().get(); }
  MemoryReport memory() const override { return {}; }

 private:
  Gate& gate_;
  Tables tables_;
};

/// A service of one worker, which is held at its first batch, of one request with one item.
class HeldService : public testing::Test {
 protected:
  void hold(const ServiceOptions& options) {
    service_ = std::make_unique<RankingService>(served_, options);
    first_ = ask({1.0f});
    gate_.wait_for_batches(1);
  }
  ~HeldService() override { gate_.open(); }

  std::future<Reply> ask(std::vector<float> values, const CallOptions& how = {}) {
    return service_->score([&](Request request) { request.dense(x_, values); }, how);
  }
  static CallOptions within(std::chrono::milliseconds time, Priority priority = Priority::normal) {
    return {.deadline = std::chrono::steady_clock::now() + time, .priority = priority};
  }
  static std::vector<float> items(size_t count) { return std::vector<float>(count, 0.5f); }

  Gate gate_;
  const Plan plan_ = compile(
      [](Builder& b) -> Outputs {
        auto user = b.axis("user"), item = b.axis("item", user);
        return {{"y", b.sigmoid(b.dense("x", item, 1))}};
      },
      {.capacities = {{.requests = 2, .items = 100}, {.requests = 4, .items = 40}}});
  const Tables tables_ = Tables::load(plan_, Weights::from_tensors({}), host());
  ServedModel served_{Model(plan_, std::make_shared<const GatedModel>(gate_, tables_)), tables_, {.contexts = 1}};
  const DenseSlot x_ = plan_.dense("x");
  std::unique_ptr<RankingService> service_;
  std::future<Reply> first_;
};

TEST_F(HeldService, MergesWhatWaitsAsFarAsOneOfTheCapacitiesGoes) {
  hold({});
  std::vector<std::future<Reply>> replies;
  for (const size_t count : {10, 10, 10, 10, 1, 99, 10, 10, 10, 11, 300, 5})
    replies.push_back(ask(std::vector<float>(count, static_cast<float>(count))));
  gate_.open();
  for (std::future<Reply>& reply : replies) {
    const std::vector<std::vector<float>> scores = reply.get().scores;
    ASSERT_EQ(scores.size(), 1u);
    EXPECT_EQ(scores[0], std::vector<float>(scores[0].size(), static_cast<float>(scores[0].size())));
  }
  using Batches = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(gate_.batches(), (Batches{{1}, {10, 10, 10, 10}, {1, 99}, {10, 10, 10}, {11, 5}, {300}}));
  EXPECT_EQ(service_->counters().batches, 6);
}

TEST_F(HeldService, MergesNoMoreThanItsOptionsSay) {
  hold({.most_merged = 3});
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 4; ++i) replies.push_back(ask(items(1)));
  gate_.open();
  for (std::future<Reply>& reply : replies) EXPECT_EQ(reply.get().outcome, Outcome::scored);
  EXPECT_EQ(gate_.batches(), (std::vector<std::vector<int64_t>>{{1}, {1, 1, 1}, {1}}));
}

TEST_F(HeldService, RefusesAtOnceWhatIsBeyondItsQueueAndTakesRequestsAgainAfterwards) {
  hold({.most_waiting = 3});
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(ask(items(1)));
  bool filled = false;
  std::future<Reply> refused = service_->score([&](Request) { filled = true; });
  ASSERT_EQ(refused.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "the worker is held";
  const Reply reply = refused.get();
  EXPECT_EQ(reply.outcome, Outcome::refused);
  EXPECT_EQ(reply.message, "too many requests are waiting");
  EXPECT_FALSE(filled) << "nothing is packed for what is refused";
  gate_.open();
  for (std::future<Reply>& waiting : replies) EXPECT_EQ(waiting.get().outcome, Outcome::scored);
  EXPECT_EQ(ask(items(2)).get().outcome, Outcome::scored);
  EXPECT_EQ(service_->counters().refused(Refusal::full), 1);
  EXPECT_EQ(service_->counters().scored, 5);
}

TEST_F(HeldService, ForgetsCallsThatAreCancelled) {
  hold({.most_waiting = 101, .most_merged = 1});
  std::vector<uint64_t> calls;
  std::vector<std::future<Reply>> cancelled;
  for (int i = 0; i < 50; ++i) {
    calls.push_back(service_->new_call());
    for (int r = 0; r < 2; ++r) cancelled.push_back(ask(items(2), {.call = calls.back()}));
  }
  std::future<Reply> live = ask(items(3), {.call = service_->new_call()});
  EXPECT_EQ(service_->waiting(), 101);
  for (const uint64_t call : calls) EXPECT_EQ(service_->cancel(call), 2);
  for (std::future<Reply>& reply : cancelled) {
    ASSERT_EQ(reply.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "the worker is held";
    const Reply got = reply.get();
    EXPECT_EQ(got.outcome, Outcome::refused);
    EXPECT_EQ(got.refusal, Refusal::cancelled);
    EXPECT_EQ(got.message, "it was cancelled");
  }
  EXPECT_EQ(service_->waiting(), 1);
  EXPECT_EQ(service_->cancel(calls[0]), 0) << "nothing of it is left";
  EXPECT_EQ(service_->cancel(0), 0) << "of calls without a number none is";
  for (int i = 0; i < 100; ++i) cancelled[static_cast<size_t>(i)] = ask(items(4), {.call = calls[0]});
  EXPECT_EQ(service_->cancel(calls[0]), 100) << "the places were free again";
  gate_.open();
  EXPECT_EQ(live.get().outcome, Outcome::scored);
  service_->stop();
  EXPECT_EQ(gate_.batches(), (std::vector<std::vector<int64_t>>{{1}, {3}})) << "nothing is computed in vain";
  EXPECT_EQ(service_->counters().refused(Refusal::cancelled), 200);
  EXPECT_EQ(service_->counters().refused(), 200);
}

TEST_F(HeldService, FreesThePlaceOfARequestAboveAllCapacitiesThatFails) {
  hold({});
  gate_.open();
  EXPECT_EQ(first_.get().outcome, Outcome::scored);
  gate_.fail_next([] { throw std::bad_alloc(); });
  EXPECT_EQ(ask(items(300)).get().outcome, Outcome::failed);
  EXPECT_EQ(ask(items(300)).get().outcome, Outcome::scored) << "there is one worker, so one place";
}

TEST_F(HeldService, RefusesWhatCannotMakeItsDeadlineAtOnceOrWhenAWorkerSeesIt) {
  hold({});
  bool filled = false;
  const CallOptions over = within(std::chrono::milliseconds(-1));
  std::future<Reply> refused = service_->score([&](Request) { filled = true; }, over);
  ASSERT_EQ(refused.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "the worker is held";
  const Reply reply = refused.get();
  EXPECT_EQ(reply.outcome, Outcome::refused);
  EXPECT_EQ(reply.refusal, Refusal::late);
  EXPECT_EQ(reply.message, "it could not be scored before its deadline");
  EXPECT_FALSE(filled) << "nothing is packed for what is refused";

  std::future<Reply> in_time = ask(items(2), within(std::chrono::hours(1)));
  std::future<Reply> late = ask(items(3), within(std::chrono::milliseconds(5)));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  gate_.open();
  EXPECT_EQ(late.get().refusal, Refusal::late);
  EXPECT_EQ(in_time.get().outcome, Outcome::scored);
  service_->stop();
  EXPECT_EQ(gate_.batches(), (std::vector<std::vector<int64_t>>{{1}, {2}})) << "nothing is computed in vain";
  EXPECT_EQ(service_->counters().refused(Refusal::late), 2);
  EXPECT_EQ(service_->counters().refused(), 2);
  EXPECT_EQ(service_->counters().scored, 2);
}

TEST_F(HeldService, TriesWhateverHasTimeLeftWhenItHasNothingToDo) {
  hold({});
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  gate_.open();
  EXPECT_EQ(first_.get().outcome, Outcome::scored);
  // Not before the worker waits again, nor where the machine is too busy.
  Reply reply;
  EXPECT_TRUE(test_support::wait_until([&] {
    reply = ask(items(1), within(std::chrono::milliseconds(350))).get();
    return reply.outcome == Outcome::scored;
  })) << "the batch before took 400 ms: "
      << reply.message;
}

TEST_F(HeldService, ScoresHighPriorityFirstAndLetsItTakeThePlacesOfOthers) {
  hold({.most_waiting = 2, .most_merged = 1});
  std::future<Reply> older = ask(items(2)), younger = ask(items(3));
  std::future<Reply> high = ask(items(4), {.priority = Priority::high});
  ASSERT_EQ(younger.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  const Reply displaced = younger.get();
  EXPECT_EQ(displaced.outcome, Outcome::refused);
  EXPECT_EQ(displaced.refusal, Refusal::displaced);
  std::future<Reply> second = ask(items(5), {.priority = Priority::high});
  EXPECT_EQ(older.get().refusal, Refusal::displaced);
  EXPECT_EQ(ask(items(6), {.priority = Priority::high}).get().refusal, Refusal::full) << "none of a lower one is left";
  EXPECT_EQ(ask(items(7)).get().refusal, Refusal::full);
  EXPECT_EQ(service_->waiting(), 2);
  gate_.open();
  EXPECT_EQ(high.get().outcome, Outcome::scored);
  EXPECT_EQ(second.get().outcome, Outcome::scored);
  EXPECT_EQ(ask(items(8)).get().outcome, Outcome::scored) << "the places are free again";
  EXPECT_EQ(gate_.batches(), (std::vector<std::vector<int64_t>>{{1}, {4}, {5}, {8}}));
  EXPECT_EQ(service_->counters().refused(Refusal::displaced), 2);
  EXPECT_EQ(service_->counters().refused(Refusal::full), 2);
}

TEST_F(HeldService, WaitsForMoreRequestsWhenItIsToldTo) {
  gate_.open();
  const auto serve = [&](std::chrono::microseconds most_wait) {
    service_ = nullptr;
    service_ = std::make_unique<RankingService>(served_, ServiceOptions{.most_merged = 3, .most_wait = most_wait});
  };
  serve(std::chrono::minutes(1));
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(ask(items(1)));
  for (std::future<Reply>& reply : replies) EXPECT_EQ(reply.get().merged, 3);
  serve(std::chrono::milliseconds(50));
  const Reply alone = ask(items(1)).get();
  EXPECT_EQ(alone.merged, 1);
  EXPECT_GE(alone.waited_seconds, 0.05);
}

TEST_F(HeldService, KeepsAWorkerFreeOfRequestsAboveAllCapacities) {
  ServedModel served(Model(plan_, std::make_shared<const GatedModel>(gate_, tables_)), tables_, {.contexts = 2});
  RankingService service(served);
  const auto ask_it = [&](size_t count) {
    return service.score([&](Request request) { request.dense(x_, items(count)); });
  };
  std::vector<std::future<Reply>> huge;
  for (int i = 0; i < 3; ++i) huge.push_back(ask_it(300));
  gate_.wait_for_batches(1);
  std::future<Reply> small = ask_it(1);
  gate_.wait_for_batches(2);
  EXPECT_EQ(gate_.batches(), (std::vector<std::vector<int64_t>>{{300}, {1}}));
  gate_.open();
  EXPECT_EQ(small.get().outcome, Outcome::scored);
  for (std::future<Reply>& reply : huge) EXPECT_EQ(reply.get().outcome, Outcome::scored);
}

TEST_F(HeldService, TellsWhichModelScoredARequestAndWhatItTook) {
  hold({});
  std::future<Reply> waiting = ask(items(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate_.open();
  const Reply first = first_.get(), second = waiting.get();
  EXPECT_EQ(first.version, 1);
  EXPECT_EQ(first.merged, 1);
  EXPECT_GE(first.computed_seconds, 0.005) << "it was held";
  EXPECT_GE(second.waited_seconds, 0.005);
}

TEST_F(HeldService, AnswersBadRequestsWithTheirStatusBeforeTheyWait) {
  hold({.most_waiting = 2});
  for (int i = 0; i < 5; ++i) {  // they give their places back
    const Reply bad = ask({1.0f, std::numeric_limits<float>::infinity()}).get();
    EXPECT_EQ(bad.outcome, Outcome::bad_request);
    EXPECT_NE(bad.message.find("'x'"), std::string::npos) << bad.message;
  }
  std::future<Reply> good = ask({0.25f, 0.75f});
  std::promise<Reply> no_blob;
  service_->score_blob({}, [&](Reply reply) { no_blob.set_value(std::move(reply)); });
  EXPECT_EQ(no_blob.get_future().get().outcome, Outcome::bad_request);
  gate_.open();
  EXPECT_EQ(good.get().scores, (std::vector<std::vector<float>>{{0.25f, 0.75f}}));
  EXPECT_EQ(service_->counters().bad, 6);
}

TEST_F(HeldService, RefusesRequestsOfMoreRowsThanItTakes) {
  hold({.most_waiting = 2, .most_request_rows = 3});
  std::future<Reply> good = ask(items(3));
  const Reply bad = ask(items(4)).get();
  EXPECT_EQ(bad.outcome, Outcome::bad_request);
  EXPECT_EQ(bad.message, "rows of 'item': expected at most 3, got 4");
  gate_.open();
  EXPECT_EQ(good.get().scores, (std::vector<std::vector<float>>{items(3)}));
  EXPECT_EQ(service_->counters().bad, 1);
}

TEST_F(HeldService, ScoresBlobsThatClientsPacked) {
  hold({});
  gate_.open();
  Batch packed = plan_.batch();
  packed.add_request().dense(x_, {0.5f, 0.125f});
  packed.close();
  const BlobView blob = packed.blob(0);
  std::promise<Reply> reply;
  service_->score_blob({blob.data(), blob.bytes()}, [&](Reply result) { reply.set_value(std::move(result)); });
  EXPECT_EQ(reply.get_future().get().scores, (std::vector<std::vector<float>>{{0.5f, 0.125f}}));
}

TEST_F(HeldService, CompletesWhatWaitsWhenItStopsAndRefusesTheRest) {
  hold({});
  std::vector<std::future<Reply>> replies;
  for (size_t i = 0; i < 30; ++i) replies.push_back(ask(items(i)));

  std::promise<void> packing, may_pack;
  std::future<Reply> in_packing;
  std::thread slow([&] {
    in_packing = service_->score([&](Request request) {
      packing.set_value();
      may_pack.get_future().wait();
      request.dense(x_, {0.75f});
    });
  });
  packing.get_future().wait();
  std::future<void> stopped = std::async(std::launch::async, [&] { service_->stop(); });
  Reply late;
  do {
    late = ask(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}).get();
  } while (late.outcome == Outcome::bad_request);  // until the other thread has begun to stop it
  EXPECT_EQ(late.outcome, Outcome::refused);
  EXPECT_EQ(late.message, "the service is stopping");
  gate_.open();
  for (size_t i = 0; i < replies.size(); ++i)
    EXPECT_EQ(replies[i].get().scores, (std::vector<std::vector<float>>{items(i)}));
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout)
      << "one is still being packed";
  may_pack.set_value();
  stopped.wait();
  slow.join();
  EXPECT_EQ(in_packing.get().scores, (std::vector<std::vector<float>>{{0.75f}}));
  EXPECT_EQ(ask(items(1)).get().outcome, Outcome::refused);
  service_->stop();  // the second time does nothing
}

TEST_F(HeldService, AnswersABatchThatTheEngineCouldNotRunAndGoesOn) {
  hold({});
  gate_.fail_next([] { throw std::runtime_error("the card has fallen off the bus"); });
  gate_.open();
  const Reply failed = first_.get();
  EXPECT_EQ(failed.outcome, Outcome::failed);
  EXPECT_EQ(failed.message, "the card has fallen off the bus");
  gate_.fail_next([] { throw 42; });  // a function of the user's may
  const Reply unknown = ask(items(2)).get();
  EXPECT_EQ(unknown.outcome, Outcome::failed);
  EXPECT_EQ(unknown.message, "an error of an unknown type");
  EXPECT_EQ(ask(items(3)).get().outcome, Outcome::scored);
  EXPECT_EQ(service_->counters().failed, 2);
  EXPECT_EQ(service_->counters().scored, 1);
  EXPECT_EQ(service_->counters().batches, 1);
}

TEST_F(HeldService, GoesOnWhenThereIsNoMemory) {
  hold({});
  gate_.open();
  first_.get();
  int64_t num_failed = 0;
  for (bool has_failed = true; has_failed; num_failed += has_failed) {
    SCOPED_TRACE(num_failed);
    const std::vector<float> large = items(100 + 10 * static_cast<size_t>(num_failed));  // the buffers must grow
    std::string message;
    {
      const test_support::FailingAllocation failing(num_failed);
      try {
        Reply reply = ask(large).get();
        message.swap(reply.message);
      } catch (const std::bad_alloc& error) {
        message = error.what();
      }
      has_failed = test_support::FailingAllocation::has_failed();
    }
    EXPECT_EQ(message, has_failed ? "std::bad_alloc" : "");
  }
  EXPECT_GT(num_failed, 5);
  EXPECT_EQ(ask(items(3)).get().scores, (std::vector<std::vector<float>>{items(3)}));
  EXPECT_GT(service_->counters().failed, 0);
}

TEST_F(HeldService, MayBeStoppedBySeveralThreadsAtOnce) {
  hold({});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { service_->stop(); });
  gate_.open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_.get().outcome, Outcome::scored);
}

TEST_F(HeldService, TellsMistakesOfTheProgramToTheThreadThatMakesThem) {
  hold({.most_waiting = 1});
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW(service_->score([&](Request request) { request.dense(DenseSlot{7}, {1.0f}); }), invalid_argument);
  std::future<Reply> reply = ask(items(1));  // the place is free again
  gate_.open();
  EXPECT_EQ(reply.get().outcome, Outcome::scored);
  EXPECT_THROW(RankingService(served_, {.most_waiting = 0}), invalid_argument);
  EXPECT_THROW(RankingService(served_, {.most_merged = -1}), invalid_argument);
  EXPECT_THROW(RankingService(served_, {.most_rows = 0}), invalid_argument);
  EXPECT_THROW(RankingService(served_, {.most_wait = std::chrono::microseconds(-1)}), invalid_argument);
  EXPECT_THROW(RankingService(served_, {.most_wait = std::chrono::minutes(2)}), invalid_argument);
}

}  // namespace
