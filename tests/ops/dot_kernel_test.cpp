// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "reference/dot.hpp"
#include "support/axis_input_testing.hpp"
#include "support/far_away.hpp"
#include "support/golden_tensors.hpp"
#include "support/kernel_testing.hpp"
#include "support/policy_testing.hpp"
#include "warprank/ops/dot.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/dot.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::AxisInput;
using warprank::Dot;
using warprank::DotOrder;
using warprank::DotPairs;
using warprank::float16;
using warprank::LaunchPolicies;
using warprank::Matrix;
using warprank::num_dot_pairs;
using warprank::SegmentedInput;

const std::vector<DotPairs> variants = {{DotOrder::lower, false},        {DotOrder::lower, true},
                                        {DotOrder::upper, false},        {DotOrder::upper, true},
                                        {DotOrder::lower_padded, false}, {DotOrder::lower_padded, true}};

/// Products between two sets of fields, of which the first are `num_left`.
DotPairs between(int64_t num_left) { return {DotOrder::lower, false, num_left}; }

/// All orders, and products between two sets of fields: one of them small, or of about the same size.
std::vector<DotPairs> variants_of(int64_t num_fields) {
  std::vector<DotPairs> all = variants;
  for (const int64_t num_left : {int64_t{1}, num_fields / 2, num_fields - 1}) all.push_back(between(num_left));
  return all;
}

int64_t num_fields_of(const std::vector<AxisValues>& inputs, int64_t dim) {
  int64_t cols = 0;
  for (const AxisValues& input : inputs) cols += input.cols;
  return cols / dim;
}

template <class Out>
std::vector<Out> run(const std::vector<AxisValues>& inputs, int64_t dim, int64_t rows, DotPairs variant,
                     Placement placement = {}, const LaunchPolicies& policies = usual_policies()) {
  const DeviceAxisInputs<float16> on_device(inputs, placement);
  const int64_t cols = num_dot_pairs(num_fields_of(inputs, dim), variant);
  DeviceMatrix<Out> y(rows, cols, cols + placement.gap, placement.skip);
  Dot<Out>(on_device.views(), dim, variant, y.view(), nullptr, policies).launch({});
  return y.read();
}

/// Executor: products summed in their order, one rounding each. Tensor cores cut off.
constexpr double c = on_gpu ? 2 : 1;

template <class Out>
void expect_reference(const std::vector<AxisValues>& inputs, int64_t dim, int64_t rows, DotPairs variant,
                      Placement placement = {}, int seeds = 1) {
  SCOPED_TRACE("dim " + std::to_string(dim) + ", rows " + std::to_string(rows) + ", fields " +
               std::to_string(num_fields_of(inputs, dim)) + ", order " + name_of_enum(variant.order) + ", self " +
               std::to_string(variant.self) + ", left " + std::to_string(variant.num_left));
  for_each_target([&](const Config& config) {
    const std::vector<Out> y =
        in_every_order([&] { return run<Out>(inputs, dim, rows, variant, placement); }, seeds, config);
    expect_within(warprank::reference::dot(views_of(inputs), dim, variant, rows), y, c);
  });
}

TEST(DotKernel, MatchesEachPairForEveryNumberOfFields) {
  for (int64_t fields = 0; fields <= 35; ++fields) {
    expect_reference<float>({random_values<float16>(2, fields * 8, 1)}, 8, 2,
                            variants[static_cast<size_t>(fields % 6)]);
  }
}

TEST(DotKernel, MatchesEachPairBetweenTwoSetsOfFields) {
  for (const int64_t fields : {2, 3, 8, 15, 16, 17, 25, 35})
    for (const int64_t num_left : {1, 7, 8, 9, 16, 17, 24, 34}) {
      if (num_left >= fields) continue;
      expect_reference<float>({random_values<float16>(2, fields * 8, 1)}, 8, 2, between(num_left));
      expect_reference<float16>({random_values<float16>(2, fields * 6, 1)}, 6, 2, between(num_left));
    }
}

