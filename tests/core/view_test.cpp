// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

namespace {

using namespace warprank;
using ::testing::ElementsAre;

template <class Value>
std::vector<int> list(Span<Value> span) {
  return {span.begin(), span.end()};
}

TEST(Span, ViewsAVectorAndItsParts) {
  std::vector<int> values{1, 2, 3, 4};
  const Span<int> span(values);
  EXPECT_THAT(list(span), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(list(span.subspan(1, 2)), ElementsAre(2, 3));
  EXPECT_TRUE(span.subspan(4, 0).empty());
  span[2] = 7;
  EXPECT_EQ(values[2], 7);
}

TEST(Span, IsEmptyByDefault) {
  const Span<float> span;
  EXPECT_TRUE(span.empty());
  EXPECT_EQ(span.begin(), span.end());
}

TEST(Span, BecomesConstButNeverMutable) {
  const std::vector<int> constant{1, 2};
  EXPECT_THAT(list(Span<const int>(constant)), ElementsAre(1, 2));
  EXPECT_TRUE((std::is_convertible_v<Span<int>, Span<const int>>));
  EXPECT_FALSE((std::is_convertible_v<Span<const int>, Span<int>>));
  EXPECT_FALSE((std::is_constructible_v<Span<int>, const std::vector<int>&>));
  EXPECT_FALSE((std::is_constructible_v<Span<const float>, const std::vector<int>&>));
}

TEST(Span, ViewsWhateverIsContiguous) {
  int array[] = {1, 2, 3};
  EXPECT_THAT(list(Span<int>(array)), ElementsAre(1, 2, 3));
  EXPECT_THAT(list(Span<const int>(array)), ElementsAre(1, 2, 3));
  std::array<int, 2> of_std{4, 5};
  EXPECT_THAT(list(Span<int>(of_std)), ElementsAre(4, 5));
  EXPECT_THAT(list(Span<const int>(std::span<int>(array).subspan(1))), ElementsAre(2, 3));
  EXPECT_THAT(list(Span<const int>(std::span<const int>(of_std))), ElementsAre(4, 5));
  EXPECT_TRUE((std::is_convertible_v<std::vector<int>, Span<const int>>)) << "as an argument";
  EXPECT_FALSE((std::is_convertible_v<std::vector<int>, Span<int>>)) << "which would be gone";
  EXPECT_FALSE((std::is_convertible_v<std::array<float, 2>&, Span<const int>>));
  const std::span<const int> back(Span<int>(array).begin(), Span<int>(array).end());
  EXPECT_EQ(back.size(), 3u);
}

TEST(Matrix, FindsRowsColumnsAndElementsByItsStride) {
  std::vector<int> storage(3 * 5);
  std::iota(storage.begin(), storage.end(), 0);
  const Matrix<int> matrix(storage.data(), 3, 4, 5);
  EXPECT_EQ(matrix.row(2)[3], 13);
  const Matrix<const int> part = matrix.row_range(1, 2).columns(1, 3);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(part.stride, 5);
  EXPECT_EQ(part.row(0)[0], 6);
  EXPECT_EQ(part.row(1)[2], 13);
  EXPECT_EQ(Matrix<int>(storage.data(), 3, 5).stride, 5);
}

TEST(Matrix, AddressesRowsPastTwoToThe31Elements) {
  const int64_t rows = 3, stride = int64_t{1} << 31;
  const auto size = static_cast<size_t>(rows * stride);
  void* reserved = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const Matrix<char> matrix(static_cast<char*>(reserved), rows, 1, stride);
  EXPECT_EQ(matrix.row(2) - matrix.row(0), int64_t{1} << 32);
  munmap(reserved, size);
}

TEST(Segments, GroupRowsByTheirOffsets) {
  const std::vector<int64_t> offsets{0, 3, 3, 5};
  const Segments segments{offsets.data(), 3};
  EXPECT_EQ(segments.rows(), 5);
  EXPECT_EQ(segments.begin(2), 3);
  EXPECT_EQ(segments.end(2), 5);
  EXPECT_EQ(segments.size(0), 3);
  EXPECT_EQ(segments.size(1), 0);
  EXPECT_EQ(Segments{}.rows(), 0);
}

}  // namespace
