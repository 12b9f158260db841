// SPDX-License-Identifier: Apache-2.0
#include "warprank/store/change_follower.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "store/followed_tables.hpp"
#include "support/memory_store.hpp"
#include "support/message_of.hpp"
#include "support/store_testing.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using namespace std::chrono_literals;
using namespace table_update_testing;  // NOLINT
using test_support::FollowedModel;
using test_support::MemoryStore;
using test_support::message_of;
using test_support::soon;
using test_support::wait_until;
using testing::HasSubstr;

std::vector<VersionedTable> two_tables() {
  return {versioned_table("plain", DType::i8, 13, true, first_keys(40)),
          versioned_table("direct", DType::f16, 8, false, first_keys(40))};
}

TEST(ChangeFollower, AppliesWhatOthersPublish) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model(tables_of_all_types());
  ChangeFollower follower(store, model.stored_tables(), model.tables);
  for (int64_t version = 1; version <= 10; ++version) {
    for (VersionedTable& table : model.expected) {
      const auto publisher = store->publish_changes(model.stored(table));
      EXPECT_TRUE(publisher->publish(model.change(table, {{3, version}, {version, version}}, {}), soon()));
      // Of equal keys the last counts; what was erased and written is written.
      if (table.is_hashed) {
        EXPECT_TRUE(publisher->publish(model.change(table, {}, {5, 6}), soon()));
        EXPECT_TRUE(publisher->publish(model.change(table, {{5, version}}, {}), soon()));
      }
    }
    EXPECT_TRUE(wait_until([&] { return model.has_rows(first_keys(70)); })) << version;
  }
  const FollowCounters counters = follower.counters().at("hashed_F32");
  EXPECT_EQ(counters.entries, 30);
  EXPECT_EQ(counters.garbage + counters.refused + counters.lost + counters.unanswered + counters.failed, 0);
  EXPECT_EQ(follower.positions().at("hashed_F32"), "30");
  EXPECT_EQ(follower.positions().at("direct_I8"), "10");
}

TEST(ChangeFollower, RefreshesRowsInMemoryOfTablesInStores) {
  FollowedModel model({versioned_table("film", DType::f16, 8, true, first_keys(40))}, true);
  MemoryStore& store = *model.store;
  VersionedTable& film = model.expected[0];
  ChangeFollower follower(model.store, model.stored_tables(), model.tables);
  EXPECT_TRUE(wait_until([&] { return model.has_rows(first_keys(40)); }));
  const auto publisher = store.publish_changes(model.stored(film));
  const int64_t asked = store.keys_asked;
  change_and_publish(store, *publisher, model.stored(film), model.change(film, {{1, 7}, {2, 7}}, {3}), soon());
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("film").entries == 1; }));
  EXPECT_TRUE(model.has_rows({1, 2, 4}));
  EXPECT_EQ(store.keys_asked, asked);  // they came with the changes, and nothing was written to the store
  EXPECT_TRUE(model.has_rows({3}));
  // Changes that nobody can read any more: all rows are fetched anew.
  store.is_away = true;
  std::this_thread::sleep_for(50ms);
  store.is_away = false;
  const RowChanges unknown = model.change(film, {{8, 9}}, {});
  std::vector<StoreStatus> statuses(1);
  store.put(model.stored(film), unknown.keys, unknown.rows.data(), statuses.data(), soon());
  EXPECT_FALSE(model.has_rows({8}));
  store.add_entry("film", "x");
  store.cut_off_changes("film");
  EXPECT_TRUE(wait_until([&] {
    // The follower may have read it before it was cut off; then it is garbage.
    store.add_entry("film", "x");
    store.cut_off_changes("film");
    return follower.counters().at("film").lost > 0;
  }));
  EXPECT_TRUE(wait_until([&] { return model.has_rows(first_keys(40)); }));
}

