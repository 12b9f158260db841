// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/sorted.hpp"

namespace device_memory_test {

namespace device = warprank::device;

/// sums[i] of what is at x[i] in loads of 4, 8 and 16 bytes; memory behind the count is read and not used.
WARPRANK_KERNEL(32, 1) sum_ahead(const uint32_t* x, const int64_t* count, uint32_t* sums) {
  const int i = device::thread_rank();
  int64_t end = device::load_ahead(count);
  const uint32_t one = device::load_ahead(&x[4 * i]);
  const auto two = device::load_vector_ahead<2>(&x[4 * i]);
  const auto four = device::load_vector_ahead<4>(&x[4 * i]);
  device::use_from_here(end);
  if (i < end) device::store(&sums[i], one + two[1] + four[2] + four[3]);
}

/// sums[i] = a[i] + b[i], four at a time.
WARPRANK_KERNEL(32, 1) add_fours(const uint32_t* a, const uint32_t* b, uint32_t* sums) {
  const int i = device::thread_rank() * 4;
  auto four = device::load_vector_once<4>(a + i);
  const auto other = device::load_vector_ahead<4>(b + i);
  for (int j = 0; j < 4; ++j) four[j] += other[j];
  device::store_vector(sums + i, four);
}

/// found[i] of values[i], by a warp.
WARPRANK_KERNEL(32, 1)
find(const int64_t* sorted, int64_t capacity, const int64_t* count, const int64_t* values, int64_t* found) {
  const int64_t i = device::block_index().x;
  const int64_t by_warp = device::warp_last_not_above(sorted, capacity, count, device::load(&values[i]));
  if (device::lane_index() == 0) device::store(&found[i], by_warp);
}

}  // namespace device_memory_test

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels

TEST(DeviceMemory, IsReadAheadOfACount) {
  reset();
  std::vector<uint32_t> x;
  for (uint32_t i = 0; i < 40; ++i) x.push_back(i);
  DeviceArray<uint32_t> unwritten(128), sums(32);
  unwritten.write(x);
  DeviceArray<int64_t> count(std::vector<int64_t>{10});
  warprank::device::launch({1, 32}, device_memory_test::sum_ahead, unwritten.data(), count.data(), sums.data());
  const std::vector<uint32_t> result = sums.read();
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(result[i], 16 * i + 6);
}

TEST(DeviceMemory, IsReadOnceAndAheadAsItIs) {
  reset();
  std::vector<uint32_t> a(128), b(128), sums(128);
  std::iota(a.begin(), a.end(), 1000u);
  std::iota(b.begin(), b.end(), 7u);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = a[i] + b[i];
  DeviceArray<uint32_t> device_a(a), device_b(b), to(128);
  warprank::device::launch({1, 32}, device_memory_test::add_fours, static_cast<const uint32_t*>(device_a.data()),
                           static_cast<const uint32_t*>(device_b.data()), to.data());
  EXPECT_EQ(to.read(), sums);
}

TEST(DeviceSorted, IsSearchedByAWarpAsByOneThread) {
  for (const int64_t count : {0, 1, 2, 31, 32, 33, 63, 64, 65, 100, 1000, 2048, 2049, 5000}) {
    reset();
    std::vector<int64_t> sorted, values;
    for (int64_t i = 0; i <= count; ++i) sorted.push_back(i / 3 * 10);  // segments that are empty, too
    for (int64_t i = 0; i < 40; ++i) values.push_back(i * sorted.back() / 36 - 1);
    values.insert(values.end(), {0, 9, 10, 11, sorted.back()});
    // Alone, and before values that nobody has written.
    for (const int64_t more : {0, 20}) {
      DeviceArray<int64_t> list(count + 1 + more), wanted(values), found(static_cast<int64_t>(values.size()));
      DeviceArray<int64_t> counts(std::vector<int64_t>{count});
      list.write(sorted);
      warprank::device::launch({static_cast<unsigned>(values.size()), 32}, device_memory_test::find, list.data(),
                               count + more, more == 0 ? nullptr : counts.data(), wanted.data(), found.data());
      const std::vector<int64_t> result = found.read();
      for (size_t i = 0; i < values.size(); ++i) {
        const auto end = std::upper_bound(sorted.begin(), sorted.begin() + count, values[i]);
        EXPECT_EQ(result[i], std::max<int64_t>(end - sorted.begin() - 1, 0)) << values[i] << " of " << count;
      }
    }
  }
}

}  // namespace
