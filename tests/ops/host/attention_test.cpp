// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "guarded.hpp"
#include "reference/attention.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

/// Of what rounding errors could add up to if all had one sign.
constexpr double share_of_bound_of(AttentionWeights weights) {
  return weights == AttentionWeights::silu ? 0.25 : 0.125;  // that of silu counts fewer roundings
}
using host_ops::AttentionOptions;
using host_ops::Precision;

/// Runs the op with a workspace that faults where it is exceeded.
AwkwardMatrix run(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, Segments queries, Segments keys,
                  const AttentionOptions& options, const host_ops::OwnKeys& own = {}) {
  int64_t longest = 0;
  for (int64_t s = 0; s < keys.count; ++s) longest = std::max(longest, keys.size(s));
  const int64_t size = host_ops::attention_workspace(q.cols / options.heads, longest, options.precision);
  const test::GuardedMatrix workspace(1, size);
  AwkwardMatrix y(q.rows, q.cols);
  host_ops::attention(q, k, v, queries, keys, options, y.view(), {workspace.view().data, size}, own);
  y.expect_guards_untouched();
  return y;
}

void round_to_bf16(AwkwardMatrix& matrix) {
  for (int64_t r = 0; r < matrix.view().rows; ++r)
    for (int64_t c = 0; c < matrix.view().cols; ++c) matrix.at(r, c) = to_float(to_bfloat16(matrix.at(r, c)));
}

void check(const OwnedSegments& queries, const OwnedSegments& keys, int64_t dim, const AttentionOptions& options,
           float scale_of_values = 1, bool has_own_keys = false) {
  SCOPED_TRACE(::testing::Message() << options.heads << " heads of " << dim << ", scale " << options.scale
                                    << (options.causal ? ", causal, " : ", ") << name_of_enum(options.weights)
                                    << (has_own_keys ? ", own keys" : ""));
  const int64_t width = dim * options.heads;
  AwkwardMatrix q = AwkwardMatrix(queries.view().rows(), width).fill(1, scale_of_values);
  AwkwardMatrix k = AwkwardMatrix(keys.view().rows(), width).fill(2, scale_of_values);
  AwkwardMatrix v = AwkwardMatrix(keys.view().rows(), width).fill(3, scale_of_values);
  const bool is_bf16 = options.precision == Precision::bf16;
  if (is_bf16) round_to_bf16(q), round_to_bf16(k), round_to_bf16(v);  // then only weights are rounded
  AwkwardMatrix own_k = AwkwardMatrix(q.view().rows, width).fill(4, scale_of_values);
  const AwkwardMatrix own_v = AwkwardMatrix(q.view().rows, width).fill(5, scale_of_values);
  const host_ops::OwnKeys own = has_own_keys ? host_ops::OwnKeys{own_k.view(), own_v.view()} : host_ops::OwnKeys{};
  const AwkwardMatrix y = run(q.view(), k.view(), v.view(), queries.view(), keys.view(), options, own);
  reference::AttentionSettings settings{options.heads, options.scale, options.causal, options.weights,  options.divisor,
                                        own.k,         own.v,         options.window, options.full_last};
  const auto attend = [&] {
    return reference::attention(q.view(), k.view(), v.view(), queries.view(), keys.view(), settings);
  };
  const double share = share_of_bound_of(options.weights);
  reference::Bounded expected = attend();
  settings.of_magnitudes = true;
  const reference::Bounded magnitudes = attend();
  for (size_t i = 0; is_bf16 && i < expected.bound.size(); ++i)
    expected.bound[i] += (0x1p-8 + 0x1p-12) / u * magnitudes.value[i] / share;
  expect_within(expected, y.view(), share);
}

TEST(HostAttention, MatchesTheFormulaForEveryDimAndNumberOfHeads) {
  for_each_target([] {
    for (const int64_t heads : {1, 2, 3, 8})
      for (const int64_t dim : {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 48, 64, 100})
        check({3, 1, 8}, {5, 20, 2}, dim, {heads, 1 / std::sqrt(static_cast<float>(dim)), false});
  });
}

