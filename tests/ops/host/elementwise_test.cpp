// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/elementwise.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "reference/elementwise.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;
using Function = ElementwiseFunction;

void run(const ElementwiseProgram& program, const std::vector<SegmentedInput>& inputs,
         const std::vector<const float*>& vectors, Matrix<float> y) {
  Workspace workspace(host_ops::elementwise_workspace(program));
  host_ops::elementwise(program, inputs, vectors, y, workspace.view());
}

void check(const ElementwiseProgram& program, const std::vector<SegmentedInput>& inputs,
           const std::vector<const float*>& vectors, int64_t rows, int64_t cols, int64_t gap = 3) {
  SCOPED_TRACE(::testing::Message() << "rows " << rows << ", cols " << cols << ", gap " << gap);
  AwkwardMatrix y(rows, cols, gap);
  run(program, inputs, vectors, y.view());
  const double underflow = 0x1p-118;  // of the exponentials in activations
  expect_within(reference::elementwise(program, inputs, vectors, rows, cols), y.view(), 1, underflow);
  y.expect_guards_untouched();
}

/// The program that is one function.
ElementwiseProgram single(Function function, float alpha = 0) {
  ElementwiseProgram program{arity(function), 0, {}, {{function, 0, -1, -1, alpha}}};
  if (arity(function) >= 2) program.instructions[0].b = 1;
  if (arity(function) >= 3) program.instructions[0].c = 2;
  return program;
}

/// Dice of x + shared, PReLU's sibling: s = x + shared; p = sigmoid(s scale + shift); s (p + alpha (1 - p)).
ElementwiseProgram dice_of_sum() {
  return {2,
          3,
          {1.0f},
          {{Function::add, 0, 1},
           {Function::mul, 6, 2},
           {Function::add, 7, 3},
           {Function::sigmoid, 8},
           {Function::sub, 5, 9},
           {Function::mul, 4, 10},
           {Function::add, 9, 11},
           {Function::mul, 6, 12}}};
}

TEST(HostElementwise, MatchesEveryFunctionWithinItsBound) {
  for_each_target([] {
    for (const auto& [function, name] : names_of(Function{})) {
      for (const float scale : {1e-3f, 1.0f, 10.0f}) {
        SCOPED_TRACE(::testing::Message() << name << ", scale " << scale);
        const AwkwardMatrix a = AwkwardMatrix(40, 25).fill(1, scale), b = AwkwardMatrix(40, 25).fill(2, scale),
                            c = AwkwardMatrix(40, 25).fill(3, scale);
        std::vector<SegmentedInput> inputs = {{a.view()}, {b.view()}, {c.view()}};
        inputs.resize(static_cast<size_t>(arity(function)));
        check(single(function, 0.3f), inputs, {}, 40, 25);
      }
    }
  });
}

TEST(HostElementwise, TakesEveryShapeContiguousAndStrided) {
  for_each_target([] {
    const int64_t shapes[][2] = {{0, 5},  {5, 0},    {1, 1},   {1000, 1}, {2049, 1}, {33, 2},   {700, 3},  {64, 16},
                                 {9, 17}, {15, 100}, {3, 471}, {2, 600},  {2, 1024}, {3, 1025}, {1, 5001}, {40, 33}};
    for (const auto& [rows, cols] : shapes)
      for (const int64_t gap : {0, 3}) {
        const AwkwardMatrix x = AwkwardMatrix(rows, cols, gap).fill(1), shared = AwkwardMatrix(rows, 1).fill(2),
                            learned = AwkwardMatrix(3, cols).fill(3);
        const std::vector<const float*> vectors = {learned.view().row(0), learned.view().row(1), learned.view().row(2)};
        check(dice_of_sum(), {{x.view()}, {shared.view()}}, vectors, rows, cols, gap);
      }
  });
}

