// SPDX-License-Identifier: Apache-2.0
//
// Which requests go together and which are refused, at made-up times.

#include "warprank/serving/detail/merge_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace warprank { inline namespace v0 { namespace detail { namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using TimePoint = ServiceClock::time_point;

struct NamedCall : WaitingCall {
  std::string name;
};
using Calls = std::list<NamedCall>;
using Queue = MergeQueue<NamedCall>;

TimePoint at(int64_t ms) { return TimePoint(milliseconds(ms)); }
constexpr TimePoint never = TimePoint::max();

std::vector<std::string> names(const Calls& calls) {
  std::vector<std::string> names;
  for (const NamedCall& call : calls) names.push_back(call.name);
  return names;
}

/// What a worker was given.
struct Given {
  std::vector<std::string> batch, late;
  size_t capacity;
  TimePoint again;
};

class MergeQueueTest : public testing::Test {
 protected:
  /// Of [requests, items]: 1 with 10 items, or 4 with 40.
  void make(const ServiceOptions& options = {}, int num_workers = 1) {
    queue_.emplace(Capacities({{1, 10}, {4, 40}}, 2), options, num_workers);
  }
  void push(const std::string& name, int64_t items, Priority priority = Priority::normal, int64_t arrived = 0,
            TimePoint deadline = never, bool is_tried = false) {
    Calls call(1);
    call.front().name = name;
    call.front().rows = {1, items};
    call.front().arrived = at(arrived);
    call.front().deadline = deadline;
    call.front().priority = priority;
    call.front().is_tried = is_tried;
    queue_->push(call);
    EXPECT_TRUE(call.empty());
  }
  Given take(int64_t now = 10, bool at_once = false) {
    Calls batch, late;
    const Queue::Taken taken = queue_->take(at(now), at_once, batch, late);
    return {names(batch), names(late), taken.capacity, taken.again};
  }
  /// Batches of both capacities took this long, until now.
  void learn(int64_t small_ms, int64_t large_ms) {
    queue_->done(0, milliseconds(small_ms));
    queue_->done(1, milliseconds(large_ms));
  }
  bool too_late(int64_t now, int64_t deadline, Priority priority = Priority::normal, int num_workers = 1) const {
    return queue_->comes_too_late(at(now), at(deadline), priority, num_workers);
  }

  std::optional<Queue> queue_;
};

TEST_F(MergeQueueTest, GivesNothingWhileNothingWaits) {
  make();
  const Given given = take();
  EXPECT_THAT(given.batch, IsEmpty());
  EXPECT_THAT(given.late, IsEmpty());
  EXPECT_EQ(given.again, never);
  EXPECT_TRUE(queue_->empty());
}

TEST_F(MergeQueueTest, MergesTheOldestAsFarAsACapacityGoesAndTellsWhich) {
  make();
  push("a", 5);
  Given given = take();
  EXPECT_THAT(given.batch, ElementsAre("a"));
  EXPECT_EQ(given.capacity, 0u);
  for (const char* name : {"b", "c", "d"}) push(name, 15);
  EXPECT_EQ(queue_->size(), 3);
  given = take();
  EXPECT_THAT(given.batch, ElementsAre("b", "c"));
  EXPECT_EQ(given.capacity, 1u);
  EXPECT_THAT(take().batch, ElementsAre("d"));
  EXPECT_TRUE(queue_->empty());
}

TEST_F(MergeQueueTest, MergesNoMoreRowsThanItsOptionsSayButRunsALargerRequestAlone) {
  make({.most_rows = 12});
  push("large", 30);
  for (const char* name : {"a", "b", "c"}) push(name, 6);
  EXPECT_THAT(take().batch, ElementsAre("large"));
  EXPECT_THAT(take().batch, ElementsAre("a", "b"));
  EXPECT_THAT(take().batch, ElementsAre("c"));
}

TEST_F(MergeQueueTest, TakesHighPriorityFirstAndFillsUpWithNormal) {
  make();
  push("n1", 10);
  push("n2", 10);
  push("n3", 10);
  push("h1", 10, Priority::high, 1);
  push("h2", 10, Priority::high, 1);
  EXPECT_THAT(take().batch, ElementsAre("h1", "h2", "n1", "n2"));
  EXPECT_THAT(take().batch, ElementsAre("n3"));
}

