// SPDX-License-Identifier: Apache-2.0
//
// Tables of several devices. On a GPU those tests run that have as many cards as they need.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_table_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "support/message_of.hpp"
#include "warprank/engine/cuda/table_store.cuh"
#if !defined(__CUDACC__)
#include "simt/devices.hpp"
#endif

namespace warprank { namespace {

using namespace cuda_table_testing;    // NOLINT: for look-ups
using namespace table_update_testing;  // NOLINT: tables whose rows have versions
using kernel_testing::build;
using test_support::message_of;
using testing::HasSubstr;

/// How many devices, and whether they access one another.
struct Machine {
  int num_devices;
  bool has_peer_access;

  std::vector<int> devices() const {
    std::vector<int> all(static_cast<size_t>(num_devices));
    std::iota(all.rbegin(), all.rend(), 0);  // the tables' own is the last
    return all;
  }
  LoadOptions options(LoadOptions options = {}) const {
    options.devices = devices();
    options.placement.emplace_back("*", TablePlacement{Placement::sharded, 0});
    return options;
  }
};

class ShardedTables : public testing::TestWithParam<Machine> {
 protected:
  void start(Config config = {}) {
#if defined(__CUDACC__)
    if (device::num_devices() < GetParam().num_devices) GTEST_SKIP() << "needs more cards";
    if (device::can_shard(GetParam().devices()) != GetParam().has_peer_access) GTEST_SKIP() << "another machine's";
    (void)config;
#else
    config.devices = GetParam().num_devices;
    reset(config);
    simt::allow_peer_access(GetParam().has_peer_access);
#endif
  }
  void SetUp() override { start(); }
  void TearDown() override { reset(); }

  std::vector<int> devices() const { return GetParam().devices(); }

