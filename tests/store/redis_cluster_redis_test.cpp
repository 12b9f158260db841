// SPDX-License-Identifier: Apache-2.0

// With processes of redis-server: a cluster of three masters and their replicas, and single servers.
#include "warprank/store/redis_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/message_of.hpp"
#include "support/redis_servers.hpp"
#include "support/store_testing.hpp"

namespace warprank { namespace {

using namespace test_support;
using namespace std::chrono_literals;
using testing::Each;
using testing::HasSubstr;

double seconds_since(Deadline begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Tests are in an order in which each leaves the cluster whole.
class RedisClusterTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (has_redis_server()) servers_ = std::make_unique<RedisClusterServers>("redis_cluster");
  }
  static void TearDownTestSuite() { servers_ = nullptr; }
  void SetUp() override {
    if (servers_ == nullptr) GTEST_SKIP() << "redis-server is not installed";
  }

  /// How long it waits is what calls say: its own timeouts are met by nothing that answers.
  static RedisCluster::Options options() {
    RedisCluster::Options options;
    options.nodes = {servers_->addresses()[1]};  // the others are found
    options.command_timeout = 2min;
    options.connect_timeout = 2min;
    options.breaker.longest_pause = 200ms;
    return options;
  }
  /// Keys of a master's slots, from `first` on.
  static std::vector<int64_t> keys_of(int master, int64_t first, size_t count) {
    std::vector<int64_t> keys;
    for (int64_t key = first; keys.size() < count; ++key)
      if (master_of(key) == master) keys.push_back(key);
    return keys;
  }
  static int master_of(int64_t key) {
    return RedisClusterServers::master_of(redis::slot_of(RedisCluster::key_name("film", key)));
  }
  static void make(RedisCluster& store, int64_t count) {
    store.create(film, soon());
    ASSERT_THAT(put(store, film, keys_from(0, count)).statuses, Each(StoreStatus::ok));
  }
  static bool has_all(RedisCluster& store, int64_t count, int64_t version = 0, Deadline deadline = soon()) {
    const std::vector<int64_t> keys = keys_from(0, count);
    const Answers answers = get(store, film, keys, deadline);
    return answers.count(StoreStatus::ok) == count && answers.rows == bytes_of_rows(film.rows, keys, version);
  }
  /// Whether all rows of the masters that answer are given. None is wrong, and none of a master that is away.
  static bool has_all_but(RedisCluster& store, int64_t count, int away, Deadline deadline) {
    const std::vector<int64_t> keys = keys_from(0, count);
    const Answers answers = get(store, film, keys, deadline);
    const auto bytes = static_cast<size_t>(film.rows.row_bytes());
    bool has_all = true;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (master_of(keys[i]) == away || answers.statuses[i] != StoreStatus::ok) {
        EXPECT_EQ(answers.statuses[i], StoreStatus::failed) << keys[i];
        has_all &= master_of(keys[i]) == away;
        continue;
      }
      EXPECT_TRUE(std::equal(answers.rows.begin() + i * bytes, answers.rows.begin() + (i + 1) * bytes,
                             bytes_of_row(film.rows, keys[i]).begin()));
    }
    return has_all;
  }

  static const StoredTable film;
  static std::unique_ptr<RedisClusterServers> servers_;
};
const StoredTable RedisClusterTest::film{"film", {DType::f16, 32}};
std::unique_ptr<RedisClusterServers> RedisClusterTest::servers_;

TEST_F(RedisClusterTest, IsAStore) {
  RedisCluster store(options());
  expect_store(store);
}

TEST_F(RedisClusterTest, KeepsRowsSpreadOverAllMasters) {
  const char* wanted = std::getenv("WARPRANK_TEST_ROWS");
  const int64_t count = wanted == nullptr ? 100000 : std::atoll(wanted);
  RedisCluster store(options());
  make(store, count);
  EXPECT_TRUE(has_all(store, count, 0, in(60s)));
  EXPECT_THAT(get(store, film, keys_from(count, 100)).statuses, Each(StoreStatus::absent));
  for (int m = 0; m < RedisClusterServers::masters; ++m) {
    const double share = std::atof(servers_->ask(m, {"DBSIZE"}).c_str()) / static_cast<double>(count);
    EXPECT_NEAR(share, 1.0 / 3, 0.02);
  }
  EXPECT_EQ(store.counters().moved, 0);  // it knew who has what
  EXPECT_EQ(store.counters().connections, 3);
}

