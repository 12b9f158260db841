// SPDX-License-Identifier: Apache-2.0

#include "warprank/engine/cuda/table_store.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_table_testing.hpp"
#include "engine/table_update_testing.hpp"
#include "hash_table/table_testing.hpp"
#include "ops/embedding_bag_testing.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/model.hpp"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/scaled_rows.hpp"

namespace warprank { namespace {

using namespace embedding_bag_testing;  // NOLINT: for kernels that look tables up
using namespace cuda_table_testing;     // NOLINT: for look-ups
using host_backend::HostTableStore;
using kernel_testing::build;
using test::message_of;

template <class Value>
StoredTensor stored(DType type, Shape shape, const std::vector<Value>& values) {
  StoredTensor tensor{type, std::move(shape), std::vector<std::byte>(values.size() * sizeof(Value))};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// A model's tables, as tensors and as images in a folder.
struct TestTables {
  explicit TestTables(const std::string& name, bool mutable_images = false)
      : folder(name), mutable_images(mutable_images) {}

  enum class As { direct, keys, image };
  void add(const std::string& name, As as, DType type, int64_t dim, int64_t num_rows, bool with_default) {
    const auto table = std::make_shared<TestTable>(type, dim, num_rows, with_default, 0, random);
    const bool hashed = as != As::direct;
    infos.push_back({name, dim, hashed, 0});
    tables[name] = table;
    if (with_default) tensors[name + ".default"] = stored(DType::f32, {dim}, table->default_row);
    if (as == As::image) {
      save_hash_table(folder.path() + name, table->hash_table(mutable_images));
      images[name] = std::make_shared<const HashTableFile>(folder.path() + name);
      return;
    }
    tensors[hashed ? name + ".rows" : name] = stored(type, {num_rows, dim}, table->rows);
    if (hashed) tensors[name + ".keys"] = stored(DType::i64, {num_rows}, table->keys);
    if (type != DType::i8) return;
    tensors[name + ".scale"] = stored(DType::f32, {num_rows}, table->scale);
    tensors[name + ".offset"] = stored(DType::f32, {num_rows}, table->offset);
  }

  Plan plan() const {
    return compile([this](Builder& b) -> Outputs {
      const Axis user = b.axis("user");
      Outputs outputs;
      for (const TableInfo& info : infos) {
        const TableOptions options{info.dim, info.rows};
        const Table table = info.hashed ? b.hashed_table(info.name, options) : b.table(info.name, options);
        outputs.push_back({"y_" + info.name, b.embed(b.ids("id_" + info.name, user), table)});
      }
      return outputs;
    });
  }
  Weights weights() const { return Weights::from_tensors(tensors); }

  std::mt19937_64 random{1};
  test::Folder folder;
  bool mutable_images;
  std::vector<TableInfo> infos;
  std::map<std::string, std::shared_ptr<TestTable>> tables;
  std::map<std::string, StoredTensor> tensors;
  HashTableFiles images;
};

void expect_rows_that_look_ups_find(const LoadOptions& options) {
  reset();
  TestTables tables("cuda_tables");
  const std::vector<std::pair<DType, std::string>> types{
      {DType::f32, "f32"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}, {DType::i8, "i8"}};
  for (const auto& [type, name] : types) {
    tables.add("direct_" + name, TestTables::As::direct, type, 13, 37, type != DType::f16);
    tables.add("keys_" + name, TestTables::As::keys, type, 24, 50, type == DType::f16);
    tables.add("image_" + name, TestTables::As::image, type, 5, 200, true);
  }
  tables.add("empty", TestTables::As::direct, DType::f32, 4, 0, true);
  tables.add("empty_bytes", TestTables::As::direct, DType::i8, 4, 0, false);
  const Plan plan = tables.plan();
  CudaTableStore store(plan, tables.weights(), tables.images, 0, options);
  EXPECT_EQ(store.find("no such table"), nullptr);

  std::vector<TestBags> all;
  std::vector<const CudaTable*> found;
  for (const TableInfo& info : tables.infos) {
    for (const Form form : {Form::each, Form::offsets}) {
      all.push_back(
          make_bags(tables.tables.at(info.name), info.hashed, form, {3, 0, 40, 1}, Pooling::sum, 0, tables.random));
      found.push_back(store.find(info.name));
      ASSERT_NE(found.back(), nullptr) << info.name;
    }
  }
  DeviceBags device(all);
  for (size_t i = 0; i < all.size(); ++i) {
    device.features()[i].table = found[i]->view;
    device.features()[i].hashed = found[i]->hashed;
    if (found[i]->cache) device.features()[i].cache = found[i]->cache->on_device();
    EXPECT_EQ(found[i]->view.default_row == nullptr, tables.tables.at(tables.infos[i / 2].name)->default_row.empty());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found[i]->view.rows) % 256, 0u);
  }
  device.prepare();
  for (int pass = 0; pass < 3; ++pass) {
    if (pass > 0) store.pass_over_caches();
    device.fill_outputs();
    device.launch();
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(tables.infos[i / 2].name);
      expect_right(all[i], device.result(i));
    }
    if (options.placement.empty() || options.placement[0].second.where != Placement::cached) return;
  }
  for (const auto& [name, counters] : store.cache_counters())
    EXPECT_EQ(counters.admitted > 0, name != "empty" && name != "empty_bytes") << name;
}

