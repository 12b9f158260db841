// SPDX-License-Identifier: Apache-2.0
//
// Tables whose rows lie in a store, with some of them in memory, on the host engine.
#include "warprank/store/table_in_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/table_update_testing.hpp"
#include "store/tables_in_stores_testing.hpp"
#include "support/memory_store.hpp"
#include "support/message_of.hpp"
#include "support/store_testing.hpp"
#include "support/wait_until.hpp"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/hash_table/row_cache.hpp"
#include "warprank/host.hpp"
#include "warprank/store/stored_value.hpp"

namespace warprank { namespace {

using namespace std::chrono_literals;
using namespace table_update_testing;      // NOLINT: what this test is about
using namespace tables_in_stores_testing;  // NOLINT: and models of such tables
using test_support::MemoryStore;
using test_support::message_of;
using test_support::wait_until;
using testing::HasSubstr;

TEST(TablesInStores, GiveDefaultRowsNowAndFetchForLater) {
  StoredModel setup(tables_of_all_types(), {});
  LookUpsInStore look_ups(setup, first_keys(40));
  int64_t given = 0;
  EXPECT_FALSE(look_ups.has_rows(&given));
  EXPECT_EQ(given, 0);
  EXPECT_TRUE(wait_until([&] { return setup.counters().rows == 8 * 40; }));
  EXPECT_TRUE(look_ups.has_rows());
  const StoreCounters counters = setup.counters();
  EXPECT_EQ(counters.misses, 8 * 40);
  EXPECT_EQ(counters.hits, 8 * 40);
  EXPECT_EQ(counters.fetched, 8 * 40);
  EXPECT_EQ(counters.absent + counters.failed + counters.damaged + counters.dropped + counters.evicted, 0);
  EXPECT_EQ(setup.tables.store_counters().count("direct_BF16"), 1u);
}

TEST(TablesInStores, AreTold) {
  const StoredModel setup({versioned_table("d", DType::f16, 4, false, first_keys(3)),
                           versioned_table("h", DType::f32, 8, true, first_keys(3))},
                          {});
  const auto bytes = [&](size_t t) { return detail::bytes_text(setup.tables.memory().at(t).second); };
  EXPECT_EQ(setup.tables.describe(), "d  4 F16          a store; in memory those that are asked for most, " + bytes(0) +
                                         "\nh  8 F32, hashed  a store; in memory those that are asked for most, " +
                                         bytes(1) + "\n");
}

TEST(TablesInStores, WaitForRowsThatAreFetched) {
  StoredModel setup(tables_of_all_types(), waiting());
  LookUpsInStore look_ups(setup, first_keys(70));  // hashed tables have 40 of them, direct ones 60
  EXPECT_TRUE(look_ups.has_rows());
  EXPECT_EQ(setup.counters().fetched, 4 * 40 + 4 * 60);
  EXPECT_EQ(setup.counters().late, 0);
  // Nobody asks again for what is not there.
  const int64_t asked = setup.store->keys_asked;
  EXPECT_EQ(asked, 8 * 70);
  EXPECT_TRUE(look_ups.has_rows());
  EXPECT_EQ(setup.store->keys_asked, asked);
}

// A key that the store does not have is remembered in a place that others may have, too.
TEST(TablesInStores, AskForAKeyInThePlaceOfOneThatIsAbsent) {
  TableInStore options = waiting();
  options.absent_for = 1h;
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(10))}, options);
  const auto place_of = [](int64_t key) { return hash_table::fmix64(static_cast<uint64_t>(key)) % (1u << 16); };
  int64_t absent = 1000;
  while (place_of(absent) != place_of(3)) ++absent;
  LookUpsInStore none(setup, {absent}), one(setup, {3});
  EXPECT_TRUE(none.has_rows());  // the default row, which is right
  EXPECT_EQ(setup.counters().absent, 1);
  EXPECT_TRUE(one.has_rows());
}