TEST(HostAttention, MatchesTheFormulaForRaggedHistories) {
  for_each_target([] {
    for (const bool causal : {false, true}) {
      check({0, 1, 2, 5, 6, 7, 63, 64, 65, 130}, {0, 1, 2, 5, 6, 7, 63, 64, 65, 130}, 12, {2, 0.3f, causal});
      check({1000}, {1000}, 8, {1, 0.3f, causal});
    }
    check({1, 0, 13, 2, 3, 100, 4}, {0, 5, 1, 1000, 0, 67, 64}, 12, {2, 0.3f, false});
    check({}, {}, 12, {2, 0.3f, false});
    check({0, 0}, {3, 0}, 12, {2, 0.3f, false});
  });
}

constexpr AttentionOptions with_silu(int64_t heads, float scale, float divisor, bool causal = false,
                                     Precision precision = Precision::fp32) {
  return {heads, scale, causal, precision, AttentionWeights::silu, divisor};
}

TEST(HostAttentionWithSilu, MatchesTheFormulaForEveryDimAndNumberOfHeads) {
  for_each_target([] {
    for (const bool has_own_keys : {false, true})
      for (const int64_t heads : {1, 2, 3, 8})
        for (const int64_t dim : {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 48, 64, 100})
          check({3, 1, 8}, {5, 20, 2}, dim, with_silu(heads, 1 / std::sqrt(static_cast<float>(dim)), 20), 1,
                has_own_keys);
  });
}

TEST(HostAttentionWithSilu, MatchesTheFormulaForRaggedHistoriesAndEveryScale) {
  for_each_target([] {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      check({0, 1, 2, 5, 6, 7, 63, 64, 65, 130}, {0, 1, 2, 5, 6, 7, 63, 64, 65, 130}, 12,
            with_silu(2, 0.3f, 130, true, precision));
      for (const bool has_own_keys : {false, true})
        check({1, 0, 13, 2, 3, 100, 4}, {0, 5, 1, 1000, 0, 67, 64}, 12, with_silu(2, 0.3f, 1000, false, precision), 1,
              has_own_keys);
    }
    for (const float scale : {0.0f, 1e-3f, 0.25f, -0.25f, 2.0f})
      for (const float of_values : {1e-2f, 1.0f, 4.0f, 30.0f})
        check({5, 9}, {40, 3}, 8, with_silu(2, scale, 0.5f), of_values, true);
    check({}, {}, 12, with_silu(2, 0.3f, 1), 1, true);
    check({0, 0}, {3, 0}, 12, with_silu(2, 0.3f, 1), 1, true);
  });
}

TEST(HostAttentionWithSilu, SeesAWindow) {
  for_each_target([] {
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const int64_t window : {1, 5, 16, 64, 1000})
        for (const int64_t full_last : {0, 1, 7, 70}) {
          AttentionOptions options = with_silu(2, 0.3f, 130, true, precision);
          options.window = window, options.full_last = full_last;
          check({0, 1, 2, 5, 6, 7, 63, 64, 65, 130, 200}, {0, 1, 2, 5, 6, 7, 63, 64, 65, 130, 200}, 12, options);
          options.causal = false;
          for (const bool has_own_keys : {false, true})
            check({1, 0, 13, 2, 3, 8, 4}, {0, 5, 1, 200, 0, 67, 64}, 12, options, 1, has_own_keys);
        }
  });
}

