// SPDX-License-Identifier: Apache-2.0

#include "warprank/engine/cuda/table_cache.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda_table_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "support/message_of.hpp"

namespace warprank { namespace {

using namespace cuda_table_testing;    // NOLINT: for look-ups
using namespace table_update_testing;  // NOLINT: tables whose rows have versions
using kernel_testing::build;

constexpr int64_t num_rows = 400;

std::vector<VersionedTable> direct_and_hashed() {
  std::vector<VersionedTable> tables;
  for (const auto& [type, dim] : {std::pair(DType::f32, 16), std::pair(DType::f16, 5), std::pair(DType::i8, 13)}) {
    tables.push_back(versioned_table(std::string("direct_") + name_of(type), type, dim, false, first_keys(num_rows)));
    tables.push_back(versioned_table(std::string("hashed_") + name_of(type), type, dim, true, first_keys(num_rows)));
  }
  return tables;
}

/// Keys of which the first are frequent, and some that tables do not have.
std::vector<int64_t> skewed_keys(int64_t count, std::mt19937_64& random) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto key = static_cast<int64_t>(std::exp(uniform * std::log(static_cast<double>(num_rows + 1)))) - 1;
    keys.push_back(random() % 16 == 0 ? num_rows + key : key);
  }
  return keys;
}

/// All rows or sums of all tables, one after the other.
std::vector<Row> all_rows(const LookUps& look_ups, size_t num_tables) {
  std::vector<Row> all;
  for (size_t t = 0; t < num_tables; ++t) {
    const std::vector<Row> rows = look_ups.rows(t);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(CudaTableCache, GivesTheSameBitsWithAnyBudget) {
  const std::vector<VersionedTable> tables = direct_and_hashed();
  const Plan plan = plan_of(tables);
  for (const bool is_updatable : {false, true}) {
    std::vector<std::vector<Row>> expected;
    for (const int64_t buckets : {int64_t{4}, int64_t{12}, int64_t{1000}}) {
      SCOPED_TRACE(std::to_string(buckets) + " buckets");
      reset();
      LoadOptions options;
      options.updatable = is_updatable;
      CudaTableStore store(plan, weights_of(tables), {}, 0, cached(tables, buckets, options));
      std::mt19937_64 random(1);
      const int batches = build == Build::plain ? 3 : 2;
      for (int batch = 0; batch < batches; ++batch) {
        const std::vector<int64_t> keys = skewed_keys(130, random);
        for (const int64_t bag : {1, 7, 100}) {
          const LookUps look_ups(store, tables, keys, bag);
          look_ups.launch();
          std::vector<Row> rows = all_rows(look_ups, tables.size());
          const size_t at = static_cast<size_t>(batch) * 3 + (bag == 1 ? 0 : bag == 7 ? 1 : 2);
          if (at == expected.size()) expected.push_back(rows);
          ASSERT_TRUE(rows == expected[at]) << "batch " << batch << ", bags of " << bag;
        }
        store.pass_over_caches();
      }
      const LookUps look_ups(store, tables, first_keys(num_rows + 5));
      look_ups.launch();
      for (size_t t = 0; t < tables.size(); ++t)
        for (int64_t key = 0; key < num_rows + 5; ++key)
          ASSERT_EQ(look_ups.rows(t)[static_cast<size_t>(key)], tables[t].expected(key)) << tables[t].name << key;
    }
  }
}

TEST(CudaTableCache, AdmitsWhatIsMissedAndCountsIt) {
  reset();
  const std::vector<VersionedTable> tables = direct_and_hashed();
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 1000));
  const LookUps look_ups(store, tables, {0, 1, 2, 3, 2, num_rows, -1, 300});
  for (const auto& [name, counters] : store.cache_counters()) EXPECT_EQ(counters, CacheCounters{}) << name;
  look_ups.run();
  store.pass_over_caches();
  for (const auto& [name, counters] : store.cache_counters())
    EXPECT_EQ(counters, (CacheCounters{0, 6, 0, 5, 0})) << name << ": unknown keys are no misses";
  look_ups.run();
  look_ups.run();
  store.pass_over_caches();
  for (const auto& [name, counters] : store.cache_counters())
    EXPECT_EQ(counters, (CacheCounters{12, 6, 0, 5, 0})) << name;
  EXPECT_EQ(store.cache_counters().size(), tables.size());
}

