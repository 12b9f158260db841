// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/device/index.hpp"

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

}  // namespace
