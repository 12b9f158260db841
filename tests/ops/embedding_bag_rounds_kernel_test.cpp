// SPDX-License-Identifier: Apache-2.0

// Loads of look-ups that wait for one another, as the head of embedding_bag/kernel.cuh has them.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/embedding_bag_testing.hpp"
#include "support/kernel_testing.hpp"
#include "support/longest_warp.hpp"
#include "warprank/ops/embedding_bag.cuh"

namespace warprank { namespace {

using namespace embedding_bag_testing;  // NOLINT: written for these tests

TEST(EmbeddingBagCounts, OfTheLongestWarp) {
  if (kernel_testing::build != Build::plain) GTEST_SKIP() << "counted once, by the executor's plain build";
#if !defined(__CUDACC__)
  CountTable table(longest_warp_columns({"rows", "ids"}));
  const auto add = [&](DType type, Scales scales, bool hashed, const std::vector<int64_t>& sizes, int64_t most_rounds) {
    std::mt19937_64 random(3);
    const auto rows = std::make_shared<TestTable>(type, 32, 200, false, 0, random, scales);
    const bool single = sizes[0] == 0;
    const Form form = single ? Form::each : Form::offsets;
    TestBags bags = make_bags(rows, hashed, form, single ? std::vector<int64_t>(50, 1) : sizes,
                              single ? Pooling::none : Pooling::sum, 0, random);
    for (int64_t& id : bags.ids) {
      const auto row = static_cast<size_t>(random() % 200);
      id = hashed ? rows->keys[row] : static_cast<int64_t>(row);
    }
    const auto run = [&](const Config& config) {
      reset(config);
      DeviceBags device({bags});
      for (BagFeature& feature : device.features()) feature.counters = nullptr, feature.num_bags.actual = nullptr;
      device.prepare();
      device.launch();
      kernel_testing::synchronize();
    };
    const std::string name =
        std::string(name_of(type)) + (hashed ? ", hashed" : "") + (scales == Scales::behind ? ", scales behind" : "");
    const simt::LoadRounds found =
        add_longest_warp(table, run, name, single ? "one" : "bags of " + std::to_string(sizes[0]));
    std::string chain;
    for (const std::string& load : found.chain) chain += " " + load;
    EXPECT_EQ(found.rounds, most_rounds) << name << ", " << sizes[0] << ":" << chain;
  };
  const std::vector<int64_t> one{0}, fours(50, 4);
  add(DType::f16, Scales::apart, false, one, 3);
  add(DType::i8, Scales::apart, false, one, 3);
  add(DType::i8, Scales::behind, false, one, 3);
  add(DType::f16, Scales::apart, false, fours, 4);
  add(DType::i8, Scales::apart, false, fours, 4);
  add(DType::i8, Scales::behind, false, fours, 4);
  // A line before the row, and another of displaced keys.
  add(DType::f16, Scales::apart, true, one, 5);
  add(DType::f16, Scales::apart, true, fours, 6);
#endif
}

}}  // namespace warprank
