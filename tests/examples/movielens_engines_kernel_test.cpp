// SPDX-License-Identifier: Apache-2.0

/// The MovieLens example on the CUDA engine: what it predicts is what PyTorch and the host engine do.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../../examples/movielens/evaluation.hpp"
#include "../../examples/movielens/generated.hpp"
#include "../../examples/movielens/ranker.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/cuda.hpp"

namespace {

using kernel_testing::build;
using kernel_testing::Build;
using movielens::Data;
using movielens::Evaluation;
using movielens::Features;
using movielens::Ranker;

const std::string example = WARPRANK_TEST_DATA "/../examples/movielens";

/// The executor takes 5 ms for each film: all users are for a GPU, and for whoever sets WARPRANK_ALL_USERS.
int64_t num_users() {
  const bool all = build == Build::gpu || std::getenv("WARPRANK_ALL_USERS") != nullptr;
  return all ? 1'000'000 : 48;
}

Evaluation evaluate_on(warprank::Device device, const Data& data, const Features& features) {
  const warprank::plan::Capacity capacity{
      .requests = 16, .items = 600, .rows = {{"genres", 3000}, {"hist_genres", 6000}}};
  Ranker ranker(example + "/weights", device, capacity);
  return movielens::evaluate(
      data, features, ranker, [](int64_t) {}, 16, num_users());
}

double logit(double p) { return std::log(p / (1 - p)); }

/// Holds the predictions of one target against those of another engine, or of PyTorch.
void expect_alike(const std::string& target, const std::vector<double>& ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  double mean = 0, their_mean = 0, largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    mean += ours[i] / static_cast<double>(ours.size());
    their_mean += theirs[i] / static_cast<double>(ours.size());
    largest = std::max(largest, std::abs(logit(ours[i]) - logit(theirs[i])));
  }
  testing::Test::RecordProperty(target + "_largest_logit_difference", std::to_string(largest));
  EXPECT_NEAR(mean, their_mean, 1e-3 * their_mean) << target;
  EXPECT_LE(largest, 0.01) << target << ": at most a quarter of a percent of a probability";
}

std::vector<double> as_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

void expect_pytorchs(const Evaluation& evaluation) {
  nlohmann::json golden;
  std::ifstream(example + "/golden/scores.json") >> golden;
  const auto liked = golden.at("ctr").get<std::vector<double>>(), loved = golden.at("ctcvr").get<std::vector<double>>();
  std::vector<double> our_liked, our_loved, their_liked, their_loved;
  const auto index = golden.at("index").get<std::vector<size_t>>();
  for (size_t i = 0; i < index.size(); ++i) {
    if (index[i] >= evaluation.stars.size()) continue;
    our_liked.push_back(evaluation.scores.liked[index[i]]);
    our_loved.push_back(evaluation.scores.loved[index[i]]);
    their_liked.push_back(liked[i]);
    their_loved.push_back(loved[i]);
  }
  ASSERT_FALSE(our_liked.empty());
  expect_alike("pytorch_ctr", our_liked, their_liked);
  expect_alike("pytorch_ctcvr", our_loved, their_loved);
  if (evaluation.stars.size() != golden.at("held_out").get<size_t>()) return;
  EXPECT_NEAR(evaluation.auc_liked(), golden.at("auc").at("ctr").get<double>(), 1e-4);
  EXPECT_NEAR(evaluation.auc_loved(), golden.at("auc").at("ctcvr").get<double>(), 1e-4);
}

TEST(MovielensEngines, TheCudaEngineRanksAsTheHostEngineAndPyTorch) {
  const char* const folder = std::getenv("WARPRANK_DATA");
  const bool is_real = folder != nullptr && *folder != '\0';
  const Data data = is_real ? movielens::load(folder) : movielens::generate();
  const Features features(data);
  kernel_testing::reset({});
  const Evaluation ours = evaluate_on(warprank::cuda(), data, features);
  const Evaluation theirs = evaluate_on(warprank::host(), data, features);
  ASSERT_GT(ours.stars.size(), 100u);
  expect_alike("host_ctr", as_double(ours.scores.liked), as_double(theirs.scores.liked));
  expect_alike("host_ctcvr", as_double(ours.scores.loved), as_double(theirs.scores.loved));
  RecordProperty("ratings", static_cast<int>(ours.stars.size()));
  RecordProperty("auc_difference_ctr", std::to_string(ours.auc_liked() - theirs.auc_liked()));
  RecordProperty("auc_difference_ctcvr", std::to_string(ours.auc_loved() - theirs.auc_loved()));
  EXPECT_NEAR(ours.auc_liked(), theirs.auc_liked(), 1e-4);
  EXPECT_NEAR(ours.auc_loved(), theirs.auc_loved(), 1e-4);
  if (is_real) expect_pytorchs(ours);
}

}  // namespace
