// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/softmax.hpp"

#include <gtest/gtest.h>

#include "reference/softmax.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

TEST(HostSoftmax, MatchesTheFormulaForEveryWidthAndScale) {
  for_each_target([] {
    for (int64_t cols = 0; cols <= 67; ++cols)
      for (const float scale : {1e-3f, 1.0f, 20.0f}) {
        SCOPED_TRACE(::testing::Message() << "cols " << cols << ", scale " << scale);
        const AwkwardMatrix x = AwkwardMatrix(3, cols).fill(static_cast<uint32_t>(cols), scale, 1000.0f);
        AwkwardMatrix y(3, cols);
        host_ops::softmax(x.view(), y.view());
        expect_within(reference::softmax(x.view()), y.view(), 1);
        y.expect_guards_untouched();
      }
  });
}

TEST(HostSoftmax, SharesEquallyAmongVeryManyEqualColumns) {
  for_each_target([] {
    const int64_t cols = 100003;
    AwkwardMatrix x(1, cols), y(1, cols);
    for (int64_t c = 0; c < cols; ++c) x.at(0, c) = -7;
    host_ops::softmax(x.view(), y.view());
    expect_within(reference::softmax(x.view()), y.view(), 1);
  });
}

TEST(HostSoftmax, WorksInPlace) {
  for_each_target([] {
    AwkwardMatrix x = AwkwardMatrix(4, 37).fill(1), y(4, 37);
    host_ops::softmax(x.view(), y.view());
    host_ops::softmax(x.view(), x.view());
    expect_same_bits(y.view(), x.view());
  });
}

TEST(HostSoftmax, GivesZeroForMinusInfinityAndNaNForWhatHasNoLimit) {
  for_each_target([] {
    for (const int64_t cols : {3, 20}) {
      AwkwardMatrix x = AwkwardMatrix(5, cols).fill(1), y(5, cols);
      x.at(0, 1) = -INFINITY;
      x.at(1, cols - 1) = INFINITY;
      x.at(2, 0) = NAN;
      x.at(3, cols - 1) = NAN;
      for (int64_t c = 0; c < cols; ++c) x.at(4, c) = -INFINITY;
      host_ops::softmax(x.view(), y.view());
      EXPECT_EQ(y.at(0, 1), 0);
      EXPECT_GT(y.at(0, 0), 0);
      for (int64_t r = 1; r < 5; ++r)
        for (int64_t c = 0; c < cols; ++c) EXPECT_TRUE(std::isnan(y.at(r, c))) << "row " << r << ", column " << c;
    }
  });
}

TEST(HostSoftmax, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const AwkwardMatrix x = AwkwardMatrix(9, 29).fill(1);
    AwkwardMatrix together(9, 29), alone(1, 29, 0);
    host_ops::softmax(x.view(), together.view());
    for (int64_t n = 0; n < 9; ++n) {
      host_ops::softmax(x.view().row_range(n, 1), alone.view());
      expect_same_bits(together.view().row_range(n, 1), alone.view());
    }
  });
}

}}  // namespace warprank
