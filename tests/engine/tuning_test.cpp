// SPDX-License-Identifier: Apache-2.0

/// Tunings: the rule, files, and what is refused.

#include "warprank/engine/tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/folder.hpp"
#include "support/message_of.hpp"
#include "warprank/core/json.hpp"
#include "warprank/engine/cuda/linear_choice.hpp"
#include "warprank/engine/tuning_folder.hpp"
#include "warprank/engine/tuning_json.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using cuda_backend::LinearChooser;
using cuda_backend::LinearPicks;
using cuda_backend::StepShape;
using test_support::message_of;
using testing::HasSubstr;

LinearShape layer(int64_t rows, int64_t in, int64_t out, std::string behind = "relu, f16", int64_t depth = 0) {
  return {depth, rows, in, out, std::move(behind)};
}

Tuning example() {
  Tuning tuning;
  tuning.on = {"NVIDIA T4", 75, 40, 12040, 120401};
  tuning.choices = {{{layer(4096, 2528, 2048), layer(4096, 2528, 20, "f32")},
                     {LinearKernel::cublaslt, LinearKernel::tiles},
                     {"algorithm 2", "direct 16 x 32"},
                     2,
                     1.0 / 3e3,
                     5e-4},
                    {{layer(64, 256, 128), layer(64, 128, 1, "sigmoid, f32", 1)},
                     {LinearKernel::fused, LinearKernel::fused},
                     {"", ""},
                     1,
                     8e-6,
                     8e-6}};
  tuning.choices[1].layers[0].count = 4;
  return tuning;
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
      {"\"version\": 2", "\"version\": 1", "expected version 2, got 1"},
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
  EXPECT_THAT(text, HasSubstr("500.0    333.3 us         2  cublaslt  [4096, 2528] -> 2048 (relu, f16), algorithm 2"));
  EXPECT_THAT(text, HasSubstr("fused     4 of [64, 256] -> 128 (relu, f16)"));
}

