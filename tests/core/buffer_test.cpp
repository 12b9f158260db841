// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/buffer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace {

using namespace warprank;

uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

TEST(Buffer, HoldsValuesAlignedToACacheLine) {
  for (const int64_t size : {1, 3, 100}) {
    Buffer<float> buffer(size);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.bytes(), 4 * size);
    EXPECT_EQ(address(buffer.data()) % 64, 0u);
    for (int64_t i = 0; i < size; ++i) buffer[i] = static_cast<float>(i);
    EXPECT_EQ(std::as_const(buffer)[size - 1], static_cast<float>(size - 1));
  }
}

TEST(Buffer, IsAlignedToHugePagesWhenItFillsOne) {
  Buffer<int64_t> buffer((int64_t{1} << 18) + 1);
  EXPECT_EQ(address(buffer.data()) % (uint64_t{2} << 20), 0u);
  buffer[buffer.size() - 1] = 5;
}

TEST(Buffer, OwnsNothingWhenItIsEmpty) {
  EXPECT_EQ(Buffer<float>().data(), nullptr);
  EXPECT_EQ(Buffer<float>(0).data(), nullptr);
  EXPECT_EQ(Buffer<float>(0).size(), 0);
}

TEST(Buffer, HandsItsMemoryOverWhenMoved) {
  Buffer<int> first(3);
  first[0] = 7;
  const int* memory = first.data();
  Buffer<int> second(std::move(first));
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: what a moved-from buffer holds is the point
  EXPECT_EQ(first.size(), 0);
  Buffer<int> third(1);
  third = std::move(second);
  EXPECT_EQ(third[0], 7);
  EXPECT_EQ(third.size(), 3);
}

}  // namespace
