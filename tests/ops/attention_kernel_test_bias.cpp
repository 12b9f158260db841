// SPDX-License-Identifier: Apache-2.0

/// Attentions with relative biases of their scores, by position and by time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/attention_case.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

AttentionCase with_bias(AttentionCase c, int64_t positions, int64_t buckets, bool by_head = false) {
  c.weights = AttentionWeights::silu, c.divisor = 20;
  c.has_own_keys = !c.is_self;
  c.bias = {by_head ? c.heads : 1, positions, buckets};
  return c;
}

TEST(BiasAttentionKernel, MatchesTheFormulaByPositionByTimeAndByBoth) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {12, 16, 32, 64, 128}) {
      std::vector<AttentionCase> cases;
      for (const int64_t positions : {0, 1, 7, 300})
        for (const int64_t buckets : {0, 1, 40}) {
          if (positions == 0 && buckets == 0) continue;
          AttentionCase& c = cases.emplace_back(
              with_bias(with(2, dim, {1, 0, 18, 2, 3}, {0, 5, 1, 33, 150}), positions, buckets, positions == 7));
          c.half_y = buckets == 40, c.is_aligned = dim != 64 || buckets != 1;
          cases.push_back(with_bias(self(2, dim, {0, 1, 17, 40, 70}, true), positions, buckets, positions != 7));
        }
      for (AttentionCase& c : cases) c.make();
      run_attentions(cases, config.target);
    }
  });
}

TEST(BiasAttentionKernel, MatchesTheFormulaForEveryNumberAndWidthOfHeads) {
  for_each_target([](const Config& config) {
    std::vector<AttentionCase> cases = cases_of_every_number_and_width_of_heads();
    for (AttentionCase& c : cases) c = with_bias(c, 4, 9, c.heads == 3).make();
    run_attentions(cases, config.target);
    for (const int64_t dim : {100, 256})
      run_attentions({with_bias(with(1, dim, {18, 1}, {37, 5}), 9, 30).make()}, config.target);
  });
}

TEST(BiasAttentionKernel, MatchesTheFormulaInAWindowAndForEveryTime) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {12, 32}) {
      std::vector<AttentionCase> cases;
      for (const int64_t window : {0, 6, 40})
        for (const int64_t full_last : {0, 5})
          for (const float of_times : {0.0f, 3.0f, 1e6f, 1e30f}) {
            if (window == 0 && full_last > 0) continue;
            for (const bool is_self : {false, true}) {
              AttentionCase c = is_self ? self(1, dim, {90, 3}, true) : with(1, dim, {20, 1}, {90, 3});
              c.window = window, c.full_last = full_last, c.of_times = of_times;
              cases.push_back(with_bias(c, 30, 300).make());
            }
          }
      cases.push_back(with_bias(self(2, dim, {50}, false), 0, 20).make());  // no event is before another
      run_attentions(cases, config.target);
    }
  });
}

/// Ends of buckets are what an approximate logarithm would get wrong.
TEST(BiasAttentionKernel, HasTheBucketsOfTheFormulaAtTheirEnds) {
  for_each_target([](const Config& config) {
    const std::vector<float> limits = time_bucket_limits(60, 0.301f);
    for (const int64_t dim : {8, 16}) {
      AttentionCase c = with_bias(with(1, dim, {1}, {180}), 0, 60).make();
      c.item_times = {0}, c.event_times.clear();
      for (const float limit : limits)
        if (limit < INFINITY)
          c.event_times.insert(c.event_times.end(),
                               {std::nextafter(limit, 0.0f), -limit, std::nextafter(limit, INFINITY)});
      run_attentions({c}, config.target);
    }
  });
}

TEST(BiasAttentionKernel, TakesATimeThatIsNoNumberForNoDifference) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {8, 16}) {
      AttentionCase c = with_bias(with(1, dim, {2}, {3}), 2, 9).make();
      c.item_times = {5, 5}, c.event_times = {5, 5, 5};
      const auto with_time = [&](float time) {
        AttentionCase other = c;
        other.item_times[0] = time;
        return run_attentions({other}, config.target, false)[0];
      };
      const std::vector<float> same = with_time(5);
      EXPECT_EQ(with_time(std::numeric_limits<float>::quiet_NaN()), same);
      EXPECT_NE(with_time(1e30f), same);
      EXPECT_EQ(with_time(std::numeric_limits<float>::infinity()), with_time(1e30f));
    }
  });
}

TEST(BiasAttentionKernel, IsAnAttentionWithoutBiasWhereAllOfItAreZeros) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {8, 16}) {
      AttentionCase c = with_bias(with(2, dim, {4, 20}, {9, 50}), 5, 9).make(), plain = c;
      c.by_position.assign(c.by_position.size(), 0), c.by_time.assign(c.by_time.size(), 0);
      plain.bias = {1, 0, 0};
      const std::vector<float> expected = run_attentions({plain}, config.target)[0];
      EXPECT_EQ(run_attentions({c}, config.target)[0], expected);
      EXPECT_EQ(run_attentions({plain, with_bias(with(2, dim, {3}, {4}), 5, 9).make()}, config.target)[0], expected)
          << "beside one that has a bias";
    }
  });
}

TEST(BiasAttentionKernel, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {40, 32}) {
      const AttentionCase together = with_bias(with(2, dim, {4, 1, 2}, {59, 140, 1}), 30, 20, true).make();
      expect_same_alone(together, run_attentions({together}, config.target)[0], config.target);
    }
  });
}

TEST(BiasAttentionLaunch, RefusesWhatDoesNotFitTogether) {
  const auto message_of = [](const std::function<void(Attention&)>& change) {
    return refusal_of(with_bias(with(2, 16, {3}, {4}), 3, 5), change);
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message_of([](Attention&) {}), "");
  EXPECT_THAT(message_of([](Attention& view) { view.bias_shape.tables = 3; }),
              HasSubstr("attention 0's bias: expected a table for all heads, or one for each, got 3"));
  EXPECT_THAT(message_of([](Attention& view) {
                view.weights = AttentionWeights::softmax, view.divisor = 1, view.own_k = view.own_v = {};
              }),
              HasSubstr("attention 0's bias: expected the weights of silu"));
  EXPECT_THAT(message_of([](Attention& view) { view.item_times.rows -= 1; }), HasSubstr("attention 0's item_times"));
  EXPECT_THAT(message_of([](Attention& view) { view.event_times.cols = 2; }), HasSubstr("attention 0's event_times"));
  EXPECT_THAT(message_of([](Attention& view) { view.bias += 1; }), HasSubstr("attention 0's bias"));
  EXPECT_THAT(message_of([](Attention& view) { view.item_offsets = view.history_offsets, view.q.rows = view.k.rows; }),
              HasSubstr("attention 0's bias by position: expected causal attention"));
  EXPECT_THAT(message_of([](Attention& view) {
                view.y = Matrix<float>(const_cast<float*>(view.item_times.data), view.y.rows, view.y.cols, view.y.cols);
              }),
              HasSubstr("an overlap with item_times of attention 0"));
}

}  // namespace
