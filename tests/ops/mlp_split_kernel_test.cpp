// SPDX-License-Identifier: Apache-2.0

/// Stacks whose layers several blocks share (ops/detail/mlp/split.cuh): what these exchange, in every order.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/mlp_case.hpp"
#include "warprank/ops/mlp.cuh"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

using Sizes = std::vector<int64_t>;

/// 35 rows of a capacity, of layers of 16 pairs of tiles and fewer.
MlpCase wide_case(int64_t capacity, float scale = 1) {
  Extras extras;
  extras.more_rows = capacity - 35;
  extras.half_y = false;
  extras.scale = scale;
  extras.segment_sizes = Sizes{5, 13, 17};
  return MlpCase(35, {90, 256, 40, 130, 1}, {relu, identity, silu, sigmoid}, extras);
}

/// Layers of more than 256 outputs, and more inputs than warps keep.
MlpCase very_wide_case(int64_t rows, int64_t capacity, bool is_aligned = true) {
  Extras extras;
  extras.more_rows = capacity - rows;
  extras.is_aligned = is_aligned;
  extras.multiply = extras.residual = true;
  return MlpCase(rows, {is_aligned ? int64_t{1096} : 203, 40, 1060, 264, 275}, {relu, silu, identity}, extras);
}

/// A block for each pair, for two and, unless two fit a multiprocessor, for four.
Sizes capacities(int target) {
  return target >= 90 ? Sizes{48, 200, 500} : target >= 80 ? Sizes{48, 200, 400} : Sizes{35, 70, 150};
}

TEST(SplitPolicy, SharesOutputsAmongManyBlocksWhereRowsAreFew) {
  const auto policy = [](int target, int64_t rows, int64_t widest, int64_t most_staged = 0) {
    const auto tiles = [rows](int64_t of_tile) { return (rows + of_tile - 1) / of_tile; };
    const warprank::SplitPolicy chosen =
        warprank::detail::mlp::split_policy(target, tiles, widest, widest > 16, most_staged);
    return std::vector<int>{chosen.blocks, chosen.pairs};
  };
  using Chosen = std::vector<int>;
  EXPECT_EQ(policy(90, 100, 16), (Chosen{16, 1}));
  EXPECT_EQ(policy(90, 128, 16), (Chosen{16, 1}));
  EXPECT_EQ(policy(90, 129, 16), (Chosen{8, 2}));
  EXPECT_EQ(policy(90, 500, 16), (Chosen{4, 2}));
  EXPECT_EQ(policy(90, 529, 16), (Chosen{0, 1}));
  EXPECT_EQ(policy(90, 100, 8), (Chosen{8, 1}));
  EXPECT_EQ(policy(90, 2112, 1), (Chosen{1, 1}));
  EXPECT_EQ(policy(75, 32, 16), (Chosen{16, 1}));
  EXPECT_EQ(policy(75, 80, 16), (Chosen{16, 1})) << "two on a multiprocessor";
  EXPECT_EQ(policy(75, 81, 16), (Chosen{8, 1}));
  EXPECT_EQ(policy(75, 160, 16), (Chosen{8, 1}));
  EXPECT_EQ(policy(75, 161, 16), (Chosen{0, 1}));
  EXPECT_EQ(policy(75, 160, 3), (Chosen{3, 1}));
  EXPECT_EQ(policy(75, 33, 16, 352), (Chosen{16, 1}));
  EXPECT_EQ(policy(75, 33, 16, 353), (Chosen{8, 2})) << "whose shared memory has room for one";
  EXPECT_EQ(policy(75, 160, 16, 353), (Chosen{4, 2}));
}

TEST(SplitPolicy, SharesWideLayersAmongMoreBlocksAndOfMoreRows) {
  const auto policy = [](int target, int64_t rows, int64_t widest) {
    const auto tiles = [rows](int64_t of_tile) { return (rows + of_tile - 1) / of_tile; };
    const warprank::SplitPolicy chosen = warprank::detail::mlp::split_policy(target, tiles, widest, true);
    return std::vector<int64_t>{chosen.blocks, chosen.rows(), chosen.pairs};
  };
  using Chosen = std::vector<int64_t>;
  EXPECT_EQ(policy(90, 16, 64), (Chosen{64, 16, 1}));
  EXPECT_EQ(policy(90, 16, 20), (Chosen{20, 16, 1}));
  EXPECT_EQ(policy(90, 64, 64), (Chosen{33, 16, 1}));
  EXPECT_EQ(policy(90, 65, 64), (Chosen{32, 32, 1}));
  EXPECT_EQ(policy(90, 128, 64), (Chosen{32, 32, 1}));
  EXPECT_EQ(policy(90, 129, 64), (Chosen{0, 16, 1}));
  EXPECT_EQ(policy(80, 128, 64), (Chosen{27, 32, 1}));
  EXPECT_EQ(policy(75, 16, 64), (Chosen{40, 16, 1}));
  EXPECT_EQ(policy(75, 32, 64), (Chosen{32, 32, 1}));
  EXPECT_EQ(policy(75, 100, 64), (Chosen{10, 32, 1}));
  EXPECT_EQ(policy(75, 129, 64), (Chosen{0, 16, 1}));
}

