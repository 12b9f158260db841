// SPDX-License-Identifier: Apache-2.0
#define WARPRANK_KERNELS_OF_HASH_TABLE  // some are weakened: compiled here, with those of the library
#include "warprank/ops/hash_table.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "ops/hash_table_testing.hpp"

namespace {

using namespace hash_table_testing;  // NOLINT: these are its tests
using warprank::detail::hashed::UpdateProtocol;

const std::vector<int64_t> special_keys = {0,
                                           1,
                                           -1,
                                           -2,
                                           -3,
                                           -4,
                                           2,
                                           3,
                                           std::numeric_limits<int64_t>::min(),
                                           std::numeric_limits<int64_t>::min() + 1,
                                           std::numeric_limits<int64_t>::max(),
                                           std::numeric_limits<int64_t>::max() - 1};

/// The special keys and others, `count` in all.
std::vector<int64_t> some_keys(int count) {
  std::vector<int64_t> keys = special_keys;
  std::mt19937_64 random(5);
  while (static_cast<int>(keys.size()) < count) keys.push_back(static_cast<int64_t>(random()));
  keys.resize(static_cast<size_t>(count));
  return keys;
}

const std::vector<Format> formats = {{DType::f32, 1},  {DType::f16, 1},  {DType::f16, 3},  {DType::bf16, 9},
                                     {DType::f32, 12}, {DType::i8, 36},  {DType::f32, 16}, {DType::bf16, 65},
                                     {DType::i8, 200}, {DType::f32, 256}};

// ---- One at a time

TEST(HashTable, DoesWhatAMapDoes) {
  for (const Format& format : {Format{DType::f32, 16}, Format{DType::i8, 37}}) {
    SCOPED_TRACE(format.text());
    int operations = 0;
    in_every_order(
        [&] {
          std::mt19937 random(static_cast<unsigned>(++operations));
          Table table(format, {4, 4, 2});
          std::unordered_map<int64_t, uint64_t> model;
          std::vector<int64_t> universe = some_keys(130);  // the table has room for 112
          for (uint64_t version = 1; version <= 12; ++version) {
            std::shuffle(universe.begin(), universe.end(), random);
            std::vector<int64_t> keys(universe.begin(), universe.begin() + static_cast<int>(random() % 60));
            const bool is_erase = random() % 3 == 0;
            const std::vector<Status> statuses = is_erase ? table.erase(keys) : table.insert(keys, version);
            for (size_t i = 0; i < keys.size(); ++i) {
              const bool was_there = model.count(keys[i]) != 0;
              switch (statuses[i]) {
                case Status::inserted:
                  EXPECT_TRUE(!was_there && !is_erase);
                  model[keys[i]] = version;
                  break;
                case Status::updated:
                  EXPECT_TRUE(was_there && !is_erase);
                  model[keys[i]] = version;
                  break;
                case Status::erased:
                  EXPECT_TRUE(was_there && is_erase);
                  model.erase(keys[i]);
                  break;
                case Status::absent:
                  EXPECT_TRUE(!was_there && is_erase);
                  break;
                case Status::full:
                  EXPECT_TRUE(!was_there && !is_erase);
                  break;
                case Status::deferred:
                  break;
              }
            }
            EXPECT_EQ(table.size(), model.size());
            if (random() % 2 == 0) table.pass_grace();
            const auto rows = table.find(universe);
            for (size_t i = 0; i < universe.size(); ++i) {
              const auto expected = model.find(universe[i]);
              ASSERT_EQ(rows[i].has_value(), expected != model.end()) << universe[i];
              if (rows[i]) {
                ASSERT_EQ(*rows[i], row_of(universe[i], expected->second, format.bytes())) << universe[i];
              }
            }
          }
        },
        5);
  }
}

TEST(HashTable, FindsRowsOfAnyTypeAndLength) {
  for (const Format& format : formats) {
    SCOPED_TRACE(format.text());
    const std::vector<int64_t> keys = some_keys(60);
    const std::vector<int64_t> here(keys.begin(), keys.begin() + 45), not_here(keys.begin() + 45, keys.end());
    const std::vector<unsigned char> rows = rows_of(here, 7, format.bytes());
    const auto expect_rows = [&](const std::vector<std::optional<Row>>& found) {
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(found[i].has_value(), i < here.size()) << keys[i];
        if (found[i]) {
          ASSERT_EQ(*found[i], row_of(keys[i], 7, format.bytes())) << keys[i];
        }
      }
    };
    const auto run = [&] {
      Table table(format, {5, 2, 1});
      EXPECT_EQ(table.insert(here, 7), std::vector<Status>(here.size(), Status::inserted));
      expect_rows(table.find(keys));
      Image image(format, here, rows, 0.9);
      expect_rows(LookUp(image.view(), keys, Stream{}).rows());
    };
    in_every_order(run, 1);
  }
}