  static std::shared_ptr<CudaTableStore> on(const std::shared_ptr<CudaTableStore>& store, int device) {
    return std::dynamic_pointer_cast<CudaTableStore>(store->on(device));
  }
};
INSTANTIATE_TEST_SUITE_P(, ShardedTables,
                         testing::Values(Machine{1, true}, Machine{2, true}, Machine{3, true}, Machine{2, false},
                                         Machine{3, false}),
                         [](const auto& info) {
                           return std::to_string(info.param.num_devices) + "Devices" +
                                  (info.param.has_peer_access ? "" : "WithoutPeerAccess");
                         });

/// All rows or sums of all tables.
std::vector<std::vector<Row>> look_up(const CudaTableStore& store, const std::vector<VersionedTable>& tables,
                                      const std::vector<int64_t>& keys, int64_t bag = 1) {
  const LookUps look_ups(store, tables, keys, bag);
  look_ups.run();
  std::vector<std::vector<Row>> rows;
  for (size_t t = 0; t < tables.size(); ++t) rows.push_back(look_ups.rows(t));
  return rows;
}

/// Several stripes of each, an empty one, and rows that are longer than a stripe of the executor.
std::vector<VersionedTable> tables_of_many_stripes() {
  std::vector<VersionedTable> tables = tables_of_all_types();
  for (VersionedTable& table : tables)
    for (const int64_t key : first_keys(200)) table.versions[key] = 0;
  tables.push_back(versioned_table("empty", DType::f32, 4, false, {}));
  tables.push_back(versioned_table("empty_i8", DType::i8, 4, true, {}));
  tables.push_back(versioned_table("long", DType::f32, 300, false, first_keys(7)));
  tables.push_back(versioned_table("long_hashed", DType::f16, 300, true, first_keys(7)));
  return tables;
}

TEST_P(ShardedTables, GiveTheBitsOfTablesOfOneDevice) {
  const std::vector<VersionedTable> tables = tables_of_many_stripes();
  const Plan plan = plan_of(tables);
  const CudaTableStore whole(plan, weights_of(tables), {}, 0);
  const auto store = CudaTableStore::load(plan, weights_of(tables), {}, 0, GetParam().options());
  std::vector<int64_t> keys = first_keys(210);
  std::shuffle(keys.begin(), keys.end(), std::mt19937(1));
  for (const int64_t bag : {1, 7, 100}) {
    const auto expected = look_up(whole, tables, keys, bag);
    for (const int device : devices()) {
      const device::DeviceGuard current(device);
      EXPECT_TRUE(look_up(*on(store, device), tables, keys, bag) == expected) << device << ", bags of " << bag;
    }
  }
}

#if !defined(__CUDACC__)
TEST_P(ShardedTables, LieOnAllDevicesOrOnTheHost) {
  const std::vector<VersionedTable> tables{versioned_table("direct", DType::f16, 16, false, first_keys(1000)),
                                           versioned_table("hashed", DType::i8, 13, true, first_keys(1000))};
  const Plan plan = plan_of(tables);
  for (const bool is_updatable : {false, true}) {
    LoadOptions options;
    options.updatable = is_updatable;
    options = GetParam().options(options);
    const auto store = CudaTableStore::load(plan, weights_of(tables), {}, 0, options);
    int64_t direct = 0;
    for (const int device : devices()) {
      int64_t bytes = 0, pinned = 0;
      for (const auto& [what, size] : on(store, device)->memory()) {
        (what.rfind("pinned", 0) == 0 ? pinned : bytes) += size;
        if (what == "table direct") direct += size - 256;  // the default row
      }
      EXPECT_EQ(simt::allocated_bytes(device), bytes);
      EXPECT_EQ(pinned > 0, !GetParam().has_peer_access);
    }
    for (const PlacedTable& placed : store->placed())
      EXPECT_EQ(placed.where.rfind(GetParam().has_peer_access ? "device memory of several, here " : "pinned memory", 0),
                0)
          << placed.where;
    if (GetParam().has_peer_access) {
      EXPECT_GE(direct, 32000);
      EXPECT_LT(direct, 32000 + 512);
      const int64_t all = simt::allocated_bytes(), each = all / GetParam().num_devices;
      for (const int device : devices()) EXPECT_NEAR(simt::allocated_bytes(device), each, each / 10) << device;
    } else {
      EXPECT_EQ(direct, 0);
    }
    const int first = devices().front();
    EXPECT_EQ(CudaTableStore::needs(plan, weights_of(tables), {}, options), on(store, first)->memory());
  }
  EXPECT_EQ(simt::allocated_bytes(), 0);
  EXPECT_EQ(simt::pinned_bytes(), 0);
}

TEST_P(ShardedTables, MayBeLargerThanADevice) {
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 16, false, first_keys(1000))};
  const Plan plan = plan_of(tables);
  const int64_t bytes = 1000 * 64, enough = bytes / GetParam().num_devices + 1024;
  simt::limit_memory(enough, bytes + 4096);
  EXPECT_NO_THROW(CudaTableStore::load(plan, weights_of(tables), {}, 0, GetParam().options()));
  if (GetParam().num_devices > 1) {
    LoadOptions on_each;
    on_each.devices = devices();
    EXPECT_THROW(CudaTableStore::load(plan, weights_of(tables), {}, 0, on_each), out_of_device_memory);
  }
  simt::limit_memory(bytes / GetParam().num_devices - 1024, 0);
  const auto load = [&] { CudaTableStore::load(plan, weights_of(tables), {}, 0, GetParam().options()); };
  if (GetParam().has_peer_access) {
    EXPECT_THROW(load(), out_of_device_memory);
  } else {
    EXPECT_THAT(message_of(load), HasSubstr("table 't': expected 64000 bytes of pinned memory"));
  }
  EXPECT_EQ(simt::allocated_bytes(), 0);
}

