// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/dot.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/dot.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;
using host_ops::Precision;

const std::vector<DotPairs> variants = {{DotOrder::lower, false},        {DotOrder::lower, true},
                                        {DotOrder::upper, false},        {DotOrder::upper, true},
                                        {DotOrder::lower_padded, false}, {DotOrder::lower_padded, true}};

/// All orders, and products between two sets of fields: one of them small, or of about the same size.
std::vector<DotPairs> variants_of(int64_t num_fields) {
  std::vector<DotPairs> all = variants;
  for (const int64_t num_left : {int64_t{1}, num_fields / 2, num_fields - 1})
    if (num_left > 0) all.push_back({DotOrder::lower, false, num_left});
  return all;
}

int64_t num_fields_of(const std::vector<SegmentedInput>& inputs, int64_t dim) {
  int64_t cols = 0;
  for (const SegmentedInput& input : inputs) cols += input.values.cols;
  return cols / dim;
}

/// The result for one variant, whose guards are checked.
AwkwardMatrix run(const std::vector<SegmentedInput>& inputs, int64_t dim, int64_t rows, DotPairs variant,
                  Precision precision = Precision::fp32) {
  const int64_t num_fields = num_fields_of(inputs, dim);
  AwkwardMatrix y(rows, num_dot_pairs(num_fields, variant));
  Workspace workspace(host_ops::dot_workspace(num_fields, dim, variant));
  host_ops::dot(inputs, dim, variant, y.view(), workspace.view(), precision);
  y.expect_guards_untouched();
  return y;
}

void check_dot(const std::vector<SegmentedInput>& inputs, int64_t dim, int64_t rows,
               Precision precision = Precision::fp32) {
  for (const DotPairs& variant : variants_of(num_fields_of(inputs, dim))) {
    SCOPED_TRACE(::testing::Message() << "dim " << dim << ", rows " << rows << ", order " << name_of_enum(variant.order)
                                      << ", self " << variant.self << ", left " << variant.num_left);
    expect_within(reference::dot(inputs, dim, variant, rows), run(inputs, dim, rows, variant, precision).view(), 1);
  }
}

AwkwardMatrix rounded_to_bf16(AwkwardMatrix matrix) {
  for (int64_t r = 0; r < matrix.view().rows; ++r)
    for (int64_t c = 0; c < matrix.view().cols; ++c) matrix.at(r, c) = to_float(to_bfloat16(matrix.at(r, c)));
  return matrix;
}

TEST(HostDot, MatchesEachPairForEveryNumberOfFields) {
  for_each_target([] {
    for (int64_t num_fields = 1; num_fields <= 35; ++num_fields)
      for (const int64_t dim : {1, 4, 13}) {
        const AwkwardMatrix x = AwkwardMatrix(2, num_fields * dim).fill(1);
        check_dot({{x.view()}}, dim, 2);
      }
  });
}

TEST(HostDot, MatchesEachPairForEveryDim) {
  for_each_target([] {
    for (const int64_t dim : {1, 2, 3, 5, 8, 16, 31, 128})
      for (const float scale : {1e-3f, 1.0f, 1e3f})
        for (const int64_t rows : {0, 1, 4}) {
          const AwkwardMatrix a = AwkwardMatrix(rows, 3 * dim).fill(1, scale),
                              b = AwkwardMatrix(rows, dim).fill(2, scale);
          check_dot({{a.view()}, {b.view()}}, dim, rows);
        }
  });
}

/// Ancestors first, last and between, so that their pairs lie anywhere in the output.
TEST(HostDot, TakesFieldsFromSeveralAncestors) {
  for_each_target([] {
    const OwnedSegments users({0, 7, 0, 1, 42, 0}), sessions({3, 0, 4, 1, 0, 40, 2});
    const int64_t dim = 6, rows = 50;
    const AwkwardMatrix user = AwkwardMatrix(6, 9 * dim).fill(1), item = AwkwardMatrix(rows, 2 * dim).fill(2),
                        other_item = AwkwardMatrix(rows, 11 * dim).fill(3), session = AwkwardMatrix(7, 3 * dim).fill(4);
    const SegmentedInput from_user{user.view(), users.view()}, from_session{session.view(), sessions.view()};
    check_dot({from_user, {item.view()}, from_session, {other_item.view()}}, dim, rows);
    check_dot({{item.view()}, from_session, {other_item.view()}, from_user}, dim, rows);
    check_dot({from_session, from_user}, dim, rows);
  });
}

TEST(HostDot, TakesAnyNumberOfAncestorFieldsAmongWholeTiles) {
  for_each_target([] {
    const OwnedSegments users({1, 2});
    for (int64_t num_ancestor_fields = 0; num_ancestor_fields <= 32; ++num_ancestor_fields) {
      const AwkwardMatrix user = AwkwardMatrix(2, num_ancestor_fields * 3).fill(1),
                          item = AwkwardMatrix(3, (32 - num_ancestor_fields) * 3).fill(2);
      check_dot({{user.view(), users.view()}, {item.view()}}, 3, 3);
      check_dot({{item.view()}, {user.view(), users.view()}}, 3, 3);
    }
  });
}