TEST(HashTable, TellsKeysApartThatDifferInOneHalfAlone) {
  for (const Format& format : {Format{DType::f32, 2}, Format{DType::f32, 16}})  // keys among the rows, and apart
    for (const int shift : {0, 32}) {
      reset();
      std::vector<int64_t> all, keys;
      for (int64_t i = 0; i < 200; ++i) {
        all.push_back((i << shift) + (shift == 0 ? int64_t{77} << 32 : 77));
        if (i % 2 == 0) keys.push_back(all.back());
      }
      const std::vector<unsigned char> rows = rows_of(keys, 3, format.bytes());
      const Image image(format, keys, rows, 1.0);
      const std::vector<std::optional<Row>> found = LookUp(image.view(), all, Stream{}).rows();
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(found[i].has_value(), i % 2 == 0) << all[i];
        if (found[i]) {
          ASSERT_EQ(*found[i], row_of(all[i], 3, format.bytes())) << all[i];
        }
      }
    }
}

TEST(HashTable, CopiesRowsThatLieApart) {
  const Format format{DType::f16, 7};
  constexpr int64_t stride = 18;
  reset();
  Table table(format, {4});
  const std::vector<int64_t> keys = some_keys(9);
  std::vector<unsigned char> apart(keys.size() * stride);
  for (size_t i = 0; i < keys.size(); ++i) {
    const Row row = row_of(keys[i], 1, format.bytes());
    std::copy(row.begin(), row.end(), apart.begin() + static_cast<int64_t>(i) * stride);
  }
  const DeviceArray<int64_t> key_memory(keys);
  const DeviceArray<unsigned char> from(apart);
  DeviceArray<unsigned char> to(from.size(), 0);
  const Keys batch{key_memory.data(), {key_memory.size()}};
  hash_table::insert_or_assign(table.view(), batch, from.data(), stride, {1, 0}, nullptr, Stream{});
  hash_table::find(table.view(), batch, to.data(), stride, nullptr, Stream{});
  EXPECT_EQ(to.read(), apart);
}

TEST(HashTable, TakesTheNumberOfKeysFromMemoryWhenAGraphRuns) {
  const Format format{DType::f32, 4};
  reset();
  Table table(format, {4});
  const std::vector<int64_t> keys = some_keys(40);
  table.insert(keys, 1);
  const DeviceArray<int64_t> key_memory(keys);
  DeviceArray<int64_t> count(1, 0);
  DeviceArray<uint8_t> found(40, 2);
  DeviceArray<const unsigned char*> addresses(40, nullptr);
  const Keys batch{key_memory.data(), {40, count.data()}};
  const Stream stream = create_stream();
  begin_capture(stream);
  hash_table::contains(table.view(), batch, found.data(), stream);
  hash_table::find_addresses(table.view(), batch, addresses.data(), stream);
  const Graph graph = end_capture(stream);
  EXPECT_EQ(num_launches(graph), 2);
  for (const int64_t n : {0, 7, 40, 41}) {
    count.write({n});
    found.write(std::vector<uint8_t>(40, 2));
    launch(graph, stream);
    const std::vector<uint8_t> answers = found.read();
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(answers[static_cast<size_t>(i)], i < n ? 1 : 2) << i << " of " << n;
  }
  for (const unsigned char* address : addresses.read()) EXPECT_NE(address, nullptr);
}

