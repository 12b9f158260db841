// SPDX-License-Identifier: Apache-2.0
#include "warprank/core/rest.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>

#include "warprank/core/pace.hpp"
#include "warprank/core/quiet_thread.hpp"

namespace {

using namespace warprank;  // NOLINT: the library under test
using Clock = std::chrono::steady_clock;

double processor_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Took {
  double processor, all;
};

/// Works for so long, with rests between pieces of two milliseconds.
Took work(double seconds) {
  const double begin = processor_seconds();
  const Clock::time_point began = Clock::now();
  while (processor_seconds() - begin < seconds) {
    const double piece = processor_seconds();
    while (processor_seconds() - piece < 2e-3) {
    }
    detail::rest();
  }
  return {processor_seconds() - begin, std::chrono::duration<double>(Clock::now() - began).count()};
}

/// In a thread with a share, whose priority others do not take for more than their part.
template <class Body>
void with_share(double share, const Body& body) {
  std::thread([&] {
    detail::Share::of_this_thread().set(share);
    body();
  }).join();
}

TEST(Rest, LeavesTheRestOfTheCoreFree) {
  Took took{};
  bool is_limited = false;
  with_share(0.1, [&] {
    took = work(0.02);
    is_limited = Pace().is_limited();
  });
  EXPECT_LE(took.processor, 0.11 * took.all);
  EXPECT_TRUE(is_limited) << "copies are made in pieces, then";
}

TEST(Rest, IsForWhatAQuietThreadDoes) {
  detail::QuietThread thread(LoaderPriority::low, 0.3);
  double share = 0;
  thread.run([&] { share = detail::Share::of_this_thread().value(); });
  EXPECT_EQ(share, 0.3);
}

TEST(Rest, IsOfTheThreadAlone) {
  detail::QuietThread thread(LoaderPriority::as_caller, 0.2);
  thread.run([] {});
  EXPECT_EQ(detail::Share::of_this_thread().value(), 1);
  EXPECT_FALSE(Pace().is_limited());
  const double begin = processor_seconds();
  detail::rest();
  EXPECT_LT(processor_seconds() - begin, 1e-3);
}

TEST(Pace, RestsBehindEachPiece) {
  Took took{};
  with_share(0.1, [&] {
    Pace pace;
    const double begin = processor_seconds();
    const Clock::time_point began = Clock::now();
    while (processor_seconds() - begin < 5e-3) {
    }
    pace.moved(1);
    took = {processor_seconds() - begin, std::chrono::duration<double>(Clock::now() - began).count()};
  });
  EXPECT_LE(took.processor, 0.11 * took.all);
}

}  // namespace