// What was read in the store before the rows are forgotten, and comes after it.
TEST(ChangeFollower, TakesNoRowFromBeforeItForgotThem) {
  FollowedModel model({versioned_table("film", DType::f16, 8, true, first_keys(10))}, true);
  VersionedTable& film = model.expected[0];
  model.store->holds_replies = true;
  model.look_up(first_keys(10));
  EXPECT_TRUE(wait_until([&] { return model.store->num_held == 1; }));
  const RowChanges unknown = model.change(film, {{8, 9}}, {});
  std::vector<StoreStatus> statuses(1);
  model.store->put(model.stored(film), unknown.keys, unknown.rows.data(), statuses.data(), soon());
  model.tables.forget_rows("film");
  EXPECT_EQ(model.store->gets, 1);
  model.store->holds_replies = false;
  EXPECT_TRUE(wait_until([&] { return model.tables.store_counters().at("film").fetched == 10; }));
  EXPECT_EQ(model.tables.store_counters().at("film").rows, 0);
  EXPECT_TRUE(wait_until([&] { return model.has_rows(first_keys(10)); }));
  model.tables.forget_rows("no such table");
}

// Whatever is read at once leaves what it would leave one after the other.
TEST(ChangeFollower, AppliesTheLastOfEqualKeysThatAreReadTogether) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model({two_tables()[0]});
  VersionedTable& plain = model.expected[0];
  const std::string begin = store->end_of_changes("plain", soon());
  const auto publisher = store->publish_changes(model.stored(plain));
  publisher->publish(model.change(plain, {{1, 5}, {2, 5}}, {}), soon());
  publisher->publish(model.change(plain, {}, {2, 3}), soon());
  publisher->publish(model.change(plain, {{1, 6}, {3, 6}}, {4}), soon());
  ChangeFollower follower(store, model.stored_tables(), model.tables, {.positions = {{"plain", begin}}});
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("plain").entries == 3; }));
  EXPECT_TRUE(model.has_rows(first_keys(40)));
  const TableChanges changes = follower.counters().at("plain").changes;
  EXPECT_EQ(changes.updated, 2);  // 1 and 3, so they were read together
  EXPECT_EQ(changes.erased, 2);   // 2 and 4
}

TEST(ChangeFollower, GoesOnWhereItsPositionsSay) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model(two_tables());
  const auto publisher = store->publish_changes(model.stored(model.expected[0]));
  ChangeFollower::Positions positions = {{"plain", store->end_of_changes("plain", soon())}};
  for (int64_t version = 1; version <= 5; ++version) {
    publisher->publish(model.change(model.expected[0], {{version, version}}, {}), soon());
    ChangeFollower follower(store, model.stored_tables(), model.tables, {.positions = positions});
    EXPECT_TRUE(wait_until([&] { return follower.counters().at("plain").entries > 0; }));
    EXPECT_EQ(follower.counters().at("plain").entries, 1);  // nothing twice
    positions = follower.positions();
    EXPECT_TRUE(model.has_rows(first_keys(40)));
  }
}

TEST(ChangeFollower, SkipsAndCountsWhatIsNoChange) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model(two_tables());
  std::set<std::string> lost;
  ChangeFollower follower(store, model.stored_tables(), model.tables,
                          {.on_lost = [&](const std::string& table) { lost.insert(table); }});
  const StoredTable direct = model.stored(model.expected[1]);
  const auto publisher = store->publish_changes(direct);
  store->add_entry("direct", "garbage");
  store->add_entry("direct", "");
  publisher->publish(model.change(model.expected[1], {{1, 5}}, {}), soon());
  publisher->publish({{40}, std::vector<unsigned char>(16), {}}, soon());  // no row of it
  publisher->publish({{-1}, std::vector<unsigned char>(16), {}}, soon());
  publisher->publish({{}, {}, {3}}, soon());  // a direct table erases none
  publisher->publish(model.change(model.expected[1], {{2, 5}}, {}), soon());
  const auto other = store->publish_changes({"direct", {DType::f16, 9}});
  other->publish({{1}, std::vector<unsigned char>(18), {}}, soon());
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("direct").garbage == 3; }));
  const FollowCounters counters = follower.counters().at("direct");
  EXPECT_EQ(counters.refused, 3);
  EXPECT_EQ(counters.entries, 2);
  EXPECT_EQ(counters.changes.updated, 2);
  EXPECT_TRUE(model.has_rows(first_keys(40)));
  store->add_entry("plain", "x");
  store->cut_off_changes("plain");
  store->is_away = true;
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("plain").unanswered > 0; }));
  store->is_away = false;
  EXPECT_TRUE(
      wait_until([&] { return follower.counters().at("plain").garbage + follower.counters().at("plain").lost > 0; }));
}

