// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/field_linear.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/field_linear.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

/// A layer of `out` fields over so many of a and of b, with random weights.
struct FieldLayer {
  int64_t of_a, of_b, dim;
  reference::Linear linear;

  FieldLayer(int64_t of_a, int64_t of_b, int64_t dim, int64_t out, Activation activation = {}, bool has_bias = true)
      : of_a(of_a), of_b(of_b), dim(dim) {
    linear.in = of_a * std::max<int64_t>(of_b, 1);
    linear.out = out;
    linear.activation = activation;
    const auto values = [](int64_t count, uint32_t seed) {
      const AwkwardMatrix matrix = AwkwardMatrix(1, count).fill(seed);
      return std::vector<float>(matrix.view().data, matrix.view().data + count);
    };
    linear.weight = values(out * linear.in, 3);
    if (has_bias) linear.bias = values(out, 4);
  }
  host_ops::PackedFieldLinear packed() const {
    return {linear.weight, linear.bias, of_a, of_b, dim, linear.out, linear.activation};
  }
  void run(Matrix<const float> a, Matrix<const float> b, int64_t kept, Matrix<float> y) const {
    const host_ops::PackedFieldLinear packed = this->packed();
    Workspace workspace(packed.workspace_size());
    host_ops::field_linear(packed, kept, a, b, y, workspace.view());
  }
};

void check(const FieldLayer& layer, int64_t rows, int64_t kept, int64_t summed) {
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << layer.of_a << " and " << layer.of_b << " fields of "
                                    << layer.dim << ", " << layer.linear.out << " outputs, " << kept << " kept and "
                                    << summed << " summed");
  const AwkwardMatrix a = AwkwardMatrix(rows, layer.of_a * layer.dim).fill(1),
                      b = AwkwardMatrix(rows, layer.of_b * layer.dim).fill(2);
  AwkwardMatrix y(rows, kept * layer.dim + summed);
  layer.run(a.view(), b.view(), kept, y.view());
  const bool has_products = layer.of_b > 0;  // a factor on every field
  expect_within(reference::field_linear(layer.linear, layer.dim, has_products ? a.view() : b.view(),
                                        has_products ? b.view() : a.view(), kept, summed, false),
                y.view(), 2);
  y.expect_guards_untouched();
}

TEST(HostFieldLinear, MatchesTheFormulaForEveryShape) {
  for_each_target([] {
    for (const int64_t of_a : {1, 3, 13})
      for (const int64_t of_b : {0, 1, 9})
        for (const int64_t out : {1, 8, 17})
          for (const int64_t dim : {1, 3, 8})
            for (const int64_t rows : {0, 1, 5})
              check({of_a, of_b, dim, out, {ActivationKind::relu}, dim != 3}, rows, out, 0);
  });
}

TEST(HostFieldLinear, SumsTheColumnsOfTheLastFields) {
  for_each_target([] {
    for (const int64_t of_b : {0, 4})
      for (const int64_t dim : {1, 10, 16}) {
        const FieldLayer layer(5, of_b, dim, 12);
        check(layer, 3, 0, 12);
        check(layer, 3, 12, 12);
        check(layer, 3, 6, 6);
        check(layer, 3, 1, 2);
      }
  });
}

/// Those of xDeepFM are done some rows and some fields at a time.
TEST(HostFieldLinear, TakesMoreRowsAndFieldsThanItDoesAtOnce) {
  for_each_target([] {
    const FieldLayer products(100, 39, 10, 20, {ActivationKind::relu}), fields(1100, 0, 3, 20),
        wide(3, 600, 2, 9, {ActivationKind::sigmoid});
    ASSERT_LT(products.packed().rows_at_once(), 23);
    ASSERT_EQ(products.packed().parts().size(), 4);
    ASSERT_EQ(fields.packed().parts().size(), 2);
    ASSERT_EQ(wide.packed().parts().size(), 3);
    check(products, 23, 10, 10);
    check(products, 1, 20, 0);
    check(fields, 80, 20, 0);
    check(wide, 80, 3, 6);
    check({1100, 0, 3, 8, {ActivationKind::sigmoid}}, 80, 3, 5);  // computed as dot products
    check({100, 39, 10, 1, {ActivationKind::relu}}, 23, 0, 1);
  });
}

