// SPDX-License-Identifier: Apache-2.0

/// Tunings: the rule, files, and what is refused.

#include "warprank/engine/tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "warprank/engine/cuda/linear_choice.hpp"
#include "warprank/engine/tuning_json.hpp"

namespace warprank {
namespace {

using cuda_backend::LinearChooser;
using cuda_backend::StepShape;
using testing::HasSubstr;

LinearShape layer(int64_t rows, int64_t in, int64_t out, std::string behind = "relu, f16", int64_t depth = 0) {
  return {depth, rows, in, out, std::move(behind)};
}

Tuning example() {
  Tuning tuning;
  tuning.on = {"NVIDIA T4", 75, 40, 12040, 120401};
  tuning.choices = {{{layer(4096, 2528, 2048), layer(4096, 2528, 20, "f32")},
                     {LinearKernel::cublaslt, LinearKernel::tiles},
                     2,
                     1.0 / 3e3,
                     5e-4},
                    {{layer(64, 256, 128), layer(64, 128, 1, "sigmoid, f32", 1)},
                     {LinearKernel::fused, LinearKernel::fused},
                     1,
                     8e-6,
                     8e-6}};
  tuning.choices[1].layers[0].count = 4;
  return tuning;
}

template <class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LinearRule, LeavesToCublasltWhatItWasMeasuredToBeFasterAt) {
  const auto rule = [](const LinearShape& shape, bool is_chain = false, bool is_bare = true, bool has = true) {
    return linear_kernel_by_rule(shape, is_chain, is_bare, has, 90);
  };
  EXPECT_DOUBLE_EQ(layer(1024, 1024, 1024).intensity(), 1024.0 / 3);
  EXPECT_DOUBLE_EQ(layer(0, 1024, 1024).intensity(), 0);
  EXPECT_EQ(rule(layer(94, 1024, 1024)), LinearKernel::tiles);
  EXPECT_EQ(rule(layer(95, 1024, 1024)), LinearKernel::cublaslt);
  EXPECT_EQ(rule(layer(1 << 20, 600, 64)), LinearKernel::tiles) << "few outputs";
  EXPECT_EQ(rule(layer(4096, 1024, 1024), true), LinearKernel::fused);
  EXPECT_EQ(rule(layer(4096, 1024, 1024), false, false), LinearKernel::tiles);
  EXPECT_EQ(rule(layer(4096, 1024, 1024), false, true, false), LinearKernel::tiles);
}

TEST(TuningFile, GivesBackWhatWasSaved) {
  const std::string path = testing::TempDir() + "warprank_tuning_test.json";
  save_tuning(example(), path);
  const Tuning loaded = load_tuning(path);
  std::remove(path.c_str());
  EXPECT_TRUE(loaded == example());
  EXPECT_THAT(message_of([&] { load_tuning(path); }), HasSubstr(path + ": expected a readable file"));
}

TEST(TuningFile, RefusesWhatNoTuningWouldBe) {
  struct {
    const char *from, *to, *message;
  } const mistakes[] = {
      {"warprank.tuning", "warprank.graph", "format \"warprank.tuning\", got \"warprank.graph\""},
      {"\"version\": 1", "\"version\": 2", "expected version 1, got 2"},
      {"\"card\": \"NVIDIA T4\",", "", "t.json.on: expected a member \"card\", got none"},
      {"\"target\": 75", "\"target\": \"75\"", "t.json.on.target: expected a 64-bit integer"},
      {"\"driver\"", "\"diver\"", "t.json.on: expected a member \"driver\""},
      {"\"cublaslt\",\n    \"tiles\"", "\"cublaslt\"", "choices[0].kernels: expected one for each of 2 layers, got 1"},
      {"\"cublaslt\",\n    \"tiles\"", "\"fused\",\n    \"tiles\"", "fused for all layers or for none"},
      {"\"cublaslt\",", "\"cutlass\",", "choices[0].kernels[0]: expected one of fused, tiles, cublaslt"},
      {"\"rows\": 4096", "\"rows\": -1", "a depth and rows from 0 on"},
      {"\"seconds\": 8e-06", "\"seconds\": \"nan\"", "choices[1]: expected seconds from 0 on, got nan"},
      {"{", "", "JSON in UTF-8"},
  };
  const std::string text = to_json(example());
  for (const auto& mistake : mistakes) {
    SCOPED_TRACE(mistake.to);
    std::string wrong = text;
    ASSERT_NE(wrong.find(mistake.from), std::string::npos) << text;
    wrong.replace(wrong.find(mistake.from), std::string(mistake.from).size(), mistake.to);
    EXPECT_THAT(message_of([&] { tuning_from_json(wrong, "t.json"); }), HasSubstr(mistake.message));
  }
  Tuning twice = example();
  twice.choices.push_back(twice.choices[0]);
  EXPECT_THAT(message_of([&] { tuning_from_json(to_json(twice)); }), HasSubstr("choices[2].layers: expected others"));
}

TEST(Tuning, IsOfOnePlace) {
  check_tuning(example(), example().on);
  TunedOn here = example().on;
  here.card = "NVIDIA A10";
  here.cublaslt = 130000;
  const std::string message = message_of([&] { check_tuning(example(), here); });
  EXPECT_THAT(message, HasSubstr("2 problems"));
  EXPECT_THAT(message, HasSubstr("tuning: card: expected NVIDIA A10, got NVIDIA T4"));
  EXPECT_THAT(message, HasSubstr("tuning: cublaslt: expected 130000, got 120401"));
}

TEST(Tuning, ShowsWhatWasChosen) {
  const std::string text = example().to_string();
  EXPECT_THAT(text, HasSubstr("NVIDIA T4, sm_75, driver 12040, cuBLASLt 120401"));
  EXPECT_THAT(text, HasSubstr("500.0    333.3 us         2  cublaslt  [4096, 2528] -> 2048 (relu, f16)"));
  EXPECT_THAT(text, HasSubstr("fused     4 of [64, 256] -> 128 (relu, f16)"));
}

/// As shape_of_step makes it.
StepShape step_of(const std::vector<LinearShape>& layers, bool is_stack) {
  StepShape step;
  step.layers = layers;
  step.is_stack = is_stack;
  for (const LinearShape& shape : layers) {
    step.is_head.push_back(shape.out == 1);
    step.is_bare.push_back(true);
  }
  return step;
}

TEST(LinearChooser, TakesWhatWasMeasuredAndElseTheRule) {
  const auto tuning = std::make_shared<const Tuning>(example());
  const LinearChooser chooser(tuning, true, 75);
  const StepShape measured = step_of(tuning->choices[0].layers, false);
  EXPECT_EQ(chooser.choose(measured), tuning->choices[0].kernels);
  StepShape other = measured;
  other.layers[0].rows = 50;
  EXPECT_EQ(chooser.choose(other), std::vector<LinearKernel>(2, LinearKernel::tiles));
  EXPECT_TRUE(chooser.may_choose_cublaslt(measured, 0));
  EXPECT_FALSE(chooser.may_choose_cublaslt(measured, 1));
  EXPECT_TRUE(LinearChooser::for_trials(true, 75).may_choose_cublaslt(other, 1));
  EXPECT_FALSE(LinearChooser::for_trials(false, 75).may_choose_cublaslt(other, 1));
}

TEST(LinearChooser, LeavesToTheRuleWhatBeginsWithAMixWhateverItsLayersWereMeasuredAs) {
  Tuning tiles = example();
  tiles.choices[1].kernels = {LinearKernel::tiles, LinearKernel::tiles};
  StepShape step = step_of(tiles.choices[1].layers, true);
  const LinearChooser chooser(std::make_shared<const Tuning>(tiles), true, 75);
  EXPECT_EQ(chooser.choose(step), tiles.choices[1].kernels);
  step.mixes = true;
  EXPECT_EQ(chooser.choose(step), std::vector<LinearKernel>(2, LinearKernel::fused));
}

TEST(LinearChooser, RefusesKernelsThatDoNotComputeTheLayer) {
  Tuning wrong = example();
  wrong.choices[0].kernels = {LinearKernel::fused, LinearKernel::fused};
  wrong.choices[1].kernels = {LinearKernel::tiles, LinearKernel::cublaslt};
  const LinearChooser chooser(std::make_shared<const Tuning>(wrong), true, 75);
  EXPECT_THAT(
      message_of([&] { chooser.choose(step_of(wrong.choices[0].layers, false)); }),
      HasSubstr("tuning: layer [4096, 2528] -> 2048 (relu, f16): expected a kernel that computes it, got fused"));
  EXPECT_THAT(message_of([&] { chooser.choose(step_of(wrong.choices[1].layers, true)); }),
              HasSubstr("-> 1 (sigmoid, f32): expected a kernel that computes it, got cublaslt"));
}

}  // namespace
}  // namespace warprank
