// SPDX-License-Identifier: Apache-2.0

/// Attentions with the weights of silu, and with keys of the items' own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/attention_case.hpp"

#if !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WARPRANK_TEST_PLAIN
#include "warprank/ops/host/attention.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

AttentionCase with_silu(AttentionCase c, bool has_own_keys, float divisor = 20) {
  c.weights = AttentionWeights::silu, c.has_own_keys = has_own_keys, c.divisor = divisor;
  return c;
}

TEST(SiluAttentionKernel, MatchesTheFormulaForEveryNumberAndWidthOfHeads) {
  for_each_target([](const Config& config) {
    for (const bool has_own_keys : {false, true}) {
      std::vector<AttentionCase> cases = cases_of_every_number_and_width_of_heads();
      for (AttentionCase& c : cases) c = with_silu(c, has_own_keys).make();
      run_attentions(cases, config.target);
    }
  });
}

TEST(SiluAttentionKernel, MatchesTheFormulaForWideHeads) {
  for_each_target(
      [](const Config& config) {
        std::vector<AttentionCase> cases;
        for (const int64_t dim : {65, 100, 128, 256}) {
          AttentionCase c = with_silu(with(dim == 100 ? 3 : 1, dim, {18, 1}, {37, 5}), dim != 65);
          c.is_aligned = dim != 128, c.half_y = dim == 256;
          cases.push_back(c.make());
        }
        cases.push_back(with_silu(self(2, 80, {35}, true), false).make());
        run_attentions(cases, config.target);
      },
      {75, 80});
}

TEST(SiluAttentionKernel, MatchesTheFormulaForRaggedUsers) {
  for_each_target([](const Config& config) {
    for (const bool has_own_keys : {false, true}) {
      std::vector<AttentionCase> cases;
      cases.push_back(
          with_silu(with(2, 12, {1, 0, 70, 2, 17, 33, 0, 16, 3}, {0, 5, 1, 31, 32, 33, 7, 0, 150}), has_own_keys)
              .make());
      cases.push_back(with_silu(self(1, 8, {200}, false), has_own_keys).make());
      cases.push_back(with_silu(self(2, 12, {0, 1, 2, 15, 16, 17, 0, 64, 65, 130}, true), false).make());
      run_attentions(cases, config.target);
    }
  });
}

TEST(SiluAttentionKernel, MatchesTheFormulaWhereEventsAreDividedAmongWarps) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 32, 64, 128})
      for (const bool has_own_keys : {false, true}) {
        std::vector<AttentionCase> cases;
        for (const int64_t heads : {1, 3}) {
          AttentionCase& c = cases.emplace_back(
              with_silu(with(heads, dim, {1, 0, 33, 2, 17, 16, 0, 5, 3}, {0, 5, 1, 15, 16, 17, 7, 128, 300 - dim}),
                        has_own_keys));
          c.half_y = heads == 3, c.make();
        }
        run_attentions(cases, config.target);
      }
  });
}

TEST(SiluAttentionKernel, MatchesTheFormulaForOneUserWhateverLiesBehindTheCounts) {
  for_each_target([](const Config& config) {
    for (const int64_t items : {1, 16, 20})
      for (const int64_t events : {0, 17, 260}) {
        AttentionCase c = with_silu(with(2, 32, {items}, {events}), true);
        c.half_y = items == 16;
        expect_right_for_one_user(c, config.target);
      }
  });
}

TEST(SiluAttentionKernel, MatchesTheFormulaForEveryScaleAndLength) {
  for_each_target([](const Config& config) {
    std::vector<AttentionCase> cases;
    for (const float scale : {0.0f, 1e-3f, 0.25f, -0.25f, 2.0f})
      for (const float of_values : {1e-2f, 1.0f, 8.0f}) {
        AttentionCase c = with_silu(with(2, 8, {5, 2}, {40, 3}), true, 0.5f);
        c.scale = scale, c.of_values = of_values;
        cases.push_back(c.make());
        c.dim = 16;
        run_attentions({c.make()}, config.target);
      }
    run_attentions(cases, config.target);
    if (build == Build::race) return;
    run_attentions({with_silu(with(1, 16, {2, 1}, {4003, 4}), true, 4096).make()}, config.target);
    run_attentions({with_silu(with(1, 24, {2, 1}, {4003, 4}), true, 4096).make()}, config.target);
  });
}

/// A layer of HSTU: the history over itself, and the targets over the history.
TEST(SiluAttentionKernel, MatchesTheFormulaOfEventsAndTargetsInOneLaunch) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 24, 64})
      run_attentions({with_silu(self(2, dim, {5, 0, 70, 16}, true), false, 100).make(),
                      with_silu(with(2, dim, {20, 3, 1, 0}, {5, 0, 70, 16}), true, 100).make()},
                     config.target);
  });
}

