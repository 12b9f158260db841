// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/host/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "guarded.hpp"
#include "reference/activation.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using test_support::infinity;
using test_support::u;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const std::vector<Activation> all{identity, relu, leaky_relu(0.2f),   elu(1.5f), prelu,    dice,
                                  sigmoid,  gelu, hyperbolic_tangent, silu,      gelu_tanh};

/// With the same learned values in each of `width` channels.
struct Learned {
  explicit Learned(int64_t width, float alpha = -0.3f, float scale = 1.7f, float shift = 0.4f)
      : alpha(static_cast<size_t>(width), alpha),
        scale(static_cast<size_t>(width), scale),
        shift(static_cast<size_t>(width), shift) {}
  host_ops::ChannelActivation with(Activation spec) const { return {spec, alpha, scale, shift}; }
  std::vector<float> alpha, scale, shift;
};

std::vector<float> activate(const host_ops::ChannelActivation& activation, const std::vector<float>& x) {
  const int64_t size = static_cast<int64_t>(x.size());
  std::vector<float> y(x.size());
  host_ops::activate(activation, {x.data(), 1, size}, {y.data(), 1, size});
  return y;
}

/// Every 4,099th float, from the smallest to the largest of both signs.
std::vector<float> sample_of_all_floats() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    const uint32_t pattern = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &pattern, sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

TEST(Activation, IsWithinItsStatedErrorForFloatsOfEverySize) {
  const std::vector<float> x = sample_of_all_floats();
  const Learned learned(static_cast<int64_t>(x.size()));
  for (const Activation& spec : all) {
    SCOPED_TRACE(name_of_enum(spec.kind));
    std::vector<reference::Activated> expected;
    for (const float value : x) expected.push_back(reference::activation(spec, value, -0.3f, 1.7f, 0.4f));
    test_support::for_each_target([&] {
      const std::vector<float> y = activate(learned.with(spec), x);
      for (size_t i = 0; i < x.size(); ++i) {
        const double limit = u * expected[i].error + std::ldexp(1.0, -118);
        const double error = std::abs(y[i] - expected[i].value);
        ASSERT_LE(error, limit) << "x = " << x[i] << ", y = " << y[i] << ", exact " << expected[i].value;
      }
    });
  }
}

TEST(Activation, TakesTheLimitAtInfinity) {
  const Learned learned(2, 0.25f);
  const auto limits = [&](Activation spec) { return activate(learned.with(spec), {-infinity, infinity}); };
  using Limits = std::vector<float>;
  test_support::for_each_target([&] {
    EXPECT_EQ(limits(identity), (Limits{-infinity, infinity}));
    EXPECT_EQ(limits(relu), (Limits{0, infinity}));
    EXPECT_EQ(limits(leaky_relu(0.2f)), (Limits{-infinity, infinity}));
    EXPECT_EQ(limits(elu(1.5f)), (Limits{-1.5f, infinity}));
    EXPECT_EQ(limits(prelu), (Limits{-infinity, infinity}));
    EXPECT_EQ(limits(dice), (Limits{-infinity, infinity}));
    EXPECT_EQ(limits(sigmoid), (Limits{0, 1}));
    EXPECT_EQ(limits(hyperbolic_tangent), (Limits{-1, 1}));
    EXPECT_EQ(limits(gelu), (Limits{0, infinity}));
    EXPECT_EQ(limits(gelu_tanh), (Limits{0, infinity}));
    EXPECT_EQ(limits(silu), (Limits{0, infinity}));
  });
}

TEST(Activation, KeepsNaN) {
  const Learned learned(1);
  test_support::for_each_target([&] {
    for (const Activation& spec : all)
      EXPECT_TRUE(std::isnan(activate(learned.with(spec), {nan})[0])) << name_of_enum(spec.kind);
  });
}

TEST(Activation, SaturatesWithoutNaN) {
  test_support::for_each_target([&] {
    EXPECT_EQ(activate({sigmoid, {}, {}, {}}, {-200, 200, 0}), (std::vector<float>{0, 1, 0.5f}));
    EXPECT_EQ(activate({hyperbolic_tangent, {}, {}, {}}, {-200, 200, 0}), (std::vector<float>{-1, 1, 0}));
  });
}

TEST(Activation, UsesTheLearnedValuesOfEachChannelAndTouchesOnlyItsRows) {
  for (const int64_t width : {1, 2, 7, 16, 33})
    for (const Activation& spec : {prelu, dice}) {
      SCOPED_TRACE(width);
      std::vector<float> alpha, scale, shift, values;
      for (int64_t c = 0; c < width; ++c) {
        alpha.push_back(0.1f * static_cast<float>(c));
        scale.push_back(1 + 0.2f * static_cast<float>(c));
        shift.push_back(0.3f - 0.1f * static_cast<float>(c));
      }
      for (int64_t i = 0; i < 3 * width; ++i) values.push_back(std::sin(static_cast<float>(i)) * 3);
      // Behind the last channel lies an inaccessible page.
      const test::GuardedMatrix alphas(1, width, alpha), scales(1, width, scale), shifts(1, width, shift);
      const auto vector = [&](const test::GuardedMatrix& m) { return Span<const float>(m.view().data, width); };
      const host_ops::ChannelActivation activation{spec, vector(alphas), vector(scales), vector(shifts)};
      test_support::for_each_target([&] {
        const test::GuardedMatrix x(3, width, values), y(3, width);
        host_ops::activate(activation, x.view(), y.view());
        host_ops::activate(activation, x.view(), x.view());
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t c = 0; c < width; ++c) {
            const size_t i = static_cast<size_t>(c);
            const auto expected =
                reference::activation(spec, values[static_cast<size_t>(r * width + c)], alpha[i], scale[i], shift[i]);
            EXPECT_NEAR(y.at(r, c), expected.value, u * expected.error);
            EXPECT_EQ(x.at(r, c), y.at(r, c)) << "in place";
          }
        EXPECT_TRUE(y.gap_intact());
        EXPECT_TRUE(x.gap_intact());
      });
    }
}

TEST(Activation, AcceptsNoRowsAndNoColumns) {
  test_support::for_each_target([] {
    host_ops::activate({sigmoid, {}, {}, {}}, {nullptr, 0, 5}, {nullptr, 0, 5});
    const test::GuardedMatrix x(2, 0), y(2, 0);
    host_ops::activate({sigmoid, {}, {}, {}}, x.view(), y.view());
    EXPECT_TRUE(y.gap_intact());
  });
}

}}  // namespace warprank