TEST(SplitMlpKernel, GivesTheSameBitsHoweverBlocksShareTheOutputs) {
  for_each_target([](const Config& config) {
    std::vector<std::vector<float>> y;
    for (const int64_t capacity : capacities(config.target)) {
      const MlpCase c = wide_case(capacity);
      DeviceMlp device(c);
      DeviceMlpLaunch(std::vector<Mlp>{device.view()}, config.target).run();
      y.push_back(device.values());
      expect_close(propagate(c), y.back());
      EXPECT_EQ(y.back(), y.front()) << "capacity " << capacity;
    }
  });
}

/// Where all blocks run together none waits in vain: all use the same words, launch for launch.
TEST(SplitMlpKernel, ComputesEachOutputOnceWhereAllBlocksRunTogether) {
  if constexpr (build == Build::plain) {
    for_each_target([](const Config& of_target) {
      for (const uint64_t seed : {1, 2}) {
        Config config = of_target;
        config.resident_blocks = 64;
        config.seed = seed;
        reset(config);
        const MlpCase c = wide_case(capacities(config.target)[0]);
        DeviceMlp device(c);
        DeviceMlpLaunch launch({device.view()}, config.target);
        // 16 outputs x 32 inputs of each layer but the head, for 3 tiles of 2 strips of rows.
        constexpr int64_t parts = 16 * 3 + 3 * 8 + 9 * 2;
        const int64_t products = parts * 3 * 2 * (config.target >= 80 ? 2 : 4);
        for (int i = 0; i < 4; ++i) {
          clear_counters();
          launch.run();
          synchronize();
          EXPECT_EQ(counters().mma, products) << "launch " << i;
        }
      }
    });
  }
}

/// Warps with more than 4 steps of 32 inputs; stacks that are so short that a missing one is above their error. Of 1088
/// outputs a block's second share is the fourth step of some warp, which has the other three before.
TEST(SplitMlpKernel, ReadsMoreInputsThanAreInFlightTogether) {
  for_each_target([](const Config& of_target) {
    Config config = of_target;
    config.resident_blocks = 64;
    for (const Sizes& widths : {Sizes{30, 1300, 24}, Sizes{1300, 24, 8}, Sizes{30, 1088, 24}}) {
      reset(config);
      Extras extras;
      extras.half_y = false;
      const MlpCase c(9, widths, {relu, identity}, extras);
      DeviceMlp device(c);
      DeviceMlpLaunch(std::vector<Mlp>{device.view()}, config.target).run();
      expect_close(propagate(c), device.values());
    }
  });
}

TEST(SplitMlpKernel, SharesLayersThatNoBlockKeeps) {
  for_each_target([](const Config& config) {
    for (const bool is_aligned : {true, false}) {
      std::vector<float> expected;
      for (const int64_t capacity : {9, 40, 100}) {
        SCOPED_TRACE(std::to_string(capacity) + (is_aligned ? "" : ", misaligned"));
        const MlpCase c = very_wide_case(9, capacity, is_aligned);
        DeviceMlp device(c);
        DeviceMlpLaunch launch({device.view()}, config.target);
        EXPECT_EQ(launch.launch().num_launches(), 1);
        launch.run();
        launch.run();
        const std::vector<float> y = device.values();
        expect_close(propagate(c), y);
        if (expected.empty()) expected = y;
        EXPECT_EQ(y, expected);
      }
    }
  });
}

