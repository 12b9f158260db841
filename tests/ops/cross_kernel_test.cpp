// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/cross.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/linear_case.hpp"
#include "support/message_of.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

constexpr double u = 0x1p-24, half_u = 0x1p-11;
constexpr int64_t rows = 21, dim = 37, rank = 10;

double at(const std::vector<float>& values, int64_t i) { return values[static_cast<size_t>(i)]; }

/// Random inputs of a layer, as FP16 numbers, and on the device.
struct CrossCase {
  std::mt19937 engine{11};
  std::vector<float> x0 = rounded(random_values(engine, rows*dim)), x = rounded(random_values(engine, rows*dim));
  std::vector<float> w = rounded(random_values(engine, dim*dim)), b = random_values(engine, dim);
  std::vector<float> low_w = rounded(random_values(engine, dim*rank)), v = rounded(random_values(engine, rank*dim));
  CapacityMatrix<float16> device_x0{rows, dim, rows, true, x0}, device_x{rows, dim, rows, false, x};
  CapacityMatrix<float> y{rows, dim, rows, true};

  /// Holds y against x0 * (product + b) + x, whose product is exact within `error`.
  template <class Product>
  void expect_right(Product product_and_error, const std::vector<float>& x_of_layer) const {
    const std::vector<float> got = y.values();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < dim; ++o) {
        const auto [product, magnitude, error] = product_and_error(r, o);
        const double value = at(x0, r * dim + o) * (product + at(b, o)) + at(x_of_layer, r * dim + o);
        const double of_sum = error + 2 * u * (dim + 2) * (magnitude + std::fabs(at(b, o)));
        const double allowed = std::fabs(at(x0, r * dim + o)) * of_sum + 4 * u * (std::fabs(value) + 2);
        ASSERT_LE(std::fabs(at(got, r * dim + o) - value), allowed) << "row " << r << ", column " << o;
      }
  }
};

struct Product {
  double value = 0, magnitude = 0, error = 0;
  void add(double a, double b, double error_of_b = 0) {
    value += a * b;
    magnitude += std::fabs(a * b);
    error += std::fabs(a) * error_of_b;
  }
};

DeviceArray<unsigned char> packed(const std::vector<float>& weight, const std::vector<float>& bias, int64_t in,
                                  int64_t out) {
  const Buffer<unsigned char> bytes = pack_linear<float>(weight, bias, in, out);
  return DeviceArray<unsigned char>(std::vector<unsigned char>(bytes.data(), bytes.data() + bytes.size()));
}

TEST(CrossKernel, MatchesTheFormula) {
  for_each_target([](const Config& config) {
    CrossCase c;
    auto weights = packed(c.w, c.b, dim, dim);
    DeviceLaunch launch({cross_layer(weights.data(), c.device_x0.view(), c.device_x.view(), c.y.view())},
                        config.target);
    launch.run();
    c.expect_right(
        [&](int64_t r, int64_t o) {
          Product sum;
          for (int64_t k = 0; k < dim; ++k) sum.add(at(c.w, o * dim + k), at(c.x, r * dim + k));
          return sum;
        },
        c.x);
  });
}

TEST(CrossKernel, MatchesTheFormulaOfLowRank) {
  for_each_target([](const Config& config) {
    CrossCase c;
    auto v_weights = packed(c.v, {}, dim, rank), w_weights = packed(c.low_w, c.b, rank, dim);
    CapacityMatrix<float16> v(rows, rank, rows, true);
    const auto [down, up] = low_rank_cross_layers(v_weights.data(), w_weights.data(), c.device_x0.view(),
                                                  c.device_x.view(), v.view(), c.y.view());
    DeviceLaunch first({down}, config.target), second({up}, config.target);
    first.run();
    second.run();
    c.expect_right(
        [&](int64_t r, int64_t o) {
          Product sum;
          for (int64_t j = 0; j < rank; ++j) {
            Product inner;
            for (int64_t k = 0; k < dim; ++k) inner.add(at(c.v, j * dim + k), at(c.x, r * dim + k));
            const double error = 2 * u * (dim + 2) * inner.magnitude;
            sum.add(at(c.low_w, o * rank + j), inner.value,
                    error + half_u * (std::fabs(inner.value) + error) + 0x1p-25);
          }
          return sum;
        },
        c.x);
  });
}

TEST(CrossKernel, MatchesTheFormulaWhereTheUsersPartIsARowBias) {
  for_each_target([](const Config& config) {
    constexpr int64_t of_user = 15, of_item = dim - of_user;
    CrossCase c;
    // Users of 8, 0 and 13 items; their columns are the same in all of their rows.
    const std::vector<int64_t> offsets{0, 8, 8, 21};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < of_user; ++k)
        c.x0[static_cast<size_t>(r * dim + k)] = c.x0[static_cast<size_t>((r < 8 ? 0 : 8) * dim + k)];
    CapacityMatrix<float16> x0(rows, dim, rows, false, c.x0);
    std::vector<float> item_weight, user_product(3 * dim);
    for (int64_t o = 0; o < dim; ++o) {
      for (int64_t k = of_user; k < dim; ++k) item_weight.push_back(c.w[static_cast<size_t>(o * dim + k)]);
      for (int64_t s = 0; s < 3; ++s) {
        Product sum;
        for (int64_t k = 0; k < of_user; ++k) sum.add(at(c.w, o * dim + k), at(c.x0, (s == 0 ? 0 : 8) * dim + k));
        user_product[static_cast<size_t>(s * dim + o)] = static_cast<float>(sum.value);
      }
    }
    auto weights = packed(item_weight, c.b, of_item, dim);
    CapacityMatrix<float> row_bias(3, dim, 3, true, user_product);
    DeviceArray<int64_t> device_offsets(offsets);
    LinearLayer layer =
        cross_layer(weights.data(), x0.view(), Matrix<const float16>(x0.view()).columns(of_user, of_item), c.y.view());
    layer.row_bias = {Matrix<const float>(row_bias.view()), device_offsets.data()};
    DeviceLaunch launch({layer}, config.target);
    launch.run();
    c.expect_right(
        [&](int64_t r, int64_t o) {
          Product sum;
          for (int64_t k = 0; k < dim; ++k) sum.add(at(c.w, o * dim + k), at(c.x0, r * dim + k));
          return sum;
        },
        c.x0);
  });
}

TEST(CrossLayer, RefusesAnXThatIsWiderThanX0) {
  const Matrix<const float16> x0(nullptr, 0, 32), wider(nullptr, 0, 33);
  EXPECT_EQ(test_support::message_of([&] { cross_layer(nullptr, x0, wider, FloatMatrix<void>()); }),
            "x of a cross layer: expected at most x0's 32 columns, got 33");
}

}  // namespace