/// The fields that kernels are compiled for, up to the last of a group and beyond the last group.
TEST(DotKernel, MatchesEachPairForEveryDimAndNumberOfGroups) {
  for (const int64_t dim : {8, 16, 32, 64, 128})
    for (const int64_t fields : {2, 16, 17, 27, 33, 48, 60, 64, 65}) {
      const int64_t of_user = fields / 2;
      const std::vector<AxisValues> inputs = {random_values<float16>(1, of_user * dim, 1, 1, {0, 3}),
                                              random_values<float16>(3, (fields - of_user) * dim, 2)};
      expect_reference<float16>(inputs, dim, 3, variants[static_cast<size_t>(fields % 6)]);
      expect_reference<float>(inputs, dim, 3, variants[static_cast<size_t>((fields + 3) % 6)]);
      expect_reference<float16>(inputs, dim, 3, between(of_user));
      expect_reference<float>(inputs, dim, 3, between(fields / 3 + 1));
    }
}

TEST(DotKernel, MatchesEachPairForEveryDim) {
  for (const int64_t dim : {1, 3, 7, 8, 9, 16, 20, 24, 32, 64, 128})
    for (const float scale : {0.01f, 1.f, 8.f}) {
      const std::vector<AxisValues> inputs = {random_values<float16>(5, 3 * dim, 1, scale),
                                              random_values<float16>(5, dim, 2, scale)};
      expect_reference<float>(inputs, dim, 5, variants[0]);
      expect_reference<float16>(inputs, dim, 5, variants[3]);
    }
}

TEST(DotKernel, HasNoRows) { expect_reference<float>({random_values<float16>(0, 12, 1)}, 4, 0, variants[0]); }

/// Ancestors first, last and between, so that their pairs lie anywhere in the output; segments of none, one and many.
TEST(DotKernel, TakesFieldsFromSeveralAncestorsInEveryOrderOfThreads) {
  const std::vector<int64_t> users = {0, 0, 7, 7, 8, 50, 50}, sessions = {0, 3, 3, 7, 8, 8, 48, 50};
  for (const int64_t dim : {6, 16, 32}) {
    const int64_t rows = 50;
    const AxisValues user = random_values<float16>(6, 9 * dim, 1, 1, users),
                     item = random_values<float16>(rows, 2 * dim, 2),
                     other_item = random_values<float16>(rows, 11 * dim, 3),
                     session = random_values<float16>(7, 3 * dim, 4, 1, sessions);
    for (const DotPairs& variant : variants_of(25)) {
      expect_reference<float>({user, item, session, other_item}, dim, rows, variant);
      expect_reference<float16>({item, session, other_item, user}, dim, rows, variant);
      if (variant.num_left < 12) expect_reference<float>({session, user}, dim, rows, variant);
    }
    expect_reference<float>({session, user}, dim, rows, between(5));
    expect_reference<float16>({user, item, session, other_item}, dim, rows, variants[1], {}, 20);
  }
}

/// More rows than run at the same time: a warp has several, of one segment or of many.
TEST(DotKernel, SharesTheFieldsOfAncestorsAmongTheRowsOfAWarp) {
  const int64_t rows = 150;
  const std::vector<int64_t> users = {0, 0, 5, 6, 7, 7, 90, 149, rows}, sessions = {0, 4, 4, 97, rows};
  for (const int64_t dim : {16, 64})
    for (const DotPairs& variant : variants_of(29)) {
      const AxisValues user = random_values<float16>(8, 17 * dim, 1, 1, users),
                       session = random_values<float16>(4, 9 * dim, 2, 1, sessions),
                       same_session = random_values<float16>(4, 4 * dim, 3, 1, sessions),
                       item = random_values<float16>(rows, 3 * dim, 4);
      expect_reference<float16>({user, session, same_session, item}, dim, rows, variant, {}, 3);
      expect_reference<float>({item, user, session}, dim, rows, variant, {8, 1}, 3);
    }
}

TEST(DotKernel, GivesTheSameBitsHoweverRowsAreDivided) {
  for (const int64_t dim : {16, 64}) {
    const std::vector<AxisValues> inputs = {random_values<float16>(3, 9 * dim, 1, 1, {0, 40, 41, 150}),
                                            random_values<float16>(150, 7 * dim, 2)};
    const auto with = [&](const LaunchPolicies& policies) {
      return run<float16>(inputs, dim, 150, variants[0], {}, policies);
    };
    expect_same_bits(&LaunchPolicies::dot_rows_of_one_each, {0, 1000}, with);
    expect_same_bits(dim == 16 ? &LaunchPolicies::dot_rows_per_warp : &LaunchPolicies::dot_rows_per_warp_wide,
                     {1, 2, 3, 4, 6, 8}, with);
  }
}

