// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/host/linear.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "guarded.hpp"
#include "reference/linear.hpp"
#include "support/host_op_testing.hpp"
#include "support/message_of.hpp"

namespace warprank { namespace {

using host_ops::Precision;
using host_ops::WeightStorage;
using test::GuardedMatrix;
using test_support::infinity;
using test_support::u;

using Sizes = std::vector<int64_t>;

/// What a case has beside its shape.
struct Extras {
  Activation activation = {};
  bool bias = true;
  Sizes segment_sizes;  ///< of the row bias; empty for none; their sum is the number of rows
  bool multiply = false;
  bool residual = false;
  bool residual_first = false;
  float scale = 1;  ///< of x
  Precision precision = Precision::fp32;
  WeightStorage storage = WeightStorage::as_multiplied;
};

std::vector<float> random_values(std::mt19937& engine, int64_t size, float scale = 1) {
  std::uniform_real_distribution<float> distribution(-scale, scale);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = distribution(engine);
  return values;
}

/// One random layer and its inputs, for the oracle and for the op; the op's lie between guards.
struct Case {
  Case(int64_t rows, int64_t in, int64_t out, int64_t groups, const Extras& extras)
      : rows(rows), width(groups * out), precision(extras.precision), storage(extras.storage) {
    std::mt19937 engine(static_cast<uint32_t>(rows * 1000003 + in * 1009 + out * 31 + groups));
    layer.in = in, layer.out = out, layer.groups = groups;
    layer.activation = extras.activation;
    layer.weight = random_values(engine, groups * out * in);
    if (extras.bias) layer.bias = random_values(engine, width);
    const bool is_dice = extras.activation.kind == ActivationKind::dice;
    if (is_dice || extras.activation.kind == ActivationKind::prelu) layer.alpha = random_values(engine, width);
    if (is_dice) layer.scale = random_values(engine, width), layer.shift = random_values(engine, width);
    inputs.x = random_values(engine, rows * groups * in, extras.scale);
    if (!extras.segment_sizes.empty()) {
      inputs.row_bias_offsets.push_back(0);
      for (const int64_t size : extras.segment_sizes)
        inputs.row_bias_offsets.push_back(inputs.row_bias_offsets.back() + size);
      inputs.row_bias = random_values(engine, num_segments() * width);
    }
    if (extras.multiply) inputs.multiply = random_values(engine, rows * width);
    if (extras.residual) inputs.residual = random_values(engine, rows * width);
    inputs.residual_first = extras.residual_first;
  }

  int64_t num_segments() const {
    return std::max<int64_t>(1, static_cast<int64_t>(inputs.row_bias_offsets.size())) - 1;
  }

  host_ops::PackedLinear pack() const {
    return {layer.weight, layer.bias,   layer.in,
            layer.out,    layer.groups, {layer.activation, layer.alpha, layer.scale, layer.shift},
            precision,    storage};
  }

  /// y, and whether nothing around it was written.
  std::vector<float> run() const {
    const GuardedMatrix x(rows, layer.groups * layer.in, inputs.x), row_bias(num_segments(), width, inputs.row_bias);
    const GuardedMatrix multiply(rows, width, inputs.multiply), residual(rows, width, inputs.residual), y(rows, width);
    host_ops::LinearInputs given;
    if (!inputs.row_bias_offsets.empty()) {
      given.row_bias = row_bias.view();
      given.row_bias_segments = {inputs.row_bias_offsets.data(), num_segments()};
    }
    if (!inputs.multiply.empty()) given.multiply = multiply.view();
    if (!inputs.residual.empty()) given.residual = residual.view();
    given.residual_first = inputs.residual_first;
    const host_ops::PackedLinear packed = pack();
    const int64_t workspace_size = packed.workspace_size(rows);
    const GuardedMatrix workspace(1, workspace_size);
    host_ops::linear(packed, x.view(), y.view(), given, {workspace.view().data, workspace_size});
    EXPECT_TRUE(y.gap_intact());
    return y.values();
  }