/// What a query does not see, before its window and behind itself, does not matter, even if it is NaN.
TEST(HostAttentionWithSilu, IsNaNOnlyWhereAWindowHasIt) {
  for_each_target([] {
    const AwkwardMatrix q = AwkwardMatrix(100, 4).fill(1), k = AwkwardMatrix(100, 4).fill(2);
    AwkwardMatrix v = AwkwardMatrix(100, 4).fill(3);
    AttentionOptions options = with_silu(1, 0.5f, 9, true);
    options.window = 6, options.full_last = 3;
    v.at(40, 2) = std::nanf("");
    const AwkwardMatrix y =
        run(q.view(), k.view(), v.view(), OwnedSegments{100}.view(), OwnedSegments{100}.view(), options);
    for (int64_t r = 0; r < 100; ++r)
      for (int64_t c = 0; c < 4; ++c)
        EXPECT_EQ(std::isnan(y.view().row(r)[c]), c == 2 && ((r >= 40 && r <= 46) || r >= 97)) << r << ", " << c;
  });
}

/// A query's own key is one event more of its segment.
TEST(HostAttentionWithSilu, SeesItsOwnKeyAsOneEventMore) {
  for_each_target([] {
    const AwkwardMatrix q = AwkwardMatrix(1, 24).fill(1), k = AwkwardMatrix(71, 24).fill(2),
                        v = AwkwardMatrix(71, 24).fill(3);
    const AttentionOptions options = with_silu(2, 0.4f, 8);
    const AwkwardMatrix among_events =
        run(q.view(), k.view(), v.view(), OwnedSegments{1}.view(), OwnedSegments{71}.view(), options);
    const AwkwardMatrix own =
        run(q.view(), k.view().row_range(0, 70), v.view().row_range(0, 70), OwnedSegments{1}.view(),
            OwnedSegments{70}.view(), options, {k.view().row_range(70, 1), v.view().row_range(70, 1)});
    for (int64_t c = 0; c < 24; ++c) EXPECT_NEAR(among_events.view().row(0)[c], own.view().row(0)[c], 1e-5f);
  });
}

TEST(HostAttentionWithSilu, GivesNaNOnlyToQueriesThatSeeItAndTakesInfiniteScores) {
  for_each_target([] {
    const AwkwardMatrix q = AwkwardMatrix(20, 4).fill(1), k = AwkwardMatrix(9, 4).fill(2);
    AwkwardMatrix own_k = AwkwardMatrix(20, 4).fill(3), own_v = AwkwardMatrix(20, 4).fill(4);
    const auto run_with_own = [&] {
      return run(q.view(), k.view(), k.view(), OwnedSegments{20}.view(), OwnedSegments{9}.view(), with_silu(1, 0.5f, 9),
                 {own_k.view(), own_v.view()});
    };
    const AwkwardMatrix before = run_with_own();
    own_k.at(7, 1) = std::nanf("");
    own_v.at(9, 2) = std::numeric_limits<float>::infinity();
    const AwkwardMatrix y = run_with_own();
    for (int64_t r = 0; r < 20; ++r)
      for (int64_t c = 0; c < 4; ++c) {
        const bool spoilt = r == 7 || (r == 9 && c == 2);
        EXPECT_EQ(std::isfinite(y.view().row(r)[c]), !spoilt) << r << ' ' << c;
        if (spoilt) continue;
        EXPECT_EQ(y.view().row(r)[c], before.view().row(r)[c]) << r << ' ' << c;
      }

    AwkwardMatrix one(1, 1), keys(3, 1), values(3, 1);
    one.at(0, 0) = 3e38f;
    for (int64_t t = 0; t < 3; ++t) keys.at(t, 0) = -3e38f, values.at(t, 0) = 1;
    const AwkwardMatrix of_least = run(one.view(), keys.view(), values.view(), OwnedSegments{1}.view(),
                                       OwnedSegments{3}.view(), with_silu(1, 1, 1));
    EXPECT_EQ(of_least.view().row(0)[0], 0);
  });
}

