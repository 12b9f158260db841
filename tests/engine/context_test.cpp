// SPDX-License-Identifier: Apache-2.0
//
// What contexts, models and pending batches promise whichever engine is behind them: a backend of the test's own is
// done when the test says so.

#include "warprank/engine/context.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "warprank/engine/model.hpp"
#include "warprank/model.hpp"

namespace {

using namespace warprank;

/// What the backend was asked, and what it is to answer.
struct Script {
  bool is_ready = false;
  bool submit_fails = false, wait_fails = false;
  int num_submits = 0, num_waits = 0, num_alive = 0, num_rebinds = 0;
  std::optional<StreamHandle> stream = {};
};

class ScriptedContext : public ContextBackend {
 public:
  explicit ScriptedContext(Script& script) : script_(script) { ++script_.num_alive; }
  ~ScriptedContext() override { --script_.num_alive; }

  void submit(const Batch& batch, std::optional<StreamHandle> stream) override {
    if (script_.submit_fails) throw std::runtime_error("submit");
    EXPECT_TRUE(batch.closed());
    ++script_.num_submits;
    script_.stream = stream;
    scored_.clear();
    for (int64_t r = 0; r < batch.size(); ++r) scored_.push_back(r);
    outputs_ = {{"y", {values_.data(), 2, 1}, {offsets_.data(), 2}}};
  }
  bool ready() const override { return script_.is_ready; }
  void wait() override {
    ++script_.num_waits;
    if (script_.wait_fails) throw std::runtime_error("wait");
  }
  void rebind(std::shared_ptr<const ModelBackend>) override { ++script_.num_rebinds; }
  Span<const OutputView> outputs() const override { return outputs_; }
  Span<const int64_t> scored() const override { return scored_; }
  Matrix<const float> tap(int) override { return {values_.data(), 2, 1}; }
  std::vector<FeatureCounters> counters() const override { return {}; }
  MemoryReport memory() const override { return {}; }

 private:
  Script& script_;
  std::vector<float> values_{0.25f, 0.75f};
  std::vector<int64_t> offsets_{0, 1, 2};
  std::vector<OutputView> outputs_;
  std::vector<int64_t> scored_;
};

class ScriptedModel : public ModelBackend {
 public:
  explicit ScriptedModel(Script& script) : script_(script) {}
  std::unique_ptr<ContextBackend> make_context(const ContextOptions&) const override {
    return std::make_unique<ScriptedContext>(script_);
  }
  const TableStore* tables() const override { return nullptr; }
  HostAllocator batch_allocator() const override {
    HostAllocator allocator;
    allocator.allocate = [this](int64_t bytes) {
      ++num_allocations;
      return std::malloc(static_cast<size_t>(bytes));
    };
    return allocator;
  }
  MemoryReport memory() const override { return {}; }

  mutable int num_allocations = 0;

 private:
  Script& script_;
};

class Contexts : public testing::Test {
 protected:
  Contexts() {
    for (int i = 0; i < 2; ++i) batch_.add_request().dense(plan_.dense("x"), {1.0f});
  }
  Context make_context() { return model_.context(); }

