// SPDX-License-Identifier: Apache-2.0
//
// Several devices, and memory that they share.

#include "simt/devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simt/race.hpp"
#include "simt/runtime.hpp"
#include "support/message_of.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sharded_memory.hpp"
#include "warprank/device/sync.hpp"

namespace {

using namespace warprank::device;  // NOLINT: for kernels
using testing::HasSubstr;
using warprank::test_support::message_of;

WARPRANK_KERNEL(32, 1) add_one(uint32_t* x) { store(&x[thread_rank()], load(&x[thread_rank()]) + 1); }
WARPRANK_KERNEL(32, 1) add_one_plainly(uint32_t* x) { x[thread_rank()] += 1; }
template <Scope Within>
WARPRANK_KERNEL(1, 1)
hand_over(uint32_t* x, uint32_t* flag) {
  store(x, 7u);
  store<Order::release, Within>(flag, 1u);
}
template <Scope Within>
WARPRANK_KERNEL(1, 1)
take_over(const uint32_t* x, uint32_t* y, const uint32_t* flag) {
  while (load<Order::acquire, Within>(flag) == 0) {
  }
  store(y, load(x));
}

class Devices : public testing::Test {
 protected:
  void SetUp() override { simt::reset(three_devices()); }
  void TearDown() override { simt::reset(); }