TEST_F(RedisClusterTest, GivesNoRowForValuesThatAreNone) {
  RedisCluster store(options());
  make(store, 8);
  const auto set = [&](int64_t key, const std::string& value) {
    const std::string name = RedisCluster::key_name("film", key);
    const int master = master_of(key);
    servers_->ask(master, {"DEL", name});
    return value == "list" ? servers_->ask(master, {"LPUSH", name, "x"}) : servers_->ask(master, {"SET", name, value});
  };
  const std::string value = servers_->ask(master_of(0), {"GET", RedisCluster::key_name("film", 0)});
  EXPECT_EQ(value.size(), 72u);
  set(1, value);  // another key's
  set(2, value.substr(0, 71));
  set(3, "");
  set(4, "list");
  set(5, std::string(72, '\xA7'));
  set(6, value + value);
  const Answers answers = get(store, film, keys_from(0, 8));
  using enum StoreStatus;
  EXPECT_THAT(answers.statuses, testing::ElementsAre(ok, damaged, damaged, damaged, damaged, damaged, damaged, ok));
  EXPECT_EQ(std::vector<unsigned char>(answers.rows.begin() + 64, answers.rows.begin() + 7 * 64),
            std::vector<unsigned char>(6 * 64, 0xEE));
  EXPECT_THAT(put(store, film, keys_from(0, 8), 1).statuses, Each(ok));
  EXPECT_TRUE(has_all(store, 8, 1));

  const std::string description = RedisCluster::description_key("film");
  const int master = RedisClusterServers::master_of(redis::slot_of(description));
  EXPECT_EQ(servers_->ask(master, {"GET", description}), "warprank 1 F16 32");
  for (const char* wrong : {"warprank 2 F16 32", "warprank 1 F16 0", "warprank 1 F16 513", "warprank 1 F16 99999999999",
                            "warprank 1 I64 1", "warprank 1 F16 3x", "warprank 1 F16 ", ""}) {
    servers_->ask(master, {"SET", description, wrong});
    EXPECT_THAT(message_of([&] { store.describe("film", soon()); }),
                HasSubstr("stored table 'film': expected its description, got '" + std::string(wrong) + "'"));
  }
  servers_->ask(master, {"DEL", description});
}

