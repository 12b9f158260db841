// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/pack_linear.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/kernel_testing.hpp"
#include "support/message_of.hpp"
#include "support/narrowed.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT
using test_support::message_of;
using testing::HasSubstr;

struct Shape {
  int64_t in, out, stride;
};

/// Whole steps and pairs, parts of them, and heads.
constexpr Shape shapes[] = {{32, 16, 32}, {33, 17, 40}, {1, 2, 1}, {100, 300, 100},
                            {70, 1, 70},  {64, 1, 65},  {1, 1, 1}};

template <class Value>
void expect_bytes_of_the_host(const Shape& shape, bool has_bias) {
  SCOPED_TRACE(std::to_string(shape.in) + " -> " + std::to_string(shape.out) + (has_bias ? ", bias" : ""));
  std::vector<Value> dense, strided(static_cast<size_t>(shape.out * shape.stride));
  for (int64_t n = 0; n < shape.out; ++n)
    for (int64_t k = 0; k < shape.in; ++k) {
      const auto value = narrowed<Value>(std::sin(static_cast<float>(n * 1000 + k)) * 3);
      dense.push_back(value);
      strided[static_cast<size_t>(n * shape.stride + k)] = value;
    }
  std::vector<float> bias;
  for (int64_t n = 0; has_bias && n < shape.out; ++n) bias.push_back(static_cast<float>(n) * 0.1f - 1);
  const Buffer<unsigned char> expected = pack_linear<Value>(dense, bias, shape.in, shape.out);

  const DeviceArray<Value> weight(strided);
  const DeviceArray<float> on_device(bias);
  DeviceArray<uint32_t> refused(std::vector<uint32_t>{5});
  DeviceArray<unsigned char> packed(std::vector<unsigned char>(static_cast<size_t>(expected.size()), 0xff));
  pack_linear(Matrix<const Value>(weight.data(), shape.out, shape.in, shape.stride),
              has_bias ? on_device.data() : nullptr, packed.data(), refused.data());
  EXPECT_EQ(packed.read(), std::vector<unsigned char>(expected.data(), expected.data() + expected.size()));
  EXPECT_EQ(refused.read()[0], 5u);
}

TEST(PackLinear, HasTheBytesOfTheHost) {
  for_each_target([](const Config&) {
    for (const Shape& shape : shapes)
      for (const bool has_bias : {false, true}) {
        expect_bytes_of_the_host<float>(shape, has_bias);
        expect_bytes_of_the_host<float16>(shape, has_bias);
      }
  });
}

TEST(PackLinear, CountsWhatTheHostRefuses) {
  for_each_target([](const Config&) {
    const float not_a_number = NAN, infinite = INFINITY, largest = 65519.0f, too_large = 65520.0f;
    const auto count = [](const std::vector<float>& values, int64_t in, int64_t out) {
      const DeviceArray<float> weight(values);
      DeviceArray<uint32_t> refused(std::vector<uint32_t>{0});
      DeviceArray<unsigned char> packed(PackedLinearLayout{in, out}.bytes());
      const Matrix<const float> matrix(weight.data(), out, in);
      pack_linear(matrix, nullptr, packed.data(), refused.data());
      pack_linear(matrix, nullptr, packed.data(), nullptr);
      return refused.read()[0];
    };
    EXPECT_EQ(count({1, not_a_number, infinite, -infinite, largest, -largest, too_large, -too_large}, 4, 2), 5u);
    EXPECT_EQ(count({1, not_a_number, infinite, -infinite, largest, too_large}, 6, 1), 3u) << "a head is FP32";
  });
}

TEST(PackLinear, RefusesWhatItCannotReadOrWrite) {
  reset();
  const DeviceArray<float> weight(std::vector<float>(8, 1.0f));
  DeviceArray<unsigned char> packed(PackedLinearLayout{4, 2}.bytes());
  const auto message = [&](Matrix<const float> matrix, void* to) {
    return message_of([&] { pack_linear(matrix, nullptr, to, nullptr); });
  };
  const Matrix<const float> good(weight.data(), 2, 4);
  EXPECT_THAT(message({nullptr, 2, 4}, packed.data()),
              HasSubstr("weight of a linear layer: expected an address, got null"));
  EXPECT_THAT(message({weight.data(), 2, 4, 3}, packed.data()),
              HasSubstr("expected rows at least 4 elements apart, got 3"));
  EXPECT_THAT(message({weight.data(), 0, 4}, packed.data()),
              HasSubstr("linear layer: expected in and out of 1 to 2^30"));
  EXPECT_THAT(message(good, nullptr), HasSubstr("packed linear layer: expected device memory, got null"));
  EXPECT_THAT(message(good, packed.data() + 8), HasSubstr("packed linear layer: expected memory aligned to 16 bytes"));
}

}  // namespace
