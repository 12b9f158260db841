// SPDX-License-Identifier: Apache-2.0

// Changes in Streams of a real cluster, of three masters and their replicas, and of single servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "store/followed_tables.hpp"
#include "support/message_of.hpp"
#include "support/redis_servers.hpp"
#include "support/store_testing.hpp"
#include "warprank/store/change_follower.hpp"
#include "warprank/store/redis_cluster.hpp"

namespace warprank { namespace {

using namespace test_support;
using namespace std::chrono_literals;
using table_update_testing::first_keys;
using table_update_testing::versioned_table;
using table_update_testing::VersionedTable;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

const StoredTable film{"film", {DType::f16, 8}};

/// Where servers are silent, what waits for them gives up after `timeout`, and is tried again; else nothing takes as
/// long as this one.
RedisCluster::Options options_for(const RedisServers& servers, int replicas = 0,
                                  std::chrono::milliseconds timeout = 2min) {
  RedisCluster::Options options;
  options.nodes = servers.addresses();
  options.command_timeout = timeout;
  options.connect_timeout = timeout;
  options.breaker.longest_pause = 200ms;
  options.changes.replicas = replicas;
  return options;
}
RowChanges one_row(int64_t key, int64_t version = 0) { return {{key}, bytes_of_row(film.rows, key, version), {}}; }

/// Whether what it has to send is refused for this, whenever the answer comes.
bool is_refused(ChangePublisher& publisher, const char* why) {
  return wait_until(
      [&] { return !publisher.publish({}, in(100ms)) && publisher.trouble().find(why) != std::string::npos; });
}

/// Reads all that there is.
struct Reads {
  std::vector<int64_t> keys;  ///< that have new rows, in order
  int64_t garbage = 0, lost = 0, entries = 0;
  std::string position;

  static Reads from(ChangeReader& reader) {
    Reads all;
    all.go_on(reader);
    return all;
  }
  bool go_on(ChangeReader& reader) {
    for (;;) {
      const ReadChanges read = reader.read(soon())[0];
      if (!read.is_answer) return false;
      for (const RowChanges& changes : read.changes) {
        keys.insert(keys.end(), changes.keys.begin(), changes.keys.end());
        for (size_t i = 0; i < changes.keys.size(); ++i) {
          const auto begin = changes.rows.begin() + static_cast<int64_t>(i) * film.rows.row_bytes();
          EXPECT_EQ(std::vector<unsigned char>(begin, begin + film.rows.row_bytes()),
                    bytes_of_row(film.rows, changes.keys[i]));
        }
      }
      entries += static_cast<int64_t>(read.changes.size());
      garbage += read.garbage;
      lost += read.has_lost;
      position = read.position;
      if (!read.has_more) return true;
    }
  }
};

class ChangeStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_redis_server()) GTEST_SKIP() << "redis-server is not installed";
    server_ = std::make_unique<RedisServers>("change_stream", 1);
    store_ = std::make_unique<RedisCluster>(options_for(*server_));
  }
  std::unique_ptr<ChangeReader> reader(const std::string& position = "0-0") {
    return store_->read_changes({{film, position}});
  }
  std::string ask(const std::vector<std::string>& words) const { return server_->ask(0, words); }

  std::unique_ptr<RedisServers> server_;
  std::unique_ptr<RedisCluster> store_;
  const std::string stream_ = "{warprank:changes:film}";
};

TEST_F(ChangeStreamTest, GivesEachChangeOnceAndInOrder) {
  EXPECT_EQ(store_->end_of_changes("film", soon()), "0-0");
  const auto publisher = store_->publish_changes(film), other = store_->publish_changes(film);
  const auto from_start = reader();
  Reads all;
  std::vector<int64_t> expected;
  for (int64_t key = 0; key < 300; ++key) {
    EXPECT_TRUE((key % 3 == 0 ? other : publisher)->publish(one_row(key), soon()));
    expected.push_back(key);
    if (key % 7 == 0) {
      EXPECT_TRUE(all.go_on(*from_start));
    }
  }
  EXPECT_TRUE(all.go_on(*from_start));
  EXPECT_EQ(all.keys, expected);
  EXPECT_EQ(all.lost + all.garbage, 0);
  EXPECT_EQ(all.position, store_->end_of_changes("film", soon()));
  // More than a call brings, by another reader from the start; and none from the end.
  EXPECT_EQ(Reads::from(*reader()).keys, expected);
  const auto from_end = reader(all.position);
  EXPECT_THAT(Reads::from(*from_end).keys, ElementsAre());
  publisher->publish(one_row(7), soon());
  EXPECT_THAT(Reads::from(*from_end).keys, ElementsAre(7));
  // Of other tables nothing, whatever their names.
  const StoredTable odd{"film}:last", film.rows};
  store_->publish_changes(odd)->publish(one_row(8), soon());
  EXPECT_THAT(Reads::from(*from_end).keys, ElementsAre());
  EXPECT_THAT(Reads::from(*store_->read_changes({{odd, "0-0"}})).keys, ElementsAre(8));
}