TEST(HostAttentionWithSilu, GivesAQueryTheSameBitsWhateverItsNeighboursAndMayWriteOverTheQueries) {
  for_each_target([] {
    AwkwardMatrix q = AwkwardMatrix(40, 24).fill(1);
    const AwkwardMatrix k = AwkwardMatrix(170, 24).fill(2), v = AwkwardMatrix(170, 24).fill(3),
                        own = AwkwardMatrix(40, 24).fill(4);
    const OwnedSegments queries{23, 3, 14}, keys{69, 100, 1};
    const AttentionOptions options = with_silu(2, 0.4f, 100);
    const AwkwardMatrix together =
        run(q.view(), k.view(), v.view(), queries.view(), keys.view(), options, {own.view(), own.view()});
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t i = queries.view().begin(s); i < queries.view().end(s); ++i) {
        const int64_t first = keys.view().begin(s), count = keys.view().size(s);
        const Matrix<const float> own_row = own.view().row_range(i, 1);
        const AwkwardMatrix alone =
            run(q.view().row_range(i, 1), k.view().row_range(first, count), v.view().row_range(first, count),
                OwnedSegments{1}.view(), OwnedSegments{count}.view(), options, {own_row, own_row});
        expect_same_bits(together.view().row_range(i, 1), alone.view());
      }
    Workspace workspace(host_ops::attention_workspace(12, 100));
    host_ops::attention(q.view(), k.view(), v.view(), queries.view(), keys.view(), options, q.view(), workspace.view(),
                        {own.view(), own.view()});
    expect_same_bits(together.view(), q.view());
  });
}

TEST(HostAttentionInBf16, MatchesTheFormulaForEveryDimAndRaggedHistories) {
  for_each_target([] {
    for (const int64_t heads : {1, 3})
      for (const int64_t dim : {1, 2, 3, 5, 16, 31, 33, 64, 100})
        check({3, 1, 8}, {5, 20, 2}, dim, {heads, 1 / std::sqrt(static_cast<float>(dim)), false, Precision::bf16});
    for (const bool causal : {false, true})
      check({0, 1, 2, 5, 6, 7, 63, 65, 130}, {0, 1, 2, 5, 6, 7, 63, 65, 130}, 13, {2, 0.3f, causal, Precision::bf16});
    check({1, 0, 13, 2, 3, 100, 4}, {0, 5, 1, 1000, 0, 67, 64}, 12, {2, 0.3f, false, Precision::bf16});
  });
}

/// With the bits of what they are rounded to.
TEST(HostAttentionInBf16, RoundsQueriesKeysAndValues) {
  for_each_target([] {
    AwkwardMatrix q = AwkwardMatrix(9, 33).fill(1), k = AwkwardMatrix(70, 33).fill(2),
                  v = AwkwardMatrix(70, 33).fill(3);
    const auto run_in = [&](Precision precision) {
      return run(q.view(), k.view(), v.view(), OwnedSegments{9}.view(), OwnedSegments{70}.view(),
                 {1, 0.2f, false, precision});
    };
    const AwkwardMatrix in_fp32 = run_in(Precision::fp32), in_bf16 = run_in(Precision::bf16);
    if (!host_ops::has_bf16_products()) return expect_same_bits(in_fp32.view(), in_bf16.view());
    EXPECT_NE(in_fp32.view().row(0)[0], in_bf16.view().row(0)[0]);
    round_to_bf16(q), round_to_bf16(k), round_to_bf16(v);
    expect_same_bits(run_in(Precision::bf16).view(), in_bf16.view());
  });
}

/// Where a value cannot be rounded, none of its head is.
TEST(HostAttentionInBf16, SpoilsOnlyQueriesThatSeeWhatIsNotFinite) {
  for_each_target([] {
    const AwkwardMatrix q = AwkwardMatrix(90, 6).fill(1), k = AwkwardMatrix(90, 6).fill(2);
    const auto run_with = [&](const AwkwardMatrix& v) {
      return run(q.view(), k.view(), v.view(), OwnedSegments{90}.view(), OwnedSegments{90}.view(),
                 {2, 0.5f, true, Precision::bf16});
    };
    AwkwardMatrix v = AwkwardMatrix(90, 6).fill(3);
    const AwkwardMatrix before = run_with(v);
    for (const float value : {std::nanf(""), infinity, -3.4e38f}) {
      v.at(33, 4) = value;
      const AwkwardMatrix y = run_with(v);
      expect_same_bits(before.view().columns(0, 3), y.view().columns(0, 3));
      for (int64_t r = 0; r < 90; ++r)
        for (int64_t c = 3; c < 6; ++c) {
          const bool is_spoilt = r >= 33 && c == 4;
          EXPECT_EQ(std::fabs(y.view().row(r)[c]) < 100, !is_spoilt) << value << " at " << r << ", " << c;
          if (!is_spoilt) {
            EXPECT_NEAR(y.view().row(r)[c], before.view().row(r)[c], 0.05f) << r << ", " << c;
          }
        }
    }
  });
}

