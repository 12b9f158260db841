// SPDX-License-Identifier: Apache-2.0
//
// Rows that change while models look them up, on the host. engine/cuda_table_store_kernel_test.cpp has the same on
// CUDA.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/look_ups_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "hash_table/table_testing.hpp"
#include "support/renamed_weights.hpp"
#include "warprank/host.hpp"

namespace warprank { namespace {

using namespace table_update_testing;  // NOLINT: what this test is about
using test::message_of;
using testing::HasSubstr;

/// The tables of a model that looks keys up.
struct LookUpModel {
  explicit LookUpModel(std::vector<VersionedTable> the_tables,
                       const LoadOptions& options = {.updatable = true, .spare = 1})
      : expected(std::move(the_tables)),
        plan(plan_of(expected)),
        tables(Tables::load(plan, weights_of(expected), host(), options)),
        model(Model::bind(plan, Weights::from_tensors({}), tables)) {}

  std::vector<VersionedTable> expected;
  Plan plan;
  Tables tables;
  Model model;
};

void expect_rows(const LookUpModel& setup, LookUps& look_ups, const std::vector<int64_t>& keys) {
  look_ups.run();
  for (const VersionedTable& table : setup.expected)
    for (size_t i = 0; i < keys.size(); ++i)
      ASSERT_EQ(look_ups.row(table, i), table.expected(keys[i])) << table.name << ", key " << keys[i];
}

TEST(TablesUpdate, DoesWhatAMapDoes) {
  LookUpModel setup(tables_of_all_types());
  const std::vector<int64_t> keys = first_keys(70);
  LookUps look_ups(setup, keys);
  expect_rows(setup, look_ups, keys);
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= 60; ++version) {
    const TestUpdate update = random_update(setup.expected, version, random);
    EXPECT_EQ(setup.tables.update(update.weights()), update.report);
    expect_rows(setup, look_ups, keys);
    if (HasFailure()) return;
  }
}

TEST(TablesUpdate, TakesTheLastOfEqualKeysAndErasesFirst) {
  LookUpModel setup({versioned_table("t", DType::f16, 3, true, {5, 6})}, {.updatable = true});
  TestUpdate update;
  add_changes(setup.expected[0], {{5, 7}, {9, 1}, {5, 8}, {5, 9}}, {6, 6, 100}, update);
  EXPECT_EQ(setup.tables.update(update.weights()), (UpdateReport{{"t", {1, 1, 1, 1, 0}}}));
  LookUps look_ups(setup, {5, 6, 9, 100});
  expect_rows(setup, look_ups, {5, 6, 9, 100});
  EXPECT_EQ(setup.tables.update(Weights::from_tensors({})), UpdateReport{});
}

TEST(TablesUpdate, WorksAsTheDocumentSays) {
  VersionedTable table = versioned_table("user", DType::f32, 2, true, first_keys(100));
  const Plan plan = plan_of({table});
  const Weights weights = weights_of({table});
  std::map<std::string, StoredTensor> tensors;
  std::vector<KeyVersion> rows;
  for (int64_t key = 100; key < 150; ++key) rows.push_back({key, 1});
  table.add_rows(rows, false, tensors);
  const Weights delta = Weights::from_tensors(tensors);

  LoadOptions options;
  options.updatable = true;
  options.spare = 0.5;  // room for half as many keys again in hashed tables
  Tables tables = Tables::load(plan, weights, host(), options);
  const UpdateReport report = tables.update(delta);
  const int64_t without_room = report.at("user").full;

  EXPECT_EQ(without_room, 0);
  EXPECT_EQ(report.at("user").inserted, 50);
}

TEST(TablesUpdate, SaysHowManyKeysFoundNoRoom) {
  LookUpModel setup({versioned_table("t", DType::f32, 4, true, {1})}, {.updatable = true, .capacity = {{"t", 20}}});
  VersionedTable& table = setup.expected[0];
  std::vector<KeyVersion> many;
  for (int64_t key = 0; key < 1000; ++key) many.push_back({key, 3});
  TestUpdate update;
  table.add_rows(many, false, update.tensors);
  const TableChanges changes = setup.tables.update(update.weights()).at("t");
  EXPECT_EQ(changes.updated, 1);
  EXPECT_GE(changes.inserted, 19);
  EXPECT_GT(changes.full, 0);
  EXPECT_EQ(changes.updated + changes.inserted + changes.full, 1000);
  const std::vector<int64_t> keys = first_keys(1000);
  LookUps look_ups(setup, keys);
  look_ups.run();
  int64_t found = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Row row = look_ups.row(table, i);
    if (row == table.default_row()) continue;
    EXPECT_EQ(row, table.row(many[i]));
    ++found;
  }
  EXPECT_EQ(found, changes.updated + changes.inserted);
}