TEST(CudaTableCache, ReadsOverTheBusOnlyWhatIsMissed) {
  if constexpr (!on_gpu) {
    Config config;
    config.count_sectors = true;
    reset(config);
    const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 16, false, first_keys(num_rows))};
    CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 1000));
    const LookUps look_ups(store, tables, first_keys(100));
    const auto sectors = [&] {
      clear_counters();
      look_ups.run();
      return counters().host_load_sectors;
    };
    EXPECT_EQ(sectors(), 100 * 2) << "rows of 64 bytes";
    EXPECT_EQ(sectors(), 100 * 2);
    store.pass_over_caches();
    EXPECT_EQ(sectors(), 0);
    EXPECT_EQ(counters().host_store_sectors, 0);
  }
}

TEST(CudaTableCache, KeepsWhatIsFrequentThroughScans) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("d", DType::f16, 8, false, first_keys(5000)),
                                           versioned_table("h", DType::f16, 8, true, first_keys(5000))};
  // Room for 52 keys at most.
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 4));
  const LookUps frequent(store, tables, first_keys(20));
  const auto hits = [&](const char* table) { return store.cache_counters().at(table).hits; };
  for (int i = 0; i < 4; ++i) {
    frequent.run();
    store.pass_over_caches();
  }
  for (int64_t scan = 0; scan < (build == Build::plain ? 20 : 4); ++scan) {
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 100; ++key) keys.push_back(100 + 100 * scan + key);
    LookUps(store, tables, keys).run();
    frequent.run();
    store.pass_over_caches();
  }
  for (const char* table : {"d", "h"}) {
    const int64_t before = hits(table);
    frequent.run();
    store.pass_over_caches();
    EXPECT_EQ(hits(table) - before, 20) << table;
  }
}

/// What is found counts as much as what is missed.
TEST(CudaTableCache, KeepsWhatIsFoundBesideWhatIsMissedAsOften) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("d", DType::f16, 8, false, first_keys(500)),
                                           versioned_table("h", DType::f16, 8, true, first_keys(500))};
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 4));
  const LookUps first(store, tables, first_keys(20));
  std::vector<int64_t> others;
  for (int64_t key = 100; key < 200; ++key) others.push_back(key);
  const LookUps later(store, tables, others);
  first.run();
  store.pass_over_caches();
  for (int i = 0; i < 4; ++i) {
    // Of keys of a bucket that are found at once one or more are marked.
    for (int run = 0; run < row_cache::num_positions; ++run) {
      first.run();
      later.run();
    }
    store.pass_over_caches();
  }
  for (const auto& [name, counters] : store.cache_counters()) {
    EXPECT_EQ(counters.evicted, 0) << name << ": each was asked for as often";
    EXPECT_GE(counters.hits, 4 * row_cache::num_positions * 20) << name;
  }
}

/// Though it was found less often than what is missed was asked for, where others are more frequent and were not found.
TEST(CudaTableCache, KeepsWhatWasFoundLately) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f16, 8, false, first_keys(5000))};
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 4));
  cuda_backend::TableCache& cache = *store.find("t")->cache;
  const auto ask = [&](const std::vector<int64_t>& keys) {
    const int64_t before = store.cache_counters().at("t").hits;
    LookUps(store, tables, keys).run();
    store.pass_over_caches();
    return store.cache_counters().at("t").hits - before;
  };
  const auto bucket_of = [&](int64_t key) {
    const hash_table::Placement& placement = cache.rows().placement;
    return placement.first_bucket(placement.hash(static_cast<uint64_t>(key)));
  };
  const auto count = [&](int64_t key, int times) {
    for (int i = 0; i < times; ++i) cache.admission().count(static_cast<uint64_t>(key));
  };
  constexpr int64_t many = 1000;
  for (int i = 0; i < 3; ++i) ask(first_keys(many));
  int64_t found = 0;
  while (ask({found}) == 0) ASSERT_LT(++found, many);
  int64_t missed = many;
  while (bucket_of(missed) != bucket_of(found)) ASSERT_LT(++missed, 5000);
  for (int64_t key = 0; key < many; ++key) count(key, key == found ? 0 : 40);
  count(missed, 20);
  EXPECT_EQ(ask({found, missed}), 1);
  EXPECT_EQ(ask({found}), 1);
}