TEST_F(MergeQueueTest, LetsRequestsAboveAllCapacitiesNeitherEndABatchNorTakeAllWorkers) {
  make({}, 3);
  push("a", 10, Priority::normal, 0);
  push("huge1", 100, Priority::normal, 1);
  push("b", 10, Priority::normal, 2);
  EXPECT_THAT(take().batch, ElementsAre("a", "b"));
  for (const char* name : {"huge2", "huge3"}) push(name, 100, Priority::normal, 3);
  push("c", 10, Priority::normal, 4);
  Given given = take();
  EXPECT_THAT(given.batch, ElementsAre("huge1")) << "the oldest";
  EXPECT_EQ(given.capacity, 2u);
  EXPECT_THAT(take().batch, ElementsAre("huge2"));
  EXPECT_THAT(take().batch, ElementsAre("c")) << "two of three workers have such requests";
  EXPECT_THAT(take().batch, IsEmpty());
  queue_->done(2, milliseconds(500));
  EXPECT_THAT(take().batch, ElementsAre("huge3"));
  push("huge4", 100, Priority::normal, 5);
  EXPECT_THAT(take().batch, IsEmpty());
  queue_->done(2, std::nullopt);
  EXPECT_THAT(take().batch, ElementsAre("huge4")) << "one that failed frees its place, too";
}

TEST_F(MergeQueueTest, RunsRequestsAboveAllCapacitiesWithOneWorkerToo) {
  make({}, 1);
  push("huge", 100, Priority::normal, 0);
  push("high", 10, Priority::high, 1);
  EXPECT_THAT(take().batch, ElementsAre("high"));
  EXPECT_THAT(take().batch, ElementsAre("huge"));
}

TEST_F(MergeQueueTest, WaitsForMoreUntilTheOldestHasWaitedLongEnoughOrABatchIsFull) {
  make({.most_merged = 3, .most_wait = milliseconds(5)});
  push("a", 10, Priority::normal, 100);
  Given given = take(100);
  EXPECT_THAT(given.batch, IsEmpty());
  EXPECT_EQ(given.again, at(105));
  push("b", 10, Priority::normal, 103);
  EXPECT_EQ(take(104).again, at(105));
  EXPECT_THAT(take(105).batch, ElementsAre("a", "b"));
  push("c", 10, Priority::normal, 106);
  EXPECT_THAT(take(106, true).batch, ElementsAre("c")) << "when the service stops";
  for (const char* name : {"d", "e", "f", "x"}) push(name, 1, Priority::normal, 107);
  EXPECT_THAT(take(107).batch, ElementsAre("d", "e", "f")) << "no more may be merged";
  EXPECT_THAT(take(112).batch, ElementsAre("x"));
  for (const char* name : {"g", "h"}) push(name, 30, Priority::normal, 108);
  EXPECT_THAT(take(108).batch, ElementsAre("g")) << "the next does not fit";
  EXPECT_EQ(take(108).again, at(113));
}

TEST_F(MergeQueueTest, DoesNotWaitForMoreUntilADeadlineIsMissed) {
  make({.most_wait = milliseconds(50)});
  learn(4, 10);
  push("a", 10, Priority::normal, 0, at(20));
  EXPECT_EQ(take(0).again, at(12)) << "the deadline less twice the time of a batch";
  EXPECT_THAT(take(12).batch, ElementsAre("a"));
}

TEST_F(MergeQueueTest, GivesUpWhatCannotBeScoredInTime) {
  make();
  learn(4, 10);
  push("over", 10, Priority::normal, 0, at(9));
  push("soon", 10, Priority::normal, 0, at(13));
  push("just", 10, Priority::normal, 0, at(14));
  push("tried", 10, Priority::normal, 0, at(11), true);
  const Given given = take(10);
  EXPECT_THAT(given.late, ElementsAre("over", "soon"));
  EXPECT_THAT(given.batch, ElementsAre("just")) << "with another it would take 10 ms";
  EXPECT_THAT(take(10).batch, ElementsAre("tried")) << "whatever batches took";
  push("tried", 10, Priority::normal, 0, at(11), true);
  EXPECT_THAT(take(11).late, ElementsAre("tried"));
}

TEST_F(MergeQueueTest, DoesNotAddARequestToABatchThatTakesTooLongForIt) {
  make();
  learn(4, 10);
  push("a", 10);
  push("b", 10, Priority::normal, 0, at(8));
  EXPECT_THAT(take(0).batch, ElementsAre("a"));
  EXPECT_THAT(take(0).batch, ElementsAre("b"));
  push("c", 10, Priority::normal, 0, at(10));
  push("d", 10, Priority::normal, 0, at(10));
  EXPECT_THAT(take(0).batch, ElementsAre("c", "d")) << "their deadline is the end of the batch";
}

