// SPDX-License-Identifier: Apache-2.0
//
// Exchanging models while they serve, on the host engine, seen and disturbed by an engine around it.

#include "warprank/engine/served_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using test_support::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// What the engine below was asked, and what it is to do.
struct Hooks {
  std::mutex mutex;
  int64_t free_bytes = int64_t{1} << 40;
  int calls_until_failure = -1;  ///< of what takes or uses memory: loads, binds, contexts, runs, rebinds
  bool loses_scores = false;     ///< contexts that were rebound
  bool refuses_rebinds = false;
  bool keeps_updatable = false;  ///< contexts cannot go between updatable tables and others
  std::function<void()> during_bind = [] {};
  int num_loads = 0, num_binds = 0;
  std::vector<std::weak_ptr<const TableStore>> stores;
  std::vector<int64_t> batches;  ///< requests in each batch that was run

  void reach(const char* what) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (calls_until_failure >= 0 && calls_until_failure-- == 0) throw std::runtime_error(std::string("no ") + what);
  }
  int64_t num_stores() const {
    return std::count_if(stores.begin(), stores.end(), [](const auto& store) { return !store.expired(); });
  }
};

class WatchedModel : public ModelBackend {
 public:
  WatchedModel(Hooks& hooks, std::shared_ptr<const ModelBackend> inner) : hooks(hooks), inner(std::move(inner)) {}
  std::unique_ptr<ContextBackend> make_context(const ContextOptions& options) const override;
  const TableStore* tables() const override { return inner->tables(); }
  MemoryReport memory() const override { return inner->memory(); }

  Hooks& hooks;
  const std::shared_ptr<const ModelBackend> inner;
};

class WatchedContext : public ContextBackend {
 public:
  WatchedContext(Hooks& hooks, std::unique_ptr<ContextBackend> inner) : hooks_(hooks), inner_(std::move(inner)) {}
  void submit(const Batch& batch, std::optional<StreamHandle> stream) override {
    hooks_.reach("run");
    inner_->submit(batch, stream);
    const std::lock_guard<std::mutex> lock(hooks_.mutex);
    hooks_.batches.push_back(batch.size());
    none_.assign(static_cast<size_t>(batch.size()), -1);
  }
  bool ready() const override { return true; }
  void wait() override {}
  void rebind(std::shared_ptr<const ModelBackend> next) override {
    hooks_.reach("rebind");
    if (hooks_.refuses_rebinds) throw std::runtime_error("cannot rebind");
    inner_->rebind(dynamic_cast<const WatchedModel&>(*next).inner);
    is_rebound_ = true;
  }
  Span<const OutputView> outputs() const override { return inner_->outputs(); }
  Span<const int64_t> scored() const override {
    return is_rebound_ && hooks_.loses_scores ? Span<const int64_t>(none_) : inner_->scored();
  }
  Matrix<const float> tap(int node) override { return inner_->tap(node); }
  std::vector<FeatureCounters> counters() const override { return inner_->counters(); }
  MemoryReport memory() const override {
    MemoryReport report = inner_->memory();
    report.emplace_back("pinned outputs", 1000);
    return report;
  }

 private:
  Hooks& hooks_;
  std::unique_ptr<ContextBackend> inner_;
  std::vector<int64_t> none_;
  bool is_rebound_ = false;
};

std::unique_ptr<ContextBackend> WatchedModel::make_context(const ContextOptions& options) const {
  hooks.reach("context");
  return std::make_unique<WatchedContext>(hooks, inner->make_context(options));
}

class WatchedEngine : public Engine {
 public:
  const char* name() const override { return "watched"; }
  std::shared_ptr<TableStore> load_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                          const LoadOptions& options, int index) const override {
    hooks.reach("tables");
    ++hooks.num_loads;
    std::shared_ptr<TableStore> store = host_engine().load_tables(plan, weights, images, options, index);
    hooks.stores.emplace_back(store);
    return store;
  }
  std::shared_ptr<const ModelBackend> bind(const Plan& plan, const Weights& weights,
                                           std::shared_ptr<const TableStore> tables, int index,
                                           const BindOptions& options) const override {
    hooks.reach("weights");
    ++hooks.num_binds;
    hooks.during_bind();
    return std::make_shared<WatchedModel>(hooks, host_engine().bind(plan, weights, std::move(tables), index, options));
  }
  MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                           const LoadOptions& options) const override {
    return host_engine().table_needs(plan, weights, images, options);
  }
  bool rebinds_to_updatable(const Plan&) const override { return !hooks.keeps_updatable; }
  int64_t free_memory(int, const LoadOptions&) const override { return hooks.free_bytes; }

  mutable Hooks hooks;
};

using Scores2 = std::vector<std::vector<float>>;  // of each request of a batch