/// Small whole numbers are exact in BF16, too; a part has an odd number of products.
TEST(HostFieldLinear, TakesPartsInBf16) {
  for_each_target([] {
    const auto numbers = [](int64_t count, int64_t step) {
      std::vector<float> values(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i * step % 7 - 3);
      return values;
    };
    const std::vector<float> a = numbers(5 * 300, 3), b = numbers(5 * 117, 5), weight = numbers(12 * 100 * 39, 4),
                             bias = numbers(12, 2);
    std::vector<float> y[2] = {std::vector<float>(5 * 36), std::vector<float>(5 * 36)};
    for (const auto precision : {host_ops::Precision::fp32, host_ops::Precision::bf16}) {
      const host_ops::PackedFieldLinear packed(weight, bias, 100, 39, 3, 12, {}, precision);
      ASSERT_EQ(packed.parts()[1].weights.in() % 2, 1);
      Workspace workspace(packed.workspace_size());
      host_ops::field_linear(packed, 12, {a.data(), 5, 300}, {b.data(), 5, 117},
                             {y[precision == host_ops::Precision::bf16].data(), 5, 36}, workspace.view());
    }
    EXPECT_EQ(y[0], y[1]);
  });
}

TEST(HostFieldLinear, RefusesWeightsThatBf16CannotHoldByTheirPlace) {
  if (!host_ops::has_bf16_products()) GTEST_SKIP() << "this processor has no products of BF16";
  std::vector<float> weight(10 * 100 * 39);
  weight[5000] = INFINITY;
  EXPECT_THAT(
      [&] { host_ops::PackedFieldLinear(weight, {}, 100, 39, 3, 10, {}, host_ops::Precision::bf16); },
      ::testing::ThrowsMessage<std::exception>(::testing::HasSubstr("weight of a layer over fields, element 5000")));
}

TEST(HostFieldLinear, RefusesWeightsOfAnotherSize) {
  std::vector<float> weight(10 * 3899);
  EXPECT_THROW(host_ops::PackedFieldLinear(weight, {}, 100, 39, 3, 10), invalid_argument);
  EXPECT_THROW(host_ops::PackedFieldLinear({}, {}, 0, 0, 3, 10), invalid_argument);
}

TEST(HostFieldLinear, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const FieldLayer layer(100, 39, 10, 20);
    const AwkwardMatrix a = AwkwardMatrix(7, 1000).fill(1), b = AwkwardMatrix(7, 390, 0).fill(2);
    AwkwardMatrix together(7, 110);
    layer.run(a.view(), b.view(), 10, together.view());
    for (int64_t r = 0; r < 7; ++r) {
      AwkwardMatrix alone(1, 110);
      layer.run({a.view().row(r), 1, 1000}, {b.view().row(r), 1, 390}, 10, alone.view());
      expect_same_bits({together.view().row(r), 1, 110}, alone.view());
    }
  });
}

TEST(HostFieldLinear, KeepsNaNWithinItsColumn) {
  for_each_target([] {
    const FieldLayer layer(2, 3, 3, 4);
    const AwkwardMatrix b = AwkwardMatrix(2, 9).fill(2);
    AwkwardMatrix a = AwkwardMatrix(2, 6).fill(1), y(2, 12);
    a.at(1, 4) = NAN;  // column 1 of field 1
    layer.run(a.view(), b.view(), 4, y.view());
    for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(y.at(i / 12, i % 12)), i / 12 == 1 && i % 3 == 1) << i;
  });
}

}}  // namespace warprank
