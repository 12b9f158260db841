// SPDX-License-Identifier: Apache-2.0
//
// Streams, events, copies and graphs.

#include "simt/runtime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "simt/race.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sync.hpp"

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

TEST_F(Runtime, DefaultStreamCannotBeCaptured) { EXPECT_THROW(simt::begin_capture(nullptr), simt::Error); }

TEST_F(Runtime, MemoryIsFreedOnceAndFromItsBeginning) {
  auto* memory = static_cast<char*>(simt::allocate(100));
  EXPECT_THROW(simt::release(memory + 1), simt::Error);
  simt::release(memory);
  EXPECT_THROW(simt::release(memory), simt::Error);
}

// ---- What the library makes of it; the rest is in tests/device/runtime_kernel_test.cpp

TEST_F(Runtime, LimitsMemory) {
  simt::limit_memory(1 << 20, 1 << 10);
  const DeviceMemory first(1 << 19, "the first");
  try {
    const DeviceMemory second((1 << 19) + 1, "the second");
    ADD_FAILURE() << "it fits";
  } catch (const warprank::out_of_device_memory& error) {
    EXPECT_STREQ(error.what(), "the second: expected 524289 bytes of device memory, got 524288 free of 1048576");
    EXPECT_EQ(error.free_bytes(), 1 << 19);
  }
  try {
    const PinnedMemory pinned(2000, "the scores");
    ADD_FAILURE() << "it fits";
  } catch (const warprank::cuda_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the scores: expected 2000 bytes of pinned memory, got none"));
  }
  EXPECT_THROW(simt::allocate((1 << 19) + 1), simt::Error);
  EXPECT_EQ(simt::allocated_bytes(), 1 << 19);
  EXPECT_EQ(simt::pinned_bytes(), 0);
  EXPECT_NO_THROW(DeviceMemory(1 << 19, "the third"));
  EXPECT_NO_THROW(PinnedMemory(1000, "others"));
  simt::limit_memory(1 << 21, 1 << 12);
  EXPECT_NO_THROW(DeviceMemory((1 << 19) + 1, "the second"));
  EXPECT_NO_THROW(PinnedMemory(2000, "the scores"));
}

TEST_F(Runtime, BatchRefusesMoreWhenNothingIsLeftToPin) {
  warprank::Graph graph;
  graph.axes = {{"user", -1, 0}};
  graph.ids = {{"user_id", 0, {}, {}}};
  warprank::Batch batch(warprank::BatchLayout(graph), pinned_allocator());
  batch.add_request().ids({0}, {1}).finish();
  simt::limit_memory(1 << 20, 0);
  const std::vector<std::byte> blob(batch.blob(0).data(), batch.blob(0).data() + batch.blob(0).bytes());
  const auto fill_up = [&] {
    for (;;) batch.add_blob(blob);
  };
  EXPECT_THROW(fill_up(), std::bad_alloc);
  batch.clear();
  EXPECT_TRUE(batch.add_blob(blob).status().ok());
}

TEST_F(Runtime, DescribesItsDevice) {
  simt::Config config;
  config.target = 80;
  config.multiprocessors = 6;
  config.device_bytes = 1 << 20;
  simt::reset(config);
  const DeviceMemory memory(1 << 10, "a test");
  EXPECT_EQ(num_devices(), 1);
  const DeviceInfo info = device_info(0);
  EXPECT_EQ(info.target, 80);
  EXPECT_EQ(info.multiprocessors, 6);
  EXPECT_EQ(info.free_bytes, (1 << 20) - (1 << 10));
  EXPECT_EQ(info.total_bytes, 1 << 20);
  EXPECT_FALSE(info.name.empty());
  EXPECT_THROW(device_info(1), warprank::cuda_error);
  EXPECT_THROW(DeviceGuard(-1), warprank::cuda_error);
}