/// A model of two tables with weights and rows by seed, served by a watched engine.
class Served : public testing::Test {
 protected:
  static Outputs describe(Builder& b) {
    const auto user = b.axis("user"), item = b.axis("item", user);
    const auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = 4}));
    const auto who = b.embed(b.ids("user_id", user), b.hashed_table("who", {.dim = 4}));
    const auto logit = b.linear("top", b.concat({film, b.expand(who, item), b.dense("x", item, 2)}), 1);
    return {{"logit", logit}, {"ctr", b.sigmoid(logit)}};
  }

  Served() {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      dense_.push_back(test_support::random_weights(plan_, seed));
      rows_.push_back(test_support::random_tables(plan_, num_rows, seed));
    }
    test_support::RequestShape shape;
    shape.table_rows = num_rows;
    for (uint32_t b = 0; b < 4; ++b) {
      batches_.push_back(test_support::random_batch(plan_, 3, shape, b + 1));
      for (int64_t r = 0; r < batches_.back().size(); ++r) {
        const BlobView blob = batches_.back().blob(r);
        recorded_.emplace_back(blob.data(), blob.data() + blob.bytes());
      }
    }
  }

  Tables load(size_t rows, const LoadOptions& options = {}) {
    return Tables::load(plan_, rows_[rows], {&engine_, 0}, options);
  }
  void serve(int contexts = 2, const LoadOptions& options = {}) {
    Tables tables = load(0, options);
    Model model = Model::bind(plan_, dense_[0], tables);
    served_ = std::make_unique<ServedModel>(std::move(model), std::move(tables), ServedOptions{.contexts = contexts});
  }
  NextModel next(size_t dense, size_t rows) const { return {.dense = dense_[dense], .tables = rows_[rows]}; }

  static Scores2 copy(const Scores& scores, const Batch& batch) {
    Scores2 all;
    for (const char* output : {"logit", "ctr"})
      for (int64_t r = 0; r < batch.size(); ++r) {
        const Span<const float> values = scores[output].of(r);
        all.emplace_back(values.begin(), values.end());
      }
    return all;
  }
  /// What weights and rows give, on the host engine itself.
  std::vector<Scores2> scores_of(size_t dense, const Weights& rows) {
    Context context = Model::bind(plan_, dense_[dense], Tables::load(plan_, rows, host())).context();
    std::vector<Scores2> all;
    for (Batch& batch : batches_) all.push_back(copy(context.run(batch), batch));
    return all;
  }
  std::vector<Scores2> scores_of(size_t dense, size_t rows) { return scores_of(dense, rows_[rows]); }
  /// What every context gives now.
  void expect_served(const std::vector<Scores2>& expected, int64_t version) {
    std::vector<ContextLease> leases;
    for (int i = 0; i < served_->contexts(); ++i) leases.push_back(served_->acquire());
    for (ContextLease& lease : leases) {
      EXPECT_EQ(lease.version(), version);
      for (size_t b = 0; b < batches_.size(); ++b)
        EXPECT_EQ(copy(lease->run(batches_[b]), batches_[b]), expected[b]) << "batch " << b;
    }
  }

  static constexpr int64_t num_rows = 50;
  WatchedEngine engine_;
  Hooks& hooks_ = engine_.hooks;
  const Plan plan_ = compile(describe, {.capacities = {{.requests = 1, .items = 8}, {.requests = 8, .items = 64}}});
  std::vector<Weights> dense_, rows_;
  std::vector<Batch> batches_;
  std::vector<std::vector<std::byte>> recorded_;
  std::unique_ptr<ServedModel> served_;
};

// --- rebind

TEST_F(Served, AContextTakesAnotherModelOfItsPlan) {
  std::optional<Model> first(Model::bind(plan_, dense_[0], load(0)));
  const Model second = Model::bind(plan_, dense_[1], load(1));
  Context context = first->context();
  first.reset();
  context.run(batches_[0]);
  EXPECT_EQ(hooks_.num_stores(), 2);
  context.rebind(second);
  EXPECT_EQ(hooks_.num_stores(), 1) << "nobody else had the first model";
  EXPECT_EQ(copy(context.run(batches_[0]), batches_[0]), scores_of(1, 1)[0]);
  context.rebind(Model::bind(compile(describe, plan_.options()), dense_[2], load(2)));  // the same, compiled again
  EXPECT_EQ(copy(context.run(batches_[0]), batches_[0]), scores_of(2, 2)[0]);
}

TEST_F(Served, AContextRefusesModelsOfOtherPlansAndEnginesAndWhileABatchIsUnderWay) {
  const Model model = Model::bind(plan_, dense_[0], Tables::load(plan_, rows_[0], host()));
  Context context = model.context();
  const auto message_with = [&](const ModelFunction& description, CompileOptions options) {
    const Plan plan = compile(description, std::move(options));
    const Model other = Model::bind(plan, test_support::random_weights(plan, 1),
                                    Tables::load(plan, test_support::random_tables(plan, 9, 1), host()));
    return message_of([&] { context.rebind(other); });
  };
  EXPECT_THAT(message_with(describe, {.capacities = {{.requests = 2}}}), HasSubstr("one with other capacities"));
  const auto with_dim = [](int64_t dim) {
    return [dim](Builder& b) -> Outputs {
      const auto user = b.axis("user"), item = b.axis("item", user);
      const auto film = b.embed(b.ids("film_id", item), b.table("film", {.dim = dim}));
      const auto who = b.embed(b.ids("user_id", user), b.hashed_table("who", {.dim = 4}));
      const auto x = b.concat({film, b.expand(who, item), b.dense("x", item, 2)});
      return {{"logit", dim == 4 ? b.linear("top", x, 1, {.activation = relu}) : b.linear("top", x, 1)}};
    };
  };
  EXPECT_THAT(message_with(with_dim(5), plan_.options()), HasSubstr("one with other tables"));
  EXPECT_THAT(message_with(with_dim(4), plan_.options()), HasSubstr("one with other node"));
  CompileOptions larger = plan_.options();
  larger.passes.reuse_memory = false;
  EXPECT_THAT(message_with(describe, larger), HasSubstr("one with other passes"));
  const Model watched = Model::bind(plan_, dense_[0], load(0));
  EXPECT_THAT(message_of([&] { context.rebind(watched); }), HasSubstr("a model of the host engine"));
  {
    Pending pending = context.submit(batches_[0]);
    EXPECT_THROW(context.rebind(model), std::logic_error);
    EXPECT_EQ(copy(pending.wait(), batches_[0]), scores_of(0, 0)[0]);
  }
  context.rebind(model);
  EXPECT_EQ(copy(context.run(batches_[0]), batches_[0]), scores_of(0, 0)[0]);
}