TEST(HashTable, ExportsEveryKeyOnce) {
  for (const bool is_mutable : {false, true}) {
    in_every_order(
        [&] {
          const Format format{DType::bf16, 5};
          const std::vector<int64_t> keys = some_keys(50);
          Image image(format, keys, rows_of(keys, 3, format.bytes()), 0.9, is_mutable);
          DeviceArray<int64_t> exported(64, 0);
          DeviceArray<unsigned char> rows(64 * format.bytes(), 0);
          DeviceArray<uint64_t> count(1, 2);
          hash_table::export_all(image.view(), exported.data(), rows.data(), format.bytes(), 64, count.data(),
                                 Stream{});
          EXPECT_EQ(count.read(), std::vector<uint64_t>{52});
          std::vector<int64_t> found = exported.read(2, 50);
          EXPECT_EQ(rows.read(2 * format.bytes(), 50 * format.bytes()), rows_of(found, 3, format.bytes()));
          std::sort(found.begin(), found.end());
          std::vector<int64_t> expected = keys;
          std::sort(expected.begin(), expected.end());
          EXPECT_EQ(found, expected);
          // What does not fit is counted.
          hash_table::export_all(image.view(), exported.data(), nullptr, 0, 64, count.data(), Stream{});
          EXPECT_EQ(count.read(), std::vector<uint64_t>{102});
        },
        3);
  }
}

// ---- Full, worn and large tables

TEST(HashTable, SaysWhenItIsFullAndStillFindsEverything) {
  in_every_order(
      [] {
        Table table({DType::f32, 2}, {4, 4, 2});
        const std::vector<int64_t> keys = some_keys(200);
        const std::vector<Status> statuses = table.insert(keys, 1);
        ASSERT_EQ(std::count(statuses.begin(), statuses.end(), Status::deferred), 0) << "nothing was retired";
        const auto inserted = std::count(statuses.begin(), statuses.end(), Status::inserted);
        EXPECT_EQ(std::count(statuses.begin(), statuses.end(), Status::full), 200 - inserted);
        EXPECT_GE(inserted, table.capacity() * 3 / 4);  // a window of two overflow buckets may be full beside free ones
        EXPECT_EQ(table.size(), static_cast<uint64_t>(inserted));
        const auto rows = table.find(keys);
        for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(rows[i].has_value(), statuses[i] == Status::inserted);
        // Rows can be replaced in full buckets, which have one slot more than keys, once in a grace period.
        std::vector<int64_t> here;
        for (size_t i = 0; i < keys.size(); ++i) {
          if (rows[i]) here.push_back(keys[i]);
        }
        const std::vector<Status> again = table.insert(here, 2);
        EXPECT_GE(std::count(again.begin(), again.end(), Status::updated), 4);
        EXPECT_EQ(std::count(again.begin(), again.end(), Status::updated) +
                      std::count(again.begin(), again.end(), Status::deferred),
                  static_cast<int64_t>(here.size()));
        // Without the grace period there is no room for a new key where one was erased; with it, there is. On a GPU it
        // may have passed as soon as the key was erased, so the first update is one that does not know.
        const Epoch erasing = table.epochs.begin();
        EXPECT_EQ(table.erase({here[0]}, erasing), std::vector<Status>{Status::erased});
        table.pass_grace();
        EXPECT_EQ(table.insert_as_early_as(erasing, {here[0]}, 3), std::vector<Status>{Status::deferred});
        EXPECT_EQ(table.insert({here[0]}, 4), std::vector<Status>{Status::inserted});
      },
      5);
}

TEST(HashTable, DoesNotWear) {
  in_every_order(
      [] {
        std::mt19937_64 random(3);
        Table table({DType::f32, 1}, {4, 4, 2});
        for (int round = 0; round < 30; ++round) {
          std::vector<int64_t> keys;
          for (int i = 0; i < 60; ++i) keys.push_back(static_cast<int64_t>(random()));
          ASSERT_EQ(table.insert(keys, 1), std::vector<Status>(60, Status::inserted)) << "round " << round;
          ASSERT_EQ(table.erase(keys), std::vector<Status>(60, Status::erased)) << "round " << round;
          ASSERT_EQ(table.size(), 0u);
          table.pass_grace();
        }
        // Nothing sends a look-up on to a second bucket.
        for (uint64_t bucket = 0; bucket < table.view().num_buckets(); ++bucket) {
          EXPECT_EQ(table.word(bucket, hash_table::map_word), hash_table::empty_map);
        }
      },
      1);
}

