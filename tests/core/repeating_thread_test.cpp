// SPDX-License-Identifier: Apache-2.0
#include "warprank/core/repeating_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace warprank { inline namespace v0 { namespace detail { namespace {

TEST(RepeatingThread, CallsUntilItGoes) {
  std::atomic<int> num_calls{0};
  {
    const RepeatingThread thread([&] { ++num_calls; }, 1e-4);
    while (num_calls < 5) std::this_thread::yield();
  }
  const int calls = num_calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(num_calls, calls);
}

TEST(RepeatingThread, GoesWithoutWaitingForItsPause) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const RepeatingThread thread([] {}, 3600);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

TEST(RepeatingThread, GoesOnAfterAFailureThatItTellsOnce) {
  std::atomic<int> num_calls{0};
  RepeatingThread thread(
      [&] {
        if (++num_calls == 2) throw std::runtime_error("the second");
      },
      1e-4);
  while (num_calls < 5) std::this_thread::yield();
  try {
    thread.rethrow();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the second");
  }
  EXPECT_NO_THROW(thread.rethrow());
}

}}}}  // namespace warprank::v0::detail
