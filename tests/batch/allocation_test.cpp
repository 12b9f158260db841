// SPDX-License-Identifier: Apache-2.0

#include "support/allocation_counter.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "batch/blob_testing.hpp"
#include "warprank/batch/batch.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
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

}  // namespace
