// SPDX-License-Identifier: Apache-2.0
#include "warprank/core/page_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/core/pages.hpp"

namespace {

using warprank::PagePool;
using warprank::Pages;

constexpr int64_t mb = int64_t{1} << 20;

bool is_full_of(const Pages& pages, unsigned char value) {
  return std::all_of(pages.data(), pages.data() + pages.size(), [&](unsigned char byte) { return byte == value; });
}

TEST(Pages, AreZerosOfTheSystemWithoutAPool) {
  Pages large = Pages::zeroed(5 * mb), small = Pages::zeroed(100), none(0);
  EXPECT_TRUE(is_full_of(large, 0));
  EXPECT_TRUE(is_full_of(small, 0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % (2 * mb), 0u);
  EXPECT_EQ(none.data(), nullptr);
  std::memset(small.data(), 7, 100);
  small = std::move(large);
  EXPECT_EQ(small.size(), 5 * mb);
  EXPECT_TRUE(is_full_of(small, 0));
}

TEST(PagePool, GivesTheNextWhatTheLastHad) {
  const auto pool = std::make_shared<PagePool>();
  Pages stays(4 * mb, pool), goes(4 * mb, pool);
  const unsigned char* const place = goes.data();
  std::memset(goes.data(), 7, 4 * mb);
  EXPECT_EQ(pool->bytes_in_use(), 8 * mb);
  goes = Pages();
  EXPECT_EQ(pool->bytes_in_use(), 4 * mb);
  EXPECT_EQ(pool->free_bytes(), 4 * mb);
  const Pages next = Pages::zeroed(3 * mb, pool);
  EXPECT_EQ(next.data(), place);
  EXPECT_TRUE(is_full_of(next, 0)) << "though it had other values";
  EXPECT_EQ(pool->free_bytes(), 0);
  EXPECT_EQ(pool->bytes_in_use(), 8 * mb) << "as much as was touched once";
}

TEST(PagePool, TakesTheSmallestThatFitsAndNoneThatIsFarTooLarge) {
  const auto pool = std::make_shared<PagePool>();
  Pages in_use(40 * mb, pool), medium(8 * mb, pool), large(10 * mb, pool);
  const unsigned char *const medium_at = medium.data(), *const large_at = large.data();
  medium = Pages(), large = Pages();
  EXPECT_EQ(Pages(9 * mb, pool).data(), medium_at) << "which has room for a table that has grown by an eighth";
  EXPECT_EQ(Pages(9 * mb + 1, pool).data(), large_at);
  const Pages tiny(4 * mb, pool);
  EXPECT_NE(tiny.data(), medium_at);
  EXPECT_NE(tiny.data(), large_at);
  EXPECT_EQ(pool->free_bytes(), 19 * mb) << "of which 9 were touched in the smaller one";
}

TEST(PagePool, KeepsNoMoreThanIsInUse) {
  const auto pool = std::make_shared<PagePool>();
  Pages first(4 * mb, pool), second(4 * mb, pool), third(6 * mb, pool);
  second = Pages();
  third = Pages();
  EXPECT_EQ(pool->free_bytes(), 0) << "4 + 6 MB for 4 in use, and then 6 for 4";
  second = Pages(3 * mb, pool);
  second = Pages();
  EXPECT_EQ(pool->free_bytes(), 3 * mb);
  first = Pages();
  EXPECT_EQ(pool->bytes_in_use(), 0);
  EXPECT_EQ(pool->free_bytes(), 0);
}

TEST(PagePool, DoublesUpWhatIsInUse) {
  const auto pool = std::make_shared<PagePool>();
  const Pages a(4 * mb, pool), b(7 * mb, pool);
  pool->double_up();
  EXPECT_EQ(pool->bytes_in_use(), 11 * mb);
  EXPECT_EQ(pool->free_bytes(), 11 * mb);
  pool->double_up();
  EXPECT_EQ(pool->free_bytes(), 11 * mb);
  const Pages next_b(7 * mb, pool), next_a(4 * mb, pool);
  EXPECT_EQ(pool->free_bytes(), 0);
}

TEST(PagePool, OutlivesItsMaker) {
  auto pool = std::make_shared<PagePool>();
  const std::weak_ptr<PagePool> seen = pool;
  {
    const Pages pages(4 * mb, std::move(pool));
    EXPECT_FALSE(seen.expired());
  }
  EXPECT_TRUE(seen.expired());
}

TEST(PagePool, IsUsedByThreadsAtOnce) {
  const auto pool = std::make_shared<PagePool>();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        Pages pages(2 * mb + i * 4096, pool);
        std::memset(pages.data(), static_cast<int>(t), 64);
        std::this_thread::yield();
        for (int64_t at = 0; at < 64; ++at) wrong[t] += pages.data()[at] != t;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(pool->bytes_in_use(), 0);
}

}  // namespace