  static simt::Config three_devices(uint64_t seed = 1) {
    simt::Config config;
    config.devices = 3;
    config.seed = seed;
    return config;
  }
  static uint32_t* zeros(int device) {
    const DeviceGuard current(device);
    auto* const memory = static_cast<uint32_t*>(simt::allocate(128));
    simt::fill(memory, 0, 128);
    simt::synchronize();
    return memory;
  }
  /// What is wrong with it.
  static std::string run_on(int device, void (*kernel)(uint32_t*), uint32_t* memory) {
    return message_of([&] {
      const DeviceGuard current(device);
      launch({{1}, {32}, 0, nullptr}, kernel, memory);
      simt::synchronize();
    });
  }
};

TEST_F(Devices, AreChosenByNumber) {
  EXPECT_EQ(num_devices(), 3);
  EXPECT_NO_THROW(DeviceGuard(2));
  EXPECT_THROW(DeviceGuard(3), warprank::cuda_error);
  EXPECT_THROW(DeviceGuard(-1), warprank::cuda_error);
}

TEST_F(Devices, UseTheirOwnMemoryAndTheHosts) {
  uint32_t* const of_1 = zeros(1);
  const MappedMemory of_host(128, "a test");
  simt::fill(of_host.data(), 0, 128);
  simt::synchronize();
  EXPECT_EQ(run_on(1, add_one, of_1), "");
  EXPECT_THAT(run_on(0, add_one, of_1), HasSubstr("memory of another device, which device 0 may not access"));
  for (int device = 0; device < 3; ++device)
    EXPECT_EQ(run_on(device, add_one, static_cast<uint32_t*>(of_host.data())), "");
  if (!simt::race::enabled()) return;
  EXPECT_EQ(run_on(1, add_one_plainly, of_1), "");
  EXPECT_THAT(run_on(2, add_one_plainly, of_1), HasSubstr("memory of another device, which device 2 may not access"));
}

TEST_F(Devices, UseMemoryThatIsSharded) {
  EXPECT_TRUE(can_shard({0, 2}));
  const ShardedMemory memory(4000, {0, 2}, "a test");
  EXPECT_EQ(memory.bytes_on(0), 2048);
  EXPECT_EQ(memory.bytes_on(1), 2048);
  EXPECT_EQ(simt::allocated_bytes(0), 2048);
  EXPECT_EQ(simt::allocated_bytes(1), 0);
  EXPECT_EQ(simt::allocated_bytes(2), 2048);
  const std::vector<uint32_t> numbers(1000, 5);
  memory.write(0, numbers.data(), 4000, nullptr);
  simt::synchronize();
  auto* const x = static_cast<uint32_t*>(memory.data());
  for (uint32_t* const part : {x, x + 128, x + 120}) {
    EXPECT_EQ(run_on(0, add_one, part), "");
    EXPECT_EQ(run_on(2, add_one, part), "");
    EXPECT_THAT(run_on(1, add_one, part), HasSubstr("which device 1 may not access"));
  }
  EXPECT_EQ(x[121], 7u);
  EXPECT_THAT(message_of([&] {
                std::vector<uint32_t> host(200);
                simt::copy(host.data(), x, 800);
              }),
              HasSubstr("memory of several devices"));
  simt::allow_peer_access(false);
  EXPECT_FALSE(can_shard({0, 2}));
  EXPECT_TRUE(can_shard({2}));
}

TEST_F(Devices, HaveLimitsOfTheirOwn) {
  simt::limit_memory(2048, 0);
  const DeviceMemory of_0(1024, "a test");
  EXPECT_EQ(device_info(0).free_bytes, 1024);
  EXPECT_EQ(device_info(1).free_bytes, 2048);
  EXPECT_NO_THROW(ShardedMemory(3 * 512, {0, 1}, "a test"));
  EXPECT_EQ(device_info(1).free_bytes, 2048) << "it is gone again";
  try {
    ShardedMemory(6 * 512, {1, 0}, "a test");
    FAIL() << "more than device 0 has";
  } catch (const warprank::out_of_device_memory& error) {
    EXPECT_THAT(error.what(), HasSubstr("a test, its share of device 0"));
  }
  EXPECT_NO_THROW(ShardedMemory(4 * 512, {1, 2}, "a test"));
}

TEST_F(Devices, HaveStreamsAndEventsOfTheirOwn) {
  const DeviceGuard current(1);
  const Stream stream = simt::create_stream();
  const simt::Event event = simt::create_event();
  uint32_t* const of_1 = zeros(1);
  EXPECT_NO_THROW(launch({{1}, {32}, 0, stream}, add_one, of_1));
  EXPECT_NO_THROW(simt::record(event, stream));
  {
    const DeviceGuard other(0);
    EXPECT_THAT(message_of([&] { launch({{1}, {32}, 0, stream}, add_one, of_1); }), HasSubstr("the current device"));
    EXPECT_THAT(message_of([&] { simt::record(event, simt::create_stream()); }), HasSubstr("different devices"));
    EXPECT_NO_THROW(simt::wait(simt::create_stream(), event)) << "which orders devices";
  }
  simt::synchronize(stream);
}

TEST_F(Devices, AreOrderedByEventsAndInTheScopeOfTheSystem) {
  if (!simt::race::enabled()) GTEST_SKIP() << "only the race build sees it";
  const auto handed_over = [&](bool release, bool acquire) {
    const ShardedMemory memory(2048, {0, 1}, "a test");
    auto* const x = static_cast<uint32_t*>(memory.data());
    simt::fill(x, 0, 512);
    simt::synchronize();
    return message_of([&] {
      launch({{1}, {1}, 0, nullptr}, release ? hand_over<Scope::system> : hand_over<Scope::device>, x, x + 1);
      const DeviceGuard current(1);
      launch({{1}, {1}, 0, nullptr}, acquire ? take_over<Scope::system> : take_over<Scope::device>,
             static_cast<const uint32_t*>(x), x + 2, static_cast<const uint32_t*>(x + 1));
      simt::synchronize();
    });
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    simt::reset(three_devices(seed));
    EXPECT_EQ(handed_over(true, true), "");
    for (const auto& [release, acquire] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)})
      EXPECT_THAT(handed_over(release, acquire), HasSubstr("data race in global memory"));
  }
}

TEST(Stripes, AreOfAllDevicesAndNotTooMany) {
  EXPECT_EQ(Stripes(0, 512, 2).bytes(), 0);
  const Stripes few(1025, 512, 2);
  EXPECT_EQ(few.stripe_bytes(), 512);
  EXPECT_EQ(few.bytes(), 1536);
  EXPECT_EQ(few.bytes_on(0), 1024);
  EXPECT_EQ(few.bytes_on(1), 512);
  const int64_t page = 2 << 20;
  const Stripes large(int64_t{100} << 30, page, 3);
  EXPECT_EQ(large.stripe_bytes(), 7 * page);
  EXPECT_LT(large.bytes() - (int64_t{100} << 30), large.stripe_bytes());
  EXPECT_EQ(large.bytes_on(0) + large.bytes_on(1) + large.bytes_on(2), large.bytes());
  EXPECT_EQ(Stripes(page * 8192, page, 3).stripe_bytes(), page);
}

}  // namespace