TEST_F(RedisClusterTest, FollowsASlotThatIsMigrated) {
  RedisCluster::Options eager = options();
  eager.refresh_interval = 0ms;
  RedisCluster store(eager);
  RedisCluster::Options patient = options();
  patient.refresh_interval = 1h;
  RedisCluster patient_store(patient);
  make(store, 3000);
  // A slot of master 0 goes to master 2.
  std::vector<int64_t> keys = keys_of(0, 0, 1);
  const int slot = redis::slot_of(RedisCluster::key_name("film", keys[0]));
  for (int64_t key = 0; keys.size() < 4; ++key) {
    const int64_t far = 1000000 + key;
    if (redis::slot_of(RedisCluster::key_name("film", far)) == slot) keys.push_back(far);
  }
  put(store, film, keys);
  get(patient_store, film, keys);  // which asks who has which slots, and no more
  const std::string name = std::to_string(slot);
  ASSERT_EQ(servers_->ask(2, {"CLUSTER", "SETSLOT", name, "IMPORTING", servers_->id(0)}), "OK");
  ASSERT_EQ(servers_->ask(0, {"CLUSTER", "SETSLOT", name, "MIGRATING", servers_->id(2)}), "OK");
  const auto migrate = [&](int64_t key) {
    return servers_->ask(0, {"MIGRATE", "127.0.0.1", std::to_string(servers_->port(2)),
                             RedisCluster::key_name("film", key), "0", "5000"});
  };
  ASSERT_EQ(migrate(keys[0]), "OK");
  ASSERT_EQ(migrate(keys[1]), "OK");

  const auto expect_all = [&](int64_t version, RedisCluster& from) {
    const Answers answers = get(from, film, keys);
    EXPECT_THAT(answers.statuses, Each(StoreStatus::ok));
    EXPECT_EQ(answers.rows, bytes_of_rows(film.rows, keys, version));
  };
  expect_all(0, store);
  EXPECT_EQ(store.counters().asked, 2);
  EXPECT_EQ(store.counters().moved, 0);
  EXPECT_THAT(put(store, film, keys, 1).statuses, Each(StoreStatus::ok));
  expect_all(1, store);
  for (int i = 0; i < 2; ++i) expect_all(1, patient_store);
  EXPECT_EQ(patient_store.counters().moved, 0) << "the slot is where it was";

  ASSERT_EQ(migrate(keys[2]), "OK");
  ASSERT_EQ(migrate(keys[3]), "OK");
  for (const int m : {2, 0, 1})
    ASSERT_EQ(servers_->ask(m, {"CLUSTER", "SETSLOT", name, "NODE", servers_->id(2)}), "OK");
  const int64_t refreshes = store.counters().refreshes;
  expect_all(1, store);
  const int64_t moved = store.counters().moved;
  EXPECT_GT(moved, 0);
  EXPECT_EQ(store.counters().refreshes, refreshes + 1);  // there may be more to learn
  expect_all(1, store);
  EXPECT_EQ(store.counters().moved, moved);
  EXPECT_EQ(store.counters().refreshes, refreshes + 1);
  // Without asking it knows of this slot.
  expect_all(1, patient_store);
  EXPECT_EQ(patient_store.counters().moved, 4);
  expect_all(1, patient_store);
  EXPECT_EQ(patient_store.counters().moved, 4);
  EXPECT_EQ(patient_store.counters().refreshes, 1);
  // And back, for the tests to come: the keys stay behind and are of no use.
  for (const int64_t key : keys) erase(store, film, {key});
  for (const int m : {0, 2, 1})
    ASSERT_EQ(servers_->ask(m, {"CLUSTER", "SETSLOT", name, "NODE", servers_->id(0)}), "OK");
  // Replicas, too, are to know it, or who replaces the master would not take the slot.
  servers_->ask(0, {"CLUSTER", "BUMPEPOCH"});
  const std::string slots = " 0-" + std::to_string(RedisClusterServers::first_slot(1) - 1);
  EXPECT_TRUE(wait_until([&] {
    int know = 0;
    for (int i = 0; i < servers_->count(); ++i)
      know += servers_->ask(i, {"CLUSTER", "NODES"}).find(slots) != std::string::npos;
    return know == servers_->count();
  }));
}

TEST_F(RedisClusterTest, HasAConnectionToEachNodeForEachThread) {
  RedisCluster store(options());
  make(store, 3000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(has_all(store, 3000));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store.counters().connections, 5 * 3);
  EXPECT_EQ(store.counters().broken, 0);
}

TEST_F(RedisClusterTest, GoesOnBesideANodeThatIsSilent) {
  RedisCluster store(options());
  RedisCluster::Options once_bitten = options();
  once_bitten.breaker.first_pause = once_bitten.breaker.longest_pause = 1h;
  RedisCluster shy(once_bitten);
  make(store, 3000);
  EXPECT_TRUE(has_all(shy, 300));
  servers_->pause(1);
  // By the deadline, however short, and with all rows of the others, when those had the time to answer.
  EXPECT_TRUE(wait_until([&] {
    const Deadline begin = std::chrono::steady_clock::now();
    return has_all_but(store, 300, 1, in(100ms)) && seconds_since(begin) < 0.2;
  }));
  const Deadline begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(get(shy, film, keys_of(1, 0, 100), in(50ms)).statuses, Each(StoreStatus::failed));
  EXPECT_LT(seconds_since(begin), 60) << "its own timeouts are longer";
  // Once its breaker is open nobody waits any more.
  const int64_t timeouts = shy.counters().timeouts;
  EXPECT_EQ(timeouts, 3);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(has_all_but(shy, 300, 1, soon()));
    ASSERT_EQ(shy.counters().timeouts, timeouts);
  }
  EXPECT_GE(shy.counters().refused, 50);
  servers_->go_on(1);
  EXPECT_TRUE(wait_until([&] { return has_all(store, 3000); }));
  servers_->expect_whole();
  EXPECT_TRUE(wait_until([&] { return has_all(store, 3000); }));
}

