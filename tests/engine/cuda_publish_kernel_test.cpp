// SPDX-License-Identifier: Apache-2.0
#include "warprank/engine/cuda/publish.cuh"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/device/owned_memory.hpp"
#include "warprank/engine/cuda/published.cuh"

namespace cuda_publish_test {

namespace device = warprank::device;

/// Sees what the host sees that waits for `number`: out[i] = values[i].
template <class = void>
WARPRANK_KERNEL(32, 1)
read_published(float* out, const float* values, int64_t count, const uint32_t* flag, uint32_t number) {
  while (device::load<device::Order::acquire, device::Scope::system>(flag) != number) {
  }
  for (int64_t i = device::lane_index(); i < count; i += 32) device::store(&out[i], device::load(&values[i]));
}

}  // namespace cuda_publish_test

namespace warprank { namespace {

using namespace kernel_testing;  // NOLINT
using cuda_backend::Publish, cuda_backend::Published;

std::vector<float> numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.f);
  return values;
}

TEST(Publish, NumberIsSeenBehindAllScores) {
  if constexpr (on_gpu) {
    GTEST_SKIP() << "two launches that wait for one another may not run side by side";
  } else {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{3000}}) {
      in_every_order(
          [&] {
            DeviceArray<float> from(numbers(count)), to(count), seen(count);
            DeviceArray<uint32_t> ticket(1, 0), flag(1, 0);
            const Publish publish{to.data(), from.data(), count, ticket.data(), flag.data(), 7};
            publish.queue(create_stream(), Publish::blocks(count));
            device::launch({1, 32, 0, create_stream()}, cuda_publish_test::read_published<>, seen.data(),
                           static_cast<const float*>(to.data()), count, static_cast<const uint32_t*>(flag.data()), 7u);
            EXPECT_EQ(seen.read(), numbers(count));
            EXPECT_EQ(ticket.read(), std::vector<uint32_t>{0}) << "ready for the next batch";
            return seen.read();
          },
          10);
    }
  }
}

TEST(Publish, PartsAreBeforeTheLast) {
  kernel_testing::reset(Config{});
  const device::OwnedStream stream;
  const device::PinnedMemory pinned(4 * 100, "a test");
  auto* const to = static_cast<float*>(pinned.data());
  std::fill_n(to, 100, -1.f);
  DeviceArray<float> from(numbers(100));
  DeviceArray<uint32_t> ticket(1, 0);
  Published published = Published::make();
  EXPECT_TRUE(published.is_done()) << "there was no batch";
  device::Event done;
  for (const bool is_last : {false, true}) {
    published.next(to + (is_last ? 60 : 0), from.data() + (is_last ? 60 : 0), is_last ? 39 : 60, ticket.data(), is_last)
        .queue(stream.get(), 2);
  }
  done.record(stream.get());
  double expected = 0;
  published.wait({}, done, expected);
  EXPECT_TRUE(published.is_done());
  std::vector<float> values = numbers(100);
  values[99] = -1;
  EXPECT_EQ(std::vector<float>(to, to + 100), values);
}

TEST(Publish, ABatchIsNotDoneWithItsFirstPart) {
  kernel_testing::reset(Config{});
  const device::OwnedStream stream;
  const device::PinnedMemory pinned(4 * 100, "a test");
  auto* const to = static_cast<float*>(pinned.data());
  DeviceArray<float> from(numbers(100));
  DeviceArray<uint32_t> ticket(1, 0);
  Published published = Published::make();
  for (int batch = 0; batch < 3; ++batch) {
    published.next(to, from.data(), 60, ticket.data(), false).queue(stream.get(), 2);
    const Publish last = published.next(to + 60, from.data() + 60, 40, ticket.data(), true);
    device::synchronize(stream.get());
    EXPECT_FALSE(published.is_done()) << "batch " << batch << ": the last part has not begun";
    last.queue(stream.get(), 2);
    if constexpr (!on_gpu) {
      EXPECT_FALSE(published.is_done()) << "nothing runs before somebody waits for it";
    }
    device::synchronize(stream.get());
    EXPECT_TRUE(published.is_done());
  }
}

TEST(Publish, EveryWayToWaitSeesTheScores) {
  kernel_testing::reset(Config{});
  const device::OwnedStream stream;
  const device::PinnedMemory pinned(4, "a test");
  auto* const to = static_cast<float*>(pinned.data());
  DeviceArray<float> from(numbers(3));
  DeviceArray<uint32_t> ticket(1, 0);
  Published published = Published::make();
  device::Event done;
  ContextOptions options;
  for (const double spin_seconds : {0.0, 1e-6, 1.0})
    for (const Wait wait : {Wait::spin, Wait::spin_then_sleep, Wait::sleep})
      for (int i = 0; i < 3; ++i) {
        options.wait = wait;
        options.spin_seconds = spin_seconds;
        published.next(to, from.data() + i, 1, ticket.data(), true).queue(stream.get(), 1);
        done.record(stream.get());
        double expected = 1e-9;
        published.wait(options, done, expected);
        EXPECT_EQ(*to, static_cast<float>(i + 1));
        EXPECT_GT(expected, 0);
      }
}

TEST(Publish, WaysToWaitAreDescribedAndChecked) {
  using cuda_backend::text_of_wait;
  ContextOptions options;
  EXPECT_EQ(text_of_wait(options), "spins for 500 us, then sleeps between looks");
  options.spin_seconds = 0;
  EXPECT_EQ(text_of_wait(options), "sleeps between looks, as spin_seconds is 0");
  options.wait = Wait::spin;
  EXPECT_EQ(text_of_wait(options), "spins");
  options.wait = Wait::sleep;
  EXPECT_EQ(text_of_wait(options), "sleeps between looks");
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    options.spin_seconds = bad;
    EXPECT_THROW(cuda_backend::checked_wait(options), invalid_argument);
  }
}

TEST(Publish, HalfOfTheCoresMaySpin) {
  const auto most = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  std::vector<std::unique_ptr<cuda_backend::SpinningPlace>> places;
  for (int i = 0; i < most; ++i) {
    places.push_back(std::make_unique<cuda_backend::SpinningPlace>(true));
    EXPECT_TRUE(places.back()->is_taken());
  }
  EXPECT_FALSE(cuda_backend::SpinningPlace(true).is_taken());
  EXPECT_FALSE(cuda_backend::SpinningPlace(false).is_taken());
  places.pop_back();
  EXPECT_TRUE(cuda_backend::SpinningPlace(true).is_taken());
}

}}  // namespace warprank