TEST(CudaTableCache, FollowsWhatIsAskedFor) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 4, true, first_keys(5000))};
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 4));
  const auto ask = [&](int64_t first) {
    std::vector<int64_t> keys = first_keys(40);
    for (int64_t& key : keys) key += first;
    const LookUps look_ups(store, tables, keys);
    int64_t hits = 0;
    for (int i = 0; i < 30; ++i) {
      const int64_t before = store.cache_counters().at("t").hits;
      look_ups.run();
      store.pass_over_caches();
      hits = store.cache_counters().at("t").hits - before;
    }
    return hits;
  };
  EXPECT_GE(ask(0), 30);
  EXPECT_GE(ask(1000), 30) << "what was frequent is not any more";
  const CacheCounters counters = store.cache_counters().at("t");
  EXPECT_GT(counters.evicted, 20);
  EXPECT_LE(counters.admitted - counters.evicted, 4 * 13);
}

TEST(CudaTableCache, DropsMarksThatItHasNoRoomFor) {
  reset();
  constexpr int64_t capacity = cuda_backend::mark_capacity, more = 100;
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f16, 2, false, first_keys(capacity + more))};
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 10000));
  const LookUps look_ups(store, tables, first_keys(capacity + more));
  look_ups.run();
  store.pass_over_caches();
  const CacheCounters counters = store.cache_counters().at("t");
  EXPECT_EQ(counters.misses, capacity + more);
  EXPECT_EQ(counters.dropped, more);
  EXPECT_LE(counters.admitted, capacity);
  EXPECT_GT(counters.admitted, capacity * 9 / 10);
  for (int i = 0; i < 3; ++i) {
    look_ups.run();
    store.pass_over_caches();
  }
  EXPECT_EQ(store.cache_counters().at("t").dropped, more) << "there are fewer misses now";
  EXPECT_GT(store.cache_counters().at("t").admitted, capacity + more - 50) << "nearly all have room";
}

TEST(CudaTableCache, TakesNoMoreThanTheTableNeeds) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 16, false, first_keys(90)),
                                           versioned_table("u", DType::f32, 16, true, first_keys(90))};
  LoadOptions options;
  options.placement = {{"*", {Placement::cached, int64_t{1} << 40}}};
  const CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, options);
  for (const auto& [what, bytes] : store.memory())
    EXPECT_TRUE(what.rfind("table", 0) != 0 || bytes < 40 * 1152 + (64 << 10)) << what;
}

/// planned_cache.txt has what tools/plan_cache.py predicts: buckets, ids, those of a batch, batches between
/// passes, and hits.
TEST(CudaTableCache, FindsAsManyRowsAsWerePlanned) {
  if constexpr (build == Build::plain) {
    constexpr int64_t table_rows = 5000;
    const std::vector<VersionedTable> tables{versioned_table("t", DType::f16, 8, false, first_keys(table_rows))};
    std::ifstream plan(WARPRANK_TEST_DATA "/engine/planned_cache.txt");
    int num_plans = 0;
    for (int64_t buckets, num_ids, batch, per_pass, hits; plan >> buckets >> num_ids >> batch >> per_pass >> hits;
         ++num_plans) {
      SCOPED_TRACE(std::to_string(buckets) + " buckets, batches of " + std::to_string(batch) + ", " +
                   std::to_string(per_pass) + " a pass");
      reset();
      CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, buckets));
      uint64_t state = 1;
      for (int64_t b = 0; b < num_ids / batch; ++b) {
        std::vector<int64_t> ids(static_cast<size_t>(batch), table_rows);
        for (int64_t& id : ids)
          for (int i = 0; i < 3; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            id = id * static_cast<int64_t>(state >> 33) >> 31;
          }
        LookUps(store, tables, ids).run();
        if ((b + 1) % per_pass == 0) store.pass_over_caches();
      }
      const CacheCounters counters = store.cache_counters().at("t");
      EXPECT_EQ(counters.hits + counters.misses, num_ids);
      EXPECT_NEAR(static_cast<double>(counters.hits), static_cast<double>(hits), 0.01 * static_cast<double>(num_ids));
    }
    EXPECT_EQ(num_plans, 5);
  }
}