/// As who measures chooses: split, for more rows than the rule splits as well, and not split where the rule does.
TEST(SplitMlpKernel, ComputesStacksAsThePolicySays) {
  using warprank::ChainPolicy, warprank::MlpTile, warprank::SplitPolicy;
  for_each_target([](const Config& config) {
    for (const int64_t capacity : {35, 2600}) {
      std::vector<std::vector<float>> of_split, of_tiles;
      for (const ChainPolicy& policy :
           {ChainPolicy{{16, 2, 1}}, ChainPolicy{{5, 2, 1}}, ChainPolicy{{3, 2, 2}}, ChainPolicy{{2, 4, 1}},
            ChainPolicy{{}, MlpTile::rows_16}, ChainPolicy{{}, MlpTile::rows_32}}) {
        if (capacity == 2600 && policy.split.blocks > 3) continue;  // takes long
        SCOPED_TRACE(std::to_string(capacity) + " rows, " + policy.to_string());
        const MlpCase c = wide_case(capacity);
        DeviceMlp device(c);
        DeviceMlpLaunch launch({device.view()}, config.target, false, &policy);
        EXPECT_EQ(launch.launch().num_launches(), 1);
        launch.run();
        launch.run();
        expect_close(propagate(c), device.values());
        (policy.split.is_split() ? of_split : of_tiles).push_back(device.values());
      }
      for (const std::vector<float>& y : of_split) EXPECT_EQ(y, of_split[0]);
      for (const std::vector<float>& y : of_tiles) EXPECT_EQ(y, of_tiles[0]);
    }
  });
}

TEST(SplitMlpKernel, RefusesPoliciesThatDoNotComputeAllLayers) {
  using warprank::ChainPolicy, warprank::MlpTile;
  reset({});
  const auto refused = [](const Sizes& widths, const ChainPolicy& policy, bool is_aligned = true) {
    Extras extras;
    extras.is_aligned = is_aligned;
    const MlpCase c(5, widths, {relu}, extras);
    DeviceMlp device(c);
    const Mlp stack = device.view();
    try {
      MlpLaunch({&stack, 1}, 80, false, {}, &policy);
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      return e.problems()[0].to_string();
    }
  };
  const std::string expected = "policy of mlps: expected one that computes all their layers in one launch, got ";
  const ChainPolicy tiles{{}, MlpTile::rows_16}, of_32{{}, MlpTile::rows_32}, split{{4, 2, 1}}, high{{4, 4, 1}};
  EXPECT_EQ(refused({90, 300, 40, 1}, tiles), expected + "tiles of 16 rows") << "a wide layer of many inputs";
  EXPECT_EQ(refused({60, 300, 40, 1}, tiles), "nothing");
  EXPECT_EQ(refused({60, 300, 40, 1}, of_32), expected + "tiles of 32 rows") << "for which there is no room";
  EXPECT_EQ(refused({90, 4097, 40}, split), expected + "split over 4 blocks of 16 x 16");
  EXPECT_EQ(refused({90, 300, 40, 1}, split), "nothing");
  EXPECT_EQ(refused({640, 30, 40}, high, false), expected + "split over 4 blocks of 32 x 16") << "rows of no vectors";
  EXPECT_EQ(refused({640, 30, 40}, split, false), "nothing");
}

/// One block after the other, as where a card is full: none depends on another to begin.
TEST(SplitMlpKernel, GivesTheSameBitsHoweverManyBlocksRunTogether) {
  for_each_target([](const Config& of_target) {
    std::vector<float> expected;
    for (const int64_t capacity : capacities(of_target.target))
      for (const int resident : {1, 5, 64}) {
        SCOPED_TRACE(std::to_string(resident) + " blocks together");
        const MlpCase c = wide_case(capacity);
        Config config = of_target;
        config.resident_blocks = resident;
        const std::vector<float> y = in_every_order(
            [&] {
              DeviceMlp device(c);
              DeviceMlpLaunch launch({device.view()}, config.target);
              launch.run();
              launch.run();
              launch.run();
              return device.values();
            },
            build == Build::plain ? 2 : 1, config);
        if (expected.empty()) expected = y;
        EXPECT_EQ(y, expected);
        if (build != Build::plain) return;
      }
  });
}