TEST(CudaTableStore, HasTheRowsThatLookUpsFind) { expect_rows_that_look_ups_find({}); }
TEST(CudaTableStore, HasTheRowsThatLookUpsFindInCaches) { expect_rows_that_look_ups_find(placed(Placement::cached)); }
TEST(CudaTableStore, HasTheRowsThatLookUpsFindOnTheHost) { expect_rows_that_look_ups_find(placed(Placement::host)); }

TEST(CudaTableStore, KeepsScalesAndOffsetsBehindRows) {
  reset();
  TestTables tables("cuda_scaled_tables");
  tables.add("film", TestTables::As::direct, DType::i8, 13, 37, true);
  // More than is copied at once.
  const bool has_large = build == Build::plain;
  constexpr int64_t large_dim = int64_t{1} << 20, large_rows = 6;
  if (has_large) tables.add("large", TestTables::As::direct, DType::i8, large_dim, large_rows, false);
  const CudaTableStore store(tables.plan(), tables.weights(), tables.images, 0);
  MemoryReport expected{{"table film", 37 * 24 + 136 + 256}};
  if (has_large) expected.emplace_back("table large", large_rows * (large_dim + 8) + 208);
  EXPECT_EQ(store.memory(), expected);
  for (const TableInfo& info : tables.infos) {
    const TestTable& table = *tables.tables.at(info.name);
    const TableView& view = store.find(info.name)->view;
    const int64_t bytes = scaled_row_bytes(info.dim);
    EXPECT_EQ(view.row_stride_bytes, bytes);
    EXPECT_EQ(view.scale_stride_bytes, bytes);
    EXPECT_EQ(reinterpret_cast<const unsigned char*>(view.scale), view.row(0) + bytes - 8);
    EXPECT_EQ(view.offset, view.scale + 1);
    std::vector<unsigned char> rows(static_cast<size_t>(view.num_rows * bytes)), wanted(rows.size());
    const Stream stream = create_stream();
    device::copy_to_host(rows.data(), view.rows, static_cast<int64_t>(rows.size()), stream);
    device::synchronize(stream);
    to_scaled_rows(table.view, 0, view.num_rows, wanted.data());
    EXPECT_TRUE(rows == wanted) << info.name;
  }
}

/// Tables of a few rows.
struct SmallTables : TestTables {
  explicit SmallTables(const std::string& name, bool mutable_images = false) : TestTables(name, mutable_images) {
    add("film", As::direct, DType::f16, 100, 30, true);
    add("user", As::keys, DType::i8, 8, 20, false);
    add("tag", As::image, DType::f32, 4, 20, false);
  }
};

TEST(CudaTableStore, ReportsItsMemory) {
  reset();
  const SmallTables tables("cuda_table_memory");
  const CudaTableStore store(tables.plan(), tables.weights(), tables.images, 0);
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const int64_t tag = padded(tables.images.at("tag")->image().size()),
                user = padded(tables.tables.at("user")->hash_table(false).bytes());
  EXPECT_EQ(store.memory(),
            (MemoryReport{{"table film", 100 * 30 * 2 + 144 + 512}, {"table tag", tag}, {"table user", user}}));
  const CudaTableStore on_host(tables.plan(), tables.weights(), tables.images, 0, placed(Placement::host));
  EXPECT_EQ(on_host.memory(), (MemoryReport{{"table film", 512},
                                            {"pinned table film", 100 * 30 * 2 + 144},
                                            {"table tag", 0},
                                            {"pinned table tag", tag},
                                            {"table user", 0},
                                            {"pinned table user", user}}));
}

