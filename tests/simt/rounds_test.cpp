// SPDX-License-Identifier: Apache-2.0
//
// What the executor counts of warps, and which loads it finds to wait for one another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simt/load_rounds.hpp"
#include "simt/runtime.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"

namespace {

using namespace warprank::device;  // NOLINT: most of this are kernels
using simt::DeviceArray;
using testing::HasSubstr;

/// What the kernels below read.
struct Arrays {
  const int64_t* next;   // [64], numbers below 64
  const int64_t* count;  // [1]
  const float* values;   // [64]
  const float* const* pointers;
  float* out;  // [64]
};

int64_t rounds_of(void (*kernel)(Arrays), unsigned threads = 64) {
  return simt::load_rounds([&] {
           simt::Config config;
           config.schedule = simt::Schedule::forward;
           simt::reset(config);
           std::vector<int64_t> numbers;
           for (int64_t i = 0; i < 64; ++i) numbers.push_back((i * 7 + 3) % 64);
           DeviceArray<int64_t> next(numbers), count(std::vector<int64_t>{40});
           DeviceArray<float> values(64, 1.5f), out(64, 0.0f);
           DeviceArray<const float*> pointers(std::vector<const float*>{values.data()});
           launch({1, threads}, kernel, Arrays{next.data(), count.data(), values.data(), pointers.data(), out.data()});
           simt::synchronize();
         })
      .rounds;
}

void no_load(Arrays a) { store(&a.out[thread_rank()], 1.0f); }
void together(Arrays a) {
  const int t = thread_rank();
  const int64_t next = load(&a.next[t]);
  const float value = load(&a.values[t]), other = load_read_only(&a.values[63 - t]);
  const auto two = load_vector<2>(&a.values[t / 2 * 2]);
  store(&a.out[t], value + other + two[0] + static_cast<float>(next));
}
void one_after_another(Arrays a) {
  const int64_t id = load(&a.next[thread_rank()]);
  store(&a.out[thread_rank()], load(&a.values[id]));
}
void chain_of_three(Arrays a) {
  int64_t id = thread_rank();
  for (int i = 0; i < 3; ++i) id = load(&a.next[id]);
  store(&a.out[thread_rank()], static_cast<float>(id));
}
void behind_a_branch(Arrays a) {
  if (thread_rank() >= load(a.count)) return;
  store(&a.out[thread_rank()], load(&a.values[thread_rank()]));
}
/// With one more all threads load what they do; with one less the last does not.
void behind_a_count_of_all(Arrays a) {
  if (thread_rank() >= load(a.count) + 24) return;
  store(&a.out[thread_rank()], load(&a.values[thread_rank()]));
}
/// The count decides about the store alone.
void ahead_of_the_count(Arrays a) {
  const int64_t count = load<Order::relaxed, Scope::device>(a.count);
  const float value = load_ahead(&a.values[thread_rank()]);
  if (thread_rank() < count) store(&a.out[thread_rank()], value);
}
void by_a_shuffle(Arrays a) {
  int64_t id = 0;
  if (lane_index() == 5) id = load(&a.next[5]);
  id = shuffle(full_warp, id, 5);
  store(&a.out[thread_rank()], load(&a.values[id + lane_index() % 2]));
}
/// Another warp finds out where to read.
void by_shared_memory(Arrays a) {
  auto& id = static_shared<int64_t>();
  if (thread_rank() == 0) id = load(&a.next[0]);
  sync_block();
  if (warp_index() == 1) store(&a.out[thread_rank()], load(&a.values[id + lane_index()]));
}
void by_a_pointer(Arrays a) {
  const float* const values = load_read_only(a.pointers);
  store(&a.out[thread_rank()], load(&values[thread_rank()]));
}
/// Two bisections of 64 by a lane alone: 6 loads each, which do not wait for those of the other.
void two_searches(Arrays a) {
  const auto search = [&](int64_t wanted) {
    int64_t low = 0, high = 64;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (load(&a.next[middle]) % 2 == wanted ? low : high) = middle;
    }
    return low;
  };
  store(&a.out[thread_rank()], static_cast<float>(search(0) + search(1)));
}