// Whatever memory has: the same scores, with less of it than there are rows.
TEST(TablesInStores, GiveTheSameRowsWithAnyMemory) {
  for (const int64_t bytes : {0, 100000}) {
    TableInStore options = waiting();
    options.memory_bytes = bytes != 0 ? bytes : RowCache::least_bytes({DType::bf16, 16});  // the largest's of them
    options.memory_bytes = std::max(options.memory_bytes, RowCache::least_bytes({DType::f32, 12}));
    std::vector<VersionedTable> tables = tables_of_all_types();
    for (VersionedTable& table : tables)
      for (int64_t key = 0; key < 500; ++key) table.versions[key] = 3;
    StoredModel setup(tables, options);
    for (int turn = 0; turn < 2; ++turn)
      for (int64_t first = 0; first < 500; first += 10) {
        LookUpsInStore look_ups(setup, test_support::keys_from(first, 10));
        ASSERT_TRUE(look_ups.has_rows());
      }
    EXPECT_EQ(setup.counters().evicted > 0, bytes == 0);
  }
}

TEST(TablesInStores, DoNotWaitForLongerThanTheyMay) {
  TableInStore options = waiting();
  options.longest_wait = 10ms;
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(40))}, options);
  LookUpsInStore look_ups(setup, first_keys(40));
  setup.store->holds_replies = true;
  int64_t given = 0;
  EXPECT_FALSE(look_ups.has_rows(&given));
  EXPECT_EQ(given, 0);
  EXPECT_EQ(setup.counters().late, 1);
  setup.store->holds_replies = false;
  EXPECT_TRUE(wait_until([&] { return setup.counters().rows == 40; }));  // they come all the same
  EXPECT_TRUE(look_ups.has_rows());
}

TEST(TablesInStores, GoOnWhileTheStoreIsAway) {
  for (const Misses misses : {Misses::default_row_now_fetch_later, Misses::wait}) {
    TableInStore options{.misses = misses, .longest_wait = 5ms, .store_timeout = 1s};
    StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(40))}, options);
    LookUpsInStore some(setup, first_keys(10)), all(setup, first_keys(40));
    EXPECT_TRUE(wait_until([&] { return some.has_rows(); }));
    setup.store->is_away = true;
    auto shortest = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_TRUE(some.has_rows());  // needs no row of the store
      EXPECT_FALSE(all.has_rows());
      shortest = std::min(shortest, std::chrono::steady_clock::now() - begin);
    }
    EXPECT_LT(shortest, 500ms) << "for the store's timeout nobody waits";
    EXPECT_TRUE(wait_until([&] { return setup.counters().failed > 0; }));
    setup.store->is_away = false;
    EXPECT_TRUE(wait_until([&] { return all.has_rows(); }));
  }
}

TEST(TablesInStores, CountDamagedValuesAndGiveDefaultRows) {
  TableInStore options = waiting();
  options.absent_for = 2s;
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(10))}, options);
  std::vector<unsigned char> value = setup.store->value("t", 3);
  const std::vector<unsigned char> good = value;
  value.pop_back();
  setup.store->put_value("t", 3, value);
  setup.store->put_value("t", 4, setup.store->value("t", 5));
  setup.store->put_value("t", 6, {});
  LookUpsInStore look_ups(setup, first_keys(10));
  int64_t given = 0;
  EXPECT_FALSE(look_ups.has_rows(&given));
  EXPECT_EQ(given, 7);
  EXPECT_EQ(setup.counters().damaged, 3);
  EXPECT_FALSE(look_ups.has_rows());
  EXPECT_EQ(setup.counters().damaged, 3);  // not asked for again so soon
  setup.store->put_value("t", 3, good);
  given = 0;
  EXPECT_TRUE(wait_until([&] {
    given = 0;
    look_ups.has_rows(&given);
    return given == 8;
  }));
}