TEST_F(Served, RefusesTablesThatAreNotTheModels) {
  const Tables tables = load(0);
  const Model model = Model::bind(plan_, dense_[0], tables);
  EXPECT_THAT(message_of([&] { ServedModel(model, load(0)); }),
              HasSubstr("ServedModel: tables: expected those that the model is bound to, got others"));
  EXPECT_NO_THROW(ServedModel(model, tables));
}

// --- under load

TEST_F(Served, EveryBatchHasTheScoresOfExactlyOneModelWhileModelsAreExchangedInEveryMode) {
  serve(3);
  const std::pair<size_t, size_t> states[] = {{0, 0}, {1, 1}, {2, 1}, {0, 2},
                                              {1, 2}, {2, 0}, {0, 1}};  // by version - 1
  const SwapMode modes[] = {SwapMode::full,           SwapMode::dense_and_rows, SwapMode::drain,
                            SwapMode::dense_and_rows, SwapMode::drain,          SwapMode::full};
  std::vector<std::vector<Scores2>> expected;
  for (const auto& [dense, rows] : states) expected.push_back(scores_of(dense, rows));

  std::atomic<bool> stops{false};
  std::atomic<int64_t> num_batches{0}, num_wrong{0}, newest{1};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; !stops; ++i) {
        Batch& batch = batches_[i % batches_.size()];
        const int64_t at_least = newest;
        const ContextLease lease = served_->acquire();
        if (lease.version() < at_least) ++num_wrong;
        const Scores2 scores = copy(lease->run(batch), batch);
        if (scores != expected[static_cast<size_t>(lease.version() - 1)][i % batches_.size()]) ++num_wrong;
        ++num_batches;
      }
    });
  for (size_t s = 0; s < std::size(modes); ++s) {
    const int64_t before = num_batches;
    while (num_batches < before + 50) std::this_thread::yield();
    NextModel model = next(states[s + 1].first, states[s + 1].second);
    if (modes[s] == SwapMode::dense_and_rows) model.tables = Weights::from_tensors({});
    const SwapReport report = served_->swap(model, modes[s], {.recorded = recorded_});
    EXPECT_EQ(report.version, static_cast<int64_t>(s) + 2);
    EXPECT_EQ(report.contexts_behind, 0);
    EXPECT_EQ(report.comparison.num_requests, 12);
    EXPECT_GT(report.comparison.largest(), 0);
    EXPECT_EQ(hooks_.num_stores(), 1) << "the old tables are freed, " << to_string(modes[s]);
    newest = report.version;
  }
  const int64_t before = num_batches;
  while (num_batches < before + 50) std::this_thread::yield();
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0) << "of " << num_batches;
  expect_served(expected.back(), 7);
}

TEST_F(Served, RowsChangeBeforeTheWeightsOfTheirSwapTakeOver) {
  serve(2, {.updatable = true});
  // Every request is of one film, whose row changes; so there are three pairs of a row and weights.
  const std::vector<float> row = {3, -2, 1, 5};
  std::vector<float> film;
  for (int64_t i = 0; i < num_rows * 4; ++i)
    film.push_back(i < 4 ? row[static_cast<size_t>(i)] : load_element<float>(rows_[0].find("film")->data, i));
  std::map<std::string, StoredTensor> changed;
  for (const std::string& name : rows_[0].names()) {
    const TensorView& view = *rows_[0].find(name);
    changed[name] = {*view.dtype, view.shape, {view.data, view.data + view.bytes}};
  }
  ASSERT_EQ(changed["film"].dtype, DType::f32);
  changed["film"] = make_tensor({num_rows, 4}, film);
  const Weights new_rows = Weights::from_tensors(changed);
  batches_.erase(batches_.begin() + 1, batches_.end());
  batches_[0].clear();
  batches_[0]
      .add_request()
      .ids(plan_.ids("film_id"), {0})
      .ids(plan_.ids("user_id"), {4})
      .dense(plan_.dense("x"), {1, 2});
  const std::vector<Scores2> old = scores_of(0, 0), skewed = scores_of(0, new_rows), all_new = scores_of(1, new_rows);

  std::atomic<bool> stops{false};
  std::atomic<int64_t> num_batches{0}, num_wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stops) {
        const ContextLease lease = served_->acquire();
        const Scores2 scores = copy(lease->run(batches_[0]), batches_[0]);
        if (lease.version() == 1 ? scores != old[0] && scores != skewed[0] : scores != all_new[0]) ++num_wrong;
        ++num_batches;
      }
    });
  while (num_batches < 50) std::this_thread::yield();
  NextModel delta{.dense = dense_[1],
                  .tables = Weights::from_tensors(
                      {{"film.keys", make_tensor<int64_t>({1}, {0})}, {"film.rows", make_tensor({1, 4}, row)}})};
  const SwapReport report = served_->swap(delta, SwapMode::dense_and_rows, {.recorded = recorded_});
  EXPECT_EQ(report.rows.at("film").updated, 1);
  stops = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0) << "of " << num_batches;
  expect_served(all_new, 2);
  EXPECT_EQ(hooks_.num_loads, 1);
}

