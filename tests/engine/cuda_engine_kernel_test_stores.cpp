// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_engine_kernel_test.cpp, which has the engine: tables whose rows lie in a store, with some of them in
/// the host's memory and on the device. tables_in_stores_test.cpp has those of the host engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_engine_testing.hpp"
#include "store/tables_in_stores_testing.hpp"
#include "support/message_of.hpp"
#include "support/wait_until.hpp"
#include "warprank/hash_table/row_cache.hpp"
#include "warprank/store/table_in_store.hpp"

namespace warprank { namespace {

using namespace std::chrono_literals;
using namespace cuda_engine_testing;       // NOLINT: for the engine
using namespace tables_in_stores_testing;  // NOLINT: for models
using test_support::message_of;
using test_support::wait_until;

/// What look-ups have missed is fetched, by a thread of the table or, on the executor, by the pass.
void fetch_missed(StoredModel& setup, int64_t rows) {
  EXPECT_TRUE(wait_until([&] {
    setup.tables.pass_over_caches();
    return setup.counters().rows >= rows;
  }));
}
/// Each table has room for so many bytes on the device.
TablePlacements cached(int64_t bytes) { return {{"*", {Placement::cached, bytes}}}; }

TEST_F(CudaEngine, TablesInStoresGiveDefaultRowsNowAndFetchForLater) {
  StoredModel setup(tables_of_all_types(), {}, cuda());
  LookUpsInStore look_ups(setup, first_keys(40));
  int64_t given = 0;
  EXPECT_FALSE(look_ups.has_rows(&given));
  EXPECT_EQ(given, 0);
  fetch_missed(setup, 8 * 40);
  EXPECT_TRUE(look_ups.has_rows());
  setup.tables.pass_over_caches();
  EXPECT_TRUE(look_ups.has_rows());
  setup.tables.pass_over_caches();
  const StoreCounters counters = setup.counters();
  EXPECT_EQ(counters.misses, 8 * 40);
  EXPECT_EQ(counters.hits, 2 * 8 * 40);
  EXPECT_EQ(counters.fetched, 8 * 40);
  EXPECT_EQ(counters.rows, 8 * 40);
  EXPECT_EQ(counters.absent + counters.failed + counters.damaged + counters.dropped + counters.evicted, 0);
  for (const auto& [name, cache] : setup.tables.cache_counters()) EXPECT_GT(cache.hits, 0) << name;
}

TEST_F(CudaEngine, TablesInStoresAreTold) {
  const StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(3))}, {}, cuda(), cached(1 << 14));
  std::map<std::string, int64_t> bytes;
  for (const auto& [part, size] : setup.tables.memory()) bytes[part] = size;
  EXPECT_GT(bytes.at("pinned table t"), 1000000);
  EXPECT_LE(bytes.at("pinned table t"), (1 << 20) + 256);
  EXPECT_EQ(setup.tables.describe(),
            "t  8 F16, hashed  a store; in pinned memory of the host those that are asked for, " +
                detail::bytes_text(bytes.at("pinned table t")) + "; on the device those that are asked for most, " +
                detail::bytes_text(bytes.at("table t")) + "\n");
}

TEST_F(CudaEngine, TablesInStoresWaitForRowsThatAreFetched) {
  StoredModel setup(tables_of_all_types(), waiting(), cuda());
  LookUpsInStore look_ups(setup, first_keys(70));  // hashed tables have 40 of them, direct ones 60
  EXPECT_TRUE(look_ups.has_rows());
  EXPECT_EQ(setup.counters().fetched, 4 * 40 + 4 * 60);
  EXPECT_EQ(setup.counters().misses, 4 * 30 + 4 * 10);
  EXPECT_EQ(setup.counters().late, 0);
  const int64_t asked = setup.store->keys_asked;
  EXPECT_EQ(asked, 8 * 70);
  EXPECT_TRUE(look_ups.has_rows());
  EXPECT_EQ(setup.store->keys_asked, asked) << "nobody asks again for what is not there";
  EXPECT_EQ(setup.counters().misses, 2 * (4 * 30 + 4 * 10));
}

