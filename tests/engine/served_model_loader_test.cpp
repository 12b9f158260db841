// SPDX-License-Identifier: Apache-2.0
//
// Where a swap does its work: on a thread that keeps no core from requests, at a pace.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using test_support::message_of;
using testing::HasSubstr;

/// Which threads did what.
struct Doing {
  std::string what;
  std::thread::id thread;
  int policy, nice;
};

class Diary {
 public:
  void write(const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back({what, std::this_thread::get_id(), sched_getscheduler(0), getpriority(PRIO_PROCESS, 0)});
  }
  std::map<std::string, Doing> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::map<std::string, Doing> last;
    for (const Doing& entry : entries_) last[entry.what] = entry;
    entries_.clear();
    return last;
  }

 private:
  std::mutex mutex_;
  std::vector<Doing> entries_;
};

class LoggedContext : public ContextBackend {
 public:
  LoggedContext(Diary& diary, std::unique_ptr<ContextBackend> inner) : diary_(diary), inner_(std::move(inner)) {}
  void submit(const Batch& batch, std::optional<StreamHandle> stream) override {
    diary_.write("score");
    inner_->submit(batch, stream);
  }
  bool ready() const override { return true; }
  void wait() override {}
  void rebind(std::shared_ptr<const ModelBackend> next) override;
  Span<const OutputView> outputs() const override { return inner_->outputs(); }
  Span<const int64_t> scored() const override { return inner_->scored(); }
  Matrix<const float> tap(int node) override { return inner_->tap(node); }
  std::vector<FeatureCounters> counters() const override { return inner_->counters(); }
  MemoryReport memory() const override { return inner_->memory(); }

 private:
  Diary& diary_;
  std::unique_ptr<ContextBackend> inner_;
};

class LoggedModel : public ModelBackend {
 public:
  LoggedModel(Diary& diary, std::shared_ptr<const ModelBackend> inner) : diary(diary), inner(std::move(inner)) {}
  ~LoggedModel() override { diary.write("free"); }
  std::unique_ptr<ContextBackend> make_context(const ContextOptions& options) const override {
    return std::make_unique<LoggedContext>(diary, inner->make_context(options));
  }
  const TableStore* tables() const override { return inner->tables(); }
  MemoryReport memory() const override { return inner->memory(); }

  Diary& diary;
  const std::shared_ptr<const ModelBackend> inner;
};

void LoggedContext::rebind(std::shared_ptr<const ModelBackend> next) {
  diary_.write("rebind");  // of those of a swap the last one is a context that serves
  inner_->rebind(dynamic_cast<const LoggedModel&>(*next).inner);
}

class LoggedEngine : public Engine {
 public:
  const char* name() const override { return "logged"; }
  std::shared_ptr<TableStore> load_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                          const LoadOptions& options, int index) const override {
    diary.write("load");
    return host_engine().load_tables(plan, weights, images, options, index);
  }
  std::shared_ptr<const ModelBackend> bind(const Plan& plan, const Weights& weights,
                                           std::shared_ptr<const TableStore> tables, int index,
                                           const BindOptions& options) const override {
    diary.write("bind");
    return std::make_shared<LoggedModel>(diary, host_engine().bind(plan, weights, std::move(tables), index, options));
  }
  MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                           const LoadOptions& options) const override {
    diary.write("check");
    return host_engine().table_needs(plan, weights, images, options);
  }
  int64_t free_memory(int, const LoadOptions&) const override { return int64_t{1} << 40; }

  mutable Diary diary;
};

