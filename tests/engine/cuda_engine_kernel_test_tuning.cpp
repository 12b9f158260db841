// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: kernels of linears that are chosen at bind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "support/folder.hpp"
#include "support/message_of.hpp"
#include "warprank/core/json.hpp"
#include "warprank/cuda_tuning.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"

namespace warprank { namespace {

using namespace cuda_engine_testing;  // NOLINT: for models and batches
using kernel_testing::on_gpu;
using test_support::message_of;
using testing::HasSubstr;
using testing::Not;

/// Two layers side by side, and a chain of two behind them.
Outputs model_to_choose_for(Builder& b) {
  const auto user = b.axis("user"), item = b.axis("item", user);
  const auto x = b.dense("x", item, 24), u = b.dense("u", user, 8);
  const auto wide = b.linear("wide", x, 40, {.activation = relu}), narrow = b.linear("narrow", x, 16);
  return {{"score", b.mlp("tower", b.concat({wide, b.expand(u, item)}), {16, 1}, relu)},
          {"narrow_out", b.linear("last", narrow, 8)}};
}

class CudaEngineTuning : public CudaEngine {
 protected:
  CudaEngineTuning() {
    options_.auto_tuning.when = TuneAtBind::always;
    options_.auto_tuning.folder = folder_.path();
    options_.auto_tuning.how.turns = 1;
    options_.auto_tuning.how.runs = 1;
    options_.auto_tuning.how.most_seconds = 1e6;
    options_.auto_tuning.how.seconds = [this](const LinearChoice& choice) {
      ++num_measured_;
      return claimed_(choice);
    };
  }

  Model bound(uint32_t seed = 1) const {
    return Model::bind(plan_, test_support::random_weights(plan_, seed), tables_, options_);
  }
  std::string described() const { return bound().context().describe(); }
  std::string only_file() const {
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      EXPECT_EQ(path, "") << "one file";
      path = entry.path().string();
    }
    return path;
  }
  std::vector<float> scores_of(const Model& model) const {
    Context context = model.context();
    Batch batch = batch_of(model, random_requests(plan_, 2, 5));
    return all_scores(plan_, context.run(batch));
  }
  /// Of the layer of `out` outputs, as the file has it.
  std::string chosen_for(int64_t out) const {
    for (const LinearChoice& choice : load_tuning(only_file()).choices)
      for (size_t i = 0; i < choice.layers.size(); ++i)
        if (choice.layers[i].out == out) return name_of_enum(choice.kernels[i]) + (" " + choice.variants[i]);
    return "none";
  }

  const Plan plan_ = plan_for(warprank::build(model_to_choose_for), {}, {{2, 8, {}}, {4, 32, {}}});
  const Tables tables_ = Tables::load(plan_, Weights::from_tensors({}), cuda());
  static std::string name_of_test() { return testing::UnitTest::GetInstance()->current_test_info()->name(); }

