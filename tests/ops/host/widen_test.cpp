// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/widen.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/host_op_testing.hpp"

namespace warprank { namespace {

TEST(HostWiden, GivesEveryHalfExactly) {
  std::vector<float16> halves;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) halves.push_back({static_cast<uint16_t>(bits)});
  test_support::for_each_target([&] {
    std::vector<float> floats(halves.size());
    host_ops::widen(halves, floats.data());
    for (size_t i = 0; i < halves.size(); ++i) {
      const float expected = to_float(halves[i]);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(floats[i])) << i;
      else
        ASSERT_EQ(float_bits(floats[i]), float_bits(expected)) << i;
    }
  });
}

TEST(HostWiden, WritesAsManyAsThereAre) {
  const std::vector<float16> ones(100, to_float16(1));
  test_support::for_each_target([&] {
    for (int64_t begin = 0; begin < 3; ++begin)
      for (int64_t count = 0; count <= 70; ++count) {
        std::vector<float> floats(100, 7.0f);
        host_ops::widen({ones.data() + begin, count}, floats.data() + 1);
        for (int64_t i = 0; i < 100; ++i)
          ASSERT_EQ(floats[static_cast<size_t>(i)], i >= 1 && i <= count ? 1 : 7) << i << " of " << count;
      }
  });
}

}}  // namespace warprank
