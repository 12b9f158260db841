// SPDX-License-Identifier: Apache-2.0

#include "warprank/serving/user_states.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "support/message_of.hpp"

namespace {

using namespace warprank;
using std::chrono::milliseconds;
using test_support::message_of;

/// A store whose clock is the test's.
struct Store {
  explicit Store(const UserStatesOptions& options = {}) : states(options) {}

  static UserStates::States states_of(int64_t bytes, std::byte value = std::byte{1}) {
    return std::make_shared<const KeptStates>(KeptStates{std::vector<std::byte>(static_cast<size_t>(bytes), value)});
  }
  bool keep(uint64_t key, int64_t version = 1, int64_t bytes = 100) {
    return states.keep({key, 0}, version, states_of(bytes), now);
  }
  bool has(uint64_t key, int64_t version = 1) { return states.find({key, 0}, version, now) != nullptr; }

  UserStates states;
  UserStates::Clock::time_point now{std::chrono::hours(100)};
};

/// Of one part, for so many states of 100 bytes.
UserStatesOptions room_for(int64_t count) {
  UserStatesOptions options;
  options.parts = 1;
  options.most_state_bytes = 100;
  options.most_bytes = count * (100 + UserStates::record_bytes);
  return options;
}

TEST(UserStates, GivesWhatWasKeptForTheKeyAndTheVersion) {
  Store store;
  const UserStates::States kept = Store::states_of(8);
  EXPECT_TRUE(store.states.keep({1, 2}, 7, kept, store.now));
  EXPECT_EQ(store.states.find({1, 2}, 7, store.now), kept);
  EXPECT_EQ(store.states.find({2, 1}, 7, store.now), nullptr);
  EXPECT_EQ(store.states.find({1, 3}, 7, store.now), nullptr);
  const UserStates::States other = Store::states_of(16);
  EXPECT_TRUE(store.states.keep({1, 2}, 7, other, store.now)) << "what comes later replaces it";
  EXPECT_EQ(store.states.find({1, 2}, 7, store.now), other);
  const UserStatesCounters counters = store.states.counters();
  EXPECT_EQ(counters.hits, 2);
  EXPECT_EQ(counters.misses, 2);
  EXPECT_EQ(counters.kept, 2);
  EXPECT_EQ(counters.states, 1);
  EXPECT_EQ(counters.bytes, 16 + UserStates::record_bytes);
}

TEST(UserStates, GivesNoStateOfAnotherModel) {
  Store store;
  store.keep(1, 1);
  store.keep(2, 2);
  EXPECT_FALSE(store.has(1, 2)) << "an older one";
  EXPECT_FALSE(store.has(1, 1)) << "which is gone then";
  EXPECT_FALSE(store.has(2, 1)) << "a newer one, for a context that is behind";
  EXPECT_TRUE(store.has(2, 2)) << "which stays";
  EXPECT_FALSE(store.keep(2, 1)) << "as it does when the context is done";
  EXPECT_TRUE(store.has(2, 2));
  EXPECT_EQ(store.states.counters().outdated, 2);
}

TEST(UserStates, GivesNoStateThatIsTooOld) {
  UserStatesOptions options;
  options.most_age = milliseconds(50);
  Store store(options);
  store.keep(1);
  store.now += milliseconds(50);
  EXPECT_TRUE(store.has(1));
  store.keep(2);
  store.now += milliseconds(1);
  EXPECT_FALSE(store.has(1));
  EXPECT_TRUE(store.has(2));
  EXPECT_EQ(store.states.counters().expired, 1);
  EXPECT_EQ(store.states.counters().states, 1);
  EXPECT_DOUBLE_EQ(store.states.counters().hit_age_seconds, 0.051);
}

TEST(UserStates, EndsStatesThatWereKeptBeforeAChange) {
  Store store;
  store.keep(1);
  store.states.expire_after(milliseconds(10), store.now);
  store.now += milliseconds(5);
  store.keep(2);
  store.states.expire_after(milliseconds(10), store.now);
  EXPECT_TRUE(store.has(1));
  store.now += milliseconds(5);
  EXPECT_FALSE(store.has(1)) << "10 ms after the first change";
  EXPECT_TRUE(store.has(2));
  store.keep(3);
  store.now += milliseconds(5);
  EXPECT_FALSE(store.has(2)) << "10 ms after the second";
  EXPECT_TRUE(store.has(3));
  store.now += milliseconds(5);
  store.states.expire_after(milliseconds(100), store.now);
  store.states.expire_after(milliseconds(0), store.now);
  EXPECT_FALSE(store.has(3)) << "at once";
  store.now += milliseconds(1);
  store.keep(4);
  store.now += milliseconds(200);
  EXPECT_TRUE(store.has(4)) << "which came after all changes";
}

TEST(UserStates, MakesRoomForTheNewestAndKeepsWhatIsAskedFor) {
  Store store(room_for(3));
  for (const uint64_t key : {1, 2, 3}) store.keep(key);
  EXPECT_TRUE(store.has(1));
  store.keep(4);
  EXPECT_FALSE(store.has(2)) << "the oldest that nobody asked for";
  for (const uint64_t key : {1, 3, 4}) EXPECT_TRUE(store.has(key)) << key;
  store.keep(5);
  EXPECT_TRUE(store.has(5));
  EXPECT_EQ(store.states.counters().states, 3);
  EXPECT_EQ(store.states.counters().evicted, 2);
  EXPECT_EQ(store.states.counters().bytes, room_for(3).most_bytes);
}

TEST(UserStates, MakesRoomFirstFromWhatNobodyMayHave) {
  Store store(room_for(3));
  store.keep(1, 1), store.keep(2, 1);
  EXPECT_TRUE(store.has(1, 1));
  EXPECT_TRUE(store.has(2, 1));
  store.keep(3, 2);
  store.keep(4, 2);
  store.keep(5, 2);
  for (const uint64_t key : {3, 4, 5}) EXPECT_TRUE(store.has(key, 2)) << key << ": states of the old model go first";
  store.now += milliseconds(1);
  store.states.expire_after(milliseconds(0), store.now);
  store.now += milliseconds(1);
  for (const uint64_t key : {6, 7, 8}) store.keep(key, 2);
  for (const uint64_t key : {6, 7, 8}) EXPECT_TRUE(store.has(key, 2)) << key;
}

TEST(UserStates, GivesAStateToThoseThatHaveItWhenItIsEvicted) {
  Store store(room_for(1));
  store.states.keep({1, 0}, 1, Store::states_of(100, std::byte{7}), store.now);
  const UserStates::States held = store.states.find({1, 0}, 1, store.now);
  store.keep(2);
  EXPECT_FALSE(store.has(1));
  EXPECT_TRUE(std::all_of(held->blob.begin(), held->blob.end(), [](std::byte b) { return b == std::byte{7}; }));
}

TEST(UserStates, KeepsNoStateThatIsTooLarge) {
  Store store(room_for(2));
  EXPECT_TRUE(store.keep(1, 1, 100));
  EXPECT_FALSE(store.keep(1, 1, 101));
  EXPECT_TRUE(store.has(1)) << "what was there stays";
  EXPECT_EQ(store.states.counters().refused, 1);
}

/// Against a list that does what SIEVE's authors write, state by state.
TEST(UserStates, ChoosesAsSieve) {
  constexpr int room = 20;
  struct Item {
    uint64_t key;
    bool visited;
  };
  std::vector<Item> items;  // the oldest first
  size_t hand = 0;
  Store store(room_for(room));
  std::mt19937 random(1);
  std::geometric_distribution<uint64_t> keys(0.03);
  int64_t hits = 0, evictions = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t key = keys(random);
    const auto found = std::find_if(items.begin(), items.end(), [&](const Item& item) { return item.key == key; });
    ASSERT_EQ(store.has(key), found != items.end()) << "request " << i;
    if (found != items.end()) {
      found->visited = true;
      ++hits;
      continue;
    }
    if (items.size() == room) {
      ++evictions;
      if (hand == items.size()) hand = 0;
      while (std::exchange(items[hand].visited, false)) hand = (hand + 1) % items.size();
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(hand));
    }
    items.push_back({key, false});
    store.keep(key);
  }
  EXPECT_GT(hits, 1000);
  EXPECT_EQ(store.states.counters().evicted, evictions);
}

