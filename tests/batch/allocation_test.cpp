// SPDX-License-Identifier: Apache-2.0

#include "support/allocation_counter.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <new>
#include <numeric>
#include <optional>
#include <vector>

#include "batch/blob_testing.hpp"
#include "warprank/batch/batch.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using test_support::FailingAllocation;
using test_support::num_allocations;

TEST(Batch, AllocatesNothingOnceItHasSeenItsLoad) {
  const BatchLayout layout(small_graph());
  const Bytes blob = naive_blob(layout, small_request(layout));
  std::vector<int64_t> films(200), tags(500), lengths(50, 10);
  std::iota(films.begin(), films.end(), 0);
  const std::vector<float> context(400, 0.5f);
  int64_t of_batches = 0;
  HostAllocator allocator;
  allocator.allocate = [&](int64_t bytes) {
    ++of_batches;
    return std::malloc(static_cast<size_t>(bytes));
  };
  Batch batch(layout, allocator, 1000), other(layout, allocator);  // much of it is the index
  other.add_blob(blob);

  const auto load = [&] {
    batch.clear();
    std::array<Request, 3> requests{batch.add_request(), batch.add_request(), batch.add_request()};
    for (Request& request : requests)
      request.ids({0}, {1})
          .ids({1}, films)
          .dense({0}, context)
          .ids({4}, Span<const int64_t>(films.data(), 50))
          .ids({5}, tags, Lengths(lengths));
    requests[0].finish();
    requests[2].finish();
    batch.add_blob(blob);
    batch.append(other);
    batch.close();
  };
  load();
  const int64_t before = num_allocations, of_batches_before = of_batches;
  EXPECT_GT(before, 0);
  EXPECT_GT(of_batches, 0);
  for (int i = 0; i < 10; ++i) load();
  EXPECT_EQ(num_allocations, before);
  EXPECT_EQ(of_batches, of_batches_before);
  for (int64_t r = 0; r < 5; ++r) EXPECT_EQ(batch.status(r).message, "");
}

/// Calls what throws when memory runs out, once more if it does.
template <class Call>
void insist(const Call& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    call();
  }
}

TEST(Batch, IsAsItWasWhenThereIsNoMemoryForACall) {
  const BatchLayout layout(small_graph());
  const RequestData data = small_request(layout);
  const Bytes expected = naive_blob(layout, data);
  const std::vector<int64_t> genres_of_items{2, 1}, tags_of_films{0, 2, 1};
  HostAllocator allocator;
  allocator.allocate = [](int64_t bytes) { return ::operator new(static_cast<size_t>(bytes)); };
  allocator.deallocate = [](void* memory, int64_t) { ::operator delete(memory); };
  int64_t num_failed = 0;
  for (bool has_failed = true; has_failed; num_failed += has_failed) {
    SCOPED_TRACE(num_failed);
    Batch batch(layout, allocator);
    {
      const FailingAllocation failing(num_failed);
      for (int64_t r = 0; r < 2; ++r) {
        std::optional<Request> request;
        insist([&] { request = batch.add_request(); });
        for (const int slot : {0, 1, 4}) insist([&] { request->ids({slot}, *data.ids[static_cast<size_t>(slot)]); });
        insist([&] { request->ids({3}, *data.ids[3]); });
        insist([&] { request->lengths({2}, Lengths(genres_of_items)); });
        insist([&] { request->ids({5}, *data.ids[5]); });
        insist([&] { request->lengths({4}, Lengths(tags_of_films)); });
        for (const int slot : {0, 2}) insist([&] { request->dense({slot}, *data.dense[static_cast<size_t>(slot)]); });
        if (r == 0) insist([&] { request->finish(); });
      }
      insist([&] { batch.close(); });
      has_failed = FailingAllocation::has_failed();
    }
    ASSERT_EQ(batch.size(), 2);
    ASSERT_EQ(batch.num_scored(), 2) << batch.status(0).message << batch.status(1).message;
    for (int64_t r = 0; r < 2; ++r) EXPECT_EQ(bytes_of(batch, r), expected);
  }
  EXPECT_GT(num_failed, 10);
}

TEST(Batch, ScoresTheOthersWhenThereWasNoMemoryForValues) {
  const BatchLayout layout(small_graph());
  const std::vector<int64_t> films(1000);
  const std::vector<float> context(2000);
  Batch batch(layout);
  Request request = batch.add_request();
  request.ids({0}, {1});
  {
    const FailingAllocation failing(0);
    EXPECT_THROW(request.ids({1}, films), std::bad_alloc);
  }
  batch.add_request().ids({0}, {2});
  batch.close();
  EXPECT_EQ(batch.num_scored(), 2);
  EXPECT_EQ(batch.blob(0).rows({1}), 0) << "what could not be set is not";
}

}  // namespace
