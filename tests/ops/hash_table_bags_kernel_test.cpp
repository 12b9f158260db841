// SPDX-License-Identifier: Apache-2.0

// Embedding bags of hashed tables: rows that change meanwhile, and ids that are asked for again and again.

#define WARPRANK_KERNELS_OF_HASH_TABLE  // some are weakened: compiled here, with those of the library
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "ops/hash_table_testing.hpp"
#include "support/counts.hpp"
#include "warprank/ops/embedding_bag.cuh"

namespace {

using namespace hash_table_testing;  // NOLINT: these are its tests
using warprank::BagFeature;
using warprank::EmbeddingBag;
using warprank::LookupCounters;
using warprank::Matrix;
using warprank::Pooling;

constexpr int64_t dim = 16;
const Format format{DType::f32, dim};

std::vector<int64_t> some_keys(int64_t count) {
  std::mt19937_64 random(5);
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back(static_cast<int64_t>(random()));
  return keys;
}

/// A look-up of keys in flight, each a bag: one id for each row, or with offsets, as bags of one id.
class BagLookUp {
 public:
  BagLookUp(const HashTableView& table, const std::vector<int64_t>& keys, bool in_bags, Stream stream)
      : keys_(keys, stream),
        y_(std::vector<float>(keys.size() * dim, 0.f), stream),
        counters_(std::vector<LookupCounters>(1), stream) {
    const int64_t bags = keys_.size();
    BagFeature feature;
    feature.table.type = DType::f32, feature.table.dim = dim;
    feature.hashed = table;
    warprank::IdArray ids;
    ids.ids = keys_.data();
    ids.num_ids.capacity = bags;
    if (in_bags) {
      std::vector<int64_t> offsets;
      for (int64_t b = 0; b <= bags; ++b) offsets.push_back(b);
      offsets_ = std::make_unique<Staged<int64_t>>(offsets, stream);
      ids.offsets = offsets_->data();
      feature.pooling = Pooling::sum, feature.max_bag_ids = 1;
    }
    feature.ids = ids;
    feature.num_bags.capacity = bags;
    feature.y = Matrix<float>(y_.data(), bags, dim);
    feature.counters = counters_.data();
    op_ = std::make_unique<EmbeddingBag>(warprank::Span<const BagFeature>(&feature, 1));
    const auto bytes = op_->descriptors();
    descriptors_ =
        std::make_unique<Staged<unsigned char>>(std::vector<unsigned char>(bytes.begin(), bytes.end()), stream);
    op_->launch({descriptors_->data()}, stream);
  }

  /// Waits, and gives each key's row.
  std::vector<std::vector<float>> rows() const {
    const std::vector<float> all = y_.read();
    std::vector<std::vector<float>> rows;
    for (auto row = all.begin(); row != all.end(); row += dim) rows.emplace_back(row, row + dim);
    return rows;
  }
  LookupCounters counters() const { return counters_.read()[0]; }

