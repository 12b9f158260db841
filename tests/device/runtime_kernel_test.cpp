// SPDX-License-Identifier: Apache-2.0
//
// What engines use of a runtime, on the executor and on a GPU. What only the executor can tell is in
// tests/simt/runtime_test.cpp.

#include "warprank/device/runtime.hpp"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"

namespace device_runtime_test {

namespace device = warprank::device;

WARPRANK_KERNEL(32, 1) add(uint32_t* x, uint32_t value) {
  const int i = device::thread_rank();
  device::store(&x[i], device::load(&x[i]) + value);
}
WARPRANK_KERNEL(32, 1) multiply(uint32_t* x, uint32_t value) {
  const int i = device::thread_rank();
  device::store(&x[i], device::load(&x[i]) * value);
}

WARPRANK_KERNEL(32, 1) add_behind(uint32_t* x, uint32_t value) {
  device::wait_for_previous_launch();
  const int i = device::thread_rank();
  device::store(&x[i], device::load(&x[i]) + value);
}
WARPRANK_KERNEL(32, 1) multiply_behind(uint32_t* x, uint32_t value) {
  device::wait_for_previous_launch();
  const int i = device::thread_rank();
  device::store(&x[i], device::load(&x[i]) * value);
}

}  // namespace device_runtime_test

namespace {

using namespace device_runtime_test;  // NOLINT: its kernels
using device::DeviceMemory, device::Event, device::Graph, device::OwnedStream, device::PinnedMemory;
using testing::HasSubstr;

constexpr int64_t too_many_bytes = int64_t{1} << 50;

/// 32 numbers on the device and, pinned, on the host.
struct Numbers {
  explicit Numbers(uint32_t value) {
    for (int i = 0; i < 32; ++i) on_host[i] = value;
    device::copy_to_device(x, on_host, 128, stream.get());
  }
  uint32_t last() {
    device::copy_to_host(on_host, x, 128, stream.get());
    device::synchronize(stream.get());
    return on_host[31];
  }

  OwnedStream stream;
  DeviceMemory memory{128, "a test"};
  PinnedMemory pinned{128, "a test"};
  uint32_t* x = static_cast<uint32_t*>(memory.data());
  uint32_t* on_host = static_cast<uint32_t*>(pinned.data());
};

void expect_no_error_left() {
#if defined(__CUDACC__)
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
#endif
}

class DeviceRuntime : public testing::Test {
 protected:
  void SetUp() override { kernel_testing::reset(); }
  void TearDown() override {
#if !defined(__CUDACC__)
    EXPECT_EQ(simt::allocated_bytes(), 0);
    EXPECT_EQ(simt::pinned_bytes(), 0);
    EXPECT_EQ(simt::num_streams(), 0);
#endif
    expect_no_error_left();
  }
};

template <class Memory>
void expect_to_own_its_memory() {
  Memory memory(1000, "a test");
  EXPECT_EQ(memory.bytes(), 1000);
  void* const data = memory.data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
  Memory moved = std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.bytes(), 1000);
  EXPECT_EQ(memory.data(), nullptr);  // NOLINT: what is moved from is empty
  EXPECT_EQ(memory.bytes(), 0);
  moved = Memory(500, "a test");
  EXPECT_EQ(moved.bytes(), 500);
  EXPECT_EQ(Memory(0, "a test").data(), nullptr);
  EXPECT_THROW(Memory(-1, "a test"), warprank::invalid_argument);
}

TEST_F(DeviceRuntime, MemoryIsOwned) {
  expect_to_own_its_memory<DeviceMemory>();
  expect_to_own_its_memory<PinnedMemory>();
}

TEST_F(DeviceRuntime, SaysWhoNeedsMemoryThatIsNotThereAndGoesOn) {
  try {
    const DeviceMemory memory(too_many_bytes, "the tables");
    ADD_FAILURE() << "it fits";
  } catch (const warprank::out_of_device_memory& error) {
    EXPECT_THAT(error.what(), HasSubstr("the tables: expected 1125899906842624 bytes of device memory, got "));
    EXPECT_EQ(error.needed_bytes(), too_many_bytes);
    EXPECT_GT(error.free_bytes(), 0);
  }
  EXPECT_THROW(PinnedMemory(too_many_bytes, "the scores"), warprank::cuda_error);
  expect_no_error_left();
  Numbers numbers(7);
  EXPECT_EQ(numbers.last(), 7u);
}

