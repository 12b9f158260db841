// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/reduce.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/reduce.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

TEST(HostReduce, MatchesTheFormulaForEveryWidthAndScale) {
  for_each_target([] {
    for (int64_t cols = 0; cols <= 67; ++cols)
      for (const float scale : {1e-3f, 1.0f, 1e3f})
        for (const Pooling pooling : reference::all_poolings) {
          SCOPED_TRACE(::testing::Message() << "cols " << cols << ", " << name_of_enum(pooling));
          const AwkwardMatrix x = AwkwardMatrix(3, cols).fill(static_cast<uint32_t>(cols), scale, -scale);
          AwkwardMatrix y(3, 1);
          host_ops::reduce(x.view(), pooling, y.view());
          expect_within(reference::reduce(x.view(), pooling), y.view(), 1);
          y.expect_guards_untouched();
        }
  });
}

TEST(HostReduce, TakesVeryWideRowsAndNoRows) {
  for_each_target([] {
    const AwkwardMatrix wide = AwkwardMatrix(1, 100003).fill(1), none(0, 5);
    AwkwardMatrix y(1, 1), nothing(0, 1);
    for (const Pooling pooling : reference::all_poolings) {
      host_ops::reduce(wide.view(), pooling, y.view());
      expect_within(reference::reduce(wide.view(), pooling), y.view(), 1);
      host_ops::reduce(none.view(), pooling, nothing.view());
      nothing.expect_guards_untouched();
    }
  });
}

TEST(HostReduce, PassesOnNaNFromEveryColumn) {
  for_each_target([] {
    for (const int64_t cols : {1, 3, 16, 35})
      for (int64_t c = 0; c < cols; ++c)
        for (const Pooling pooling : reference::all_poolings) {
          AwkwardMatrix x = AwkwardMatrix(2, cols).fill(1), y(2, 1);
          x.at(0, c) = NAN;
          host_ops::reduce(x.view(), pooling, y.view());
          EXPECT_TRUE(std::isnan(y.at(0, 0))) << "column " << c << " of " << cols << ", " << name_of_enum(pooling);
          EXPECT_FALSE(std::isnan(y.at(1, 0)));
        }
  });
}

TEST(HostReduce, GivesMinusInfinityAsTheMaximumOfNothingElse) {
  for_each_target([] {
    AwkwardMatrix x(1, 21), y(1, 1);
    for (int64_t c = 0; c < 21; ++c) x.at(0, c) = -INFINITY;
    host_ops::reduce(x.view(), Pooling::max, y.view());
    EXPECT_EQ(y.at(0, 0), -INFINITY);
  });
}

TEST(HostReduce, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const AwkwardMatrix x = AwkwardMatrix(9, 45).fill(1);
    AwkwardMatrix together(9, 1), alone(1, 1);
    host_ops::reduce(x.view(), Pooling::mean, together.view());
    for (int64_t n = 0; n < 9; ++n) {
      host_ops::reduce(x.view().row_range(n, 1), Pooling::mean, alone.view());
      expect_same_bits(together.view().row_range(n, 1), alone.view());
    }
  });
}

}}  // namespace warprank