TEST_F(ChangeStreamTest, CutsLargeChangesIntoEntries) {
  RowChanges all;
  for (int64_t key = 0; key < 30000; ++key) {
    all.keys.push_back(key);
    const auto row = bytes_of_row(film.rows, key);
    all.rows.insert(all.rows.end(), row.begin(), row.end());
  }
  all.erased = {-1, -2};
  const auto publisher = store_->publish_changes(film);
  EXPECT_TRUE(publisher->publish(all, soon()));
  const Reads read = Reads::from(*reader());
  EXPECT_EQ(read.keys, all.keys);
  EXPECT_EQ(read.entries, 4);
  EXPECT_EQ(publisher->unsent(), 0);
}

TEST_F(ChangeStreamTest, SeesThatEntriesWereCutOff) {
  const auto publisher = store_->publish_changes(film);
  for (int64_t key = 0; key < 10; ++key) publisher->publish(one_row(key), soon());
  const auto behind_five = reader();
  Reads five = Reads::from(*behind_five);
  for (int64_t key = 10; key < 20; ++key) publisher->publish(one_row(key), soon());
  EXPECT_EQ(ask({"XTRIM", stream_, "MAXLEN", "10"}), "10");
  EXPECT_TRUE(five.go_on(*behind_five));  // exactly what it had has gone
  EXPECT_EQ(five.lost, 0);
  EXPECT_EQ(five.keys.size(), 20u);
  Reads all = Reads::from(*reader());
  EXPECT_EQ(all.lost, 1);
  EXPECT_EQ(all.keys, keys_from(10, 10));
  // All of them: nothing tells of it but the last one's id.
  for (int64_t key = 20; key < 25; ++key) publisher->publish(one_row(key), soon());
  EXPECT_EQ(ask({"XTRIM", stream_, "MAXLEN", "0"}), "15");
  EXPECT_TRUE(wait_until([&] { return five.go_on(*behind_five) && five.lost > 0; }));
  EXPECT_EQ(five.position, store_->end_of_changes("film", soon()));
  publisher->publish(one_row(25), soon());
  EXPECT_TRUE(five.go_on(*behind_five));
  EXPECT_EQ(five.keys.back(), 25);
  EXPECT_EQ(five.lost, 1);
  // And a server that has lost everything.
  ask({"FLUSHALL"});
  EXPECT_TRUE(wait_until([&] { return five.go_on(*behind_five) && five.lost > 1; }));
  publisher->publish(one_row(26), soon());
  EXPECT_TRUE(five.go_on(*behind_five));
  EXPECT_EQ(five.keys.back(), 26);
  EXPECT_EQ(five.lost, 2);
}

TEST_F(ChangeStreamTest, IsCutOffByItself) {
  RedisCluster::Options options = options_for(*server_);
  options.changes.most_entries = 100;
  RedisCluster store(options);
  const auto publisher = store.publish_changes(film);
  for (int64_t key = 0; key < 1000; ++key) publisher->publish(one_row(key), soon());
  EXPECT_LT(std::atoi(ask({"XLEN", stream_}).c_str()), 300);
}

