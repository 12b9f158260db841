// SPDX-License-Identifier: Apache-2.0

#include "warprank/engine/cuda/batch_parts.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "warprank/host.hpp"

namespace warprank { namespace {

using cuda_backend::BatchPart, cuda_backend::BatchParts, cuda_backend::RunSize;

TEST(BatchParts, AreMeasuredWithAllOfTheirRequests) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    return {{"y", b.reduce(b.dense("x", b.axis("item", b.axis("user")), 2), sum)}};
  });
  Batch batch = plan.batch();
  for (int64_t rows = 1; rows <= 7; ++rows)
    batch.add_request().dense(plan.dense("x"), std::vector<float>(static_cast<size_t>(2 * rows)));
  batch.close();
  BatchParts parts;
  parts.measure(batch);
  parts.divide(batch, [](const RunSize& size) { return size.max_requests <= 3 ? 0 : -1; });
  ASSERT_EQ(parts.count(), 3);
  RunSize all{{0, 0}, 0, 0};
  for (int64_t i = 0; i < parts.count(); ++i) {
    const BatchPart& part = parts[i];
    EXPECT_EQ(part.size.max_requests, part.count);
    EXPECT_EQ(part.size.rows[0], part.count);
    EXPECT_EQ(part.size.blob_bytes, part.blobs_end - part.blobs_begin) << "part " << i;
    all.rows[0] += part.size.rows[0], all.rows[1] += part.size.rows[1];
    all.max_requests += part.size.max_requests, all.blob_bytes += part.size.blob_bytes;
  }
  EXPECT_TRUE(all == parts.whole());
}

}}  // namespace warprank