// --- leases across a swap

TEST_F(Served, AContextThatIsLentAcrossASwapFinishesOnItsOldModel) {
  serve(2);
  std::optional<ContextLease> lease(served_->acquire());
  Pending pending = (*lease)->submit(batches_[0]);
  const SwapReport report = served_->swap(next(1, 1), SwapMode::full, {.patience = std::chrono::milliseconds(0)});
  EXPECT_EQ(report.contexts_behind, 1);
  EXPECT_EQ(hooks_.num_stores(), 2);
  EXPECT_EQ(copy(pending.wait(), batches_[0]), scores_of(0, 0)[0]);
  EXPECT_EQ(lease->version(), 1);
  EXPECT_EQ(copy((*lease)->run(batches_[1]), batches_[1]), scores_of(0, 0)[1]);
  EXPECT_EQ(served_->acquire().version(), 2);
  EXPECT_EQ(served_->contexts_behind().count, 1);
  EXPECT_EQ(served_->contexts_behind().error, "");
  lease.reset();
  EXPECT_EQ(hooks_.num_stores(), 1) << "it takes the new model although nobody wants it";
  EXPECT_EQ(served_->contexts_behind().count, 0);
  expect_served(scores_of(1, 1), 2);
}

TEST_F(Served, AContextThatCannotTakeTheNewestModelIsToldOfAndTriesAgainWhenASwapBegins) {
  serve(2);
  {
    const ContextLease first = served_->acquire();
    served_->swap(next(1, 1), SwapMode::full, {.patience = std::chrono::milliseconds(0)});
    hooks_.refuses_rebinds = true;
  }
  EXPECT_EQ(served_->contexts_behind().count, 1);
  EXPECT_EQ(served_->contexts_behind().error, "cannot rebind");
  {
    const ContextLease second = served_->acquire(), first = served_->acquire();
    EXPECT_EQ(second.version(), 2) << "those that have it come first";
    EXPECT_EQ(first.version(), 1);
    EXPECT_EQ(copy(first->run(batches_[0]), batches_[0]), scores_of(0, 0)[0]);
  }
  // The same model as serves, so that scores differ from those of the context that is behind alone.
  EXPECT_EQ(served_->swap(next(1, 1), SwapMode::drain, {recorded_, 0}).comparison.largest(), 0);
  hooks_.refuses_rebinds = false;
  expect_served(scores_of(1, 1), 3);
  EXPECT_EQ(served_->contexts_behind().count, 0);

  {
    const ContextLease first = served_->acquire();
    served_->swap(next(2, 2), SwapMode::full, {.patience = std::chrono::milliseconds(0)});
    hooks_.refuses_rebinds = true;
  }
  EXPECT_EQ(hooks_.num_stores(), 2);
  hooks_.refuses_rebinds = false;
  hooks_.free_bytes = 0;
  EXPECT_THROW(served_->swap(next(0, 0), SwapMode::full), swap_refused);
  EXPECT_EQ(hooks_.num_stores(), 1) << "freed before memory is looked at";
  EXPECT_EQ(served_->contexts_behind().count, 0);
}

TEST_F(Served, ADrainIsRefusedWhileOthersHaveTheOldModelOrItsTables) {
  Tables tables = load(0);
  std::optional<Tables> of_others(tables);
  std::optional<Model> model(Model::bind(plan_, dense_[0], tables));
  served_ = std::make_unique<ServedModel>(*model, std::move(tables));
  const auto refuses = [&](const char* text) {
    EXPECT_THAT(
        message_of([&] { served_->swap(next(1, 1), SwapMode::drain, {.patience = std::chrono::milliseconds(5)}); }),
        HasSubstr(text));
    EXPECT_EQ(hooks_.num_loads, 1);
  };
  const auto serves_on = [&] { expect_served(scores_of(0, 0), 1); };
  refuses("nobody else to have the old model or its tables within 5 ms, got copies");
  serves_on();
  model.reset();
  refuses("got copies");
  serves_on();
  auto leaving = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    of_others.reset();
  });
  EXPECT_EQ(served_->swap(next(0, 0), SwapMode::drain).version, 2) << "it waits for them";
  leaving.get();
  EXPECT_EQ(hooks_.num_stores(), 1);
  expect_served(scores_of(0, 0), 2);

  // Of a context nobody can know before the old model is gone.
  std::optional<Context> context;
  {
    Tables more = load(0);
    Model other = Model::bind(plan_, dense_[0], more);
    context = other.context();
    served_ = std::make_unique<ServedModel>(std::move(other), std::move(more));
  }
  EXPECT_THAT(
      message_of([&] { served_->swap(next(1, 1), SwapMode::drain, {.patience = std::chrono::milliseconds(5)}); }),
      HasSubstr("the old tables to be freed within 5 ms"));
  EXPECT_THROW(served_->acquire(), std::runtime_error);
  context.reset();
  served_->swap(next(1, 1), SwapMode::drain);
  expect_served(scores_of(1, 1), 2);
}