/// A batch that is run again is counted once, as are its ids that no row is found for.
TEST_F(CudaEngine, BatchesThatWaitForRowsAreCountedOnce) {
  StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(40))}, waiting(), cuda());
  Context context = setup.model.context();
  Batch batch = setup.model.batch();
  batch.add_request().ids(setup.plan.ids("id_t"), first_keys(50));
  context.run(batch);
  context.run(batch);
  const LookupCounters counters = context.counters()[0].counters;
  EXPECT_EQ(counters.ids, 100);
  EXPECT_EQ(counters.unknown, 20);
}

/// The context's list has room for all keys of a batch that fits a capacity, however many: it is run twice, not until
/// the last of them have found a place.
TEST_F(CudaEngine, BatchesAreRunTwiceForAnyNumberOfKeys) {
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 12, true, first_keys(400))};
  CompileOptions capacities;
  capacities.capacities = {{1, 300, {}}};
  const Plan plan = compile(plan_of(tables).source(), capacities);
  StoredModel setup(tables, waiting(), cuda());
  const Model model = Model::bind(plan, Weights::from_tensors({}), setup.tables);
  Context context = model.context();
  Batch batch = model.batch();
  batch.add_request().ids(plan.ids("id_t"), first_keys(300));
#if !defined(__CUDACC__)
  simt::clear_calls();
#endif
  context.run(batch);
#if !defined(__CUDACC__)
  EXPECT_EQ(simt::calls().graph_launches, 2);
#endif
  EXPECT_EQ(setup.counters().fetched, 300);
  EXPECT_EQ(setup.counters().late, 0);
}

/// The list of a table's keys has room for those of all its features.
TEST_F(CudaEngine, BatchesAreRunTwiceForTheKeysOfSeveralFeatures) {
  StoredModel setup({versioned_table("t", DType::f32, 12, true, first_keys(400))}, waiting(), cuda());
  CompileOptions capacities;
  capacities.capacities = {{1, 200, {}}};
  const Plan plan = compile(
      [](Builder& b) -> Outputs {
        const auto key = b.axis("key", b.axis("user"));
        const auto t = b.hashed_table("t", {.dim = 12});
        return {{"x", b.embed(b.ids("id_x", key), t)}, {"y", b.embed(b.ids("id_y", key), t)}};
      },
      capacities);
  const Model model = Model::bind(plan, Weights::from_tensors({}), setup.tables);
  Context context = model.context();
  Batch batch = model.batch();
  Request request = batch.add_request();
  request.ids(plan.ids("id_x"), first_keys(200));
  request.ids(plan.ids("id_y"), test_support::keys_from(200, 200));
#if !defined(__CUDACC__)
  simt::clear_calls();
#endif
  context.run(batch);
#if !defined(__CUDACC__)
  EXPECT_EQ(simt::calls().graph_launches, 2);
#endif
  EXPECT_EQ(setup.counters().fetched, 400);
}

/// Parts of a batch above the capacity, of which each runs in the same memory; and a request that is above it by
/// itself, with more keys than the context's list has room for, so that it is run several times.
TEST_F(CudaEngine, BatchesInPartsWaitForTheRowsOfAll) {
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 12, true, first_keys(400))};
  CompileOptions capacities;
  capacities.capacities = {{2, 64, {}}};
  const Plan plan = compile(plan_of(tables).source(), capacities);
  StoredModel setup(tables, waiting(), cuda());
  const Model model = Model::bind(plan, Weights::from_tensors({}), setup.tables);
  Context context = model.context();
  for (int64_t turn = 0; turn < 2; ++turn) {
    Batch batch = model.batch();
    std::vector<std::vector<int64_t>> keys;
    for (int64_t r = 0; r < 7; ++r) {
      keys.push_back(test_support::keys_from(200 * turn + 20 * r, r < 6 ? 20 : 90));
      batch.add_request().ids(plan.ids("id_t"), keys.back());
    }
    const Scores scores = context.run(batch);
    for (size_t r = 0; r < keys.size(); ++r)
      for (size_t i = 0; i < keys[r].size(); ++i) {
        const Span<const float> row =
            scores["y_t"].of(static_cast<int64_t>(r)).subspan(static_cast<int64_t>(i) * 12, 12);
        ASSERT_EQ(Row(row.begin(), row.end()), tables[0].expected(keys[r][i])) << r << " " << keys[r][i];
      }
  }
  EXPECT_EQ(setup.counters().fetched, 400);
}