#if !defined(__CUDACC__)
/// Of the device's memory, and of the host's.
std::pair<int64_t, int64_t> total(const MemoryReport& report) {
  std::pair<int64_t, int64_t> bytes;
  for (const auto& [what, size] : report) (what.rfind("pinned", 0) == 0 ? bytes.second : bytes.first) += size;
  return bytes;
}

TEST(CudaTableStore, NeedsNoMoreThanItSays) {
  for (const bool is_updatable : {false, true}) {
    const SmallTables tables("cuda_table_limit", is_updatable);
    const Plan plan = tables.plan();
    LoadOptions options{is_updatable, 0.25, {}};
    reset();
    int64_t needed = 0;
    {
      const CudaTableStore store(plan, tables.weights(), tables.images, 0, options);
      needed = total(store.memory()).first;
      EXPECT_EQ(simt::allocated_bytes(), needed);
      EXPECT_EQ(simt::calls().allocations.bytes, needed + simt::pinned_bytes());
      EXPECT_EQ(simt::pinned_bytes() > 0, is_updatable);
    }
    EXPECT_EQ(simt::allocated_bytes(), 0);
    EXPECT_EQ(total(CudaTableStore::needs(plan, tables.weights(), tables.images, options)).first, needed);
    {
      const LoadOptions on_host = placed(Placement::host, options);
      const CudaTableStore store(plan, tables.weights(), tables.images, 0, on_host);
      const auto [on_device, pinned] = total(store.memory());
      EXPECT_EQ(simt::allocated_bytes(), on_device);
      EXPECT_EQ(simt::pinned_bytes(), pinned + (is_updatable ? store.updates()->device_bytes() : 0));
      EXPECT_EQ(total(CudaTableStore::needs(plan, tables.weights(), tables.images, on_host)), total(store.memory()));
    }
    EXPECT_EQ(simt::pinned_bytes(), 0);

    Config config;
    config.device_bytes = needed - 1;
    reset(config);
    const int64_t streams = simt::num_streams();
    try {
      const CudaTableStore store(plan, tables.weights(), tables.images, 0, options);
      ADD_FAILURE() << "loaded into too little memory";
    } catch (const out_of_device_memory& error) {
      for (const char* part : {"film 6656", "user ", "tag ", is_updatable ? "updates " : ""}) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
      EXPECT_EQ(error.needed_bytes(), needed);
      EXPECT_EQ(error.free_bytes(), needed - 1);
    }
    EXPECT_EQ(simt::allocated_bytes() + simt::pinned_bytes(), 0);
    EXPECT_EQ(simt::num_streams(), streams);

    config.device_bytes = needed;
    reset(config);
    EXPECT_EQ(message_of([&] { CudaTableStore(plan, tables.weights(), tables.images, 0, options); }), "");
  }
}

