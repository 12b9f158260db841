// SPDX-License-Identifier: Apache-2.0

#include "warprank/engine/device_states.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "support/message_of.hpp"
#include "warprank/host.hpp"

namespace {

using namespace warprank;
using test_support::message_of;
using Pages = DeviceStates::InUse::Pages;

constexpr int64_t page = DeviceStates::page_bytes;

KeptStates states_of(uint64_t number, int64_t bytes) {
  return {std::vector<std::byte>(static_cast<size_t>(bytes)), 0, number};
}
/// A store of so many pages, in memory that nobody touches.
struct Store : DeviceStates {
  explicit Store(int64_t num_pages, int64_t least_state_bytes = 1)
      : DeviceStates(std::shared_ptr<std::byte>(std::shared_ptr<void>(), reinterpret_cast<std::byte*>(page)),
                     {num_pages * page, least_state_bytes}) {}

  /// A batch about one user that is scored. Whether its states were there, if they have pages.
  std::optional<bool> score(uint64_t number, int64_t bytes = page) {
    InUse batch(*this);
    const Pages pages = batch.add(states_of(number, bytes));
    batch.succeed();
    if (pages.pages.empty()) return {};
    EXPECT_EQ(pages.pages.size(), (bytes + page - 1) / page);
    return pages.is_there;
  }
};

TEST(DeviceStates, AreReadByBatchesThatBeginWhenTheOneThatStoresThemIsDone) {
  Store store(8);
  {
    DeviceStates::InUse first(store);
    const Pages stored = first.add(states_of(1, 2 * page + 8));
    EXPECT_EQ(stored.pages.size(), 3);
    EXPECT_FALSE(stored.is_there);
    EXPECT_TRUE(first.add(states_of(1, 2 * page + 8)).pages.empty()) << "the same user again, in one batch";
    DeviceStates::InUse beside(store);
    EXPECT_TRUE(beside.add(states_of(1, 2 * page + 8)).pages.empty()) << "nobody knows whether it is there yet";
    first.succeed();
    EXPECT_TRUE(beside.add(states_of(1, 2 * page + 8)).is_there);
  }
  EXPECT_EQ(store.score(1, 2 * page + 8), true);
  const DeviceStatesCounters counters = store.counters();
  EXPECT_EQ(std::tuple(counters.hits, counters.misses, counters.sent_bytes), std::tuple(2, 3, 3 * (2 * page + 8)));
  EXPECT_EQ(std::tuple(counters.states, counters.bytes), std::tuple(1, 3 * page));
}

TEST(DeviceStates, OfABatchThatFailedAreNotThere) {
  Store store(1);
  { DeviceStates::InUse(store).add(states_of(1, page)); }
  EXPECT_EQ(store.counters().states, 0);
  EXPECT_EQ(store.score(1), false);
  EXPECT_EQ(store.score(1), true);
}

TEST(DeviceStates, ThatAreNotSentAfterAllAreNotThere) {
  Store store(2);
  {
    DeviceStates::InUse batch(store);
    EXPECT_FALSE(batch.add(states_of(1, page)).pages.empty());
    EXPECT_FALSE(batch.add(states_of(2, page)).pages.empty());
    batch.drop_last();
    batch.succeed();
  }
  EXPECT_EQ(store.score(1), true);
  EXPECT_EQ(store.score(2), false);
}

TEST(DeviceStates, SmallOnesAndThoseWithoutANumberAreSent) {
  Store store(8, page);
  EXPECT_FALSE(store.score(1, page - 1));
  EXPECT_FALSE(store.score(0, page));
  EXPECT_EQ(store.counters().misses, 0);
  EXPECT_EQ(store.score(1, page), false);
}

TEST(DeviceStates, MakeRoomForTheNewestButNotOfWhatABatchHas) {
  Store store(4);
  for (const uint64_t number : {1, 2, 3, 4}) EXPECT_EQ(store.score(number), false);
  EXPECT_EQ(store.score(1), true);
  EXPECT_EQ(store.score(5, 2 * page), false) << "2 and 3 went: 1 was asked for";
  EXPECT_EQ(store.counters().evicted, 2);
  for (const uint64_t number : {1, 4, 5}) EXPECT_EQ(store.score(number, number == 5 ? 2 * page : page), true);

  DeviceStates::InUse batch(store);
  EXPECT_TRUE(batch.add(states_of(4, page)).is_there);
  EXPECT_TRUE(batch.add(states_of(5, 2 * page)).is_there);
  EXPECT_TRUE(batch.add(states_of(6, 2 * page)).pages.empty()) << "one page could be had";
  EXPECT_TRUE(batch.add(states_of(7, 5 * page)).pages.empty()) << "more than there are";
  EXPECT_EQ(store.counters().refused, 2);
  EXPECT_FALSE(batch.add(states_of(8, page)).pages.empty());
}

TEST(DeviceStates, AreDividedAmongPages) {
  const std::vector<int64_t> pages = {7, 2, 5};
  std::vector<std::vector<int64_t>> got;
  const auto list = [&](int64_t in_section, int64_t bytes, int64_t at) { got.push_back({in_section, bytes, at}); };
  DeviceStates::for_each_page({page - 8, 0, page + 24}, pages, list);
  EXPECT_EQ(got,
            (std::vector<std::vector<int64_t>>{{0, 8, 8 * page - 8}, {8, page, 2 * page}, {page + 8, 16, 5 * page}}));
  got.clear();
  DeviceStates::for_each_page({page, 0, page}, pages, list);
  EXPECT_EQ(got, (std::vector<std::vector<int64_t>>{{0, page, 2 * page}}));
  DeviceStates::for_each_page({16, 0, 0}, pages, list);
  EXPECT_EQ(got.size(), 1) << "nothing of an empty section";
}

TEST(DeviceStates, SayWhichOptionsAreWrong) {
  EXPECT_EQ(message_of([] {
              DeviceStates(nullptr, {page - 1, -1});
            }),
            "2 problems:\n  most_bytes: expected a page of 4096 bytes or more, got 4095\n"
            "  least_state_bytes: expected 0 or more, got -1");
  EXPECT_EQ(message_of([] { DeviceStates(host(), {page}); }),
            "states of users: expected a GPU, which has memory of its own, got the host");
}

/// Threads whose batches write the number of a state to all of its pages, and later batches that compare: what a page
/// has is of the state that has it, whatever goes meanwhile.
TEST(DeviceStates, PagesAreOfOneStateAtATimeWhateverThreadsDo) {
  constexpr int num_threads = 4, num_users = 40, num_batches = 400;
  Store store(32);
  std::vector<std::atomic<uint64_t>> owner(32);
  std::atomic<int64_t> num_hits{0};
  const auto serve = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int b = 0; b < num_batches; ++b) {
      DeviceStates::InUse batch(store);
      std::vector<std::pair<uint64_t, Pages>> all;
      std::set<int64_t> stored;
      for (int r = 0; r < 4; ++r) {
        const uint64_t number = 1 + random() % num_users;
        all.emplace_back(number, batch.add(states_of(number, static_cast<int64_t>(1 + number % 3) * page)));
      }
      for (const auto& [number, pages] : all)
        for (const int64_t p : pages.pages) {
          EXPECT_TRUE(pages.is_there || stored.insert(p).second) << "a page for two";
          if (!pages.is_there) owner[static_cast<size_t>(p)] = number;
        }
      for (const auto& [number, pages] : all)
        for (const int64_t p : pages.pages) EXPECT_EQ(owner[static_cast<size_t>(p)], number);
      for (const auto& [number, pages] : all) num_hits += pages.is_there;
      if (b % 7 != 0) batch.succeed();
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < num_threads; ++t) threads.emplace_back(serve, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_hits, 0);
  EXPECT_EQ(store.counters().hits, num_hits);
  EXPECT_GT(store.counters().evicted, 0);
  EXPECT_LE(store.counters().bytes, 32 * page);
}

}  // namespace
