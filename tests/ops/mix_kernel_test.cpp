// SPDX-License-Identifier: Apache-2.0
#define WARPRANK_KERNELS_OF_MIX  // of types that the engine has not: compiled here, with those of the library
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "reference/mix.hpp"
#include "support/axis_input_testing.hpp"
#include "support/far_away.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/ops/mix.cuh"
#if !defined(__CUDACC__)
#include "warprank/ops/host/mix.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::AxisInput;
using warprank::Matrix;
using warprank::Mix;
using warprank::MixTask;
using warprank::Normalization;
using warprank::SegmentedInput;

const std::vector<Normalization> normalizations = {Normalization::softmax, Normalization::sigmoid, Normalization::none};

/// A task on the host.
struct Task {
  AxisValues experts, gate;
  Normalization normalization = Normalization::softmax;
  AxisValues multiply = {}, residual = {};  // without columns: none

  int64_t dim() const { return experts.cols / gate.cols; }
};

/// What each task gives, of one launch.
template <class Value, class Out>
std::vector<std::vector<Out>> run(const std::vector<Task>& tasks, int64_t rows, Placement placement = {}) {
  std::vector<std::unique_ptr<DeviceAxisInput<Value>>> inputs;
  std::vector<std::unique_ptr<DeviceMatrix<Out>>> outputs;
  std::vector<MixTask<Value, Out>> views;
  for (const Task& task : tasks) {
    inputs.push_back(std::make_unique<DeviceAxisInput<Value>>(task.experts, placement));
    inputs.push_back(std::make_unique<DeviceAxisInput<Value>>(task.gate, placement));
    outputs.push_back(
        std::make_unique<DeviceMatrix<Out>>(rows, task.dim(), task.dim() + placement.gap, placement.skip));
    views.push_back(
        {inputs[inputs.size() - 2]->view(), inputs.back()->view(), outputs.back()->view(), task.normalization});
    const auto end = [&](const AxisValues& values) -> Matrix<const Value> {
      if (values.cols == 0) return {};
      inputs.push_back(std::make_unique<DeviceAxisInput<Value>>(values, placement));
      return inputs.back()->view().values;
    };
    views.back().multiply = end(task.multiply);
    views.back().residual = end(task.residual);
  }
  Mix<Value, Out>(views).launch({});
  std::vector<std::vector<Out>> results;
  for (const auto& output : outputs) results.push_back(output->read());
  return results;
}

warprank::reference::Bounded reference_of(const Task& task, int64_t rows) {
  const auto end = [](const AxisValues& values) {
    return values.cols == 0 ? Matrix<const float>{} : values.view().values;
  };
  return warprank::reference::mix(task.experts.view(), task.gate.view(), task.normalization, rows, task.dim(),
                                  end(task.multiply), end(task.residual));
}

template <class Value, class Out>
void expect_reference(const Task& task, int64_t rows, Placement placement = {}, int seeds = 1) {
  SCOPED_TRACE("rows " + std::to_string(rows) + ", experts " + std::to_string(task.gate.cols) + ", dim " +
               std::to_string(task.dim()) + ", " + name_of_enum(task.normalization));
  const std::vector<Out> y = in_every_order([&] { return run<Value, Out>({task}, rows, placement)[0]; }, seeds);
  expect_within(reference_of(task, rows), y, 1);
}

template <class Types>
class MixKernel : public testing::Test {};
template <class Value, class Out>
struct Types {
  using value = Value;
  using out = Out;
};
using AllTypes =
    testing::Types<Types<float, float>, Types<warprank::float16, float>, Types<warprank::float16, warprank::float16>>;
TYPED_TEST_SUITE(MixKernel, AllTypes, );

TYPED_TEST(MixKernel, MatchesTheWeightedSumForEveryShape) {
  using Value = typename TypeParam::value;
  for (const Normalization normalization : normalizations)
    for (const int64_t num_experts : {1, 3, 4, 6, 33})
      for (const int64_t dim : {0, 1, 3, 16, 130})
        for (const int64_t rows : {0, 1, 21}) {
          if (num_experts == 33 && dim > 3) continue;
          const float scale = rows == 1 ? 10.0f : 1.0f;
          expect_reference<Value, typename TypeParam::out>(
              {random_values<Value>(rows, num_experts * dim, 1), random_values<Value>(rows, num_experts, 2, scale),
               normalization},
              rows);
        }
}

