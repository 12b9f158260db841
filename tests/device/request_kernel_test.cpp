// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"

namespace device_request_test {

namespace device = warprank::device;

/// sums[i] = a[i] + b[i], four at a time.
WARPRANK_KERNEL(32, 1) add_fours(const uint32_t* a, const uint32_t* b, uint32_t* sums) {
  const int i = device::thread_rank() * 4;
  auto four = device::request_vector_once<4>(a + i);
  const auto other = device::load_vector_ahead<4>(b + i);
  for (int j = 0; j < 4; ++j) four[j] += other[j];
  device::store_vector(sums + i, four);
}

}  // namespace device_request_test

namespace {

using kernel_testing::DeviceArray;

TEST(DeviceRequest, GivesWhatIsInMemory) {
  std::vector<uint32_t> a(128), b(128), sums(128);
  std::iota(a.begin(), a.end(), 1000u);
  std::iota(b.begin(), b.end(), 7u);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = a[i] + b[i];
  kernel_testing::reset();
  DeviceArray<uint32_t> device_a(a), device_b(b), to(128);
  warprank::device::launch({1, 32}, device_request_test::add_fours, static_cast<const uint32_t*>(device_a.data()),
                           static_cast<const uint32_t*>(device_b.data()), to.data());
  EXPECT_THAT(to.read(), testing::ElementsAreArray(sums));
}

}  // namespace
