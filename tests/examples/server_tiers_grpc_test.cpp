// SPDX-License-Identifier: Apache-2.0

// Metrics of the server about tables whose rows lie in several tiers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "../../examples/server/hosted_model.hpp"
#include "../../examples/server/tier_metrics.hpp"
#include "store/followed_tables.hpp"
#include "warprank/host.hpp"

namespace kserve { namespace {

using namespace warprank;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ServerTiers, TellsOfTablesInStores) {
  using table_update_testing::first_keys;
  test_support::FollowedModel model(
      {table_update_testing::versioned_table("film", DType::f16, 8, true, first_keys(40))}, true);
  model.store->put_value("film", 7, {});
  ServedModel served(model.model, model.tables);
  HostedModel hosted(served, [] { return NextModel(); }, {});
  const auto look_up = [&](const std::vector<int64_t>& keys) {
    Batch batch = served.batch();
    batch.add_request().ids(model.plan.ids("id_film"), keys);
    served.acquire()->run(batch);
  };
  look_up({0, 1, 2, 7, 40});
  EXPECT_TRUE(test_support::wait_until([&] {
    const StoreCounters met = served.store_counters().at("film");
    return met.fetched == 3 && met.absent == 1 && met.damaged == 1;
  }));
  look_up({0, 1});
  const auto line = [](const std::string& metric, const std::string& labels, int value) {
    return HasSubstr("\nwarprank_" + metric + "{model=\"model\",table=\"film\"" + labels + "} " +
                     std::to_string(value) + "\n");
  };
  EXPECT_THAT(
      hosted.metrics(),
      AllOf(line("tier_lookups_total", ",tier=\"memory\",result=\"hit\"", 2),
            line("tier_lookups_total", ",tier=\"memory\",result=\"miss\"", 5),
            line("tier_rows_total", ",tier=\"memory\",change=\"admitted\"", 3),
            line("tier_rows_total", ",tier=\"memory\",change=\"evicted\"", 0),
            line("tier_dropped_total", ",tier=\"memory\"", 0), line("store_keys_total", ",answer=\"row\"", 3),
            line("store_keys_total", ",answer=\"absent\"", 1), line("store_keys_total", ",answer=\"damaged\"", 1),
            line("store_keys_total", ",answer=\"failed\"", 0), line("store_late_total", "", 0),
            line("store_rows", "", 3)));
  EXPECT_THAT(hosted.metrics(), HasSubstr("\nwarprank_failed_cache_passes_total{model=\"model\"} 0\n"));
}

TEST(ServerTiers, TellsOfCachesOnAGpu) {
  TierCounters counters;
  counters.caches["film"] = {100, 20, 3, 7, 5};
  MetricsText text;
  counters.write(text, "m");
  for (const char* line :
       {"warprank_tier_lookups_total{model=\"m\",table=\"film\",tier=\"device\",result=\"hit\"} 100\n",
        "warprank_tier_lookups_total{model=\"m\",table=\"film\",tier=\"device\",result=\"miss\"} 20\n",
        "warprank_tier_rows_total{model=\"m\",table=\"film\",tier=\"device\",change=\"admitted\"} 7\n",
        "warprank_tier_rows_total{model=\"m\",table=\"film\",tier=\"device\",change=\"evicted\"} 5\n",
        "warprank_tier_dropped_total{model=\"m\",table=\"film\",tier=\"device\"} 3\n"})
    EXPECT_THAT(text.text(), HasSubstr(line));
  EXPECT_THAT(text.text(), Not(HasSubstr("warprank_store")));
  EXPECT_THAT(text.text(), Not(HasSubstr("warprank_redis")));
  MetricsText nothing;
  TierCounters().write(nothing, "m");
  EXPECT_EQ(nothing.text(), "");
}

TEST(ServerTiers, TellsOfConnectionsToRedis) {
  using table_update_testing::first_keys;
  test_support::FollowedModel model(
      {table_update_testing::versioned_table("film", DType::f16, 8, true, first_keys(4))});
  ServedModel served(model.model, model.tables);
  RedisCounters met{9, 5, 2, 30, 4, 6, 70, 80};
  HostedModel hosted(served, [] { return NextModel(); }, {.redis = [&met] { return met; }});
  for (const char* line :
       {"connections_total{model=\"model\",event=\"opened\"} 9\n",
        "connections_total{model=\"model\",event=\"broken\"} 5\n", "timeouts_total{model=\"model\"} 2\n",
        "requests_total{model=\"model\",result=\"retried\"} 70\n",
        "requests_total{model=\"model\",result=\"refused\"} 80\n", "slots_total{model=\"model\",event=\"moved\"} 30\n",
        "slots_total{model=\"model\",event=\"asked\"} 4\n", "slots_total{model=\"model\",event=\"refreshed\"} 6\n"})
    EXPECT_THAT(hosted.metrics(), HasSubstr("\nwarprank_redis_" + std::string(line)));
  met.moved = 31;
  EXPECT_THAT(hosted.metrics(), HasSubstr("event=\"moved\"} 31\n")) << "as they are now";
}

}}  // namespace kserve