/// Values that are whole, but of a table as it was, or as another program takes it.
TEST(TablesInStores, NeverGiveRowsOfAnotherWidthOrType) {
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(10))}, waiting());
  const std::vector<StoredRows> others = {{DType::bf16, 8}, {DType::f32, 8}, {DType::f32, 4},
                                          {DType::f16, 7},  {DType::i8, 8},  {DType::f16, 16}};
  for (size_t i = 0; i < others.size(); ++i) {
    const auto key = static_cast<int64_t>(i);
    std::vector<unsigned char> value(static_cast<size_t>(stored_value_bytes(others[i])));
    write_stored_value(others[i], key, test_support::bytes_of_row(others[i], key).data(), value.data());
    setup.store->put_value("t", key, value);
  }
  setup.store->put_value("t", 6, std::vector<unsigned char>(24, 'x'));  // as long as a value is
  setup.store->put_value("t", 7, std::vector<unsigned char>(1 << 20, 'x'));
  LookUpsInStore look_ups(setup, first_keys(10));
  int64_t given = 0;
  EXPECT_FALSE(look_ups.has_rows(&given));
  EXPECT_EQ(given, 2);
  const StoreCounters counters = setup.counters();
  EXPECT_EQ(counters.damaged, 8);
  EXPECT_EQ(counters.fetched, 2);
  EXPECT_EQ(counters.misses, 8);
  EXPECT_EQ(counters.late, 0) << "they are answers";
}

/// Says of a table what it was told.
struct StoreThatSays final : MemoryStore {
  explicit StoreThatSays(StoredRows rows) : rows(rows) {}
  std::optional<StoredRows> describe(const std::string&, Deadline) override { return rows; }
  const StoredRows rows;
};

TEST(TablesInStores, AreUpdatedInMemoryAndInTheStore) {
  StoredModel setup(tables_of_all_types(), waiting());
  const std::vector<int64_t> keys = first_keys(70);
  LookUpsInStore look_ups(setup, keys);
  EXPECT_TRUE(look_ups.has_rows());
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= 40; ++version) {
    TestUpdate update = random_update(setup.expected, version, random);
    for (auto& [name, changes] : update.report) {  // the store does not tell what was there
      changes.updated += changes.inserted;
      changes.inserted = 0;
    }
    ASSERT_EQ(setup.tables.update(update.weights()), update.report);
    ASSERT_TRUE(look_ups.has_rows()) << version;
  }
  // And another process finds all of it.
  const Tables others = Tables::load(setup.plan, default_rows(setup.expected), host(), setup.tables.options());
  const Model model = Model::bind(setup.plan, Weights::from_tensors({}), others);
  Context context = model.context();
  Batch batch = model.batch();
  Request request = batch.add_request();
  for (const VersionedTable& table : setup.expected) request.ids(setup.plan.ids("id_" + table.name), keys);
  const Scores scores = context.run(batch);
  for (const VersionedTable& table : setup.expected)
    for (size_t i = 0; i < keys.size(); ++i) {
      const Span<const float> row =
          scores["y_" + table.name].of(0).subspan(static_cast<int64_t>(i) * table.dim, table.dim);
      ASSERT_EQ(Row(row.begin(), row.end()), table.expected(keys[i])) << table.name << " " << keys[i];
    }
}

TEST(TablesInStores, TellOfUpdatesThatFailed) {
  TableInStore options = waiting();
  options.store_timeout = 1s;
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(10))}, options);
  LookUpsInStore look_ups(setup, first_keys(10));
  EXPECT_TRUE(look_ups.has_rows());
  setup.store->is_away = true;
  TestUpdate update;
  add_changes(setup.expected[0], {{1, 7}, {2, 7}}, {3}, update);
  EXPECT_EQ(setup.tables.update(update.weights()), (UpdateReport{{"t", {0, 0, 0, 0, 0, 3}}}));
  EXPECT_EQ(setup.counters().rows, 7);  // the store's may be any
  setup.store->is_away = false;
  EXPECT_EQ(setup.tables.update(update.weights()), (UpdateReport{{"t", {2, 0, 1, 0, 0, 0}}}));
  EXPECT_TRUE(wait_until([&] { return look_ups.has_rows(); }));
}