/// Tables that fail for some time.
struct FailingTables {
  UpdateReport refresh(const Weights& delta) {
    if (fails && delta.find("plain.keys")->shape[0] > 0) throw std::runtime_error("the device is away");
    return tables.refresh(delta);
  }
  void forget_rows(const std::string& table) { tables.forget_rows(table); }

  Tables& tables;
  std::atomic<bool> fails{true};
};

TEST(ChangeFollower, TriesAgainWhatTheTablesDidNotTake) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model({two_tables()[0]});
  FailingTables tables{model.tables};
  ChangeFollower follower(store, model.stored_tables(), tables);
  const auto publisher = store->publish_changes(model.stored(model.expected[0]));
  publisher->publish(model.change(model.expected[0], {{1, 5}}, {}), soon());
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("plain").failed > 1; }));
  EXPECT_EQ(follower.positions().at("plain"), "0");
  publisher->publish(model.change(model.expected[0], {{1, 6}}, {}), soon());
  tables.fails = false;
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("plain").entries == 2; }));
  EXPECT_TRUE(model.has_rows(first_keys(40)));
}

TEST(ChangeFollower, FollowsForAServedModel) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model(two_tables());
  ServedModel served(model.model, model.tables);
  ChangeFollower follower(store, model.stored_tables(), served);
  const auto publisher = store->publish_changes(model.stored(model.expected[0]));
  publisher->publish(model.change(model.expected[0], {{1, 5}}, {2}), soon());
  EXPECT_TRUE(wait_until([&] { return model.has_rows(first_keys(40)); }));
}

// As docs/TIERS.md has it.
TEST(ChangeFollower, WorksAsTheDocumentSays) {
  FollowedModel model({versioned_table("film", DType::f16, 32, true, first_keys(40))}, true);
  const std::shared_ptr<ParameterStore> store = model.store;
  Tables& tables = model.tables;
  const RowChanges changes = model.change(model.expected[0], {{1, 5}}, {2});
  const Deadline deadline = soon();

  const StoredTable film{"film", {DType::f16, 32}};
  ChangeFollower follower(store, {film}, tables);  // or a ServedModel

  const std::unique_ptr<ChangePublisher> publisher = store->publish_changes(film);
  const RowChanges failed = change_and_publish(*store, *publisher, film, changes, deadline);  // both
  publisher->publish(changes, deadline);                                                      // the second alone

  EXPECT_TRUE(failed.empty());
  EXPECT_TRUE(wait_until([&] { return follower.counters().at("film").entries == 2; }));
  EXPECT_TRUE(wait_until([&] { return model.has_rows(first_keys(40)); }));
}

TEST(ChangeFollower, RefusesWhatDoesNotFit) {
  const auto store = std::make_shared<MemoryStore>();
  FollowedModel model(two_tables());
  const auto follow = [&](std::vector<StoredTable> tables, FollowOptions options = {}) {
    return message_of([&] { ChangeFollower(store, std::move(tables), model.tables, std::move(options)); });
  };
  EXPECT_EQ(follow({{"plain", {DType::i8, 13}}}), "");
  EXPECT_THAT(follow({{"plain", {DType::i8, 14}}}),
              HasSubstr("tensor 'plain.rows': expected I8 [0, 13], got I8 [0, 14]"));
  EXPECT_THAT(follow({{"none", {DType::i8, 14}}}), HasSubstr("a tensor that no table reads"));
  EXPECT_THAT(follow({{"plain", {DType::i8, 13}}}, {.positions = {{"direct", "0"}}}),
              HasSubstr("position of 'direct': expected a table that is followed"));
  EXPECT_THAT(message_of([&] { ChangeFollower(nullptr, {}, model.tables); }), HasSubstr("a store"));
  store->is_away = true;
  EXPECT_THAT(follow({{"plain", {DType::i8, 13}}}, {.store_timeout = 10ms}), HasSubstr("an answer of the store"));
  store->is_away = false;
  Tables fixed = Tables::load(model.plan, weights_of(model.expected), host());
  EXPECT_THAT(message_of([&] {
                ChangeFollower(store, {{"plain", {DType::i8, 13}}}, fixed);
              }),
              HasSubstr("LoadOptions::updatable"));
}

}}  // namespace warprank