  const test_support::Folder folder_{"cuda_engine_tuning_" + name_of_test()};
  BindOptions options_;
  std::function<double(const LinearChoice&)> claimed_ = [](const LinearChoice&) { return 1.0; };
  int64_t num_measured_ = 0;
};

TEST_F(CudaEngineTuning, MeasuresOnceAndGivesModelsOfAPlanTheSameKernels) {
  const Model first = bound(1);
  EXPECT_GT(num_measured_, 20);
  const std::string told = first.context().describe();
  EXPECT_THAT(told, HasSubstr("\nlinear layers: 6 measured in "));
  EXPECT_THAT(told, HasSubstr(" s; kept in " + only_file() + "\n"));
  num_measured_ = 0;
  claimed_ = [](const LinearChoice& choice) { return choice.kernels[0] == LinearKernel::tiles ? 1.0 : 0.1; };
  const Model second = bound(2);
  EXPECT_EQ(num_measured_, 0);
  EXPECT_THAT(second.context().describe(),
              HasSubstr("\nlinear layers: 6 of 6 steps as decided before in this process\n"));
  Context context = first.context();
  context.rebind(second);
  Batch batch = batch_of(second, random_requests(plan_, 2, 5));
  EXPECT_TRUE(same_bits(all_scores(plan_, context.run(batch)), scores_of(second)));
  const std::vector<LinearChoice> kept = load_tuning(only_file()).choices;
  ASSERT_EQ(kept.size(), 6u);
  for (const LinearChoice& choice : kept) EXPECT_EQ(choice.seconds, 1.0);
}

TEST_F(CudaEngineTuning, TakesWhatWasKeptAndIgnoresWhatIsOfElsewhere) {
  claimed_ = [](const LinearChoice& choice) { return choice.variants[0] == "direct 32 x 32" ? 0.5 : 1.0; };
  const std::vector<float> scores = scores_of(bound());
  const test_support::Folder other("other_" + name_of_test()), third("third_" + name_of_test()),
      fourth("fourth_" + name_of_test());
  const std::string name = std::filesystem::path(only_file()).filename().string();
  std::filesystem::copy(only_file(), other.path() + name);
  Tuning tuning = load_tuning(only_file());
  tuning.on.driver += 10;
  save_tuning(tuning, third.path() + name);
  const std::string text = to_json(load_tuning(only_file()));
  warprank::detail::write_text(text.substr(0, text.size() - 9), fourth.path() + name);

  num_measured_ = 0;
  options_.auto_tuning.folder = other.path();
  EXPECT_TRUE(same_bits(scores_of(bound()), scores));
  EXPECT_EQ(num_measured_, 0);
  options_.auto_tuning.folder = third.path();
  EXPECT_THAT(described(),
              HasSubstr("\nlinear layers: " + third.path() + name + " is ignored: tuning: driver: expected "));
  EXPECT_GT(num_measured_, 20);
  EXPECT_EQ(load_tuning(third.path() + name).on.driver, tuning.on.driver - 10) << "measured anew";
  options_.auto_tuning.folder = fourth.path();
  EXPECT_THAT(message_of([&] { bound(); }), HasSubstr(fourth.path() + name + ": expected JSON in UTF-8, got "));
}

TEST_F(CudaEngineTuning, BeginsNoMeasurementWhenTheTimeIsOver) {
  double now = 0;
  int64_t num_late = 0;
  options_.auto_tuning.how.most_seconds = 1;
  options_.auto_tuning.how.clock = [&] { return now; };
  options_.auto_tuning.how.seconds = [&](const LinearChoice&) {
    num_late += now >= 1;
    now += 0.15;
    ++num_measured_;
    return 1.0;
  };
  EXPECT_THAT(described(), HasSubstr(" by rule, as the time was over; kept in "));
  EXPECT_EQ(num_late, 0);
  EXPECT_EQ(num_measured_, 7) << "of 0.15 s each";
  EXPECT_LT(now, 1 + 0.15);
  const size_t num_kept = load_tuning(only_file()).choices.size();
  EXPECT_GE(num_kept, 2u) << "each capacity has its share";
  EXPECT_LT(num_kept, 6u);
  options_.auto_tuning.how.most_seconds = 1e6;
  num_measured_ = 0;
  EXPECT_THAT(described(), HasSubstr("6 of 6 steps as decided before in this process\n"));
  EXPECT_EQ(num_measured_, 0) << "or models could not be exchanged";
  // The next process goes on where this one ended.
  const test_support::Folder other("other_" + name_of_test());
  std::filesystem::copy(folder_.path(), other.path());
  options_.auto_tuning.folder = other.path();
  EXPECT_THAT(described(), HasSubstr("linear layers: " + std::to_string(num_kept) + " from " + other.path()));
  EXPECT_GT(num_measured_, 0);
}

TEST_F(CudaEngineTuning, GoesByTheRuleWhereThereIsNoTimeAtAll) {
  options_.auto_tuning.how.most_seconds = 0;
  EXPECT_THAT(described(), HasSubstr("linear layers: 0 measured in 0.00 s; 6 by rule, as the time was over\n"));
  EXPECT_EQ(num_measured_, 0);
  EXPECT_EQ(only_file(), "");
}

TEST_F(CudaEngineTuning, GoesOnWhereNothingCanBeKept) {
  warprank::detail::write_text("a file", folder_.path() + "taken");
  options_.auto_tuning.folder = folder_.path() + "taken";
  const std::string told = described();
  EXPECT_THAT(told, HasSubstr("; not kept: " + folder_.path() + "taken/linears-"));
  EXPECT_EQ(scores_of(bound()).size(), scores_of(bound()).size());
}

TEST_F(CudaEngineTuning, TakesTheTilesThatAreFastest) {
  claimed_ = [](const LinearChoice& choice) {
    double seconds = 0;
    for (size_t i = 0; i < choice.layers.size(); ++i)
      seconds += choice.kernels[i] != LinearKernel::tiles                             ? 20
                 : choice.layers[i].out > 1 && choice.variants[i] == "direct 32 x 32" ? 1
                                                                                      : 10;
    return seconds;
  };
  const std::vector<float> chosen = scores_of(bound());
  for (const int64_t out : {40, 16, 8}) EXPECT_EQ(chosen_for(out), "tiles direct 32 x 32") << out;
  EXPECT_EQ(chosen_for(1), "tiles ");
  BindOptions by_rule;
  const Model plain = Model::bind(plan_, test_support::random_weights(plan_, 1), tables_, by_rule);
  const std::string of_32x32 = "  linear: 1 blocks of 256 threads, 36864 bytes";
  EXPECT_THAT(plain.context().describe(), Not(HasSubstr(of_32x32)));
  EXPECT_THAT(described(), HasSubstr(of_32x32));
  const std::vector<float> expected = scores_of(plain);
  ASSERT_EQ(chosen.size(), expected.size());
  for (size_t i = 0; i < chosen.size(); ++i) EXPECT_NEAR(chosen[i], expected[i], 1e-2 * (1 + std::abs(expected[i])));
}

TEST_F(CudaEngineTuning, TakesTheWayToFuseThatIsFastest) {
  const Model unasked = bound();
  const std::vector<float> by_rule = scores_of(unasked);
  const auto launches = [](const Model& model) {
    const std::string text = model.context().describe();
    return text.substr(text.find("\n  "));  // behind what is told of the choice
  };
  for (const char* const way : {"tiles of 32 rows", "split over 1 blocks of 32 x 16"}) {
    const test_support::Folder folder(name_of_test() + way[0]);
    options_.auto_tuning.folder = folder.path();
    claimed_ = [=](const LinearChoice& choice) { return choice.variants[0] == way ? 0.5 : 1.0; };
    const Model model = bound();
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) text = entry.path().string();
    int num_fused = 0;
    for (const LinearChoice& choice : load_tuning(text).choices)
      for (size_t i = 0; i < choice.layers.size() && choice.kernels[i] == LinearKernel::fused; ++i, ++num_fused)
        EXPECT_EQ(choice.variants[i], way);
    EXPECT_NE(launches(model), launches(unasked)) << way;
    EXPECT_GE(num_fused, 4) << "two layers of a chain at two capacities";
    const std::vector<float> scores = scores_of(model);
    ASSERT_EQ(scores.size(), by_rule.size());
    for (size_t i = 0; i < scores.size(); ++i) EXPECT_NEAR(scores[i], by_rule[i], 1e-2) << i;
    num_measured_ = 0;
    EXPECT_TRUE(same_bits(scores_of(bound()), scores));
    EXPECT_EQ(num_measured_, 0) << "as it was kept";
  }
}

