// SPDX-License-Identifier: Apache-2.0

/// Attentions whose rows see a window of the events.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ops/attention_case.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

AttentionCase with_window(AttentionCase c, int64_t window, int64_t full_last) {
  c.weights = AttentionWeights::silu, c.divisor = 20, c.window = window, c.full_last = full_last;
  c.has_own_keys = !c.is_self;
  return c;
}

/// Widths for the kernel of any shape, and for the one that divides events among warps.
constexpr int64_t window_widths[] = {12, 80, 16, 32, 64, 128};

TEST(WindowAttentionKernel, MatchesTheFormulaForRaggedUsers) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : window_widths) {
      std::vector<AttentionCase> cases;
      for (const int64_t window : {1, 7, 16, 50, 1000}) {
        const int64_t full_last = window % 2 * (window + 10);
        cases.push_back(with_window(self(1, dim, {0, 1, 2, 15, 16, 17, 0, 64, 65, 150}, true), window, full_last));
        cases.push_back(with_window(with(2, dim, {1, 0, 33, 2, 17}, {0, 5, 1, 31, 150}), window, full_last % 2));
      }
      for (AttentionCase& c : cases) c.half_y = c.window == 7, c.make();
      run_attentions(cases, config.target);
    }
  });
}

TEST(WindowAttentionKernel, MatchesTheFormulaForOneUserWhateverLiesBehindTheCounts) {
  for_each_target([](const Config& config) {
    for (const int64_t events : {1, 40, 260}) {
      expect_right_for_one_user(with_window(self(2, 32, {events}, true), 20, 5), config.target);
      expect_right_for_one_user(with_window(with(2, 32, {20}, {events}), 20, 0), config.target);
    }
  });
}

TEST(WindowAttentionKernel, GivesTheSameInEveryOrder) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 12}) {
      const std::vector<AttentionCase> cases{with_window(self(1, dim, {5, 90}, true), 18, 20).make(),
                                             with_window(with(2, dim, {5, 18}, {3, 150}), 40, 0).make()};
      in_every_order([&] { return joined(run_attentions(cases, config.target, false)); },
                     build == Build::plain ? 12 : 4, config);
    }
  });
}

TEST(WindowAttentionKernel, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {40, 32}) {
      const AttentionCase together = with_window(with(2, dim, {4, 1, 2}, {59, 140, 1}), 30, 0).make();
      expect_same_alone(together, run_attentions({together}, config.target)[0], config.target);
    }
  });
}

/// What is before a row's window, and behind the row, does not get into it.
TEST(WindowAttentionKernel, GivesNaNOnlyToRowsThatSeeIt) {
  for_each_target([](const Config& config) {
    for (const size_t dim : {12, 32})
      for (const bool is_self : {true, false}) {
        const int64_t window = 21, full_last = is_self ? 4 : 0;
        const auto width = static_cast<int64_t>(dim);
        const AttentionCase c =
            with_window(is_self ? self(1, width, {90}, true) : with(1, width, {20}, {90}), window, full_last).make();
        const std::vector<float> clean = run_attentions({c}, config.target)[0];
        for (const size_t event : {0, 12, 50, 68, 69, 89})
          for (const bool in_keys : {false, true})
            for (const float value :
                 {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
              if (in_keys && !std::isnan(value)) continue;
              AttentionCase spoilt = c;
              (in_keys ? spoilt.k : spoilt.v)[event * dim + 2] = value;
              const std::vector<float> y = run_attentions({spoilt}, config.target, false)[0];
              for (size_t i = 0; i < clean.size(); ++i) {
                const size_t row = i / dim;
                const bool is_in_window = is_self ? event <= row && (row - event <= 21 || row >= 86) : event >= 69;
                if (is_in_window && (in_keys || i % dim == 2))
                  EXPECT_FALSE(std::isfinite(y[i])) << event << ", " << i;
                else
                  EXPECT_EQ(y[i], clean[i]) << event << ", " << i;
              }
            }
      }
  });
}

#if !defined(__CUDACC__)
TEST(WindowAttentionKernel, ReadsOnlyTheStepsThatHaveTheWindow) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {12, 32})
      for (const bool is_self : {false, true}) {
        const auto sectors_of = [&](int64_t events, int64_t window) {
          Config counting = config;
          counting.count_sectors = true;
          reset(counting);
          const AttentionCase c =
              with_window(is_self ? self(1, dim, {events}, true) : with(1, dim, {16}, {events}), window, 0).make();
          DeviceAttention memory(c);
          DeviceAttentions launch({memory.view()}, config.target);
          clear_counters();
          launch.run();
          synchronize();
          return counters().global_load_sectors / c.num_items();
        };
        EXPECT_LT(sectors_of(800, 100), sectors_of(250, 0) * (is_self ? 2 : 1)) << dim;  // causal: half of the events
      }
  });
}
#endif

TEST(WindowAttentionLaunch, RefusesWindowsThatAreNone) {
  const auto refuses = [](int64_t window, int64_t full_last, AttentionWeights weights) {
    AttentionCase c = self(1, 16, {3}, true);
    c.weights = weights, c.window = window, c.full_last = full_last;
    DeviceAttention memory(c.make());
    const Attention view = memory.view();
    try {
      AttentionLaunch launch({&view, 1}, on_gpu ? device::target() : 75);
    } catch (const invalid_argument& error) {
      return std::string(error.what()).find("attention 0's window") != std::string::npos;
    }
    return false;
  };
  EXPECT_FALSE(refuses(4, 2, AttentionWeights::silu));
  EXPECT_TRUE(refuses(-1, 0, AttentionWeights::silu));
  EXPECT_TRUE(refuses(4, -1, AttentionWeights::silu));
  EXPECT_TRUE(refuses(int64_t{1} << 31, 0, AttentionWeights::silu));
  EXPECT_TRUE(refuses(4, 0, AttentionWeights::softmax));
}

}  // namespace
