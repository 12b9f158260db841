// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/fm.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/fm.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

void check_fm(const std::vector<SegmentedInput>& inputs, int64_t dim, int64_t rows) {
  for (const bool reduce : {true, false}) {
    SCOPED_TRACE(::testing::Message() << "rows " << rows << ", dim " << dim << ", reduce " << reduce);
    AwkwardMatrix y(rows, reduce ? 1 : dim);
    Workspace workspace(host_ops::fm_workspace(dim));
    host_ops::fm(inputs, dim, reduce, y.view(), workspace.view());
    expect_within(reference::fm(inputs, dim, reduce, rows), y.view(), 1);
    y.expect_guards_untouched();
  }
}

TEST(HostFm, MatchesTheSumOverPairsForEveryDim) {
  for_each_target([] {
    for (const int64_t dim : {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 100})
      for (const float scale : {1e-3f, 1.0f, 1e3f})
        for (const int64_t rows : {0, 1, 5}) {
          const AwkwardMatrix a = AwkwardMatrix(rows, 4 * dim).fill(1, scale),
                              b = AwkwardMatrix(rows, dim).fill(2, scale);
          check_fm({{a.view()}, {b.view()}}, dim, rows);
        }
  });
}

TEST(HostFm, TakesFieldsFromSeveralAncestors) {
  for_each_target([] {
    const OwnedSegments users({0, 7, 0, 1, 92, 0}), sessions({3, 0, 4, 1, 0, 90, 2});
    const int64_t dim = 11, rows = 100;
    const AwkwardMatrix user = AwkwardMatrix(6, 3 * dim).fill(1), item = AwkwardMatrix(rows, 2 * dim).fill(2),
                        session = AwkwardMatrix(7, dim).fill(3);
    check_fm({{user.view(), users.view()}, {item.view()}, {session.view(), sessions.view()}}, dim, rows);
    check_fm({{user.view(), users.view()}, {session.view(), sessions.view()}}, dim, rows);
  });
}

TEST(HostFm, HasNoPairsInOneFieldAndNoneInNone) {
  for_each_target([] {
    const AwkwardMatrix field = AwkwardMatrix(3, 8).fill(1), none(3, 0);
    check_fm({{field.view()}}, 8, 3);
    check_fm({{none.view()}}, 8, 3);
    check_fm({}, 8, 3);
  });
}

/// (sum e)^2 - sum e^2 would lose every digit here.
TEST(HostFm, KeepsTheProductOfASmallAndALargeField) {
  for_each_target([] {
    AwkwardMatrix x(1, 2), y(1, 1);
    x.at(0, 0) = 1e4f;
    x.at(0, 1) = 1e-4f;
    Workspace workspace(host_ops::fm_workspace(1));
    host_ops::fm(std::vector<SegmentedInput>{{x.view()}}, 1, true, y.view(), workspace.view());
    EXPECT_FLOAT_EQ(y.at(0, 0), 1.0f);
  });
}

TEST(HostFm, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const OwnedSegments users({2, 0, 6}), alone({1});
    const int64_t dim = 24;
    const AwkwardMatrix user = AwkwardMatrix(3, 3 * dim).fill(1), item = AwkwardMatrix(8, 4 * dim).fill(2);
    AwkwardMatrix together(8, 1), single(1, 1);
    Workspace workspace(host_ops::fm_workspace(dim));
    host_ops::fm(std::vector<SegmentedInput>{{user.view(), users.view()}, {item.view()}}, dim, true, together.view(),
                 workspace.view());
    for (int64_t n = 0; n < 8; ++n) {
      const SegmentedInput whole{user.view(), users.view()};
      host_ops::fm(std::vector<SegmentedInput>{{user.view().row_range(whole.row_serving(n), 1), alone.view()},
                                               {item.view().row_range(n, 1)}},
                   dim, true, single.view(), workspace.view());
      expect_same_bits(together.view().row_range(n, 1), single.view());
    }
  });
}

TEST(HostFm, PassesOnNaNInItsRowOnly) {
  for_each_target([] {
    AwkwardMatrix x = AwkwardMatrix(3, 12).fill(1);
    x.at(1, 5) = NAN;
    AwkwardMatrix y(3, 1);
    Workspace workspace(host_ops::fm_workspace(4));
    host_ops::fm(std::vector<SegmentedInput>{{x.view()}}, 4, true, y.view(), workspace.view());
    EXPECT_FALSE(std::isnan(y.at(0, 0)));
    EXPECT_TRUE(std::isnan(y.at(1, 0)));
    EXPECT_FALSE(std::isnan(y.at(2, 0)));
  });
}

}}  // namespace warprank