/// In the host's memory, with a cache and without one.
TEST(CudaTableCache, ReachesRowsBeyondTwoToThe31) {
  if (build != Build::plain) GTEST_SKIP() << "reserved memory, of the executor's plain build";
  reset();
  constexpr int64_t table_rows = (int64_t{1} << 32) - 3, dim = 16, row_bytes = 2 * dim;
  const device::MappedMemory rows(table_rows * row_bytes, "rows");
  const auto* const first_row = static_cast<const unsigned char*>(rows.data());
  const std::vector<int64_t> ids{0, (int64_t{1} << 31) - 1, int64_t{1} << 31, (int64_t{1} << 31) + 7, table_rows - 1};
  std::vector<float> expected;
  for (const int64_t id : ids) {
    const std::vector<float16> row(dim, to_float16(static_cast<float>(id % 100 + 1)));
    rows.write(id * row_bytes, row.data(), row_bytes);
    expected.insert(expected.end(), dim, static_cast<float>(id % 100 + 1));
  }
  const cuda_backend::CacheLayout layout(DType::f16, dim, table_rows, least_cache_bytes(DType::f16, dim));
  const device::DeviceMemory memory(layout.bytes, "a cache");
  cuda_backend::TableUpdates updates(cuda_backend::ChunkLayout(row_bytes).bytes,
                                     std::make_shared<cuda_backend::BatchOrder>());
  const cuda_backend::PassMemory pass_memory;
  cuda_backend::TableCache cache(DType::f16, dim, layout, static_cast<unsigned char*>(memory.data()), nullptr);

  const DeviceArray<int64_t> device_ids(ids);
  const auto count = static_cast<int64_t>(ids.size());
  DeviceArray<float> with_cache(count * dim), without(count * dim);
  std::vector<BagFeature> features(2);
  for (BagFeature& feature : features) {
    feature.table = {DType::f16, first_row, table_rows, dim, row_bytes};
    IdArray array;
    array.ids = device_ids.data();
    feature.ids = array;
    feature.num_bags.capacity = count;
  }
  features[0].cache = cache.on_device();
  features[0].y = Matrix<float>(with_cache.data(), count, dim);
  features[1].y = Matrix<float>(without.data(), count, dim);
  const EmbeddingBag op(features);
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  DeviceArray<unsigned char> workspace(op.workspace_bytes(), 0);
  for (const int64_t hits : {0, 5, 10}) {
    op.launch({descriptors.data(), workspace.data()});
    EXPECT_EQ(with_cache.read(), expected) << hits;
    EXPECT_EQ(without.read(), expected) << hits;
    cache.pass(updates, pass_memory,
               [&](int64_t key) { return key < 0 || key >= table_rows ? nullptr : first_row + key * row_bytes; });
    EXPECT_EQ(cache.counters().hits, hits);
  }
}

TEST(CudaTableCache, IsTold) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("cached", DType::f32, 16, true, first_keys(90)),
                                           versioned_table("far", DType::f16, 8, false, first_keys(90)),
                                           versioned_table("near", DType::i8, 8, false, first_keys(90))};
  LoadOptions options;
  options.placement = {{"cached", {Placement::cached, 1 << 20}}, {"far", {Placement::host, 0}}};
  const CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, options);
  const auto bytes = [&](const std::string& what) {
    for (const auto& [name, bytes] : store.memory())
      if (name == what) return detail::bytes_text(bytes);
    return std::string("none");
  };
  EXPECT_EQ(describe_tables(store.placed()),
            "cached  90 x 16 F32, hashed  pinned memory of the host, " + bytes("pinned table cached") +
                "; on the device those that are asked for most, " + bytes("table cached") +
                "\nfar     90 x 8 F16           pinned memory of the host, 1.54 KB\n" +
                "near    90 x 8 I8            device memory, " + bytes("table near") + "\n");
}

