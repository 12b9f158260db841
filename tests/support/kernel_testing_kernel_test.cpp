// SPDX-License-Identifier: Apache-2.0
//
// What tests of kernels are written with.

#include "support/kernel_testing.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"

// Not in a nameless namespace: kernels have a visibility of their own.
namespace kernel_testing_test {

WARPRANK_KERNEL(64, 1) add(uint32_t* x, uint32_t value) {
  using namespace warprank::device;  // NOLINT: for kernels
  store(&x[thread_rank()], load(&x[thread_rank()]) + value);
}

/// Writes one value beyond x [64].
WARPRANK_KERNEL(64, 1) overrun(uint32_t* x) {
  using namespace warprank::device;  // NOLINT: for kernels
  store(&x[thread_rank() + 1], 7u);
}

/// order [n]: the threads' numbers as they took a ticket.
WARPRANK_KERNEL(64, 1) take_tickets(uint32_t* ticket, uint32_t* order) {
  using namespace warprank::device;  // NOLINT: for kernels
  const uint32_t place = atomic_add<Order::relaxed, Scope::device>(ticket, 1u);
  store(&order[place], static_cast<uint32_t>(thread_rank()));
}

}  // namespace kernel_testing_test

namespace {

using namespace kernel_testing;       // NOLINT
using namespace kernel_testing_test;  // NOLINT
using warprank::float16;
using warprank::reference::Bounded;

void launch_add(uint32_t* x, uint32_t value, Stream stream = {}) {
  warprank::device::launch({1, 64, 0, stream}, add, x, value);
}

TEST(KernelTesting, DeviceArrayIsWrittenAndRead) {
  reset();
  DeviceArray<uint32_t> x(64, 1), unwritten(64), empty(0);
  x.write({5, 6}, 2);
  launch_add(x.data(), 10);
  EXPECT_EQ(x.read(0, 6), (std::vector<uint32_t>{11, 11, 15, 16, 11, 11}));
  EXPECT_EQ(x.read().size(), 64u);
  EXPECT_TRUE(empty.read().empty());
  EXPECT_EQ(unwritten.size(), 64);
}

TEST(KernelTesting, WritingBesideMemoryIsAFailure) {
  reset();
  DeviceArray<uint32_t> x(64, 1);
  warprank::device::launch({1, 64}, overrun, x.data());
  if constexpr (on_gpu) {
    EXPECT_NONFATAL_FAILURE(x.read(), "written behind memory of 256 bytes");
    fill(x.data() + 64, 0xa5, 4);
  } else {
    EXPECT_THROW(x.read(), simt::Error);
  }
}

TEST(KernelTesting, MatrixKeepsWhatIsBetweenItsRows) {
  reset();
  const std::vector<uint32_t> values = {1, 2, 3, 4, 5, 6};
  DeviceMatrix<uint32_t> x(values, 2, 3, 5, 1);
  EXPECT_EQ(x.view().stride, 5);
  EXPECT_EQ(x.read(), values);
  fill(x.view().data + 2, 0, 4);
  EXPECT_EQ(x.read(), (std::vector<uint32_t>{1, 2, 0, 4, 5, 6}));
  fill(x.view().data + 3, 0, 4);
  EXPECT_NONFATAL_FAILURE(x.read(), "something was written between the rows of a matrix");
}

TEST(KernelTesting, EveryOrderBeginsAnewAndGivesTheSame) {
  std::set<std::vector<uint32_t>> orders;
  int times = 0;
  const std::vector<uint32_t> result = in_every_order(
      [&] {
        DeviceArray<uint32_t> ticket(1, 0), order(64), x(64, 1);
        warprank::device::launch({1, 64}, take_tickets, ticket.data(), order.data());
        launch_add(x.data(), 2);
        orders.insert(order.read());
        ++times;
        return x.read();
      },
      5);
  EXPECT_EQ(result, std::vector<uint32_t>(64, 3));
  EXPECT_EQ(times, on_gpu ? 3 : 7);
  if constexpr (!on_gpu) {
    EXPECT_EQ(orders.size(), 7u);
  }
}

TEST(KernelTesting, ResultThatDependsOnTheOrderIsAFailure) {
  if constexpr (on_gpu) GTEST_SKIP() << "its threads may come in the same order each time";
  EXPECT_NONFATAL_FAILURE(in_every_order([] {
                            DeviceArray<uint32_t> ticket(1, 0), order(64);
                            warprank::device::launch({1, 64}, take_tickets, ticket.data(), order.data());
                            return order.read();
                          }),
                          "another result than in the first order");
}

TEST(KernelTesting, WhatTheExecutorRefusesFailsWithItsOrder) {
  if constexpr (on_gpu) GTEST_SKIP() << "the executor refuses it";
  EXPECT_NONFATAL_FAILURE(in_every_order([] {
                            DeviceArray<uint32_t> x(64, 1);
                            warprank::device::launch({1, 64}, overrun, x.data());
                          }),
                          "in order forward");
}

TEST(KernelTesting, TargetIsTheOneThatIsTested) {
  std::vector<int> seen;
  for_each_target(
      [&](const Config& config) {
        seen.push_back(config.target);
        EXPECT_EQ(warprank::device::target(), config.target);
        EXPECT_GT(warprank::device::num_multiprocessors(), 0);
      },
      {75, 80, 90});
  if constexpr (on_gpu) {
    EXPECT_EQ(seen, std::vector<int>{warprank::device::target()});
  } else {
    EXPECT_EQ(seen, (std::vector<int>{75, 80, 90}));
  }
}

TEST(KernelTesting, DispatchChoosesTheGreatestTargetThatIsNotAbove) {
  const auto chosen = [](int target) {
    return warprank::device::dispatch_target<75, 80, 90>(target, [](auto value) { return int{value}; });
  };
  EXPECT_THROW(chosen(70), warprank::invalid_argument);
  if constexpr (on_gpu) {  // what is not compiled for is not there
    const int target = warprank::device::target();
    EXPECT_EQ(chosen(target), target < 80 ? 75 : target < 90 ? 80 : 90);
    return;
  }
  EXPECT_EQ(chosen(75), 75);
  EXPECT_EQ(chosen(79), 75);
  EXPECT_EQ(chosen(80), 80);
  EXPECT_EQ(chosen(89), 80);
  EXPECT_EQ(chosen(90), 90);
  EXPECT_EQ(chosen(120), 90);
}

TEST(KernelTesting, GraphIsCapturedAndReplayed) {
  reset();
  const Stream stream = create_stream(), side = create_stream();
  DeviceArray<uint32_t> x(64, 1), y(64, 1);
  const Event begun = create_event(), joined = create_event();
  begin_capture(stream);
  launch_add(x.data(), 2, stream);
  record(begun, stream);
  wait(side, begun);
  launch_add(y.data(), 3, side);
  record(joined, side);
  wait(stream, joined);
  const Graph graph = end_capture(stream);
  EXPECT_EQ(num_launches(graph), 2);
  launch(graph, stream);
  launch(graph, stream);
  synchronize(stream);
  EXPECT_EQ(x.read()[63], 5u);
  EXPECT_EQ(y.read()[63], 7u);
}

TEST(KernelTesting, CountersAreTheExecutors) {
  reset();
  DeviceArray<uint32_t> x(64, 1);
  clear_counters();
  launch_add(x.data(), 2);
  synchronize();
  expect_launches(1);
  if constexpr (!on_gpu) {
    EXPECT_EQ(counters().launches, 1);
    EXPECT_NONFATAL_FAILURE(expect_launches(2), "launches");
  }
}

TEST(KernelTesting, BoundCoversTheRoundingOfWhatIsStored) {
  const Bounded exact{{1.0}, {1.0}};
  expect_within<float>(exact, {1.f + 0x1p-23f}, 2);
  expect_within<float16>(exact, {warprank::to_float16(1.f + 0x1p-11f)}, 2);
  static const Bounded third{{1.0 / 3}, {1.0}};
  expect_within<float16>(third, {warprank::to_float16(1.f / 3)}, 0);
  EXPECT_FATAL_FAILURE(expect_within<float16>(third, {warprank::to_float16(1.f / 3 + 0x1p-10f)}, 2), "element 0");
  EXPECT_FATAL_FAILURE(expect_within<float>(third, {1.f / 3 + 0x1p-22f}, 2), "element 0");
}

}  // namespace