TEST(LinearRule, TakesForBareWhatHasNothingBehindItButAnActivation) {
  const auto is_bare = [](const std::function<Tensor(Builder&, Tensor)>& model) {
    const Plan plan = compile([&](Builder& b) -> Outputs { return {{"y", model(b, b.dense("x", b.axis("row"), 4))}}; });
    const int last = static_cast<int>(plan.graph().nodes.size()) - 1;
    const StepShape step = cuda_backend::shape_of_step(
        plan.graph(), {{last}}, false, [](int) { return 100; }, [](int) { return DType::f16; });
    return bool(step.is_bare[0]);
  };
  EXPECT_TRUE(is_bare([](Builder& b, Tensor x) { return b.linear("l", x, 4, {.activation = relu}); }));
  EXPECT_FALSE(is_bare([](Builder& b, Tensor x) { return b.linear("l", x, 4) + x; }));
  EXPECT_FALSE(is_bare([](Builder& b, Tensor x) { return b.cross("c", x, {.layers = 1}); }));
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
  EXPECT_TRUE(chooser.choose(measured) == LinearPicks(tuning->choices[0]));
  StepShape other = measured;
  other.layers[0].rows = 50;
  EXPECT_TRUE(chooser.choose(other) == LinearPicks(std::vector<LinearKernel>(2, LinearKernel::tiles)));
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
  EXPECT_EQ(chooser.choose(step).kernels, tiles.choices[1].kernels);
  step.mixes = true;
  EXPECT_EQ(chooser.choose(step).kernels, std::vector<LinearKernel>(2, LinearKernel::fused));
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

TEST(LinearChooser, RefusesVariantsThatNoKernelHas) {
  const auto message_with = [](std::vector<std::string> variants) {
    Tuning wrong = example();
    wrong.choices[0].variants = std::move(variants);
    const LinearChooser chooser(std::make_shared<const Tuning>(wrong), true, 75);
    return message_of([&] { chooser.choose(step_of(wrong.choices[0].layers, false)); });
  };
  EXPECT_EQ(message_with({"algorithm 15", "staged 64 x 64 in 8 parts"}), "");
  EXPECT_THAT(message_with({"algorithm 16", ""}), HasSubstr("expected a variant of cublaslt, got \"algorithm 16\""));
  EXPECT_THAT(message_with({"", "direct 16 x 16 in 2 parts"}),
              HasSubstr("expected a variant of tiles, got \"direct 16 x 16 in 2 parts\""));
  Tuning mixed = example();
  mixed.choices[0].kernels[0] = LinearKernel::tiles;
  mixed.choices[0].variants = {"direct 16 x 16", "direct 16 x 32"};
  const LinearChooser chooser(std::make_shared<const Tuning>(mixed), true, 75);
  EXPECT_THAT(message_of([&] { chooser.choose(step_of(mixed.choices[0].layers, false)); }),
              HasSubstr("expected tiles as of the layers beside it, \"direct 16 x 16\", got \"direct 16 x 32\""));
  const auto message_with_chain = [](std::vector<std::string> variants) {
    Tuning fused = example();
    fused.choices[1].variants = std::move(variants);
    const LinearChooser of_chains(std::make_shared<const Tuning>(fused), true, 75);
    return message_of([&] { of_chains.choose(step_of(fused.choices[1].layers, true)); });
  };
  const std::string split = "split over 8 blocks of 16 x 32";
  EXPECT_EQ(message_with_chain({split, split}), "");
  EXPECT_EQ(message_with_chain({"tiles of 32 rows", "tiles of 32 rows"}), "");
  EXPECT_THAT(message_with_chain({split, ""}),
              HasSubstr("expected fused as the layers before it, \"" + split + "\", got \"\""));
  for (const char* const none : {"split over 65 blocks of 16 x 16", "split over 8 blocks of 32 x 32", "direct 16 x 16"})
    EXPECT_THAT(message_with_chain({none, none}),
                HasSubstr("expected a variant of fused, got \"" + std::string(none) + "\""));
}

TEST(LinearChooser, TriesChainsThatFillTheCardOrAPartOfIt) {
  const auto tried = [](int64_t rows, int64_t out, int target, int64_t count = 1) {
    StepShape step = step_of({layer(rows, 600, out), layer(rows, out, 1, "f32", 1)}, true);
    step.layers[0].count = step.layers[1].count = count;
    std::vector<std::string> names;
    for (const ChainPolicy& policy : cuda_backend::chains_to_try(step, target)) {
      names.push_back(policy.to_string());
      EXPECT_EQ(cuda_backend::chain_policy_named(names.back())->to_string(), names.back());
    }
    return names;
  };
  const std::vector<std::string> tiles = {"tiles of 16 rows", "tiles of 32 rows"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = tiles;
    for (const std::string& shares : more) all.push_back("split over " + shares);
    return all;
  };
  EXPECT_EQ(tried(100, 256, 90), with({"16 blocks of 16 x 16", "8 blocks of 16 x 16", "4 blocks of 16 x 16",
                                       "8 blocks of 16 x 32", "4 blocks of 16 x 32", "2 blocks of 16 x 32",
                                       "16 blocks of 32 x 16", "8 blocks of 32 x 16", "4 blocks of 32 x 16"}));
  EXPECT_EQ(tried(100, 64, 75, 3), with({"3 blocks of 16 x 16", "1 blocks of 16 x 16", "1 blocks of 16 x 32",
                                         "3 blocks of 32 x 16", "1 blocks of 32 x 16"}));
  EXPECT_EQ(tried(5000, 256, 90), tiles) << "of more tiles than the card has multiprocessors";
  EXPECT_EQ(tried(0, 256, 90), tiles);
}

TEST(LinearChooser, TriesTilingsThatTheTableHasForFast) {
  const StepShape few = step_of({layer(50, 600, 256), layer(50, 256, 1, "f32", 1)}, true);
  const std::vector<LinearTiling> tilings = cuda_backend::tilings_to_try(few, 0, 90);
  ASSERT_FALSE(tilings.empty());
  EXPECT_LE(tilings.size(), 5u);
  for (const LinearTiling& tiling : tilings) {
    EXPECT_TRUE(cuda_backend::tiling_named(tiling.to_string())->to_string() == tiling.to_string());
    EXPECT_NE(tiling.to_string(),
              detail::linear::choose_tiling(cuda_backend::tiled_sizes(few, 0), true, 90).to_string());
  }
  EXPECT_TRUE(cuda_backend::tilings_to_try(few, 1, 90).empty()) << "a head is cut in its own way";
}

TEST(LinearChooser, HoldsTheTilesThatAreBestForAllCapacitiesTogether) {
  const StepShape one = step_of({layer(1, 1024, 1024)}, false), many = step_of({layer(4096, 1024, 1024)}, false);
  const auto held = [&](const std::vector<StepShape>& steps) {
    const LinearChooser chooser = LinearChooser::holding(cuda_backend::HeldTilings(steps, 90), 90);
    const LinearPicks at_one = chooser.choose(one);
    EXPECT_EQ(at_one.kernels, std::vector<LinearKernel>{LinearKernel::tiles});
    EXPECT_TRUE(at_one == chooser.choose(many));
    return at_one.variants[0];
  };
  EXPECT_EQ(held({one}).substr(0, 6), "direct");
  EXPECT_EQ(held({one, many}), "staged 64 x 64") << "which all layers can have";
}

class TuningFolderTest : public testing::Test {
 protected:
  detail::TuningFolder folder_of(const TunedOn& on, std::vector<std::vector<LinearShape>> steps = {}) const {
    return {folder_.path() + "made/of/it", on, steps};
  }

  const test_support::Folder folder_{"tuning_folder_test"};
  const TunedOn here_ = example().on;
};

TEST_F(TuningFolderTest, KeepsAFileForEachPlaceAndStepsThatMayBeThere) {
  std::string line;
  EXPECT_TRUE(folder_of(here_).load(line).empty());
  EXPECT_EQ(line, "") << "there is none";
  folder_of(here_).save(example().choices, line);
  EXPECT_EQ(line, "kept in " + folder_of(here_).path());
  EXPECT_THAT(folder_of(here_).path(), HasSubstr("made/of/it/linears-NVIDIA_T4-sm_75-"));
  line.clear();
  EXPECT_TRUE(folder_of(here_).load(line) == example().choices);
  EXPECT_EQ(line, "");
  std::set<std::string> paths{folder_of(here_).path(), folder_of(here_, {example().choices[0].layers}).path(),
                              folder_of(here_, {example().choices[1].layers}).path()};
  for (TunedOn other : {here_, here_, here_, here_, here_, here_}) {
    const size_t i = paths.size() - 3;
    if (i == 0) other.card = "NVIDIA A10";
    if (i == 1) other.target = 80;
    if (i == 2) other.multiprocessors = 41;
    if (i == 3) other.driver = 13000;
    if (i == 4) other.cublaslt = 0;
    if (i == 5) other.kernels += 1;
    paths.insert(folder_of(other).path());
  }
  EXPECT_EQ(paths.size(), 9u) << "whatever differs has a file of its own";
}

TEST_F(TuningFolderTest, IgnoresWhatIsOfElsewhereAndRefusesHalfAFile) {
  std::string line;
  const detail::TuningFolder folder = folder_of(here_);
  folder.save(example().choices, line);
  Tuning foreign = example();
  foreign.on.card = "NVIDIA A10";
  save_tuning(foreign, folder.path());
  EXPECT_TRUE(folder.load(line).empty());
  EXPECT_EQ(line, folder.path() + " is ignored: tuning: card: expected NVIDIA T4, got NVIDIA A10");
  const std::string text = to_json(example());
  detail::write_text(text.substr(0, text.size() / 2), folder.path());
  EXPECT_THAT(message_of([&] { folder.load(line); }), HasSubstr(folder.path() + ": expected JSON in UTF-8, got "));
}

TEST_F(TuningFolderTest, GoesOnWhereNothingCanBeKept) {
  detail::write_text("a file", folder_.path() + "taken");
  std::string line;
  detail::TuningFolder(folder_.path() + "taken", here_, {}).save(example().choices, line);
  EXPECT_THAT(line, testing::StartsWith("not kept: " + folder_.path() + "taken/linears-"));
  const detail::TuningFolder none("", here_, {});
  line.clear();
  none.save(example().choices, line);
  EXPECT_TRUE(none.load(line).empty());
  EXPECT_EQ(line + none.path(), "");
}

TEST_F(TuningFolderTest, IsNamedByTheEnvironment) {
  const auto folder_with = [](const char* named, const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) {
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    };
    set("WARPRANK_TUNING_FOLDER", named);
    set("XDG_CACHE_HOME", cache);
    set("HOME", home);
    return default_tuning_folder();
  };
  EXPECT_EQ(folder_with("here", "cache", "home"), "here");
  EXPECT_EQ(folder_with("", "cache", "home"), "");
  EXPECT_EQ(folder_with(nullptr, "cache", "home"), "cache/warprank");
  EXPECT_EQ(folder_with(nullptr, "", "home"), "home/.cache/warprank");
  EXPECT_EQ(folder_with(nullptr, nullptr, nullptr), "");
}

}}  // namespace warprank
