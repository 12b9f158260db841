// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/release_pages.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace warprank;

constexpr int64_t megabyte = int64_t{1} << 20;

TEST(ReleasePages, GivesBackWholePagesAndNothingBesideThem) {
  for (const int64_t offset : {int64_t{0}, int64_t{1}, int64_t{5000}}) {
    std::vector<unsigned char> memory(20 * megabyte, 7);
    release_pages(memory.data() + offset, 19 * megabyte);
    for (int64_t i = 0; i < offset; ++i) ASSERT_EQ(memory[static_cast<size_t>(i)], 7) << offset << ", " << i;
    for (size_t i = 19 * megabyte + static_cast<size_t>(offset); i < memory.size(); ++i)
      ASSERT_EQ(memory[i], 7) << offset << ", " << i;
    int64_t kept = 0;
    for (size_t i = static_cast<size_t>(offset); i < 19 * megabyte + static_cast<size_t>(offset); ++i)
      kept += memory[i] != 0 ? 1 : 0;
    EXPECT_LT(kept, 2 * 4096) << offset;
  }
}

TEST(ReleasePages, LeavesLittleMemoryAsItIs) {
  std::vector<unsigned char> memory(4 * megabyte, 7);
  release_pages(memory.data(), 4 * megabyte);
  for (const unsigned char value : memory) ASSERT_EQ(value, 7);
  release_pages(nullptr, 0);
}

}  // namespace
