// SPDX-License-Identifier: Apache-2.0

// tools/load_redis with a real cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../tools/load_redis/loader.hpp"
#include "support/folder.hpp"
#include "support/program.hpp"
#include "support/redis_servers.hpp"
#include "support/store_testing.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/hash_table/file.hpp"
#include "warprank/host.hpp"
#include "warprank/store/redis_cluster.hpp"
#include "warprank/weights/safetensors.hpp"

namespace warprank { namespace {

using namespace test_support;
using namespace std::chrono_literals;
using testing::HasSubstr;

/// A table's tensors, whose rows are those of bytes_of_row.
struct Tensors {
  Tensors(const std::string& table, const StoredRows& rows, const std::vector<int64_t>& keys, bool has_keys) {
    const auto count = static_cast<int64_t>(keys.size());
    StoredTensor values{rows.type, {count, rows.dim}, {}};
    std::vector<float> scale, offset;
    for (const int64_t key : keys) {
      const std::vector<unsigned char> row = bytes_of_row(rows, key);
      const auto* bytes = reinterpret_cast<const std::byte*>(row.data());
      values.bytes.insert(values.bytes.end(), bytes, bytes + rows.dim * size_of(rows.type));
      if (rows.type != DType::i8) continue;
      scale.push_back(load_element<float>(bytes + row.size() - 8, 0));
      offset.push_back(load_element<float>(bytes + row.size() - 4, 0));
    }
    all[has_keys ? table + ".rows" : table] = values;
    if (has_keys) all[table + ".keys"] = make_tensor<int64_t>({count}, keys);
    if (rows.type != DType::i8) return;
    all[table + ".scale"] = make_tensor<float>({count}, scale);
    all[table + ".offset"] = make_tensor<float>({count}, offset);
  }
  void save(const std::string& path) const {
    std::map<std::string, TensorView> views;
    for (const auto& [name, tensor] : all) views[name] = tensor.view();
    write_safetensors(path, views);
  }
  std::map<std::string, StoredTensor> all;
};

class LoadRedisTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (has_redis_server()) servers_ = std::make_unique<RedisClusterServers>("load_redis");
  }
  static void TearDownTestSuite() { servers_ = nullptr; }
  void SetUp() override {
    if (servers_ == nullptr) GTEST_SKIP() << "redis-server is not installed";
    options_.nodes = servers_->addresses();
    options_.connect_timeout = options_.command_timeout = a_long_time;
    store_ = std::make_unique<RedisCluster>(options_);
  }

  std::unique_ptr<Program> start(std::vector<std::string> words) const {
    words.insert(words.begin(), WARPRANK_LOAD_REDIS);
    if (std::find(words.begin(), words.end(), "--node") == words.end())
      words.insert(words.end(), {"--node", options_.nodes[0].text()});
    return std::make_unique<Program>(std::move(words), folder_.path() + "output");
  }
  Program::Ended run(const std::vector<std::string>& words) const { return start(words)->end(); }
  std::string path(const std::string& name) const { return folder_.path() + name; }

  bool has(const StoredTable& table, const std::vector<int64_t>& keys) const {
    const Answers answers = get(*store_, table, keys);
    return answers.count(StoreStatus::ok) == static_cast<int64_t>(keys.size()) &&
           answers.rows == bytes_of_rows(table.rows, keys);
  }

  Folder folder_{"load_redis_files"};
  RedisCluster::Options options_;
  std::unique_ptr<RedisCluster> store_;
  static std::unique_ptr<RedisClusterServers> servers_;
};
std::unique_ptr<RedisClusterServers> LoadRedisTest::servers_;

TEST_F(LoadRedisTest, LoadsTensorsOfAllTypes) {
  int number = 0;
  for (const StoredRows& rows : rows_of_all_types())
    for (const bool has_keys : {true, false}) {
      if (rows.type == DType::i8) continue;  // whose rows have bytes between, which are 0 in a table
      const StoredTable table{"t" + std::to_string(number++), rows};
      const std::vector<int64_t> keys = keys_from(has_keys ? -1000 : 0, 3000);
      Tensors(table.name, rows, keys, has_keys).save(path("t.safetensors"));
      const Program::Ended ended = run({table.name, path("t.safetensors")});
      EXPECT_EQ(ended.status, 0) << ended.text;
      EXPECT_THAT(ended.text, HasSubstr("3000 rows, 3000 in the store"));
      EXPECT_TRUE(has(table, keys));
      EXPECT_EQ(store_->describe(table.name, soon()), rows);
    }
}

TEST_F(LoadRedisTest, LoadsScalesAndOffsets) {
  const StoredTable table{"scaled", {DType::i8, 16}};  // no bytes between
  const std::vector<int64_t> keys = keys_from(7, 500);
  Tensors(table.name, table.rows, keys, true).save(path("t.safetensors"));
  EXPECT_EQ(run({table.name, path("t.safetensors")}).status, 0);
  EXPECT_TRUE(has(table, keys));
}