TEST(CudaTableStore, CopiesALargeTableInPieces) {
  reset();
  TestTables tables("cuda_large_table");
  tables.add("film", TestTables::As::direct, DType::f16, 8, 1, false);
  constexpr int64_t num_rows = (int64_t{9} << 20) / 16;
  std::vector<uint16_t> rows(num_rows * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = (i * 40503 + (i >> 16)) & 0xbfff;  // finite
  tables.tensors["film"] = stored(DType::f16, {num_rows, 8}, rows);
  simt::clear_calls();
  const CudaTableStore store(tables.plan(), tables.weights(), {}, 0);
  EXPECT_EQ(simt::calls().copies_to_device.count, 3);
  EXPECT_EQ(std::memcmp(store.find("film")->view.rows, rows.data(), rows.size() * 2), 0);
}
#endif

#if !defined(__CUDACC__)
/// Pieces of 4 MB, of which each core takes some, and the last is short.
TEST(CudaTableStore, FillsTheHostsMemoryByAllCores) {
  if (build == Build::race) GTEST_SKIP() << "too many bytes to be watched";
  constexpr int64_t num_rows = 90'001, dim = 150;
  std::mt19937_64 random(1);
  std::vector<uint16_t> halves(num_rows * dim);
  std::vector<int8_t> bytes(num_rows * dim);
  for (uint16_t& value : halves) value = random() & 0xbfff;  // finite
  for (int8_t& value : bytes) value = static_cast<int8_t>(random());
  std::vector<float> scales(num_rows), offsets(num_rows);
  for (size_t i = 0; i < num_rows; ++i) scales[i] = static_cast<float>(i), offsets[i] = -static_cast<float>(i);
  TestTables tables("cuda_tables_on_host");
  for (const char* name : {"f16", "i8"}) tables.infos.push_back({name, dim, false, 0});
  tables.tensors["f16"] = stored(DType::f16, {num_rows, dim}, halves);
  tables.tensors["i8"] = stored(DType::i8, {num_rows, dim}, bytes);
  tables.tensors["i8.scale"] = stored(DType::f32, {num_rows}, scales);
  tables.tensors["i8.offset"] = stored(DType::f32, {num_rows}, offsets);
  const Plan plan = tables.plan();
  const Weights weights = tables.weights();
  for (const Placement where : {Placement::host, Placement::cached}) {
    LoadOptions options = placed(where);
    for (const int64_t pace : {int64_t{0}, int64_t{1} << 40}) {
      SCOPED_TRACE(name_of_enum(where) + std::string(pace == 0 ? "" : ", with a pace"));
      reset();
      options.most_bytes_per_second = pace;
      const CudaTableStore store(plan, weights, {}, 0, options);
      const TableView &of_halves = store.find("f16")->view, &of_bytes = store.find("i8")->view;
      int64_t wrong = 0;
      for (int64_t row = 0; row < num_rows; ++row) {
        const auto i = static_cast<size_t>(row);
        wrong += std::memcmp(of_halves.row(row), halves.data() + i * dim, 2 * dim) != 0;
        wrong += std::memcmp(of_bytes.row(row), bytes.data() + i * dim, dim) != 0;
        const auto* const numbers = reinterpret_cast<const float*>(
            reinterpret_cast<const unsigned char*>(of_bytes.scale) + row * of_bytes.scale_stride_bytes);
        wrong += numbers[0] != scales[i] || numbers[1] != offsets[i];
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}
#endif

TEST(CudaTableStore, RefusesWhatTheHostRefuses) {
  reset();
  const auto expect_refused = [](const std::string& what, const auto& change) {
    SmallTables tables("cuda_wrong_tables");
    change(tables);
    const Plan plan = tables.plan();
    const std::string host = message_of([&] { HostTableStore(plan, tables.weights(), tables.images); });
    const std::string cuda = message_of([&] { CudaTableStore(plan, tables.weights(), tables.images, 0); });
    EXPECT_NE(host.find(what), std::string::npos) << host;
    EXPECT_EQ(cuda, host);
#if !defined(__CUDACC__)
    EXPECT_EQ(simt::allocated_bytes(), 0);
#endif
  };
  expect_refused("tensor 'film'", [](TestTables& t) { t.tensors.erase("film"); });
  expect_refused("[any, 99]", [](TestTables& t) { t.infos[0].dim = 99; });
  expect_refused("'film.default'", [](TestTables& t) { t.tensors["film.default"].shape = {10, 10}; });
  expect_refused("'user.scale'", [](TestTables& t) { t.tensors.erase("user.scale"); });
  expect_refused("'user.keys'", [](TestTables& t) { t.tensors.erase("user.keys"); });
  expect_refused("key 5",
                 [](TestTables& t) { t.tensors["user.keys"] = stored(DType::i64, {20}, std::vector<int64_t>(20, 5)); });
  expect_refused("one that none reads", [](TestTables& t) { t.tensors["other"] = t.tensors["film"]; });
  expect_refused("table 'tag': ", [](TestTables& t) { t.infos[2].dim = 5; });
  expect_refused("table 'other'", [](TestTables& t) { t.images["other"] = t.images["tag"]; });
  expect_refused("agree with their checksum", [](TestTables& t) {
    const std::string path = t.images.at("tag")->path();
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(-1, std::ios::end);
    const int last = file.get();
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last + 1));
    file.close();
    t.images["tag"] = std::make_shared<const HashTableFile>(path);
  });
  const SmallTables tables("cuda_no_device");
  EXPECT_THROW(CudaTableStore(tables.plan(), tables.weights(), tables.images, 1000), cuda_error);
}

// --- updates

using namespace table_update_testing;  // NOLINT: tables whose rows have versions

const LoadOptions updatable{true, 0.5, {}};

class PlacedUpdate : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(, PlacedUpdate, testing::Values(Placement::device, Placement::host, Placement::cached),
                         [](const auto& info) { return name_of_enum(info.param); });

TEST_P(PlacedUpdate, DoesWhatAMapDoes) {
  reset();
  std::vector<VersionedTable> tables = tables_of_all_types();
  CudaTableStore store(plan_of(tables), weights_of(tables), {}, 0, placed(GetParam(), updatable));
  const std::vector<int64_t> keys = first_keys(70);
  const LookUps look_ups(store, tables, keys);
  std::mt19937_64 random(1);
  for (int64_t version = 1; version <= (build == Build::plain ? 12 : 3); ++version) {
    const TestUpdate update = random_update(tables, version, random);
    EXPECT_EQ(store.update(update.weights()), update.report);
    look_ups.launch();
    if (version % 2 == 0) store.pass_over_caches();
    for (size_t t = 0; t < tables.size(); ++t) {
      const std::vector<Row> rows = look_ups.rows(t);
      for (size_t i = 0; i < keys.size(); ++i)
        ASSERT_EQ(rows[i], tables[t].expected(keys[i])) << tables[t].name << ", key " << keys[i];
    }
  }
}

TEST_P(PlacedUpdate, BatchesInFlightSeeWholeRows) {
  const int num_seeds = build == Build::plain ? 12 : build == Build::gpu ? 3 : 4;
  const std::vector<int64_t> keys = first_keys(64);
  for (int seed = 1; seed <= num_seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    reset(in_turns(seed));
    // 40 keys fill most of four buckets: some are displaced, and their slots are needed again soon.
    std::vector<VersionedTable> tables{versioned_table("direct_i8", DType::i8, 13, false, first_keys(64)),
                                       versioned_table("direct_f16", DType::f16, 3, false, first_keys(64)),
                                       versioned_table("hashed_f32", DType::f32, 128, true, first_keys(40)),
                                       versioned_table("hashed_f16", DType::f16, 3, true, first_keys(40)),
                                       versioned_table("hashed_i8", DType::i8, 256, true, first_keys(40))};
    const auto store = std::make_shared<CudaTableStore>(plan_of(tables), weights_of(tables), HashTableFiles{}, 0,
                                                        placed(GetParam(), LoadOptions{true, 0.1, {}}));
    Reader readers[] = {Reader(store), Reader(store)};
    std::vector<std::vector<VersionedTable>> history{tables};
    std::vector<std::pair<std::unique_ptr<LookUps>, size_t>> launched;  // and how many updates had returned
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto launch = [&](Reader& reader) {
      launched.emplace_back(std::make_unique<LookUps>(*store, tables, keys), history.size() - 1);
      reader.launch(*launched.back().first);
    };
    for (int64_t version = 1; version <= 4; ++version) {
      launch(readers[0]);
      launch(readers[1]);
      const TestUpdate update = random_update(tables, version, random);
      if (random() % 2 == 0) store->pass_over_caches();
      EXPECT_EQ(store->update(update.weights()), update.report);
      history.push_back(tables);
      if (random() % 2 == 0) store->pass_over_caches();
      launch(readers[random() % 2]);
      if (random() % 3 == 0) synchronize(readers[0].stream.get());
    }
    for (const auto& [look_ups, first] : launched)
      for (size_t t = 0; t < tables.size(); ++t) {
        const std::vector<Row> rows = look_ups->rows(t);
        for (size_t i = 0; i < keys.size(); ++i) {
          // Of direct tables a batch sees what was there when it was launched, but where rows are found by a hash.
          const bool is_found = tables[t].is_hashed || GetParam() == Placement::cached;
          const size_t last = is_found ? history.size() - 1 : first;
          size_t at = first;
          while (at <= last && rows[i] != history[at][t].expected(keys[i])) ++at;
          ASSERT_LE(at, last) << tables[t].name << ", key " << keys[i] << ", launched after " << first << " updates";
        }
      }
  }
}

TEST_P(PlacedUpdate, RowsOfDirectTablesAreWrittenBetweenBatches) {
  const std::vector<int64_t> keys = first_keys(40);
  const auto run = [&] {
    std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 16, false, keys)};
    const auto store = std::make_shared<CudaTableStore>(plan_of(tables), weights_of(tables), HashTableFiles{}, 0,
                                                        placed(GetParam(), updatable));
    Reader first(store), second(store);
    std::vector<float> rows;
    for (const int64_t key : keys)
      for (const float x : tables[0].row({key, 1})) rows.push_back(x);
    const DeviceArray<int64_t> new_keys(keys);
    const DeviceArray<float> new_rows(rows);
    const LookUps before(*store, tables, keys), after(*store, tables, keys);
    // Nobody waits for anything in between.
    first.launch(before);
    store->updates()->queue_rows(store->find("t")->view,
                                 {new_keys.data(), reinterpret_cast<const unsigned char*>(new_rows.data()), 64, 40});
    second.launch(after);
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(before.rows(0)[i], tables[0].row({keys[i], 0}));
      EXPECT_EQ(after.rows(0)[i], tables[0].row({keys[i], 1}));
    }
  };
  kernel_testing::in_every_order(run, build == Build::plain ? 10 : 4);
}