TEST(TablesUpdate, RefusesWhatIsWrongBeforeAnythingChanges) {
  LookUpModel setup({versioned_table("film", DType::i8, 3, false, first_keys(5)),
                     versioned_table("user", DType::f32, 2, true, first_keys(5))});
  const std::vector<int64_t> keys = first_keys(8);
  LookUps look_ups(setup, keys);
  using Tensors = std::map<std::string, StoredTensor>;
  const auto expect_refused = [&](const std::string& what, const auto& change) {
    Tensors tensors;
    setup.expected[0].add_rows({{1, 5}, {2, 5}}, false, tensors);
    setup.expected[1].add_rows({{1, 5}, {9, 5}}, false, tensors);
    tensors["user.erase"] = make_tensor<int64_t>({1}, {3});
    change(tensors);
    EXPECT_THAT(message_of([&] { setup.tables.update(Weights::from_tensors(tensors)); }), HasSubstr(what));
    expect_rows(setup, look_ups, keys);
  };
  const auto longs = [](const std::vector<int64_t>& values) {
    return make_tensor<int64_t>({static_cast<int64_t>(values.size())}, values);
  };
  expect_refused("'film', key: expected a row of the table, 0 to 4, got 5, and 0 more", [&](Tensors& t) {
    t["film.keys"] = longs({1, 5});
  });
  expect_refused("got -1, and 1 more", [&](Tensors& t) { t["film.keys"] = longs({-1, 7}); });
  expect_refused("'user.rows': expected F32 [2, 2], got F16",
                 [&](Tensors& t) { t["user.rows"].dtype = DType::f16, t["user.rows"].bytes.resize(8); });
  expect_refused("'user.rows': expected F32 [3, 2], got F32 [2, 2]", [&](Tensors& t) {
    t["user.keys"] = longs({1, 2, 3});
  });
  expect_refused("'user.keys': expected I64 [n], got none", [](Tensors& t) { t.erase("user.keys"); });
  expect_refused("'user.keys': expected I64 [n], got F32 [2]", [](Tensors& t) {
    t["user.keys"] = make_tensor<float>({2}, {1, 2});
  });
  expect_refused("'film.scale': expected F32 [2], got none", [](Tensors& t) { t.erase("film.scale"); });
  expect_refused("'film.rows': expected I8 [0, 3], got none", [](Tensors& t) {
    t.erase("film.rows");
    t.erase("film.keys");
  });
  expect_refused("'user.erase': expected I64 [n], got I64 [1, 1]", [](Tensors& t) { t["user.erase"].shape = {1, 1}; });
  expect_refused("key 1: expected a row, or to be erased, got both, as for 1 keys", [&](Tensors& t) {
    t["user.erase"] = longs({4, 1});
  });
  expect_refused("'film.erase'", [&](Tensors& t) { t["film.erase"] = longs({1}); });
  expect_refused("'user.scale'", [](Tensors& t) { t["user.scale"] = make_tensor<float>({2}, {1, 2}); });
  expect_refused("table 'user', row 1: expected finite numbers, got NaN or infinity, as in 1 row", [](Tensors& t) {
    t["user.rows"] = make_tensor<float>({2, 2}, {1, 2, 3, std::numeric_limits<float>::quiet_NaN()});
  });
  expect_refused("2 problems", [&](Tensors& t) {
    t["film.keys"] = longs({1, 5});
    t["users.keys"] = longs({1});
  });
}

TEST(TablesUpdate, FindsTensorsUnderTheNamesOfTheMap) {
  LookUpModel setup({versioned_table("film", DType::i8, 3, false, first_keys(5)),
                     versioned_table("user", DType::f32, 2, true, first_keys(5))});
  TestUpdate update;
  add_changes(setup.expected[0], {{1, 5}, {2, 5}}, {}, update);
  add_changes(setup.expected[1], {{1, 5}, {9, 5}}, {3}, update);
  using test_support::renamed_weights;
  EXPECT_EQ(setup.tables.update(renamed_weights(update.tensors)), update.report);
  const std::vector<int64_t> keys = first_keys(10);
  LookUps look_ups(setup, keys);
  expect_rows(setup, look_ups, keys);
  const Weights twice = renamed_weights(update.tensors, {{"user.rows", update.tensors.at("user.rows")}});
  EXPECT_EQ(message_of([&] { setup.tables.update(twice); }),
            "table update: tensor 'user.rows': expected <table>.keys, .rows or, of a hashed table, .erase, of an I8 "
            "table .scale and .offset, got a tensor that no table reads");
}

