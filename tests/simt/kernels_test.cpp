// SPDX-License-Identifier: Apache-2.0
//
// Kernels as a library has them: right in every order, nothing raised, and counted exactly.

#include "simt/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "simt/race.hpp"
#include "simt/runtime.hpp"
#include "warprank/core/dtype.hpp"

namespace {

using simt::DeviceArray;
using warprank::device::launch;
using warprank::device::Order;

class Kernels : public testing::Test {
 protected:
  void TearDown() override { simt::reset(); }

  /// Runs the body in a hundred random orders, and in both others.
  template <class Body>
  static void in_every_order(Body body) {
    simt::Config config;
    for (config.seed = 1; config.seed <= 100; ++config.seed) {
      simt::reset(config);
      ASSERT_NO_FATAL_FAILURE(body()) << "seed " << config.seed;
    }
    for (const simt::Schedule schedule : {simt::Schedule::forward, simt::Schedule::reverse}) {
      config.schedule = schedule;
      simt::reset(config);
      ASSERT_NO_FATAL_FAILURE(body());
    }
  }
};

TEST_F(Kernels, SumIsTheSameBitForBitInEveryOrder) {
  std::vector<float> x(3000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1.f / static_cast<float>(i + 1);
  std::set<float> results;
  in_every_order([&] {
    DeviceArray<float> device_x(x), partial(5), out(1);
    DeviceArray<uint32_t> ticket(1, 0);
    for (int again = 0; again < 2; ++again) {
      launch({5, kernels::sum_threads}, kernels::sum, device_x.data(), int64_t{3000}, partial.data(), ticket.data(),
             out.data());
    }
    results.insert(out.read()[0]);
    ASSERT_EQ(ticket.read()[0], 0u);
  });
  EXPECT_EQ(results.size(), 1u);
  EXPECT_NEAR(*results.begin(), 8.584, 1e-3);
}

TEST_F(Kernels, InsertPlacesEveryKeyOnce) {
  std::vector<uint64_t> keys(200);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i % 90 * 0x100000001u + 5;
  const std::set<uint64_t> distinct(keys.begin(), keys.end());
  const std::multiset<uint64_t> expected(distinct.begin(), distinct.end());
  in_every_order([&] {
    DeviceArray<uint64_t> device_keys(keys), slots(16 * 8, kernels::empty_key);
    DeviceArray<uint32_t> failed(1, 0);
    launch({3, 64}, kernels::insert, device_keys.data(), int64_t{200}, slots.data(), 16u, failed.data());
    std::multiset<uint64_t> placed;
    for (uint64_t slot : slots.read()) {
      if (slot != kernels::empty_key) placed.insert(slot);
    }
    ASSERT_EQ(placed, expected);
    ASSERT_EQ(failed.read()[0], 0u);
  });
}

TEST_F(Kernels, GemmAgreesWithItsFormulaAndCountsItsInstructions) {
  constexpr int n = kernels::gemm_size;
  std::vector<warprank::float16> a(n * n), b(n * n);
  for (int i = 0; i < n * n; ++i) {  // sums of these are exact in FP32
    a[static_cast<size_t>(i)] = warprank::to_float16(static_cast<float>(i * 7 % 17 - 8) / 8);
    b[static_cast<size_t>(i)] = warprank::to_float16(static_cast<float>(i * 5 % 19 - 9) / 8);
  }
  for (const int target : {75, 80}) {
    simt::Config config;
    config.target = target;
    config.count_sectors = true;
    simt::reset(config);
    DeviceArray<warprank::float16> device_a(a), device_b(b);
    DeviceArray<float> c(n * n);
    const auto kernel = target == 75 ? &kernels::gemm<8> : &kernels::gemm<16>;
    simt::clear_counters();
    launch({1, kernels::gemm_threads, kernels::gemm_shared_bytes}, kernel, device_a.data(), device_b.data(), c.data());
    const std::vector<float> result = c.read();
    for (int row = 0; row < n; ++row) {
      for (int col = 0; col < n; ++col) {
        float sum = 0;
        for (int k = 0; k < n; ++k) {
          sum += warprank::to_float(a[static_cast<size_t>(row * n + k)]) *
                 warprank::to_float(b[static_cast<size_t>(k * n + col)]);
        }
        ASSERT_EQ(result[static_cast<size_t>(row * n + col)], sum) << row << ", " << col;
      }
    }
    const simt::Counters& counted = simt::counters();
    EXPECT_EQ(counted.launches, 1);
    EXPECT_EQ(counted.mma, n / 16 * n / 8 * n / (target == 75 ? 8 : 16));
    EXPECT_EQ(counted.async_copies, 2 * n * n / 8);
    EXPECT_EQ(counted.barriers, 1);
    EXPECT_EQ(counted.atomics, 0);
    EXPECT_EQ(counted.global_load_sectors, 2 * n * n * 2 / 32);
    EXPECT_EQ(counted.global_store_sectors, n * n * 4 / 32);
  }
}

TEST_F(Kernels, RowIsReadWholeWhileItIsReplaced) {
  std::set<uint32_t> versions;
  in_every_order([&] {
    DeviceArray<kernels::Row> row(1);
    simt::fill(row.data(), 0, sizeof(kernels::Row));
    DeviceArray<uint32_t> out(64);
    simt::synchronize();
    launch({{1}, {64}, 0, simt::create_stream()}, kernels::update_row, row.data(), 7u);
    launch({{1}, {64}, 0, simt::create_stream()}, kernels::read_row, row.data(), out.data());
    const std::vector<uint32_t> read = out.read();
    for (uint32_t value : read) ASSERT_EQ(value, read[0]);
    versions.insert(read[0]);
  });
  EXPECT_EQ(versions, (std::set<uint32_t>{0, 7})) << "both outcomes should have been seen";
}

TEST_F(Kernels, RowThatIsReplacedTwiceUnderAReaderIsARace) {
  if (!simt::race::enabled()) GTEST_SKIP() << "only the race build sees it";
  int caught = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {  // the second update takes the slot that a reader may still read
    simt::Config config;
    config.seed = seed;
    simt::reset(config);
    DeviceArray<kernels::Row> row(1);
    simt::fill(row.data(), 0, sizeof(kernels::Row));
    DeviceArray<uint32_t> out(64);
    simt::synchronize();
    const auto updates = simt::create_stream();
    launch({{1}, {64}, 0, updates}, kernels::update_row, row.data(), 7u);
    launch({{1}, {64}, 0, updates}, kernels::update_row, row.data(), 8u);
    launch({{1}, {64}, 0, simt::create_stream()}, kernels::read_row, row.data(), out.data());
    try {
      simt::synchronize();
    } catch (const simt::Error& error) {
      EXPECT_NE(std::string(error.what()).find("data race in global memory"), std::string::npos) << error.what();
      ++caught;
    }
  }
  EXPECT_GT(caught, 0);
}

TEST_F(Kernels, ScaleRequestsEachSectorOnce) {
  simt::Config config;
  config.count_sectors = true;
  simt::reset(config);
  DeviceArray<float> x(1024, 3.f);
  simt::clear_counters();
  launch({2, 64}, kernels::scale, x.data(), int64_t{1024}, 2.f);
  EXPECT_EQ(x.read(), std::vector<float>(1024, 6.f));
  EXPECT_EQ(simt::counters().global_load_sectors, 1024 * 4 / 32);
  EXPECT_EQ(simt::counters().global_store_sectors, 1024 * 4 / 32);
}

/// What a reader of two flags finds over many orders: the later flag, the earlier flag.
std::set<std::pair<uint32_t, uint32_t>> outcomes(void (*message)(uint32_t*, uint32_t*)) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    simt::Config config;
    config.seed = seed;
    config.preemption = 2;
    simt::reset(config);
    DeviceArray<uint32_t> flags(2, 0), found(2);
    launch({2, 1}, message, flags.data(), found.data());
    const std::vector<uint32_t> read = found.read();
    seen.insert({read[0], read[1]});
  }
  return seen;
}

