// SPDX-License-Identifier: Apache-2.0
#include "warprank/store/redis/circuit_breaker.hpp"

#include <gtest/gtest.h>

namespace warprank { inline namespace v0 { namespace redis { namespace {

using std::chrono::milliseconds;

class CircuitBreakerTest : public testing::Test {
 protected:
  static CircuitBreaker::Time at(int ms) { return CircuitBreaker::Time(std::chrono::hours(1)) + milliseconds(ms); }
  void fail(int ms, double random = 1) { breaker.failed(at(ms), at(ms), random); }

  CircuitBreaker breaker{{3, milliseconds(50), milliseconds(150)}};
};

TEST_F(CircuitBreakerTest, OpensAfterFailuresInARow) {
  fail(0);
  fail(0);
  EXPECT_TRUE(breaker.may_try(at(0)));
  breaker.succeeded();
  fail(1);
  fail(1);
  EXPECT_TRUE(breaker.may_try(at(1)));
  EXPECT_FALSE(breaker.is_open(at(1)));
  fail(1);
  EXPECT_TRUE(breaker.is_open(at(1)));
  EXPECT_FALSE(breaker.may_try(at(1)));
  EXPECT_FALSE(breaker.may_try(at(50)));
}

TEST_F(CircuitBreakerTest, LetsOneTryAfterEachPauseWhichDoubles) {
  for (int i = 0; i < 3; ++i) fail(0);
  EXPECT_FALSE(breaker.is_open(at(51)));
  EXPECT_TRUE(breaker.may_try(at(51)));
  EXPECT_FALSE(breaker.may_try(at(51)));  // another is at it
  EXPECT_FALSE(breaker.may_try(at(100)));
  fail(60);
  EXPECT_FALSE(breaker.may_try(at(159)));
  EXPECT_TRUE(breaker.may_try(at(161)));
  fail(170);  // 200 ms, but for the longest pause
  EXPECT_FALSE(breaker.may_try(at(319)));
  EXPECT_TRUE(breaker.may_try(at(321)));
  breaker.succeeded();
  EXPECT_TRUE(breaker.may_try(at(321)));
  EXPECT_TRUE(breaker.may_try(at(321)));
  for (int i = 0; i < 3; ++i) fail(330);
  EXPECT_TRUE(breaker.may_try(at(381)));  // begins anew
}

// Whoever was lent the try may never tell how it went.
TEST_F(CircuitBreakerTest, LetsAnotherTryWhenTheOneSaysNothing) {
  for (int i = 0; i < 3; ++i) fail(0);
  EXPECT_TRUE(breaker.may_try(at(51)));
  EXPECT_TRUE(breaker.may_try(at(102)));
}

TEST_F(CircuitBreakerTest, PausesForHalfToAllOfIt) {
  for (int i = 0; i < 3; ++i) fail(0, 0);
  EXPECT_FALSE(breaker.may_try(at(24)));
  EXPECT_TRUE(breaker.may_try(at(25)));
}

// Calls that began together find a dead node one by one.
TEST_F(CircuitBreakerTest, DoesNotDoubleForFailuresOfBefore) {
  for (int i = 0; i < 3; ++i) fail(10);
  for (int i = 0; i < 9; ++i) breaker.failed(at(5), at(20), 1);
  EXPECT_TRUE(breaker.may_try(at(61)));
}

}}}}  // namespace warprank::v0::redis