  /// In BF16 the exact result is that of values rounded before, and within the bound of FP32 of it: a chain takes two
  /// products at a time, which adds no rounding; what counts as 0 in it is below `underflow`.
  void check() const {
    const reference::Bounded in_fp32 = reference::linear(layer, rows, inputs);
    const reference::Bounded in_bf16 =
        precision == Precision::fp32 ? in_fp32 : reference::linear(rounded().layer, rows, rounded().inputs, 0, true);
    test_support::for_each_target([&] {
      const bool is_bf16 = pack().precision() == Precision::bf16;
      const reference::Bounded& expected = is_bf16 ? in_bf16 : in_fp32;
      const double underflow = is_bf16 ? 0x1p-126 * 2 * static_cast<double>(layer.in) : 0;
      const std::vector<float> y = run();
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_LE(std::abs(y[i] - expected.value[i]), u * expected.bound[i] + underflow)
            << "row " << static_cast<int64_t>(i) / width << ", output " << static_cast<int64_t>(i) % width << " of "
            << rows << " x " << layer.in << " -> " << layer.groups << " x " << layer.out << ": " << y[i] << ", exact "
            << expected.value[i];
    });
  }

  /// With x and the weights rounded to BF16.
  Case rounded() const {
    Case c = *this;
    for (std::vector<float>* values : {&c.layer.weight, &c.inputs.x})
      for (float& value : *values) {
        const float nearest = to_float(to_bfloat16(value));
        value = std::abs(nearest) < std::numeric_limits<float>::min() ? 0 : nearest;
      }
    return c;
  }

  int64_t rows, width;
  Precision precision;
  WeightStorage storage;
  reference::Linear layer;
  reference::LinearInputs inputs;
};

TEST(Linear, MatchesTheOracleForEveryShape) {
  for (const int64_t out : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 80, 130})
    for (const int64_t in : {1, 3, 16, 33, 100})
      for (const int64_t rows : {0, 1, 2, 3, 5, 6, 7, 13, 23}) Case(rows, in, out, 1, {}).check();
}

TEST(Linear, MatchesTheOracleWhereDepthAndRowsAreCutIntoParts) {
  for (const Activation& activation : {relu, silu})
    for (const int64_t out : {64, 70}) {
      Extras extras;
      extras.activation = activation;
      extras.segment_sizes = Sizes{60, 0, 80};
      Case(140, 2100, out, 1, extras).check();
      extras.multiply = true;
      Case(140, 1025, out, 1, extras).check();
    }
}

TEST(Linear, AppliesEveryActivationWithEachInput) {
  for (const Activation& activation :
       {identity, relu, leaky_relu(0.2f), elu(1.5f), prelu, dice, sigmoid, hyperbolic_tangent, gelu, gelu_tanh, silu})
    for (const int64_t out : {1, 3, 9, 64, 70})
      for (int inputs = 0; inputs < 12; ++inputs) {
        SCOPED_TRACE(name_of_enum(activation.kind));
        Extras extras;
        extras.activation = activation;
        if (inputs & 1) extras.segment_sizes = Sizes{4, 5};
        extras.multiply = inputs & 2;
        extras.residual = inputs >= 4;
        extras.residual_first = inputs >= 8;
        Case(9, 20, out, 1, extras).check();
      }
}

TEST(Linear, StaysWithinItsBoundAtEveryScale) {
  for (const float scale : {1e-20f, 1e-3f, 1e3f, 1e20f}) {
    Extras extras;
    extras.scale = scale;
    for (const bool bias : {false, true}) {
      extras.bias = bias;
      for (const int64_t out : {1, 4, 100}) Case(10, 257, out, 1, extras).check();
    }
  }
}

TEST(Linear, AddsTheRowBiasOfEachSegmentHoweverRagged) {
  for (const Sizes& sizes : {Sizes{0}, Sizes{1}, Sizes{0, 0, 1, 0}, Sizes{17}, Sizes{1, 1, 1, 1, 1, 1, 1, 1},
                             Sizes{5, 0, 1, 12, 0, 0, 3}, Sizes{0, 40, 0}, Sizes(50, 2), Sizes{6, 6, 6}})
    for (const int64_t out : {1, 4, 20, 64, 100}) {
      Extras extras;
      extras.segment_sizes = sizes;
      extras.activation = relu;
      Case(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 12, out, 1, extras).check();
    }
}

TEST(Linear, KeepsGroupsApart) {
  for (const int64_t groups : {2, 3, 5})
    for (const int64_t out : {1, 4, 7, 64, 66}) {
      Extras extras;
      extras.activation = dice;
      extras.segment_sizes = Sizes{3, 0, 5};
      extras.multiply = extras.residual = true;
      Case(8, 10, out, groups, extras).check();
    }
}

TEST(Linear, RunsOneGroupOnSomeRowsWithTheSameBitsAsAllGroupsOnAllRows) {
  Extras extras;
  extras.activation = silu;
  extras.residual = true;
  for (const int64_t out : {3, 40}) {
    const Case c(20, 9, out, 3, extras);
    test_support::for_each_target([&] {
      const std::vector<float> all = c.run();
      const host_ops::PackedLinear packed = c.pack();
      constexpr int64_t group = 2, first = 5, rows = 8;
      const Matrix<const float> x(c.inputs.x.data(), 20, 27), residual(c.inputs.residual.data(), 20, 3 * out);
      const GuardedMatrix y(rows, out);
      host_ops::LinearInputs inputs;
      inputs.residual = residual.columns(group * out, out).row_range(first, rows);
      host_ops::linear(packed, group, x.columns(group * 9, 9).row_range(first, rows), y.view(), inputs);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t o = 0; o < out; ++o)
          ASSERT_EQ(y.at(r, o), all[static_cast<size_t>((first + r) * 3 * out + group * out + o)]);
      EXPECT_TRUE(y.gap_intact());
    });
  }
}

