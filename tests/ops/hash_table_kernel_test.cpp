// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/hash_table.cuh"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "ops/hash_table_testing.hpp"
#include "warprank/hash_table/build.hpp"

namespace {

using namespace hash_table_testing;  // NOLINT: these are its tests
using warprank::detail::UpdateProtocol;

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
                                     {DType::f32, 12}, {DType::i8, 37},  {DType::f32, 16}, {DType::bf16, 65},
                                     {DType::i8, 200}, {DType::f32, 256}};

// ---- One at a time

TEST(HashTable, DoesWhatAMapDoes) {
  for (const Format& format : {Format{DType::f32, 16}, Format{DType::f16, 3}}) {
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

}  // namespace