TEST_F(Runtime, CallsAreLogged) {
  PinnedMemory pinned(256, "a test");
  DeviceMemory memory(256, "a test");
  OwnedStream stream;
  Event event;
  std::vector<uint32_t> pageable(32);
  auto* x = static_cast<uint32_t*>(memory.data());
  simt::clear_calls();
  fill(x, 0, 256, stream.get());
  copy_to_device(x, pinned.data(), 128, stream.get());
  copy_on_device(x + 32, x, 64, stream.get());
  launch({{1}, {32}, 0, stream.get()}, add, x, 2u);
  copy_to_host(pinned.data(), x, 128, stream.get());
  copy_to_host(pageable.data(), x, 32, stream.get());
  event.record(stream.get());
  EXPECT_FALSE(event.is_done());
  const simt::Calls& calls = simt::calls();
  EXPECT_EQ(calls.synchronizations, 0);
  event.synchronize();
  EXPECT_TRUE(event.is_done());
  EXPECT_EQ(calls.synchronizations, 1);
  synchronize(stream.get());
  simt::synchronize();
  EXPECT_EQ(calls.synchronizations, 3);
  using Transfers = simt::Calls::Transfers;
  EXPECT_EQ(calls.fills, (Transfers{1, 256}));
  EXPECT_EQ(calls.copies_to_device, (Transfers{1, 128}));
  EXPECT_EQ(calls.copies_on_device, (Transfers{1, 64}));
  EXPECT_EQ(calls.copies_to_host, (Transfers{2, 160}));
  EXPECT_EQ(calls.unpinned_copies, 1);
  EXPECT_EQ(calls.launches, 1);
  EXPECT_EQ(calls.graph_launches, 0);
  EXPECT_EQ(calls.allocations, (Transfers{0, 0}));
  EXPECT_EQ(calls.releases, 0);
  EXPECT_EQ(calls.objects_made, 0);
  const OwnedStream other;
  const Event another;
  EXPECT_EQ(calls.objects_made, 2);
}

TEST_F(Runtime, CopiesGoTheWayTheySay) {
  const PinnedMemory pinned(128, "a test");
  const DeviceMemory memory(128, "a test");
  EXPECT_THROW(copy_to_device(pinned.data(), memory.data(), 128, nullptr), simt::Error);
  EXPECT_THROW(copy_to_host(memory.data(), pinned.data(), 128, nullptr), simt::Error);
  EXPECT_THROW(copy_on_device(memory.data(), pinned.data(), 128, nullptr), simt::Error);
}

TEST_F(Runtime, GraphIsOneCallWhateverItHas) {
  DeviceArray<uint32_t> x(64, 1);
  const OwnedStream stream;
  const PinnedMemory pinned(128, "a test");
  simt::clear_calls();
  const Graph graph = Graph::capture(stream.get(), [&] {
    launch({{1}, {32}, 0, stream.get()}, add, x.data(), 2u);
    fill(x.data() + 32, 0, 128, stream.get());
    copy_on_device(x.data() + 32, x.data(), 64, stream.get());
    copy_to_host(pinned.data(), x.data(), 128, stream.get());
  });
  EXPECT_EQ(graph.num_kernels(), 1);
  EXPECT_EQ(graph.num_nodes(), 4);
  graph.launch(stream.get());
  graph.launch(stream.get());
  using Transfers = simt::Calls::Transfers;
  const simt::Calls& calls = simt::calls();
  EXPECT_EQ(calls.graph_launches, 2);
  EXPECT_EQ(calls.launches, 0);
  EXPECT_EQ(calls.fills, (Transfers{0, 0}));
  EXPECT_EQ(calls.copies_on_device, (Transfers{0, 0}));
  EXPECT_EQ(calls.copies_to_host, (Transfers{0, 0}));
  EXPECT_EQ(calls.synchronizations, 0);
  EXPECT_EQ(calls.objects_made, 1);
  EXPECT_EQ(x.read()[32], 5u);
}

/// Sees that the launch after it runs beside it.
WARPRANK_KERNEL(32, 1) wait_for_flag(uint32_t* flag) {
  wait_for_previous_launch();
  while (load<Order::relaxed, Scope::device>(flag) == 0) {
  }
}
WARPRANK_KERNEL(32, 1) set_flag(uint32_t* flag) {
  store<Order::relaxed, Scope::device>(flag, 1u);  // what no kernel but this test's does
  wait_for_previous_launch();
}
TEST_F(Runtime, LaunchesOverlapWhereTheySaySo) {
  simt::Config config;
  config.watchdog = 10'000;
  const auto run = [&](auto launch_second) {
    simt::reset(config);
    DeviceArray<uint32_t> flag(1, 0);
    const OwnedStream stream;
    const Graph graph = Graph::capture(stream.get(), [&] {
      launch_overlapping({{1}, {32}, 0, stream.get()}, wait_for_flag, flag.data());
      launch_second(LaunchConfig{{1}, {32}, 0, stream.get()}, flag.data());
    });
    graph.launch(stream.get());
    simt::synchronize();
  };
  EXPECT_NO_THROW(run([](const LaunchConfig& config, uint32_t* flag) { launch_overlapping(config, set_flag, flag); }));
  EXPECT_THROW(run([](const LaunchConfig& config, uint32_t* flag) { launch(config, set_flag, flag); }), simt::Error);
  EXPECT_THROW(run([](const LaunchConfig& config, uint32_t* flag) {
                 const LaunchesInTurn in_turn;
                 launch_overlapping(config, set_flag, flag);
               }),
               simt::Error);
}

