// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/mix_tokens.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/mix_tokens.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

/// x mixed, with vectors that `norms` has rows of: gamma and beta, and those of the input if there are four.
void mix(Matrix<const float> x, int64_t tokens, Matrix<const float> norms, Matrix<float> y) {
  const auto row = [&](int64_t r) { return Span<const float>(norms.row(r), norms.cols); };
  const host_ops::TokenNormVectors norm{1e-5f, row(0), row(1)},
      input_norm = norms.rows > 2 ? host_ops::TokenNormVectors{1e-3f, row(2), row(3)} : norm;
  std::vector<float> workspace(static_cast<size_t>(norms.rows > 2 ? 2 * x.cols : x.cols));
  host_ops::mix_tokens(x, tokens, norm, norms.rows > 2 ? &input_norm : nullptr, y, workspace);
}

void check(int64_t rows, int64_t tokens, int64_t columns, bool norms_input) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << tokens << " x " << columns << ", norm " << norms_input);
  const AwkwardMatrix x = AwkwardMatrix(rows, tokens * columns).fill(1),
                      norms = AwkwardMatrix(norms_input ? 4 : 2, columns).fill(2);
  AwkwardMatrix y(rows, tokens * columns);
  mix(x.view(), tokens, norms.view(), y.view());
  const auto row = [&](int64_t r) { return Span<const float>(norms.view().row(r), columns); };
  const reference::TokenNormOf norm{1e-5f, row(0), row(1)},
      input_norm = norms_input ? reference::TokenNormOf{1e-3f, row(2), row(3)} : norm;
  expect_within(reference::mix_tokens(x.view(), tokens, norm, norms_input ? &input_norm : nullptr, false), y.view(), 1);
  y.expect_guards_untouched();
}

TEST(HostMixTokens, MatchesTheFormulaForEveryShape) {
  for_each_target([] {
    for (const int64_t tokens : {1, 2, 3, 16})
      for (const int64_t part : {1, 2, 5, 16})
        for (const bool norms_input : {false, true}) check(3, tokens, tokens * part, norms_input);
    check(0, 2, 4, true);
    check(2, 16, 768, true);
  });
}

TEST(HostMixTokens, WorksInPlaceAndRowByRow) {
  for_each_target([] {
    const AwkwardMatrix norms = AwkwardMatrix(4, 12).fill(2);
    AwkwardMatrix x = AwkwardMatrix(4, 36).fill(1), y(4, 36);
    mix(x.view(), 3, norms.view(), y.view());
    AwkwardMatrix alone(1, 36);
    mix({x.view().row(2), 1, 36}, 3, norms.view(), alone.view());
    expect_same_bits({y.view().row(2), 1, 36}, alone.view());
    mix(x.view(), 3, norms.view(), x.view());
    expect_same_bits(y.view(), x.view());
  });
}

TEST(HostMixTokens, KeepsNaNAmongTheTokensThatReadIt) {
  for_each_target([] {
    const AwkwardMatrix norms = AwkwardMatrix(2, 4).fill(2);
    AwkwardMatrix x = AwkwardMatrix(2, 8).fill(1), y(2, 8);
    x.at(0, 1) = NAN;  // of token 0 and its part 0, which only token 0 reads
    mix(x.view(), 2, norms.view(), y.view());
    for (int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(std::isnan(y.at(0, c)), c < 4) << c;
      EXPECT_FALSE(std::isnan(y.at(1, c))) << c;
    }
  });
}

}}  // namespace warprank