TEST_F(LoadRedisTest, LoadsImagesOfBothLayouts) {
  for (const bool is_mutable : {true, false}) {
    const StoredTable table{is_mutable ? "changing" : "fixed", {DType::f16, 8}};
    const std::vector<int64_t> keys = keys_from(-500, 2000);
    const std::vector<unsigned char> rows = bytes_of_rows(table.rows, keys);
    HashTableChunk chunk;
    chunk.count = static_cast<int64_t>(keys.size());
    chunk.keys = keys.data();
    chunk.rows = rows.data();
    const HashTable built = build_hash_table({table.rows.type, table.rows.dim, is_mutable}, chunk);
    save_hash_table(path(table.name + ".hash_table"), built.image());
    const Program::Ended ended = run({table.name, path(table.name + ".hash_table")});
    EXPECT_EQ(ended.status, 0) << ended.text;
    EXPECT_TRUE(has(table, keys));
  }
}

TEST_F(LoadRedisTest, GoesOnWhereItWasKilled) {
  const StoredTable table{"film", {DType::f16, 32}};
  const std::vector<int64_t> keys = keys_from(0, 200000);
  Tensors(table.name, table.rows, keys, false).save(path("film.safetensors"));
  const std::vector<std::string> words = {"film", path("film.safetensors"), "--state", path("state")};
  std::vector<std::string> slowly = words;
  slowly.insert(slowly.end(), {"--batch", "4"});
  const std::unique_ptr<Program> process = start(slowly);
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(path("state")); }));
  process->signal(SIGKILL);
  EXPECT_EQ(process->end().status, -1);
  // What is there is not written again, and what is not comes.
  const Answers half = get(*store_, table, keys);
  ASSERT_GT(half.count(StoreStatus::ok), 100);
  ASSERT_GT(half.count(StoreStatus::absent), 100);
  erase(*store_, table, {0});
  Program::Ended ended = run(words);
  EXPECT_EQ(ended.status, 1) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("1 rows are absent, 0 damaged, 0 others"));
  EXPECT_TRUE(has(table, keys_from(1, 199999)));
  EXPECT_TRUE(std::filesystem::exists(path("state")));
  put(*store_, table, {0});
  ended = run(words);
  EXPECT_EQ(ended.status, 0) << ended.text;
  EXPECT_TRUE(has(table, keys));
  EXPECT_FALSE(std::filesystem::exists(path("state")));

  put(*store_, table, {5, 6}, 1);
  ended = run({"film", path("film.safetensors"), "--only-verify"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.text, HasSubstr("200000 rows, 199998 in the store"));
  EXPECT_THAT(ended.text, HasSubstr("0 rows are absent, 0 damaged, 2 others"));
}

// For longer than calls have patience.
TEST_F(LoadRedisTest, GoesOnWhenAServerWasSilent) {
  const StoredTable table{"slow", {DType::f16, 32}};
  const std::vector<int64_t> keys = keys_from(0, 100000);
  Tensors(table.name, table.rows, keys, false).save(path("slow.safetensors"));
  RedisServers server("load_redis_silent", 1);
  const std::string node = server.addresses()[0].text();
  const std::unique_ptr<Program> process = start({"slow", path("slow.safetensors"), "--batch", "16", "--node", node});
  std::this_thread::sleep_for(200ms);
  server.pause(0);
  std::this_thread::sleep_for(3s);
  server.go_on(0);
  const Program::Ended ended = process->end();
  EXPECT_EQ(ended.status, 0) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("100000 rows, 100000 in the store"));
}

// Sums over no rows are equal, too.
TEST(LoadRedis, TakesNothingForWholeThatWasNotCompared) {
  load_redis::Verified verified;
  EXPECT_TRUE(verified.is_whole());  // an empty table
  verified.rows = 3;
  EXPECT_FALSE(verified.is_whole());
  verified.same = 3;
  EXPECT_TRUE(verified.is_whole());
  verified.store_checksum = 1;
  EXPECT_FALSE(verified.is_whole());
}

TEST_F(LoadRedisTest, TellsWhatIsWrong) {
  const StoredTable table{"wrong", {DType::f16, 8}};
  Tensors tensors(table.name, table.rows, {1, 2, 3, 2}, true);
  tensors.save(path("t.safetensors"));
  const auto expect = [&](const std::vector<std::string>& words, const std::string& text) {
    const Program::Ended ended = run(words);
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(ended.text, HasSubstr("load_redis: "));
    EXPECT_THAT(ended.text, HasSubstr(text));
  };
  expect({"wrong", path("t.safetensors")}, "key 2: expected one row, got two, at least");
  expect({"other", path("t.safetensors")}, "tensor 'other': expected F32, F16, BF16 or I8 [n, dim], got none");
  tensors.all["wrong.keys"] = make_tensor<int64_t>({3}, {1, 2, 3});
  tensors.save(path("t.safetensors"));
  expect({"wrong", path("t.safetensors")}, "tensor 'wrong.keys': expected I64 [n], got I64 [3]");
  Tensors("wrong", {DType::i8, 4}, {1, 2}, false).save(path("t.safetensors"));
  expect({"wrong", path("t.safetensors")},
         "expected rows as the store has them, warprank 1 F16 8, got warprank 1 I8 4");
  std::ofstream(path("t.hash_table")) << "no image";
  expect({"wrong", path("t.hash_table")}, "t.hash_table");
  Tensors("wrong", table.rows, {1, 2}, true).save(path("t.safetensors"));
  std::ofstream(path("state")) << "warprank load_redis 1\nwrong, another\n1 1\n";
  expect({"wrong", path("t.safetensors"), "--state", path("state")}, "expected that of loading wrong, ");
  expect({"wrong", path("t.safetensors"), "--patience", "1", "--node", "127.0.0.1:1"}, "Connection refused");
}

}}  // namespace warprank