TEST(HashTable, HasOneCopyOfAKeyThatManyInsertAtOnce) {
  in_every_order(
      [] {
        Table table({DType::f32, 16}, {4});
        const std::vector<int64_t> same(48, 12345);
        const Stream other = create_stream();
        const Epoch epoch = table.epochs.begin();
        const Update first(table.view(), same, 1, epoch, table.updates);
        const Update second(table.view(), same, 2, epoch, other);
        table.epochs.end(table.updates);
        synchronize();
        std::map<Status, int> statuses;
        for (const Status status : first.statuses) ++statuses[status];
        for (const Status status : second.statuses) ++statuses[status];
        EXPECT_EQ(statuses[Status::inserted], 1);
        EXPECT_EQ(statuses[Status::updated], 14);  // so many slots were left
        EXPECT_EQ(statuses[Status::deferred], 81);
        EXPECT_EQ(table.size(), 1u);
        const std::optional<Row> row = table.find({12345})[0];
        ASSERT_TRUE(row);
        EXPECT_TRUE(*row == row_of(12345, 1, 64) || *row == row_of(12345, 2, 64));
        EXPECT_EQ(table.erase({12345}), std::vector<Status>{Status::erased});
        EXPECT_FALSE(table.find({12345})[0]);
      },
      10);
}

TEST(HashTable, DefersWhatABucketLockedForEverNeeds) {
  reset();
  Table table({DType::f32, 1}, {4});
  table.insert({5}, 1);
  for (uint64_t bucket = 0; bucket < 4; ++bucket) {
    const uint64_t locked = hash_table::lock_bit;
    copy(&table.view().line(bucket)[hash_table::state_word], &locked, sizeof locked);
    synchronize();
  }
  EXPECT_EQ(table.insert({5, 6}, 2), std::vector<Status>(2, Status::deferred));
  EXPECT_EQ(table.erase({5}), std::vector<Status>{Status::deferred});
  EXPECT_EQ(*table.find({5})[0], row_of(5, 1, 4));  // readers do not care
}

TEST(HashTable, HasMoreThanTwoToThe31Slots) {
  if (on_gpu || build == Build::asan) GTEST_SKIP() << "takes hundreds of gigabytes, of which a few are touched";
  const std::vector<int64_t> keys = some_keys(20);
  const Format format{DType::f32, 1};
  // 2^31 + 11 buckets of one line, and 2^28 + 11 of 15 slots, in less than the 2^40 bytes that the executor has.
  for (const bool is_mutable : {false, true}) {
    reset();
    HashTableView view = view_of(format, {(uint64_t{1} << (is_mutable ? 28 : 31)) + 11, 64, 2}, is_mutable);
    DeviceArray<unsigned char> memory(static_cast<int64_t>(view.num_buckets()) * view.shape.bucket_bytes);
    DeviceArray<uint64_t> size(1, 0);
    view.buckets = memory.data();
    view.size = size.data();
    std::vector<std::optional<Row>> rows;
    for (const int64_t key : keys) {
      const uint64_t hash = view.placement.hash(static_cast<uint64_t>(key));
      const uint64_t first = view.placement.first_bucket(hash);
      for (int probe = 0; probe < 4; ++probe) {
        const uint64_t bucket = view.placement.bucket(hash, probe);
        std::vector<uint64_t> line(16, view.placement.foreign_key(bucket));
        line[14] = hash_table::empty_map;
        line[15] = 0;
        if (!is_mutable && bucket == first) {
          const Row row = row_of(key, 1, 4);
          std::copy(row.begin(), row.end(), reinterpret_cast<unsigned char*>(line.data()));
          line[8] = static_cast<uint64_t>(key);  // of slot 0 of 7
          line[15] = 1;
        }
        // By the format, so that an address which is cut off finds something else.
        copy(memory.data() + static_cast<int64_t>(bucket) * view.shape.bucket_bytes, line.data(), 128);
        synchronize();
      }
    }
    if (is_mutable) {
      const Update update(view, keys, 1, {1, 0}, Stream{});
      synchronize();
      EXPECT_EQ(update.statuses, std::vector<Status>(keys.size(), Status::inserted));
    }
    const auto found = LookUp(view, keys, Stream{}).rows();
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(found[i]) << i;
      EXPECT_EQ(*found[i], row_of(keys[i], 1, 4));
    }
  }
}

// ---- What it costs

/// Sectors that look-ups of keys request, beyond those of the keys themselves.
double sectors_per_key(const HashTableView& table, const std::vector<int64_t>& keys) {
  const DeviceArray<int64_t> key_memory(keys);
  DeviceArray<unsigned char> rows(key_memory.size() * table.row_bytes);
  synchronize();
  clear_counters();
  hash_table::find(table, {key_memory.data(), key_memory.size()}, rows.data(), table.row_bytes, nullptr, Stream{});
  synchronize();
  if constexpr (on_gpu) {
    return NAN;
  } else {
    return static_cast<double>(counters().global_load_sectors) / static_cast<double>(keys.size()) - 0.25;
  }
}