class Loader : public testing::Test {
 protected:
  static Outputs describe(Builder& b) {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 4}));
    const auto who = b.embed(b.ids("user_id", user), b.hashed_table("who", {.dim = 4}));
    return {{"y", b.sigmoid(b.linear("top", b.concat({film, b.expand(who, item)}), 1))}};
  }

  Loader() {
    Tables tables = Tables::load(plan_, rows_, {&engine_, 0});
    Model model = Model::bind(plan_, dense_, tables);
    served_ = std::make_unique<ServedModel>(std::move(model), std::move(tables));
    engine_.diary.take();
  }
  std::map<std::string, Doing> swap(SwapMode mode, LoaderPriority loader) {
    NextModel next{.dense = dense_, .tables = rows_};
    if (mode == SwapMode::dense_and_rows) next.tables = Weights::from_tensors({});
    served_->swap(next, mode, {.loader = loader});
    return engine_.diary.take();
  }

  /// Of all requests, one behind the other.
  static std::vector<float> scores_of(Context& context, Batch& batch) {
    const Scores scores = context.run(batch);
    std::vector<float> all;
    for (int64_t r = 0; r < batch.size(); ++r) {
      const Span<const float> values = scores["y"].of(r);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  LoggedEngine engine_;
  const Plan plan_ = compile(describe, {.capacities = {{.requests = 8, .items = 64}}});
  const Weights dense_ = test_support::random_weights(plan_, 1), rows_ = test_support::random_tables(plan_, 50, 1);
  std::unique_ptr<ServedModel> served_;
};

TEST_F(Loader, DoesAllThatTakesTimeOnAThreadOfLowPriorityAndExchangesContextsOnTheCallers) {
  const int policy = sched_getscheduler(0), nice = getpriority(PRIO_PROCESS, 0);
  for (const SwapMode mode : {SwapMode::full, SwapMode::dense_and_rows})
    for (const auto& [loader, expected] :
         {std::pair{LoaderPriority::idle, SCHED_IDLE}, std::pair{LoaderPriority::low, SCHED_BATCH}}) {
      const std::map<std::string, Doing> done = swap(mode, loader);
      std::vector<std::string> quiet = {"bind", "score", "free"};
      if (mode == SwapMode::full) quiet.insert(quiet.end(), {"check", "load"});
      for (const std::string& what : quiet) {
        ASSERT_EQ(done.count(what), 1u) << what;
        EXPECT_NE(done.at(what).thread, std::this_thread::get_id()) << what;
        EXPECT_EQ(done.at(what).policy, expected) << what;
        if (loader == LoaderPriority::low) {
          EXPECT_EQ(done.at(what).nice, 19) << what;
        }
      }
      EXPECT_EQ(done.at("rebind").thread, std::this_thread::get_id());
      EXPECT_EQ(sched_getscheduler(0), policy);
      EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    }
}

TEST_F(Loader, IsTheCallerWhereThatIsAskedForAndInADrain) {
  for (const SwapMode mode : {SwapMode::full, SwapMode::dense_and_rows})
    for (const auto& [what, done] : swap(mode, LoaderPriority::as_caller))
      EXPECT_EQ(done.thread, std::this_thread::get_id()) << what;
  for (const auto& [what, done] : swap(SwapMode::drain, LoaderPriority::idle))
    EXPECT_EQ(done.thread, std::this_thread::get_id()) << what;
}

TEST_F(Loader, PassesOnWhatWentWrong) {
  const NextModel wrong{.dense = Weights::from_tensors({}), .tables = rows_};
  EXPECT_THAT(message_of([&] { served_->swap(wrong, SwapMode::full); }), HasSubstr("top.weight"));
  EXPECT_EQ(engine_.diary.take().at("load").policy, SCHED_IDLE);
  EXPECT_EQ(served_->swap({.dense = dense_, .tables = rows_}, SwapMode::full).version, 2);
}

TEST_F(Loader, CopiesNoMoreBytesASecondThanItIsTold) {
  constexpr int64_t rows = 100'000, rate = 20'000'000;  // 1.6 MB in either table
  const Weights large = test_support::random_tables(plan_, rows, 1);
  test_support::RequestShape shape;
  shape.table_rows = rows;
  Batch batch = test_support::random_batch(plan_, 8, shape, 1);
  const auto load = [&](int64_t bytes_per_second, double& seconds) {
    const auto begin = std::chrono::steady_clock::now();
    const Tables tables = Tables::load(plan_, large, host(), {.most_bytes_per_second = bytes_per_second});
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    Context context = Model::bind(plan_, dense_, tables).context();
    return scores_of(context, batch);
  };
  double at_once = 0, paced = 0;
  const std::vector<float> expected = load(0, at_once);
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(load(rate, paced), expected);
  EXPECT_GE(paced, 2 * 1.6e6 / rate);
  EXPECT_THAT(message_of([&] { Tables::load(plan_, rows_, host(), {.most_bytes_per_second = -1}); }),
              HasSubstr("LoadOptions::most_bytes_per_second: expected 0 or more, got -1"));
}

TEST_F(Loader, LeavesTheMemoryOfTablesToTheNextOnes) {
  constexpr int64_t rows = 200'000;
  const Weights first = test_support::random_tables(plan_, rows, 1),
                second = test_support::random_tables(plan_, rows, 2);
  test_support::RequestShape shape;
  shape.table_rows = rows;
  Batch batch = test_support::random_batch(plan_, 8, shape, 1);
  Context other = Model::bind(plan_, dense_, Tables::load(plan_, second, host())).context();
  const std::vector<float> expected = scores_of(other, batch);

  const auto pages = std::make_shared<PagePool>();
  Tables tables = Tables::load(plan_, first, host(), {.pages = pages});
  Model model = Model::bind(plan_, dense_, tables);
  const int64_t bytes = pages->bytes_in_use();
  EXPECT_GE(bytes, 2 * rows * 16) << "rows of both tables, and keys";
  ServedModel served(std::move(model), std::move(tables), {.contexts = 1});
  EXPECT_NE(scores_of(*served.acquire(), batch), expected);
  served.swap({.dense = dense_, .tables = second}, SwapMode::full);
  EXPECT_EQ(scores_of(*served.acquire(), batch), expected);
  EXPECT_EQ(pages->bytes_in_use(), bytes);
  EXPECT_EQ(pages->free_bytes(), bytes) << "of the first model";
  EXPECT_EQ(served.memory().back(), (std::pair<std::string, int64_t>{"pages for the next tables", bytes}));
  served.swap({.dense = dense_, .tables = first, .load = LoadOptions{}}, SwapMode::full);
  served.swap({.dense = dense_, .tables = second}, SwapMode::full);
  EXPECT_EQ(scores_of(*served.acquire(), batch), expected) << "from memory that had others' rows and keys";
  EXPECT_EQ(pages->bytes_in_use(), bytes);
  EXPECT_EQ(pages->free_bytes(), bytes);
  EXPECT_THROW(served.swap({.dense = Weights::from_tensors({}), .tables = first}, SwapMode::full), invalid_argument);
  EXPECT_EQ(pages->free_bytes(), bytes) << "of the model that was refused";
}

TEST_F(Loader, RefusesAShareThatIsNone) {
  for (const double share : {0.0, -1.0, 1.5, std::nan("")})
    EXPECT_THAT(
        message_of([&] { served_->swap({.dense = dense_, .tables = rows_}, SwapMode::full, {.loader_share = share}); }),
        HasSubstr("SwapOptions::loader_share: expected above 0, at most 1, got"));
}

}}  // namespace warprank