TEST(Linear, GivesARowTheSameBitsWhateverItsPositionAndNeighbours) {
  for (const int64_t in : {150, 1100})
    for (const int64_t out : {1, 4, 7, 16, 100, 192}) {
      Extras extras;
      extras.activation = out % 2 ? gelu : relu;
      extras.segment_sizes = Sizes{10, 1, 26};
      extras.multiply = out % 8;
      const Case c(37, in, out, 1, extras);
      test_support::for_each_target([&] {
        const std::vector<float> together = c.run();
        const host_ops::PackedLinear packed = c.pack();
        const Matrix<const float> x(c.inputs.x.data(), 37, in);
        const Matrix<const float> multiply(extras.multiply ? c.inputs.multiply.data() : nullptr, 37, out);
        const Matrix<const float> row_bias(c.inputs.row_bias.data(), 3, out);
        // Each row at the head of batches of one and of five, with other neighbours.
        for (int64_t r = 0; r < 37; ++r)
          for (const int64_t rows : {1, 5}) {
            if (r + rows > 37) continue;
            const int64_t segment = r < 10 ? 0 : r < 11 ? 1 : 2;
            const int64_t offsets[] = {0, rows};
            std::vector<float> alone(static_cast<size_t>(rows * out));
            host_ops::LinearInputs inputs;
            inputs.row_bias = row_bias.row_range(segment, 1);
            inputs.row_bias_segments = {offsets, 1};
            if (extras.multiply) inputs.multiply = multiply.row_range(r, rows);
            host_ops::linear(packed, x.row_range(r, rows), {alone.data(), rows, out}, inputs);
            for (int64_t o = 0; o < out; ++o)
              ASSERT_EQ(alone[static_cast<size_t>(o)], together[static_cast<size_t>(r * out + o)]) << "row " << r;
          }
      });
    }
}