TEST(HashTable, RequestsFewMoreSectorsThanKeysAndARow) {
  if (build != Build::plain) GTEST_SKIP() << "the same counts as in the plain build";
  struct Case {
    Format format;
    bool is_mutable;
    double row_sectors, line_sectors;      // that are read of a row, and of a line
    double lines_per_hit, lines_per_miss;  // at most
  };
  std::mt19937_64 random(11);
  std::vector<int64_t> keys, others;
  for (int i = 0; i < 1 << 15; ++i) keys.push_back(static_cast<int64_t>(random()));
  for (int i = 0; i < 1 << 13; ++i) others.push_back(static_cast<int64_t>(random()));
  const std::vector<int64_t> hits(keys.begin(), keys.begin() + (1 << 13));
  for (const Case& c : {Case{{DType::f32, 16}, true, 2, 4, 1.07, 1.65}, Case{{DType::f32, 16}, false, 2, 4, 1.07, 1.65},
                        Case{{DType::f32, 64}, true, 8, 4, 1.07, 1.65}, Case{{DType::f32, 2}, false, 1, 4, 1.1, 1.25},
                        Case{{DType::f32, 4}, false, 1, 3, 1.13, 1.25}, Case{{DType::f32, 8}, false, 1, 2, 1.2, 1.3},
                        Case{{DType::f32, 12}, false, 2, 2, 1.3, 1.35}}) {
    SCOPED_TRACE(c.format.text() + (c.is_mutable ? ", mutable" : ""));
    Config config;
    config.count_sectors = true;
    reset(config);
    Image image(c.format, keys, rows_of(keys, 1, c.format.bytes()), 0.8, c.is_mutable);
    const double minimum = c.line_sectors + c.row_sectors;
    const double hit = sectors_per_key(image.view(), hits), miss = sectors_per_key(image.view(), others);
    RecordProperty("sectors_per_hit_and_miss_of_" + std::to_string(c.format.bytes()),
                   std::to_string(hit) + " " + std::to_string(miss));
    EXPECT_LE(hit, c.row_sectors + c.line_sectors * c.lines_per_hit);
    EXPECT_LE(miss, c.line_sectors * c.lines_per_miss);
    if (image.view().shape.layout == hash_table::Layout::header) {
      EXPECT_LE(hit, 1.15 * minimum);
    }
  }
}

// ---- Misuse