TEST(CudaTableUpdate, TriesAgainWhatHasToWaitForBatches) {
  reset();
  std::vector<VersionedTable> tables{versioned_table("t", DType::f32, 16, true, first_keys(40))};
  const auto store = std::make_shared<CudaTableStore>(plan_of(tables), weights_of(tables), HashTableFiles{}, 0,
                                                      LoadOptions{true, 0, {}});
  Reader reader(store);
  const LookUps look_ups(*store, tables, first_keys(40));
  reader.launch(look_ups);
  std::vector<KeyVersion> all;
  for (const int64_t key : first_keys(40)) all.push_back({key, 1});
  TestUpdate update;
  add_changes(tables[0], all, {}, update);
#if !defined(__CUDACC__)
  simt::clear_calls();
#endif
  EXPECT_EQ(store->update(update.weights()), update.report);
#if !defined(__CUDACC__)
  EXPECT_GT(simt::calls().synchronizations, 3) << "in a bucket of ten keys, five rows have a place aside";
#endif
  // Places of erased keys are used again and again, as long as epochs become safe.
  for (int64_t version = 2; version < (build == Build::plain ? 20 : 6); ++version) {
    TestUpdate next;
    const int64_t gone = 40 * (version - 2), come = 40 * (version - 1);
    std::vector<KeyVersion> written;
    std::vector<int64_t> erased;
    for (int64_t i = 0; i < 40; ++i) {
      written.push_back({come + i, version});
      erased.push_back(gone + i);
    }
    add_changes(tables[0], written, erased, next);
    next.report["t"] = {0, 40, 40, 0, 0};
    reader.launch(look_ups);
    ASSERT_EQ(store->update(next.weights()), next.report) << version;
  }
}

