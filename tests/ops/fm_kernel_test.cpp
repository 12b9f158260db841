// SPDX-License-Identifier: Apache-2.0
#define WARPRANK_KERNELS_OF_FM  // of types that the engine has not: compiled here, with those of the library
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reference/fm.hpp"
#include "support/far_away.hpp"
#include "support/golden_tensors.hpp"
#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"
#include "support/policy_testing.hpp"
#include "warprank/ops/fm.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/fm.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::AxisInput;
using warprank::float16;
using warprank::Fm;
using warprank::FmOptions;
using warprank::LaunchPolicies;
using warprank::Matrix;
using warprank::SegmentedInput;

/// An input on the host, in numbers that Value has; on an ancestor's axis when it has offsets.
struct Fields {
  std::vector<float> values;
  int64_t rows, cols;
  std::vector<int64_t> offsets;

  SegmentedInput view() const {
    return {{values.data(), rows, cols}, {offsets.empty() ? nullptr : offsets.data(), rows}};
  }
};

template <class Value>
Fields random_fields(int64_t rows, int64_t cols, uint32_t seed, float scale = 1, std::vector<int64_t> offsets = {}) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  Fields fields{{}, rows, cols, std::move(offsets)};
  for (int64_t i = 0; i < rows * cols; ++i)
    fields.values.push_back(warprank::to_float(narrowed<Value>(normal(random))));
  return fields;
}

/// How matrices lie in memory: columns between rows, and elements before the first.
struct Placement {
  int64_t gap = 0, skip = 0;
  int64_t y_skip = 0;  // more before y's
};

/// Runs the op on inputs that are placed so, and returns y.
template <class Value, class Out>
std::vector<Out> run(const std::vector<Fields>& inputs, int64_t dim, int64_t rows, const FmOptions& options = {},
                     Placement placement = {}, Stream stream = {}, const LaunchPolicies& policies = usual_policies()) {
  std::vector<std::unique_ptr<DeviceMatrix<Value>>> matrices;
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> offsets;
  std::vector<AxisInput<Value>> views;
  for (const Fields& input : inputs) {
    matrices.push_back(std::make_unique<DeviceMatrix<Value>>(converted<Value>(input.values), input.rows, input.cols,
                                                             input.cols + placement.gap, placement.skip));
    offsets.push_back(std::make_unique<DeviceArray<int64_t>>(input.offsets));
    views.push_back({matrices.back()->view(), input.offsets.empty() ? nullptr : offsets.back()->data()});
  }
  const int64_t cols = options.reduce ? 1 : dim;
  DeviceMatrix<Out> y(rows, cols, cols + placement.gap, placement.skip + placement.y_skip);
  Fm<Value, Out>(views, dim, y.view(), nullptr, options, policies).launch({}, stream);
  return y.read();
}

template <class Value, class Out>
void expect_reference(const std::vector<Fields>& inputs, int64_t dim, int64_t rows, Placement placement, int seeds) {
  std::vector<SegmentedInput> views;
  for (const Fields& input : inputs) views.push_back(input.view());
  Config config;
  config.multiprocessors = 1;  // a grid so small that it goes on to further rows
  for (const bool reduce : {true, false}) {
    SCOPED_TRACE("rows " + std::to_string(rows) + ", dim " + std::to_string(dim) + ", reduce " +
                 std::to_string(reduce) + ", gap " + std::to_string(placement.gap));
    const std::vector<Out> y =
        in_every_order([&] { return run<Value, Out>(inputs, dim, rows, {reduce}, placement); }, seeds, config);
    expect_within(warprank::reference::fm(views, dim, reduce, rows), y, 1);
  }
}

template <class Types>
class FmKernel : public testing::Test {};
template <class Value, class Out>
struct Types {
  using value = Value;
  using out = Out;
};
struct NameOf {
  template <class Case>
  static std::string GetName(int) {
    using warprank::dtype_of;
    return std::string(name_of(dtype_of<typename Case::value>)) + "_" + name_of(dtype_of<typename Case::out>);
  }
};
using AllTypes =
    testing::Types<Types<float, float>, Types<float, float16>, Types<float16, float>, Types<float16, float16>>;