TEST(TablesUpdate, NeedsTablesThatWereLoadedForIt) {
  const std::vector<VersionedTable> tables{versioned_table("user", DType::f32, 2, true, first_keys(5))};
  const Plan plan = plan_of(tables);
  const Weights weights = weights_of(tables);
  EXPECT_THAT(message_of([&] { Tables::load(plan, weights, host()).update(Weights::from_tensors({})); }),
              HasSubstr("LoadOptions::updatable"));
  const auto refusal = [&](const LoadOptions& options) {
    return message_of([&] { Tables::load(plan, weights, host(), options); });
  };
  EXPECT_THAT(refusal({.updatable = true, .spare = -1}), HasSubstr("LoadOptions::spare: expected 0 to 1000, got -1"));
  EXPECT_THAT(refusal({.updatable = true, .spare = NAN}), HasSubstr("LoadOptions::spare"));
  EXPECT_THAT(refusal({.updatable = true, .capacity = {{"film", 9}}}), HasSubstr("'film'"));
  EXPECT_THAT(refusal({.capacity = {{"user", 9}}}), HasSubstr("got one that is not"));
  EXPECT_THAT(refusal({.updatable = true, .capacity = {{"user", 4}}}), HasSubstr("at least the 5 keys"));
}

TEST(TablesUpdate, TakesImagesThatWereBuiltMutable) {
  VersionedTable table = versioned_table("user", DType::f16, 4, true, first_keys(20));
  std::map<std::string, StoredTensor> tensors;
  table.add_rows(table.all(), true, tensors);
  const test::Folder folder("updatable_images");
  const Plan plan = plan_of({table});
  const Weights defaults =
      Weights::from_tensors({{"user.default", make_tensor<float>({table.dim}, table.default_row())}});
  for (const bool is_mutable : {false, true}) {
    const std::string path = folder.path() + (is_mutable ? "mutable" : "immutable");
    const HashTableChunk rows = chunk_of(tensors.at("user.keys").view(), tensors.at("user.rows").view());
    save_hash_table(path, build_hash_table({DType::f16, 4, is_mutable}, rows));
    const HashTableFiles images{{"user", std::make_shared<const HashTableFile>(path)}};
    const auto load = [&] { return Tables::load(plan, defaults, images, host(), {.updatable = true}); };
    if (!is_mutable) {
      EXPECT_THAT(message_of(load), HasSubstr("expected an image that was built mutable"));
      continue;
    }
    Tables tables = load();
    TestUpdate update;
    add_changes(table, {{3, 1}, {100, 1}}, {7}, update);
    EXPECT_EQ(tables.update(update.weights()), update.report);
    Context context = Model::bind(plan, Weights::from_tensors({}), tables).context();
    Batch batch = plan.batch();
    batch.add_request().ids(plan.ids("id_user"), {3, 100, 7, 8});
    const Scores scores = context.run(batch);
    const Span<const float> y = scores["y_user"].of(0);
    Row expected;
    for (const int64_t key : {3, 100, 7, 8}) {
      const Row row = table.expected(key);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_EQ(Row(y.begin(), y.end()), expected);
  }
}

TEST(TablesUpdate, RefusesACapacityOfATableThatIsAnImage) {
  const Plan plan = plan_of({versioned_table("user", DType::f16, 4, true, {})});
  const test::Folder folder("images_with_capacity");
  save_hash_table(folder.path() + "user.hash_table", build_hash_table({DType::f16, 4, true}, HashTableChunk{}));
  EXPECT_EQ(
      message_of([&] {
        Tables::load(plan, folder.path(), host(), {.updatable = true, .capacity = {{"user", 100}}});
      }),
      "LoadOptions::capacity of 'user': expected a table that is loaded as keys and rows, got an image, which has "
      "the room that it was built with (HashTableOptions::capacity)");
}

/// Readers score without a pause while two threads write rows, each those of its own keys, version after version; keys
/// of hashed tables come and go. Nobody may starve: every update is done while readers score, and every reader scores
/// while updates are done.
TEST(TablesUpdate, ReadersSeeWholeRowsAndNobodyStarves) {
  constexpr int64_t num_keys = 24, num_updates = 200, num_readers = 2, num_writers = 2, too_many = 1'000'000;
  std::vector<VersionedTable> tables;  // of long rows, which take a while to write
  const auto add = [&](const char* name, DType type, int64_t dim, bool is_hashed) {
    tables.push_back(versioned_table(name, type, dim, is_hashed, first_keys(num_keys)));
    tables.back().is_uniform = true;
  };
  add("direct_f32", DType::f32, 2000, false);
  add("direct_i8", DType::i8, 2000, false);
  add("hashed_f16", DType::f16, 512, true);
  add("hashed_i8", DType::i8, 1000, true);
  LookUpModel setup(tables);
  std::vector<int64_t> keys;  // each a few times, so that readers do little else than look up
  for (int64_t i = 0; i < 4 * num_keys; ++i) keys.push_back(i % num_keys);
  std::atomic<int64_t> written[num_writers] = {0, 0};  // versions whose update has returned
  std::atomic<int> num_writing{num_writers};
  std::atomic<int64_t> scored[num_readers] = {0, 0};

  // Keys of writer w are those of remainder w. In odd versions some of those of hashed tables are gone.
  const auto is_gone = [](const VersionedTable& table, int64_t key, int64_t version) {
    return table.is_hashed && key % 8 == 3 && version % 2 == 1;
  };
  const auto write = [&](int64_t w, int64_t version) {
    std::map<std::string, StoredTensor> tensors;
    for (const VersionedTable& table : setup.expected) {
      std::vector<KeyVersion> rows;
      std::vector<int64_t> gone;
      for (int64_t key = w; key < num_keys; key += num_writers)
        if (is_gone(table, key, version)) {
          gone.push_back(key);
        } else {
          rows.push_back({key, version});
        }
      table.add_rows(rows, false, tensors);
      const auto num_gone = static_cast<int64_t>(gone.size());
      if (table.is_hashed) tensors[table.name + ".erase"] = make_tensor<int64_t>({num_gone}, gone);
    }
    const UpdateReport report = setup.tables.update(Weights::from_tensors(std::move(tensors)));
    for (const auto& [name, changes] : report) EXPECT_EQ(changes.full, 0) << name;
    written[w] = version;
  };
  const auto read = [&](int64_t r) {
    LookUps look_ups(setup, keys);
    std::map<std::pair<std::string, int64_t>, float> seen;  // the latest version of each key
    while (num_writing > 0 && scored[r] < too_many && !HasFailure()) {
      const int64_t before[num_writers] = {written[0], written[1]};
      look_ups.run();
      ++scored[r];
      for (const VersionedTable& table : setup.expected)
        for (size_t i = 0; i < keys.size(); ++i) {
          const Span<const float> row = look_ups.view(table, i);
          const std::string where = table.name + ", key " + std::to_string(keys[i]);
          ASSERT_EQ(std::count(row.begin(), row.end(), row[0]), row.size()) << where << ": not a whole row";
          float& latest = seen[{table.name, keys[i]}];
          if (row[0] == table.default_row()[0]) {
            ASSERT_TRUE(is_gone(table, keys[i], 1)) << where;
            continue;
          }
          ASSERT_GE(row[0], static_cast<float>(before[keys[i] % num_writers])) << where;
          ASSERT_GE(row[0], latest) << where;
          ASSERT_LE(row[0], num_updates) << where;
          latest = row[0];
        }
    }
  };
  std::vector<std::thread> threads;
  for (int64_t w = 0; w < num_writers; ++w)
    threads.emplace_back([&, w] {
      for (int64_t version = 1; version <= num_updates; ++version) write(w, version);
      --num_writing;
    });
  for (int64_t r = 0; r < num_readers; ++r) threads.emplace_back([&, r] { read(r); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& version : written) EXPECT_EQ(version, num_updates);
  for (const auto& count : scored) {
    EXPECT_GT(count, 10);
    EXPECT_LT(count, too_many) << "updates starve";
  }
  for (VersionedTable& table : setup.expected)
    for (auto& [key, version] : table.versions) version = num_updates;
  const std::vector<int64_t> each = first_keys(num_keys);
  LookUps look_ups(setup, each);
  expect_rows(setup, look_ups, each);
}

}}  // namespace warprank