TEST(DotKernel, TakesAnyNumberOfAncestorFieldsAmongWholeTiles) {
  for (int64_t of_ancestor = 0; of_ancestor <= 32; of_ancestor += 3) {
    const AxisValues user = random_values<float16>(2, of_ancestor * 8, 1, 1, {0, 1, 3}),
                     item = random_values<float16>(3, (32 - of_ancestor) * 8, 2);
    expect_reference<float>({user, item}, 8, 3, variants[1]);
    expect_reference<float>({item, user}, 8, 3, variants[2]);
  }
}

TEST(DotKernel, TakesRowsThatAreStridedAndMisaligned) {
  for (const Placement placement : {Placement{8, 8}, Placement{8, 1}, Placement{3, 0}})
    for (const DotPairs& variant : {variants[0], variants[3], variants[4], between(1)}) {
      const std::vector<AxisValues> inputs = {random_values<float16>(9, 32, 1), random_values<float16>(9, 16, 2)};
      expect_reference<float16>(inputs, 8, 9, variant, placement, 3);
      expect_reference<float>(inputs, 8, 9, variant, placement, 3);
      // A row of y that lies within 16 bytes, and one of several times 512.
      expect_reference<float16>({inputs[1]}, 8, 9, variant, placement, 3);
      expect_reference<float>({random_values<float16>(5, 33 * 16, 3)}, 16, 5, variant, placement, 3);
    }
}

/// 60 fields of 256 leave room for one warp only; two blocks or more where there are few.
TEST(DotKernel, FitsItsWarpsToTheSharedMemory) {
  expect_reference<float>({random_values<float16>(6, 60 * 256, 1)}, 256, 6, variants[0]);
  expect_reference<float>({random_values<float16>(6, 20 * 128, 1), random_values<float16>(1, 7 * 128, 2, 1, {0, 6})},
                          128, 6, variants[0]);
}

TEST(DotKernel, GivesTheColumnsThatEachLibraryGives) {
  const AxisValues x{{2, 3, 5, 7}, 1, 4, {}};  // four fields of one column: every product names its pair
  reset();
  const auto columns = [&](DotOrder order, bool self) { return run<float>({x}, 1, 1, {order, self}); };
  EXPECT_EQ(columns(DotOrder::lower, false), (std::vector<float>{6, 10, 15, 14, 21, 35}));
  EXPECT_EQ(columns(DotOrder::lower, true), (std::vector<float>{4, 6, 9, 10, 15, 25, 14, 21, 35, 49}));
  EXPECT_EQ(columns(DotOrder::upper, false), (std::vector<float>{6, 10, 14, 15, 21, 35}));
  EXPECT_EQ(columns(DotOrder::upper, true), (std::vector<float>{4, 6, 10, 14, 9, 15, 21, 25, 35, 49}));
  EXPECT_EQ(columns(DotOrder::lower_padded, false), (std::vector<float>{6, 10, 15, 14, 21, 35, 0}));
  // Between two sets the order and `self` do not matter.
  for (const DotOrder order : {DotOrder::lower, DotOrder::upper, DotOrder::lower_padded})
    for (const bool self : {false, true}) {
      EXPECT_EQ(run<float>({x}, 1, 1, {order, self, 1}), (std::vector<float>{6, 10, 14}));
      EXPECT_EQ(run<float>({x}, 1, 1, {order, self, 2}), (std::vector<float>{10, 14, 15, 21}));
    }
}