TYPED_TEST_SUITE(FmKernel, AllTypes, NameOf);

TYPED_TEST(FmKernel, MatchesTheSumOverPairsForEveryDim) {
  using Value = typename TypeParam::value;
  for (const int64_t dim : {1, 3, 4, 8, 16, 20, 32, 64, 128, 129, 132, 256, 512})
    for (const float scale : {0.01f, 1.f})
      for (const int64_t rows : {0, 1, 37}) {
        const std::vector<Fields> inputs = {random_fields<Value>(rows, 4 * dim, 1, scale),
                                            random_fields<Value>(rows, dim, 2, scale)};
        expect_reference<Value, typename TypeParam::out>(inputs, dim, rows, {}, 2);
      }
}

TYPED_TEST(FmKernel, TakesRowsThatAreStridedAndMisaligned) {
  using Value = typename TypeParam::value;
  for (const Placement placement : {Placement{4, 4}, Placement{4, 1}, Placement{3, 0}, Placement{4, 4, 1}}) {
    const std::vector<Fields> inputs = {random_fields<Value>(9, 24, 1), random_fields<Value>(9, 8, 2)};
    expect_reference<Value, typename TypeParam::out>(inputs, 8, 9, placement, 5);
  }
  // Rows that are aligned, of fields that are not.
  expect_reference<Value, typename TypeParam::out>({random_fields<Value>(9, 24, 1)}, 6, 9, {}, 5);
}

TYPED_TEST(FmKernel, TakesFieldsFromSeveralAncestors) {
  using Value = typename TypeParam::value;
  const int64_t rows = 100;
  const std::vector<int64_t> users = {0, 0, 7, 7, 8, 100, 100}, sessions = {0, 3, 3, 7, 8, 8, 98, 100};
  for (const int64_t dim : {12, 16, 64}) {
    const std::vector<Fields> inputs = {
        random_fields<Value>(6, 3 * dim, 1, 1, users), random_fields<Value>(rows, 2 * dim, 2),
        random_fields<Value>(7, dim, 3, 1, sessions), random_fields<Value>(6, 2 * dim, 4, 1, users)};
    expect_reference<Value, typename TypeParam::out>(inputs, dim, rows, {}, dim == 64 ? 3 : 20);
  }
}

TEST(FmKernelBits, DoNotDependOnHowRowsAreDivided) {
  const std::vector<Fields> inputs = {random_fields<float16>(3, 48, 1, 1, {0, 40, 41, 150}),
                                      random_fields<float16>(150, 32, 2)};
  const auto with = [&](const LaunchPolicies& policies) {
    return run<float16, float16>(inputs, 16, 150, {}, {}, {}, policies);
  };
  expect_same_bits(&LaunchPolicies::fm_rows_of_one_each, {0, 1000}, with);
  expect_same_bits(&LaunchPolicies::fm_rows_per_warp, {1, 2, 3, 4}, with);
}

/// From one vector to more than a warp has in flight, of rows, of an ancestor, and of both.
TYPED_TEST(FmKernel, TakesAnyNumberOfFields) {
  using Value = typename TypeParam::value;
  for (const int64_t dim : {8, 32})
    for (const int64_t fields : {1, 2, 3, 31, 33, 70, 170}) {
      const Fields user = random_fields<Value>(1, fields * dim, 1, 1, {0, 3}),
                   item = random_fields<Value>(3, fields * dim, 2), other = random_fields<Value>(3, 3 * dim, 3);
      expect_reference<Value, typename TypeParam::out>({user}, dim, 3, {}, 1);
      expect_reference<Value, typename TypeParam::out>({other, item}, dim, 3, {}, 1);
      expect_reference<Value, typename TypeParam::out>({item, user, other}, dim, 3, {}, 1);
    }
}

TEST(FmKernelRows, HaveNoPairsInOneFieldAndNoneInNone) {
  expect_reference<float, float>({random_fields<float>(3, 8, 1)}, 8, 3, {}, 2);
  expect_reference<float, float>({{{}, 3, 0, {}}}, 8, 3, {}, 2);
  expect_reference<float, float>({}, 8, 3, {}, 2);
}