TEST(SiluAttentionKernel, GivesTheSameInEveryOrder) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {16, 12}) {
      const std::vector<AttentionCase> cases{with_silu(with(2, dim, {5, 1, 0, 18}, {21, 0, 3, 150}), true).make(),
                                             with_silu(self(1, dim, {40}, false), false).make()};
      in_every_order([&] { return joined(run_attentions(cases, config.target, false)); },
                     build == Build::plain ? 12 : 4, config);
    }
    for (const int64_t dim : {16, 8}) {
      const AttentionCase causal = with_silu(self(1, dim, {40}, true), false).make();
      in_every_order([&] { return run_attentions({causal}, config.target, false)[0]; }, build == Build::plain ? 12 : 4,
                     config);
    }
  });
}

TEST(SiluAttentionKernel, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {40, 32}) {
      const AttentionCase together = with_silu(with(2, dim, {4, 1, 2}, {59, 140, 1}), true).make();
      expect_same_alone(together, run_attentions({together}, config.target)[0], config.target);
    }
  });
}

TEST(SiluAttentionKernel, MayWriteOverTheQueries) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {7, 16}) {
      AttentionCase c = with_silu(with(3, dim, {20, 3}, {40, 3}), true);
      c.half_y = true;
      const std::vector<float> expected = run_attentions({c.make()}, config.target)[0];
      std::vector<warprank::float16> q;
      for (const float value : c.q) q.push_back(to_float16(value));
      DeviceMatrix<warprank::float16> x(q, 23, c.width());
      DeviceAttention memory(c);
      Attention view = memory.view();
      view.q = x.view(), view.y = x.view();
      view.own_k.rows = view.own_v.rows = 23;
      DeviceAttentions launch({view}, config.target);
      launch.run();
      const std::vector<warprank::float16> written = x.read();
      for (size_t i = 0; i < written.size(); ++i) EXPECT_EQ(to_float(written[i]), expected[i]) << i;
    }
  });
}

TEST(SiluAttentionKernel, KeepsNaNInItsItemOrItsUser) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {8, 16}) {
      const AttentionCase c = with_silu(with(2, dim, {5, 20}, {20, 9}), true).make();
      const auto half_width = static_cast<size_t>(dim), width = 2 * half_width;
      const std::vector<float> clean = run_attentions({c}, config.target)[0];
      const auto expect = [&](const AttentionCase& spoilt, auto is_spoilt) {
        const std::vector<float> values = run_attentions({spoilt}, config.target, false)[0];
        for (size_t i = 0; i < values.size(); ++i) {
          if (is_spoilt(i / width, i % width))
            EXPECT_FALSE(std::isfinite(values[i])) << i;
          else
            EXPECT_EQ(values[i], clean[i]) << i;
        }
      };
      const float nan = std::numeric_limits<float>::quiet_NaN();
      AttentionCase in_k = c, in_own_k = c;
      in_k.k[22 * width + half_width + 1] = nan;
      expect(in_k, [&](size_t item, size_t column) { return item >= 5 && column >= half_width; });
      in_own_k.own_k[7 * width + 3] = nan;
      expect(in_own_k, [&](size_t item, size_t column) { return item == 7 && column < half_width; });
      for (const float value : {nan, std::numeric_limits<float>::infinity()}) {
        AttentionCase in_v = c, in_own_v = c;
        in_v.v[22 * width + 9] = value;
        expect(in_v, [](size_t item, size_t column) { return item >= 5 && column == 9; });
        in_own_v.own_v[7 * width + 9] = value;
        expect(in_own_v, [](size_t item, size_t column) { return item == 7 && column == 9; });
      }
    }
  });
}

TEST(SiluAttentionKernel, GivesNaNOnlyToEventsThatSeeIt) {
  for_each_target([](const Config& config) {
    for (const size_t dim : {8, 32}) {
      const AttentionCase c = with_silu(self(1, static_cast<int64_t>(dim), {3, 60}, true), false).make();
      const std::vector<float> clean = run_attentions({c}, config.target)[0];
      for (const size_t event : {3, 12, 50}) {
        AttentionCase in_v = c;
        in_v.v[event * dim + 2] = std::numeric_limits<float>::quiet_NaN();
        const std::vector<float> y = run_attentions({in_v}, config.target, false)[0];
        for (size_t i = 0; i < clean.size(); ++i) {
          if (i / dim >= event && i % dim == 2)
            EXPECT_TRUE(std::isnan(y[i])) << event << ", " << i;
          else
            EXPECT_EQ(y[i], clean[i]) << event << ", " << i;
        }
      }
    }
  });
}