TEST_F(CudaEngineTuning, MeasuresNothingWhereItIsTold) {
  const auto expect_told = [&](const std::string& line) {
    EXPECT_THAT(described(), HasSubstr("\nlinear layers: " + line + "\n"));
    EXPECT_EQ(num_measured_, 0);
    EXPECT_EQ(only_file(), "");
  };
  options_.auto_tuning.when = TuneAtBind::never;
  expect_told("by rule");
  options_.auto_tuning.when = TuneAtBind::always;
  options_.linear_kernel = LinearKernel::tiles;
  expect_told("by tiles wherever it computes them, as said");
  options_.linear_kernel.reset();
  options_.same_kernels_at_all_capacities = true;
  expect_told("by the same tiles at all capacities, as said");
  options_.same_kernels_at_all_capacities = false;
  Tuning given = tune(plan_, test_support::random_weights(plan_, 1), tables_, {}, options_.auto_tuning.how);
  num_measured_ = 0;
  options_.tuning = std::make_shared<const Tuning>(given);
  expect_told("by the tuning that was given");
  given.on.card = "another";
  options_.tuning = std::make_shared<const Tuning>(given);
  EXPECT_THAT(message_of([&] { bound(); }), HasSubstr("tuning: card: expected "));
  options_.foreign_tuning = ForeignTuning::ignore;
  EXPECT_THAT(described(), HasSubstr("by rule; the tuning that was given is ignored: tuning: card: expected "));
}