TEST_F(Runtime, KernelsMayAccessPinnedMemory) {
  const PinnedMemory pinned(128, "a test");
  auto* const x = static_cast<uint32_t*>(pinned.data());
  std::fill_n(x, 32, 3u);
  launch({1, 32}, add, x, 4u);
  simt::synchronize();
  EXPECT_EQ(x[31], 7u);
  launch({1, 32}, add, x + 1, 4u);
  EXPECT_THROW(simt::synchronize(), simt::Error) << "one behind the end";
}

TEST_F(Runtime, MappedMemoryIsTheHosts) {
  simt::Config config;
  config.count_sectors = true;
  config.pinned_bytes = 200;
  simt::reset(config);
  const std::vector<uint32_t> values(32, 3);
  {
    const MappedMemory mapped(128, "a table");
    EXPECT_EQ(simt::allocated_bytes(), 0);
    EXPECT_EQ(simt::pinned_bytes(), 128);
    EXPECT_EQ(simt::calls().allocations.bytes, 128);
    mapped.write(0, values.data(), 128);
    auto* const x = static_cast<uint32_t*>(mapped.data());
    launch({1, 32}, add, x, 4u);
    simt::synchronize();
    EXPECT_EQ(x[31], 7u);
    EXPECT_EQ(simt::counters().host_load_sectors, 4);
    EXPECT_EQ(simt::counters().host_store_sectors, 4);
    EXPECT_EQ(simt::counters().global_load_sectors, 4) << "among all";
    launch({1, 32}, add, x + 1, 4u);
    EXPECT_THROW(simt::synchronize(), simt::Error) << "one behind the end";
  }
  EXPECT_EQ(simt::pinned_bytes(), 0);
  EXPECT_THROW(MappedMemory(201, "a table"), warprank::cuda_error);
  EXPECT_THROW(MappedMemory(-1, "a table"), warprank::invalid_argument);
  EXPECT_EQ(MappedMemory(0, "a table").data(), nullptr);
  EXPECT_EQ(MappedMemory().bytes(), 0);

  DeviceMemory memory(128, "a test");
  warprank::device::fill(memory.data(), 0, 128, nullptr);
  simt::synchronize();
  simt::clear_counters();
  launch({1, 32}, add, static_cast<uint32_t*>(memory.data()), 4u);
  simt::synchronize();
  EXPECT_EQ(simt::counters().global_load_sectors, 4);
  EXPECT_EQ(simt::counters().host_load_sectors, 0);
}

TEST_F(Runtime, MappedMemoryIsWatched) {
  if (!simt::race::hooks_linked) return;
  const MappedMemory mapped(128, "a table");
  const std::vector<uint32_t> values(32, 3);
  auto* const x = static_cast<uint32_t*>(mapped.data());
  launch({1, 32}, add, x, 4u);
  EXPECT_THROW(simt::synchronize(), simt::Error) << "nobody has written it";
  simt::reset();
  const MappedMemory next(128, "a table");
  next.write(0, values.data(), 128);
  const OwnedStream one, other;
  launch({1, 32, 0, one.get()}, add, static_cast<uint32_t*>(next.data()), 4u);
  launch({1, 32, 0, other.get()}, add, static_cast<uint32_t*>(next.data()), 4u);
  EXPECT_THROW(simt::synchronize(), simt::Error) << "a race";
}

TEST_F(Runtime, WhatOutlivesAResetIsForgotten) {
  std::optional<OwnedStream> stream(std::in_place);
  std::optional<DeviceMemory> memory(DeviceMemory(100, "a test"));
  std::optional<MappedMemory> mapped(MappedMemory(100, "a test"));
  simt::reset();
  const OwnedStream next;
  stream.reset();
  memory.reset();
  mapped.reset();
  EXPECT_EQ(simt::num_streams(), 1);
  EXPECT_EQ(simt::allocated_bytes(), 0);
}

}  // namespace