void expect_same_bits_alone(int64_t dim, const DotPairs& pairs) {
  SCOPED_TRACE("dim " + std::to_string(dim) + ", left " + std::to_string(pairs.num_left));
  const int64_t rows = 70;
  const std::vector<int64_t> users = {0, 2, 2, rows};
  const AxisValues user = random_values<float16>(3, 3 * dim, 1, 1, users),
                   item = random_values<float16>(rows, 20 * dim, 2);
  reset();
  const std::vector<float> together = run<float>({user, item}, dim, rows, pairs);
  const auto cols = static_cast<int64_t>(together.size()) / rows;
  for (const int64_t n : {0, 1, 2, 3, 40, 69}) {
    const auto begin = together.begin() + n * cols;
    const std::vector<float> row(begin, begin + cols);
    reset();
    EXPECT_EQ(run<float>({user.row(n < 2 ? 0 : 2), item.row(n)}, dim, 1, pairs), row) << "row " << n;
    // On the row's own axis, too: the pairs are the same.
    AxisValues own_user = user.row(n < 2 ? 0 : 2);
    own_user.offsets.clear();
    EXPECT_EQ(run<float>({own_user, item.row(n)}, dim, 1, pairs), row) << "row " << n;
  }
}
TEST(DotKernel, GivesARowTheSameBitsAloneAndAmongOthers) {
  for (const int64_t dim : {16, 24})
    for (const DotPairs& pairs : {variants[1], between(2), between(12)}) expect_same_bits_alone(dim, pairs);
}

TEST(DotKernel, PassesOnNaNToThePairsOfItsFieldOnly) {
  for (const int64_t dim : {4, 16}) {
    AxisValues x = random_values<float16>(2, 3 * dim, 1);
    x.values[static_cast<size_t>(dim)] = std::numeric_limits<float>::quiet_NaN();  // field 1 of row 0
    reset();
    const std::vector<float> y = run<float>({x}, dim, 2, {DotOrder::lower, false});
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_FALSE(std::isnan(y[1]));
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_TRUE(std::isnan(run<float>({x}, dim, 2, between(1))[0]));
    EXPECT_FALSE(std::isnan(run<float>({x}, dim, 2, between(1))[1]));
    for (size_t i = 3; i < 6; ++i) EXPECT_FALSE(std::isnan(y[i]));
  }
}

/// Products beyond what a half can be: the largest one of their sign.
TEST(DotKernel, SaturatesHalves) {
  for (const int64_t dim : {4, 16}) {
    AxisValues x{std::vector<float>(static_cast<size_t>(3 * dim), 1000), 1, 3 * dim, {}};
    for (size_t i = static_cast<size_t>(2 * dim); i < x.values.size(); ++i) x.values[i] = -1000;
    reset();
    std::vector<float> y;
    for (const float16 value : run<float16>({x}, dim, 1, {DotOrder::lower, false}))
      y.push_back(warprank::to_float(value));
    EXPECT_EQ(y, (std::vector<float>{65504, -65504, -65504}));
  }
}

/// One graph, captured for 40 rows and 5 segments, replayed for fewer: counts and offsets are read in device memory.
TEST(DotKernelGraph, FollowsTheCountsInDeviceMemory) {
  const int64_t dim = 8, capacity = 40, cols = 6;
  const AxisValues user = random_values<float16>(5, 2 * dim, 1), item = random_values<float16>(capacity, 2 * dim, 2);
  in_every_order(
      [&] {
        DeviceMatrix<float16> of_user(converted<float16>(user.values), 5, 2 * dim),
            of_item(converted<float16>(item.values), capacity, 2 * dim);
        DeviceArray<int64_t> offsets(6), num_segments(1), num_rows(1);
        const std::vector<AxisInput<float16>> inputs = {{of_user.view(), offsets.data(), num_segments.data()},
                                                        {of_item.view()}};
        DeviceMatrix<float> y(capacity, cols);
        const Dot<float> dot(inputs, dim, {}, y.view(), num_rows.data());
        const Stream stream = create_stream();
        begin_capture(stream);
        dot.launch({}, stream);
        const Graph graph = end_capture(stream);
        EXPECT_EQ(num_launches(graph), 1);
        for (const std::vector<int64_t>& ends : std::vector<std::vector<int64_t>>{{0, 9, 9, 30}, {0, 11}, {0}}) {
          offsets.write(ends);
          const int64_t segments = static_cast<int64_t>(ends.size()) - 1, rows = ends.back();
          num_segments.write({segments});
          num_rows.write({rows});
          fill(y.view().data, 0xff, capacity * cols * 4);
          synchronize();
          launch(graph, stream);
          const std::vector<float> result = y.read();
          const SegmentedInput views[] = {{{user.values.data(), segments, 2 * dim}, {ends.data(), segments}},
                                          {{item.values.data(), rows, 2 * dim}}};
          const auto written = result.begin() + rows * cols;
          expect_within(warprank::reference::dot({views, 2}, dim, {}, rows),
                        std::vector<float>(result.begin(), written), c);
          for (auto value = written; value != result.end(); ++value) EXPECT_TRUE(std::isnan(*value)) << "beyond";
        }
      },
      10);
}