TEST(Linear, MayWriteOverWhatItMultipliesOrAdds) {
  for (const int64_t out : {2, 50, 64}) {
    Extras extras;
    extras.multiply = extras.residual = true;
    const Case c(11, 30, out, 1, extras);
    test_support::for_each_target([&] {
      const std::vector<float> expected = c.run();
      const host_ops::PackedLinear packed = c.pack();
      for (const bool over_residual : {false, true}) {
        std::vector<float> multiply = c.inputs.multiply, residual = c.inputs.residual;
        std::vector<float>& y = over_residual ? residual : multiply;
        host_ops::LinearInputs inputs;
        inputs.multiply = {multiply.data(), 11, out};
        inputs.residual = {residual.data(), 11, out};
        host_ops::linear(packed, {c.inputs.x.data(), 11, 30}, {y.data(), 11, out}, inputs);
        EXPECT_EQ(y, expected);
      }
    });
  }
}

TEST(Linear, KeepsNaNAndInfinityToTheirRow) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t out : {1, 4, 20, 64})
    for (const Activation& activation : {identity, relu, sigmoid}) {
      Extras extras;
      extras.activation = activation;
      Case c(9, 40, out, 1, extras);
      for (float& weight : c.layer.weight) weight = std::abs(weight) + 0.1f;
      test_support::for_each_target([&] {
        const Case& clean = c;
        const std::vector<float> before = clean.run();
        Case dirty = c;
        dirty.inputs.x[2 * 40 + 39] = nan;
        dirty.inputs.x[5 * 40 + 7] = infinity;
        const std::vector<float> after = dirty.run();
        for (int64_t r = 0; r < 9; ++r)
          for (int64_t o = 0; o < out; ++o) {
            const size_t i = static_cast<size_t>(r * out + o);
            if (r == 2)
              EXPECT_TRUE(std::isnan(after[i]));
            else if (r == 5)
              EXPECT_EQ(after[i], activation.kind == ActivationKind::sigmoid ? 1 : infinity);
            else
              EXPECT_EQ(after[i], before[i]);
          }
      });
    }
}

Extras in_bf16() {
  Extras extras;
  extras.precision = Precision::bf16;
  return extras;
}

TEST(LinearInBf16, MatchesTheOracleForEveryShape) {
  for (const int64_t out : {1, 8, 9, 15, 16, 17, 31, 63, 64, 65, 80, 130})
    for (const int64_t in : {1, 2, 3, 16, 31, 32, 33, 65, 100})
      for (const int64_t rows : {0, 1, 2, 3, 5, 6, 7, 13, 23}) Case(rows, in, out, 1, in_bf16()).check();
}

TEST(LinearInBf16, MatchesTheOracleWhereDepthAndRowsAreCutIntoParts) {
  for (const int64_t in : {1025, 2049, 4100}) {
    Extras extras = in_bf16();
    extras.activation = silu;
    extras.segment_sizes = Sizes{60, 0, 80};
    Case(140, in, 70, 1, extras).check();
    extras.multiply = true;
    Case(140, in, 64, 1, extras).check();
  }
}

TEST(LinearInBf16, AppliesEveryActivationWithEachInput) {
  for (const Activation& activation :
       {identity, relu, leaky_relu(0.2f), elu(1.5f), prelu, dice, sigmoid, hyperbolic_tangent, gelu, gelu_tanh, silu})
    for (int inputs = 0; inputs < 12; ++inputs) {
      SCOPED_TRACE(name_of_enum(activation.kind));
      Extras extras = in_bf16();
      extras.activation = activation;
      if (inputs & 1) extras.segment_sizes = Sizes{4, 5};
      extras.multiply = inputs & 2;
      extras.residual = inputs >= 4;
      extras.residual_first = inputs >= 8;
      for (const int64_t out : {9, 70}) Case(9, 21, out, 3, extras).check();
    }
}