TEST_P(ShardedTables, LoseNothingWhereACallFails) {
  const std::vector<VersionedTable> tables{versioned_table("direct", DType::i8, 13, false, first_keys(100)),
                                           versioned_table("hashed", DType::f32, 4, true, first_keys(100))};
  const Plan plan = plan_of(tables);
  LoadOptions options;
  options.updatable = true;
  const auto load = [&] { CudaTableStore::load(plan, weights_of(tables), {}, 0, GetParam().options(options)); };
  int64_t call = 0;
  for (bool has_failed = true; has_failed && call < 1000; ++call) {
    simt::fail_call(call);
    has_failed = !message_of(load).empty();
    EXPECT_EQ(has_failed, simt::calls_before_failure() < 0) << "call " << call;
    ASSERT_EQ(simt::allocated_bytes(), 0) << "call " << call;
    ASSERT_EQ(simt::pinned_bytes(), 0) << "call " << call;
  }
  EXPECT_GT(call, 10);
  EXPECT_LT(call, 1000);
}
#endif

const LoadOptions updatable{true, 0.5, {}};

TEST_P(ShardedTables, AreUpdatedForAllDevices) {
  std::vector<VersionedTable> tables = tables_of_all_types();
  LoadOptions options = updatable;
  options.placement = {{"*_F16", {Placement::device, 0}}, {"*_F32", {Placement::host, 0}}};  // the others are sharded
  const auto store = CudaTableStore::load(plan_of(tables), weights_of(tables), {}, 0, GetParam().options(options));
  const std::vector<int64_t> keys = first_keys(70);
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= (build == Build::plain ? 12 : 3); ++version) {
    const TestUpdate update = random_update(tables, version, random);
    const int device = devices()[static_cast<size_t>(version) % devices().size()];
    EXPECT_EQ(on(store, device)->update(update.weights()), update.report) << "whichever is told";
    for (const int reader : devices()) {
      const device::DeviceGuard current(reader);
      const auto rows = look_up(*on(store, reader), tables, keys);
      for (size_t t = 0; t < tables.size(); ++t)
        for (size_t i = 0; i < keys.size(); ++i)
          ASSERT_EQ(rows[t][i], tables[t].expected(keys[i])) << tables[t].name << ", key " << keys[i];
    }
  }
}

#if !defined(__CUDACC__)
/// However many devices read them; copies of each device are written for each.
TEST_P(ShardedTables, AreWrittenOnce) {
  const auto bytes_of_update = [&](Placement where, const std::vector<int>& devices) {
    start();
    std::vector<VersionedTable> tables{versioned_table("direct", DType::f16, 8, false, first_keys(60)),
                                       versioned_table("hashed", DType::i8, 13, true, first_keys(40))};
    LoadOptions options = updatable;
    options.placement = {{"*", {where, 0}}};
    options.devices = devices;
    const auto store = CudaTableStore::load(plan_of(tables), weights_of(tables), {}, 0, options);
    std::vector<KeyVersion> written;
    for (const int64_t key : first_keys(30)) written.push_back({key, 1});
    TestUpdate update;
    for (VersionedTable& table : tables) add_changes(table, written, {35, 36}, update);
    simt::clear_calls();
    EXPECT_EQ(store->update(update.weights()), update.report);
    return simt::calls().copies_to_device.bytes;
  };
  for (const Placement where : {Placement::sharded, Placement::host})
    EXPECT_EQ(bytes_of_update(where, devices()), bytes_of_update(where, {0})) << name_of_enum(where);
  EXPECT_EQ(bytes_of_update(Placement::device, devices()),
            bytes_of_update(Placement::device, {0}) * GetParam().num_devices);
}
#endif