/// Counts and offsets that do not fit together, as a batch that was replaced by halves might leave them.
TEST(DotKernelGraph, EndsWhenSegmentsDoNotHaveAllRows) {
  const int64_t dim = 8, cols = 6, capacity = 4;
  const AxisValues user = random_values<float16>(2, 2 * dim, 1), item = random_values<float16>(capacity, 2 * dim, 2);
  in_every_order(
      [&] {
        DeviceMatrix<float16> of_user(converted<float16>(user.values), 2, 2 * dim),
            of_item(converted<float16>(item.values), capacity, 2 * dim);
        DeviceArray<int64_t> offsets(std::vector<int64_t>{0, 1, 2}), num_rows(std::vector<int64_t>{100});
        const std::vector<AxisInput<float16>> inputs = {{of_user.view(), offsets.data(), nullptr}, {of_item.view()}};
        DeviceMatrix<float> y(capacity, cols);
        Dot<float>(inputs, dim, {}, y.view(), num_rows.data()).launch({});
        const std::vector<float> result = y.read();
        const int64_t ends[] = {0, 1, capacity};  // the last segment serves the rows that none has
        const SegmentedInput views[] = {{{user.values.data(), 2, 2 * dim}, {ends, 2}},
                                        {{item.values.data(), capacity, 2 * dim}}};
        expect_within(warprank::reference::dot({views, 2}, dim, {}, capacity), result, c);
      },
      10);
}

TEST(DotKernelMemory, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  reset();
  const int64_t dim = 8, stride = (int64_t{1} << 30) + 8;  // 4 GB in three rows, mostly untouched
  DeviceArray<float16> x(2 * stride + 2 * dim);
  const AxisValues rows = random_values<float16>(3, 2 * dim, 1);
  for (int64_t n = 0; n < 3; ++n) x.write(converted<float16>(rows.row(n).values), n * stride);
  DeviceMatrix<float> y(3, 1);
  const std::vector<AxisInput<float16>> inputs = {{{x.data(), 3, 2 * dim, stride}}};
  Dot<float>(inputs, dim, {}, y.view()).launch({});
  expect_within(warprank::reference::dot(views_of({rows}), dim, {}, 3), y.read(), c);
}

/// What is not counted in 32 bits is the general kernel's.
TEST(DotKernelMemory, IsLeftToTheGeneralKernelWhereRowsOrStridesAreLarger) {
  const auto has_rows_kernel = [](int64_t rows, int64_t rows_of_input, int64_t stride) {
    warprank::detail::dot::Arguments<float> arguments{};
    arguments.inputs[0].values = {reinterpret_cast<const float16*>(64), rows_of_input, 16, stride};
    arguments.num_inputs = 1, arguments.num_own_fields = 2, arguments.dim = 8, arguments.aligned = true;
    arguments.y.rows = rows;
    return warprank::detail::dot::has_rows_kernel(arguments);
  };
  constexpr int64_t most_rows = int64_t{1} << 30, most_stride = (int64_t{1} << 31) - 8;
  EXPECT_TRUE(has_rows_kernel(most_rows, most_rows, most_stride));
  EXPECT_FALSE(has_rows_kernel(most_rows + 1, 1, 16));
  EXPECT_FALSE(has_rows_kernel(1, most_rows + 1, 16));
  EXPECT_FALSE(has_rows_kernel(1, 1, most_stride + 8));
}

