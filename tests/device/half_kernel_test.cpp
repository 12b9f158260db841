// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/half.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <random>
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

/// quotients[i] = numbers[2 i] / numbers[2 i + 1].
WARPRANK_KERNEL(256, 1) divide(const float* numbers, float* quotients) {
  const int64_t i = static_cast<int64_t>(device::block_index().x) * 256 + device::thread_rank();
  const float a = device::load(&numbers[2 * i]), b = device::load(&numbers[2 * i + 1]);
  device::store(&quotients[i], device::divide_by_one_to_two(a, b));
}

/// Four values at a time.
WARPRANK_KERNEL(32, 1) narrow_fours(const float* values, warprank::float16* halves) {
  const int i = device::thread_rank();
  float four[4];
  for (int j = 0; j < 4; ++j) four[j] = device::load(&values[4 * i + j]);
  device::Vector<warprank::float16, 4> narrowed;
  device::narrow_all<warprank::float16>(four, narrowed);
  for (int j = 0; j < 4; ++j) device::store(&halves[4 * i + j], narrowed[j]);
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

/// Bits of a float.
std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(warprank::float_bits(value));
  return bits;
}

TEST(DeviceHalf, DivisionByOneToTwoRoundsAsADivisionDoes) {
  std::vector<float> numbers;
  const auto add = [&](float a, float b) { numbers.insert(numbers.end(), {a, b}); };
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> exponent(-24, 0), one_to_two(1, 2);
  for (int i = 0; i < 3000; ++i) {  // as of a sigmoid
    const float e = std::exp2(exponent(engine));
    add(e, 1 + e), add(1, 1 + e);
  }
  for (int i = 0; i < 2000; ++i) add(std::exp2(4 * exponent(engine)), one_to_two(engine));
  for (const float b : {1.0f, 2.0f, std::nextafter(1.0f, 2.0f), std::nextafter(2.0f, 1.0f)})
    for (const float a : {1.0f, 0x1p-100f, std::nextafter(1.0f, 0.0f), 1 / 3.f}) add(a, b);
  for (const float a : {0.0f, 0x1p-149f, 0x1.8p-130f, FLT_MIN, 1e-20f}) add(a, 1);
  while (numbers.size() % 512 != 0) add(1, 1.5f);
  const auto count = static_cast<int64_t>(numbers.size() / 2);
  kernel_testing::DeviceArray<float> in(numbers), out(count);
  device::launch({static_cast<unsigned>(count / 256), 256, 0, {}}, device_half_test::divide,
                 static_cast<const float*>(in.data()), out.data());
  std::vector<float> expected;
  for (size_t i = 0; i < numbers.size(); i += 2) expected.push_back(numbers[i] / numbers[i + 1]);
  EXPECT_EQ(bits_of(out.read()), bits_of(expected));
}

TEST(DeviceHalf, FourValuesAreNarrowedAsEachIsByItself) {
  const std::vector<float> values = {1,     -2,     0.1f,      65504,    65519,     65520,   -70000, 1,
                                     NAN,   70000,  1,         INFINITY, -INFINITY, FLT_MAX, 3e-8f,  -0.0f,
                                     1e30f, -1e30f, -INFINITY, NAN,      5,         6,       7,      8};
  kernel_testing::DeviceArray<float> in(values);
  kernel_testing::DeviceArray<warprank::float16> out(static_cast<int64_t>(values.size()));
  device::launch({1, 6, 0, {}}, device_half_test::narrow_fours, static_cast<const float*>(in.data()), out.data());
  const std::vector<warprank::float16> got = out.read();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(warprank::to_float(got[i]))) << i;
      continue;
    }
    float expected = values[i];
    if (std::isfinite(expected)) expected = std::clamp(expected, -65504.0f, 65504.0f);
    EXPECT_EQ(got[i].bits, warprank::to_float16(expected).bits) << values[i];
  }
}

}  // namespace