TEST_P(ShardedTables, BatchesInFlightSeeWholeRows) {
  const int num_seeds = build == Build::plain ? 5 : 3;
  const std::vector<int64_t> keys = first_keys(64);
  for (int seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    start(in_turns(seed));
    std::vector<VersionedTable> tables{versioned_table("direct_i8", DType::i8, 13, false, first_keys(64)),
                                       versioned_table("direct_f16", DType::f16, 3, false, first_keys(64)),
                                       versioned_table("hashed_f32", DType::f32, 128, true, first_keys(40)),
                                       versioned_table("hashed_f16", DType::f16, 3, true, first_keys(40)),
                                       versioned_table("hashed_i8", DType::i8, 256, true, first_keys(40)),
                                       versioned_table("on_host", DType::f32, 8, true, first_keys(40)),
                                       versioned_table("on_each", DType::f32, 8, true, first_keys(40))};
    LoadOptions options{true, 0.1, {}};
    options.placement = {{"on_host", {Placement::host, 0}}, {"on_each", {Placement::device, 0}}};
    const auto store = CudaTableStore::load(plan_of(tables), weights_of(tables), {}, 0, GetParam().options(options));
    std::vector<std::unique_ptr<Reader>> readers;
    for (const int device : devices()) {
      const device::DeviceGuard current(device);
      readers.push_back(std::make_unique<Reader>(on(store, device)));
    }
    std::vector<std::vector<VersionedTable>> history{tables};
    std::vector<std::pair<std::unique_ptr<LookUps>, size_t>> launched;  // and how many updates had returned
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto launch = [&](size_t n) {
      const device::DeviceGuard current(devices()[n]);
      launched.emplace_back(std::make_unique<LookUps>(*on(store, devices()[n]), tables, keys), history.size() - 1);
      readers[n]->launch(*launched.back().first);
    };
    for (int64_t version = 1; version <= 4; ++version) {
      for (size_t n = 0; n < readers.size(); ++n) launch(n);
      const TestUpdate update = random_update(tables, version, random);
      EXPECT_EQ(store->update(update.weights()), update.report);
      history.push_back(tables);
      launch(random() % readers.size());
    }
    for (const auto& [look_ups, first] : launched)
      for (size_t t = 0; t < tables.size(); ++t) {
        const std::vector<Row> rows = look_ups->rows(t);
        for (size_t i = 0; i < keys.size(); ++i) {
          const size_t last = tables[t].is_hashed ? history.size() - 1 : first;
          size_t at = first;
          while (at <= last && rows[i] != history[at][t].expected(keys[i])) ++at;
          ASSERT_LE(at, last) << tables[t].name << ", key " << keys[i] << ", launched after " << first << " updates";
        }
      }
  }
}

#if !defined(__CUDACC__)
TEST(ShardedTable, IsRefusedForDevicesThatThereAreNot) {
  Config config;
  config.devices = 2;
  reset(config);
  const std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 4, false, first_keys(5))};
  const auto load = [&](int index, std::vector<int> devices, TablePlacement placement = {Placement::sharded, 0}) {
    LoadOptions options;
    options.devices = std::move(devices);
    options.placement = {{"t", placement}};
    CudaTableStore::load(plan_of(tables), weights_of(tables), {}, index, options);
  };
  const auto refusal = [&](int index, const std::vector<int>& devices) {
    return message_of([&] { load(index, devices); });
  };
  EXPECT_EQ(refusal(0, {0, 1}), "");
  EXPECT_EQ(refusal(1, {1}), "");
  EXPECT_THAT(refusal(0, {}),
              HasSubstr("expected LoadOptions::devices, as the tables are of placement sharded, got none"));
  EXPECT_THAT(refusal(0, {0, 1, 0}), HasSubstr("LoadOptions::devices: expected each number once, from 0 on, got 0"));
  EXPECT_THAT(refusal(0, {0, -1}), HasSubstr("LoadOptions::devices: expected each number once, from 0 on, got -1"));
  EXPECT_EQ(refusal(0, {1}), "LoadOptions::devices: expected device 0, the tables', among them, got 1");
  EXPECT_THAT(message_of([&] { load(0, {0, 2}); }), HasSubstr("2"));
  EXPECT_THAT(message_of([&] { load(0, {0, 2}, {}); }), HasSubstr("2")) << "whatever the placement";
  EXPECT_THAT(message_of([&] {
                load(0, {0, 1}, {Placement::cached, 1 << 20});
              }),
              HasSubstr("another placement than cached, as there are several LoadOptions::devices"));
  EXPECT_EQ(simt::allocated_bytes(), 0);
  reset();
}
#endif

}}  // namespace warprank
