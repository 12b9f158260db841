// SPDX-License-Identifier: Apache-2.0

/// Part of cuda_table_store_kernel_test.cpp: what is wrong with options, tensors and changes is told by both engines,
/// before a device has anything. placement_test.cpp and tables_in_stores_test.cpp have more, of the host engine alone.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_table_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "support/memory_store.hpp"
#include "support/message_of.hpp"
#include "support/store_testing.hpp"
#include "support/wait_until.hpp"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/hash_table/row_cache.hpp"
#include "warprank/store/change_follower.hpp"
#include "warprank/store/table_in_store.hpp"

namespace warprank { namespace {

using namespace cuda_table_testing;    // NOLINT: for look-ups
using namespace table_update_testing;  // NOLINT: tables whose rows have versions
using host_backend::HostTableStore;
using test_support::MemoryStore;
using test_support::message_of;
using Tensors = std::map<std::string, StoredTensor>;

class BadInput : public testing::Test {
 protected:
  void SetUp() override { reset(); }

  Tensors tensors() const {
    Tensors all;
    for (const VersionedTable& table : tables_) table.add_rows(table.all(), true, all);
    return all;
  }
  std::string on_host(const LoadOptions& options, const Tensors& tensors) const {
    return message_of([&] { HostTableStore(plan_, Weights::from_tensors(tensors), {}, options); });
  }
  std::string on_gpu(const LoadOptions& options, const Tensors& tensors) const {
    const std::string message =
        message_of([&] { CudaTableStore::load(plan_, Weights::from_tensors(tensors), {}, 0, options); });
    EXPECT_EQ(message_of([&] { CudaTableStore::needs(plan_, Weights::from_tensors(tensors), {}, options); }), message);
#if !defined(__CUDACC__)
    EXPECT_EQ(simt::allocated_bytes() + simt::pinned_bytes(), 0);
#endif
    return message;
  }
  void expect_refused(const LoadOptions& options, const Tensors& tensors, const std::string& message) const {
    EXPECT_EQ(on_host(options, tensors), message);
    EXPECT_EQ(on_gpu(options, tensors), message);
  }
  void expect_refused(const TablePlacements& placement, const std::string& message,
                      const std::vector<int>& devices = {}) const {
    LoadOptions options;
    options.placement = placement;
    options.devices = devices;
    expect_refused(options, tensors(), message);
  }

