// SPDX-License-Identifier: Apache-2.0
#include "warprank/engine/cuda/gather.cuh"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/kernel_testing.hpp"
#include "support/words.hpp"
#include "warprank/device/owned_memory.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank { namespace {

using namespace kernel_testing;  // NOLINT
using cuda_backend::Gather;
using cuda_backend::GatherPiece;
using test_support::numbers, test_support::untouched, test_support::Words;

device::PinnedMemory pinned(const std::vector<GatherPiece>& pieces) {
  device::PinnedMemory memory(static_cast<int64_t>(sizeof(GatherPiece) * pieces.size()), "a test");
  std::copy(pieces.begin(), pieces.end(), static_cast<GatherPiece*>(memory.data()));
  return memory;
}

/// Pieces of these many words, in turns from pinned memory, from the device's, and from pinned memory to two places.
/// Between all places are words that nobody writes.
void expect_gathered(const std::vector<int64_t>& sizes) {
  in_every_order(
      [&] {
        const int64_t count = std::accumulate(sizes.begin(), sizes.end(), static_cast<int64_t>(sizes.size()) + 1);
        const device::PinnedMemory on_host(8 * count, "a test");
        const Words values = numbers(count, 1 << 20);
        std::copy(values.begin(), values.end(), static_cast<uint64_t*>(on_host.data()));
        const DeviceArray<uint64_t> on_device(numbers(count, 1 << 30));
        DeviceArray<uint64_t> to(Words(static_cast<size_t>(count), untouched)),
            also_to(Words(static_cast<size_t>(count), untouched));
        Words expected = to.read(), expected_also = expected;
        std::vector<GatherPiece> pieces;
        int64_t at = 1;
        for (size_t i = 0; i < sizes.size(); ++i) {
          const bool is_there = i % 3 == 1, is_stored = i % 3 == 2;
          pieces.push_back({(is_there ? on_device.data() : static_cast<const uint64_t*>(on_host.data())) + at,
                            to.data() + at, is_stored ? also_to.data() + at : nullptr, sizes[i]});
          for (int64_t w = at; w < at + sizes[i]; ++w) {
            const auto word = static_cast<size_t>(w);
            expected[word] = word + (is_there ? 1 << 30 : 1 << 20);
            if (is_stored) expected_also[word] = expected[word];
          }
          at += sizes[i] + 1;
        }
        const device::PinnedMemory list = pinned(pieces);
        Gather{static_cast<const GatherPiece*>(list.data()), static_cast<int64_t>(pieces.size())}.queue(
            create_stream());
        EXPECT_EQ(to.read(), expected);
        EXPECT_EQ(also_to.read(), expected_also);
        return to.read();
      },
      3);
}

TEST(Gather, BringsPiecesFromTheHostAndTheDevice) {
  expect_gathered({1, 511, 512, 3, 129, 127, 128, 256, 5});
  expect_gathered({512});
}

TEST(Gather, TakesMorePiecesThanThereAreBlocks) {
  kernel_testing::reset(Config{});
  const int64_t blocks = 8 * device::num_multiprocessors();
  expect_gathered(std::vector<int64_t>(static_cast<size_t>(blocks + 3), 2));
}

TEST(Gather, OfNothingTouchesNothing) {
  kernel_testing::reset(Config{});
  DeviceArray<uint64_t> to(numbers(2, 10));
  const device::PinnedMemory list = pinned({{to.data(), to.data() + 1, nullptr, 1}});
  Gather{static_cast<const GatherPiece*>(list.data()), 0}.queue(create_stream());
  EXPECT_EQ(to.read(), numbers(2, 10));
}

}}  // namespace warprank
