// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "reference/reduce.hpp"
#include "support/axis_input_testing.hpp"
#include "support/counts.hpp"
#include "support/kernel_testing.hpp"
#include "support/policy_testing.hpp"
#include "warprank/ops/segment_reduce.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/segment_reduce.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::DType;
using warprank::FloatMatrix;
using warprank::LaunchPolicies;
using warprank::Matrix;
using warprank::Pooling;
using warprank::SegmentReduceLaunch;
using warprank::SegmentReduction;
using Half = warprank::float16;

const std::vector<Pooling> poolings = {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max};
/// Around the pieces of 8 rows that a segment is cut into, and the 32 that a block has at a time.
const std::vector<int64_t> ragged = {0, 1, 7, 0, 8, 9, 2, 127, 128, 129, 257, 3, 0};

/// A reduction on the host.
template <class Value>
struct Case {
  explicit Case(std::vector<int64_t> of_segments, int64_t cols, Pooling pooling = Pooling::sum,
                Placement placement = {}, float scale = 1)
      : lengths(std::move(of_segments)),
        cols(cols),
        pooling(pooling),
        placement(placement),
        x(random_values<Value>(offsets_of(lengths).back(), cols, 1, scale)) {}

  std::vector<int64_t> lengths;
  int64_t cols;
  Pooling pooling;
  Placement placement;
  int64_t spare_segments = 0;  // capacity beyond the segments
  AxisValues x;

  int64_t num_segments() const { return static_cast<int64_t>(lengths.size()); }
};

/// What the segments of each case are, of one launch.
template <class Value, class Out>
std::vector<std::vector<Out>> run(const std::vector<Case<Value>>& cases,
                                  const LaunchPolicies& policies = usual_policies()) {
  std::vector<std::unique_ptr<DeviceAxisInput<Value>>> inputs;
  std::vector<std::unique_ptr<DeviceMatrix<Out>>> outputs;
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> offsets, counts;
  std::vector<SegmentReduction> reductions;
  for (const Case<Value>& c : cases) {
    inputs.push_back(std::make_unique<DeviceAxisInput<Value>>(c.x, c.placement));
    outputs.push_back(std::make_unique<DeviceMatrix<Out>>(c.num_segments() + c.spare_segments, c.cols,
                                                          c.cols + c.placement.gap, c.placement.skip));
    offsets.push_back(std::make_unique<DeviceArray<int64_t>>(c.num_segments() + c.spare_segments + 1));
    offsets.back()->write(offsets_of(c.lengths));
    counts.push_back(std::make_unique<DeviceArray<int64_t>>(std::vector<int64_t>{c.num_segments()}));
    reductions.push_back({inputs.back()->view().values, offsets.back()->data(),
                          c.spare_segments > 0 ? counts.back()->data() : nullptr, c.pooling, outputs.back()->view()});
  }
  const SegmentReduceLaunch launch(reductions, policies);
  launch.launch({});
  std::vector<std::vector<Out>> results;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<Out> y = outputs[i]->read();
    const auto used = static_cast<size_t>(cases[i].num_segments() * cases[i].cols);
    for (size_t k = used; k < y.size(); ++k) {
      EXPECT_TRUE(std::isnan(warprank::to_float(y[k]))) << "a segment that is none was written";
    }
    y.resize(used);
    results.push_back(y);
  }
  return results;
}

template <class Value>
warprank::reference::Bounded reference_of(const Case<Value>& c) {
  const std::vector<int64_t> offsets = offsets_of(c.lengths);
  return warprank::reference::segment_reduce(c.x.view().values, {offsets.data(), c.num_segments()}, c.pooling);
}

template <class Value, class Out>
void expect_reference(const std::vector<Case<Value>>& cases) {
  const auto results = run<Value, Out>(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("cols " + std::to_string(cases[i].cols) + ", " + name_of_enum(cases[i].pooling));
    expect_within(reference_of(cases[i]), results[i], 1);
  }
}

template <class Types>
class SegmentReduceKernel : public testing::Test {};
template <class Value, class Out>
struct Types {
  using value = Value;
  using out = Out;
};
using AllTypes = testing::Types<Types<float, float>, Types<float, Half>, Types<Half, float>, Types<Half, Half>>;
TYPED_TEST_SUITE(SegmentReduceKernel, AllTypes, );