TEST(HostElementwise, TakesInputsFromSeveralAncestors) {
  for_each_target([] {
    const int64_t rows = 100;
    const OwnedSegments users({0, 70, 0, 1, 29, 0}), sessions({30, 0, 40, 1, 0, 27, 2});
    for (const int64_t cols : {1, 2, 16, 19, 1030}) {
      const AwkwardMatrix item = AwkwardMatrix(rows, cols, 0).fill(1), user = AwkwardMatrix(6, cols).fill(2),
                          session = AwkwardMatrix(7, 1).fill(3), learned = AwkwardMatrix(3, cols).fill(4);
      const SegmentedInput on_users{user.view(), users.view()}, on_sessions{session.view(), sessions.view()};
      const std::vector<const float*> vectors = {learned.view().row(0), learned.view().row(1), learned.view().row(2)};
      check(dice_of_sum(), {on_users, on_sessions}, vectors, rows, cols);
      check(dice_of_sum(), {on_users, {item.view()}}, vectors, rows, cols, 0);
    }
  });
}

TEST(HostElementwise, RunsLongProgramsAndProgramsThatReadNothing) {
  for_each_target([] {
    ElementwiseProgram program{1, 0, {0.5f}, {}};
    for (int i = 0; i < max_elementwise_registers; ++i)
      program.instructions.push_back({Function::mul, i == 0 ? 0 : i + 1, 1});
    program.instructions.push_back({Function::add, 0, 1});
    const AwkwardMatrix x = AwkwardMatrix(3, 90).fill(1);
    check(program, {{x.view()}}, {}, 3, 90);
    check({0, 0, {2.0f, 3.0f}, {{Function::sub, 0, 1}}}, {}, {}, 3, 90);
  });
}

TEST(HostElementwise, WorksInPlace) {
  for_each_target([] {
    for (const int64_t cols : {1, 16, 20, 600, 1500})
      for (const int64_t gap : {0, 3}) {
        AwkwardMatrix x = AwkwardMatrix(37, cols, gap).fill(1), y(37, cols, gap);
        const AwkwardMatrix other = AwkwardMatrix(37, 1).fill(2);
        // Reads x again after other instructions.
        const ElementwiseProgram program{2, 0, {}, {{Function::mul, 0, 1}, {Function::tanh, 2}, {Function::add, 3, 0}}};
        run(program, {{x.view()}, {other.view()}}, {}, y.view());
        run(program, {{x.view()}, {other.view()}}, {}, x.view());
        expect_same_bits(y.view(), x.view());
        x.expect_guards_untouched();
      }
  });
}

TEST(HostElementwise, GivesAnElementTheSameBitsWhereverItStands) {
  for_each_target([] {
    const int64_t rows = 50, cols = 21;
    const AwkwardMatrix x = AwkwardMatrix(rows, cols).fill(1), shared = AwkwardMatrix(rows, 1).fill(2),
                        learned = AwkwardMatrix(3, cols).fill(3);
    AwkwardMatrix together(rows, cols), alone(1, cols), element(1, 1);
    std::vector<const float*> vectors = {learned.view().row(0), learned.view().row(1), learned.view().row(2)};
    run(dice_of_sum(), {{x.view()}, {shared.view()}}, vectors, together.view());
    for (int64_t n = 0; n < rows; ++n) {
      const SegmentedInput shared_row{shared.view().row_range(n, 1)};
      run(dice_of_sum(), {{x.view().row_range(n, 1)}, shared_row}, vectors, alone.view());
      expect_same_bits(together.view().row_range(n, 1), alone.view());
      for (int64_t c = 0; c < cols; ++c) {
        run(dice_of_sum(), {{x.view().row_range(n, 1).columns(c, 1)}, shared_row},
            {vectors[0] + c, vectors[1] + c, vectors[2] + c}, element.view());
        ASSERT_EQ(element.at(0, 0), together.at(n, c));
      }
    }
  });
}

TEST(HostElementwise, GivesAFusedProgramTheBitsOfItsParts) {
  for_each_target([] {
    const AwkwardMatrix x = AwkwardMatrix(30, 40).fill(1), z = AwkwardMatrix(30, 40).fill(2);
    const ElementwiseProgram producer{2, 0, {0.3f}, {{Function::mul, 0, 1}, {Function::add, 3, 2}}};
    const ElementwiseProgram consumer{
        2, 0, {1.7f}, {{Function::mul, 0, 2}, {Function::add, 3, 1}, {Function::gelu, 4}}};
    AwkwardMatrix intermediate(30, 40), separate(30, 40), fused(30, 40);
    run(producer, {{x.view()}, {z.view()}}, {}, intermediate.view());
    run(consumer, {{intermediate.view()}, {x.view()}}, {}, separate.view());
    const InlinedProgram inlined =
        inline_program(consumer, std::vector<int>{9, 0}, 0, producer, std::vector<int>{0, 1});
    ASSERT_EQ(inlined.inputs, (std::vector<int>{0, 1}));
    run(inlined.program, {{x.view()}, {z.view()}}, {}, fused.view());
    expect_same_bits(separate.view(), fused.view());
  });
}