/// (sum e)^2 - sum e^2 would lose every digit here.
TEST(FmKernelRows, KeepTheProductOfASmallAndALargeField) {
  reset();
  EXPECT_FLOAT_EQ((run<float, float>({{{1e4f, 1e-4f}, 1, 2, {}}}, 1, 1)[0]), 1.f);
}

void expect_same_bits_alone(int64_t dim) {
  SCOPED_TRACE("dim " + std::to_string(dim));
  const std::vector<int64_t> users = {0, 2, 2, 8};
  const Fields user = random_fields<float16>(3, 3 * dim, 1, 1, users), item = random_fields<float16>(8, 4 * dim, 2);
  reset();
  const std::vector<float> together = run<float16, float>({user, item}, dim, 8);
  const auto row_of = [](const Fields& fields, int64_t row, std::vector<int64_t> offsets) {
    const auto begin = fields.values.begin() + row * fields.cols;
    return Fields{{begin, begin + fields.cols}, 1, fields.cols, std::move(offsets)};
  };
  for (int64_t n = 0; n < 8; ++n) {
    reset();
    const std::vector<float> alone =
        run<float16, float>({row_of(user, n < 2 ? 0 : 2, {0, 1}), row_of(item, n, {})}, dim, 1);
    EXPECT_EQ(alone[0], together[static_cast<size_t>(n)]) << "row " << n;
  }
}
TEST(FmKernelRows, HaveTheSameBitsAloneAndAmongOthers) {
  for (const int64_t dim : {16, 24}) expect_same_bits_alone(dim);
}