TEST_F(RedisClusterTest, RecoversWhenAllWereAway) {
  RedisCluster store(options());
  make(store, 3000);
  for (int i = 0; i < servers_->count(); ++i) servers_->pause(i);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(get(store, film, keys_from(0, 300), in(100ms)).statuses, Each(StoreStatus::failed));
    EXPECT_THAT(put(store, film, keys_from(0, 300), 0, in(100ms)).statuses, Each(StoreStatus::failed));
  }
  EXPECT_THAT(message_of([&] { store.describe("film", in(100ms)); }), HasSubstr("expected an answer of the cluster"));
  for (int i = 0; i < servers_->count(); ++i) servers_->go_on(i);
  EXPECT_TRUE(wait_until([&] { return has_all(store, 3000); }));
  servers_->expect_whole();
  EXPECT_TRUE(wait_until([&] { return has_all(store, 3000); }));
}

TEST_F(RedisClusterTest, FollowsTheReplicaOfAMasterThatIsKilled) {
  RedisCluster store(options());
  make(store, 3000);
  int killed = 0;
  while (servers_->info(killed, "INFO", "role") != "master") ++killed;
  servers_->expect_replicated();
  servers_->kill(killed);
  // Nobody replaces it yet: rows of the others come all the time, and none is wrong.
  EXPECT_TRUE(wait_until([&] { return has_all_but(store, 3000, killed, in(100ms)); }));
  servers_->expect_replaced(killed);
  EXPECT_TRUE(wait_until([&] { return has_all(store, 3000); }));
  EXPECT_TRUE(wait_until([&] { return put(store, film, keys_from(0, 3000), 2).count(StoreStatus::ok) == 3000; }));
  EXPECT_TRUE(has_all(store, 3000, 2));
  servers_->start(killed);
  servers_->expect_whole();
  EXPECT_TRUE(has_all(store, 3000, 2));
}

TEST(RedisServer, ThatIsNoClusterIsAStore) {
  if (!has_redis_server()) GTEST_SKIP() << "redis-server is not installed";
  RedisServers server("redis_single", 1);
  RedisCluster store({.nodes = server.addresses()});
  expect_store(store);
  // Connections that the server has closed are no failure.
  const StoredTable table{"film", {DType::f32, 2}};
  put(store, table, {1});
  server.ask(0, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  EXPECT_EQ(get(store, table, {1}).statuses[0], StoreStatus::ok);
  server.kill(0);
  EXPECT_EQ(get(store, table, {1}, in(50ms)).statuses[0], StoreStatus::failed);
  server.start(0);
  EXPECT_TRUE(wait_until([&] { return get(store, table, {1}).statuses[0] == StoreStatus::absent; }));
}

TEST(RedisServer, WantsItsPassword) {
  if (!has_redis_server()) GTEST_SKIP() << "redis-server is not installed";
  RedisServers server("redis_password", 1, {"--requirepass", "open sesame"});
  const StoredTable table{"film", {DType::f32, 2}};
  RedisCluster store({.nodes = server.addresses(), .password = "open sesame"});
  store.create(table, soon());
  EXPECT_EQ(put(store, table, {1}).statuses[0], StoreStatus::ok);
  RedisCluster named({.nodes = server.addresses(), .user = "default", .password = "open sesame"});
  EXPECT_EQ(get(named, table, {1}).statuses[0], StoreStatus::ok);
  RedisCluster wrong({.nodes = server.addresses(), .password = "open"});
  EXPECT_THAT(message_of([&] { wrong.describe("film", in(2s)); }), HasSubstr("WRONGPASS"));
}

// As docs/TIERS.md has it.
TEST(RedisCluster, AsksNobodyUntilItIsCalled) {
  RedisCluster::Options options;
  options.nodes = {{"10.0.0.1", 6379}, {"10.0.0.2", 6379}};  // some of them; the others are found
  RedisCluster store(options);
  EXPECT_EQ(store.counters().connections, 0);
}

TEST(RedisCluster, RefusesOptionsThatMakeNoSense) {
  EXPECT_EQ(message_of([] { RedisCluster({}); }), "RedisCluster: nodes: expected at least 1, got 0");
  RedisCluster::Options options;
  options.nodes = {{"localhost", 0}};
  options.connect_timeout = options.command_timeout = options.longest_back_off = 0ms;
  options.most_in_flight = 0;
  options.breaker.failures = 0;
  EXPECT_THAT(message_of([&] { RedisCluster store(options); }), HasSubstr("6 problems"));
}

}}  // namespace warprank