TEST(CudaTableUpdate, RefusesHashedRowsThatLookUpsReadInParts) {
  reset();
  for (const auto& [type, most] : {std::pair(DType::f32, 128), std::pair(DType::f16, 256), std::pair(DType::i8, 256)}) {
    const auto message = [&, t = type](int64_t dim, bool hashed, const LoadOptions& options) {
      const std::vector<VersionedTable> tables{versioned_table("user", t, dim, hashed, first_keys(5))};
      return message_of([&] { CudaTableStore(plan_of(tables), weights_of(tables), {}, 0, options); });
    };
    EXPECT_EQ(message(most + 1, true, updatable),
              "table 'user': expected at most " + std::to_string(most) + " columns of " + name_of(type) +
                  ", as it is hashed and updatable on a GPU, got " + std::to_string(most + 1));
    EXPECT_EQ(message(most, true, updatable), "");
    EXPECT_EQ(message(most + 1, false, updatable), "");
    EXPECT_EQ(message(most + 1, true, {}), "");
  }
}

TEST(CudaTableUpdate, RefusesWhatTheHostRefuses) {
  reset();
  std::vector<VersionedTable> tables{versioned_table("film", DType::i8, 3, false, first_keys(5)),
                                     versioned_table("user", DType::f32, 2, true, first_keys(5))};
  const Plan plan = plan_of(tables);
  CudaTableStore store(plan, weights_of(tables), {}, 0, updatable), fixed(plan, weights_of(tables), {}, 0);
  HostTableStore host(plan, weights_of(tables), {}, updatable), fixed_host(plan, weights_of(tables), {});
  const auto refusal = [](TableStore& of, const TestUpdate& update) {
    return message_of([&] { of.update(update.weights()); });
  };
  TestUpdate update;
  tables[0].add_rows({{1, 2}, {5, 2}}, false, update.tensors);
  tables[1].add_rows({{1, 2}}, false, update.tensors);
  EXPECT_NE(refusal(store, update), "");
  EXPECT_EQ(refusal(store, update), refusal(host, update));
  EXPECT_EQ(refusal(fixed, update), refusal(fixed_host, update));
  const LookUps look_ups(store, tables, {1});
  look_ups.launch();
  EXPECT_EQ(look_ups.rows(1)[0], tables[1].expected(1));
}

}}  // namespace warprank