TEST_F(DeviceRuntime, CopiesThereOnAndBack) {
  Numbers from(7), to(8);
  device::synchronize(from.stream.get());
  device::copy_on_device(to.x, from.x, 124, to.stream.get());
  EXPECT_EQ(to.last(), 8u);
  EXPECT_EQ(to.on_host[30], 7u);
  device::fill(to.x, 1, 128, to.stream.get());
  EXPECT_EQ(to.last(), 0x01010101u);
}

TEST_F(DeviceRuntime, HostWaitsForAnEvent) {
  Numbers numbers(1);
  Event event;
  EXPECT_TRUE(event.is_done());
  device::launch({{1}, {32}, 0, numbers.stream.get()}, add, numbers.x, 2u);
  device::copy_to_host(numbers.on_host, numbers.x, 128, numbers.stream.get());
  event.record(numbers.stream.get());
  event.synchronize();
  EXPECT_TRUE(event.is_done());
  EXPECT_EQ(numbers.on_host[0], 3u);
}

TEST_F(DeviceRuntime, GraphIsLaunchedOnWhatMemoryHolds) {
  Numbers main(1), beside(1);
  device::synchronize(beside.stream.get());
  const device::Stream stream = main.stream.get(), side = beside.stream.get();
  Event begun, joined;
  const Graph graph = Graph::capture(stream, [&] {
    device::launch({{1}, {32}, 0, stream}, add, main.x, 2u);
    begun.record(stream);
    begun.wait_in(side);
    device::fill(beside.x, 1, 64, side);
    device::launch({{1}, {32}, 0, side}, add, beside.x, 3u);
    joined.record(side);
    device::launch({{1}, {32}, 0, stream}, multiply, main.x, 5u);
    joined.wait_in(stream);
  });
  EXPECT_EQ(graph.num_kernels(), 3);
  EXPECT_EQ(graph.num_nodes(), 4);
  EXPECT_EQ(main.last(), 1u) << "a capture runs nothing";
  graph.launch(stream);
  const Graph copy = graph;
  copy.launch(stream);
  EXPECT_EQ(main.last(), ((1u + 2) * 5 + 2) * 5);
  EXPECT_EQ(beside.last(), 7u);
  EXPECT_EQ(beside.on_host[0], 0x01010104u);
  Graph().launch(stream);
  EXPECT_EQ(Graph().num_nodes() + Graph().num_kernels(), 0);
}

TEST_F(DeviceRuntime, LaterLaunchesOfAGraphHaveTheArgumentsThatAreSet) {
  Numbers numbers(1);
  const Graph graph = Graph::capture(numbers.stream.get(), [&] {
    device::launch({{1}, {32}, 0, numbers.stream.get()}, add, numbers.x, 2u);
    device::launch({{1}, {32}, 0, numbers.stream.get()}, multiply, numbers.x, 5u);
  });
  graph.launch(numbers.stream.get());
  graph.set_arguments(multiply, numbers.x, 10u);
  graph.launch(numbers.stream.get());
  EXPECT_EQ(numbers.last(), ((1u + 2) * 5 + 2) * 10) << "what was launched before keeps its own";
}