// Whatever is in the host's memory and on the device: the same rows.
TEST_F(CudaEngine, TablesInStoresGiveTheSameRowsWithAnyMemory) {
  const int64_t least = std::max(RowCache::least_bytes({DType::bf16, 16}), RowCache::least_bytes({DType::f32, 12}));
  for (const int64_t host_bytes : {least, int64_t{100000}})
    for (const int64_t device_bytes : {int64_t{0}, int64_t{1} << 15}) {
      TableInStore options = waiting();
      options.memory_bytes = host_bytes;
      std::vector<VersionedTable> tables = tables_of_all_types();
      for (VersionedTable& table : tables)
        for (int64_t key = 0; key < 300; ++key) table.versions[key] = 3;
      StoredModel setup(tables, options, cuda(), device_bytes == 0 ? TablePlacements{} : cached(device_bytes));
      for (int turn = 0; turn < 2; ++turn)
        for (int64_t first = 0; first < 300; first += 50) {
          LookUpsInStore look_ups(setup, test_support::keys_from(first, 50));
          ASSERT_TRUE(look_ups.has_rows()) << host_bytes << " " << device_bytes;
          setup.tables.pass_over_caches();
        }
      EXPECT_EQ(setup.counters().evicted > 0, host_bytes == least);
    }
}

/// Rows that are asked for all the time stay while others come once.
TEST_F(CudaEngine, TablesInStoresKeepWhatIsAskedForMost) {
  TableInStore options;
  options.memory_bytes = RowCache::least_bytes({DType::f32, 12});  // 48 rows at most
  StoredModel setup({versioned_table("t", DType::f32, 12, true, first_keys(4000))}, options, cuda());
  LookUpsInStore often(setup, first_keys(10));
  for (int i = 0; i < 10; ++i) {
    often.run();
    setup.tables.pass_over_caches();
  }
  int64_t found = 0;
  for (int64_t first = 100; first < 1100; first += 20) {
    LookUpsInStore seldom(setup, test_support::keys_from(first, 20));
    seldom.run();
    setup.tables.pass_over_caches();
    int64_t given = 0;
    often.has_rows(&given);
    found += given;
    setup.tables.pass_over_caches();
  }
  EXPECT_GT(setup.counters().evicted, 500);
  EXPECT_GE(found, 50 * 10 * 9 / 10);
}

TEST_F(CudaEngine, TablesInStoresGoOnWhileTheStoreIsAway) {
  for (const Misses misses : {Misses::default_row_now_fetch_later, Misses::wait}) {
    TableInStore options{.misses = misses, .longest_wait = 5ms, .store_timeout = 1s};
    StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(40))}, options, cuda());
    LookUpsInStore some(setup, first_keys(10)), all(setup, first_keys(40));
    const auto has_rows = [&](LookUpsInStore& look_ups) {
      const bool has = look_ups.has_rows();
      setup.tables.pass_over_caches();
      return has;
    };
    EXPECT_TRUE(wait_until([&] { return has_rows(some); }));
    setup.store->is_away = true;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(has_rows(some));  // needs no row of the store
      EXPECT_FALSE(has_rows(all));
    }
    EXPECT_TRUE(wait_until([&] { return setup.counters().failed > 0; }));
    setup.store->is_away = false;
    EXPECT_TRUE(wait_until([&] { return has_rows(all); }));
  }
}

TEST_F(CudaEngine, TablesInStoresAreUpdatedInAllTiers) {
  StoredModel setup(tables_of_all_types(), waiting(), cuda(), cached(1 << 16));
  LookUpsInStore look_ups(setup, first_keys(70));
  EXPECT_TRUE(look_ups.has_rows());
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= 6; ++version) {
    TestUpdate update = random_update(setup.expected, version, random);
    for (auto& [name, changes] : update.report) {  // the store does not tell what was there
      changes.updated += changes.inserted;
      changes.inserted = 0;
    }
    ASSERT_EQ(setup.tables.update(update.weights()), update.report);
    ASSERT_TRUE(look_ups.has_rows()) << version;
    setup.tables.pass_over_caches();
    ASSERT_TRUE(look_ups.has_rows()) << version;
  }
  for (const auto& [name, cache] : setup.tables.cache_counters()) EXPECT_GT(cache.hits, 0) << name;
}