TEST_F(Served, ADrainMindsNoContextThatComesBackMeanwhile) {
  serve(2);
  std::optional<ContextLease> lease(served_->acquire());
  NextModel weights = next(1, 0);
  weights.tables = Weights::from_tensors({});
  EXPECT_EQ(
      served_->swap(weights, SwapMode::dense_and_rows, {.patience = std::chrono::milliseconds(0)}).contexts_behind, 1);
  hooks_.during_bind = [&] { lease.reset(); };  // and with it the first model goes, which has the same tables
  EXPECT_EQ(served_->swap(next(2, 2), SwapMode::drain, {.patience = std::chrono::minutes(1)}).version, 3);
  expect_served(scores_of(2, 2), 3);
}

TEST_F(Served, WaitsForAsLongAsThereIs) {
  serve(2);
  std::optional<ContextLease> lease(served_->acquire());
  const auto leaving = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lease.reset();
  });
  EXPECT_EQ(served_->swap(next(1, 1), SwapMode::drain, {.patience = std::chrono::milliseconds::max()}).version, 2);
}

// --- rows

TEST_F(Served, RowsAreUpdatedBetweenSwapsAndTablesStayUpdatable) {
  serve(2, {.updatable = true});
  const Weights delta = Weights::from_tensors(
      {{"film.keys", make_tensor<int64_t>({1}, {0})}, {"film.rows", make_tensor<float>({1, 4}, {1, 2, 3, 4})}});
  for (const SwapMode mode : {SwapMode::full, SwapMode::drain}) {
    EXPECT_EQ(served_->update(delta).at("film").updated, 1);
    served_->swap(next(1, 1), mode);
    expect_served(scores_of(1, 1), served_->version());
  }
  EXPECT_EQ(served_->update(delta).at("film").updated, 1);

  NextModel fixed = next(2, 2);
  fixed.load = LoadOptions{};
  hooks_.keeps_updatable = true;
  const int loads = hooks_.num_loads;
  EXPECT_THAT(message_of([&] { served_->swap(fixed, SwapMode::full); }), HasSubstr("got not updatable"));
  EXPECT_EQ(hooks_.num_loads, loads);
  served_->swap(fixed, SwapMode::drain);
  EXPECT_THROW(served_->update(delta), invalid_argument);
  hooks_.keeps_updatable = false;
  fixed.load->updatable = true;
  served_->swap(fixed, SwapMode::full);
  EXPECT_EQ(served_->update(delta).at("film").updated, 1);
}

