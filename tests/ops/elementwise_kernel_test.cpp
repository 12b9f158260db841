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

namespace elementwise_kernel_test {  // kernels take the names of functors, which must be visible to the linker

using namespace kernel_testing;  // NOLINT
using warprank::AxisInput;
using warprank::EachElement;
using warprank::Elementwise;
using warprank::ElementwiseProgram;
using warprank::LayerNormOfRow;
using warprank::Matrix;
using warprank::Pooling;
using warprank::ReduceRow;
using warprank::SegmentedInput;
using warprank::SoftmaxOfRow;
using warprank::reference::Bounded;
using Function = warprank::ElementwiseFunction;
using Half = warprank::float16;

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
        op.launch({}, stream);
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

}  // namespace elementwise_kernel_test