TEST_F(ChangeStreamTest, SkipsAndCountsGarbage) {
  const auto publisher = store_->publish_changes(film);
  const auto add = [&](const std::vector<std::string>& fields) {
    std::vector<std::string> words = {"XADD", stream_, "*"};
    words.insert(words.end(), fields.begin(), fields.end());
    return ask(words);
  };
  publisher->publish(one_row(1), soon());
  const std::string good = write_row_changes(film.rows, one_row(2));
  add({"x", "y"});
  add({"after", "0-0", "changes", ""});
  add({"after", "0-0", "changes", good.substr(0, good.size() - 1)});
  add({"after", "0-0", "changes", write_row_changes({DType::f32, 4}, {{2}, std::vector<unsigned char>(16), {}})});
  add({"changes", good, "after", "0-0"});
  add({"after", "0-0", "changes", good, "more", "x"});
  publisher->publish(one_row(3), soon());
  for (int i = 0; i < 100; ++i) add({"x", "y"});
  const auto here = reader();
  Reads all = Reads::from(*here);
  EXPECT_THAT(all.keys, ElementsAre(1, 3));
  EXPECT_EQ(all.garbage, 106);
  EXPECT_EQ(all.lost, 0);
  EXPECT_TRUE(all.go_on(*here));
  EXPECT_EQ(all.garbage, 106);  // once
  // An entry that was one, and is not any more: what it said is lost.
  publisher->publish(one_row(4), soon());
  ask({"XDEL", stream_, store_->end_of_changes("film", soon())});
  publisher->publish(one_row(5), soon());
  EXPECT_TRUE(all.go_on(*here));
  EXPECT_THAT(all.keys, ElementsAre(1, 3, 5));
  EXPECT_EQ(all.lost, 1);

  ask({"SET", stream_ + ":last", "garbage"});
  EXPECT_THAT(message_of([&] { store_->end_of_changes("film", soon()); }),
              HasSubstr("expected an entry's id, got 'garbage'"));
  publisher->publish(one_row(6), soon());
  EXPECT_TRUE(all.go_on(*here));
  EXPECT_EQ(all.keys.back(), 6);
  ask({"DEL", stream_});
  ask({"SET", stream_, "no stream"});
  EXPECT_FALSE(all.go_on(*here));
  EXPECT_FALSE(publisher->publish(one_row(7), in(100ms)));
  EXPECT_TRUE(is_refused(*publisher, "WRONGTYPE"));
  EXPECT_EQ(publisher->unsent(), 1);
  ask({"DEL", stream_});
  EXPECT_TRUE(publisher->publish({}, soon()));
  EXPECT_EQ(publisher->unsent(), 0);
  for (const char* bad : {"", "1", "-", "1-", "-1", "1-x", "1-2-3", "99999999999999999999-0"})
    EXPECT_THAT(message_of([&] { reader(bad); }), HasSubstr("expected one as end_of_changes gives it, got '")) << bad;
}

// A server sleeps while changes are published: they are in its buffers, sent again, and there once.
TEST_F(ChangeStreamTest, HasNothingTwiceFromAServerThatSlept) {
  RedisCluster store(options_for(*server_, 0, 200ms));
  const auto publisher = store.publish_changes(film);
  const auto here = store.read_changes({{film, "0-0"}});
  const auto send_all = [&] { return publisher->publish({}, soon()); };
  Reads all;
  publisher->publish(one_row(0), soon());
  EXPECT_TRUE(wait_until(send_all));
  server_->pause(0);
  EXPECT_FALSE(publisher->publish(one_row(1), in(700ms)));
  EXPECT_FALSE(publisher->publish(one_row(2), in(700ms)));
  EXPECT_EQ(publisher->unsent(), 2);
  EXPECT_FALSE(here->read(in(100ms))[0].is_answer);
  server_->go_on(0);
  publisher->publish(one_row(3), soon());
  EXPECT_TRUE(wait_until(send_all));
  EXPECT_TRUE(wait_until([&] { return all.go_on(*here); }));
  EXPECT_THAT(all.keys, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(all.lost, 0);
}

TEST_F(ChangeStreamTest, WantsTheReplicasThatItWasTold) {
  RedisCluster store(options_for(*server_, 1));
  const auto publisher = store.publish_changes(film);
  EXPECT_FALSE(publisher->publish(one_row(1), in(1s)));
  EXPECT_THAT(publisher->trouble(), AnyOf("0 replicas have it", "no answer until the deadline"));
  EXPECT_EQ(publisher->unsent(), 1);
}

// Tables of a process that starts again, of a store in a cluster whose master dies while changes come all the time.
// An entry that only a master which is being replaced has, and that nobody was told is published, may be read before it
// is gone, and comes again behind a loss that the reader tells of.
TEST(ChangeStreamOfACluster, LosesNothingAndGivesNothingTwiceWithoutSayingSo) {
  if (!has_redis_server()) GTEST_SKIP() << "redis-server is not installed";
  RedisClusterServers servers("change_stream_cluster");
  const auto store = std::make_shared<RedisCluster>(options_for(servers, 1, 200ms));
  FollowedModel model({versioned_table("film", DType::f16, 8, true, first_keys(40)),
                       versioned_table("user", DType::i8, 13, false, first_keys(40))});
  ChangeFollower::Positions positions;
  for (const StoredTable& table : model.stored_tables())
    positions[table.name] = store->end_of_changes(table.name, soon());
  const auto follow = [&] {
    return std::make_unique<ChangeFollower>(store, model.stored_tables(), model.tables,
                                            FollowOptions{.positions = positions});
  };
  auto follower = follow();
  FollowCounters sum;
  std::atomic<int64_t> published{0};
  int64_t version = 0;
  const auto stop = [&] {
    positions = follower->positions();
    const FollowCounters counters = follower->counters().at("film");
    follower = nullptr;
    sum.entries += counters.entries;
    sum.lost += counters.lost;
    sum.garbage += counters.garbage;
  };
  const auto publisher = store->publish_changes(model.stored(model.expected[0]));
  const auto user_publisher = store->publish_changes(model.stored(model.expected[1]));
  const auto publish = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ++version, ++published;
      publisher->publish(model.change(model.expected[0], {{version % 40, version}}, {}), in(300ms));
      user_publisher->publish(model.change(model.expected[1], {{version % 40, version}}, {}), in(300ms));
    }
  };
  const auto send_all = [&] {
    EXPECT_TRUE(wait_until([&] { return publisher->publish({}, soon()) && user_publisher->publish({}, soon()); }))
        << publisher->trouble();
  };
  const auto has_all = [&] { return model.has_rows(first_keys(40)); };

  publish(100);
  EXPECT_TRUE(wait_until(has_all));
  for (const bool is_killed : {true, false}) {
    const int slot = redis::slot_of(redis::stream_key("film"));
    int master = 0;
    while (servers.info(master, "INFO", "role") != "master" ||
           servers.ask(master, {"CLUSTER", "COUNTKEYSINSLOT", std::to_string(slot)}) == "0")
      ++master;
    std::atomic<bool> is_over{false};
    const int64_t before = published;
    std::thread writer([&] {
      while (!is_over) publish(1);
    });
    EXPECT_TRUE(wait_until([&] { return published >= before + 10; }));
    if (is_killed)
      servers.kill(master);
    else
      servers.pause(master);
    std::this_thread::sleep_for(500ms);
    stop();  // the process dies with its connections, and comes again
    std::this_thread::sleep_for(200ms);
    follower = follow();
    servers.expect_replaced(master);  // else a killed one, empty now, would be its replica's master again
    std::this_thread::sleep_for(500ms);
    if (is_killed)
      servers.start(master);
    else
      servers.go_on(master);
    EXPECT_TRUE(wait_until([&] { return published >= before + 60; }));
    is_over = true;
    writer.join();
    send_all();
    EXPECT_TRUE(wait_until(has_all));
    servers.expect_whole();
  }
  publish(10);
  send_all();
  EXPECT_TRUE(wait_until(has_all));
  EXPECT_TRUE(wait_until([&] { return sum.entries + follower->counters().at("film").entries >= published; }));
  std::this_thread::sleep_for(50ms);
  stop();
  EXPECT_GE(sum.entries, published.load());
  EXPECT_LE(sum.lost, 2) << "masters that were replaced";
  if (sum.lost == 0) {
    EXPECT_EQ(sum.entries, published.load());
  }
  EXPECT_EQ(sum.garbage, 0);
}

