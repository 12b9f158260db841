// SPDX-License-Identifier: Apache-2.0

#include "warprank/core/phase_fair_mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace warprank { namespace {

TEST(PhaseFairMutex, IsHadAloneOrShared) {
  PhaseFairMutex mutex;
  std::atomic<int> alone{0}, sharing{0}, wrong{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        const std::lock_guard<PhaseFairMutex> lock(mutex);
        if (++alone != 1 || sharing != 0) ++wrong;
        --alone;
      }
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        const std::shared_lock<PhaseFairMutex> lock(mutex);
        const int now = ++sharing;
        if (now > most) most = now;
        if (alone != 0) ++wrong;
        if (i % 64 == 0) std::this_thread::yield();
        --sharing;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PhaseFairMutex, IsHadAloneThoughSomebodySharesItAtEveryMoment) {
  constexpr int64_t too_many = 3000;  // turns while somebody wants it alone, who is starving then
  PhaseFairMutex mutex;
  std::atomic<bool> wanted{false}, had{false};
  std::atomic<int64_t> entered[2] = {0, 0}, turns{0};
  std::vector<std::thread> threads;
  // Neither goes before the other has come in again, unless that waits for the third.
  for (const int me : {0, 1}) {
    threads.emplace_back([&, me] {
      while (!had && turns < too_many) {
        const std::shared_lock<PhaseFairMutex> lock(mutex);
        const int64_t other = entered[1 - me];
        ++entered[me];
        for (int looks = 0; looks < 200 && entered[1 - me] == other && !had; ++looks) std::this_thread::yield();
        if (wanted) ++turns;
      }
    });
  }
  while (entered[0] < 5 || entered[1] < 5) std::this_thread::yield();
  wanted = true;
  {
    const std::lock_guard<PhaseFairMutex> lock(mutex);
    had = true;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(turns, too_many);
}

TEST(PhaseFairMutex, IsSharedNextThoughAnotherWantsItAlone) {
  constexpr int times = 10;
  int in_time = 0;
  for (int i = 0; i < times; ++i) {
    PhaseFairMutex mutex;
    std::atomic<int> waiting{0};
    std::atomic<bool> shared{false};
    bool shared_first = false;
    mutex.lock();
    std::thread reader([&] {
      ++waiting;
      const std::shared_lock<PhaseFairMutex> lock(mutex);
      shared = true;
    });
    std::thread writer([&] {
      ++waiting;
      const std::lock_guard<PhaseFairMutex> lock(mutex);
      shared_first = shared;
    });
    while (waiting < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    mutex.unlock();
    reader.join();
    writer.join();
    in_time += shared_first;
  }
  EXPECT_GE(in_time, times / 2) << "not always, as the machine may be too busy to let both wait in time";
}

}}  // namespace warprank