TEST(UserStates, SaysWhichOptionsLeaveNoRoom) {
  UserStatesOptions options;
  options.parts = 0;
  options.most_bytes = options.most_state_bytes;
  options.most_age = milliseconds(0);
  const std::string text = message_of([&] { UserStates{options}; });
  for (const char* part : {"parts: expected 1 or more, got 0", "most_bytes: expected room for a state of 1048576 bytes",
                           "most_age: expected above 0, got 0 ms"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// Readers, writers, exchanges of the model and changes of rows at once: bytes stay within their bound, and each state
/// is whole and of the key and the version that was asked for.
TEST(UserStates, ManyThreadsAtOnce) {
  UserStatesOptions options;
  options.parts = 4;
  options.most_state_bytes = 256;
  options.most_bytes = 100 * (256 + UserStates::record_bytes);
  UserStates states(options);
  std::atomic<int64_t> version{1}, hits{0}, torn{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 20000; ++i) {
        const uint64_t key = random() % 300;
        const int64_t mine = version.load();
        const UserStates::States found = states.find({key, key}, mine);
        if (found == nullptr) {
          std::vector<std::byte> bytes(16 + random() % 240, static_cast<std::byte>(key));
          std::memcpy(bytes.data(), &key, 8);
          std::memcpy(bytes.data() + 8, &mine, 8);
          states.keep({key, key}, mine, std::make_shared<const KeptStates>(KeptStates{std::move(bytes)}));
          continue;
        }
        ++hits;
        torn += std::memcmp(found->blob.data(), &key, 8) != 0 || std::memcmp(found->blob.data() + 8, &mine, 8) != 0 ||
                std::any_of(found->blob.begin() + 16, found->blob.end(),
                            [&](std::byte b) { return b != static_cast<std::byte>(key); });
        if (i % 5000 == 0) ++version;
        if (i % 1000 == 0) states.expire_after(milliseconds(t));
        if (i % 100 == 0) torn += states.counters().bytes > options.most_bytes;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits, 0);
  EXPECT_EQ(torn, 0);
  const UserStatesCounters counters = states.counters();
  EXPECT_EQ(counters.hits, hits);
  EXPECT_EQ(counters.hits + counters.misses, 80000);
  EXPECT_GT(counters.evicted, 0);
}

}  // namespace