// By who has published before; a new one has its first entry added when the slot has moved.
TEST(ChangeStreamOfACluster, GoesOnWhileItsSlotIsMigrated) {
  if (!has_redis_server()) GTEST_SKIP() << "redis-server is not installed";
  RedisClusterServers servers("change_stream_migrated");
  RedisCluster store(options_for(servers, 1));
  const auto publisher = store.publish_changes(film);
  const auto reader = store.read_changes({{film, "0-0"}});
  Reads all;
  const auto publish = [&](int64_t key) {
    EXPECT_TRUE(publisher->publish(one_row(key), soon())) << publisher->trouble();
    EXPECT_TRUE(all.go_on(*reader));
  };
  publish(0);
  const int slot = redis::slot_of(redis::stream_key("film")), from = RedisClusterServers::master_of(slot);
  const int to = (from + 1) % RedisClusterServers::masters;
  const std::string name = std::to_string(slot);
  ASSERT_EQ(servers.ask(to, {"CLUSTER", "SETSLOT", name, "IMPORTING", servers.id(from)}), "OK");
  ASSERT_EQ(servers.ask(from, {"CLUSTER", "SETSLOT", name, "MIGRATING", servers.id(to)}), "OK");
  publish(1);  // all is where it was
  std::istringstream keys(servers.ask(from, {"CLUSTER", "GETKEYSINSLOT", name, "10"}));
  int num_keys = 0;
  for (std::string key; std::getline(keys, key); ++num_keys)
    ASSERT_EQ(servers.ask(from, {"MIGRATE", "127.0.0.1", std::to_string(servers.port(to)), key, "0", "5000"}), "OK");
  EXPECT_EQ(num_keys, 3);
  const int64_t asked = store.counters().asked;
  publish(2);  // all is there
  publish(3);
  EXPECT_GT(store.counters().asked, asked);
  const auto other = store.publish_changes(film);
  EXPECT_FALSE(other->publish(one_row(4), in(100ms)));
  EXPECT_TRUE(is_refused(*other, "TRYAGAIN"));
  for (const int m : {to, from, 3 - from - to})
    ASSERT_EQ(servers.ask(m, {"CLUSTER", "SETSLOT", name, "NODE", servers.id(to)}), "OK");
  EXPECT_TRUE(other->publish({}, soon())) << other->trouble();
  publish(5);
  EXPECT_THAT(all.keys, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(all.lost + all.garbage, 0);
}

}}  // namespace warprank