TYPED_TEST(MixKernel, MultipliesAndThenAdds) {
  using Value = typename TypeParam::value;
  using Out = typename TypeParam::out;
  const int64_t rows = 21, num_experts = 3;
  for (const int64_t dim : {1, 3, 16, 130, 400})
    for (const Placement placement : {Placement{}, Placement{4, 4}, Placement{3, 1}}) {
      Task task{random_values<Value>(rows, num_experts * dim, 1), random_values<Value>(rows, num_experts, 2)};
      task.multiply = random_values<Value>(rows, dim, 3);
      expect_reference<Value, Out>(task, rows, placement, 2);
      task.residual = random_values<Value>(rows, dim, 4);
      expect_reference<Value, Out>(task, rows, placement, 2);
      task.multiply = {};
      expect_reference<Value, Out>(task, rows, placement, 2);
    }
}

TYPED_TEST(MixKernel, TakesRowsThatAreStridedAndMisaligned) {
  using Value = typename TypeParam::value;
  for (const Placement placement : {Placement{4, 4}, Placement{4, 1}, Placement{3, 0}}) {
    expect_reference<Value, typename TypeParam::out>(
        {random_values<Value>(9, 4 * 12, 1), random_values<Value>(9, 4, 2)}, 9, placement, 3);
  }
}

TEST(MixKernelTasks, TakeExpertsAndGateFromAncestorsInEveryOrderOfThreads) {
  const std::vector<int64_t> users = {0, 0, 7, 7, 8, 50, 50}, sessions = {0, 3, 3, 7, 8, 8, 48, 50};
  const int64_t rows = 50, dim = 9, num_experts = 4;
  const AxisValues item_experts = random_values<float>(rows, num_experts * dim, 1),
                   user_experts = random_values<float>(6, num_experts * dim, 2, 1, users),
                   item_gate = random_values<float>(rows, num_experts, 3),
                   session_gate = random_values<float>(7, num_experts, 4, 1, sessions);
  for (const Normalization normalization : normalizations) {
    expect_reference<float, float>({user_experts, item_gate, normalization}, rows, {}, 2);
    expect_reference<float, float>({item_experts, session_gate, normalization}, rows, {}, 2);
    expect_reference<float, float>({user_experts, session_gate, normalization}, rows, {}, 20);
  }
}

TEST(MixKernelTasks, OfDifferentShapesShareALaunch) {
  const int64_t rows = 30;
  const std::vector<Task> tasks = {
      {random_values<float>(rows, 4 * 64, 1), random_values<float>(rows, 4, 2), Normalization::softmax},
      {random_values<float>(rows, 3 * 5, 3), random_values<float>(rows, 3, 4), Normalization::sigmoid},
      {random_values<float>(rows, 2 * 0, 5), random_values<float>(rows, 2, 6), Normalization::none}};
  reset();
  const auto results = run<float, float>(tasks, rows);
  expect_launches(1);
  for (size_t i = 0; i < tasks.size(); ++i) expect_within(reference_of(tasks[i], rows), results[i], 1);
}

TEST(MixKernelTasks, HaveTheSameBitsAloneAndAmongOthers) {
  const Task task{random_values<float>(40, 4 * 24, 1), random_values<float>(40, 4, 2)};
  reset();
  const std::vector<float> together = run<float, float>({task}, 40)[0];
  for (const int64_t n : {0, 7, 39}) {
    reset();
    const auto begin = together.begin() + n * 24;
    EXPECT_EQ((run<float, float>({{task.experts.row(n), task.gate.row(n)}}, 1)[0]),
              std::vector<float>(begin, begin + 24));
  }
}

