// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reference/elementwise.hpp"
#include "reference/layer_norm.hpp"
#include "reference/reduce.hpp"
#include "reference/softmax.hpp"
#include "support/axis_input_testing.hpp"
#include "support/golden_tensors.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/ops/elementwise.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/elementwise.hpp"
#endif

namespace elementwise_kernel_test {  // kernels take the names of functors, which must be visible to the linker

using namespace kernel_testing;  // NOLINT
using warprank::AxisInput;
using warprank::EachElement;
using warprank::Elementwise;
using warprank::ElementwiseProgram;
using warprank::InterpretedElementwise;
using warprank::LayerNormOfRow;
using warprank::Matrix;
using warprank::Pooling;
using warprank::ReduceRow;
using warprank::SegmentedInput;
using warprank::SoftmaxOfRow;
using warprank::reference::Bounded;
using Function = warprank::ElementwiseFunction;
using Half = warprank::half;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double underflow = 0x1p-118;  // of the exponentials in activations

struct Identity {
  WARPRANK_DEVICE float operator()(float x) const { return x; }
};
/// Exact, so that what follows has exact inputs.
struct Gated {
  WARPRANK_DEVICE float operator()(float value, float gate) const { return gate > 0 ? value : 0; }
};
struct ScaledSum {
  float scale;
  WARPRANK_DEVICE float operator()(float a, float b, float c) const { return scale * (a + b) - c; }
};

// ---- Compiled functions

template <class Out, class Value, int N, class F, class Step = EachElement>
std::vector<Out> run(F function, const std::vector<AxisValues>& values, int64_t rows, int64_t cols, Step step = {},
                     Placement placement = {}) {
  const DeviceAxisInputs<Value> on_device(values, placement);
  AxisInput<Value> inputs[N];
  for (size_t i = 0; i < N; ++i) inputs[i] = on_device.views()[i];
  DeviceMatrix<Out> y(rows, cols, cols + placement.gap, placement.skip);
  Elementwise<F, Value, N, Out, Step>(function, inputs, y.view(), step).launch({});
  return y.read();
}

/// gate > 0 ? value : 0 of [rows, cols] and [rows, 1], in double.
std::vector<float> gated(const AxisValues& value, const AxisValues& gate) {
  std::vector<float> result = value.values;
  for (size_t i = 0; i < result.size(); ++i) {
    if (!(gate.values[i / static_cast<size_t>(value.cols)] > 0)) result[i] = 0;
  }
  return result;
}

/// Two passes of rows over every width and placement, for one step and its reference.
template <class Value, class Out, class Step, class Reference>
void expect_step(Step step, Reference reference, int64_t output_cols_of_row, double c) {
  for (const int64_t cols : {1, 2, 5, 8, 33, 128, 132, 300})
    for (const int64_t rows : {0, 1, 37})
      for (const Placement placement : {Placement{}, Placement{4, 4}, Placement{3, 1}}) {
        if (rows == 37 && cols > 8 && cols != 132) continue;
        SCOPED_TRACE("rows " + std::to_string(rows) + ", cols " + std::to_string(cols) + ", gap " +
                     std::to_string(placement.gap));
        const AxisValues value = random_values<Value>(rows, cols, 1, 2), gate = random_values<Value>(rows, 1, 2);
        const int64_t output_cols = output_cols_of_row == 0 ? cols : output_cols_of_row;
        const std::vector<Out> y = in_every_order(
            [&] {
              return run<Out, Value, 2>(Gated{}, {value, gate}, rows, output_cols, step, placement);
            },
            2);
        const std::vector<float> exact = gated(value, gate);
        expect_within(reference(Matrix<const float>{exact.data(), rows, cols}), y, c, underflow);
      }
}

template <class Types>
class ElementwiseSteps : public testing::Test {};
template <class Value, class Out>
struct Types {
  using value = Value;
  using out = Out;
};
using AllTypes = testing::Types<Types<float, float>, Types<Half, Half>>;
TYPED_TEST_SUITE(ElementwiseSteps, AllTypes, );

TYPED_TEST(ElementwiseSteps, GiveEachElement) {
  const auto same = [](Matrix<const float> x) {
    return Bounded{{x.data, x.data + x.rows * x.cols}, std::vector<double>(static_cast<size_t>(x.rows * x.cols))};
  };
  expect_step<typename TypeParam::value, typename TypeParam::out>(EachElement{}, same, 0, 1);
}

TYPED_TEST(ElementwiseSteps, GiveTheSoftmaxOfARow) {
  expect_step<typename TypeParam::value, typename TypeParam::out>(
      SoftmaxOfRow{}, [](Matrix<const float> x) { return warprank::reference::softmax(x); }, 0, 1);
}

TYPED_TEST(ElementwiseSteps, NormaliseARow) {
  const auto layer_norm = [](Matrix<const float> x) { return warprank::reference::layer_norm(x, 1e-3f, {}, {}); };
  expect_step<typename TypeParam::value, typename TypeParam::out>(LayerNormOfRow{1e-3f}, layer_norm, 0, 1);
}

TYPED_TEST(ElementwiseSteps, ReduceARow) {
  for (const Pooling pooling : {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max}) {
    const auto reduce = [&](Matrix<const float> x) { return warprank::reference::reduce(x, pooling); };
    expect_step<typename TypeParam::value, typename TypeParam::out>(ReduceRow{pooling}, reduce, 1, 1);
  }
}

TEST(ElementwiseKernel, NormalisesWithLearnedScaleAndShift) {
  reset();
  const AxisValues x = random_values<float>(5, 12, 1), learned = random_values<float>(2, 12, 2);
  const std::vector<float> scale = learned.row(0).values, shift = learned.row(1).values;
  const DeviceArray<float> gamma(scale), beta(shift);
  const std::vector<float> y =
      run<float, float, 1>(Identity{}, {x}, 5, 12, LayerNormOfRow{1e-5f, gamma.data(), beta.data()});
  expect_within(warprank::reference::layer_norm(x.view().values, 1e-5f, scale, shift), y, 1);
}

TEST(ElementwiseKernel, TakesInputsFromAncestorsOneColumnAndOneRow) {
  const int64_t rows = 60;
  const AxisValues user = random_values<float>(4, 12, 1, 1, {0, 0, 7, rows, rows}),
                   item = random_values<float>(rows, 1, 2), all = random_values<float>(1, 12, 3);
  const ElementwiseProgram same{3, 0, {0.5f}, {{Function::add, 0, 1}, {Function::mul, 3, 4}, {Function::sub, 5, 2}}};
  AxisValues repeated = all;
  repeated.offsets = {0, rows};
  const std::vector<float> y = in_every_order([&] {
    return run<float, float, 3>(ScaledSum{0.5f}, {user, item, all}, rows, 12);
  });
  expect_within(warprank::reference::elementwise(same, views_of({user, item, repeated}), {}, rows, 12), y, 1);
}

TEST(ElementwiseKernel, MayWriteItsInput) {
  in_every_order([] {
    const AxisValues x = random_values<float>(9, 70, 1);
    DeviceMatrix<float> y(x.values, 9, 70);
    const AxisInput<float> inputs[] = {{y.view()}};
    Elementwise(Identity{}, inputs, y.view(), SoftmaxOfRow{}).launch({});
    expect_within(warprank::reference::softmax(x.view().values), y.read(), 1);
  });
}

TEST(ElementwiseKernel, TreatsNaNAndInfinityAsPyTorchDoes) {
  reset();
  AxisValues x{{1, NAN, 2, infinity, 1, 2, -infinity, 0, 0, -infinity, -infinity, -infinity}, 4, 3, {}};
  const auto softmax = run<float, float, 1>(Identity{}, {x}, 4, 3, SoftmaxOfRow{});
  for (const size_t i : {0, 1, 2, 3, 9, 10, 11}) EXPECT_TRUE(std::isnan(softmax[i])) << i;
  EXPECT_EQ(softmax[6], 0);
  EXPECT_EQ(softmax[7], 0.5f);
  const auto top = run<float, float, 1>(Identity{}, {x}, 4, 1, ReduceRow{Pooling::max});
  EXPECT_TRUE(std::isnan(top[0]));
  EXPECT_EQ(top[1], infinity);
  EXPECT_EQ(top[2], 0);
  EXPECT_EQ(top[3], -infinity);
}

TEST(ElementwiseKernel, GivesARowTheSameBitsAloneAndAmongOthers) {
  const AxisValues x = random_values<Half>(40, 36, 1);
  reset();
  const auto together = run<float, Half, 1>(Identity{}, {x}, 40, 36, LayerNormOfRow{});
  for (const int64_t n : {0, 3, 39}) {
    reset();
    const auto begin = together.begin() + n * 36;
    EXPECT_EQ((run<float, Half, 1>(Identity{}, {x.row(n)}, 1, 36, LayerNormOfRow{})),
              std::vector<float>(begin, begin + 36));
  }
}

TEST(ElementwiseKernelGraph, FollowsTheCountInDeviceMemory) {
  const int64_t capacity = 40;
  const AxisValues x = random_values<float>(capacity, 5, 1);
  in_every_order(
      [&] {
        DeviceMatrix<float> values(x.values, capacity, 5), y(capacity, 5);
        DeviceArray<int64_t> num_rows(1);
        const AxisInput<float> inputs[] = {{values.view()}};
        const Elementwise op(Identity{}, inputs, y.view(), SoftmaxOfRow{}, num_rows.data());
        const Stream stream = create_stream();
        begin_capture(stream);
        op.launch(stream);
        const Graph graph = end_capture(stream);
        EXPECT_EQ(num_launches(graph), 1);
        for (const int64_t rows : {30, 7, 0}) {
          num_rows.write({rows});
          fill(y.view().data, 0xff, capacity * 5 * 4);
          synchronize();
          launch(graph, stream);
          const std::vector<float> result = y.read();
          expect_within(warprank::reference::softmax({x.values.data(), rows, 5}),
                        std::vector<float>(result.begin(), result.begin() + rows * 5), 1);
          for (auto value = result.begin() + rows * 5; value != result.end(); ++value) EXPECT_TRUE(std::isnan(*value));
        }
      },
      10);
}

TEST(ElementwiseKernelCounts, ReadsAndWritesEachSectorOnce) {
  if constexpr (build == Build::plain) {
    Config config;
    config.count_sectors = true;
    reset(config);
    const AxisValues value = random_values<Half>(100, 64, 1), gate = random_values<Half>(100, 64, 2);
    clear_counters();
    run<Half, Half, 2>(Gated{}, {value, gate}, 100, 64);
    EXPECT_EQ(counters().launches, 1);
    EXPECT_EQ(counters().atomics, 0);
    EXPECT_EQ(counters().global_load_sectors, 2 * 100 * 64 / 16);
    EXPECT_EQ(counters().global_store_sectors, 100 * 64 / 16);
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

// ---- Programs

template <class Out, class Value, class Step = EachElement>
std::vector<Out> interpret(const ElementwiseProgram& program, const std::vector<AxisValues>& values,
                           const std::vector<const float*>& vectors, int64_t rows, int64_t cols, Step step = {},
                           Placement placement = {}) {
  const DeviceAxisInputs<Value> inputs(values, placement);
  DeviceMatrix<Out> y(rows, cols, cols + placement.gap, placement.skip);
  InterpretedElementwise<Value, Out, Step>(program, inputs.views(), vectors, y.view(), step).launch({});
  return y.read();
}

/// The program that is one function.
ElementwiseProgram single(Function function, float alpha = 0) {
  ElementwiseProgram program{arity(function), 0, {}, {{function, 0, -1, -1, alpha}}};
  if (arity(function) >= 2) program.instructions[0].b = 1;
  if (arity(function) >= 3) program.instructions[0].c = 2;
  return program;
}

/// Dice of x + shared: s = x + shared; p = sigmoid(s scale + shift); s (p + alpha (1 - p)).
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

TEST(ElementwiseProgramKernel, MatchesEveryFunctionWithinItsBound) {
  for (const auto& [function, name] : names_of(Function{}))
    for (const float scale : {1e-3f, 1.0f, 10.0f}) {
      SCOPED_TRACE(std::string(name) + ", scale " + std::to_string(scale));
      const int64_t rows = 20, cols = 25;
      std::vector<AxisValues> inputs = {random_values<float>(rows, cols, 1, scale),
                                        random_values<float>(rows, cols, 2, scale),
                                        random_values<float>(rows, cols, 3, scale)};
      inputs.resize(static_cast<size_t>(arity(function)));
      reset();
      const ElementwiseProgram program = single(function, 0.3f);
      expect_within(warprank::reference::elementwise(program, views_of(inputs), {}, rows, cols),
                    interpret<float, float>(program, inputs, {}, rows, cols), 1, underflow);
    }
}

TEST(ElementwiseProgramKernel, PassesOnNaNAsTheFunctionsSay) {
  reset();
  const AxisValues a{{NAN, 1, NAN}, 1, 3, {}}, b{{2, NAN, NAN}, 1, 3, {}}, c{{0, NAN, 1}, 1, 3, {}};
  for (const auto& [function, name] : names_of(Function{})) {
    std::vector<AxisValues> inputs = {a, b, c};
    inputs.resize(static_cast<size_t>(arity(function)));
    const auto exact = warprank::reference::elementwise(single(function, 0.3f), views_of(inputs), {}, 1, 3);
    const std::vector<float> y = interpret<float, float>(single(function, 0.3f), inputs, {}, 1, 3);
    for (size_t i = 0; i < 3; ++i) {
      if (std::isnan(exact.value[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << name << " " << i;
      } else {
        EXPECT_NEAR(y[i], exact.value[i], 1e-6) << name << " " << i;
      }
    }
  }
}

TEST(ElementwiseProgramKernel, TakesEveryShapeAndPlacement) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{0, 5},  {5, 0},  {1, 1},  {300, 1},
                                                           {33, 2}, {9, 17}, {3, 260}};
  for (const auto& shape : shapes)
    for (const Placement placement : {Placement{}, Placement{4, 4}, Placement{3, 1}}) {
      const int64_t rows = shape.first, cols = shape.second;
      const AxisValues x = random_values<Half>(rows, cols, 1), shared = random_values<Half>(rows, 1, 2),
                       learned = random_values<float>(3, cols, 3);
      const std::vector<float> scale = learned.row(0).values, shift = learned.row(1).values,
                               alpha = learned.row(2).values;
      const std::vector<Half> y = in_every_order(
          [&] {
            const DeviceArray<float> d_scale(scale), d_shift(shift), d_alpha(alpha);
            const std::vector<const float*> vectors = {d_scale.data(), d_shift.data(), d_alpha.data()};
            return interpret<Half, Half>(dice_of_sum(), {x, shared}, vectors, rows, cols, EachElement{}, placement);
          },
          2);
      const std::vector<const float*> vectors = {scale.data(), shift.data(), alpha.data()};
      expect_within(warprank::reference::elementwise(dice_of_sum(), views_of({x, shared}), vectors, rows, cols), y, 1,
                    underflow);
    }
}

TEST(ElementwiseProgramKernel, IsFollowedByAStep) {
  const AxisValues x = random_values<float>(7, 20, 1);
  const ElementwiseProgram negative{1, 0, {}, {{Function::neg, 0}}};
  AxisValues negated = x;
  for (float& value : negated.values) value = -value;
  reset();
  expect_within(warprank::reference::softmax(negated.view().values),
                interpret<float, float>(negative, {x}, {}, 7, 20, SoftmaxOfRow{}), 1);
}

/// All are alive before the first two are added: 16 have slots, the last square in place of the input.
ElementwiseProgram sum_of_squares(int count) {
  ElementwiseProgram program{1, 0, {}, {}};
  for (int i = 0; i < count; ++i) program.instructions.push_back({Function::square, 0});
  int sum = 1;
  for (int i = 2; i <= count; ++i) {
    program.instructions.push_back({Function::add, sum, i});
    sum = count + i - 1;
  }
  return program;
}
TEST(ElementwiseProgramKernel, UsesSlotsAgain) {
  const AxisValues x = random_values<float>(3, 4, 1, 0.5f);
  reset();
  const ElementwiseProgram program = sum_of_squares(16);
  expect_within(warprank::reference::elementwise(program, views_of({x}), {}, 3, 4),
                interpret<float, float>(program, {x}, {}, 3, 4), 1);
}

TEST(ElementwiseProgramKernelGolden, GivesWhatPyTorchGives) {
  using warprank::test_support::golden_tensor;
  const auto a = golden_tensor<float>("elementwise", "dense/a"), b = golden_tensor<float>("elementwise", "dense/b");
  const auto rows = static_cast<int64_t>(a.values.size() / 4);
  const AxisValues x{a.values, rows, 4, {}}, y{b.values, rows, 4, {}};
  ASSERT_GT(rows, 0);
  for (const char* name :
       {"add", "sub", "mul", "div",    "min",  "max",     "less", "greater_equal", "equal",     "not_equal",
        "neg", "abs", "exp", "square", "relu", "sigmoid", "tanh", "gelu",          "gelu_tanh", "silu"}) {
    SCOPED_TRACE(name);
    Function function{};
    for (const auto& [candidate, its_name] : names_of(Function{})) {
      if (std::string(its_name) == name) function = candidate;
    }
    std::vector<AxisValues> inputs = {x, y};
    inputs.resize(static_cast<size_t>(arity(function)));
    auto exact = warprank::reference::elementwise(single(function), views_of(inputs), {}, rows, 4);
    exact.value = golden_tensor<double>("elementwise", std::string("output/") + name).values;
    reset();
    expect_within(exact, interpret<float, float>(single(function), inputs, {}, rows, 4), 1, underflow);
  }
}

TEST(ElementwiseStepsGolden, GiveWhatPyTorchGives) {
  using warprank::test_support::golden_tensor;
  const auto x = golden_tensor<float>("norms", "dense/x");
  const auto rows = static_cast<int64_t>(x.values.size() / 6);
  const AxisValues input{x.values, rows, 6, {}};
  ASSERT_GT(rows, 0);
  reset();
  Bounded exact = warprank::reference::softmax(input.view().values);
  exact.value = golden_tensor<double>("norms", "output/softmax").values;
  expect_within(exact, run<float, float, 1>(Identity{}, {input}, rows, 6, SoftmaxOfRow{}), 1);
}

#if !defined(__CUDACC__)
TEST(ElementwiseProgramKernelHost, AgreesWithTheHostPath) {
  const int64_t rows = 50, cols = 8;
  const AxisValues x = random_values<float>(rows, cols, 1), shared = random_values<float>(2, 1, 2, 1, {0, 20, rows}),
                   learned = random_values<float>(3, cols, 3);
  const std::vector<AxisValues> inputs = {x, shared};
  const std::vector<SegmentedInput> views = views_of(inputs);
  const float* data = learned.values.data();
  const std::vector<const float*> vectors = {data, data + cols, data + 2 * cols};
  std::vector<float> host(static_cast<size_t>(rows * cols)),
      workspace(static_cast<size_t>(warprank::host_ops::elementwise_workspace(dice_of_sum())));
  warprank::host_ops::elementwise(dice_of_sum(), views, vectors, {host.data(), rows, cols}, workspace);
  Bounded between = warprank::reference::elementwise(dice_of_sum(), views, vectors, rows, cols);
  between.value.assign(host.begin(), host.end());
  reset();
  const DeviceArray<float> on_device(learned.values);
  const std::vector<const float*> device_vectors = {on_device.data(), on_device.data() + cols,
                                                    on_device.data() + 2 * cols};
  expect_within(between, interpret<float, float>(dice_of_sum(), inputs, device_vectors, rows, cols), 2, underflow);
}
#endif

// ---- Errors

/// The message of what `make` throws.
std::string refusal_of(const std::function<void()>& make) {
  try {
    make();
  } catch (const warprank::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ElementwiseKernelArguments, AreRefusedWhereTheyDoNotFit) {
  float memory[64] = {};
  const auto refusal = [&](const std::function<void(AxisInput<float>&, Matrix<float>&)>& change, auto step) {
    AxisInput<float> inputs[1] = {{{memory, 2, 8}}};
    Matrix<float> y{memory, 2, std::is_same_v<decltype(step), ReduceRow> ? 1 : 8};
    change(inputs[0], y);
    return refusal_of([&] { Elementwise(Identity{}, inputs, y, step); });
  };
  const EachElement each;
  EXPECT_EQ(refusal([](auto&, auto&) {}, each), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& x, auto&) { x.values.cols = 7; }, each),
            "elementwise: input 0: expected 1 or 8 columns, got 7");
  EXPECT_EQ(refusal([](auto& x, auto& y) { x.values.rows = 2, y.rows = 3; }, each),
            "elementwise: input 0: expected 3 rows, got 2");
  EXPECT_EQ(refusal([](auto& x, auto&) { x.values.data = nullptr; }, each),
            "elementwise: input 0: expected an address, got null");
  EXPECT_EQ(refusal([](auto&, auto& y) { y.stride = 7; }, each),
            "elementwise: y: expected rows at least 8 elements apart, got 7");
  EXPECT_EQ(refusal([](auto&, auto& y) { y.cols = y.stride = 2; }, ReduceRow{}),
            "elementwise: y: expected 1 column, got 2");
  EXPECT_EQ(refusal([](auto&, auto&) {}, ReduceRow{Pooling::none}),
            "elementwise: pooling: expected sum, mean, sqrtn or max, got none");
  EXPECT_EQ(refusal([](auto&, auto&) {}, LayerNormOfRow{-1}), "elementwise: eps: expected 0 or more, got -1.000000");
}

TEST(ElementwiseKernelArguments, AreRefusedWhereTheProgramHasNoRoom) {
  float memory[64] = {};
  const Matrix<float> y{memory, 2, 8};
  const auto refusal = [&](const ElementwiseProgram& program, size_t num_inputs, std::vector<const float*> vectors) {
    const std::vector<AxisInput<float>> inputs(num_inputs, {{memory, 2, 8}});
    return refusal_of([&] { InterpretedElementwise<float, float>(program, inputs, vectors, y); });
  };
  EXPECT_EQ(refusal(single(Function::add), 2, {}), "nothing was thrown");
  EXPECT_EQ(refusal(single(Function::add), 1, {}), "elementwise: inputs of the program: expected 2, got 1");
  EXPECT_EQ(refusal({1, 1, {}, {{Function::add, 0, 1}}}, 1, {nullptr}),
            "elementwise: vector: expected an address, got null");
  EXPECT_EQ(refusal({9, 0, {}, {{Function::add, 0, 8}}}, 9, {}),
            "elementwise: inputs of the program: expected at most 8, got 9");
  EXPECT_EQ(refusal(sum_of_squares(17), 1, {}),
            "elementwise program: expected at most 16 values alive at once, got more");
  ElementwiseProgram long_program = single(Function::neg);
  for (int i = 1; i < 96; ++i) long_program.instructions.push_back({Function::neg, i});
  EXPECT_EQ(refusal(long_program, 1, {}), "elementwise program: expected at most 96 instructions and loads, got 97");
  EXPECT_NE(refusal({1, 0, {}, {{Function::neg, 3}}}, 1, {}).find("elementwise program: instruction 0"),
            std::string::npos);
}

}  // namespace elementwise_kernel_test