TEST(LinearInBf16, StaysWithinItsBoundAtEveryScale) {
  for (const float scale : {1e-38f, 1e-37f, 1e-20f, 1e-3f, 1e3f, 1e20f, 1e35f}) {
    Extras extras = in_bf16();
    extras.scale = scale;
    for (const bool bias : {false, true}) {
      extras.bias = bias;
      Case(10, 257, 100, 1, extras).check();
    }
  }
}

/// As the header states it, of the layer as it is given.
TEST(LinearInBf16, IsOffByNoMoreThanTheRoundingOfBothValues) {
  Case c(40, 300, 64, 1, in_bf16());
  const reference::Bounded expected = reference::linear(c.layer, c.rows, c.inputs, reference::bf16_product_error, true);
  test_support::for_each_target([&] {
    const std::vector<float> y = c.run();
    double largest = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_LE(std::abs(y[i] - expected.value[i]), u * expected.bound[i]);
      largest = std::max(largest, std::abs(y[i] - expected.value[i]));
    }
    EXPECT_EQ(largest > 1e-3, c.pack().precision() == Precision::bf16) << "were they rounded?";
  });
}

TEST(LinearInBf16, GivesARowTheSameBitsWhateverItsPositionAndNeighbours) {
  for (const int64_t in : {151, 2100}) {
    const Case c(37, in, 100, 1, in_bf16());
    test_support::for_each_target([&] {
      const std::vector<float> together = c.run();
      const host_ops::PackedLinear packed = c.pack();
      std::vector<float> workspace(static_cast<size_t>(packed.workspace_size(5)));
      const Matrix<const float> x(c.inputs.x.data(), 37, in);
      for (int64_t r = 0; r + 5 <= 37; ++r)
        for (const int64_t rows : {1, 5}) {
          std::vector<float> alone(static_cast<size_t>(rows * 100));
          host_ops::linear(packed, x.row_range(r, rows), {alone.data(), rows, 100}, {}, workspace);
          for (size_t o = 0; o < 100; ++o)
            ASSERT_EQ(alone[o], together[static_cast<size_t>(r) * 100 + o]) << "row " << r << " of " << rows;
        }
    });
  }
}

/// Of every number of BF16, by a layer that multiplies it by 1.
TEST(LinearInBf16, HasSigmoidsWithinTheirBound) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t pattern = bits << 16;
    float value;
    std::memcpy(&value, &pattern, sizeof value);
    if (std::isnan(value) || value == 0 || std::abs(value) >= std::numeric_limits<float>::min()) x.push_back(value);
  }
  const auto rows = static_cast<int64_t>(x.size());
  const std::vector<float> weight(9, 1.0f), alpha(9, -0.3f), scale(9, 1.7f), shift(9, 0.4f);
  for (const Activation& spec : {sigmoid, silu, dice}) {
    SCOPED_TRACE(name_of_enum(spec.kind));
    test_support::for_each_target([&] {
      const bool is_dice = spec.kind == ActivationKind::dice;
      const auto learned = [&](const std::vector<float>& values) { return is_dice ? values : std::vector<float>(); };
      const std::vector<float> alphas = learned(alpha), scales = learned(scale), shifts = learned(shift);
      const host_ops::PackedLinear packed(weight, {}, 1, 9, 1, {spec, alphas, scales, shifts}, Precision::bf16);
      std::vector<float> y(x.size() * 9), workspace(static_cast<size_t>(packed.workspace_size(rows)));
      host_ops::linear(packed, {x.data(), rows, 1}, {y.data(), rows, 9}, {}, workspace);
      for (size_t i = 0; i < x.size(); ++i) {
        const reference::Activated f = reference::activation(spec, x[i], -0.3f, 1.7f, 0.4f);
        if (!std::isfinite(f.value)) {
          ASSERT_TRUE(std::isnan(f.value) ? std::isnan(y[9 * i]) : y[9 * i] == f.value) << x[i];
          continue;
        }
        // Dice rounds what it takes the sigmoid of.
        const double of_argument = is_dice ? f.error / 8 * std::abs(1.7 * x[i]) : 0;
        const double limit = u * (reference::in_bf16_layer(spec, f).error + of_argument) + 0x1p-118;
        ASSERT_LE(std::abs(y[9 * i] - f.value), limit) << x[i];
      }
    });
  }
}