TEST(MixKernelTasks, TreatExtremeLogitsAsSoftmaxDoes) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const AxisValues experts{{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, 5, 2, {}},
      gate{{1e30f, 0, -1e30f, 0, -infinity, 0, NAN, 0, -infinity, -infinity}, 5, 2, {}};
  reset();
  const std::vector<float> y = run<float, float>({{experts, gate}}, 5)[0];
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 2);
  EXPECT_EQ(y[2], 2);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST(MixKernelGraph, FollowsTheCountsInDeviceMemory) {
  const int64_t capacity = 40, dim = 4;
  const Task task{random_values<float>(capacity, 2 * dim, 1), random_values<float>(5, 2, 2)};
  in_every_order(
      [&] {
        DeviceMatrix<float> experts(task.experts.values, capacity, 2 * dim), gate(task.gate.values, 5, 2),
            y(capacity, dim);
        DeviceArray<int64_t> offsets(6), num_segments(1), num_rows(1);
        const std::vector<MixTask<float, float>> tasks = {
            {{experts.view()}, {gate.view(), offsets.data(), num_segments.data()}, y.view()}};
        const Mix<float, float> mix(tasks, num_rows.data());
        const Stream stream = create_stream();
        begin_capture(stream);
        mix.launch({}, stream);
        const Graph graph = end_capture(stream);
        EXPECT_EQ(num_launches(graph), 1);
        for (const std::vector<int64_t>& ends : std::vector<std::vector<int64_t>>{{0, 9, 9, 30}, {0, 11}, {0}}) {
          offsets.write(ends);
          const int64_t segments = static_cast<int64_t>(ends.size()) - 1, rows = ends.back();
          num_segments.write({segments});
          num_rows.write({rows});
          fill(y.view().data, 0xff, capacity * dim * 4);
          synchronize();
          launch(graph, stream);
          const std::vector<float> result = y.read();
          const SegmentedInput on_segments{{task.gate.values.data(), segments, 2}, {ends.data(), segments}},
              on_rows{{task.experts.values.data(), rows, 2 * dim}};
          expect_within(warprank::reference::mix(on_rows, on_segments, Normalization::softmax, rows, dim),
                        std::vector<float>(result.begin(), result.begin() + rows * dim), 1);
          for (auto value = result.begin() + rows * dim; value != result.end(); ++value) {
            EXPECT_TRUE(std::isnan(*value)) << "beyond";
          }
        }
      },
      10);
}

TEST(MixKernelGraph, StoresNoRowBehindTheCount) {
  const Task task{random_values<float>(9, 2 * 4, 1), random_values<float>(9, 2, 2)};
  in_every_order(
      [&] {
        DeviceMatrix<float> experts(task.experts.values, 9, 2 * 4), gate(task.gate.values, 9, 2), y(9, 4);
        const DeviceArray<int64_t> num_rows(1, 5);
        const std::vector<MixTask<float, float>> tasks = {{{experts.view()}, {gate.view()}, y.view()}};
        const Mix<float, float> mix(tasks, num_rows.data());
        EXPECT_TRUE(mix.reads_unused_rows());
        mix.launch({});
        std::vector<float> result = y.read();
        for (size_t i = 5 * 4; i < result.size(); ++i) EXPECT_TRUE(std::isnan(result[i])) << "beyond";
        result.resize(5 * 4);
        expect_within(warprank::reference::mix(task.experts.view(), task.gate.view(), task.normalization, 5, 4), result,
                      1);
      },
      3);
}

