// SPDX-License-Identifier: Apache-2.0

#include "warprank/serving/user_states.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#define WARPRANK_TEST_HAS_MALLINFO2 __GLIBC_PREREQ(2, 33)
#else
#define WARPRANK_TEST_HAS_MALLINFO2 0
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
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

#if WARPRANK_TEST_HAS_MALLINFO2 && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t allocated_bytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

TEST(UserStates, CountsTheBytesThatItTakes) {
  for (const int64_t bytes : {8, 100, 1000, 10000}) {
    constexpr uint64_t count = 20000;
    const int64_t before = allocated_bytes();
    Store store;
    for (uint64_t key = 0; key < count; ++key) store.keep(key, 1, bytes);
    const auto taken = static_cast<double>(allocated_bytes() - before),
               counted = static_cast<double>(store.states.counters().bytes);
    ASSERT_EQ(store.states.counters().states, static_cast<int64_t>(count));
    EXPECT_LE(taken, 1.01 * counted) << "states of " << bytes << " bytes";
    EXPECT_GE(taken, 0.85 * counted) << "states of " << bytes << " bytes";
  }
}
#endif

/// Readers, writers, exchanges of the model and changes of rows at once, in a store that has no room for all users:
/// bytes stay within their bound, and each state is whole and of the key and the version that was asked for.
class Crowd {
 public:
  Crowd(const UserStatesOptions& options, uint64_t num_users) : options_(options), num_users_(num_users) {}

  /// Until `is_over`, in so many threads.
  template <class IsOver>
  void run(int num_threads, IsOver is_over) {
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<uint64_t>(t) + 100 * static_cast<uint64_t>(num_asked_));
        for (int64_t i = 0; i % 1000 != 0 || !is_over(); ++i) {
          ask(random() % num_users_, random);
          if (i % 50000 == 49999) ++version_;
          if (i % 1000 == 0) states_.expire_after(milliseconds(10 * t));
          if (i % 100 == 0) num_wrong_ += states_.counters().bytes > options_.most_bytes;
        }
      });
    for (std::thread& thread : threads) thread.join();
  }

  UserStatesCounters counters() const { return states_.counters(); }
  int64_t num_asked() const { return num_asked_; }
  int64_t num_hits() const { return num_hits_; }
  int64_t num_wrong() const { return num_wrong_; }

 private:
  void ask(uint64_t key, std::mt19937_64& random) {
    const int64_t version = version_;
    const UserStates::States found = states_.find({key, ~key}, version);
    ++num_asked_;
    if (found == nullptr) {
      std::vector<std::byte> bytes(16 + random() % 240, static_cast<std::byte>(key));
      std::memcpy(bytes.data(), &key, 8);
      std::memcpy(bytes.data() + 8, &version, 8);
      states_.keep({key, ~key}, version, std::make_shared<const KeptStates>(KeptStates{std::move(bytes)}));
      return;
    }
    ++num_hits_;
    num_wrong_ += std::memcmp(found->blob.data(), &key, 8) != 0 ||
                  std::memcmp(found->blob.data() + 8, &version, 8) != 0 ||
                  std::any_of(found->blob.begin() + 16, found->blob.end(),
                              [&](std::byte b) { return b != static_cast<std::byte>(key); });
  }

  const UserStatesOptions options_;
  const uint64_t num_users_;
  UserStates states_{options_};
  std::atomic<int64_t> version_{1}, num_asked_{0}, num_hits_{0}, num_wrong_{0};
};

TEST(UserStates, ManyThreadsAtOnce) {
  UserStatesOptions options;
  options.parts = 4;
  options.most_state_bytes = 256;
  options.most_bytes = 100 * (256 + UserStates::record_bytes);
  Crowd crowd(options, 300);
  crowd.run(4, [&] { return crowd.num_asked() >= 80000; });
  EXPECT_GT(crowd.num_hits(), 0);
  EXPECT_EQ(crowd.num_wrong(), 0);
  const UserStatesCounters counters = crowd.counters();
  EXPECT_EQ(counters.hits, crowd.num_hits());
  EXPECT_EQ(counters.hits + counters.misses, crowd.num_asked());
  EXPECT_GT(counters.evicted, 0);
}

/// Of the process.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// A million users, for a fifth of whom there is room; for WARPRANK_SOAK_SECONDS, in which memory does not grow.
TEST(UserStates, TakesNoMoreMemoryAsTimeGoesOn) {
  UserStatesOptions options;
  options.most_state_bytes = 256;
  options.most_bytes = int64_t{64} << 20;
  Crowd crowd(options, 1000000);
  crowd.run(8, [&] { return crowd.counters().evicted > 200000; });
  const int64_t before = resident_bytes();
  const char* const seconds = std::getenv("WARPRANK_SOAK_SECONDS");
  const auto end = UserStates::Clock::now() + std::chrono::seconds(seconds == nullptr ? 1 : std::atoi(seconds));
  crowd.run(8, [&] { return UserStates::Clock::now() >= end; });
  EXPECT_EQ(crowd.num_wrong(), 0);
  EXPECT_GT(crowd.num_hits(), 0);
  // Not in a second: an allocator takes longer to settle, and that of a sanitizer keeps what was freed.
  const int64_t growth = resident_bytes() - before;
  EXPECT_TRUE(seconds == nullptr || growth <= options.most_bytes / 4) << growth << " beyond " << before;
  std::printf("%lld requests, %.1f MB at the end, %.1f before\n", static_cast<long long>(crowd.num_asked()),
              static_cast<double>(resident_bytes()) / 1e6, static_cast<double>(before) / 1e6);
}

}  // namespace
