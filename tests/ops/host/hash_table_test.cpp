// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/host/hash_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hash_table/table_testing.hpp"
#include "support/host_op_testing.hpp"
#include "warprank/hash_table/build.hpp"

namespace warprank { namespace {

using test::MadeUpRows;
using test::random_keys;
using test_support::for_each_target;

/// Keys of the table and others, in turns of random length.
std::vector<int64_t> some_of(const std::vector<int64_t>& keys, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> some;
  for (int64_t i = 0; i < count; ++i)
    some.push_back(random() % 3 == 0 || keys.empty()
                       ? static_cast<int64_t>(random() % 5 == 0 ? random() : random() % 9 - 4)
                       : keys[random() % keys.size()]);
  return some;
}

void expect_rows(const HashTableView& table, const std::vector<int64_t>& wanted) {
  static const unsigned char untouched = 0;
  std::vector<const unsigned char*> rows(wanted.size() + 1, &untouched);
  host_ops::find_rows(table, wanted, rows.data());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(rows[i], find_row(table, wanted[i])) << wanted[i];
  EXPECT_EQ(rows.back(), &untouched);
}

TEST(FindRows, FindsWhatSingleLookUpsFind) {
  for_each_target([] {
    for (const int64_t dim : {1, 4, 6, 8, 12, 16, 40})
      for (const bool is_mutable : {false, true})
        for (const double load_factor : {0.6, 1.0})
          for (const int64_t size : {0, 1, 20, 5000}) {
            SCOPED_TRACE(std::to_string(size) + " rows of " + std::to_string(dim) + (is_mutable ? ", mutable" : ""));
            MadeUpRows made_up(DType::f32, dim, random_keys(size, 1));
            made_up.format.is_mutable = is_mutable;
            HashTableOptions options;
            options.load_factor = load_factor;
            options.threads = 1;
            const HashTable table = build_hash_table(made_up.format, made_up.all(), options);
            for (const int64_t count : {0, 1, 31, 32, 33, 2000})
              expect_rows(table.view(), some_of(made_up.keys, count, static_cast<uint64_t>(count)));
          }
  });
}

TEST(FindRows, FollowsTheMapWhereverAnUpdateHasPutTheRow) {
  const MadeUpRows made_up(DType::f32, 16, random_keys(40, 2));
  const HashTable table = build_hash_table({DType::f32, 16, true}, made_up.all());
  const HashTableView& view = table.view();
  int num_changed = 0;
  for (uint64_t b = 0; b < view.num_buckets(); ++b) {
    uint64_t& map = view.line(b)[hash_table::map_word];
    if (hash_table::slot_at(map, 1) != 1) continue;
    ++num_changed;
    // What an update of position 1 and an erasure at position 0 leave behind, before its key is overwritten.
    std::memcpy(view.row(b, 14), view.row(b, 1), 64);
    std::memset(view.row(b, 1), 0, 64);
    map = hash_table::with_slot(hash_table::with_slot(map, 1, 14), 0, hash_table::no_slot);
    const auto erased = static_cast<int64_t>(view.line(b)[0]), moved = static_cast<int64_t>(view.line(b)[1]);
    for_each_target([&] {
      const std::vector<int64_t> keys{erased, moved};
      const unsigned char* rows[2];
      host_ops::find_rows(view, keys, rows);
      EXPECT_EQ(rows[0], nullptr);
      EXPECT_EQ(rows[1], view.row(b, 14));
    });
  }
  EXPECT_GT(num_changed, 0);
}

TEST(FindRows, ReachesBucketsBeyond2To31Slots) {
  HashTableView view;
  view.dim = 1;
  view.row_bytes = 4;
  view.is_mutable = true;
  view.shape = hash_table::shape_of(4, true);
  view.placement.num_buckets = (uint64_t{1} << 31) / hash_table::header_positions * 5 / 4;
  Pages memory = Pages::zeroed(static_cast<int64_t>(view.placement.num_buckets) * view.shape.bucket_bytes);
  view.buckets = memory.data();
  const std::vector<int64_t> keys = random_keys(16, 3);
  int64_t beyond = 0;
  for (const int64_t key : keys) {
    const uint64_t bucket = view.placement.first_bucket(view.placement.hash(static_cast<uint64_t>(key)));
    // By the format, so that an address which is cut off finds something else.
    unsigned char* const bytes = memory.data() + static_cast<int64_t>(bucket) * view.shape.bucket_bytes;
    auto* const line = reinterpret_cast<uint64_t*>(bytes);
    line[5] = static_cast<uint64_t>(key);
    line[hash_table::map_word] = hash_table::with_slot(hash_table::empty_map, 5, 9);
    std::memcpy(bytes + view.shape.rows_begin + 9 * view.shape.row_stride, &key, 4);
    beyond += bucket * 14 > uint64_t{1} << 31;
  }
  EXPECT_GT(beyond, 0);
  for_each_target([&] {
    std::vector<const unsigned char*> rows(keys.size());
    host_ops::find_rows(view, keys, rows.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_NE(rows[i], nullptr);
      EXPECT_EQ(std::memcmp(rows[i], &keys[i], 4), 0);
    }
  });
}

}}  // namespace warprank
