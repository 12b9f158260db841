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

/// sums[2 i] = a[i] b[i] + c[i] in pairs of halves, sums[2 i + 1] the same without infinity.
WARPRANK_KERNEL(32, 1) multiply_pairs(const uint32_t* factors, uint32_t* sums) {
  const int i = device::thread_rank();
  const uint32_t a = device::load(&factors[3 * i]), b = device::load(&factors[3 * i + 1]);
  const uint32_t sum = device::fma_halves(a, b, device::load(&factors[3 * i + 2]));
  device::store(&sums[2 * i], sum);
  device::store(&sums[2 * i + 1], device::saturate_halves(sum));
}

/// bytes[4 * i + j] of byte j of word i.
WARPRANK_KERNEL(32, 1) widen_bytes(const uint32_t* words, float* bytes) {
  const int i = device::fresh_thread_rank();
  const auto word = device::load_vector_once<1>(&words[i / 4]);
  device::store(&bytes[i], device::widen_byte(word[0], i % 4));
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

/// Half 0x3c00 is 1, 0x0400 is 2^-14.
TEST(DeviceHalf, PairsAreMultipliedAndAddedWithOneRounding) {
  const std::vector<uint32_t> factors = {
      0x3c004000, 0x40003c00, 0xc0003c00,  // 1 * 2 - 2 and 2 * 1 + 1
      0x3c013c01, 0x3c013c01, 0xbc02bc02,  // (1 + u)^2 - (1 + 2 u) = u^2, of which nothing is rounded: u = 2^-10
      0x3c013c01, 0x3e003e00, 0x00018001,  // 1.5 (1 + u), a tie but for 2^-24 more or less
      0x7bff7bff, 0x3c00bc00, 0x4c00cc00,  // 65504 + 16 becomes infinite
      0x7bff7bff, 0x3c00bc00, 0x4bffcbff,  // 65504 and a little less than 16
      0x7e003c00, 0x3c003c00, 0x3c007e00,  // NaN
  };
  const std::vector<uint32_t> expected = {0x00004200, 0x00004200, 0x00100010, 0x00100010, 0x3e023e01, 0x3e023e01,
                                          0x7c00fc00, 0x7bfffbff, 0x7bfffbff, 0x7bfffbff, 0x7fff7fff, 0x7fff7fff};
  const device::OwnedStream stream;
  const auto bytes_of = [](const std::vector<uint32_t>& values) { return 4 * static_cast<int64_t>(values.size()); };
  const device::DeviceMemory in(bytes_of(factors), "a test"), out(bytes_of(expected), "a test");
  const device::PinnedMemory from(bytes_of(factors), "a test"), to(bytes_of(expected), "a test");
  std::copy(factors.begin(), factors.end(), static_cast<uint32_t*>(from.data()));
  device::copy_to_device(in.data(), from.data(), bytes_of(factors), stream.get());
  device::launch({1, 6, 0, stream.get()}, device_half_test::multiply_pairs, static_cast<const uint32_t*>(in.data()),
                 static_cast<uint32_t*>(out.data()));
  device::copy_to_host(to.data(), out.data(), bytes_of(expected), stream.get());
  device::synchronize(stream.get());
  const auto* sums = static_cast<const uint32_t*>(to.data());
  EXPECT_THAT(std::vector<uint32_t>(sums, sums + expected.size()), ElementsAreArray(expected));
}

TEST(DeviceHalf, BytesAreWidenedExactly) {
  const std::vector<int8_t> bytes = {0, 1, -1, 127, -128, 2, -2, 100};
  const auto size = static_cast<int64_t>(bytes.size());
  const device::OwnedStream stream;
  const device::DeviceMemory in(size, "a test"), out(4 * size, "a test");
  const device::PinnedMemory from(size, "a test"), to(4 * size, "a test");
  std::copy(bytes.begin(), bytes.end(), static_cast<int8_t*>(from.data()));
  device::copy_to_device(in.data(), from.data(), size, stream.get());
  device::launch({1, 8, 0, stream.get()}, device_half_test::widen_bytes, static_cast<const uint32_t*>(in.data()),
                 static_cast<float*>(out.data()));
  device::copy_to_host(to.data(), out.data(), 4 * size, stream.get());
  device::synchronize(stream.get());
  const auto* floats = static_cast<const float*>(to.data());
  EXPECT_EQ(std::vector<float>(floats, floats + size), std::vector<float>(bytes.begin(), bytes.end()));
}

}  // namespace