TEST_F(Served, AnUpdateDuringASwapWaitsForItAndChangesTheTablesThatServeThen) {
  serve(2, {.updatable = true});
  std::optional<ContextLease> lease(served_->acquire());
  std::thread swapping([&] { served_->swap(next(1, 1), SwapMode::full); });  // until the lease is back
  while (served_->version() == 1) std::this_thread::yield();
  std::atomic<bool> is_updated{false};
  std::thread updating([&] {
    served_->update(Weights::from_tensors(
        {{"film.keys", make_tensor<int64_t>({1}, {0})}, {"film.rows", make_tensor<float>({1, 4}, {1, 2, 3, 4})}}));
    is_updated = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_updated);
  lease.reset();
  swapping.join();
  updating.join();
  EXPECT_TRUE(is_updated);
}

TEST_F(Served, ADrainThatWaitsInVainIsRefusedAndTheOldModelServesOn) {
  serve(2);
  {
    const ContextLease lease = served_->acquire();
    EXPECT_THAT(
        message_of([&] { served_->swap(next(1, 1), SwapMode::drain, {.patience = std::chrono::milliseconds(1)}); }),
        HasSubstr("all contexts back within 1 ms"));
  }
  EXPECT_EQ(hooks_.num_loads, 1);
  expect_served(scores_of(0, 0), 1);
}

TEST_F(Served, ADrainMakesOthersWaitUntilTheNewModelIsThere) {
  serve(2);
  std::optional<ContextLease> lease(served_->acquire());
  std::thread swapping([&] { served_->swap(next(1, 1), SwapMode::drain); });
  std::atomic<int64_t> version{0};
  std::thread asking([&] {
    while (served_->acquire().version() == 1) std::this_thread::yield();
    version = served_->version();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // by then they wait, more often than not
  EXPECT_EQ(version, 0);
  EXPECT_EQ(hooks_.num_loads, 1);
  lease.reset();
  asking.join();
  swapping.join();
  EXPECT_EQ(version, 2);
  expect_served(scores_of(1, 1), 2);
}

// --- what is refused

TEST_F(Served, RefusesWhatDoesNotFitBeforeAnythingIsAllocated) {
  serve(2);
  int64_t tables = 0;
  for (const auto& [what, bytes] : load(1).memory()) tables += bytes;
  const SwapReport full = served_->swap(next(1, 1), SwapMode::full);
  ASSERT_THAT(full.needed, testing::SizeIs(4));
  EXPECT_EQ(full.needed[0].second + full.needed[1].second, tables);
  EXPECT_EQ(full.free_bytes, hooks_.free_bytes);
  const int64_t weights = full.needed[2].second, context = full.needed[3].second;
  const int loads = hooks_.num_loads, binds = hooks_.num_binds;
  const auto refuses_below = [&](SwapMode mode, int64_t needed, const char* text) {
    const NextModel model{.dense = dense_[2],
                          .tables = mode == SwapMode::dense_and_rows ? Weights::from_tensors({}) : rows_[2]};
    hooks_.free_bytes = needed - 1;
    EXPECT_THAT(message_of([&] { served_->swap(model, mode); }),
                AllOf(HasSubstr(text), HasSubstr("weights " + std::to_string(weights)),
                      HasSubstr(std::to_string(needed - 1) + " free")));
    EXPECT_THROW(served_->swap(model, mode), swap_refused);
    EXPECT_EQ(hooks_.num_loads, loads);
    EXPECT_EQ(hooks_.num_binds, binds);
    expect_served(scores_of(1, 1), 2);
  };
  const std::string all = "expected " + std::to_string(tables + weights + context) + " bytes of memory (table film ";
  refuses_below(SwapMode::full, tables + weights + context, all.c_str());
  refuses_below(SwapMode::dense_and_rows, weights + context, "a context ");
  refuses_below(SwapMode::drain, weights, "of the old model");  // the new weights are bound once beside the old ones
  hooks_.free_bytes = weights;
  served_->swap(next(2, 2), SwapMode::drain);
  expect_served(scores_of(2, 2), 3);
}

TEST_F(Served, RefusesADrainIntoTablesThatAreLargerThanAllThereIs) {
  serve(1);
  const Weights large = test_support::random_tables(plan_, 100 * num_rows, 5);
  hooks_.free_bytes = 1000;
  EXPECT_THAT(message_of([&] { served_->swap({.dense = dense_[1], .tables = large}, SwapMode::drain); }),
              AllOf(HasSubstr("swap (drain)"), HasSubstr("1000 free and ")));
  EXPECT_EQ(hooks_.num_loads, 1);
  expect_served(scores_of(0, 0), 1);
}

TEST_F(Served, ChecksFilesBeforeTheOldModelIsTouched) {
  serve(1);
  const auto without = [](const Weights& weights, const std::string& dropped) {
    std::map<std::string, StoredTensor> tensors;
    for (const std::string& name : weights.names()) {
      const TensorView& view = *weights.find(name);
      if (name != dropped) tensors[name] = {*view.dtype, view.shape, {view.data, view.data + view.bytes}};
    }
    return tensors;
  };
  auto twice = without(rows_[1], "");
  std::fill(twice["who.keys"].bytes.begin(), twice["who.keys"].bytes.end(), std::byte{7});
  for (const SwapMode mode : {SwapMode::full, SwapMode::drain}) {
    SCOPED_TRACE(to_string(mode));
    const auto refuses = [&](const NextModel& model, const char* text) {
      EXPECT_THAT(message_of([&] { served_->swap(model, mode, {.recorded = recorded_}); }), HasSubstr(text));
      EXPECT_THROW(served_->swap(model, mode), invalid_argument);
      EXPECT_EQ(hooks_.num_stores(), 1);
      expect_served(scores_of(0, 0), 1);
    };
    refuses({.dense = dense_[1], .tables = Weights::from_tensors(without(rows_[1], "film"))}, "'film'");
    refuses({.dense = dense_[1], .tables = Weights::from_tensors(twice)}, "rows 0 and 1");
    refuses({.dense = Weights::from_tensors(without(dense_[1], "top.bias")), .tables = rows_[1]}, "'top.bias'");
  }
  EXPECT_THAT(message_of([&] { served_->swap(next(1, 1), SwapMode::dense_and_rows); }), HasSubstr("updatable"));
  std::vector<std::vector<std::byte>> recorded = {recorded_[0], {recorded_[1].begin(), recorded_[1].end() - 1}};
  EXPECT_THAT(message_of([&] { served_->swap(next(1, 1), SwapMode::full, {.recorded = recorded}); }),
              HasSubstr("recorded request 1"));
  Batch large = plan_.batch();
  Request request = large.add_request();
  request.ids(plan_.ids("film_id"), std::vector<int64_t>(65, 1)).ids(plan_.ids("user_id"), {4});
  request.dense(plan_.dense("x"), std::vector<float>(130, 0));
  large.close();
  ASSERT_TRUE(large.status(0).ok()) << large.status(0).message;
  recorded[1].assign(large.blob(0).data(), large.blob(0).data() + large.blob(0).bytes());
  hooks_.batches.clear();
  EXPECT_THAT(message_of([&] { served_->swap(next(1, 1), SwapMode::full, {.recorded = recorded}); }),
              AllOf(HasSubstr("recorded request 1"), HasSubstr("the rows of a capacity")));
  EXPECT_THAT(hooks_.batches, testing::IsEmpty());
  expect_served(scores_of(0, 0), 1);
  const Tables tables = load(0);
  EXPECT_THAT(message_of([&] { ServedModel(Model::bind(plan_, dense_[0], tables), tables, {.contexts = 0}); }),
              HasSubstr("ServedOptions::contexts: expected 1 or more, got 0"));
}

// --- recorded requests

TEST(RecordedRequests, AreComparedByOutputOnceForEachCapacity) {
  const auto model = [](Builder& b) -> Outputs {
    const auto item = b.axis("item", b.axis("user"));
    const auto x = b.dense("x", item, 1);
    return {{"y", b.linear("top", x, 1)}, {"same", x}};
  };
  WatchedEngine engine;
  const Plan plan = compile(model, {.capacities = {{.requests = 1, .items = 2}, {.requests = 4, .items = 5}}});
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), {&engine, 0});
  const auto with = [&](float weight, float bias) {
    return Weights::from_tensors(
        {{"top.weight", make_tensor<float>({1, 1}, {weight})}, {"top.bias", make_tensor<float>({1}, {bias})}});
  };
  Batch batch = plan.batch();
  for (const std::vector<float>& x : {std::vector<float>{1}, {2, -4}, {3}})
    batch.add_request().dense(plan.dense("x"), x);
  batch.close();
  std::vector<std::vector<std::byte>> recorded;
  for (int64_t r = 0; r < 3; ++r)
    recorded.emplace_back(batch.blob(r).data(), batch.blob(r).data() + batch.blob(r).bytes());

  ServedModel served(Model::bind(plan, with(1, 0), tables), tables);
  engine.hooks.batches.clear();
  const SwapReport report = served.swap({.dense = with(1.5f, 0)}, SwapMode::full, {recorded, 2});
  EXPECT_THAT(engine.hooks.batches, ElementsAre(1, 1, 1, 4, 1, 1, 1, 4)) << "three and, to fill it, the first again";
  ASSERT_EQ(report.comparison.outputs.size(), 2u);
  EXPECT_EQ(report.comparison.outputs[0].name, "y");
  EXPECT_EQ(report.comparison.outputs[0].largest, 2);
  EXPECT_EQ(report.comparison.outputs[0].request, 1);
  EXPECT_EQ(report.comparison.outputs[0].mean, (0.5 + 1 + 2 + 1.5) / 4);
  EXPECT_EQ(report.comparison.outputs[1].largest, 0);
  EXPECT_EQ(report.comparison.outputs[1].request, -1);

  EXPECT_THAT(message_of([&] {
                served.swap({.dense = with(1, 0)}, SwapMode::full, {recorded, 1.99});
              }),
              AllOf(HasSubstr("differ by at most 1.99"), HasSubstr("'y': largest difference 2, mean 1.25, request 1")));
  EXPECT_THROW(served.swap({.dense = with(1, 0)}, SwapMode::full, {recorded, std::nan("")}), swap_refused);
  EXPECT_EQ(served.version(), 2);

  // All but the first become infinite, from finite ones, which no limit lets pass; from infinite ones it is no matter.
  EXPECT_THROW(served.swap({.dense = with(2e38f, 0)}, SwapMode::full, {recorded}), swap_refused);
  served.swap({.dense = with(2e38f, 0)}, SwapMode::full);
  EXPECT_THROW(served.swap({.dense = with(2.5e38f, 0)}, SwapMode::full, {recorded, 1}), swap_refused);
  const ScoreComparison alike = served.swap({.dense = with(2.5e38f, 0)}, SwapMode::full, {recorded}).comparison;
  EXPECT_LT(alike.largest(), 6e37);
  EXPECT_EQ(alike.outputs[0].unusable, 6) << "three of four, at two capacities";
  EXPECT_EQ(alike.outputs[1].unusable, 0);
  EXPECT_THAT(alike.to_string(), HasSubstr("request 0, 6 old scores NaN, infinite or missing; 'same'"));
  EXPECT_EQ(served.swap({.dense = with(1, 0)}, SwapMode::full, {recorded}).comparison.outputs[0].unusable, 6);
}

TEST_F(Served, NaNAndMissingScoresOfTheNewModelAreDifferencesWhateverTheLimitIs) {
  serve(1);
  hooks_.loses_scores = true;
  EXPECT_THAT(message_of([&] { served_->swap(next(0, 0), SwapMode::full, {.recorded = recorded_}); }),
              HasSubstr("'logit': largest difference inf"));
  hooks_.loses_scores = false;
  EXPECT_EQ(served_->swap(next(0, 0), SwapMode::full, {recorded_, 0}).comparison.largest(), 0);
  const float most = std::numeric_limits<float>::max();  // products with such weights are infinite
  std::map<std::string, StoredTensor> tensors = {{"film", make_tensor({1, 4}, std::vector<float>(4, most))},
                                                 {"film.default", make_tensor({4}, std::vector<float>(4, most))},
                                                 {"who.keys", make_tensor<int64_t>({1}, {1})},
                                                 {"who.rows", make_tensor({1, 4}, std::vector<float>(4, 1))}};
  const NextModel broken{
      .dense = Weights::from_tensors({{"top.weight", make_tensor({1, 10}, std::vector<float>(10, most))},
                                      {"top.bias", make_tensor({1}, std::vector<float>(1, 0))}}),
      .tables = Weights::from_tensors(tensors)};
  EXPECT_THROW(served_->swap(broken, SwapMode::full, {.recorded = recorded_}), swap_refused);
  expect_served(scores_of(0, 0), 2);

  // A model that is broken itself must be replaceable.
  for (const SwapMode mode : {SwapMode::full, SwapMode::drain}) {
    served_->swap(broken, SwapMode::full);
    const ScoreComparison comparison = served_->swap(next(0, 0), mode, {recorded_}).comparison;
    EXPECT_LT(comparison.largest(), 100);
    EXPECT_GT(comparison.outputs[0].unusable, 0);
    expect_served(scores_of(0, 0), served_->version());
  }
}

// --- what fails on the way

TEST_F(Served, TheOldModelServesOnWhereverASwapBesideItFails) {
  for (const SwapMode mode : {SwapMode::full, SwapMode::dense_and_rows}) {
    SCOPED_TRACE(to_string(mode));
    serve(3);
    NextModel model = next(1, 1);
    if (mode == SwapMode::dense_and_rows) model.tables = Weights::from_tensors({});
    const std::vector<Scores2> old = scores_of(0, 0);
    int failures = 0;
    for (;; ++failures) {
      hooks_.calls_until_failure = failures;
      try {
        served_->swap(model, mode, {.recorded = recorded_});
        break;
      } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), testing::StartsWith("no "));
      }
      hooks_.calls_until_failure = -1;
      EXPECT_EQ(hooks_.num_stores(), 1);
      expect_served(old, 1);
    }
    hooks_.calls_until_failure = -1;
    EXPECT_GE(failures, 8) << "weights, a context, runs, four rebinds";
    expect_served(mode == SwapMode::full ? scores_of(1, 1) : scores_of(1, 0), served_->version());
  }
}