 private:
  Staged<int64_t> keys_;
  std::unique_ptr<Staged<int64_t>> offsets_;
  Staged<float> y_;
  Staged<LookupCounters> counters_;
  std::unique_ptr<EmbeddingBag> op_;
  std::unique_ptr<Staged<unsigned char>> descriptors_;
};

bool is_version(const std::vector<float>& row, int64_t key, uint64_t version) {
  const Row bytes = row_of(key, version, format.bytes());
  for (size_t c = 0; c < row.size(); ++c) {
    float expected = 0;
    std::memcpy(&expected, &bytes[c * sizeof expected], sizeof expected);
    if (std::isnan(expected) ? !std::isnan(row[c]) : row[c] != expected) return false;
  }
  return true;
}

/// Look-ups in one stream while rows are replaced in another: the first thing that is wrong, or nothing.
template <class Protocol>
std::string look_up_while_updating(uint64_t seed) {
  Config config;
  config.seed = seed;
  config.preemption = 2;
  config.resident_blocks = 6;
  reset(config);
  constexpr uint64_t rounds = 4;
  const std::vector<int64_t> keys = some_keys(40);
  try {
    // Every other time keys spill and overflow.
    Table table(format, seed % 2 == 0 ? Size{4, 4, 2} : Size{8});
    table.insert(keys, 0);
    std::vector<std::unique_ptr<BagLookUp>> look_ups;
    std::vector<std::unique_ptr<Update>> updates;
    for (uint64_t version = 1; version <= rounds; ++version) {
      for (const bool in_bags : {false, true}) {
        look_ups.push_back(std::make_unique<BagLookUp>(table.view(), keys, in_bags, table.readers));
      }
      updates.push_back(
          std::make_unique<Update>(table.view(), keys, version, table.epochs.begin(), table.updates, Protocol{}));
      table.epochs.end(table.updates);
      if (version % 2 == 0) synchronize(table.readers);
    }
    for (const auto& look_up : look_ups) {
      const auto rows = look_up->rows();
      for (size_t i = 0; i < keys.size(); ++i) {
        bool is_any = false;
        for (uint64_t version = 0; version <= rounds; ++version) is_any |= is_version(rows[i], keys[i], version);
        if (!is_any) return "a row that is no whole version of its key";
      }
      if (look_up->counters().unknown != 0) return "a key that is always there was not found";
    }
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

template <class Protocol>
std::string first_violation(int seeds) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(seeds); ++seed) {
    const std::string violation = look_up_while_updating<Protocol>(seed);
    if (!violation.empty()) return "seed " + std::to_string(seed) + ": " + violation;
  }
  return "";
}

TEST(HashTableBags, RowsAreWholeWhileTheyAreReplaced) {
  EXPECT_EQ(first_violation<warprank::detail::hashed::UpdateProtocol>(8), "");
}

TEST(HashTableBags, NoticeWhatTheProtocolLacks) {
  if (on_gpu) GTEST_SKIP() << "a GPU's own orders may show none of it";
  EXPECT_NE(first_violation<UseAgainAtOnce>(20), "");
  EXPECT_NE(first_violation<WriteInPlace>(20), "");
}

// Look-ups write nothing but their results and counters, and those once for each block.
TEST(HashTableBags, WriteNoMoreWhereOneRowIsAskedForAgainAndAgain) {
  if (on_gpu) GTEST_SKIP() << "counted by the executor";
  constexpr int64_t count = 1000;
  const std::vector<int64_t> keys = some_keys(count), same(count, keys[7]);
  for (const bool is_mutable : {false, true}) {
    reset();
    const Image image(format, keys, rows_of(keys, 1, format.bytes()), 0.8, is_mutable);
    const auto atomics_of = [&](const std::vector<int64_t>& wanted, bool in_bags) {
      synchronize();
      clear_counters();
      const BagLookUp look_up(image.view(), wanted, in_bags, Stream{});
      EXPECT_EQ(look_up.counters().ids, count);
#if defined(__CUDACC__)
      return int64_t{0};
#else
      EXPECT_LE(counters().atomics, counters().blocks);
      return counters().atomics;
#endif
    };
    for (const bool in_bags : {false, true}) EXPECT_EQ(atomics_of(same, in_bags), atomics_of(keys, in_bags));
    synchronize();
    clear_counters();
    EXPECT_TRUE(LookUp(image.view(), same, Stream{}).rows()[0]);
#if !defined(__CUDACC__)
    EXPECT_EQ(counters().atomics, 0);
#endif
  }
}

// A block takes 64 bags of these rows at once. Where there are few, the warps of one would look all keys up one line
// after another.
TEST(HashTableBagsCounts, SpreadFewBagsOverBlocks) {
  if (kernel_testing::build != kernel_testing::Build::plain) GTEST_SKIP() << "counted by the executor's plain build";
#if !defined(__CUDACC__)
  kernel_testing::CountTable table(
      {"row bytes", "bags", "capacity", "blocks", "operations", "loads", "collectives", "sectors"});
  constexpr int64_t bags = 50, length = 5;
  const std::vector<int64_t> keys = some_keys(20000);
  std::vector<int64_t> wanted(keys.begin(), keys.begin() + bags * length), offsets;
  for (int64_t b = 0; b <= bags; ++b) offsets.push_back(b * length);
  for (const Format& format : {Format{DType::f16, dim}, Format{DType::f32, dim}}) {
    std::vector<float> first;
    for (const int64_t capacity : {bags, 20 * bags, 2000 * bags}) {
      simt::Config config;
      config.multiprocessors = 132;
      config.schedule = simt::Schedule::forward;
      config.count_warps = config.count_sectors = true;
      reset(config);
      const Image image(format, keys, rows_of(keys, 1, format.bytes()), 0.8);
      DeviceArray<int64_t> device_keys(capacity * length), device_offsets(capacity + 1);
      device_keys.write(wanted), device_offsets.write(offsets);
      const DeviceArray<int64_t> count(std::vector<int64_t>{bags});
      DeviceArray<float> y(capacity * dim);
      BagFeature feature;
      feature.table.type = format.type, feature.table.dim = dim;
      feature.hashed = image.view();
      warprank::IdArray ids;
      ids.ids = device_keys.data(), ids.offsets = device_offsets.data(), ids.num_ids.capacity = capacity * length;
      feature.ids = ids;
      feature.num_bags = {capacity, count.data()};
      feature.pooling = Pooling::sum, feature.max_bag_ids = 32;
      feature.y = Matrix<float>(y.data(), capacity, dim);
      const EmbeddingBag op(warprank::Span<const BagFeature>(&feature, 1));
      const DeviceArray<unsigned char> descriptors(op.descriptors());
      synchronize();
      clear_counters();
      op.launch({descriptors.data()});
      synchronize();
      const simt::WarpOperations busiest = counters().busiest_warp;
      table.add(format.bytes(), bags, capacity, counters().blocks, busiest.total(), busiest.loads, busiest.collectives,
                counters().global_load_sectors);
      EXPECT_GE(counters().blocks, 13) << "a bag for each warp";
      EXPECT_LE(busiest.total(), 120) << "161 where a block has all bags of 64 bytes";
      std::vector<float> sums = y.read(0, bags * dim);
      if (capacity == bags) first = sums;
      EXPECT_EQ(std::memcmp(sums.data(), first.data(), sums.size() * sizeof(float)), 0);
    }
  }
#endif
}

}  // namespace