TEST(HostElementwise, TreatsSpecialValuesAsStated) {
  const float nan = std::nanf("");
  const std::vector<float> specials = {nan, infinity, -infinity, 0.0f, -0.0f, 1.0f, -1.0f, 1e-42f, 3e38f, -3e38f};
  for_each_target([&] {
    for (const auto& [function, name] : names_of(Function{}))
      for (float a : specials)
        for (float b : specials)
          for (float c : {0.0f, 1.0f, nan}) {
            const ElementwiseProgram program = single(function, 0.5f);
            std::vector<SegmentedInput> inputs;
            for (const float* value : {&a, &b, &c}) inputs.push_back({Matrix<const float>(value, 1, 1)});
            inputs.resize(static_cast<size_t>(arity(function)));
            AwkwardMatrix y(1, 1);
            run(program, inputs, {}, y.view());
            double expected = reference::elementwise(program, inputs, {}, 1, 1).value[0];
            if (function == Function::select) expected = c != 0 ? a : b;
            // The limit of x f(x) where f vanishes; the formula is infinity times zero there.
            const bool vanishes = a == -infinity && (function == Function::silu || function == Function::gelu ||
                                                     function == Function::gelu_tanh);
            if (vanishes) expected = 0;
            const float rounded = static_cast<float>(expected), got = y.at(0, 0);
            if (std::isnan(rounded))
              EXPECT_TRUE(std::isnan(got)) << name << "(" << a << ", " << b << ", " << c << ") = " << got;
            else if (std::isinf(rounded) || rounded == 0)
              EXPECT_EQ(got, rounded) << name << "(" << a << ", " << b << ", " << c << ")";
            else
              EXPECT_NEAR(got / rounded, 1, 1e-5) << name << "(" << a << ", " << b << ", " << c << ")";
          }
  });
}

TEST(HostElementwise, GivesAnglesAndSinesTheSignsThatCGives) {
  const float nan = std::nanf(""), pi = 0x1.921fb6p1f;
  const auto of = [](Function function, float a, float b = 0) {
    std::vector<SegmentedInput> inputs = {{Matrix<const float>(&a, 1, 1)}, {Matrix<const float>(&b, 1, 1)}};
    inputs.resize(static_cast<size_t>(arity(function)));
    AwkwardMatrix y(1, 1);
    run(single(function), inputs, {}, y.view());
    return y.at(0, 0);
  };
  for_each_target([&] {
    for (const float zero : {0.0f, -0.0f}) {
      EXPECT_EQ(float_bits(of(Function::sin, zero)), float_bits(zero));
      EXPECT_EQ(of(Function::cos, zero), 1);
    }
    const std::vector<float> sizes = {0, 1e-45f, 0x1p-126f, 0.5f, 1, 3e38f, infinity};
    for (const float height : sizes)
      for (const float width : sizes)
        for (const float a : {height, -height})
          for (const float b : {width, -width}) {
            // Exact at the axes and between them; elsewhere every rounding counts.
            const float got = of(Function::atan2, a, b), expected = std::atan2(a, b);
            EXPECT_EQ(std::signbit(got), std::signbit(expected)) << "atan2(" << a << ", " << b << ")";
            if (height == 0 || width == 0 || std::isinf(height) || std::isinf(width) || (height == width && b > 0))
              EXPECT_EQ(got, expected) << "atan2(" << a << ", " << b << ")";
            else
              EXPECT_NEAR(got, expected, 4 * u * std::fabs(expected)) << "atan2(" << a << ", " << b << ")";
          }
    EXPECT_EQ(of(Function::atan2, -0.0f, -1), -pi);
    for (const float a : {infinity, -infinity, nan}) {
      EXPECT_TRUE(std::isnan(of(Function::sin, a))) << a;
      EXPECT_TRUE(std::isnan(of(Function::cos, a))) << a;
      EXPECT_TRUE(std::isnan(of(Function::atan2, a, nan))) << a;
      EXPECT_TRUE(std::isnan(of(Function::atan2, nan, a))) << a;
    }
  });
}

