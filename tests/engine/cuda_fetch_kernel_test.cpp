// SPDX-License-Identifier: Apache-2.0
#include "warprank/engine/cuda/fetch.cuh"

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "support/kernel_testing.hpp"
#include "support/words.hpp"
#include "warprank/device/owned_memory.hpp"

namespace warprank { namespace {

using namespace kernel_testing;  // NOLINT
using cuda_backend::Fetch;
using test_support::numbers, test_support::untouched, test_support::Words;

int64_t bytes_of(const Words& words) { return static_cast<int64_t>(8 * words.size()); }

TEST(Fetch, BringsBlobsAndIndexSideBySide) {
  const int64_t more_than_threads = 64 * cuda_backend::fetch_threads + 1000;
  for (const auto& [num_blobs, num_index] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 5}, {3, 4}, {8, 0}, {300, 33}, {more_than_threads, 700}}) {
    SCOPED_TRACE(std::to_string(num_blobs) + " and " + std::to_string(num_index) + " words");
    in_every_order(
        [&, num_blobs = num_blobs, num_index = num_index] {
          const Words blobs = numbers(num_blobs, 1 << 20), index = numbers(num_index, 1 << 30);
          // Aligned to 8 bytes and no more, and apart, as the index of a part is from its blobs.
          const device::PinnedMemory pinned(bytes_of(blobs) + bytes_of(index) + 24, "a test");
          auto* const at = static_cast<std::byte*>(pinned.data()) + 8;
          std::byte* const index_at = at + bytes_of(blobs) + 8;
          std::memcpy(at, blobs.data(), static_cast<size_t>(bytes_of(blobs)));
          std::memcpy(index_at, index.data(), static_cast<size_t>(bytes_of(index)));
          DeviceArray<uint64_t> to(Words(static_cast<size_t>(num_blobs + num_index + 2), untouched));
          const Fetch fetch = Fetch::of(reinterpret_cast<unsigned char*>(to.data() + 1 + num_blobs), at,
                                        bytes_of(blobs), index_at, bytes_of(index));
          fetch.queue(create_stream(), Fetch::blocks(bytes_of(blobs) + bytes_of(index)));
          Words expected{untouched};
          expected.insert(expected.end(), blobs.begin(), blobs.end());
          expected.insert(expected.end(), index.begin(), index.end());
          expected.push_back(untouched);
          EXPECT_EQ(to.read(), expected);
          return to.read();
        },
        3);
  }
}

TEST(Fetch, AGraphFetchesWhatItIsToldToBeforeEachLaunch) {
  kernel_testing::reset(Config{});
  const device::OwnedStream stream;
  const device::PinnedMemory pinned(8 * 10, "a test");
  auto* const words = static_cast<uint64_t*>(pinned.data());
  std::iota(words, words + 10, uint64_t{100});
  DeviceArray<uint64_t> to(Words(4, untouched));
  Fetch{}.queue(stream.get(), 1);
  device::synchronize(stream.get());
  const auto graph = device::Graph::capture(stream.get(), [&] { Fetch{}.queue(stream.get(), Fetch::blocks(32)); });
  const auto launch = [&](const Fetch& fetch) {
    fetch.set(graph);
    graph.launch(stream.get());
    device::synchronize(stream.get());
    return to.read();
  };
  EXPECT_EQ(launch({to.data(), words, 1, words + 5, 2}), (Words{100, 105, 106, untouched}));
  EXPECT_EQ(launch({to.data() + 2, words + 7, 2, nullptr, 0}), (Words{100, 105, 107, 108}));
  EXPECT_EQ(launch({}), (Words{100, 105, 107, 108})) << "a copy has brought the batch";
}

TEST(Fetch, KernelsCanReadPinnedMemoryAlone) {
  kernel_testing::reset(Config{});
  const device::PinnedMemory pinned(64, "a test");
  const std::vector<unsigned char> pageable(64);
  EXPECT_TRUE(device::can_read(pinned.data()));
  EXPECT_TRUE(device::can_read(static_cast<const std::byte*>(pinned.data()) + 63));
  EXPECT_FALSE(device::can_read(pageable.data()));
}

}}  // namespace warprank