// Rows that were read in the store before an update, and come after it.
TEST(TablesInStores, TakeNoRowFromBeforeAnUpdate) {
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(10))}, {});
  LookUpsInStore look_ups(setup, first_keys(10));
  setup.store->holds_replies = true;
  look_ups.run();
  EXPECT_TRUE(wait_until([&] { return setup.store->num_held == 1; }));
  TestUpdate update;
  add_changes(setup.expected[0], {{1, 7}, {2, 7}}, {3}, update);
  setup.tables.update(update.weights());
  setup.store->holds_replies = false;
  EXPECT_TRUE(wait_until([&] { return setup.counters().fetched == 10; }));
  EXPECT_EQ(setup.counters().rows, 7);
  look_ups.has_rows();  // expects each as it is now, or the default row
  EXPECT_TRUE(wait_until([&] { return look_ups.has_rows(); }));
}

// Nor is a key absent that was put while the store was asked for it.
TEST(TablesInStores, AskAgainForWhatWasPutWhileItWasAbsent) {
  TableInStore options;
  options.absent_for = 1h;
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(10))}, options);
  LookUpsInStore look_ups(setup, {20});
  setup.store->holds_replies = true;
  look_ups.run();
  EXPECT_TRUE(wait_until([&] { return setup.store->num_held == 1; }));
  TestUpdate update;
  add_changes(setup.expected[0], {{20, 7}}, {}, update);
  setup.tables.update(update.weights());
  setup.store->holds_replies = false;
  EXPECT_TRUE(wait_until([&] { return setup.counters().absent == 1; }));
  EXPECT_TRUE(wait_until([&] { return look_ups.has_rows(); }));
}

TEST(TablesInStores, FetchAKeyOnceForAllWhoMissIt) {
  for (const Misses misses : {Misses::wait, Misses::default_row_now_fetch_later}) {
    TableInStore options = waiting();
    options.misses = misses;
    StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(50))}, options);
    setup.store->latency_us = 20000;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        LookUpsInStore look_ups(setup, first_keys(50));
        const bool has_rows = look_ups.has_rows();
        EXPECT_TRUE(has_rows || misses != Misses::wait);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(wait_until([&] { return setup.counters().rows == 50; }));
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(setup.store->keys_asked, 50);
  }
}

TEST(TablesInStores, DropWhatTheQueueHasNoRoomFor) {
  TableInStore options{.most_queued = 10};
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(40))}, options);
  LookUpsInStore look_ups(setup, first_keys(40));
  setup.store->holds_replies = true;
  look_ups.run();
  EXPECT_GE(setup.counters().dropped, 20);  // the thread may have taken ten, and ten wait
  setup.store->holds_replies = false;
  EXPECT_TRUE(wait_until([&] { return look_ups.has_rows(); }));
}

TEST(TablesInStores, NeverAskForNumbersThatAreNoRows) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const Axis key = b.axis("key", b.axis("user"));
    return {{"y_t", b.embed(b.ids("id_t", key), b.table("t", {4, 10}))}};
  });
  auto store = std::make_shared<MemoryStore>();
  store->create({"t", {DType::f32, 4}}, test_support::soon());
  LoadOptions options;
  TableInStore in_store = waiting();
  in_store.store = store;
  in_store.memory_bytes = 100000;
  options.stores = {{"t", in_store}};
  const Tables tables = Tables::load(plan, Weights::from_tensors({}), host(), options);
  const Model model = Model::bind(plan, Weights::from_tensors({}), tables);
  Context context = model.context();
  Batch batch = model.batch();
  batch.add_request().ids(plan.ids("id_t"), {-1, -7, 10, INT64_MAX, 3, INT64_MIN, -1});
  context.run(batch);
  EXPECT_EQ(store->keys_asked, 1);
  const StoreCounters counters = tables.store_counters().at("t");
  EXPECT_EQ(counters.misses, 5);  // -1 is padding
  EXPECT_EQ(counters.absent, 1);
  EXPECT_EQ(context.counters()[0].counters.padding, 2);
  EXPECT_EQ(tables.memory()[0].second > 50000, true);
}

