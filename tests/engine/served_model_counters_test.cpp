// SPDX-License-Identifier: Apache-2.0
//
// What features met in all contexts of a served model.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "support/random_data.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using namespace std::chrono_literals;

class Counted : public testing::Test {
 protected:
  Counted() {
    Tables tables = Tables::load(plan_, test_support::random_tables(plan_, 50, 1), host());
    Model model = Model::bind(plan_, test_support::random_weights(plan_, 1), tables);
    served_ = std::make_unique<ServedModel>(std::move(model), std::move(tables));
  }
  /// Three ids, of which two have no row.
  Batch batch() const {
    Batch batch = plan_.batch();
    batch.add_request().ids(plan_.ids("film_id"), {1, 50, 1000000});
    batch.close();
    return batch;
  }
  void expect(int64_t batches) {
    const std::vector<FeatureCounters> all = served_->counters(0ms);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].feature, "embed.film_id");
    EXPECT_EQ(all[0].counters.ids, 3 * batches);
    EXPECT_EQ(all[0].counters.out_of_range, 2 * batches);
  }

  const Plan plan_ = compile([](Builder& b) -> Outputs {
    const auto user = b.axis("user"), item = b.axis("item", user);
    return {{"y", b.linear("top", b.embed(b.ids("film_id", item), b.table("film", {.dim = 4})), 1)}};
  });
  std::unique_ptr<ServedModel> served_;
};

TEST_F(Counted, TellsTheSumOverAllContexts) {
  expect(0);
  Batch first = batch(), second = batch();
  {
    const ContextLease a = served_->acquire(), b = served_->acquire();
    a->run(first);
    b->run(second);
    b->run(second);
  }
  expect(3);
  expect(3);
}

TEST_F(Counted, AContextInUseTellsWhenItIsGivenBackOrAsItDidLast) {
  Batch one = batch();
  served_->acquire()->run(one);
  expect(1);
  auto lease = std::make_unique<ContextLease>(served_->acquire());
  (*lease)->run(one);
  const std::vector<FeatureCounters> at_once = served_->counters(0ms);
  EXPECT_TRUE(at_once[0].counters.ids == 3) << "what was read before";
  std::future<std::vector<FeatureCounters>> later =
      std::async(std::launch::async, [&] { return served_->counters(1min); });
  EXPECT_EQ(later.wait_for(50ms), std::future_status::timeout);
  lease.reset();
  EXPECT_EQ(later.get()[0].counters.ids, 6);
}

TEST_F(Counted, BeginsAnewWithADrain) {
  Batch one = batch();
  served_->acquire()->run(one);
  expect(1);
  served_->swap({.dense = test_support::random_weights(plan_, 2), .tables = test_support::random_tables(plan_, 50, 2)},
                SwapMode::drain);
  expect(0);
}

}}  // namespace warprank