TEST_F(Served, AfterADrainThatFailedThereIsNoModelUntilASwapSucceeds) {
  serve(2);
  int without_model = 0;
  for (int failures = 0;; ++failures) {
    const int64_t version = served_->version();
    hooks_.calls_until_failure = failures;
    try {
      served_->swap(next(1, 1), SwapMode::drain, {.recorded = recorded_});
      hooks_.calls_until_failure = -1;
      break;
    } catch (const std::runtime_error& error) {
      hooks_.calls_until_failure = -1;
      if (hooks_.num_stores() == 1) {
        expect_served(scores_of(0, 0), version);
        continue;
      }
      ++without_model;
      EXPECT_EQ(hooks_.num_stores(), 0);
      EXPECT_THAT(message_of([&] { served_->acquire(); }), AllOf(HasSubstr("there is none"), HasSubstr(error.what())));
      EXPECT_THROW(served_->update(Weights::from_tensors({})), std::runtime_error);
      EXPECT_THROW(served_->swap({.dense = dense_[1]}, SwapMode::dense_and_rows), swap_refused);
      hooks_.free_bytes = 100;
      EXPECT_THROW(served_->swap(next(1, 1), SwapMode::full), swap_refused);
      hooks_.free_bytes = int64_t{1} << 40;
      EXPECT_THROW(served_->acquire(), std::runtime_error);
      const SwapReport report =
          served_->swap(next(0, 0), without_model % 2 == 0 ? SwapMode::drain : SwapMode::full, {.recorded = recorded_});
      EXPECT_TRUE(report.comparison.outputs.empty()) << "there was nothing to compare with";
      expect_served(scores_of(0, 0), report.version);
    }
  }
  EXPECT_GE(without_model, 4) << "tables, weights, two contexts, runs";
  expect_served(scores_of(1, 1), served_->version());
  EXPECT_THROW(served_->swap(next(0, 0), SwapMode::drain, {recorded_, 1e-9}), swap_refused);
  EXPECT_THAT(message_of([&] { served_->acquire(); }), HasSubstr("differ by at most"));
}