  Script script_;
  const Plan plan_ = compile([](Builder& b) -> Outputs { return {{"y", b.sigmoid(b.dense("x", b.axis("user"), 1))}}; });
  std::shared_ptr<const ScriptedModel> backend_ = std::make_shared<ScriptedModel>(script_);
  const Model model_{plan_, backend_};
  Batch batch_ = plan_.batch();
};

TEST_F(Contexts, AreBusyUntilTheirBatchIsWaitedFor) {
  Context context = make_context();
  Pending pending = context.submit(batch_);
  EXPECT_FALSE(pending.ready());
  EXPECT_THROW(context.submit(batch_), std::logic_error);
  EXPECT_THROW(context.run(batch_), std::logic_error);
  EXPECT_THROW(context.counters(), std::logic_error);
  EXPECT_EQ(script_.num_submits, 1);
  script_.is_ready = true;
  EXPECT_TRUE(pending.ready());
  EXPECT_THROW(context.submit(batch_), std::logic_error) << "ready, and not waited for";
  const Scores scores = pending.wait();
  EXPECT_EQ(scores["y"].of(1)[0], 0.75f);
  EXPECT_EQ(script_.num_waits, 1);
  script_.is_ready = false;
  EXPECT_TRUE(pending.ready());
  EXPECT_THROW(pending.wait(), std::logic_error);
  context.run(batch_);
  EXPECT_EQ(script_.num_submits, 2);
  EXPECT_EQ(script_.num_waits, 2);
}

TEST_F(Contexts, AreFreeOnceAPendingBatchIsForgottenWhichWaits) {
  Context context = make_context();
  { const Pending pending = context.submit(batch_); }
  EXPECT_EQ(script_.num_waits, 1);
  script_.wait_fails = true;
  { const Pending pending = context.submit(batch_); }
  EXPECT_EQ(script_.num_waits, 2);
  script_.wait_fails = false;
  EXPECT_NO_THROW(context.run(batch_));
}

TEST_F(Contexts, AreFreeAfterAnError) {
  Context context = make_context();
  script_.submit_fails = true;
  EXPECT_THROW(context.submit(batch_), std::runtime_error);
  script_.submit_fails = false;
  script_.wait_fails = true;
  EXPECT_THROW(context.run(batch_), std::runtime_error);
  script_.wait_fails = false;
  EXPECT_NO_THROW(context.run(batch_));
  EXPECT_EQ(script_.num_waits, 2) << "a wait that has failed is not tried again";
}

TEST_F(Contexts, GiveAPendingBatchThatMayMove) {
  Context context = make_context();
  std::optional<Pending> first(context.submit(batch_));
  Pending second = std::move(*first);
  first.reset();
  EXPECT_EQ(script_.num_waits, 0);
  EXPECT_THROW(context.run(batch_), std::logic_error);
  second.wait();
  EXPECT_EQ(script_.num_waits, 1);
}

TEST_F(Contexts, MayGoBeforeTheirBatchIsDone) {
  std::optional<Context> context(make_context());
  {
    Pending pending = context->submit(batch_);
    Context moved = std::move(*context);
    context.reset();
    EXPECT_THROW(moved.run(batch_), std::logic_error);
    { const Context last = std::move(moved); }
    EXPECT_EQ(script_.num_alive, 1);
    EXPECT_EQ(pending.wait()["y"].of(0)[0], 0.25f);
    EXPECT_EQ(script_.num_alive, 1) << "the scores are there";
  }
  EXPECT_EQ(script_.num_alive, 0);
}

TEST_F(Contexts, PassTheCallersStreamOn) {
  Context context = make_context();
  auto* const stream = reinterpret_cast<StreamHandle>(&script_);
  context.submit(batch_, stream).wait();
  EXPECT_EQ(script_.stream, stream);
  context.submit(batch_).wait();
  EXPECT_EQ(script_.stream, std::nullopt) << "the context's own";
  context.submit(batch_, nullptr).wait();
  EXPECT_EQ(script_.stream, std::optional<StreamHandle>(nullptr)) << "the default stream";
}

TEST_F(Contexts, RefuseWhatIsOfAnotherPlanBeforeAnythingElse) {
  const Plan other = compile([](Builder& b) -> Outputs { return {{"y", b.dense("z", b.axis("user"), 1)}}; });
  Batch foreign = other.batch();
  Context context = make_context();
  EXPECT_THROW(context.submit(foreign), invalid_argument);
  EXPECT_FALSE(foreign.closed());
  EXPECT_EQ(script_.num_submits, 0);
  Graph graph = plan_.source();
  graph.dense[0].wire = DenseWire::f16;
  Batch narrow{BatchLayout(graph)};
  EXPECT_EQ(test_support::message_of([&] { context.submit(narrow); }),
            "batch: expected one of this plan's axes and inputs, got one that holds inputs in other types");
}

TEST_F(Contexts, TakeAnotherModelOfTheirPlanBetweenBatches) {
  Context context = make_context();
  {
    const Pending pending = context.submit(batch_);
    EXPECT_THROW(context.rebind(model_), std::logic_error);
  }
  const Plan other = compile([](Builder& b) -> Outputs { return {{"y", b.dense("x", b.axis("user"), 1)}}; });
  EXPECT_THROW(context.rebind(Model(other, backend_)), invalid_argument);
  EXPECT_EQ(script_.num_rebinds, 0);
  context.rebind(model_);
  EXPECT_EQ(script_.num_rebinds, 1);
  EXPECT_NO_THROW(context.run(batch_));
}

TEST_F(Contexts, TapOnlyBetweenRuns) {
  Context context = model_.context({true});
  Pending pending = context.submit(batch_);
  const std::string node = plan_.graph().nodes.back().name;
  EXPECT_THROW(context.tap(node), std::logic_error);
  pending.wait();
  EXPECT_EQ(context.tap(node).rows, 2);
}

TEST_F(Contexts, ModelsGiveBatchesInTheMemoryTheirDeviceLikes) {
  Batch batch = model_.batch();
  batch.add_request().dense(plan_.dense("x"), {1.0f});
  batch.close();
  EXPECT_EQ(backend_->num_allocations, 1);
  EXPECT_EQ(batch.index().max_requests(), 1);
  EXPECT_NO_THROW(make_context().run(batch));
}

}  // namespace