TEST_F(Kernels, RelaxedStoresMayBeSeenInTheOtherOrder) {
  if (!simt::race::enabled()) GTEST_SKIP() << "stores are delayed in the race build only";
  EXPECT_EQ(outcomes(kernels::message<Order::relaxed, Order::relaxed, false>).count({1, 0}), 1u);
}

TEST_F(Kernels, ReleaseOrFenceKeepsStoresInOrder) {
  const std::set<std::pair<uint32_t, uint32_t>> in_order{{0, 0}, {0, 1}, {1, 1}};
  EXPECT_EQ(outcomes(kernels::message<Order::release, Order::acquire, false>), in_order);
  EXPECT_EQ(outcomes(kernels::message<Order::relaxed, Order::relaxed, true>), in_order);
}

TEST_F(Kernels, EmptyGroupsOfCopiesNeedNoWait) {
  simt::reset();
  launch({1, 32}, kernels::commit_nothing);
  simt::synchronize();
}

TEST_F(Kernels, OffsetsBeyondTwoGigabytesWorkOnMemoryThatIsMostlyUntouched) {
  constexpr int64_t n = int64_t{3} << 30;  // 12 GB
  simt::reset();
  DeviceArray<float> x(n);
  const int64_t last = n - 1024;
  for (int64_t i = 0; i < 1024; ++i) x.data()[last + i] = 1;
  simt::mark_written(x.data() + last, 4096);
  launch({1, 256}, kernels::scale, x.data() + last, int64_t{1024}, 4.f);
  simt::synchronize();
  EXPECT_EQ(x.data()[n - 1], 4);
}

}  // namespace
