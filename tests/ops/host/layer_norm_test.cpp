// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/layer_norm.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/layer_norm.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

constexpr float eps = 1e-5f;

void check(const AwkwardMatrix& x) {
  const Matrix<const float> from = x.view();
  const AwkwardMatrix learned = AwkwardMatrix(2, from.cols).fill(9);
  const Span<const float> gamma(learned.view().row(0), from.cols), beta(learned.view().row(1), from.cols), none;
  for (const auto& [scale, shift] : {std::pair(none, none), {gamma, none}, {none, beta}, {gamma, beta}}) {
    SCOPED_TRACE(::testing::Message() << "cols " << from.cols << ", gamma " << !scale.empty() << ", beta "
                                      << !shift.empty());
    AwkwardMatrix y(from.rows, from.cols);
    host_ops::layer_norm(from, eps, scale, shift, y.view());
    const reference::Bounded expected = reference::layer_norm(from, eps, scale, shift);
    expect_within(expected, y.view(), 1);
    y.expect_guards_untouched();
    const AwkwardMatrix factor = AwkwardMatrix(from.rows, from.cols).fill(11);
    std::vector<double> of_all;
    for (int64_t n = 0; n < from.rows; ++n)
      of_all.insert(of_all.end(), factor.view().row(n), factor.view().row(n) + from.cols);
    host_ops::layer_norm(from, eps, scale, shift, y.view(), factor.view());
    expect_within(reference::product(expected, of_all), y.view(), 1);
    y.expect_guards_untouched();
  }
}

TEST(HostLayerNorm, MatchesTheFormulaForEveryWidthAndScale) {
  for_each_target([] {
    for (int64_t cols = 0; cols <= 67; ++cols)
      for (const float scale : {1e-3f, 1.0f, 1e3f})
        check(AwkwardMatrix(3, cols).fill(static_cast<uint32_t>(cols), scale, scale));
  });
}

TEST(HostLayerNorm, TakesVeryWideRowsAndNoRows) {
  for_each_target([] {
    check(AwkwardMatrix(1, 100003).fill(1));
    check(AwkwardMatrix(0, 5));
  });
}

/// The mean of the squares minus the square of the mean would be noise here.
TEST(HostLayerNorm, KeepsItsDigitsUnderALargeOffset) {
  for_each_target([] {
    AwkwardMatrix x(1, 64), y(1, 64);
    for (int64_t c = 0; c < 64; ++c) x.at(0, c) = 4096.0f + static_cast<float>(c % 2);
    host_ops::layer_norm(x.view(), 0, {}, {}, y.view());
    for (int64_t c = 0; c < 64; ++c) EXPECT_FLOAT_EQ(y.at(0, c), c % 2 == 0 ? -1.0f : 1.0f);
  });
}

TEST(HostLayerNorm, WorksInPlace) {
  for_each_target([] {
    AwkwardMatrix x = AwkwardMatrix(4, 37).fill(1), y(4, 37);
    host_ops::layer_norm(x.view(), eps, {}, {}, y.view());
    host_ops::layer_norm(x.view(), eps, {}, {}, x.view());
    expect_same_bits(y.view(), x.view());
  });
}

TEST(HostLayerNorm, GivesNaNForARowWithNaNOrInfinity) {
  for_each_target([] {
    AwkwardMatrix x = AwkwardMatrix(3, 21).fill(1), y(3, 21);
    x.at(0, 20) = NAN;
    x.at(1, 3) = INFINITY;
    host_ops::layer_norm(x.view(), eps, {}, {}, y.view());
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t c = 0; c < 21; ++c) EXPECT_EQ(std::isnan(y.at(r, c)), r != 2);
  });
}

TEST(HostLayerNorm, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const AwkwardMatrix x = AwkwardMatrix(9, 45).fill(1);
    AwkwardMatrix together(9, 45), alone(1, 45);
    host_ops::layer_norm(x.view(), eps, {}, {}, together.view());
    for (int64_t n = 0; n < 9; ++n) {
      host_ops::layer_norm(x.view().row_range(n, 1), eps, {}, {}, alone.view());
      expect_same_bits(together.view().row_range(n, 1), alone.view());
    }
  });
}

}}  // namespace warprank