/// Rows of 120 bytes, which the host has 128 bytes apart: more of them go into a chunk for the cache than into others.
TEST(CudaTableCache, WritesMoreRowsThanAChunkHas) {
  reset();
  constexpr int64_t many = 8200;
  std::vector<VersionedTable> tables{versioned_table("t", DType::f16, 60, false, first_keys(many))};
  LoadOptions options;
  options.updatable = true;
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, cached(tables, 20, options));
  const LookUps look_ups(store, tables, first_keys(100));
  look_ups.run();
  store.pass_over_caches();
  std::vector<KeyVersion> written;
  for (const int64_t key : first_keys(many)) written.push_back({key, 1});
  TestUpdate update;
  add_changes(tables[0], written, {}, update);
  EXPECT_EQ(store.update(update.weights()), update.report);
  look_ups.run();
  for (int64_t key = 0; key < 100; ++key)
    ASSERT_EQ(look_ups.rows(0)[static_cast<size_t>(key)], tables[0].expected(key)) << key;
  store.pass_over_caches();
  EXPECT_GT(store.cache_counters().at("t").hits, 90);
}

TEST(CudaTableCache, RefusesWhatLookUpsReadInParts) {
  reset();
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 129, false, first_keys(5))};
  LoadOptions options = placed(Placement::cached);
  const auto message = [&] {
    return test_support::message_of([&] { CudaTableStore(plan_of(tables), weights_of(tables), {}, 0, options); });
  };
  EXPECT_EQ(message(), "");
  options.updatable = true;
  EXPECT_EQ(message(),
            "table 't': expected at most 128 columns of F32, as it is cached and updatable on a GPU, got 129");
  options.cache_pass_seconds = -1;
  EXPECT_NE(message().find("LoadOptions::cache_pass_seconds: expected 0 to 3600"), std::string::npos);
}

/// Batches in flight while keys come and go: everything of a bucket is asked for, in turns, of more keys than there is
/// room for. What was erased is read by those launched before.
TEST(CudaTableCache, BatchesInFlightSeeWholeRows) {
  const int num_seeds = build == Build::plain ? 10 : 3;
  for (int seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    reset(in_turns(seed));
    const std::vector<VersionedTable> tables{versioned_table("d", DType::f32, 128, false, first_keys(160)),
                                             versioned_table("h", DType::i8, 200, true, first_keys(160))};
    const auto store =
        std::make_shared<CudaTableStore>(plan_of(tables), weights_of(tables), HashTableFiles{}, 0, cached(tables, 4));
    Reader readers[] = {Reader(store), Reader(store)};
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    std::vector<std::pair<std::unique_ptr<LookUps>, std::vector<int64_t>>> launched;
    for (int64_t phase = 0; phase < 6; ++phase) {
      for (int i = 0; i < 4; ++i) {
        std::vector<int64_t> keys;
        for (int64_t k = 0; k < 64; ++k) keys.push_back(40 * (phase % 3) + static_cast<int64_t>(random() % 60));
        launched.emplace_back(std::make_unique<LookUps>(*store, tables, keys), keys);
        readers[random() % 2].launch(*launched.back().first);
        store->pass_over_caches();
      }
    }
    for (const auto& [look_ups, keys] : launched)
      for (size_t t = 0; t < tables.size(); ++t) {
        const std::vector<Row> rows = look_ups->rows(t);
        for (size_t i = 0; i < keys.size(); ++i)
          ASSERT_EQ(rows[i], tables[t].expected(keys[i])) << tables[t].name << ", key " << keys[i];
      }
    for (const auto& [name, counters] : store->cache_counters()) EXPECT_GT(counters.evicted, 0) << name;
  }
}

}}  // namespace warprank