TEST(HashTable, RefusesWhatItCannotDo) {
  using warprank::invalid_argument;
  reset();
  Table table({DType::f16, 6}, {4, 4, 2});
  const std::vector<int64_t> keys = some_keys(4);
  const DeviceArray<int64_t> key_memory(keys);
  DeviceArray<unsigned char> rows(64, 0);
  DeviceArray<uint8_t> found(4, 0);
  const Keys batch{key_memory.data(), {4}};
  const auto with = [&](auto change) {
    HashTableView view = table.view();
    change(view);
    return view;
  };
  synchronize();
  clear_counters();
  for (const HashTableView& view :
       {with([](auto& v) { v.placement.num_buckets = 0; }), with([](auto& v) { v.placement.max_probes = 5; }),
        with([](auto& v) { v.placement.max_probes = 1; }), with([](auto& v) { v.buckets = nullptr; }),
        with([](auto& v) { v.buckets += 64; }), with([](auto& v) { v.dim = 7; }),
        with([](auto& v) { v.row_bytes = 1026, v.dim = 513; }), with([](auto& v) { v.shape.row_stride = 32; }),
        with([](auto& v) { v.shape.bucket_bytes = 256; }), HashTableView{}}) {
    EXPECT_THROW(hash_table::contains(view, batch, found.data(), Stream{}), invalid_argument);
    EXPECT_THROW(hash_table::clear(view, Stream{}), invalid_argument);
  }
  const HashTableView& view = table.view();
  EXPECT_THROW(hash_table::contains(view, {nullptr, 4}, found.data(), Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::contains(view, {key_memory.data(), -1}, found.data(), Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::contains(view, batch, nullptr, Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::find_addresses(view, batch, nullptr, Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::find(view, batch, rows.data(), 10, nullptr, Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::find(view, batch, rows.data(), 13, nullptr, Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::find(view, batch, rows.data() + 1, 12, nullptr, Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::find(view, batch, nullptr, 12, nullptr, Stream{}), invalid_argument);
  EXPECT_THROW(hash_table::export_all(view, nullptr, nullptr, 0, 4, nullptr, Stream{}), invalid_argument);
  for (const Epoch& epoch : {Epoch{0, 0}, Epoch{3, 3}, Epoch{hash_table::max_epoch + 1, 3}}) {
    EXPECT_THROW(hash_table::insert_or_assign(view, batch, rows.data(), 12, epoch, nullptr, Stream{}),
                 invalid_argument);
    EXPECT_THROW(hash_table::erase(view, batch, epoch, nullptr, Stream{}), invalid_argument);
  }
  const HashTableView immutable = view_of({DType::f16, 6}, {4}, false);
  EXPECT_THROW(
      erase(with([&](auto& v) { v.shape = immutable.shape, v.is_mutable = false; }), batch, {1, 0}, nullptr, Stream{}),
      invalid_argument);
  EXPECT_THROW(hash_table::erase(with([](auto& v) { v.size = nullptr; }), batch, {1, 0}, nullptr, Stream{}),
               invalid_argument);
  // Nothing to do is no mistake.
  hash_table::find(view, {}, nullptr, 12, nullptr, Stream{});
  hash_table::insert_or_assign(view, {}, nullptr, 12, {1, 0}, nullptr, Stream{});
  if constexpr (!on_gpu) {
    EXPECT_EQ(counters().launches, 0);
  }
}

// ---- Readers and updates together

/// What a look-up may answer: versions of keys that are always there, from those that were known to be in the table
/// when it was launched; any version of those that come and go.
struct Reading {
  std::unique_ptr<LookUp> look_up;
  std::map<int64_t, uint64_t> at_least;
};

/// Look-ups in one stream while keys are changed, erased and inserted in another. Returns the first thing that is
/// wrong, or nothing.
template <class Protocol>
std::string read_while_updating(uint64_t seed) {
  Config config;
  config.seed = seed;
  config.preemption = 2;
  config.resident_blocks = 6;
  reset(config);
  constexpr uint64_t rounds = 4;
  const Format format{DType::f32, 16};
  // Every other time so many keys that they spill and overflow.
  const bool is_tight = seed % 2 == 0;
  const int part = is_tight ? 28 : 18;
  const std::vector<int64_t> all = some_keys(3 * part);
  const std::vector<int64_t> stable(all.begin(), all.begin() + part);
  std::vector<int64_t> coming(all.begin() + part, all.begin() + 2 * part), going(all.begin() + 2 * part, all.end());
  try {
    std::mt19937 random(static_cast<unsigned>(seed));
    Table table(format, is_tight ? Size{4, 4, 2} : Size{4});
    std::map<int64_t, uint64_t> known;  // versions that updates are known to have written
    table.insert(stable, 0);
    table.insert(going, 0);
    for (const int64_t key : stable) known[key] = 0;
    const auto is_version = [&](const Row& row, int64_t key, uint64_t at_least) {
      for (uint64_t version = at_least; version <= rounds; ++version) {
        if (row == row_of(key, version, format.bytes())) return true;
      }
      return false;
    };
    std::vector<Reading> readings;
    std::vector<std::unique_ptr<Export>> exports;
    std::vector<std::unique_ptr<Update>> updates;
    size_t num_known = 0;
    for (uint64_t version = 1; version <= rounds; ++version) {
      readings.push_back({std::make_unique<LookUp>(table.view(), all, table.readers), known});
      std::vector<int64_t> changing = stable;
      std::shuffle(changing.begin(), changing.end(), random);
      changing.resize(8);
      Epoch epoch = table.epochs.begin();
      updates.push_back(std::make_unique<Update>(table.view(), changing, version, epoch, table.updates, Protocol{}));
      updates.push_back(std::make_unique<Update>(table.view(), going, std::nullopt, epoch, table.updates, Protocol{}));
      table.epochs.end(table.updates);
      readings.push_back({std::make_unique<LookUp>(table.view(), all, table.readers), known});
      exports.push_back(std::make_unique<Export>(table.view(), 2 * table.capacity(), table.readers));
      epoch = table.epochs.begin();
      updates.push_back(std::make_unique<Update>(table.view(), coming, version, epoch, table.updates, Protocol{}));
      table.epochs.end(table.updates);
      std::swap(coming, going);
      if (random() % 2 == 0) {
        synchronize(table.updates);
        for (; num_known < updates.size(); ++num_known) {
          const Update& update = *updates[num_known];
          for (size_t i = 0; i < update.keys().size(); ++i) {
            if (update.version && update.statuses[i] == Status::updated) known[update.keys()[i]] = *update.version;
          }
        }
      }
      if (random() % 3 == 0) synchronize(table.readers);
    }
    for (const Reading& reading : readings) {
      const auto rows = reading.look_up->rows();
      for (size_t i = 0; i < all.size(); ++i) {
        const auto at_least = reading.at_least.find(all[i]);
        const bool always_there = at_least != reading.at_least.end();
        if (!rows[i]) {
          if (always_there && i < stable.size()) return "a key that is always there was not found";
          continue;
        }
        if (!is_version(*rows[i], all[i], always_there ? at_least->second : 0)) {
          return "a row that is no whole version of its key, or an old one";
        }
      }
    }
    for (const auto& exported : exports) {
      std::map<int64_t, int> times;
      for (const auto& [key, row] : exported->read()) {
        if (!is_version(row, key, 0)) return "a row was exported that is no whole version of its key";
        ++times[key];
      }
      for (const int64_t key : stable) {
        if (times[key] != 1) return "a key that is always there was exported " + std::to_string(times[key]) + " times";
      }
    }
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

/// Look-ups of erased keys while their positions, after the grace period, are given to other keys.
template <class Protocol>
std::string read_while_positions_pass_on(uint64_t seed) {
  Config config;
  config.seed = seed;
  config.preemption = 2;
  config.resident_blocks = 6;
  reset(config);
  const std::vector<int64_t> all = some_keys(40);
  std::vector<int64_t> coming(all.begin(), all.begin() + 20), going(all.begin() + 20, all.end());
  try {
    Table table({DType::f32, 1}, {4});
    for (int round = 0; round < 4; ++round) {
      std::vector<int64_t> often;
      for (int i = 0; i < 12; ++i) often.insert(often.end(), going.begin(), going.end());
      const LookUp of_gone(table.view(), often, table.readers);
      const Update update(table.view(), coming, 1, table.epochs.begin(), table.updates, Protocol{});
      table.epochs.end(table.updates);
      for (const auto& row : of_gone.rows()) {
        if (row) return "a row was found for a key that was erased before";
      }
      const Update end(table.view(), coming, std::nullopt, table.epochs.begin(), table.updates, Protocol{});
      table.epochs.end(table.updates);
      table.pass_grace();
      std::swap(coming, going);
    }
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

/// What is wrong in the first of some schedules in which something is.
template <class Scenario>
std::string first_violation(Scenario scenario, int seeds) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(seeds); ++seed) {
    const std::string violation = scenario(seed);
    if (!violation.empty()) return "seed " + std::to_string(seed) + ": " + violation;
  }
  return "";
}

TEST(HashTable, RowsAreWholeWhileTheyAreReplaced) {
  EXPECT_EQ(first_violation([](uint64_t seed) { return read_while_updating<UpdateProtocol>(seed); }, 12), "");
}

TEST(HashTable, KeysThatWereErasedStayUnknownWhenTheirPlacesAreUsedAgain) {
  EXPECT_EQ(first_violation([](uint64_t seed) { return read_while_positions_pass_on<UpdateProtocol>(seed); }, 20), "");
}

TEST(HashTable, AnEpochIsSafeWhenItsReadersAreDone) {
  reset();
  Table table({DType::f32, 16}, {4});
  const std::vector<int64_t> keys = some_keys(32);
  table.insert(keys, 0);
  table.pass_grace();
  const uint64_t before = table.epochs.poll();
  const Epoch epoch = table.epochs.begin();
  EXPECT_EQ(epoch.current, before + 1);
  EXPECT_EQ(epoch.safe, before);
  EXPECT_THROW(table.epochs.begin(), warprank::invalid_argument);
  const LookUp reader(table.view(), keys, table.readers);
  const Update update(table.view(), keys, 1, epoch, table.updates);
  table.epochs.end(table.updates);
  EXPECT_THROW(table.epochs.end(table.updates), warprank::invalid_argument);
  synchronize(table.updates);
  if constexpr (!on_gpu) {  // where a reader may be done before anybody asks
    EXPECT_EQ(table.epochs.poll(), before);
  }
  synchronize(table.readers);
  table.epochs.poll();
  synchronize();
  EXPECT_EQ(table.epochs.poll(), epoch.current);
  EXPECT_THROW(table.epochs.add_reader(table.readers), warprank::invalid_argument);
  table.epochs.remove_reader(table.readers);
  EXPECT_THROW(table.epochs.remove_reader(table.readers), warprank::invalid_argument);
}

TEST(HashTable, HalvesOfLinesFromBeforeAndAfterAnUpdateFindNoWrongRow) {
  const auto run = [](auto map_first, bool look_for_the_new_one) {
    Table table({DType::f32, 1}, {4});
    // Two keys of one bucket.
    const std::vector<int64_t> keys = some_keys(40);
    const auto bucket_of = [&](int64_t key) {
      return table.view().placement.first_bucket(table.view().placement.hash(static_cast<uint64_t>(key)));
    };
    const int64_t before = keys[0];
    const auto other =
        std::find_if(keys.begin() + 1, keys.end(), [&](int64_t key) { return bucket_of(key) == bucket_of(before); });
    ASSERT_NE(other, keys.end());
    const int64_t after = *other, wanted = look_for_the_new_one ? after : before;
    table.insert({before}, 1);
    table.pass_grace();
    DeviceArray<uint32_t> flags(2, 0), found(3, 0);
    Update erase(table.view(), {before}, std::nullopt, table.updates);
    Update insert(table.view(), {after}, 1, table.updates);
    synchronize();
    const Epoch erasing = table.epochs.begin(), inserting{erasing.current + 1, erasing.safe};
    // One graph: the host does nothing between launches of which one waits for another.
    begin_capture(table.updates);
    const Event begin = create_event(), end = create_event();
    record(begin, table.updates);
    wait(table.readers, begin);
    warprank::device::launch({1, 32, 0, table.readers}, read_in_two_halves<decltype(map_first)::value>, table.view(),
                             static_cast<uint64_t>(wanted), flags.data(), found.data());
    warprank::device::launch({1, 1, 0, table.updates}, wait_for, flags.data());
    erase.launch(erasing, table.updates);
    insert.launch(inserting, table.updates);
    warprank::device::launch({1, 1, 0, table.updates}, set, flags.data() + 1);
    record(end, table.readers);
    wait(table.updates, end);
    const Graph graph = end_capture(table.updates);
    kernel_testing::launch(graph, table.updates);
    insert.copy_statuses(table.updates);
    const std::vector<uint32_t> result = found.read();
    EXPECT_EQ(insert.statuses, std::vector<Status>{Status::inserted});
    if (result[2] != 0) std::printf("The GPU did not run the launches side by side.\n");
    if (result[0] == 0) return;
    uint32_t row = 0;
    std::memcpy(&row, row_of(wanted, 1, 4).data(), sizeof row);
    EXPECT_EQ(result[1], row) << "the row of another key";
  };
  for (const bool look_for_the_new_one : {false, true}) {
    in_every_order([&] { run(std::false_type{}, look_for_the_new_one); }, 3);
    in_every_order([&] { run(std::true_type{}, look_for_the_new_one); }, 3);
  }
}

// Each weakening of the protocol must be noticed; otherwise the tests above would show nothing.

template <class Protocol>
std::string violation_of_updates() {
  return first_violation([](uint64_t seed) { return read_while_updating<Protocol>(seed); }, 20);
}

TEST(HashTable, ReadersNoticeWhatTheProtocolLacks) {
  if (on_gpu) GTEST_SKIP() << "a GPU's own orders may show none of it";
  if (build == Build::race) {  // where relaxed stores are late
    EXPECT_NE(violation_of_updates<PublishRelaxed>(), "");
  }
  EXPECT_NE(violation_of_updates<UseAgainAtOnce>(), "");
  EXPECT_NE(violation_of_updates<WriteInPlace>(), "");
  EXPECT_NE(violation_of_updates<TakeNoLock>(), "");
  EXPECT_NE(first_violation([](uint64_t seed) { return read_while_positions_pass_on<KeepErasedKeys>(seed); }, 20), "");
}

}  // namespace
