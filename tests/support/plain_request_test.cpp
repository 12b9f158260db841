// SPDX-License-Identifier: Apache-2.0

#include "support/plain_request.hpp"

#include <gtest/gtest.h>

#include <random>

#include "support/random_data.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

TEST(PlainRequest, IsReadAsItWasAdded) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user), genres = b.axis("genres", item);
    const auto kinds = b.embed_bag(b.ids("genre", genres), b.table("kind", {.dim = 4}), mean);
    const auto hour = b.dense("hour", user, 1, {.default_value = 1.0f});
    return {{"y", b.linear("top", b.concat({kinds, b.dense("x", item, 2), b.expand(hour, item)}), 1)}};
  });
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    const test_support::PlainRequest request = random_request(plan.layout(), test_support::RequestShape(), random);
    Batch batch = plan.batch();
    add_to(batch, request);
    batch.close();
    ASSERT_TRUE(batch.status(0).ok()) << batch.status(0).message;
    const test_support::PlainRequest got = test_support::plain_of(batch.blob(0), plan.layout());
    EXPECT_EQ(got.lengths, request.lengths);
    EXPECT_EQ(got.ids, request.ids);
    EXPECT_EQ(got.dense, request.dense);
  }
}

}}  // namespace warprank
