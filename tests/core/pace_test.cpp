// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/pace.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace {

using namespace warprank;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

TEST(Pace, KeepsAllThreadsTogetherToItsRate) {
  Pace pace(1'000'000);
  EXPECT_TRUE(pace.is_limited());
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) pace.moved(5'000);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(seconds_since(begin), 0.1);
}

TEST(Pace, DoesNotCatchUpAfterAPause) {
  Pace pace(1'000'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Clock::time_point begin = Clock::now();
  pace.moved(20'000);
  EXPECT_GE(seconds_since(begin), 0.02);
}

TEST(Pace, WaitsForNothingWithoutALimit) {
  Pace pace;
  EXPECT_FALSE(pace.is_limited());
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 1000; ++i) pace.moved(int64_t{1} << 40);
  EXPECT_LT(seconds_since(begin), 10);
}

}  // namespace
