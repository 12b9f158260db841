// SPDX-License-Identifier: Apache-2.0

// The server's options for tables in tiers, as a build without hiredis has them; the server's own test with Redis is
// server_stores_redis_grpc_test.cpp.
#include "../../examples/server/tier_options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/message_of.hpp"

#ifdef WARPRANK_EXAMPLE_REDIS
#error "expected a build of the options that knows nothing of Redis"
#endif

namespace kserve { namespace {

/// What the options of a command line make of `loading`.
struct CommandLine {
  explicit CommandLine(std::vector<std::string> words) {
    CLI::App app;
    tiers.add_to(app);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    tiers.set(loading);
  }

  TierOptions tiers;
  warprank::LoadOptions loading;
};
std::string trouble_of(const std::vector<std::string>& words) {
  return warprank::test_support::message_of([&] { CommandLine line(words); });
}

TEST(ServerTierOptions, WithoutHiredisRefuseRedis) {
  const std::string expected =
      "--in-redis: expected a program that was built with hiredis (libhiredis-dev, and WARPRANK_WITH_REDIS not OFF), "
      "got "
      "one "
      "that was built without";
  EXPECT_EQ(trouble_of({"--in-redis", "film=1", "--redis", "127.0.0.1:6379"}), expected);
  EXPECT_EQ(trouble_of({"--in-redis", "film=1:5000", "--redis", "127.0.0.1:6379", "--follow-changes"}), expected);
  EXPECT_EQ(trouble_of({"--redis", "127.0.0.1:6379"}), "--redis requires --in-redis");
  EXPECT_EQ(trouble_of({"--follow-changes"}), "--follow-changes requires --in-redis");
}

TEST(ServerTierOptions, WithoutHiredisPlaceTables) {
  const CommandLine line({"--place", "user_*=cached:16", "--place", "film=host", "--place", "*=device"});
  ASSERT_EQ(line.loading.placement.size(), 3u);
  EXPECT_EQ(warprank::placement_of(line.loading.placement, "user_1"),
            (warprank::TablePlacement{warprank::Placement::cached, 16'000'000}));
  EXPECT_EQ(warprank::placement_of(line.loading.placement, "film").where, warprank::Placement::host);
  EXPECT_TRUE(line.loading.stores.empty());
  EXPECT_EQ(line.tiers.redis_counters(), nullptr);
  EXPECT_EQ(trouble_of({}), "");
}

}}  // namespace kserve
