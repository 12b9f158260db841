// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/concat.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/segmented_input.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

/// y is what the rows that serve it have, side by side.
void expect_concat(const std::vector<SegmentedInput>& parts, int64_t rows) {
  int64_t columns = 0;
  for (const SegmentedInput& part : parts) columns += part.values.cols;
  AwkwardMatrix y(rows, columns), expected(rows, columns);
  for (int64_t n = 0; n < rows; ++n) {
    float* to = expected.view().row(n);
    for (const SegmentedInput& part : parts) to = std::copy_n(reference::serving_row(part, n), part.values.cols, to);
  }
  host_ops::concat(parts, y.view());
  expect_same_bits(expected.view(), y.view());
  y.expect_guards_untouched();
}

/// Every width up to beyond two vectors, alone and with neighbours on both sides.
TEST(HostConcat, CopiesPartsOfEveryWidthBitForBit) {
  for_each_target([] {
    for (int64_t width = 0; width <= 70; ++width) {
      const int64_t rows = 9;
      const AwkwardMatrix narrow = AwkwardMatrix(rows, 1).fill(1), part = AwkwardMatrix(rows, width).fill(2);
      const std::vector<SegmentedInput> parts = {{narrow.view()}, {part.view()}, {narrow.view()}};
      AwkwardMatrix y(rows, width + 2);
      host_ops::concat(parts, y.view());
      expect_same_bits(narrow.view(), y.view().columns(0, 1));
      expect_same_bits(part.view(), y.view().columns(1, width));
      expect_same_bits(narrow.view(), y.view().columns(width + 1, 1));
      y.expect_guards_untouched();
    }
  });
}

TEST(HostConcat, TakesPartsFromSeveralAncestorsBesideItsOwnAxis) {
  for_each_target([] {
    const OwnedSegments users({0, 700, 0, 1, 299, 0}), sessions({3, 0, 697, 1, 0, 299});
    const int64_t rows = 1000;
    const AwkwardMatrix item = AwkwardMatrix(rows, 5).fill(1), user = AwkwardMatrix(6, 33).fill(2),
                        session = AwkwardMatrix(6, 8, 0).fill(3);
    const std::vector<SegmentedInput> parts = {
        {user.view(), users.view()}, {item.view()}, {session.view(), sessions.view()}};
    expect_concat(parts, rows);
  });
}

/// Among other columns of the same matrices, one of which has the same rows by other segments.
TEST(HostConcat, RepeatsSingleColumns) {
  for_each_target([] {
    const int64_t rows = 1000;
    const OwnedSegments users({0, 700, 0, 1, 299, 0}), others({1, 998, 0, 0, 1, 0});
    const AwkwardMatrix item = AwkwardMatrix(2 * rows, 5).fill(1), user = AwkwardMatrix(6, 3).fill(2);
    const Matrix<const float> items = item.view().row_range(0, rows);
    const SegmentedInput narrow{items.columns(1, 1)}, wide{items.columns(1, 2)},
        of_user{user.view().columns(2, 1), users.view()}, of_other{user.view().columns(2, 1), others.view()};
    std::vector<SegmentedInput> parts;
    const auto add = [&](const SegmentedInput& part, size_t times) { parts.insert(parts.end(), times, part); };
    add(wide, 2);
    add(narrow, 17);
    add(of_user, 9);
    add(of_other, 3);
    add(wide, 1);
    add(narrow, 2);
    add({{narrow.values.data, rows, 1, 2 * narrow.values.stride}}, 1);  // of other rows
    expect_concat(parts, rows);
  });
}

TEST(HostConcat, WritesNothingWithoutRowsOrColumns) {
  for_each_target([] {
    const OwnedSegments none({}), empty({0, 0});
    const AwkwardMatrix x(0, 4), user = AwkwardMatrix(2, 4).fill(1);
    AwkwardMatrix y(0, 4);
    host_ops::expand(x.view(), none.view(), y.view());
    host_ops::expand(user.view(), empty.view(), y.view());
    host_ops::concat({}, AwkwardMatrix(7, 0).view());
    y.expect_guards_untouched();
  });
}

TEST(HostExpand, RepeatsEachRowForItsSegment) {
  for_each_target([] {
    const OwnedSegments segments({2, 0, 3});
    AwkwardMatrix x(3, 2), y(5, 2);
    for (int64_t s = 0; s < 3; ++s) x.at(s, 0) = static_cast<float>(s), x.at(s, 1) = static_cast<float>(10 * s);
    host_ops::expand(x.view(), segments.view(), y.view());
    const float expected[] = {0, 0, 2, 2, 2};
    for (int64_t n = 0; n < 5; ++n) {
      EXPECT_EQ(y.at(n, 0), expected[n]);
      EXPECT_EQ(y.at(n, 1), 10 * expected[n]);
    }
    y.expect_guards_untouched();
  });
}

}}  // namespace warprank