  std::vector<VersionedTable> tables_{versioned_table("film", DType::f32, 16, false, first_keys(5)),
                                      versioned_table("user", DType::i8, 13, true, first_keys(5))};
  const Plan plan_ = plan_of(tables_);
};

TEST_F(BadInput, OfBudgetsIsToldByBothEngines) {
  for (const int64_t bytes : {int64_t{4607}, int64_t{1}, int64_t{0}, int64_t{-1}, INT64_MIN})
    expect_refused(
        {{"film", {Placement::cached, bytes}}},
        "table 'film', device_bytes: expected at least 4608, 4 buckets of its rows, got " + std::to_string(bytes));
  expect_refused({{"user", {Placement::cached, 2559}}},
                 "table 'user', device_bytes: expected at least 2560, 4 buckets of its rows, got 2559");
  for (const Placement where : {Placement::device, Placement::host})
    expect_refused({{"user", {where, 1}}},
                   std::string("LoadOptions::placement of 'user', device_bytes: expected 0, as the tables are of "
                               "placement ") +
                       name_of_enum(where) + ", got 1");
}

TEST_F(BadInput, OfNamesAndDevicesIsToldByBothEngines) {
  for (const char* pattern : {"films", "fil", "", "*x", "user?", "FILM", "[f]ilm"})
    expect_refused({{pattern, {Placement::host, 0}}},
                   "LoadOptions::placement of '" + std::string(pattern) +
                       "': expected a table's name, or a pattern that fits one, got none of that name");
  expect_refused({{"*m", {Placement::cached, 1 << 20}}},
                 "LoadOptions::placement of '*m': expected another placement than cached, as there are several "
                 "LoadOptions::devices, got cached",
                 {0, 1});
  expect_refused({{"film", {Placement::sharded, 0}}},
                 "LoadOptions::placement of 'film': expected LoadOptions::devices, as the tables are of placement "
                 "sharded, got none");
  expect_refused({}, "LoadOptions::devices: expected each number once, from 0 on, got 0", {0, 0});
}

TEST_F(BadInput, OfKeysIsToldByBothEngines) {
  Tensors wrong = tensors();
  wrong["user.keys"] = make_tensor<float>({5}, {0, 1, 2, 3, 4});
  expect_refused({}, wrong, "tables: tensor 'user.keys': expected I64 [5], got F32 [5]");
  wrong["user.keys"] = make_tensor<int64_t>({4}, {0, 1, 2, 3});
  expect_refused({}, wrong, "tables: tensor 'user.keys': expected I64 [5], got I64 [4]");
  wrong["user.keys"] = make_tensor<int64_t>({5, 1}, {0, 1, 2, 3, 4});
  expect_refused({}, wrong, "tables: tensor 'user.keys': expected I64 [5], got I64 [5, 1]");
  wrong.erase("user.keys");
  expect_refused({}, wrong, "tables: tensor 'user.keys': expected I64 [5], got none");
  wrong = tensors();
  wrong["film.keys"] = wrong["user.keys"];
  expect_refused({}, wrong,
                 "tables: tensor 'film.keys': expected a tensor that a table of the model reads, got one that none "
                 "reads");
}

TEST_F(BadInput, OfUpdatesIsToldByBothEngines) {
  LoadOptions options;
  options.updatable = true;
  for (const Placement where : {Placement::device, Placement::host, Placement::cached}) {
    const LoadOptions here = placed(where, options);
    HostTableStore host(plan_, Weights::from_tensors(tensors()), {}, here);
    CudaTableStore gpu(plan_, Weights::from_tensors(tensors()), {}, 0, here);
    const auto expect_refused_update = [&](const auto& change, const std::string& message) {
      Tensors delta;
      for (const VersionedTable& table : tables_) table.add_rows({{1, 7}, {2, 7}}, false, delta);
      change(delta);
      const Weights weights = Weights::from_tensors(delta);
      EXPECT_EQ(message_of([&] { host.update(weights); }), message);
      EXPECT_EQ(message_of([&] { gpu.update(weights); }), message);
    };
    expect_refused_update(
        [](Tensors& t) {
          t["user.keys"] = make_tensor<float>({2}, {1, 2});
        },
        "table update: tensor 'user.keys': expected I64 [n], got F32 [2]");
    expect_refused_update(
        [](Tensors& t) {
          t["film.keys"] = make_tensor<int64_t>({2}, {1, 5});
        },
        "table update: 'film', key: expected a row of the table, 0 to 4, got 5, and 0 more that are none");
    expect_refused_update([](Tensors& t) { t["user.offset"] = make_tensor<float>({1}, {1}); },
                          "table update: tensor 'user.offset': expected F32 [2], got F32 [1]");
    const LookUps look_ups(gpu, tables_, {1, 2});
    look_ups.run();
    for (size_t t = 0; t < tables_.size(); ++t)
      EXPECT_EQ(look_ups.rows(t), (std::vector<Row>{tables_[t].expected(1), tables_[t].expected(2)})) << "as it was";
  }
}

/// Wherever its other tables lie, and whether the store is well.
TEST_F(BadInput, OfStoresIsToldByBothEngines) {
  const auto store = std::make_shared<MemoryStore>();
  LoadOptions options;
  TableInStore in_store;
  in_store.store = store;
  in_store.memory_bytes = 1 << 20;
  in_store.store_timeout = test_support::a_long_time;
  options.stores = {{"us*", in_store}};
  Tensors rest = tensors();
  for (const char* name : {"user.keys", "user.rows", "user.scale", "user.offset"}) rest.erase(name);
  expect_refused(options, rest, "table 'user': expected a description in its store, got none");
  store->is_away = true;
  in_store.store_timeout = std::chrono::milliseconds(10);
  options.stores = {{"us*", in_store}};
  expect_refused(options, rest,
                 "table 'user': expected a description in its store, got table 'user': expected an answer of the "
                 "store, got none in time");
  store->is_away = false;
  in_store.store_timeout = test_support::a_long_time;
  options.stores = {{"us*", in_store}};
  const auto narrow = std::make_shared<MemoryStore>();
  narrow->create({"user", {DType::i8, 12}}, test_support::soon());
  in_store.store = narrow;
  options.stores = {{"us*", in_store}};
  expect_refused(options, rest, "table 'user' in its store: dim: expected 13, got 12");
  store->create({"user", {DType::i8, 13}}, test_support::soon());
  in_store.store = store;
  in_store.memory_bytes = 1;
  options.stores = {{"us*", in_store}};
  expect_refused(options, rest,
                 "table 'user', memory_bytes: expected at least " +
                     std::to_string(RowCache::least_bytes({DType::i8, 13})) + " for its rows, got 1");
  in_store.memory_bytes = 1 << 20;
  options.stores = {{"us*", in_store}};
  for (const Placement where : {Placement::host, Placement::cached}) {
    EXPECT_EQ(
        message_of([&] { CudaTableStore::needs(plan_, Weights::from_tensors(rest), {}, placed(where, options)); }), "")
        << name_of_enum(where);
  }
  options.placement = {{"*", {Placement::device, 0}}};
  expect_refused(options, rest,
                 "LoadOptions::placement of '*': expected host or cached, as table 'user' is in a store "
                 "(LoadOptions::stores), got device");
  options.placement = {};
  options.stores = {{"none", in_store}};
  expect_refused(options, tensors(),
                 "LoadOptions::stores of 'none': expected a table's name, or a pattern that fits one, got none of that "
                 "name");
  options.stores = {{"user", {}}};
  EXPECT_EQ(on_host(options, rest), "LoadOptions::stores of 'user': expected a store, got none");
}

#if !defined(__CUDACC__)
/// The follower's thread alone uses the executor meanwhile.
TEST_F(BadInput, InAStreamIsSkippedAndCountedOnAGpu) {
  LoadOptions options;
  options.updatable = true;
  for (const Placement where : {Placement::device, Placement::host, Placement::cached}) {
    CudaTableStore gpu(plan_, weights_of(tables_), {}, 0, placed(where, options));
    const auto store = std::make_shared<MemoryStore>();
    const StoredTable film{"film", {DType::f32, 16}}, user{"user", {DType::i8, 13}};
    EXPECT_EQ(message_of([&] {
                ChangeFollower(store, {{"user", {DType::i8, 14}}}, gpu);
              }),
              "table update: tensor 'user.rows': expected I8 [0, 13], got I8 [0, 14]");
    FollowCounters of_film, of_user;
    {
      ChangeFollower follower(store, {film, user}, gpu);
      const auto publish = [&](const StoredTable& table, const RowChanges& changes) {
        store->publish_changes(table)->publish(changes, test_support::soon());
      };
      const auto row_of = [](const StoredTable& table) {
        return std::vector<unsigned char>(static_cast<size_t>(table.rows.row_bytes()));
      };
      for (const StoredTable& table : {film, user}) {
        store->add_entry(table.name, "garbage");
        store->add_entry(table.name, "");
        const StoredTable wider{table.name, {table.rows.type, table.rows.dim + 1}};
        publish(wider, {{1}, row_of(wider), {}});
      }
      publish({"user", {DType::f16, 13}}, {{1}, std::vector<unsigned char>(26), {}});
      publish(film, {{5}, row_of(film), {}});  // no row of it
      publish(film, {{}, {}, {3}});            // a direct table erases none
      publish(film, {{2}, row_of(film), {}});  // and what is good, behind it
      publish(user, {{9}, row_of(user), {3}});
      EXPECT_TRUE(test_support::wait_until([&] {
        const ChangeFollower::Counters counters = follower.counters();
        of_film = counters.at("film"), of_user = counters.at("user");
        return of_film.entries > 0 && of_user.entries > 0;
      }));
    }
    EXPECT_EQ(of_film.garbage, 3);
    EXPECT_EQ(of_film.refused, 2);
    EXPECT_EQ(of_film.changes, (TableChanges{1, 0, 0, 0, 0, 0}));
    EXPECT_EQ(of_user.garbage, 4);
    EXPECT_EQ(of_user.refused, 0);
    EXPECT_EQ(of_user.changes, (TableChanges{0, 1, 1, 0, 0, 0}));
    const LookUps look_ups(gpu, tables_, {1, 2, 3, 9});
    look_ups.run();
    const Row zeros(16, 0.f);
    EXPECT_EQ(look_ups.rows(0),
              (std::vector<Row>{tables_[0].expected(1), zeros, tables_[0].expected(3), tables_[0].default_row()}));
    const Row nothing = tables_[1].default_row();
    EXPECT_EQ(look_ups.rows(1),
              (std::vector<Row>{tables_[1].expected(1), tables_[1].expected(2), nothing, Row(13, 0.f)}));
  }
}
#endif

}}  // namespace warprank