TEST_F(MergeQueueTest, KnowsBeforehandWhatMustComeTooLate) {
  make({}, 1);
  EXPECT_FALSE(too_late(0, 1)) << "nothing has been measured";
  EXPECT_TRUE(too_late(5, 5));
  learn(4, 10);
  EXPECT_FALSE(too_late(0, 4));
  EXPECT_TRUE(too_late(0, 3));
  for (int i = 0; i < 8; ++i) push("n", 10);  // two batches of 10 ms, or eight of 4 ms
  EXPECT_TRUE(too_late(0, 23));
  EXPECT_FALSE(too_late(0, 24)) << "20 ms and 4 ms of its own";
  EXPECT_FALSE(too_late(0, 14, Priority::normal, 2)) << "two workers share them";
  EXPECT_FALSE(too_late(0, 4, Priority::high)) << "the others wait for it";
  push("h", 10, Priority::high);
  EXPECT_TRUE(too_late(0, 7, Priority::high)) << "one batch of 4 ms, then its own";
  for (int i = 0; i < 3; ++i) take();
  EXPECT_FALSE(too_late(0, 4)) << "nothing waits any more";
  push("h", 10, Priority::high);
  EXPECT_TRUE(too_late(0, 7)) << "those of high priority go first";
  EXPECT_FALSE(too_late(0, 8));
  make({.most_merged = 1});
  learn(4, 10);
  for (int i = 0; i < 3; ++i) push("n", 1);
  EXPECT_TRUE(too_late(0, 15)) << "three batches and its own, though all would fit in one";
  EXPECT_FALSE(too_late(0, 16));
}

TEST_F(MergeQueueTest, GivesUpAllOfACall) {
  make();
  const auto push_of = [&](const std::string& name, uint64_t call, int64_t items, Priority priority) {
    Calls one(1);
    one.front().name = name;
    one.front().rows = {1, items};
    one.front().arrived = at(0);
    one.front().priority = priority;
    one.front().call = call;
    queue_->push(one);
  };
  push_of("a", 1, 30, Priority::normal);
  push_of("b", 2, 10, Priority::normal);
  push_of("huge", 1, 100, Priority::normal);
  push_of("high", 1, 10, Priority::high);
  push_of("c", 2, 10, Priority::normal);
  Calls given_up;
  queue_->give_up(1, given_up);
  EXPECT_THAT(names(given_up), testing::UnorderedElementsAre("a", "huge", "high"));
  EXPECT_EQ(queue_->size(), 2);
  learn(4, 10);
  EXPECT_FALSE(too_late(0, 14)) << "a batch of the two that are left, of 20 rows";
  EXPECT_THAT(take().batch, ElementsAre("b", "c"));
  EXPECT_TRUE(queue_->empty());
}

TEST_F(MergeQueueTest, FollowsTheTimesOfBatchesButNotAtOnce) {
  make();
  learn(8, 80);
  EXPECT_TRUE(too_late(0, 7));
  queue_->done(0, milliseconds(800));  // a page fault, say
  EXPECT_TRUE(too_late(0, 79)) << "8 + 792 / 8 is more than the 80 of the other capacity";
  queue_->done(0, std::nullopt);  // one that failed tells nothing
  for (int i = 0; i < 100; ++i) queue_->done(0, milliseconds(2));
  EXPECT_FALSE(too_late(0, 3));
}

TEST_F(MergeQueueTest, GivesUpTheYoungestOfNormalPriority) {
  make();
  Calls given_up;
  push("h", 10, Priority::high);
  EXPECT_FALSE(queue_->give_up_one(given_up));
  push("n1", 10);
  push("n2", 10);
  push("huge", 100);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue_->give_up_one(given_up));
  EXPECT_FALSE(queue_->give_up_one(given_up));
  EXPECT_THAT(names(given_up), ElementsAre("huge", "n2", "n1"));
  EXPECT_THAT(take().batch, ElementsAre("h"));
}

TEST_F(MergeQueueTest, RunsEachAloneWithoutCapacities) {
  queue_.emplace(Capacities({}, 2), ServiceOptions{}, 1);
  push("a", 10, Priority::normal, 0, at(11));
  EXPECT_FALSE(too_late(0, 1));
  const Given given = take();
  EXPECT_THAT(given.batch, ElementsAre("a"));
  EXPECT_EQ(given.capacity, 0u);
  queue_->done(0, milliseconds(3));
  EXPECT_TRUE(queue_->empty());
}

}}}}  // namespace warprank::v0::detail