TEST(LinearInBf16, KeepsLayersOfFewOutputsInFp32) {
  for (const int64_t out : {1, 5, 8}) {
    const Case in_fp32(7, 40, out, 1, {}), c(7, 40, out, 1, in_bf16());
    EXPECT_EQ(c.pack().precision(), Precision::fp32);
    EXPECT_EQ(c.run(), in_fp32.run());
  }
}

TEST(LinearInBf16, KeepsNaNAndInfinityToTheirRow) {
  Case c(9, 41, 20, 1, in_bf16());
  for (float& weight : c.layer.weight) weight = std::abs(weight) + 0.1f;
  test_support::for_each_target([&] {
    const std::vector<float> before = c.run();
    Case dirty = c;
    dirty.inputs.x[2 * 41 + 40] = std::numeric_limits<float>::quiet_NaN();
    dirty.inputs.x[5 * 41 + 7] = infinity;
    dirty.inputs.x[6 * 41 + 7] = std::numeric_limits<float>::max();  // above the largest of BF16
    const std::vector<float> after = dirty.run();
    for (size_t i = 0; i < after.size(); ++i) {
      if (i / 20 == 2)
        EXPECT_TRUE(std::isnan(after[i]));
      else if (i / 20 == 5)
        EXPECT_EQ(after[i], infinity);
      else if (i / 20 == 6)
        EXPECT_GT(after[i], 3e37f);
      else
        EXPECT_EQ(after[i], before[i]);
    }
  });
}

TEST(LinearInBf16, TakesHalfTheBytes) {
  test_support::for_each_target([] {
    const Case in_fp32(1, 512, 512, 1, {}), c(1, 512, 512, 1, in_bf16());
    const host_ops::PackedLinear packed = c.pack();
    EXPECT_EQ(packed.precision() == Precision::bf16, packed.target().has_bf16);
    const int64_t behind = host_ops::has_amx_products() ? 15 * packed.target().panel_width * 4 : 0;
    EXPECT_EQ(in_fp32.pack().bytes() - packed.bytes(), packed.target().has_bf16 ? 512 * 512 * 2 - behind : 0);
    EXPECT_EQ(in_fp32.pack().workspace_size(100), 0);
  });
}

TEST(LinearInBf16, RefusesWeightsThatBf16CannotHold) {
  if (!host_ops::has_bf16_products()) GTEST_SKIP() << "this processor has no products of BF16";
  for (const float weight : {infinity, -infinity, std::nanf(""), 3.4e38f, -3.4e38f}) {
    Case c(1, 12, 9, 1, in_bf16());
    c.layer.weight[17] = weight;
    EXPECT_THAT(test_support::message_of([&] { c.pack(); }),
                ::testing::StartsWith("weight of a linear layer, element 17: expected a number whose magnitude is at "
                                      "most 3.3895e+38, the largest of BF16, got "));
    c.layer.weight[17] = std::copysign(max_bfloat16, weight);
    EXPECT_EQ(test_support::message_of([&] { c.pack(); }), "");
  }
}

TEST(Linear, ReportsEveryWrongSizeTogether) {
  const std::vector<float> weight(12), three(3), two(2);
  try {
    host_ops::PackedLinear(weight, three, 5, 2, 1, {dice, three, two, {}});
    FAIL() << "must throw";
  } catch (const invalid_argument& e) {
    ASSERT_EQ(e.problems().size(), 4u) << e.what();
    EXPECT_EQ(e.problems()[0].to_string(), "weight of a linear layer: expected 10 values, got 12");
    EXPECT_EQ(e.problems()[3].to_string(), "shift of a linear layer's activation: expected 2 values, got 0");
  }
  EXPECT_THROW(host_ops::PackedLinear({}, {}, 0, 2), invalid_argument);
  EXPECT_THROW(host_ops::PackedLinear(weight, {}, 6, 2, 1, {relu, two, {}, {}}), invalid_argument);
}