/// Rows of a tile see different parts of the events.
TEST(HostAttentionWithSilu, GivesTheSameBitsToAHistoryThatIsCutAfterTheQuery) {
  for_each_target([] {
    const AwkwardMatrix x = AwkwardMatrix(80, 24).fill(1);
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const int64_t window : {0, 9}) {
        AttentionOptions options = with_silu(2, 0.4f, 80, true, precision);
        options.window = window;
        const AwkwardMatrix whole =
            run(x.view(), x.view(), x.view(), OwnedSegments{80}.view(), OwnedSegments{80}.view(), options);
        for (const int64_t count : {1, 2, 7, 24, 25, 63, 64, 79}) {
          const Matrix<const float> cut = x.view().row_range(0, count);
          expect_same_bits(run(cut, cut, cut, OwnedSegments{count}.view(), OwnedSegments{count}.view(), options).view(),
                           whole.view().row_range(0, count));
        }
      }
  });
}

TEST(HostAttention, MatchesTheFormulaForEveryScale) {
  for_each_target([] {
    for (const float scale : {0.0f, 1e-3f, 0.25f, -0.25f, 2.0f})
      for (const float of_values : {1e-2f, 1.0f, 4.0f}) check({5, 9}, {40, 3}, 8, {2, scale, false}, of_values);
  });
}

TEST(HostAttention, GivesZerosWhereThereAreNoKeys) {
  for_each_target([] {
    const AwkwardMatrix q = AwkwardMatrix(3, 8).fill(1), k(0, 8);
    const AwkwardMatrix y =
        run(q.view(), k.view(), k.view(), OwnedSegments{2, 1}.view(), OwnedSegments{0, 0}.view(), {2, 1.0f, false});
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(y.view().row(i)[c], 0);
  });
}

TEST(HostAttention, GivesTheMeanValueOfTheBestKeysWhenScoresAreExtreme) {
  for_each_target([] {
    struct Extreme {
      float query, best_key, other_key;
    };
    for (const auto& [query, best_key, other_key] : {Extreme{1e4f, 1e4f, -1e4f}, Extreme{1e19f, 1e19f, -1e19f},
                                                     Extreme{3e38f, 3e38f, -3e38f}, Extreme{1, -1000, -2000}}) {
      AwkwardMatrix q(1, 1), k(20, 1), v(20, 1);
      q.at(0, 0) = query;
      for (int64_t t = 0; t < 20; ++t) {
        k.at(t, 0) = t % 5 == 0 ? best_key : other_key;
        v.at(t, 0) = t % 5 == 0 ? static_cast<float>(t) : 1e9f;
      }
      const AwkwardMatrix y =
          run(q.view(), k.view(), v.view(), OwnedSegments{1}.view(), OwnedSegments{20}.view(), {1, 1.0f, false});
      EXPECT_EQ(y.view().row(0)[0], 7.5f) << "query " << query;
    }
  });
}