/// The same request, alone at a small capacity and among others at a large one.
TEST_F(CudaEngine, LinearsHaveTheSameBitsAtAllCapacitiesWhereKernelsAreHeld) {
  const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                               const auto user = b.axis("user"), item = b.axis("item", user);
                               const auto x = b.dense("x", item, 200), u = b.dense("u", user, 72);
                               const auto deep = b.mlp("deep", b.concat({x, b.expand(u, item)}), {136, 64, 1}, relu);
                               return {{"score", b.sigmoid(deep)}, {"other", b.linear("other", x, 144)}};
                             }),
                             {}, {{1, 4, {}}, {4, 700, {}}});
  const Weights weights = test_support::random_weights(plan, 1);
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
  BindOptions held;
  held.same_kernels_at_all_capacities = true;
  const auto same_bits_at_both = [&](const BindOptions& options) {
    const Model model = Model::bind(plan, weights, tables, options);
    Context context = model.context();
    test_support::RequestShape small, large;
    small.rows = {{"item", 4}};
    large.rows = {{"item", 200}};
    const std::vector<PlainRequest> first = random_requests(plan, 1, 1, small);
    Batch alone = batch_of(model, first), among = batch_of(model, first);
    for (const PlainRequest& request : random_requests(plan, 3, 2, large)) add_to(among, request);
    const std::vector<float> scores = scores_of_request(plan, context.run(alone), 0);
    EXPECT_FALSE(scores.empty());
    return same_bits(scores_of_request(plan, context.run(among), 0), scores);
  };
  EXPECT_TRUE(same_bits_at_both(held));
  // Which kernels a card takes is its own: an H100 takes the same for both.
  if constexpr (!on_gpu) {
    EXPECT_FALSE(same_bits_at_both({})) << "or this test shows nothing";
  }
}

#if !defined(__CUDACC__)
// What only the executor can tell.

TEST_F(CudaEngineTuning, TakesNoAlgorithmWhoseSumsDependOnTheRow) {
  claimed_ = [](const LinearChoice& choice) {
    double seconds = 0;
    for (size_t i = 0; i < choice.layers.size(); ++i)
      seconds += choice.kernels[i] != LinearKernel::cublaslt ? 10
                 : choice.variants[i] == "algorithm 2"       ? 1  // cuts sums as suits the row
                 : choice.variants[i] == "algorithm 1"       ? 2
                                                             : 5;
    return seconds;
  };
  const Model model = bound();
  EXPECT_EQ(chosen_for(8), "cublaslt algorithm 1") << "whose sums are cut alike in all rows";
  EXPECT_EQ(chosen_for(40), "cublaslt ") << "as FP16 would hide how sums are cut";
  EXPECT_FALSE(scores_of(model).empty());
}