TEST(FmKernelRows, PassOnNaNAndInfinityAlone) {
  Fields x = random_fields<float>(3, 12, 1);
  x.values[12 + 5] = std::numeric_limits<float>::quiet_NaN();
  x.values[0] = std::numeric_limits<float>::infinity();
  reset();
  const std::vector<float> y = run<float, float>({x}, 4, 3);
  EXPECT_FALSE(std::isfinite(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isfinite(y[2]));
}

/// One graph, captured for 40 rows and 5 segments, replayed for fewer: counts and offsets are read in device memory.
TEST(FmKernelGraph, FollowsTheCountsInDeviceMemory) {
  const int64_t dim = 4, capacity = 40;
  const Fields user = random_fields<float>(5, 2 * dim, 1), item = random_fields<float>(capacity, 2 * dim, 2);
  in_every_order(
      [&] {
        DeviceMatrix<float> of_user(user.values, 5, 2 * dim), of_item(item.values, capacity, 2 * dim);
        DeviceArray<int64_t> offsets(6), num_segments(1), num_rows(1);
        const std::vector<AxisInput<float>> inputs = {{of_user.view(), offsets.data(), num_segments.data()},
                                                      {of_item.view()}};
        const DeviceMatrix<float> unwritten(capacity, 1);
        DeviceMatrix<float> y(capacity, 1);
        const Fm<float, float> fm(inputs, dim, y.view(), num_rows.data());
        const Stream stream = create_stream();
        begin_capture(stream);
        fm.launch({}, stream);
        const Graph graph = end_capture(stream);
        EXPECT_EQ(num_launches(graph), 1);
        for (const std::vector<int64_t>& ends : std::vector<std::vector<int64_t>>{{0, 9, 9, 30}, {0, 11}, {0}}) {
          offsets.write(ends);
          const int64_t segments = static_cast<int64_t>(ends.size()) - 1, rows = ends.back();
          num_segments.write({segments});
          num_rows.write({rows});
          fill(y.view().data, 0xff, capacity * 4);
          synchronize();
          launch(graph, stream);
          const std::vector<float> result = y.read();
          const SegmentedInput views[] = {{{user.values.data(), segments, 2 * dim}, {ends.data(), segments}},
                                          {{item.values.data(), rows, 2 * dim}}};
          const auto written = result.begin() + rows;
          expect_within(warprank::reference::fm({views, 2}, dim, true, rows),
                        std::vector<float>(result.begin(), written), 1);
          for (auto row = written; row != result.end(); ++row) EXPECT_TRUE(std::isnan(*row)) << "beyond the count";
        }
      },
      20);
}

TEST(FmKernelMemory, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  for (const int64_t dim : {4, 8}) {  // the general kernel, and that with a warp for each row
    reset();
    const int64_t stride = (int64_t{1} << 30) + dim;  // 4 GB in three rows, mostly untouched
    DeviceArray<float16> x(2 * stride + 2 * dim);
    const Fields rows = random_fields<float16>(3, 2 * dim, 1);
    for (int64_t n = 0; n < 3; ++n) {
      const auto begin = rows.values.begin() + n * 2 * dim;
      x.write(converted<float16>({begin, begin + 2 * dim}), n * stride);
    }
    DeviceMatrix<float> y(3, 1);
    const std::vector<AxisInput<float16>> inputs = {{{x.data(), 3, 2 * dim, stride}}};
    Fm<float16, float>(inputs, dim, y.view()).launch({});
    const SegmentedInput view = rows.view();
    expect_within(warprank::reference::fm({&view, 1}, dim, true, 3), y.read(), 1);
  }
}

/// What is not counted in 32 bits is the general kernel's.
TEST(FmKernelMemory, IsLeftToTheGeneralKernelWhereRowsOrStridesAreLarger) {
  const auto has_rows_kernel = [](int64_t rows, int64_t rows_of_input, int64_t stride) {
    warprank::detail::fm::Arguments<float16, float> arguments{};
    arguments.inputs[0].values = {reinterpret_cast<const float16*>(64), rows_of_input, 16, stride};
    arguments.num_inputs = 1, arguments.dim = 8, arguments.reduce = true;
    arguments.y.rows = rows;
    return warprank::detail::fm::has_rows_kernel(arguments);
  };
  constexpr int64_t most_rows = int64_t{1} << 30, most_stride = (int64_t{1} << 31) - 8;
  EXPECT_TRUE(has_rows_kernel(most_rows, most_rows, most_stride));
  EXPECT_FALSE(has_rows_kernel(most_rows + 1, 1, 16));
  EXPECT_FALSE(has_rows_kernel(1, most_rows + 1, 16));
  EXPECT_FALSE(has_rows_kernel(1, 1, most_stride + 8));
}

/// PyTorch's results, of six requests side by side.
TEST(FmKernelGolden, GivesWhatPyTorchGives) {
  using warprank::test_support::golden_tensor;
  const auto user = golden_tensor<float>("interactions", "dense/of_user"),
             item = golden_tensor<float>("interactions", "dense/of_item");
  std::vector<int64_t> offsets = {0};
  for (const int64_t rows : item.rows) offsets.push_back(offsets.back() + rows);
  const int64_t dim = 4, rows = offsets.back();
  const std::vector<Fields> inputs = {{user.values, static_cast<int64_t>(user.rows.size()), 8, offsets},
                                      {item.values, rows, 12, {}}};
  const std::vector<SegmentedInput> views = {inputs[0].view(), inputs[1].view()};
  ASSERT_GT(rows, 0);
  for (const bool reduce : {true, false}) {
    reset();
    auto exact = warprank::reference::fm(views, dim, reduce, rows);
    exact.value = golden_tensor<double>("interactions", reduce ? "output/fm" : "output/fm_vector").values;
    expect_within(exact, run<float, float>(inputs, dim, rows, {reduce}), 1);
  }
}

/// 24 fields of a user and 36 of each of 100 items, dim 16: what DSP models have.
TEST(FmKernelCounts, ReadsEachFieldOfARowOnceAndThoseOfAUserOnceForRowsOfAWarp) {
  if constexpr (build == Build::plain) {
    for (const bool has_few_rows : {true, false}) {
      Config config;
      config.count_sectors = true;
      config.multiprocessors = has_few_rows ? 100 : 1;
      reset(config);
      const int64_t dim = 16, rows = 100, warps = has_few_rows ? rows : rows / usual_policies().fm_rows_per_warp;
      const std::vector<Fields> inputs = {random_fields<float16>(1, 24 * dim, 1, 1, {0, rows}),
                                          random_fields<float16>(rows, 36 * dim, 2)};
      const auto launch = [&] { run<float16, float>(inputs, dim, rows); };
      clear_counters();
      launch();
      EXPECT_EQ(counters().launches, 1);
      EXPECT_EQ(counters().blocks, (warps + 3) / 4);
      EXPECT_EQ(counters().atomics, 0);
      EXPECT_EQ(counters().barriers, 0);
      // 16 halves are one sector.
      EXPECT_EQ(counters().global_load_sectors, rows * 36 + warps * 24);
      EXPECT_EQ(counters().global_store_sectors, rows);
      // Of a row: a row of the user for each of its vectors' requests, half of the columns given away by 4 + 2 + 1 + 1
      // shuffles, and the pairs of all lanes.
      EXPECT_EQ(counters().collectives, warps + rows * (8 + 5));
    }
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

#if !defined(__CUDACC__)
TEST(FmKernelHost, AgreesWithTheHostPath) {
  const int64_t dim = 8, rows = 50;
  const std::vector<Fields> inputs = {random_fields<float>(2, 24, 1, 1, {0, 20, rows}),
                                      random_fields<float>(rows, 32, 2)};
  const std::vector<SegmentedInput> views = {inputs[0].view(), inputs[1].view()};
  std::vector<float> host(rows), workspace(static_cast<size_t>(warprank::host_ops::fm_workspace(dim)));
  warprank::host_ops::fm(views, dim, true, {host.data(), rows, 1}, workspace);
  reset();
  warprank::reference::Bounded between = warprank::reference::fm(views, dim, true, rows);
  between.value.assign(host.begin(), host.end());
  expect_within(between, run<float, float>(inputs, dim, rows), 2);
}
#endif

/// What the constructor says to arguments that differ from good ones in one way.
class FmKernelArguments : public testing::Test {
 protected:
  template <class Change>
  void expect_refused(Change change, const std::string& message) {
    SCOPED_TRACE(message);
    float memory[64] = {};
    std::vector<AxisInput<float>> inputs = {{{memory, 2, 8}}};
    Matrix<float> y{warprank::test_support::far_away<float>(), 2, 1};
    int64_t dim = 4;
    Fm<float, float>(inputs, dim, y);
    change(inputs, dim, y);
    try {
      Fm<float, float>(inputs, dim, y);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const warprank::invalid_argument& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
};

TEST_F(FmKernelArguments, AreRefusedWhereTheyDoNotFit) {
  using Inputs = std::vector<AxisInput<float>>&;
  using Y = Matrix<float>&;
  expect_refused([](Inputs, int64_t& dim, Y) { dim = 0; }, "fm: dim: expected at least 1, got 0");
  expect_refused([](Inputs, int64_t& dim, Y) { dim = 3; }, "fm: input 0: expected a multiple of 3 columns, got 8");
  expect_refused([](Inputs inputs, int64_t&, Y) { inputs.resize(9, inputs[0]); },
                 "fm: inputs: expected at most 8, got 9");
  expect_refused([](Inputs inputs, int64_t&, Y) { inputs[0].values.rows = 1; }, "fm: input 0: expected 2 rows, got 1");
  expect_refused([](Inputs inputs, int64_t&, Y) { inputs[0].values.stride = 7; },
                 "fm: input 0: expected rows at least 8 elements apart, got 7");
  expect_refused([](Inputs inputs, int64_t&, Y) { inputs[0].values.data = nullptr; },
                 "fm: input 0: expected an address, got null");
  expect_refused(
      [](Inputs inputs, int64_t&, Y y) { y.data = const_cast<float*>(inputs[0].values.data) + 15, y.rows = 1; },
      "fm: y: expected memory of its own, got an overlap with input 0");
  expect_refused([](Inputs, int64_t&, Y y) { y.cols = y.stride = 2; }, "fm: y: expected 1 columns, got 2");
  expect_refused([](Inputs, int64_t&, Y y) { y.rows = -1; }, "fm: y: expected a shape, got [-1, 1]");
  expect_refused([](Inputs, int64_t&, Y y) { y.data = reinterpret_cast<float*>(reinterpret_cast<char*>(y.data) + 2); },
                 "fm: y: expected an address aligned to 4 bytes, got 2 bytes behind one");
}

}  // namespace
