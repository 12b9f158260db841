// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/segment_reduce.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/reduce.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

void check(Matrix<const float> x, Segments segments) {
  for (const Pooling pooling : reference::all_poolings) {
    SCOPED_TRACE(::testing::Message() << "cols " << x.cols << ", " << name_of_enum(pooling));
    AwkwardMatrix y(segments.count, x.cols);
    host_ops::segment_reduce(x, segments, pooling, y.view());
    expect_within(reference::segment_reduce(x, segments, pooling), y.view(), 1);
    y.expect_guards_untouched();
  }
}

TEST(HostSegmentReduce, MatchesTheFormulaForRaggedSegmentsOfEveryWidth) {
  for_each_target([] {
    const OwnedSegments segments({0, 3, 1, 0, 0, 17, 2, 0});
    for (int64_t cols = 0; cols <= 70; ++cols)
      for (const float scale : {1e-3f, 1.0f, 1e3f}) {
        const AwkwardMatrix x = AwkwardMatrix(23, cols).fill(static_cast<uint32_t>(cols), scale, -scale);
        check(x.view(), segments.view());
      }
  });
}

TEST(HostSegmentReduce, TakesOneVeryLongSegment) {
  for_each_target([] {
    const OwnedSegments segments({20011});
    const AwkwardMatrix x = AwkwardMatrix(20011, 5).fill(1);
    check(x.view(), segments.view());
  });
}

TEST(HostSegmentReduce, GivesZerosWithoutRowsAndNothingWithoutSegments) {
  for_each_target([] {
    const OwnedSegments empty({0, 0}), none({});
    const AwkwardMatrix x(0, 21);
    check(x.view(), empty.view());
    check(x.view(), none.view());
  });
}

TEST(HostSegmentReduce, PassesOnNaNInItsSegmentAndColumnOnly) {
  for_each_target([] {
    const OwnedSegments segments({2, 2});
    for (const Pooling pooling : reference::all_poolings)
      for (int64_t row = 0; row < 2; ++row) {
        AwkwardMatrix x = AwkwardMatrix(4, 19).fill(1), y(2, 19);
        x.at(row, 18) = NAN;
        host_ops::segment_reduce(x.view(), segments.view(), pooling, y.view());
        for (int64_t s = 0; s < 2; ++s)
          for (int64_t c = 0; c < 19; ++c) EXPECT_EQ(std::isnan(y.at(s, c)), s == 0 && c == 18);
      }
  });
}

TEST(HostSegmentReduce, GivesASegmentTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const OwnedSegments segments({4, 0, 9, 1});
    const AwkwardMatrix x = AwkwardMatrix(14, 83).fill(1);
    AwkwardMatrix together(4, 83), alone(1, 83);
    host_ops::segment_reduce(x.view(), segments.view(), Pooling::mean, together.view());
    for (int64_t s = 0; s < 4; ++s) {
      const int64_t size = segments.view().size(s);
      host_ops::segment_reduce(x.view().row_range(segments.view().begin(s), size), OwnedSegments({size}).view(),
                               Pooling::mean, alone.view());
      expect_same_bits(together.view().row_range(s, 1), alone.view());
    }
  });
}

}}  // namespace warprank