TEST(TablesInStores, WorkAsTheDocumentSays) {
  const std::vector<VersionedTable> tables = {versioned_table("user_city", DType::f16, 8, true, {})};
  const Plan plan = plan_of(tables);
  const std::shared_ptr<MemoryStore> store = store_with(tables);

  TableInStore in_store;
  in_store.store = store;
  in_store.memory_bytes = int64_t{64} << 20;
  LoadOptions options;
  options.stores = {{"user*", in_store}};

  const Tables loaded = Tables::load(plan, default_rows(tables), host(), options);
  EXPECT_GT(loaded.memory()[0].second, int64_t{60} << 20);
  EXPECT_THAT(message_of([&] { Tables(loaded).update(Weights::from_tensors({})); }),
              HasSubstr("LoadOptions::updatable"));
}

// Look-ups, updates, fetches and evictions at once: every row is whole, of one version that there was, and at the end
// the last one.
TEST(TablesInStores, NeverGiveATornRow) {
  std::vector<VersionedTable> tables;
  for (const auto& [type, dim] : {std::pair{DType::f32, int64_t{12}}, std::pair{DType::i8, int64_t{13}}}) {
    VersionedTable table = versioned_table(std::string("t_") + name_of(type), type, dim, true, first_keys(300));
    table.is_uniform = true;
    tables.push_back(table);
  }
  TableInStore options;
  options.memory_bytes = RowCache::least_bytes({DType::f32, 12});  // 56 rows
  StoredModel setup(tables, options);
  const std::vector<VersionedTable> at_first = setup.expected;
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> rows_seen = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      while (!is_over) {
        std::vector<int64_t> keys;
        for (int i = 0; i < 100; ++i) keys.push_back(static_cast<int64_t>(random() % 300));
        LookUpsInStore look_ups(setup, keys);
        look_ups.run();
        for (const VersionedTable& table : at_first)
          for (size_t i = 0; i < keys.size(); ++i) {
            const Row row = look_ups.row(table, i);
            ASSERT_EQ(row, Row(row.size(), row[0]));
            rows_seen += row[0] != 0.5f;
          }
      }
    });
  const auto has_seen_enough = [&] { return rows_seen > 1000 && setup.counters().evicted > 1000; };
  for (int64_t version = 1; version <= 60 || (!has_seen_enough() && version < 100000); ++version) {
    TestUpdate update;
    for (VersionedTable& table : setup.expected) {
      std::vector<KeyVersion> written;
      for (int64_t key = version % 3; key < 300; key += 3) written.push_back({key, version});
      add_changes(table, written, {}, update);
    }
    setup.tables.update(update.weights());
    std::this_thread::sleep_for(500us);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(rows_seen, 1000);
  EXPECT_GT(setup.counters().evicted, 1000);
  for (int64_t key = 0; key < 300; key += 7) {  // one by one, or in so little memory one takes the other's place
    LookUpsInStore look_ups(setup, {key});
    EXPECT_TRUE(wait_until([&] { return look_ups.has_rows(); })) << key;
  }
}