TYPED_TEST(SegmentReduceKernel, MatchesTheFormulaForRaggedSegmentsOfEveryWidth) {
  using Value = typename TypeParam::value;
  for (const float scale : {1e-3f, 1.0f, 100.0f}) {
    std::vector<Case<Value>> cases;
    for (const int64_t cols : {0, 1, 3, 8, 36, 70})
      for (const Pooling pooling : poolings) cases.emplace_back(ragged, cols, pooling, Placement{}, scale);
    reset();
    expect_reference<Value, typename TypeParam::out>(cases);
  }
}

TYPED_TEST(SegmentReduceKernel, TakesRowsThatAreStridedAndMisaligned) {
  using Value = typename TypeParam::value;
  std::vector<Case<Value>> cases;
  for (const Placement placement : {Placement{4, 4}, Placement{4, 1}, Placement{3, 0}}) {
    cases.emplace_back(ragged, 12, Pooling::mean, placement);
  }
  reset();
  expect_reference<Value, typename TypeParam::out>(cases);
}

TEST(SegmentReduceKernelOrders, GiveLongAndShortSegmentsInEveryOrderOfThreads) {
  std::vector<Case<Half>> cases = {Case<Half>({3, 400, 0, 33}, 20, Pooling::mean),
                                   Case<Half>(std::vector<int64_t>(70, 2), 5), Case<Half>({1100}, 32)};
  cases[2].spare_segments = 3;
  in_every_order([&] { expect_reference<Half, float>(cases); });
}

TEST(SegmentReduceKernelShapes, MayHaveNoSegmentsNoRowsAndManyRows) {
  reset();
  expect_reference<float, float>({Case<float>({}, 4), Case<float>({0, 0, 0}, 21, Pooling::max),
                                  Case<float>({20011}, 4, Pooling::sqrtn), Case<float>({5}, 0)});
}

TEST(SegmentReduceKernelBits, DoNotDependOnHowSegmentsAreDivided) {
  const auto with = [](const LaunchPolicies& policies) {
    return run<float, float>({Case<float>(ragged, 20, Pooling::mean)}, policies)[0];
  };
  expect_same_bits(&LaunchPolicies::segment_reduce_blocks, {1, 1000}, with);
}

TEST(SegmentReduceKernelBits, AreTheSameAloneAndAmongOthers) {
  std::vector<int64_t> lengths = ragged;
  for (int i = 0; i < 5; ++i) lengths.insert(lengths.end(), ragged.begin(), ragged.end());
  for (const Pooling pooling : {Pooling::mean, Pooling::sqrtn}) {
    const Case<float> all(lengths, 20, pooling);  // sums of FP16 would be exact in any order
    reset();
    const std::vector<float> together = run<float, float>({all})[0];
    const std::vector<int64_t> offsets = offsets_of(lengths);
    std::vector<Case<float>> alone;
    for (size_t s = 0; s < ragged.size(); ++s) {
      Case<float> one({lengths[s]}, 20, pooling);
      one.x = {
          {all.x.values.begin() + offsets[s] * 20, all.x.values.begin() + offsets[s + 1] * 20}, lengths[s], 20, {}};
      one.spare_segments = static_cast<int64_t>(s) * 300;  // how many segments a block has depends on the capacity
      alone.push_back(one);
    }
    const auto results = run<float, float>(alone);
    for (size_t s = 0; s < alone.size(); ++s) {
      const auto begin = together.begin() + static_cast<int64_t>(s) * 20;
      EXPECT_TRUE(detail::same_bits(results[s], std::vector<float>(begin, begin + 20))) << s;
    }
  }
}

TEST(SegmentReduceKernelNumbers, PassOnNaNInTheirSegmentAndColumnOnly) {
  for (const Pooling pooling : poolings)
    for (const int64_t row : {0, 1, 40}) {
      Case<float> c({2, 50}, 8, pooling);
      c.x.values[static_cast<size_t>((2 + row) * 8 + 5)] = NAN;
      reset();
      const std::vector<float> y = run<float, float>({c})[0];
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 8 + 5) << i;
    }
}