/// PyTorch's results, of six requests side by side. They are of floats: each factor is rounded to half first.
TEST(DotKernelGolden, GivesWhatPyTorchGives) {
  using warprank::test_support::golden_tensor;
  const auto user = golden_tensor<float>("interactions", "dense/of_user"),
             item = golden_tensor<float>("interactions", "dense/of_item");
  std::vector<int64_t> offsets = {0};
  for (const int64_t rows : item.rows) offsets.push_back(offsets.back() + rows);
  const int64_t dim = 4, rows = offsets.back();
  const std::vector<AxisValues> inputs = {{user.values, static_cast<int64_t>(user.rows.size()), 8, offsets},
                                          {item.values, rows, 12, {}}};
  ASSERT_GT(rows, 0);
  for (const DotPairs& variant : variants) {
    reset();
    auto exact = warprank::reference::dot(views_of(inputs), dim, variant, rows);
    const std::string name = std::string("output/dot_") + name_of_enum(variant.order) + (variant.self ? "_self" : "");
    exact.value = golden_tensor<double>("interactions", name).values;
    const double rounding_of_factors = 2.01 * 0x1p-11 / (0x1p-24 * static_cast<double>(dim));
    expect_within(exact, run<float>(inputs, dim, rows, variant), c + rounding_of_factors);
  }
}