TEST_F(DeviceRuntime, LaunchesThatOverlapWaitForOneAnother) {
  Numbers numbers(1);
  const auto chain = [&] {
    for (uint32_t i = 0; i < 8; ++i) {
      device::launch_overlapping({{1}, {32}, 0, numbers.stream.get()}, add_behind, numbers.x, i);
      device::launch_overlapping({{1}, {32}, 0, numbers.stream.get()}, multiply_behind, numbers.x, 3u);
    }
  };
  uint32_t expected = 1;
  const auto follow = [&] {
    for (uint32_t i = 0; i < 8; ++i) expected = (expected + i) * 3;
  };
  chain(), follow();
  const Graph graph = Graph::capture(numbers.stream.get(), chain);
  EXPECT_EQ(graph.num_kernels(), 16);
  graph.launch(numbers.stream.get()), follow();
  graph.launch(numbers.stream.get()), follow();
  {
    const device::LaunchesInTurn in_turn;
    chain(), follow();
  }
  EXPECT_EQ(numbers.last(), expected);
}

TEST_F(DeviceRuntime, CaptureThatThrowsLeavesNothing) {
  Numbers main(1), beside(1);
  device::synchronize(beside.stream.get());
  const device::Stream stream = main.stream.get(), side = beside.stream.get();
  Event begun;
  const auto fails = [&] {
    device::launch({{1}, {32}, 0, stream}, add, main.x, 2u);
    begun.record(stream);
    begun.wait_in(side);
    device::launch({{1}, {32}, 0, side}, add, main.x, 3u);  // never joined
    throw std::runtime_error("in the middle");
  };
  EXPECT_THROW(Graph::capture(stream, fails), std::runtime_error);
  expect_no_error_left();
  const auto add_ten = [&] { device::launch({{1}, {32}, 0, stream}, add, main.x, 10u); };
  add_ten();
  EXPECT_EQ(main.last(), 11u) << "something of the capture ran";
  device::launch({{1}, {32}, 0, side}, add, beside.x, 4u);
  EXPECT_EQ(beside.last(), 5u) << "the other stream is still captured";
  const Graph graph = Graph::capture(stream, add_ten);
  EXPECT_EQ(graph.num_nodes(), 1);
  graph.launch(stream);
  EXPECT_EQ(main.last(), 21u);
}

TEST_F(DeviceRuntime, StreamsGoAndTheirWorkIsDone) {
  Numbers numbers(1);
  device::synchronize(numbers.stream.get());
  Event event;
  {
    const OwnedStream stream, same = stream;
    device::launch({{1}, {32}, 0, same.get()}, add, numbers.x, 2u);
    event.record(stream.get());
  }
  event.wait_in(numbers.stream.get());
  EXPECT_EQ(numbers.last(), 3u);
}

TEST_F(DeviceRuntime, DescribesDevices) {
  EXPECT_GE(device::num_devices(), 1);
  const device::DeviceInfo info = device::device_info(0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.target, device::target());
  EXPECT_EQ(info.multiprocessors, device::num_multiprocessors());
  EXPECT_GT(info.free_bytes, 0);
  EXPECT_GE(info.total_bytes, info.free_bytes);
  EXPECT_THROW(device::device_info(device::num_devices()), warprank::cuda_error);
  EXPECT_THROW(device::DeviceGuard(-1), warprank::cuda_error);
  expect_no_error_left();
}

TEST_F(DeviceRuntime, BatchesMayBePinned) {
  warprank::Graph graph;
  graph.axes = {{"user", -1, 0}};
  graph.ids = {{"user_id", 0, {}, {}}};
  const OwnedStream stream;
  warprank::Batch batch(warprank::BatchLayout(graph), device::pinned_allocator());
  for (int64_t i = 0; i < 2000; ++i) batch.add_request().ids({0}, {i});  // it grows on the way
  batch.close();
  const warprank::Span<const std::byte> bytes = batch.bytes();
  const DeviceMemory memory(bytes.size(), "a test");
  const PinnedMemory back(bytes.size(), "a test");
  device::copy_to_device(memory.data(), bytes.data(), bytes.size(), stream.get());
  device::copy_to_host(back.data(), memory.data(), bytes.size(), stream.get());
  device::synchronize(stream.get());
  EXPECT_EQ(std::memcmp(back.data(), bytes.data(), static_cast<size_t>(bytes.size())), 0);
#if !defined(__CUDACC__)
  EXPECT_EQ(simt::calls().unpinned_copies, 0);
#endif
}

}  // namespace