TEST(SegmentReduceKernelGraph, FollowsTheOffsetsInDeviceMemory) {
  const int64_t rows = 300, cols = 6, capacity = 10;
  const AxisValues x = random_values<float>(rows, cols, 1);
  in_every_order(
      [&] {
        DeviceMatrix<float> values(x.values, rows, cols), y(capacity, cols);
        DeviceArray<int64_t> offsets(capacity + 1, 0), count(1);
        const SegmentReduction reduction{values.view(), offsets.data(), count.data(), Pooling::sum, y.view()};
        const SegmentReduceLaunch launch_of_one({&reduction, 1});
        const Stream stream = create_stream();
        begin_capture(stream);
        launch_of_one.launch({}, stream);
        const Graph graph = end_capture(stream);
        EXPECT_EQ(num_launches(graph), 1);
        for (const auto& lengths : std::vector<std::vector<int64_t>>{{1, 200, 0, 99}, {}, {40, 40}}) {
          const auto num_segments = static_cast<int64_t>(lengths.size());
          const std::vector<int64_t> bounds = offsets_of(lengths);
          offsets.write(bounds);
          count.write({num_segments});
          fill(y.view().data, 0xff, capacity * cols * 4);
          synchronize();
          launch(graph, stream);
          std::vector<float> result = y.read();
          for (size_t i = lengths.size() * cols; i < result.size(); ++i) EXPECT_TRUE(std::isnan(result[i]));
          result.resize(lengths.size() * cols);
          expect_within(
              warprank::reference::segment_reduce(x.view().values, {bounds.data(), num_segments}, Pooling::sum), result,
              1);
        }
      },
      5);
}

/// Segments that end behind the last row have less, those that begin there none.
TEST(SegmentReduceKernelGraph, ReadsNoRowBeyondTheCapacity) {
  const AxisValues x = random_values<float>(5, 4, 1);
  for (const Pooling pooling : poolings) {
    reset();
    DeviceMatrix<float> values(x.values, 5, 4), y(3, 4);
    const DeviceArray<int64_t> offsets(std::vector<int64_t>{0, 3, 1000, 1003}), count(1, int64_t{50});
    const SegmentReduction reduction{values.view(), offsets.data(), count.data(), pooling, y.view()};
    const SegmentReduceLaunch launch({&reduction, 1});
    launch.launch({});
    const std::vector<int64_t> bounds = {0, 3, 5, 5};
    SCOPED_TRACE(name_of_enum(pooling));
    expect_within(warprank::reference::segment_reduce(x.view().values, {bounds.data(), 3}, pooling), y.read(), 1);
  }
}

TEST(SegmentReduceKernelLaunches, TakeMoreMatricesThanOneHas) {
  std::vector<Case<float>> cases;
  for (int64_t i = 0; i < 49; ++i) cases.emplace_back(std::vector<int64_t>{i, 2, 40}, 1 + i % 5);
  reset();
  clear_counters();
  expect_reference<float, float>(cases);
  expect_launches(3);
}

TEST(SegmentReduceCounts, ReadAndWriteEachSectorOnce) {
  if constexpr (build != Build::plain) GTEST_SKIP() << "counted in the plain build";
  Config config;
  config.count_sectors = true;
  CountTable table({"segments", "rows of each", "columns", "sectors read", "/ bytes of x", "sectors written"});
  struct Shape {
    int64_t segments, rows, cols;
  };
  // Histories of users, and tags of items: offsets are extra.
  for (const Shape& shape : {Shape{1, 200, 64}, Shape{8, 200, 64}, Shape{1000, 4, 32}}) {
    const Case<Half> c(std::vector<int64_t>(static_cast<size_t>(shape.segments), shape.rows), shape.cols);
    const int64_t read = shape.segments * shape.rows * shape.cols * 2 / 32;
    reset(config);
    clear_counters();
    run<Half, Half>({c});
    const Counters counted = counters();
    EXPECT_EQ(counted.launches, 1);
    EXPECT_EQ(counted.atomics, 0);
    EXPECT_EQ(counted.global_store_sectors, shape.segments * shape.cols * 2 / 32);
    EXPECT_GE(counted.global_load_sectors, read);
    EXPECT_LE(static_cast<double>(counted.global_load_sectors), 1.1 * static_cast<double>(read));
    table.add(shape.segments, shape.rows, shape.cols, counted.global_load_sectors,
              over(counted.global_load_sectors, static_cast<double>(read)), counted.global_store_sectors);
  }
}