/// Four experts of 64 for three tasks and 100 items: the shape of MMoE.
TEST(MixKernelCounts, ReadsEachSectorOfExpertsOnceForATask) {
  if constexpr (build == Build::plain) {
    using warprank::float16;
    Config config;
    config.count_sectors = true;
    reset(config);
    const int64_t rows = 100, dim = 64, experts = 4;
    const Task task{random_values<float16>(rows, experts * dim, 1), random_values<float16>(rows, experts, 2)};
    clear_counters();
    run<float16, float16>({task, task, task}, rows);
    EXPECT_EQ(counters().launches, 1);
    EXPECT_EQ(counters().atomics, 0);
    EXPECT_EQ(counters().global_store_sectors, 3 * rows * dim / 16);
    // A warp has four rows, whose logits lie in one sector.
    EXPECT_EQ(counters().global_load_sectors, 3 * (rows * experts * dim / 16 + rows / 4));
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

#if !defined(__CUDACC__)
TEST(MixKernelHost, AgreesWithTheHostPath) {
  const int64_t rows = 50, dim = 8;
  for (const Normalization normalization : normalizations) {
    const Task task{random_values<float>(rows, 3 * dim, 1), random_values<float>(2, 3, 2, 1, {0, 20, rows}),
                    normalization};
    std::vector<float> host(static_cast<size_t>(rows * dim)),
        workspace(static_cast<size_t>(warprank::host_ops::mix_workspace(3)));
    warprank::host_ops::mix(task.experts.view(), task.gate.view(), normalization, {host.data(), rows, dim}, workspace);
    warprank::reference::Bounded between = reference_of(task, rows);
    between.value.assign(host.begin(), host.end());
    reset();
    expect_within(between, run<float, float>({task}, rows)[0], 2);
  }
}
#endif

TEST(MixKernelArguments, AreRefusedWhereTheyDoNotFit) {
  float memory[64] = {};
  const auto refusal = [&](const std::function<void(std::vector<MixTask<float, float>>&)>& change) -> std::string {
    std::vector<MixTask<float, float>> tasks = {
        {{{memory, 2, 8}}, {{memory, 2, 4}}, {warprank::test_support::far_away<float>(), 2, 2}}};
    change(tasks);
    try {
      Mix<float, float> made(tasks);
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([&](auto& tasks) { tasks[0].y.data = memory + 15; }),
            "mix: task 0's y: expected memory of its own, got an overlap with the experts of task 0");
  EXPECT_EQ(refusal([](auto& tasks) { tasks.push_back(tasks[0]); }),
            "mix: task 0's y: expected memory of its own, got an overlap with y of task 1");
  EXPECT_EQ(refusal([](auto& tasks) { tasks.clear(); }), "mix: tasks: expected 1 to 8, got 0");
  EXPECT_EQ(refusal([](auto& tasks) { tasks.resize(9, tasks[0]); }), "mix: tasks: expected 1 to 8, got 9");
  EXPECT_EQ(refusal([](auto& tasks) { tasks[0].experts.values.cols = 7; }),
            "mix: task 0's experts: expected 8 columns, got 7");
  EXPECT_EQ(refusal([](auto& tasks) {
              tasks[0].gate.values.cols = tasks[0].gate.values.stride = int64_t{1} << 30;
              tasks[0].experts.values.cols = tasks[0].experts.values.stride = int64_t{1} << 31;
            }),
            "mix: task 0's experts: expected at most 1073741824 columns, got 2147483648");
  EXPECT_EQ(refusal([](auto& tasks) { tasks[0].gate.values.cols = tasks[0].experts.values.cols = 0; }),
            "mix: task 0's gate: expected at least 1 column, got 0");
  EXPECT_EQ(refusal([](auto& tasks) { tasks[0].gate.values.rows = 1; }), "mix: task 0's gate: expected 2 rows, got 1");
  EXPECT_EQ(refusal([](auto& tasks) {
              tasks.push_back(tasks[0]);
              tasks[1].y.data += 1024, tasks[1].y.rows = 1;
            }),
            "mix: task 1's y: expected 2 rows, got 1");
  EXPECT_EQ(refusal([&](auto& tasks) {
              tasks[0].multiply = tasks[0].residual = {memory, 2, 2};
            }),
            "nothing was thrown");
  EXPECT_EQ(refusal([&](auto& tasks) {
              tasks[0].multiply = {memory, 1, 2};
            }),
            "mix: task 0's multiply: expected y's shape, [2, 2], got [1, 2]");
  EXPECT_EQ(refusal([&](auto& tasks) {
              tasks[0].residual = {memory, 2, 4};
            }),
            "mix: task 0's residual: expected y's shape, [2, 2], got [2, 4]");
  EXPECT_EQ(refusal([](auto& tasks) { tasks[0].y.data = nullptr; }), "mix: task 0's y: expected an address, got null");
}

}  // namespace
