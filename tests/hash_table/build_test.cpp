// SPDX-License-Identifier: Apache-2.0

#include "warprank/hash_table/build.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "hash_table/table_testing.hpp"
#include "warprank/hash_table/detail/sorted_keys.hpp"
#include "warprank/hash_table/detail/verify.hpp"

namespace warprank { namespace {

using test::bytes_of;
using test::highest;
using test::lowest;
using test::MadeUpRows;
using test::message_of;
using test::random_keys;
using testing::AllOf;
using testing::HasSubstr;

HashTableOptions with(double load_factor, int threads = 2) {
  HashTableOptions options;
  options.load_factor = load_factor;
  options.threads = threads;
  return options;
}

struct Format {
  DType type;
  int64_t dim;
};
/// Rows of 2 to 1024 bytes, each shape of the inline layout among them.
const std::vector<Format> formats{
    {DType::f16, 1},  {DType::f32, 1},  {DType::bf16, 4},  {DType::i8, 1},     {DType::f32, 4},   {DType::i8, 8},
    {DType::f16, 9},  {DType::f32, 8},  {DType::bf16, 24}, {DType::f32, 12},   {DType::f16, 25},  {DType::i8, 41},
    {DType::f32, 16}, {DType::f16, 64}, {DType::f32, 33},  {DType::bf16, 512}, {DType::f32, 256}, {DType::i8, 1016}};

TEST(BuildHashTable, FindsWhatAnUnorderedMapFinds) {
  uint64_t seed = 0;
  for (const Format& format : formats)
    for (const bool is_mutable : {false, true})
      for (const double load_factor : {0.5, 0.8, 0.95, 1.0}) {
        const auto size = static_cast<int64_t>(std::mt19937_64(++seed)() % 3000);
        SCOPED_TRACE(std::string(name_of(format.type)) + " x " + std::to_string(format.dim) +
                     (is_mutable ? ", mutable" : "") + ", load " + std::to_string(load_factor) + ", " +
                     std::to_string(size) + " keys");
        MadeUpRows made_up(format.type, format.dim, random_keys(size, seed), seed);
        made_up.format.is_mutable = is_mutable;
        const HashTable table = build_hash_table(made_up.format, made_up.all(), with(load_factor));
        EXPECT_EQ(table.size(), size);
        EXPECT_EQ(table.view().is_mutable, is_mutable);
        std::unordered_map<int64_t, size_t> model;
        for (size_t r = 0; r < made_up.keys.size(); ++r) model[made_up.keys[r]] = r;
        ASSERT_EQ(made_up.wrong(table), 0);
        std::vector<int64_t> others = random_keys(2 * size + 8, seed + 1000);
        for (int64_t key = -20; key < 20; ++key) others.push_back(key);
        for (const int64_t key : others) ASSERT_EQ(table.find(key) != nullptr, model.count(key) == 1) << key;
        EXPECT_NO_THROW(detail::verify("table", table.view(), 1));
      }
}

TEST(BuildHashTable, TakesAnyKey) {
  const std::vector<int64_t> keys = random_keys(8, 1);
  for (const int64_t dim : {2, 16})
    for (size_t left_out = 0; left_out < keys.size(); ++left_out) {
      std::vector<int64_t> others = keys;
      others.erase(others.begin() + static_cast<int64_t>(left_out));
      const MadeUpRows made_up(DType::f32, dim, others), alone(DType::f32, dim, {keys[left_out]});
      const HashTable table = build_hash_table(made_up.format, made_up.all());
      EXPECT_EQ(made_up.wrong(table), 0);
      EXPECT_EQ(table.find(keys[left_out]), nullptr) << keys[left_out];
      const HashTable small = build_hash_table(alone.format, alone.all());
      for (const int64_t key : keys) EXPECT_EQ(small.find(key) != nullptr, key == keys[left_out]) << key;
    }
}

TEST(BuildHashTable, TellsKeysApartThatDifferInOneHalfAlone) {
  for (const int64_t dim : {2, 16})  // keys among the rows, and apart from them
    for (const int shift : {0, 32}) {
      std::vector<int64_t> keys, others;
      for (int64_t i = 0; i < 200; ++i)
        (i % 2 == 0 ? keys : others).push_back((i << shift) + (shift == 0 ? int64_t{77} << 32 : 77));
      const MadeUpRows made_up(DType::f32, dim, keys);
      const HashTable table = build_hash_table(made_up.format, made_up.all(), with(1.0));
      EXPECT_EQ(made_up.wrong(table), 0);
      for (const int64_t key : others) EXPECT_EQ(table.find(key), nullptr) << key;
    }
}

TEST(BuildHashTable, OfNoKeysFindsNothing) {
  for (const bool is_mutable : {false, true}) {
    const HashTable table = build_hash_table({DType::f32, 16, is_mutable}, HashTableChunk{});
    EXPECT_EQ(table.size(), 0);
    for (const int64_t key : random_keys(100, 1)) EXPECT_EQ(table.find(key), nullptr) << key;
    EXPECT_NO_THROW(detail::verify("table", table.view(), 1));
  }
}

TEST(BuildHashTable, GivesTheSameBytesForAnyThreadsChunksAndOrderOfRows) {
  for (const int64_t dim : {3, 16}) {
    const MadeUpRows made_up(DType::f32, dim, random_keys(300000, 3));
    const std::string expected = bytes_of(build_hash_table(made_up.format, made_up.all(), with(0.95, 1)));
    for (const int threads : {2, 7})
      EXPECT_TRUE(bytes_of(build_hash_table(made_up.format, made_up.all(), with(0.95, threads))) == expected)
          << threads;

    const HashTableStream in_chunks = [&, begin = size_t{0}]() mutable {
      const size_t count = std::min<size_t>(begin % 7 * 5000 + 1, made_up.keys.size() - begin);
      const HashTableChunk chunk = made_up.chunk(begin, count);
      begin = count == 0 ? 0 : begin + count;
      return chunk;
    };
    EXPECT_TRUE(bytes_of(build_hash_table(made_up.format, in_chunks, with(0.95))) == expected);

    MadeUpRows reversed = made_up;
    std::reverse(reversed.keys.begin(), reversed.keys.end());
    const auto bytes = static_cast<size_t>(made_up.bytes());
    for (size_t r = 0; r < made_up.keys.size(); ++r)
      std::copy_n(made_up.rows.data() + r * bytes, bytes, reversed.rows.data() + (made_up.keys.size() - 1 - r) * bytes);
    EXPECT_TRUE(bytes_of(build_hash_table(reversed.format, reversed.all(), with(0.95))) == expected);
  }
}

/// How many lines look-ups read, over the buckets in which a key is looked for.
struct Lines {
  double hit = 0, miss = 0;
  int most = 0;
};
Lines lines_of(const HashTable& table, const std::vector<int64_t>& keys) {
  const HashTableView& view = table.view();
  const auto count = [&](int64_t key) {
    const unsigned char* row = table.find(key);
    hash_table::ProbeSequence probes(view.placement, static_cast<uint64_t>(key));
    const uint64_t map = hash_table::map_of(view.shape, view.line(probes.bucket()));
    int lines = 1;
    while (row < view.bucket(probes.bucket()) || row >= view.bucket(probes.bucket() + 1)) {
      if (!probes.next(map)) break;
      ++lines;
    }
    return lines;
  };
  Lines lines;
  for (const int64_t key : keys) {
    lines.hit += count(key);
    lines.most = std::max(lines.most, count(key));
  }
  lines.hit /= static_cast<double>(keys.size());
  std::mt19937_64 random(99);
  constexpr int misses = 200000;
  for (int i = 0; i < misses; ++i) {
    const int probes = count(static_cast<int64_t>(random()));
    lines.miss += probes;
    lines.most = std::max(lines.most, probes);
  }
  lines.miss /= misses;
  return lines;
}

TEST(BuildHashTable, ReadsFewLinesAtLoad80) {
  struct Case {
    int64_t dim;
    int num_keys;
    double hit, miss;  // the design's
  };
  for (const Case& c : {Case{16, 14, 1.07, 1.65}, Case{4, 5, 1.29, 3.2}, Case{8, 3, 1.55, 4.8}}) {
    const MadeUpRows made_up(DType::f32, c.dim, random_keys(400000, 5));
    const HashTable table = build_hash_table(made_up.format, made_up.all(), with(0.8));
    ASSERT_EQ(table.view().shape.num_keys(), c.num_keys);
    const Lines lines = lines_of(table, made_up.keys);
    EXPECT_LE(lines.hit, c.hit) << c.dim;
    EXPECT_LE(lines.miss, c.miss) << c.dim;
    RecordProperty("lines_per_hit_" + std::to_string(c.num_keys), std::to_string(lines.hit));
  }
}

TEST(BuildHashTable, KeepsEveryLookUpWithinTheStoredBoundAtLoad95AndWhenFull) {
  for (const int64_t dim : {1, 4, 8, 12, 16})
    for (const double load_factor : {0.95, 1.0}) {
      SCOPED_TRACE("dim " + std::to_string(dim) + ", load " + std::to_string(load_factor));
      const MadeUpRows made_up(DType::f32, dim, random_keys(200000, 6));
      const HashTable table = build_hash_table(made_up.format, made_up.all(), with(load_factor));
      EXPECT_EQ(made_up.wrong(table), 0);
      EXPECT_LE(lines_of(table, made_up.keys).most, table.view().placement.max_probes);
      EXPECT_LE(table.view().placement.max_probes, 8);
      if (dim == 16 && load_factor == 0.95) {
        EXPECT_EQ(table.view().placement.num_overflow, 0u);
      }
    }
}

TEST(BuildHashTable, SurvivesKeysMadeToCollide) {
  std::vector<int64_t> same_first;
  for (uint64_t hash = 0; hash < 20000; ++hash) same_first.push_back(static_cast<int64_t>(detail::unmix64(hash)));
  // Of 150 keys at load 0.8: all in the same two buckets of the 14, and with the same window in the overflow, where at
  // most 84 fit. Another seed has to be taken.
  std::vector<int64_t> same_buckets;
  hash_table::Placement placement;
  placement.num_buckets = 14;
  for (uint64_t i = 0; same_buckets.size() < 150; ++i) {
    const uint64_t hash = i << 33;
    if (placement.first_bucket(hash) == 0 && placement.second_bucket(hash) == 1)
      same_buckets.push_back(static_cast<int64_t>(detail::unmix64(hash)));
  }
  for (const std::vector<int64_t>& keys : {same_first, same_buckets}) {
    const MadeUpRows made_up(DType::f32, 16, keys);
    const HashTable table = build_hash_table(made_up.format, made_up.all());
    EXPECT_EQ(made_up.wrong(table), 0);
    EXPECT_LE(lines_of(table, keys).most, table.view().placement.max_probes);
    EXPECT_EQ(table.view().placement.seed != 0, keys == same_buckets);
  }
}

TEST(BuildHashTable, LeavesRoomForTheKeysOfItsCapacity) {
  const MadeUpRows made_up(DType::f32, 16, random_keys(100, 7));
  HashTableOptions options = with(0.5);
  options.capacity = 100000;
  const HashTable table = build_hash_table({DType::f32, 16, true}, made_up.all(), options);
  EXPECT_EQ(made_up.wrong(table), 0);
  EXPECT_EQ(table.view().placement.num_buckets, 14286u);  // 100000 / (14 * 0.5), rounded up
  EXPECT_GT(table.view().placement.num_overflow, 0u);
  options.capacity = 99;
  EXPECT_EQ(message_of([&] { build_hash_table(made_up.format, made_up.all(), options); }),
            "hash table: capacity: expected at least the 100 keys, got 99");
}

TEST(BuildHashTable, TakesMoreThan2To31Slots) {
  const MadeUpRows made_up(DType::f32, 1, random_keys(24, 8));
  HashTableOptions options = with(0.75);
  options.capacity = (int64_t{1} << 31) + 1;
  const HashTable table = build_hash_table(made_up.format, made_up.all(), options);
  EXPECT_GT(table.view().placement.num_buckets * static_cast<uint64_t>(table.view().shape.num_slots),
            uint64_t{1} << 31);
  EXPECT_EQ(made_up.wrong(table), 0);
  int64_t beyond = 0;
  for (const int64_t key : made_up.keys) beyond += table.find(key) - table.view().buckets > int64_t{1} << 33;
  EXPECT_GT(beyond, 0);
  for (const int64_t key : random_keys(64, 9))
    EXPECT_EQ(table.find(key) != nullptr, std::count(made_up.keys.begin(), made_up.keys.end(), key) == 1);
}

TEST(BuildHashTable, NamesTheKeysThatOccurTwice) {
  const auto message = [](std::vector<int64_t> keys) {
    const MadeUpRows made_up(DType::f32, 2, std::move(keys));
    return message_of([&] { build_hash_table(made_up.format, made_up.all()); });
  };
  EXPECT_EQ(message({5, 7, 9, 7}), "key 7 of a hash table: expected one row, got rows 1 and 3");
  EXPECT_EQ(message({lowest, 1, lowest}),
            "key -9223372036854775808 of a hash table: expected one row, got rows 0 and 2");
  EXPECT_EQ(message({4, -3, 4, -3, 4}),
            "3 problems:\n  key 4 of a hash table: expected one row, got rows 0 and 2\n"
            "  key -3 of a hash table: expected one row, got rows 1 and 3\n"
            "  key 4 of a hash table: expected one row, got rows 0 and 4");
  const std::string many = message(std::vector<int64_t>(200001, 6));
  EXPECT_THAT(many, AllOf(HasSubstr("rows 0 and 16"), HasSubstr("200000 rows too many")));
  EXPECT_THAT(many, testing::Not(HasSubstr("rows 0 and 17")));
}

TEST(BuildHashTable, RefusesRowsAndOptionsOutOfRange) {
  const MadeUpRows made_up(DType::f32, 2, {1, 2, 3});
  const auto message = [&](const HashTableRows& rows, const HashTableOptions& options = {}) {
    return message_of([&] { build_hash_table(rows, made_up.all(), options); });
  };
  EXPECT_EQ(message({DType::i64, 2}), "hash table: row type: expected F32, F16, BF16 or I8, got I64");
  EXPECT_EQ(message({DType::f32, 0}), "hash table: dim: expected at least 1, got 0");
  EXPECT_EQ(message({DType::f32, 257}), "hash table: row: expected at most 1024 bytes, got F32 x 257");
  EXPECT_EQ(message({DType::i8, 1017}), "hash table: row: expected at most 1024 bytes, got I8 x 1017");
  EXPECT_THAT(message({DType::f32, highest}), HasSubstr("at most 1024 bytes"));
  for (const double load_factor : {0.0, -1.0, 1.01, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(message({DType::f32, 2}, with(load_factor)), HasSubstr("load factor: expected above 0, at most 1"));
  EXPECT_THAT(message({DType::f32, 2}, with(0.8, -1)), HasSubstr("threads: expected at least 0, got -1"));
  HashTableOptions options;
  options.capacity = -1;
  EXPECT_THAT(message({DType::f32, 2}, options), HasSubstr("capacity: expected at least 0, got -1"));
  options.capacity = highest;
  EXPECT_THAT(message({DType::f32, 256}, options), HasSubstr("capacity: expected less than 2^63 bytes"));
  options.load_factor = 1e-9;
  EXPECT_THAT(message({DType::f32, 2}, options), HasSubstr("capacity: expected less than 2^62 buckets"));
}

TEST(BuildHashTable, RefusesChunksAndStreamsThatDoNotFit) {
  const MadeUpRows made_up(DType::f32, 2, {1, 2, 3}), bytes(DType::i8, 2, {1, 2, 3});
  const auto message = [](const HashTableRows& rows, const HashTableChunk& chunk) {
    return message_of([&] { build_hash_table(rows, chunk); });
  };
  HashTableChunk chunk = made_up.all();
  chunk.rows = nullptr;
  EXPECT_THAT(message(made_up.format, chunk), HasSubstr("chunk: expected keys and rows, got a null pointer"));
  chunk = made_up.all();
  chunk.count = -1;
  EXPECT_THAT(message(made_up.format, chunk), HasSubstr("rows of a chunk: expected 0 or more, got -1"));
  chunk = bytes.all();
  chunk.scale = nullptr;
  EXPECT_THAT(message(bytes.format, chunk), HasSubstr("scale and offset: expected both of I8 rows"));
  chunk = made_up.all();
  chunk.scale = bytes.scale.data();
  EXPECT_THAT(message(made_up.format, chunk), HasSubstr("scale and offset: expected both of I8 rows, none of others"));

  const std::vector<int64_t> other{1, 4, 3}, more{1, 2, 3, 4};
  const std::vector<float> rows(8);
  for (const HashTableChunk& second :
       {HashTableChunk{3, other.data(), rows.data()}, HashTableChunk{2, other.data(), rows.data()},
        HashTableChunk{4, more.data(), rows.data()}, HashTableChunk{}}) {
    int call = 0;
    const HashTableStream stream = [&] {
      ++call;
      return call == 1 ? made_up.all() : call == 3 ? second : HashTableChunk{};
    };
    EXPECT_THAT(message_of([&] { build_hash_table(made_up.format, stream); }),
                HasSubstr("second pass of its stream: expected the 3 keys of the first"));
  }
}

TEST(BuildHashTable, TellsHowFarItIsAndEndsWhenTold) {
  const MadeUpRows made_up(DType::f32, 2, random_keys(5000, 10));
  std::vector<std::string> steps;
  int64_t last = 0;
  HashTableOptions options = with(0.8);
  options.progress = [&](const HashTableProgress& progress) {
    if (steps.empty() || steps.back() != progress.step) {
      steps.push_back(progress.step);
      last = 0;
    }
    EXPECT_GE(progress.done, last);
    last = progress.done;
  };
  build_hash_table(made_up.format, made_up.all(), options);
  EXPECT_EQ(steps, (std::vector<std::string>{"keys", "buckets", "rows"}));
  EXPECT_EQ(last, 5000);
  options.progress = [](const HashTableProgress&) { throw std::runtime_error("enough"); };
  EXPECT_THROW(build_hash_table(made_up.format, made_up.all(), options), std::runtime_error);
}

TEST(HashTableChunks, ComeFromTensors) {
  const StoredTensor keys = make_tensor<int64_t>({2}, {5, -6}), rows = make_tensor<float>({2, 2}, {1, 2, 3, 4});
  const HashTable table = build_hash_table({DType::f32, 2}, chunk_of(keys.view(), rows.view()));
  float row[2];
  std::memcpy(row, table.find(-6), sizeof row);
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 4);

  const StoredTensor bytes = make_tensor<int8_t>({2, 2}, {1, 2, 3, 4}), scale = make_tensor<float>({2}, {1, 2});
  const StoredTensor three = make_tensor<float>({3}, {1, 2, 3});
  const TensorView scale_view = scale.view(), three_view = three.view();
  EXPECT_NO_THROW(build_hash_table({DType::i8, 2}, chunk_of(keys.view(), bytes.view(), &scale_view, &scale_view)));
  EXPECT_EQ(message_of([&] { chunk_of(scale.view(), rows.view()); }),
            "hash table: keys: expected I64 [n], got F32 [2]");
  EXPECT_THAT(message_of([&] { chunk_of(keys.view(), scale.view()); }),
              HasSubstr("rows: expected F32, F16, BF16 or I8 [2, dim], got F32 [2]"));
  EXPECT_THAT(message_of([&] { chunk_of(keys.view(), bytes.view(), &scale_view, &three_view); }),
              HasSubstr("offset: expected F32 [2], got F32 [3]"));
  EXPECT_THAT(message_of([&] { chunk_of(keys.view(), bytes.view()); }), HasSubstr("scale: expected F32 [2], got none"));
  EXPECT_THAT(message_of([&] { chunk_of(keys.view(), rows.view(), &scale_view); }),
              HasSubstr("scale: expected none beside rows that are not I8"));
}

TEST(HashTableChunks, MayLieAnywhere) {
  const MadeUpRows made_up(DType::i8, 5, random_keys(1000, 11));
  const auto misaligned = [](const auto& values, std::vector<unsigned char>& into) -> const void* {
    into.resize(values.size() * sizeof(values[0]) + 1);
    std::memcpy(into.data() + 1, values.data(), into.size() - 1);
    return into.data() + 1;
  };
  std::vector<unsigned char> keys, rows, scale, offset;
  const HashTableChunk chunk{1000, misaligned(made_up.keys, keys), misaligned(made_up.rows, rows),
                             misaligned(made_up.scale, scale), misaligned(made_up.offset, offset)};
  EXPECT_EQ(made_up.wrong(build_hash_table(made_up.format, chunk)), 0);
}

}}  // namespace warprank