TEST(HostDot, GivesTheColumnsThatEachLibraryGives) {
  AwkwardMatrix x(1, 3);  // three fields of one column: every product names its pair
  x.at(0, 0) = 2, x.at(0, 1) = 3, x.at(0, 2) = 5;
  const auto columns = [&](DotPairs variant) {
    const AwkwardMatrix y = run({{x.view()}}, 1, 1, variant);
    return std::vector<float>(y.view().row(0), y.view().row(0) + y.view().cols);
  };
  for_each_target([&] {
    EXPECT_EQ(columns({DotOrder::lower, false}), (std::vector<float>{6, 10, 15}));
    EXPECT_EQ(columns({DotOrder::lower, true}), (std::vector<float>{4, 6, 9, 10, 15, 25}));
    EXPECT_EQ(columns({DotOrder::upper, false}), (std::vector<float>{6, 10, 15}));
    EXPECT_EQ(columns({DotOrder::upper, true}), (std::vector<float>{4, 6, 10, 9, 15, 25}));
    EXPECT_EQ(columns({DotOrder::lower_padded, false}), (std::vector<float>{6, 10, 15, 0}));
    // Between two sets the order and `self` do not matter.
    for (const DotOrder order : {DotOrder::lower, DotOrder::upper, DotOrder::lower_padded})
      for (const bool self : {false, true}) {
        EXPECT_EQ(columns({order, self, 1}), (std::vector<float>{6, 10}));
        EXPECT_EQ(columns({order, self, 2}), (std::vector<float>{10, 15}));
      }
  });
}

TEST(HostDot, OrdersFourFieldsDifferentlyInTheTwoTriangles) {
  AwkwardMatrix x(1, 4);
  x.at(0, 0) = 2, x.at(0, 1) = 3, x.at(0, 2) = 5, x.at(0, 3) = 7;
  const std::vector<float> lower = {6, 10, 15, 14, 21, 35}, upper = {6, 10, 14, 15, 21, 35};
  for_each_target([&] {
    for (size_t p = 0; p < 6; ++p) {
      EXPECT_EQ(run({{x.view()}}, 1, 1, {DotOrder::lower, false}).at(0, static_cast<int64_t>(p)), lower[p]);
      EXPECT_EQ(run({{x.view()}}, 1, 1, {DotOrder::upper, false}).at(0, static_cast<int64_t>(p)), upper[p]);
    }
  });
}

/// Values that BF16 holds have the bound of FP32, others the bits of those that they are rounded to.
TEST(HostDotInBf16, RoundsFieldsAndNothingElse) {
  for_each_target([] {
    for (int64_t num_fields = 1; num_fields <= 35; ++num_fields)
      for (const int64_t dim : {2, 6, 13, 32, 34}) {
        const AwkwardMatrix x = AwkwardMatrix(2, num_fields * dim).fill(1), rounded = rounded_to_bf16(x);
        check_dot({{rounded.view()}}, dim, 2, Precision::bf16);
        const bool is_bf16 = dim % 2 == 0 && host_ops::has_bf16_products();
        for (const DotPairs& variant : variants_of(num_fields))
          expect_same_bits(run({{is_bf16 ? rounded.view() : x.view()}}, dim, 2, variant, Precision::bf16).view(),
                           run({{x.view()}}, dim, 2, variant, Precision::bf16).view());
      }
  });
}

TEST(HostDotInBf16, TakesFieldsFromSeveralAncestors) {
  for_each_target([] {
    const OwnedSegments users({0, 7, 0, 1, 42, 0}), sessions({3, 0, 4, 1, 0, 40, 2});
    const int64_t dim = 6, rows = 50;
    const AwkwardMatrix user = rounded_to_bf16(AwkwardMatrix(6, 9 * dim).fill(1)),
                        item = rounded_to_bf16(AwkwardMatrix(rows, 2 * dim).fill(2)),
                        other_item = rounded_to_bf16(AwkwardMatrix(rows, 11 * dim).fill(3)),
                        session = rounded_to_bf16(AwkwardMatrix(7, 3 * dim).fill(4));
    const SegmentedInput from_user{user.view(), users.view()}, from_session{session.view(), sessions.view()};
    check_dot({from_user, {item.view()}, from_session, {other_item.view()}}, dim, rows, Precision::bf16);
    check_dot({{item.view()}, from_session, {other_item.view()}, from_user}, dim, rows, Precision::bf16);
  });
}

TEST(HostDot, GivesAPairTheSameBitsAloneAmongOthersAndOnAnAncestor) {
  for_each_target([] {
    const OwnedSegments users({2, 0, 6}), alone({1});
    const int64_t dim = 24, rows = 8;
    const AwkwardMatrix user = AwkwardMatrix(3, 3 * dim).fill(1), item = AwkwardMatrix(rows, 20 * dim).fill(2);
    const SegmentedInput on_users{user.view(), users.view()};
    for (const DotPairs& pairs : {variants[1], DotPairs{DotOrder::lower, false, 12}}) {
      const AwkwardMatrix together = run({on_users, {item.view()}}, dim, rows, pairs);
      for (int64_t n = 0; n < rows; ++n) {
        const Matrix<const float> user_row = user.view().row_range(on_users.row_serving(n), 1);
        const Matrix<const float> item_row = item.view().row_range(n, 1);
        const auto one = together.view().row_range(n, 1);
        expect_same_bits(one, run({{user_row, alone.view()}, {item_row}}, dim, 1, pairs).view());
        expect_same_bits(one, run({{user_row}, {item_row}}, dim, 1, pairs).view());
      }
    }
  });
}

TEST(HostDot, PassesOnNaNToThePairsOfItsFieldOnly) {
  for_each_target([] {
    AwkwardMatrix x = AwkwardMatrix(2, 12).fill(1);
    x.at(0, 4) = NAN;  // field 1 of row 0
    const AwkwardMatrix y = run({{x.view()}}, 4, 2, {DotOrder::lower, false});
    EXPECT_TRUE(std::isnan(y.view().row(0)[0]));
    EXPECT_FALSE(std::isnan(y.view().row(0)[1]));
    EXPECT_TRUE(std::isnan(y.view().row(0)[2]));
    for (int64_t p = 0; p < 3; ++p) EXPECT_FALSE(std::isnan(y.view().row(1)[p]));
  });
}

}}  // namespace warprank