TEST(SegmentReduceKernelMemory, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  reset();
  const int64_t cols = 4, stride = (int64_t{1} << 30) + 4;  // 4 GB in three rows, mostly untouched
  const AxisValues rows = random_values<Half>(3, cols, 1);
  DeviceArray<Half> x(2 * stride + cols);
  for (int64_t n = 0; n < 3; ++n) x.write(converted<Half>(rows.row(n).values), n * stride);
  const DeviceArray<int64_t> offsets(std::vector<int64_t>{0, 1, 3});
  DeviceMatrix<float> y(2, cols);
  const SegmentReduction reduction{Matrix<const Half>(x.data(), 3, cols, stride), offsets.data(), nullptr, Pooling::sum,
                                   y.view()};
  const SegmentReduceLaunch launch({&reduction, 1});
  launch.launch({});
  const std::vector<int64_t> bounds = {0, 1, 3};
  expect_within(warprank::reference::segment_reduce(rows.view().values, {bounds.data(), 2}, Pooling::sum), y.read(), 1);
}

#if !defined(__CUDACC__)
TEST(SegmentReduceKernelHost, AgreesWithTheHostPath) {
  for (const Pooling pooling : poolings) {
    const Case<float> c(ragged, 19, pooling);
    const std::vector<int64_t> offsets = offsets_of(c.lengths);
    std::vector<float> host(static_cast<size_t>(c.num_segments() * c.cols));
    warprank::host_ops::segment_reduce(c.x.view().values, {offsets.data(), c.num_segments()}, pooling,
                                       {host.data(), c.num_segments(), c.cols});
    warprank::reference::Bounded between = reference_of(c);
    between.value.assign(host.begin(), host.end());
    reset();
    expect_within(between, run<float, float>({c})[0], 2);
  }
}
#endif

TEST(SegmentReduceKernelArguments, AreRefusedWhereTheyDoNotFit) {
  float memory[64] = {};
  const int64_t offsets[3] = {};
  const auto refusal = [&](const std::function<void(SegmentReduction&)>& change) -> std::string {
    SegmentReduction reductions[2] = {
        {Matrix<const float>(memory, 4, 8), offsets, nullptr, Pooling::sum, Matrix<float>(memory + 32, 2, 8)},
        {Matrix<const float>(memory, 4, 8), offsets, nullptr, Pooling::sum, Matrix<float>(memory + 48, 2, 8)}};
    change(reductions[0]);
    try {
      SegmentReduceLaunch({reductions, 2});
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& r) { r.y.cols = 7; }), "segment reduction 0's y: expected [2, 8], got [2, 7]");
  EXPECT_EQ(refusal([](auto& r) { r.x.type = DType::i8; }), "segment reduction 0's x: expected F16 or F32, got I8");
  EXPECT_EQ(refusal([](auto& r) { r.x.stride = 7; }),
            "segment reduction 0's x: expected a stride of at least its 8 columns, got 7");
  EXPECT_EQ(refusal([](auto& r) { r.offsets = nullptr; }),
            "segment reduction 0's offsets: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& r) { r.pooling = Pooling::none; }),
            "segment reduction 0's pooling: expected sum, mean, sqrtn or max, got none");
  EXPECT_EQ(refusal([&](auto& r) { r.y = Matrix<float>(memory + 47, 2, 8); }),
            "y of segment reduction 0: expected memory of its own, got an overlap with y of reduction 1");
  EXPECT_EQ(
      refusal([&](auto& r) { r.y = Matrix<float>(memory + 31, 2, 8); }),
      "2 problems:\n  y of segment reduction 0: expected memory of its own, got an overlap with x of reduction 0\n"
      "  y of segment reduction 0: expected memory of its own, got an overlap with x of reduction 1");
}

}  // namespace