/// Sums of several steps, of several layers of one, and of both capacities.
TEST_F(CudaEngineTuning, GivesCublasltOneWorkspaceInTurns) {
  const Capacity small{2, 8, {}}, large{4, 32, {}};
  for (const std::vector<Capacity>& capacities : {std::vector<Capacity>{small, large}, {large, small}}) {
    const Plan plan = plan_for(warprank::build([](Builder& b) -> Outputs {
                                 const auto user = b.axis("user"), item = b.axis("item", user);
                                 const auto x = b.dense("x", item, 24);
                                 const auto deep = b.linear("deep", x, 16, {.activation = gelu});
                                 return {{"one", b.linear("one", x, 8)}, {"two", b.linear("two", deep, 12)}};
                               }),
                               {}, capacities);
    const Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda());
    const std::vector<PlainRequest> requests = random_requests(plan, 2, 5);
    const auto run = [&](bool cuts_sums, int64_t& bytes) {
      options_.auto_tuning.folder =
          folder_.path() + (cuts_sums ? "cut" : "whole") + std::to_string(capacities[0].items);
      claimed_ = [=](const LinearChoice& choice) {
        double seconds = 0;
        for (const std::string& variant : choice.variants) seconds += (variant == "algorithm 1") == cuts_sums ? 1 : 2;
        return seconds;
      };
      const Model model = Model::bind(plan, test_support::random_weights(plan, 1), tables, options_);
      Context context = model.context();
      for (const auto& [what, size] : context.memory())
        if (what == "workspace of steps in turn") bytes = size;
      Batch batch = batch_of(model, requests);
      return all_scores(plan, context.run(batch));
    };
    int64_t bytes_of_whole = -1, bytes_of_cut = -1;
    const std::vector<float> whole = run(false, bytes_of_whole), cut = run(true, bytes_of_cut);
    EXPECT_EQ(bytes_of_whole, 0);
    EXPECT_EQ(bytes_of_cut, 4 * 32 * 16) << "of the widest layer at the largest capacity";
    ASSERT_EQ(cut.size(), whole.size());
    for (size_t i = 0; i < cut.size(); ++i) EXPECT_NEAR(cut[i], whole[i], 1e-2) << i;
  }
}

TEST_F(CudaEngineTuning, GoesOnWithoutCublaslt) {
  const struct Missing {
    Missing() { warprank::detail::gemm::stand_in_is_missing = true; }
    ~Missing() { warprank::detail::gemm::stand_in_is_missing = false; }
  } missing;
  const std::string told = described();
  EXPECT_THAT(told, HasSubstr("\ncuBLASLt: none: it is missing\nlinear layers: 6 measured in "));
  EXPECT_THAT(told, Not(HasSubstr("cublaslt")));
  options_.linear_kernel = LinearKernel::cublaslt;
  EXPECT_THAT(described(), Not(HasSubstr("cublaslt:")));
}

TEST_F(CudaEngineTuning, GoesByTheRuleWhereThereIsNoMemoryToMeasure) {
  const int64_t before = simt::allocated_bytes();
  int64_t of_model = 0;
  {
    options_.auto_tuning.when = TuneAtBind::never;
    const Model model = bound();
    of_model = simt::allocated_bytes() - before;
  }
  options_.auto_tuning.when = TuneAtBind::always;
  simt::limit_memory(before + of_model + 300, int64_t{1} << 40);
  const Model model = bound();
  simt::limit_memory(int64_t{1} << 40, int64_t{1} << 40);
  EXPECT_THAT(model.context().describe(), HasSubstr("linear layers: 0 measured in "));
  EXPECT_THAT(model.context().describe(), HasSubstr(" s; 6 by rule, as "));
  EXPECT_THAT(model.context().describe(), HasSubstr(" bytes of device memory, got "));
}

TEST_F(CudaEngineTuning, LeavesNothingBehindWhicheverCallFails) {
  options_.auto_tuning.folder = "";
  for (int64_t n = 0; n < 60; n += 7) {
    const int64_t bytes = simt::allocated_bytes(), streams = simt::num_streams();
    simt::fail_call(n);
    try {
      tune(plan_, test_support::random_weights(plan_, 1), tables_, {}, options_.auto_tuning.how);
    } catch (const cuda_error&) {            // NOLINT: what cuBLASLt alone fails at is not tried any more
    } catch (const out_of_device_memory&) {  // NOLINT
    }
    simt::fail_call(-1);
    EXPECT_EQ(simt::allocated_bytes(), bytes) << "call " << n;
    EXPECT_EQ(simt::num_streams(), streams);
  }
}
#endif

}}  // namespace warprank