/// Those that another process has written: told by refresh, or, when that was lost, forgotten.
TEST_F(CudaEngine, TablesInStoresFollowWhatOthersWrite) {
  StoredModel setup(tables_of_all_types(), waiting(), cuda(), cached(1 << 16));
  Tables other = Tables::load(setup.plan, default_rows(setup.expected), host(), setup.tables.options());
  LookUpsInStore look_ups(setup, first_keys(40));
  const auto fill = [&] {
    EXPECT_TRUE(look_ups.has_rows());
    setup.tables.pass_over_caches();
    EXPECT_TRUE(look_ups.has_rows());
  };
  fill();
  TestUpdate first;
  for (VersionedTable& table : setup.expected)
    add_changes(table, {{3, 5}, {4, 5}, {39, 5}}, table.is_hashed ? std::vector<int64_t>{7} : std::vector<int64_t>{},
                first);
  other.update(first.weights());
  setup.tables.refresh(first.weights());
  EXPECT_EQ(setup.counters().rows, 4 * 39 + 4 * 40) << "7 is erased";
  fill();
  TestUpdate second;
  for (VersionedTable& table : setup.expected) add_changes(table, {{2, 6}, {3, 6}}, {}, second);
  other.update(second.weights());
  for (const VersionedTable& table : setup.expected) setup.tables.forget_rows(table.name);
  EXPECT_EQ(setup.counters().rows, 0);
  fill();
}

/// Changes rows while some are fetched.
struct StoreThatIsChangedMeanwhile final : MemoryStore {
  std::function<void()> meanwhile = nullptr;
  void get(const StoredTable& table, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
           Deadline deadline) override {
    MemoryStore::get(table, keys, rows, statuses, deadline);
    if (meanwhile) std::exchange(meanwhile, nullptr)();
  }
};

TEST_F(CudaEngine, TablesInStoresTakeNoRowFromBeforeAnUpdate) {
  VersionedTable table = versioned_table("t", DType::f16, 8, true, first_keys(10));
  const auto store = std::make_shared<StoreThatIsChangedMeanwhile>();
  store->create({"t", rows_of(table)}, test_support::soon());
  LoadOptions options;
  options.updatable = true;
  options.cache_pass_seconds = 0;
  TableInStore in_store;
  in_store.store = store;
  in_store.memory_bytes = 1 << 20;
  options.stores = {{"t", in_store}};
  const Plan plan = plan_of({table});
  Tables tables = Tables::load(plan, default_rows({table}), cuda(), options);
  TestUpdate all;
  table.add_rows(table.all(), false, all.tensors);
  tables.update(all.weights());
  Context context = Model::bind(plan, Weights::from_tensors({}), tables).context();
  Batch batch = plan.batch();
  batch.add_request().ids(plan.ids("id_t"), first_keys(10));
  TestUpdate update;
  add_changes(table, {{1, 7}, {2, 7}}, {3}, update);
  store->meanwhile = [&] { tables.update(update.weights()); };
  context.run(batch);
  EXPECT_TRUE(wait_until([&] {
    tables.pass_over_caches();
    return tables.store_counters().at("t").fetched == 10;
  }));
  EXPECT_EQ(tables.store_counters().at("t").rows, 7) << "those of 1, 2 and 3 may be from before";
}

TEST_F(CudaEngine, TablesInStoresNeverAskForNumbersThatAreNoRows) {
  const Plan plan = compile([](Builder& b) -> Outputs {
    const Axis key = b.axis("key", b.axis("user"));
    return {{"y_t", b.embed(b.ids("id_t", key), b.table("t", {4, 10}))}};
  });
  for (const Misses misses : {Misses::wait, Misses::default_row_now_fetch_later}) {
    auto store = std::make_shared<MemoryStore>();
    store->create({"t", {DType::f32, 4}}, test_support::soon());
    LoadOptions options;
    options.cache_pass_seconds = 0;
    TableInStore in_store = waiting();
    in_store.misses = misses;
    in_store.store = store;
    in_store.memory_bytes = 100000;
    options.stores = {{"t", in_store}};
    Tables tables = Tables::load(plan, Weights::from_tensors({}), cuda(), options);
    const Model model = Model::bind(plan, Weights::from_tensors({}), tables);
    Context context = model.context();
    Batch batch = model.batch();
    batch.add_request().ids(plan.ids("id_t"), {-1, -7, 10, INT64_MAX, 3, INT64_MIN, -1});
    context.run(batch);
    EXPECT_TRUE(wait_until([&] {
      tables.pass_over_caches();
      return store->keys_asked > 0;
    }));
    EXPECT_TRUE(wait_until([&] { return tables.store_counters().at("t").absent == 1; }));
    EXPECT_EQ(store->keys_asked, 1);
    EXPECT_EQ(tables.store_counters().at("t").misses, 5);  // -1 is padding
    EXPECT_EQ(context.counters()[0].counters.padding, 2);
  }
}