/// A score of minus infinity weighs nothing; weights end at the largest FP16.
TEST(SiluAttentionKernel, TakesInfiniteScores) {
  for_each_target([](const Config& config) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const int64_t dim : {1, 16})
      for (const float key : {-infinity, -65504.0f, 65504.0f, infinity}) {
        AttentionCase c = with_silu(with(1, dim, {1}, {3}), false, 65504);
        c.q.assign(static_cast<size_t>(dim), 0), c.k.assign(static_cast<size_t>(3 * dim), 0), c.v = c.k;
        c.q[0] = 65504, c.scale = 3e38f;
        for (size_t t = 0; t < 3; ++t) c.k[t * static_cast<size_t>(dim)] = key, c.v[t * static_cast<size_t>(dim)] = 2;
        EXPECT_EQ(run_attentions({c}, config.target, false)[0][0], key < 0 ? 0 : 6) << dim << ", " << key;
      }
  });
}

/// The own key's weight is FP32: that of an infinite score is the largest finite one.
TEST(SiluAttentionKernel, TakesAnInfiniteScoreOfAnOwnKey) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {1, 16}) {
      AttentionCase c = with_silu(with(1, dim, {1}, {0}), true, 2);
      c.q.assign(static_cast<size_t>(dim), 0), c.own_k = c.own_v = c.q;
      c.q[0] = 1, c.own_k[0] = std::numeric_limits<float>::infinity(), c.own_v[0] = 0.5f;
      EXPECT_EQ(run_attentions({c}, config.target, false)[0][0], std::numeric_limits<float>::max() * 0.25f) << dim;
    }
  });
}

TEST(SiluAttentionLaunch, RefusesWhatDoesNotFitTogether) {
  const auto message_of = [](const std::function<void(Attention&)>& change) {
    return refusal_of(with_silu(with(1, 16, {3}, {4}), true), change);
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message_of([](Attention&) {}), "");
  EXPECT_THAT(message_of([](Attention& view) { view.divisor = 0; }), HasSubstr("attention 0's divisor"));
  EXPECT_THAT(message_of([](Attention& view) { view.divisor = 1e-40f; }), HasSubstr("attention 0's divisor"));
  EXPECT_THAT(message_of([](Attention& view) { view.divisor = std::nanf(""); }), HasSubstr("attention 0's divisor"));
  EXPECT_THAT(message_of([](Attention& view) { view.own_v = {}; }), HasSubstr("attention 0's own_v"));
  EXPECT_THAT(message_of([](Attention& view) { view.own_k.rows -= 1; }), HasSubstr("attention 0's own_k"));
  EXPECT_THAT(message_of([](Attention& view) { view.weights = AttentionWeights::softmax; }),
              HasSubstr("attention 0's own keys"));
  EXPECT_THAT(message_of([](Attention& view) {
                view.y = Matrix<warprank::float16>(const_cast<warprank::float16*>(view.own_k.data), view.own_k.rows,
                                                   view.own_k.cols, view.own_k.stride);
              }),
              HasSubstr("an overlap with own_k of attention 0"));

  AttentionCase misaligned = with_silu(with(1, 16, {3}, {4}), true);
  DeviceAttention memory(misaligned.make());
  Attention view = memory.view();
  EXPECT_TRUE(AttentionLaunch({&view, 1}, 75).is_split());
  view.own_v.data += 1;
  EXPECT_FALSE(AttentionLaunch({&view, 1}, 75).is_split());

  AttentionCase softmax = with(1, 16, {3}, {4}), silu = with_silu(softmax, false);
  DeviceAttention of_softmax(softmax.make()), of_silu(silu.make());
  const Attention both[] = {of_softmax.view(), of_silu.view()};
  EXPECT_THROW(AttentionLaunch(both, 75), invalid_argument);
}

#if defined(WARPRANK_TEST_PLAIN)

TEST(SiluAttentionKernel, AgreesWithTheHost) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {12, 16}) {
      AttentionCase c = with_silu(with(2, dim, {1, 0, 40, 2}, {0, 5, 90, 17}), true, 90);
      c.make();
      const int64_t width = c.width();
      const std::vector<int64_t> items = AttentionCase::offsets(c.items, 0),
                                 events = AttentionCase::offsets(c.events, 0);
      std::vector<float> workspace(static_cast<size_t>(host_ops::attention_workspace(dim, 90))), y(c.q.size());
      const host_ops::AttentionOptions options{
          2, static_cast<float>(c.true_scale()), false, host_ops::Precision::fp32, c.weights, c.divisor};
      host_ops::attention({c.q.data(), c.num_items(), width}, {c.k.data(), c.num_events(), width},
                          {c.v.data(), c.num_events(), width}, {items.data(), 4}, {events.data(), 4}, options,
                          {y.data(), c.num_items(), width}, workspace,
                          {{c.own_k.data(), c.num_items(), width}, {c.own_v.data(), c.num_items(), width}});
      Bounded expected = c.expected();
      expected.value.assign(y.begin(), y.end());
      DeviceAttention memory(c);
      DeviceAttentions launch({memory.view()}, config.target);
      launch.run();
      expect_within(expected, memory.values(), share_of_attention_bound);
    }
  });
}

#endif

}  // namespace