TEST(Linear, NamesItsKernels) {
  test_support::for_each_target([] {
    const host_ops::LinearTarget target = host_ops::linear_target();
    EXPECT_EQ(target.to_string().rfind(target.name, 0), 0u);
    EXPECT_EQ(target.panel_width, 4 * target.lanes);
  });
}

TEST(Linear, KeepsToTheKernelsItWasPackedFor) {
  const Case c(5, 30, 40, 1, {});
  const reference::Bounded expected = reference::linear(c.layer, 5, c.inputs);
  std::vector<host_ops::PackedLinear> packed;
  test_support::for_each_target([&] { packed.push_back(c.pack()); });
  for (const host_ops::PackedLinear& layer : packed) {
    std::vector<float> y(5 * 40);
    host_ops::linear(layer, {c.inputs.x.data(), 5, 30}, {y.data(), 5, 40});
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected.value[i], u * expected.bound[i]);
  }
}

/// A layer whose weights are kept in INT8, and the same layer with weights that were rounded before.
struct InInt8 {
  InInt8(int64_t rows, int64_t in, int64_t out, int64_t groups, Extras extras)
      : plain(rows, in, out, groups, extras), kept(plain), rounded(plain) {
    kept.storage = WeightStorage::int8;
    for (size_t o = 0; o < static_cast<size_t>(groups * out); ++o) {
      float* const weight = rounded.layer.weight.data() + o * static_cast<size_t>(in);
      float largest = 0;
      for (int64_t k = 0; k < in; ++k) largest = std::max(largest, std::abs(weight[k]));
      const float scale = largest / 127;
      for (int64_t k = 0; k < in; ++k) {
        const float nearest = std::rint(weight[k] / scale) * scale;
        EXPECT_LE(std::abs(nearest - weight[k]), (0.5f + 0x1p-16f) * scale);
        weight[k] = nearest;
      }
    }
  }
  void check() const {
    test_support::for_each_target([&] {
      EXPECT_EQ(kept.pack().storage(), WeightStorage::int8);
      ASSERT_EQ(kept.run(), rounded.run())
          << plain.rows << " x " << plain.layer.in << " -> " << plain.layer.groups << " x " << plain.layer.out;
    });
  }

  Case plain, kept, rounded;
};

TEST(LinearWithInt8Weights, HasTheBitsOfRoundedWeightsForEveryShape) {
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const int64_t groups : {1, 3})
      for (const int64_t out : {9, 15, 16, 17, 63, 64, 65, 80, 130})
        for (const int64_t in : {1, 2, 3, 31, 32, 33, 100})
          for (const int64_t rows : {0, 1, 3, 7, 23}) {
            Extras extras;
            extras.precision = precision;
            InInt8(rows, in, out, groups, extras).check();
          }
}

TEST(LinearWithInt8Weights, HasTheBitsOfRoundedWeightsWhereDepthAndRowsAreCutIntoParts) {
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const int64_t in : {1025, 4100})
      for (const int64_t rows : {5, 140}) {
        Extras extras;
        extras.precision = precision;
        extras.activation = silu;
        extras.segment_sizes = Sizes{rows - 3, 0, 3};
        extras.multiply = rows == 5;
        InInt8(rows, in, 70, 1, extras).check();
      }
}

TEST(LinearWithInt8Weights, GivesARowTheSameBitsWhateverItsNeighbours) {
  Extras extras;
  extras.storage = WeightStorage::int8;
  const Case c(140, 1500, 70, 1, extras);
  test_support::for_each_target([&] {
    const std::vector<float> together = c.run();
    const host_ops::PackedLinear packed = c.pack();
    std::vector<float> workspace(static_cast<size_t>(packed.workspace_size(1))), alone(70);
    for (const int64_t r : {0, 1, 77, 139}) {
      host_ops::linear(packed, {c.inputs.x.data() + r * 1500, 1, 1500}, {alone.data(), 1, 70}, {}, workspace);
      for (size_t o = 0; o < 70; ++o) ASSERT_EQ(alone[o], together[static_cast<size_t>(r) * 70 + o]) << "row " << r;
    }
  });
}