/// What the kernels of a batch do when nothing is missed: one fill, one copy of counters and one copy back more.
TEST_F(CudaEngine, TablesInStoresCostNothingWhereAllIsInMemory) {
#if !defined(__CUDACC__)
  for (const Misses misses : {Misses::default_row_now_fetch_later, Misses::wait}) {
    TableInStore options = waiting();
    options.misses = misses;
    StoredModel setup({versioned_table("t", DType::f16, 8, true, first_keys(40))}, options, cuda());
    Context context = setup.model.context();
    Batch batch = setup.model.batch();
    batch.add_request().ids(setup.plan.ids("id_t"), first_keys(40));
    context.run(batch);
    setup.tables.pass_over_caches();
    simt::clear_calls();
    context.submit(batch).wait();
    const simt::Calls calls = simt::calls();
    EXPECT_EQ(calls.graph_launches, 1);
    EXPECT_EQ(calls.launches, 0);
    EXPECT_EQ(calls.copies_to_device.count, 0) << "the graph fetches the batch";
    EXPECT_EQ(calls.copies_to_host.count, misses == Misses::wait ? 1 : 0);
    EXPECT_EQ(calls.allocations.count, 0);
  }
#endif
}

TEST_F(CudaEngine, ContextsTakeOnlyModelsThatWaitForTheSameTables) {
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f16, 8, true, first_keys(40))};
  StoredModel waits(tables, waiting(), cuda()), waits_too(tables, waiting(), cuda()), does_not(tables, {}, cuda());
  LookUpsInStore look_ups(waits, first_keys(40));
  Context context = waits.model.context();
  Batch batch = waits.model.batch();
  batch.add_request().ids(waits.plan.ids("id_t"), first_keys(40));
  context.rebind(waits_too.model);
  const Scores scores = context.run(batch);
  const Span<const float> row = scores["y_t"].of(0).subspan(8 * 39, 8);
  EXPECT_EQ(Row(row.begin(), row.end()), tables[0].expected(39));
  EXPECT_EQ(waits.counters().fetched, 0);
  EXPECT_EQ(waits_too.counters().fetched, 40);
  EXPECT_EQ(
      message_of([&] { context.rebind(does_not.model); }),
      "Context::rebind: table 't': expected F16 of 8 columns, hashed, in a store that is waited for, got F16 of 8 "
      "columns, hashed, in a store");
}

TEST_F(CudaEngine, TablesInStoresTellWhatIsWrong) {
  const auto message = [](DType type, int64_t dim, LoadOptions options) {
    const std::vector<VersionedTable> tables = {versioned_table("t", type, dim, true, first_keys(3))};
    TableInStore in_store;
    in_store.store = store_with(tables);
    in_store.memory_bytes = 1 << 20;
    options.stores = {{"*", in_store}};
    return message_of([&] { Tables::load(plan_of(tables), default_rows(tables), cuda(), options); });
  };
  EXPECT_EQ(message(DType::f32, 128, {}), "");
  EXPECT_EQ(message(DType::f32, 129, {}),
            "table 't': expected at most 128 columns of F32, as it is in a store on a GPU, got 129");
  LoadOptions several;
  several.devices = {0, 1};
  EXPECT_EQ(message(DType::f16, 8, several),
            "table 't': expected one of LoadOptions::devices, as it is in a store, got 2");
  LoadOptions tiny;
  tiny.placement = cached(1);
  EXPECT_EQ(message(DType::f16, 8, tiny),
            "table 't', device_bytes: expected at least 1536, 4 buckets of its rows, got 1");
}

}}  // namespace warprank