TEST_F(Served, IsUsedAsTheDocumentsSay) {
  Tables tables = load(0);
  Model model = Model::bind(plan_, dense_[0], tables);
  const Weights &new_weights = dense_[1], &new_rows = rows_[1];
  const std::vector<std::vector<std::byte>>& recorded = recorded_;
  Batch& batch = batches_[0];

  // Keep no copies of them: they would stay in memory.
  ServedModel served(std::move(model), std::move(tables), {.contexts = 4});
  const auto score = [&] {
    const ContextLease context = served.acquire();  // any thread, for one batch
    return copy(context->run(batch), batch);
  };
  const auto exchange = [&] {  // another thread, now and then
    const NextModel next{.dense = new_weights, .tables = new_rows};
    return served.swap(next, SwapMode::full, {.recorded = recorded, .most_difference = 20});
  };

  EXPECT_EQ(score(), scores_of(0, 0)[0]);
  EXPECT_EQ(exchange().version, 2);
  EXPECT_EQ(score(), scores_of(1, 1)[0]);
}

TEST_F(Served, TellsItsMemory) {
  serve(2);
  std::map<std::string, int64_t> bytes;
  for (const auto& [what, size] : served_->memory()) bytes[what] = size;
  EXPECT_EQ(bytes["table film"], num_rows * 4 * 4);
  int64_t context = 0;
  for (const auto& [what, size] : served_->acquire()->memory())
    if (what != "pinned outputs") context += size;
  EXPECT_EQ(bytes["contexts"], 2 * context) << "without what is pinned in the host's memory";
  EXPECT_EQ(bytes["pinned memory of contexts"], 2000);
  EXPECT_GT(bytes["weights"], 0);
}

}}  // namespace warprank