TEST(LinearWithInt8Weights, IsOffByHalfAScaleOfEachWeight) {
  Extras extras;
  extras.storage = WeightStorage::int8;
  const Case c(20, 300, 64, 1, extras);
  const reference::Bounded exact = reference::linear(c.layer, c.rows, c.inputs);
  const std::vector<float> y = c.run();
  double largest = 0;
  for (size_t r = 0; r < 20; ++r)
    for (size_t o = 0; o < 64; ++o) {
      double scale = 0, size = 0;
      for (size_t k = 0; k < 300; ++k) {
        scale = std::max(scale, std::abs(double{c.layer.weight[o * 300 + k]}) / 127);
        size += std::abs(c.inputs.x[r * 300 + k]);
      }
      const size_t i = r * 64 + o;
      const double error = std::abs(y[i] - exact.value[i]);
      ASSERT_LE(error, (0.5 + 0x1p-16) * scale * size + 2 * u * exact.bound[i]);
      largest = std::max(largest, error);
    }
  EXPECT_GT(largest, 0.01) << "were they rounded?";
}

TEST(LinearWithInt8Weights, TakesAQuarterOfTheBytes) {
  test_support::for_each_target([] {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Extras extras;
      extras.precision = precision;
      const InInt8 layers(1, 512, 512, 1, extras);
      const bool is_bf16 = layers.plain.pack().precision() == Precision::bf16;
      const int64_t of_weight = is_bf16 ? 2 : 4, width = layers.plain.pack().target().panel_width;
      const int64_t behind = is_bf16 && host_ops::has_amx_products() ? 15 * width * 4 : 0;
      EXPECT_EQ(layers.plain.pack().bytes() - layers.kept.pack().bytes(),
                512 * 512 * (of_weight - 1) - 512 * 4 + behind);
    }
  });
}

TEST(LinearWithInt8Weights, KeepsLayersOfFewOutputsInFp32) {
  Extras extras;
  const Case in_fp32(7, 40, 8, 1, extras);
  extras.storage = WeightStorage::int8;
  const Case c(7, 40, 8, 1, extras);
  EXPECT_EQ(c.pack().storage(), WeightStorage::as_multiplied);
  EXPECT_EQ(c.run(), in_fp32.run());
}

TEST(LinearWithInt8Weights, CountsWeightsOfNoScaleAsZero) {
  Extras extras;
  extras.storage = WeightStorage::int8;
  extras.bias = false;
  Case c(1, 3, 9, 1, extras);
  c.layer.weight.assign(27, 0x1p-120f);
  c.layer.weight[0] = 0x1p-119f;
  const std::vector<float> y = c.run();
  const double expected = 0x1p-119 * c.inputs.x[0] + 0x1p-120 * (c.inputs.x[1] + c.inputs.x[2]);
  EXPECT_NEAR(y[0], expected, 0x1p-119 / 127 * 1.5 + 0x1p-140);
  EXPECT_EQ(y[1], 0);
}

TEST(LinearWithInt8Weights, RefusesWeightsThatAreNotFinite) {
  for (const float weight : {infinity, std::nanf(""), std::numeric_limits<float>::max()}) {
    Extras extras;
    extras.storage = WeightStorage::int8;
    Case c(1, 12, 9, 1, extras);
    c.layer.weight[17] = weight;
    EXPECT_EQ(
        test_support::message_of([&] { c.pack(); }),
        "weight of a linear layer, element 17: expected a number that is finite in INT8, at most 3.4028234e+38, got " +
            std::to_string(weight));
  }
}

}}  // namespace warprank