TEST(TablesInStores, TellWhatIsWrong) {
  const std::vector<VersionedTable> tables = {versioned_table("t", DType::f16, 8, true, first_keys(3))};
  const Plan plan = plan_of(tables);
  const auto store = store_with(tables);
  const auto load = [&](const TableInStore& in_store, const std::string& pattern = "*", bool with_rows = false) {
    LoadOptions options;
    options.stores = {{pattern, in_store}};
    return message_of(
        [&] { Tables::load(plan, with_rows ? weights_of(tables) : default_rows(tables), host(), options); });
  };
  const TableInStore good{.store = store, .memory_bytes = 100000};
  EXPECT_EQ(load(good), "");
  LoadOptions options;
  options.stores = {{"*", good}};
  const int64_t needed = host_backend::HostTableStore::needs(plan, default_rows(tables), {}, options)[0].second;
  EXPECT_EQ(needed, 100000 + 8 * 4);
  EXPECT_THAT(load(good, "x*"),
              HasSubstr("LoadOptions::stores of 'x*': expected a table's name, or a pattern that fits "
                        "one, got none of that name"));
  EXPECT_THAT(load(good, "*", true), HasSubstr("tensor 't.rows'"));
  EXPECT_EQ(load({}), "LoadOptions::stores of '*': expected a store, got none");
  TableInStore bad = good;
  bad.memory_bytes = RowCache::least_bytes({DType::f16, 8}) - 1;
  const int64_t least = bad.memory_bytes + 1;
  for (const int64_t bytes : {least - 1, int64_t{0}, int64_t{-1}}) {
    bad.memory_bytes = bytes;
    EXPECT_EQ(load(bad), "table 't', memory_bytes: expected at least " + std::to_string(least) + " for its rows, got " +
                             std::to_string(bytes));
  }
  bad = good;
  bad.longest_wait = 0us;
  bad.store_timeout = 0ms;
  bad.most_queued = 0;
  bad.absent_for = -1ms;
  EXPECT_THAT(load(bad), HasSubstr("5 problems"));
  bad = good;
  bad.store = std::make_shared<MemoryStore>();
  EXPECT_EQ(load(bad), "table 't': expected a description in its store, got none");
  bad.store = store_with({versioned_table("t", DType::f16, 9, true, {})});
  EXPECT_EQ(load(bad), "table 't' in its store: dim: expected 8, got 9");
  bad.store = std::make_shared<StoreThatSays>(StoredRows{DType::i64, 8});
  EXPECT_EQ(load(bad), "table 't': stored table 't': type: expected F32, F16, BF16 or I8, got I64");
  bad.store = std::make_shared<StoreThatSays>(StoredRows{DType::f16, 0});
  EXPECT_EQ(load(bad), "table 't' in its store: dim: expected 8, got 0");
  const auto away = store_with(tables);
  away->is_away = true;
  bad.store = away;
  bad.store_timeout = 10ms;
  EXPECT_THAT(load(bad),
              HasSubstr("table 't': expected a description in its store, got table 't': expected an answer of "
                        "the store, got none in time"));
  // What is in a store lies on no device; what nobody says is no placement.
  const auto load_placed = [&](const TablePlacements& placement) {
    LoadOptions placed = options;
    placed.placement = placement;
    placed.devices = {0};
    return message_of([&] { Tables::load(plan, default_rows(tables), host(), placed); });
  };
  for (const Placement where : {Placement::device, Placement::sharded})
    EXPECT_EQ(load_placed({{"t*", {where, 0}}}),
              std::string("LoadOptions::placement of 't*': expected host or cached, as table 't' is in a store "
                          "(LoadOptions::stores), got ") +
                  name_of_enum(where));
  EXPECT_EQ(load_placed({{"t", {Placement::host, 0}}, {"*", {}}}), "");
  EXPECT_EQ(load_placed({{"t", {Placement::cached, 1 << 20}}}), "");
  LoadOptions with_capacity = options;
  with_capacity.updatable = true;
  with_capacity.capacity = {{"t", 100}};
  EXPECT_EQ(message_of([&] { Tables::load(plan, default_rows(tables), host(), with_capacity); }),
            "LoadOptions::capacity of 't': expected a table that is loaded, got one in a store");
}

}}  // namespace warprank
