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
#include <vector>

#include "hash_table/table_testing.hpp"
#include "ops/embedding_bag_testing.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/model.hpp"
#include "warprank/ops/embedding_bag.cuh"

namespace warprank {
namespace {

using namespace embedding_bag_testing;  // NOLINT: for kernels that look tables up
using cuda_backend::CudaTable;
using cuda_backend::CudaTableStore;
using host_backend::HostTableStore;
using test::message_of;

template <class Value>
StoredTensor stored(DType type, Shape shape, const std::vector<Value>& values) {
  StoredTensor tensor{type, std::move(shape), std::vector<std::byte>(values.size() * sizeof(Value))};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// A model's tables, as tensors and as images in a folder.
struct TestTables {
  explicit TestTables(const std::string& name) : folder(name) {}

  enum class As { direct, keys, image };
  void add(const std::string& name, As as, DType type, int64_t dim, int64_t num_rows, bool with_default) {
    const auto table = std::make_shared<TestTable>(type, dim, num_rows, with_default, 0, random);
    const bool hashed = as != As::direct;
    infos.push_back({name, dim, hashed, 0});
    tables[name] = table;
    if (with_default) tensors[name + ".default"] = stored(DType::f32, {dim}, table->default_row);
    if (as == As::image) {
      save_hash_table(folder.path() + name, table->hash_table(false));
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
  std::vector<TableInfo> infos;
  std::map<std::string, std::shared_ptr<TestTable>> tables;
  std::map<std::string, StoredTensor> tensors;
  HashTableFiles images;
};

TEST(CudaTableStore, HasTheRowsThatLookUpsFind) {
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
  const CudaTableStore store(plan, tables.weights(), tables.images, 0);
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
    EXPECT_EQ(found[i]->view.default_row == nullptr, tables.tables.at(tables.infos[i / 2].name)->default_row.empty());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found[i]->view.rows) % 256, 0u);
  }
  device.prepare();
  device.launch();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(tables.infos[i / 2].name);
    expect_right(all[i], device.result(i));
  }
}

/// Tables of a few rows.
struct SmallTables : TestTables {
  explicit SmallTables(const std::string& name) : TestTables(name) {
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
}

#if !defined(__CUDACC__)
TEST(CudaTableStore, NeedsNoMoreThanItSays) {
  const SmallTables tables("cuda_table_limit");
  const Plan plan = tables.plan();
  reset();
  int64_t needed = 0;
  {
    simt::clear_calls();
    const CudaTableStore store(plan, tables.weights(), tables.images, 0);
    for (const auto& [what, bytes] : store.memory()) needed += bytes;
    EXPECT_EQ(simt::calls().allocations.bytes, needed);
    EXPECT_EQ(simt::allocated_bytes(), needed);
  }
  EXPECT_EQ(simt::allocated_bytes(), 0);

  Config config;
  config.device_bytes = needed - 1;
  reset(config);
  const int64_t streams = simt::num_streams();
  try {
    const CudaTableStore store(plan, tables.weights(), tables.images, 0);
    ADD_FAILURE() << "loaded into too little memory";
  } catch (const out_of_device_memory& error) {
    for (const char* part : {"film 6656", "user ", "tag "}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_EQ(error.needed_bytes(), needed);
    EXPECT_EQ(error.free_bytes(), needed - 1);
  }
  EXPECT_EQ(simt::allocated_bytes(), 0);
  EXPECT_EQ(simt::num_streams(), streams);

  config.device_bytes = needed;
  reset(config);
  EXPECT_EQ(message_of([&] { CudaTableStore(plan, tables.weights(), tables.images, 0); }), "");
}

TEST(CudaTableStore, CopiesALargeTableInPieces) {
  reset();
  TestTables tables("cuda_large_table");
  tables.add("film", TestTables::As::direct, DType::f16, 8, 1, false);
  constexpr int64_t num_rows = (int64_t{9} << 20) / 16;
  std::vector<uint16_t> rows(num_rows * 8);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i * 40503 + (i >> 16));
  tables.tensors["film"] = stored(DType::f16, {num_rows, 8}, rows);
  simt::clear_calls();
  const CudaTableStore store(tables.plan(), tables.weights(), {}, 0);
  EXPECT_EQ(simt::calls().copies_to_device.count, 3);
  EXPECT_EQ(std::memcmp(store.find("film")->view.rows, rows.data(), rows.size() * 2), 0);
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

}  // namespace
}  // namespace warprank