/// One less, and the process ends by a division by zero.
void astray_with_another_count(Arrays a) {
  const int64_t count = load(a.count);
  store(&a.out[thread_rank()], load(&a.values[63 / (count - 39) - thread_rank()]));
}

TEST(LoadRounds, AreThoseThatWaitForOneAnother) {
  EXPECT_EQ(rounds_of(no_load), 0);
  EXPECT_EQ(rounds_of(together), 1);
  EXPECT_EQ(rounds_of(one_after_another), 2);
  EXPECT_EQ(rounds_of(chain_of_three), 3);
  EXPECT_EQ(rounds_of(behind_a_branch), 2);
  EXPECT_EQ(rounds_of(behind_a_count_of_all), 2);
  EXPECT_EQ(rounds_of(ahead_of_the_count), 1);
  EXPECT_EQ(rounds_of(by_a_shuffle), 2);
  EXPECT_EQ(rounds_of(by_shared_memory), 2);
  EXPECT_EQ(rounds_of(by_a_pointer), 2);
  EXPECT_EQ(rounds_of(two_searches), 6);
  EXPECT_EQ(rounds_of(astray_with_another_count), 2);
}

TEST(LoadRounds, NameOneLongestChain) {
  const simt::LoadRounds rounds = simt::load_rounds([] {
    simt::reset();
    DeviceArray<int64_t> next(64, int64_t{1});
    DeviceArray<float> out(64, 0.0f);
    launch({1, 32}, chain_of_three, Arrays{next.data(), nullptr, nullptr, nullptr, out.data()});
    simt::synchronize();
  });
  ASSERT_EQ(rounds.chain.size(), 3u);
  EXPECT_THAT(rounds.chain[0], HasSubstr("rounds_test.cpp:"));
  EXPECT_THAT(rounds.chain[2], HasSubstr(" time 3"));
}

TEST(LoadRounds, TellWhatIsWrongWithARunAsItIs) {
  const auto run = [] {
    simt::reset();
    launch({1, 32}, one_after_another, Arrays{nullptr, nullptr, nullptr, nullptr, nullptr});
    simt::synchronize();
  };
  EXPECT_THROW(simt::load_rounds(run), simt::Error);
}

/// The second warp has the most to do: lanes of it take 1 to 32 turns.
void uneven(Arrays a) {
  const int turns = warp_index() == 1 ? lane_index() + 1 : 2;
  float sum = 0;
  for (int i = 0; i < turns; ++i) sum += load(&a.values[i]);
  sync_block();
  sum = Warp::sum(sum);
  auto& shared = static_shared<float>();
  if (thread_rank() == 0) store(&shared, sum);
  sync_block();
  store(&a.out[thread_rank()], sum + load(&shared));
}

TEST(WarpOperations, AreThoseOfTheBusiestWarpInEveryOrder) {
  for (const auto schedule : {simt::Schedule::forward, simt::Schedule::reverse, simt::Schedule::random}) {
    simt::Config config;
    config.schedule = schedule;
    config.count_warps = true;
    simt::reset(config);
    DeviceArray<float> values(64, 1.0f), out(64, 0.0f);
    launch({3, 64}, uneven, Arrays{nullptr, nullptr, values.data(), nullptr, out.data()});
    simt::synchronize();
    const simt::WarpOperations& busiest = simt::counters().busiest_warp;
    EXPECT_EQ(busiest.loads, 32);
    EXPECT_EQ(busiest.stores, 1);
    EXPECT_EQ(busiest.shared_loads, 1);
    EXPECT_EQ(busiest.shared_stores, 0) << "of the first warp";
    EXPECT_EQ(busiest.collectives, 5);
    EXPECT_EQ(busiest.barriers, 2);
    EXPECT_EQ(busiest.atomics + busiest.mma + busiest.async_copies, 0);
    EXPECT_EQ(busiest.total(), 41);
  }
}

TEST(WarpOperations, AreCountedWhereAsked) {
  simt::reset();
  DeviceArray<float> out(64, 0.0f);
  launch({1, 64}, no_load, Arrays{nullptr, nullptr, nullptr, nullptr, out.data()});
  simt::synchronize();
  EXPECT_EQ(simt::counters().busiest_warp.total(), 0);
}

}  // namespace