/// Blocks of 16 and of 32 rows, which have more than one share of a layer.
TEST(SplitMlpKernel, GivesTheSameBitsInWideStacksHoweverManyBlocksRunTogether) {
  for_each_target([](const Config& of_target) {
    std::vector<float> expected;
    for (const int64_t capacity : {40, 100})
      for (const int resident : {1, 7, 64}) {
        SCOPED_TRACE(std::to_string(capacity) + " rows, " + std::to_string(resident) + " blocks together");
        Extras extras;
        extras.more_rows = capacity - 35;
        extras.segment_sizes = Sizes{5, 13, 17};
        const MlpCase c(35, {30, 280, 60, 1}, {relu, silu}, extras);
        Config config = of_target;
        config.resident_blocks = resident;
        const std::vector<float> y = in_every_order(
            [&] {
              DeviceMlp device(c);
              DeviceMlpLaunch launch({device.view()}, config.target);
              launch.run();
              launch.run();
              return device.values();
            },
            1, config);
        if (expected.empty()) expected = y;
        EXPECT_EQ(y, expected);
      }
  });
}

/// Every launch finds the words of two launches before cleared, and those of tiles that had no rows as they were.
TEST(SplitMlpKernel, ServesOtherRowsAtEveryLaunch) {
  for_each_target([](const Config& of_target) {
    for (const int resident : {2, 64}) {
      Config config = of_target;
      config.resident_blocks = resident;
      const int64_t capacity = capacities(config.target)[0];
      std::vector<MlpCase> cases;
      std::vector<std::vector<float>> expected;
      for (const float scale : {1.0f, 3.0f, -2.0f}) {
        const MlpCase& c = cases.emplace_back(wide_case(capacity, scale));
        DeviceMlp device(c);
        DeviceMlpLaunch(std::vector<Mlp>{device.view()}, config.target).run();
        expected.push_back(device.values());
      }
      in_every_order(
          [&] {
            DeviceMlp device(cases[0]);
            const Mlp view = device.view();
            DeviceMlpLaunch launch({view}, config.target);
            // By rows: a launch with all, with those of one tile, with none.
            const std::vector<std::pair<size_t, int64_t>> launches = {{0, 35}, {1, 35}, {2, 9},
                                                                      {0, 0},  {2, 20}, {0, 35}};
            for (const auto& [i, rows] : launches) {
              CapacityMatrix<float16> x(35, 90, capacity, true, cases[i].layers[0].inputs.x);
              CapacityMatrix<float> y(rows, 1, capacity, true);
              Mlp moved = view;
              moved.x = Matrix<const float16>(x.view());
              moved.y = y.view();
              DeviceMlpLaunch other({moved}, config.target);
              launch.descriptors().write(other.descriptors().read());
              device.first().num_rows().write({rows});
              launch.run();
              launch.run();  // begins while the one before ends
              EXPECT_EQ(y.values(), std::vector<float>(expected[i].begin(), expected[i].begin() + rows))
                  << "input " << i << ", " << rows << " rows";
            }
          },
          build == Build::plain ? 2 : 1, config);
    }
  });
}

TEST(SplitMlpKernel, RunsBesideALaunchOfAnotherStream) {
  for_each_target([](const Config& of_target) {
    Config config = of_target;
    config.resident_blocks = 6;  // some of both
    const MlpCase a = wide_case(capacities(config.target)[0]), b = wide_case(capacities(config.target)[1], 2);
    in_every_order(
        [&] {
          DeviceMlp of_a(a), of_b(b);
          DeviceMlpLaunch launch_a({of_a.view()}, config.target), launch_b({of_b.view()}, config.target);
          const Stream one = create_stream(), other = create_stream();
          for (int i = 0; i < 2; ++i) launch_a.run(one), launch_b.run(other);
          std::vector<float> both = of_a.values();
          for (const float y : of_b.values()) both.push_back(y);
          return both;
        },
        build == Build::plain ? 5 : 1, config);
  });
}

/// Two NaNs side by side are activations like others, and no missing word.
TEST(SplitMlpKernel, SendsRowsOfNaN) {
  for_each_target([](const Config& of_target) {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    Config config = of_target;
    config.resident_blocks = 64;
    reset(config);
    MlpCase c = wide_case(capacities(config.target)[0]);
    const auto run = [&] {
      DeviceMlp device(c);
      DeviceMlpLaunch(std::vector<Mlp>{device.view()}, config.target).run();
      return device.values();
    };
    const std::vector<float> clean = run();
    std::vector<float>& x = c.layers[0].inputs.x;
    for (size_t k = 0; k < 90; ++k) x[3 * 90 + k] = -nan;
    x[20 * 90 + 7] = infinity;
    const std::vector<float> y = run();
    EXPECT_TRUE(std::isnan(y[3]));
    for (size_t r = 0; r < y.size(); ++r)
      if (r != 3 && r != 20) {
        EXPECT_EQ(y[r], clean[r]) << "row " << r;
      }
  });
}

}  // namespace