TEST(HostAttention, WeighsAllKeysAlikeWhenEveryScoreIsMinusInfinity) {
  for_each_target([] {
    AwkwardMatrix q(1, 2), k(3, 2), v(3, 2);
    for (int64_t c = 0; c < 2; ++c) {
      q.at(0, c) = -3e38f;
      for (int64_t t = 0; t < 3; ++t) k.at(t, c) = 3e38f, v.at(t, c) = static_cast<float>(t);
    }
    const AwkwardMatrix y =
        run(q.view(), k.view(), v.view(), OwnedSegments{1}.view(), OwnedSegments{3}.view(), {1, 1.0f, false});
    for (int64_t c = 0; c < 2; ++c) EXPECT_FLOAT_EQ(y.view().row(0)[c], 1.0f);
  });
}

TEST(HostAttention, GivesNaNOnlyToQueriesThatSeeIt) {
  for_each_target([] {
    AwkwardMatrix x = AwkwardMatrix(20, 4).fill(1);
    AwkwardMatrix before =
        run(x.view(), x.view(), x.view(), OwnedSegments{20}.view(), OwnedSegments{20}.view(), {1, 0.5f, true});
    for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      x.at(9, 2) = value;
      const AwkwardMatrix y =
          run(x.view(), x.view(), x.view(), OwnedSegments{20}.view(), OwnedSegments{20}.view(), {1, 0.5f, true});
      expect_same_bits(before.view().row_range(0, 9), y.view().row_range(0, 9));
      EXPECT_TRUE(std::isnan(y.view().row(9)[2]) || std::isinf(y.view().row(9)[2]));
    }
  });
}

TEST(HostAttention, GivesAQueryTheSameBitsWhateverItsNeighbours) {
  for_each_target([] {
    const AwkwardMatrix q = AwkwardMatrix(40, 24).fill(1), k = AwkwardMatrix(170, 24).fill(2),
                        v = AwkwardMatrix(170, 24).fill(3);
    const OwnedSegments queries{23, 3, 14}, keys{69, 100, 1};
    const AttentionOptions options{2, 0.4f, false};
    const AwkwardMatrix together = run(q.view(), k.view(), v.view(), queries.view(), keys.view(), options);
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t i = queries.view().begin(s); i < queries.view().end(s); ++i) {
        const int64_t first = keys.view().begin(s), count = keys.view().size(s);
        const AwkwardMatrix alone =
            run(q.view().row_range(i, 1), k.view().row_range(first, count), v.view().row_range(first, count),
                OwnedSegments{1}.view(), OwnedSegments{count}.view(), options);
        expect_same_bits(together.view().row_range(i, 1), alone.view());
      }
  });
}

TEST(HostAttention, GivesTheSameBitsToAHistoryThatIsCutAfterTheQuery) {
  for_each_target([] {
    const AwkwardMatrix x = AwkwardMatrix(80, 24).fill(1);
    const AttentionOptions options{2, 0.4f, true};
    const AwkwardMatrix whole =
        run(x.view(), x.view(), x.view(), OwnedSegments{80}.view(), OwnedSegments{80}.view(), options);
    for (int64_t length = 1; length <= 80; ++length) {
      const Matrix<const float> start = x.view().row_range(0, length);
      const AwkwardMatrix y =
          run(start, start, start, OwnedSegments{length}.view(), OwnedSegments{length}.view(), options);
      expect_same_bits(whole.view().row_range(0, length), y.view());
    }
  });
}

TEST(HostAttention, MayWriteOverTheQueries) {
  for_each_target([] {
    AwkwardMatrix q = AwkwardMatrix(15, 12).fill(1);
    const AwkwardMatrix k = AwkwardMatrix(9, 12).fill(2), v = AwkwardMatrix(9, 12).fill(3);
    const OwnedSegments queries{15}, keys{9};
    const AttentionOptions options{3, 0.5f, false};
    const AwkwardMatrix expected = run(q.view(), k.view(), v.view(), queries.view(), keys.view(), options);
    Workspace workspace(host_ops::attention_workspace(4, 9));
    host_ops::attention(q.view(), k.view(), v.view(), queries.view(), keys.view(), options, q.view(), workspace.view());
    expect_same_bits(expected.view(), q.view());
  });
}

}}  // namespace warprank
