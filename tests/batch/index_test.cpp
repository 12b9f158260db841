// SPDX-License-Identifier: Apache-2.0

#include "warprank/batch/index.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "batch/blob_testing.hpp"
#include "batch/random_requests.hpp"
#include "warprank/model.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;

/// The index as docs/BATCH_FORMAT.md lists it: counts, positions, row starts.
std::vector<int64_t> expected_index(const Batch& batch, int64_t num_axes, int64_t room) {
  std::vector<int64_t> scored;
  int64_t blob_bytes = 0;
  for (int64_t r = 0; r < batch.size(); ++r)
    if (batch.status(r).ok()) {
      scored.push_back(r);
      blob_bytes += batch.blob(r).bytes();
    }
  std::vector<int64_t> counts, positions, row_starts;
  for (const int64_t r : scored) positions.push_back(batch.blob(r).data() - (batch.bytes().data() + blob_bytes));
  positions.resize(static_cast<size_t>(room), 0);
  for (int axis = 0; axis < num_axes; ++axis) {
    int64_t rows = 0;
    for (const int64_t r : scored) {
      row_starts.push_back(rows);
      rows += batch.blob(r).rows({axis});
    }
    row_starts.resize(static_cast<size_t>((axis + 1) * (room + 1)), rows);
    counts.push_back(rows);
  }
  counts.insert(counts.end(), positions.begin(), positions.end());
  counts.insert(counts.end(), row_starts.begin(), row_starts.end());
  return counts;
}

std::vector<int64_t> index_of(const Batch& batch) {
  std::vector<int64_t> values(static_cast<size_t>(batch.index().bytes() / 8));
  std::memcpy(values.data(), batch.bytes().end() - batch.index().bytes(), values.size() * 8);
  return values;
}

TEST(BatchIndex, SaysWhereWhatIs) {
  const BatchIndex index(3, 2);
  EXPECT_EQ(index.count_at({0}), 0);
  EXPECT_EQ(index.count_at({2}), 16);
  EXPECT_EQ(index.positions_at(), 24);
  EXPECT_EQ(index.row_starts_at({0}), 40);
  EXPECT_EQ(index.row_starts_at({2}), 88);
  EXPECT_EQ(index.bytes(), 112);
  EXPECT_EQ(BatchIndex(1, 0).bytes(), 16);
}

TEST(BatchIndex, HoldsTheScoredRequestsOfRandomBatches) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const BatchLayout layout(random_graph(random));
    const auto num_axes = static_cast<int64_t>(layout.axes().size());
    const int64_t expected = random.below(8);
    Batch batch(layout, {}, expected);
    for (int round = 0; round < 3; ++round) {  // memory that was used before
      batch.clear();
      const int64_t requests = random.below(12);
      for (int64_t r = 0; r < requests; ++r) {
        if (random.below(4) == 0) {
          batch.add_blob({});
        } else {
          Request request = batch.add_request();
          fill(request, layout, random_request(layout, random), random);
        }
      }
      batch.close();
      const int64_t room = std::max(expected, batch.num_scored());
      ASSERT_EQ(batch.index().max_requests(), room);
      ASSERT_EQ(batch.index().num_axes(), num_axes);
      ASSERT_EQ(index_of(batch), expected_index(batch, num_axes, room)) << "seed " << seed;
      for (int axis = 0; axis < num_axes; ++axis) {
        ASSERT_EQ(batch.row_starts({axis}).size(), batch.num_scored() + 1);
        ASSERT_EQ(batch.row_starts({axis})[batch.num_scored()], batch.num_rows({axis}));
      }
    }
  }
}

TEST(BatchIndex, HasRoomForTheRequestsOfThePlansLargestCapacity) {
  CompileOptions options;
  options.capacities = {{1, 10}, {16, 100}, {4, 200}};
  const Plan plan = compile([](Builder& b) -> Outputs { return {{"x", b.dense("x", b.axis("user"), 1)}}; }, options);
  Batch batch = plan.batch();
  batch.close();
  EXPECT_EQ(batch.index().max_requests(), 16);
  for (int r = 0; r < 17; ++r) batch.add_request().dense(plan.dense("x"), {1.0f});
  batch.add_request();  // without x: it takes no room
  batch.close();
  EXPECT_EQ(batch.size(), 18);
  EXPECT_EQ(batch.index().max_requests(), 17);
}

}  // namespace
