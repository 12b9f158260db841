// SPDX-License-Identifier: Apache-2.0
//
// Streams, events, copies and graphs.

#include "simt/runtime.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "simt/race.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"

namespace {

using namespace warprank::device;  // NOLINT: for kernels
using simt::DeviceArray;

WARPRANK_KERNEL(32, 1) add(uint32_t* x, uint32_t value) { store(&x[thread_rank()], load(&x[thread_rank()]) + value); }
WARPRANK_KERNEL(32, 1) multiply(uint32_t* x, uint32_t value) {
  store(&x[thread_rank()], load(&x[thread_rank()]) * value);
}

class Runtime : public testing::Test {
 protected:
  void TearDown() override { simt::reset(); }
};

TEST_F(Runtime, StreamRunsItsWorkInOrder) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    simt::Config config;
    config.seed = seed;
    simt::reset(config);
    const Stream stream = simt::create_stream();
    DeviceArray<uint32_t> x(32);
    std::vector<uint32_t> host(32, 1);
    simt::copy(x.data(), host.data(), 128, stream);
    launch({{1}, {32}, 0, stream}, add, x.data(), 2u);
    launch({{1}, {32}, 0, stream}, multiply, x.data(), 5u);
    simt::copy(host.data(), x.data(), 128, stream);
    EXPECT_EQ(host[0], 1u) << "nothing runs before someone waits";
    simt::synchronize(stream);
    EXPECT_EQ(host, std::vector<uint32_t>(32, 15));
  }
}

TEST_F(Runtime, EventOrdersStreams) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    simt::Config config;
    config.seed = seed;
    simt::reset(config);
    const Stream first = simt::create_stream(), second = simt::create_stream();
    DeviceArray<uint32_t> x(32, 1);
    const simt::Event done = simt::create_event();
    launch({{1}, {32}, 0, first}, add, x.data(), 2u);
    simt::record(done, first);
    EXPECT_FALSE(simt::is_done(done));
    simt::wait(second, done);
    launch({{1}, {32}, 0, second}, multiply, x.data(), 5u);
    simt::synchronize(done);
    EXPECT_TRUE(simt::is_done(done));
    simt::synchronize(second);
    EXPECT_EQ(x.data()[31], 15u);
  }
}

TEST_F(Runtime, WorkQueuedAfterAWaitOfTheHostIsOrderedAfterIt) {
  const Stream first = simt::create_stream(), second = simt::create_stream();
  DeviceArray<uint32_t> x(32, 1);
  launch({{1}, {32}, 0, first}, add, x.data(), 2u);
  simt::synchronize(first);
  launch({{1}, {32}, 0, second}, multiply, x.data(), 5u);
  EXPECT_EQ(x.read()[0], 15u);
}

TEST_F(Runtime, CopyBesideAKernelIsARace) {
  if (!simt::race::enabled()) GTEST_SKIP() << "only the race build sees it";
  DeviceArray<uint32_t> x(32, 1);
  const std::vector<uint32_t> host(32, 1);
  launch({{1}, {32}, 0, simt::create_stream()}, add, x.data(), 2u);
  simt::copy(x.data(), host.data(), 128, simt::create_stream());
  EXPECT_THROW(simt::synchronize(), simt::Error);
}

TEST_F(Runtime, OrderFollowsEventsOverSeveralStreamsAndNothingElse) {
  if (!simt::race::enabled()) GTEST_SKIP() << "only the race build sees it";
  const auto run = [](bool wait_for_both) {
    simt::reset();
    const Stream streams[] = {simt::create_stream(), simt::create_stream(), simt::create_stream()};
    DeviceArray<uint32_t> x(32, 1), y(32, 1);
    const simt::Event begun = simt::create_event(), first = simt::create_event(), second = simt::create_event();
    launch({{1}, {32}, 0, streams[0]}, add, x.data(), 2u);
    simt::record(begun, streams[0]);
    simt::wait(streams[1], begun);
    launch({{1}, {32}, 0, streams[1]}, add, x.data(), 3u);  // after the first, by the event
    launch({{1}, {32}, 0, streams[0]}, add, y.data(), 4u);  // beside it
    simt::record(first, streams[0]);
    simt::record(second, streams[1]);
    simt::wait(streams[2], second);
    if (wait_for_both) simt::wait(streams[2], first);
    launch({{1}, {32}, 0, streams[2]}, multiply, x.data(), 5u);
    launch({{1}, {32}, 0, streams[2]}, multiply, y.data(), 5u);
    simt::synchronize();
    return std::pair{x.data()[0], y.data()[0]};
  };
  EXPECT_EQ(run(true), (std::pair{30u, 25u}));
  EXPECT_THROW(run(false), simt::Error);
}

TEST_F(Runtime, CopyBeyondAnAllocationIsRefused) {
  DeviceArray<uint32_t> x(32, 1);
  const std::vector<uint32_t> host(64, 1);
  simt::copy(x.data(), host.data(), 132);
  EXPECT_THROW(simt::synchronize(), simt::Error);
}

TEST_F(Runtime, GraphIsReplayedOnWhatMemoryHolds) {
  const Stream stream = simt::create_stream(), side = simt::create_stream();
  DeviceArray<uint32_t> x(32, 1), y(32, 1);
  const simt::Event begun = simt::create_event(), joined = simt::create_event();
  simt::begin_capture(stream);
  launch({{1}, {32}, 0, stream}, add, x.data(), 2u);
  simt::record(begun, stream);
  simt::wait(side, begun);
  launch({{1}, {32}, 0, side}, add, y.data(), 3u);
  launch({{1}, {32}, 0, stream}, multiply, x.data(), 5u);
  simt::record(joined, side);
  simt::wait(stream, joined);
  const simt::Graph graph = simt::end_capture(stream);
  EXPECT_EQ(simt::num_launches(graph), 3);
  EXPECT_EQ(x.read()[0], 1u) << "a capture runs nothing";
  simt::launch(graph, stream);
  simt::launch(graph, stream);
  EXPECT_EQ(x.read()[0], ((1u + 2) * 5 + 2) * 5);
  EXPECT_EQ(y.read()[0], 7u);
  EXPECT_EQ(simt::counters().launches, 6);
}

TEST_F(Runtime, CaptureRefusesWhatCudaRefuses) {
  const Stream stream = simt::create_stream(), side = simt::create_stream();
  DeviceArray<uint32_t> x(32, 1);
  const simt::Event event = simt::create_event();
  simt::begin_capture(stream);
  EXPECT_THROW(simt::synchronize(stream), simt::Error);
  simt::record(event, stream);
  simt::wait(side, event);
  launch({{1}, {32}, 0, side}, add, x.data(), 2u);
  EXPECT_THROW(simt::end_capture(stream), simt::Error) << "the side stream was not joined";
  EXPECT_THROW(simt::end_capture(side), simt::Error);
}

TEST_F(Runtime, MemoryIsFreedOnceAndFromItsBeginning) {
  auto* memory = static_cast<char*>(simt::allocate(100));
  EXPECT_THROW(simt::release(memory + 1), simt::Error);
  simt::release(memory);
  EXPECT_THROW(simt::release(memory), simt::Error);
}

}  // namespace