/// 20 tables of a user and 6 and a dense part of each of 96 items, dim 128: the shape of DLRM.
TEST(DotKernelCounts, LoadsFieldsOnceForEachRowAndThoseOfAUserOnceForRowsOfAWarp) {
  if constexpr (build == Build::plain) {
    for_each_target([](Config config) {
      for (const bool has_few_rows : {true, false}) {
        config.count_sectors = true;
        config.multiprocessors = has_few_rows ? 100 : 1;
        reset(config);
        const int64_t dim = 128, rows = 96;
        const AxisValues user = random_values<float16>(1, 20 * dim, 1, 1, {0, rows}),
                         item = random_values<float16>(rows, 7 * dim, 2);
        clear_counters();
        run<float16>({user, item}, dim, rows, variants[4]);
        EXPECT_EQ(counters().launches, 1);
        EXPECT_EQ(counters().atomics, 0);
        EXPECT_EQ(counters().barriers, 0);
        EXPECT_EQ(counters().load_matrices, 0);
        const int64_t warps = has_few_rows ? rows : rows / usual_policies().dot_rows_per_warp_wide;
        EXPECT_EQ(counters().blocks, has_few_rows ? warps : warps / 4);
        // Four groups of 8 fields: tiles of two by one on and below the diagonal, steps of 16.
        EXPECT_EQ(counters().mma, rows * (2 + 4) * dim / 16 * (config.target < 80 ? 2 : 1));
        // 16 halves are one sector; two groups are all of the user's fields, and stay in registers.
        EXPECT_EQ(counters().global_load_sectors, (warps * 16 + rows * (27 - 16)) * dim / 16);
        EXPECT_EQ(counters().global_store_sectors, rows * (27 * 26 / 2 + 1) * 2 / 32);
      }
    });
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

#if !defined(__CUDACC__)
TEST(DotKernelHost, AgreesWithTheHostPath) {
  const int64_t dim = 8, rows = 50;
  const std::vector<AxisValues> inputs = {random_values<float16>(2, 24, 1, 1, {0, 20, rows}),
                                          random_values<float16>(rows, 32, 2)};
  for (const DotPairs& variant : variants_of(7)) {
    const int64_t cols = num_dot_pairs(7, variant);
    std::vector<float> host(static_cast<size_t>(rows * cols)),
        workspace(static_cast<size_t>(warprank::host_ops::dot_workspace(7, dim, variant)));
    warprank::host_ops::dot(views_of(inputs), dim, variant, {host.data(), rows, cols}, workspace);
    warprank::reference::Bounded expected = warprank::reference::dot(views_of(inputs), dim, variant, rows);
    expected.value.assign(host.begin(), host.end());
    reset();
    expect_within(expected, run<float>(inputs, dim, rows, variant), c + 1);
  }
}
#endif

/// 32 fields with 16 mixtures of them, as in a layer of Wukong.
TEST(DotKernelCounts, MultipliesNoTilesWithoutAFieldOfTheSecondSetBetweenTwo) {
  if constexpr (build == Build::plain) {
    for_each_target([](Config config) {
      config.count_sectors = true;
      config.multiprocessors = 100;
      reset(config);
      const int64_t dim = 64, rows = 40;
      const AxisValues x = random_values<float16>(rows, 48 * dim, 1);
      clear_counters();
      run<float16>({x}, dim, rows, between(32));
      EXPECT_EQ(counters().launches, 1);
      EXPECT_EQ(counters().barriers, 0);
      EXPECT_EQ(counters().mma, rows * 6 * dim / 16 * (config.target < 80 ? 2 : 1));
      EXPECT_EQ(counters().global_load_sectors, rows * 48 * dim / 16);
      EXPECT_EQ(counters().global_store_sectors, rows * 32 * 16 / 16);
    });
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

/// What the constructor says to arguments that differ from good ones in one way.
class DotKernelArguments : public testing::Test {
 protected:
  struct Arguments {
    std::vector<AxisInput<float16>> inputs;
    int64_t dim = 4;
    Matrix<float> y;
    DotPairs pairs = {};
  };

  static void expect_refused(const std::function<void(Arguments&)>& change, const std::string& message) {
    SCOPED_TRACE(message);
    float16 halves[64] = {};
    Arguments arguments{{{{halves, 2, 8}}}, 4, {warprank::test_support::far_away<float>(), 2, 1}};
    const auto make = [&] { Dot<float>(arguments.inputs, arguments.dim, arguments.pairs, arguments.y); };
    make();
    change(arguments);
    try {
      make();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const warprank::invalid_argument& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
};

TEST_F(DotKernelArguments, AreRefusedWhereTheyDoNotFit) {
  expect_refused([](Arguments& a) { a.dim = 0; }, "dot: dim: expected 1 to 4096, got 0");
  expect_refused([](Arguments& a) { a.dim = 4097; }, "dot: dim: expected 1 to 4096, got 4097");
  expect_refused([](Arguments& a) { a.dim = 3; }, "dot: input 0: expected a multiple of 3 columns, got 8");
  expect_refused([](Arguments& a) { a.inputs.resize(9, a.inputs[0]); }, "dot: inputs: expected at most 8, got 9");
  expect_refused([](Arguments& a) { a.inputs[0].values.rows = 1; }, "dot: input 0: expected 2 rows, got 1");
  expect_refused([](Arguments& a) { a.inputs[0].values.data = nullptr; },
                 "dot: input 0: expected an address, got null");
  expect_refused([](Arguments& a) { a.inputs[0].num_segments = reinterpret_cast<const int64_t*>(&a); },
                 "dot: input 0: expected offsets of its segments, got none");
  expect_refused([](Arguments& a) { a.pairs.num_left = 3; }, "dot: num_left: expected 0 to 2, got 3");
  expect_refused([](Arguments& a) { a.pairs.num_left = -1; }, "dot: num_left: expected 0 to 2, got -1");
  expect_refused([](Arguments& a) { a.y.cols = a.y.stride = 2; }, "dot: y: expected 1 columns, got 2");
  expect_refused(
      [](Arguments& a) { a.y.data = reinterpret_cast<float*>(const_cast<float16*>(a.inputs[0].values.data)) + 7; },
      "dot: y: expected memory of its own, got an overlap with input 0");
  expect_refused(
      [](Arguments& a) {
        a.y.data = reinterpret_cast<float*>(const_cast<float16*>(a.inputs[0].values.data));
        a.y.stride = a.inputs[0].values.stride = 0;
      },
      "3 problems:\n"
      "  dot: input 0: expected rows at least 8 elements apart, got 0\n"
      "  dot: y: expected memory of its own, got an overlap with input 0\n"
      "  dot: y: expected rows at least 1 elements apart, got 0");
  expect_refused([](Arguments& a) { a.inputs[0].values.cols = a.inputs[0].values.stride = a.dim * 1025; },
                 "dot: fields: expected at most 1024, got 1025");
  expect_refused(
      [](Arguments& a) {
        a.inputs[0].values.cols = a.inputs[0].values.stride = 4096 * 8;
        a.dim = 4096;
        a.y.cols = a.y.stride = 28;
      },
      "dot: shared memory for the fields of a row: expected at most 65536 bytes, got 65808");
}

}  // namespace