TEST(HostElementwise, TurnsSmallAndLargeNumbersTogetherAndAloneAlike) {
  for_each_target([] {
    for (const Function function : {Function::sin, Function::cos}) {
      // Each of another size: most vectors have numbers of both kinds.
      const std::vector<float> sizes = {1, 8191.9995f, 8192, 8192.001f, 1e5f, -1e5f, 1.2345e7f, -3e38f, 1e-42f};
      AwkwardMatrix x(3, 45), together(3, 45), alone(1, 1);
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t c = 0; c < 45; ++c) x.at(r, c) = sizes[static_cast<size_t>((r * 45 + c * 4) % 9)];
      run(single(function), {{x.view()}}, {}, together.view());
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t c = 0; c < 45; ++c) {
          run(single(function), {{Matrix<const float>(&x.at(r, c), 1, 1)}}, {}, alone.view());
          ASSERT_EQ(alone.at(0, 0), together.at(r, c)) << x.at(r, c);
        }
    }
  });
}

/// Samples of all floats for which the result is a normal number.
void sweep(Function function, float first, float last, double (*exact)(double)) {
  std::vector<float> x, y;
  for (uint32_t bits = float_bits(first); bits < float_bits(last); bits += 2003) x.push_back(bits_float(bits));
  y.resize(x.size());
  const auto size = static_cast<int64_t>(x.size());
  run(single(function), {{Matrix<const float>(x.data(), size, 1)}}, {}, {y.data(), size, 1});
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = exact(x[i]);
    if (value != y[i]) worst = std::max(worst, std::fabs(y[i] - value) / std::fabs(value) * 0x1p24);
  }
  EXPECT_LE(worst, 4) << "in units of 2^-24";
}

TEST(HostElementwise, TakesLogarithmsOfEveryPositiveFloat) {
  for_each_target([] { sweep(Function::log, 1e-45f, infinity, [](double x) { return std::log(x); }); });
}

TEST(HostElementwise, TakesExponentialsOfEverySize) {
  for_each_target([] {
    const auto exact = [](double x) { return std::exp(x); };
    sweep(Function::exp, 1e-45f, 88.72f, exact);
    sweep(Function::exp, -1e-45f, -87.33f, exact);
  });
}

TEST(HostElementwise, TakesSinesAndCosinesOfEverySize) {
  for_each_target([] {
    const auto sine = [](double x) { return std::sin(x); };
    const auto cosine = [](double x) { return std::cos(x); };
    for (const float sign : {1.0f, -1.0f}) {
      sweep(Function::sin, sign * 0x1p-126f, sign * std::numeric_limits<float>::max(), sine);
      sweep(Function::cos, sign * 1e-45f, sign * std::numeric_limits<float>::max(), cosine);
    }
    // The floats nearest to multiples of pi / 2, where one of both is small.
    std::vector<float> x;
    for (int q = 1; q < 100000; ++q) x.push_back(static_cast<float>(q * std::acos(0.0)));
    AwkwardMatrix y(1, static_cast<int64_t>(x.size()));
    const std::vector<SegmentedInput> inputs = {{Matrix<const float>(x.data(), 1, static_cast<int64_t>(x.size()))}};
    for (const Function function : {Function::sin, Function::cos}) {
      run(single(function), inputs, {}, y.view());
      expect_within(reference::elementwise(single(function), inputs, {}, 1, y.view().cols), y.view(), 1);
    }
  });
}

TEST(HostElementwise, TakesAnglesAllAroundNearAndFar) {
  for_each_target([] {
    const int64_t count = 200000;
    AwkwardMatrix a(1, count), b(1, count);
    for (int64_t i = 0; i < count; ++i) {
      const double angle = static_cast<double>(i) * 1e-3, size = std::exp(static_cast<double>(i % 161) - 80);
      a.at(0, i) = static_cast<float>(size * std::sin(angle));
      b.at(0, i) = static_cast<float>(size * std::cos(angle));
    }
    check(single(Function::atan2), {{a.view()}, {b.view()}}, {}, 1, count);
  });
}

}}  // namespace warprank
