// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/half.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sync.hpp"

namespace device_half_test {

namespace device = warprank::device;

/// pairs[2 i], pairs[2 i + 1] of (values[2 i], values[2 i + 1]): as they are, and with what is negative as 0.
WARPRANK_KERNEL(32, 1) narrow_pairs(const float* values, uint32_t* pairs) {
  const int i = device::thread_rank();
  device::prefetch(&values[2 * i]);
  device::wait_for_previous_launch();
  const float low = device::load(&values[2 * i]), high = device::load(&values[2 * i + 1]);
  device::store(&pairs[2 * i], device::narrow_pair(low, high));
  device::store(&pairs[2 * i + 1], device::narrow_pair_relu(low, high));
}

}  // namespace device_half_test

namespace {

namespace device = warprank::device;
using testing::ElementsAreArray;

TEST(DeviceHalf, PairsAreRoundedSaturateAndKeepNaN) {
  const std::vector<float> values = {1.f / 3, -1.f / 3, 65519,   65520, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY,
                                     NAN,     0,        6.0e-8f, -2,    1e-9f,   -1e-9f,   2049,     2051};
  const std::vector<uint32_t> expected = {0xb5553555, 0x00003555, 0x7bff7bff, 0x7bff7bff, 0xfbff7bff, 0x00007bff,
                                          0xfbff7bff, 0x00007bff, 0x00007fff, 0x00007fff, 0xc0000001, 0x00000001,
                                          0x80000000, 0x00000000, 0x68026800, 0x68026800};
  const int64_t bytes = 4 * static_cast<int64_t>(values.size());
  const device::OwnedStream stream;
  const device::DeviceMemory in(bytes, "a test"), out(bytes, "a test");
  const device::PinnedMemory from(bytes, "a test"), to(bytes, "a test");
  std::copy(values.begin(), values.end(), static_cast<float*>(from.data()));
  device::copy_to_device(in.data(), from.data(), bytes, stream.get());
  device::launch({1, 8, 0, stream.get()}, device_half_test::narrow_pairs, static_cast<const float*>(in.data()),
                 static_cast<uint32_t*>(out.data()));
  device::copy_to_host(to.data(), out.data(), bytes, stream.get());
  device::synchronize(stream.get());
  const auto* pairs = static_cast<const uint32_t*>(to.data());
  EXPECT_THAT(std::vector<uint32_t>(pairs, pairs + values.size()), ElementsAreArray(expected));
}

}  // namespace
