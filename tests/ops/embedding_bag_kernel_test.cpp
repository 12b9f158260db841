// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/embedding_bag.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ops/embedding_bag_testing.hpp"
#include "reference/embedding_bag.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/weights/safetensors.hpp"
#if !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAS_HOST  // with sanitizers it compiles for minutes
#include "warprank/ops/host/embedding_bag.hpp"
#endif

namespace warprank { namespace {

using namespace embedding_bag_testing;  // NOLINT: written for these tests

struct Case {
  Pooling pooling;
  int64_t weights_stride;  // 0: no weights
};
const std::vector<Case> cases{{Pooling::sum, 0},   {Pooling::sum, 1},  {Pooling::mean, 0},
                              {Pooling::mean, 1},  {Pooling::mean, 3}, {Pooling::sqrtn, 0},
                              {Pooling::sqrtn, 1}, {Pooling::max, 0},  {Pooling::none, 0}};
const std::vector<int64_t> ragged{3, 0, 1, 2, 31, 0, 0, 32, 33, 1, 70, 5, 0};

/// Features of every row type, pooling, form of ids and output, of widths that all code for rows is used by.
std::vector<TestBags> every_kind(const std::vector<int64_t>& dims, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TestBags> all;
  int variant = 0;
  for (const int64_t dim : dims) {
    for (const DType type : row_types) {
      const int64_t gap = dim % 3 == 0 ? 0 : dim % 3 == 1 ? 2 : 1;
      std::vector<std::shared_ptr<TestTable>> tables;
      for (const Scales scales : {Scales::apart, Scales::in_turns, Scales::behind}) {
        if (type != DType::i8 && scales != Scales::apart) continue;
        tables.push_back(std::make_shared<TestTable>(type, dim, 37, dim % 2 == 0, gap, random, scales));
      }
      for (const Case& c : cases) {
        const auto& table = tables[static_cast<size_t>(variant) / 3 % tables.size()];
        const Form form = c.pooling == Pooling::none ? Form::each : static_cast<Form>(variant % 3);
        const bool hashed =
            variant % 2 == 1 && hash_table::row_bytes(type, dim) >= 4 && hash_table::row_bytes(type, dim) <= 1024;
        std::vector<int64_t> sizes = ragged;
        std::rotate(sizes.begin(), sizes.begin() + variant % static_cast<int>(sizes.size()), sizes.end());
        sizes.resize(7);
        TestBags bags = make_bags(table, hashed, form, sizes, c.pooling, c.weights_stride, random);
        bags.is_mutable = variant % 4 == 3;
        bags.half_output = variant % 5 >= 3;
        bags.y_column = variant % 7 % 3;
        bags.y_gap = variant % 3;
        bags.spare_bags = variant % 4 == 0 ? 5 : 0;
        bags.rows_at = variant % 6 == 4 ? 1 : variant % 6 == 0 ? 2 : 0;
        if (table->scales == Scales::behind) bags.rows_at *= 4;
        all.push_back(std::move(bags));
        ++variant;
      }
    }
  }
  return all;
}

TEST(EmbeddingBagKernel, IsWithinItsErrorForEveryRowTypePoolingFormAndWidth) {
  std::vector<int64_t> dims{1, 3, 4, 13, 16, 33, 64, 130, 200};
  if (kernel_testing::build == Build::plain || on_gpu) {
    dims.insert(dims.end(), {2, 5, 7, 8, 12, 17, 24, 31, 32, 48, 65, 100, 128, 256, 400});
  }
  for (const int64_t dim : dims) {
    reset();
    expect_right(every_kind({dim}, static_cast<uint32_t>(dim)));
    if (HasFailure()) return;
  }
}

TEST(EmbeddingBagKernel, IsTheSameInEveryOrder) {
  std::mt19937_64 random(2);
  std::vector<TestBags> all = every_kind({4, 33}, 2);
  std::vector<TestBags> some;
  for (size_t i = 0; i < all.size(); i += 5) some.push_back(all[i]);
  const auto table = std::make_shared<TestTable>(DType::f16, 8, 50, true, 0, random);
  for (const Form form : {Form::offsets, Form::indices}) {
    for (const Case& c : {cases[3], cases[7]}) {
      some.push_back(
          make_bags(table, false, form, {3, 2 * piece + 5, 40, 3 * piece}, c.pooling, c.weights_stride, random));
    }
  }
  const std::vector<unsigned char> bytes = in_every_order([&] {
    const DeviceBags device(some);
    device.launch();
    return device.bytes();
  });
  ASSERT_FALSE(bytes.empty());
  reset();
  expect_right(some);
}

// Blocks hand what they have summed to the one that is last: by a ticket, which orders their stores before its loads.
TEST(EmbeddingBagKernel, SumsABagByTwoBlocksInAnyOrder) {
  std::mt19937_64 random(42);
  const auto table = std::make_shared<TestTable>(DType::f32, 4, 50, true, 0, random);
  const TestBags bags = make_bags(table, false, Form::offsets, {16 * piece + 3}, Pooling::mean, 1, random);
  const std::vector<unsigned char> bytes = in_every_order(
      [&] {
        const DeviceBags device({bags});
        device.launch();
        return device.bytes();
      },
      build == Build::plain ? 10 : 4);
  ASSERT_FALSE(bytes.empty());
  reset();
  expect_right(bags, look_up({bags})[0]);
}

/// A table of 5 x 4 elements: 1 to 20.
std::shared_ptr<TestTable> table_of_20(std::vector<float> rows = {}) {
  std::mt19937_64 random(1);
  auto table = std::make_shared<TestTable>(DType::f32, 4, 5, false, 0, random);
  if (rows.empty()) {
    rows.resize(20);
    std::iota(rows.begin(), rows.end(), 1.0f);
  }
  std::memcpy(table->rows.data(), rows.data(), 80);
  return table;
}

TEST(EmbeddingBagKernel, HasTheKnownAnswers) {
  using Values = std::vector<float>;
  const auto table = table_of_20();
  for (const Form form : {Form::offsets, Form::indices}) {
    const auto pool = [&](Pooling pooling, const Values& weights = {}) {
      reset();
      TestBags bags;
      bags.table = table;
      bags.form = form;
      bags.ids = {1, 3, 0, 4};
      bags.offsets = {0, 2, 4};
      bags.weights = weights;
      bags.pooling = pooling;
      return values_of<float>(bags, look_up({bags})[0]);
    };
    EXPECT_EQ(pool(Pooling::sum), (Values{18, 20, 22, 24, 18, 20, 22, 24}));
    EXPECT_EQ(pool(Pooling::mean), (Values{9, 10, 11, 12, 9, 10, 11, 12}));
    EXPECT_EQ(pool(Pooling::sum, {1, 0.5f, 1, 0.5f}), (Values{11.5, 13, 14.5, 16, 9.5, 11, 12.5, 14}));
    EXPECT_EQ(pool(Pooling::max), (Values{13, 14, 15, 16, 17, 18, 19, 20}));
    EXPECT_EQ(pool(Pooling::mean, {1, -1, 0, 0}), Values(8, 0)) << "weights whose sum is 0 give zeros";
  }
}

TEST(EmbeddingBagKernel, DividesByWeightsOfAnySize) {
  // Squares from 2^-298 to 2^255 and sums above 2^128: FP64 holds them, FP32 does not.
  std::mt19937_64 random(41);
  const auto table = std::make_shared<TestTable>(DType::f32, 12, 50, true, 0, random);
  for (float& x : table->default_row) x *= 1e-9f;
  for (int64_t r = 0; r < 50; ++r) {  // products of the largest weights are finite
    float row[12];
    unsigned char* const at = table->rows.data() + r * table->view.row_stride_bytes;
    std::memcpy(row, at, sizeof row);
    for (float& x : row) x *= 1e-9f;
    std::memcpy(at, row, sizeof row);
  }
  for (const Pooling pooling : {Pooling::mean, Pooling::sqrtn}) {
    for (const float scale : {1e-24f, 1e-18f, 1e18f, 1.9e19f, 1e25f, 1.6e38f}) {
      reset();
      std::vector<TestBags> all;
      for (const bool hashed : {false, true}) {
        all.push_back(make_bags(table, hashed, Form::offsets, {3, 1, 70, 2 * piece + 5}, pooling, 1, random));
        std::uniform_real_distribution<float> uniform(1, 2);
        for (size_t i = 0; i < all.back().ids.size(); ++i) {
          all.back().weights[i] = scale * uniform(random);
          const bool is_missing = all.back().row_of(all.back().ids[i]) == reference::the_default_row;
          if (is_missing) all.back().ids[i] = hashed ? table->keys[0] : 0;  // their weights are summed in FP32
        }
      }
      SCOPED_TRACE(scale);
      expect_right(all);
      if (HasFailure()) return;
    }
  }
  // One id each: the row itself, exactly.
  reset();
  TestBags alone;
  alone.table = table_of_20();
  alone.pooling = Pooling::sqrtn;
  alone.ids = {0, 0, 0, 0};
  alone.offsets = {0, 1, 2, 3, 4};
  alone.weights = {0x1p-149f, 0x1p-126f, 0x1p-60f, 0x1p120f};
  const std::vector<float> row{1, 2, 3, 4};
  std::vector<float> expected;
  for (size_t i = 0; i < alone.ids.size(); ++i) expected.insert(expected.end(), row.begin(), row.end());
  EXPECT_EQ(values_of<float>(alone, look_up({alone})[0]), expected);
}

TEST(EmbeddingBagKernel, KeepsWhatIsFiniteFiniteInHalfOutputs) {
  reset();
  std::vector<float> rows(20, 4e4f);
  rows[1] = -3e38f;
  rows[2] = INFINITY;
  TestBags bags;
  bags.table = table_of_20(rows);
  bags.form = Form::offsets;
  bags.ids = {0, 1};
  bags.offsets = {0, 2};
  bags.half_output = true;
  std::vector<float> values;
  for (const float16 value : values_of<float16>(bags, look_up({bags})[0])) values.push_back(to_float(value));
  EXPECT_EQ(values, (std::vector<float>{65504, -65504, INFINITY, 65504}));
}

TEST(EmbeddingBagKernel, GivesNaNWhereAnElementOfAMaximumIs) {
  std::vector<float> rows(20, 1);
  rows[3 * 4 + 1] = NAN;
  TestBags bags;
  bags.table = table_of_20(rows);
  bags.form = Form::offsets;
  bags.ids = {3, 0, 0, 3, 0, 3, 0};
  bags.offsets = {0, 2, 4, 7};  // first, last and between
  bags.pooling = Pooling::max;
  reset();
  const std::vector<float> y = values_of<float>(bags, look_up({bags})[0]);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 4 == 1) << i;
}

TEST(EmbeddingBagKernel, TakesAnyIdAsPaddingOfAnyTable) {
  reset();
  std::mt19937_64 random(3);
  const auto table = std::make_shared<TestTable>(DType::f16, 12, 20, true, 0, random);
  std::vector<TestBags> all;
  for (const bool hashed : {false, true}) {
    for (const int64_t padding : {int64_t{-1}, int64_t{0}, int64_t{20}, lowest, highest}) {
      for (const Case& c : {cases[1], cases[3], cases[7]}) {
        all.push_back(make_bags(table, hashed, Form::offsets, {3, 0, 40, 1}, c.pooling, c.weights_stride, random));
        all.back().padding = padding;
        all.push_back(make_bags(table, hashed, Form::each, std::vector<int64_t>(40, 1), c.pooling, 0, random));
        all.back().padding = padding;
      }
    }
  }
  expect_right(all);
}

/// The feature's columns, of a launch that counts nothing.
std::vector<float> uncounted(const TestBags& bags) {
  reset();
  DeviceBags device({bags});
  device.features()[0].counters = nullptr;
  device.prepare();
  device.launch();
  return values_of<float>(bags, device.result(0));
}

TEST(EmbeddingBagKernel, GivesTheSameBitsWhereFewBagsHaveIds) {
  std::mt19937_64 random(16);
  for (const DType type : row_types) {
    const auto table = std::make_shared<TestTable>(type, 12, 50, type != DType::f16, 0, random);
    std::vector<int64_t> sizes(200, 0);
    for (size_t i = 0; i < sizes.size(); i += 2) sizes[i] = 1;
    sizes[3] = 2, sizes[60] = 33, sizes[199] = 40;
    TestBags bags = make_bags(table, false, Form::offsets, sizes, Pooling::mean, 0, random);
    const std::vector<float> few = uncounted(bags);
    kernel_testing::expect_within(bags.expected(), few, 1);
    bags.offsets.push_back(bags.offsets.back() + 90);  // now there are more ids than bags
    bags.ids.resize(bags.ids.size() + 90, 1);
    const std::vector<float> more = uncounted(bags);
    EXPECT_EQ(std::memcmp(few.data(), more.data(), few.size() * sizeof(float)), 0) << name_of(type);
  }
}

TEST(EmbeddingBagKernel, GivesTheSameBitsHoweverBlocksAreDivided) {
  std::mt19937_64 random(17);
  const auto table = std::make_shared<TestTable>(DType::f16, 64, 50, true, 0, random);
  const auto bytes_with = [](const TestBags& bags) {
    return [&](const LaunchPolicies& policies) {
      const DeviceBags device({bags}, policies);
      device.launch();
      return device.bytes();
    };
  };
  Config config;
  config.multiprocessors = 1;
  const TestBags one_each = make_bags(table, false, Form::each, std::vector<int64_t>(700, 1), Pooling::none, 0, random);
  kernel_testing::expect_same_bits(&LaunchPolicies::look_up_rounds, {1, 100}, bytes_with(one_each), config);
  const TestBags of_keys = make_bags(table, true, Form::offsets, std::vector<int64_t>(20, 5), Pooling::sum, 0, random);
  config.multiprocessors = 8;
  kernel_testing::expect_same_bits(&LaunchPolicies::look_up_rounds_of_keys, {0, 1}, bytes_with(of_keys), config);
}

TEST(EmbeddingBagKernel, ReadsWideRowsPastTheCacheAsThePolicySays) {
  using detail::embedding_bag::Flag, detail::embedding_bag::Record;
  std::mt19937_64 random(18);
  const auto table = std::make_shared<TestTable>(DType::f16, 64, 50, true, 0, random);  // rows of 128 bytes
  const TestBags bags = make_bags(table, false, Form::offsets, ragged, Pooling::sum, 0, random);
  std::vector<std::vector<unsigned char>> results;
  for (const int bytes : {128, 129}) {
    LaunchPolicies policies;
    policies.look_up_wide_row_bytes = bytes;
    reset();
    const DeviceBags device({bags}, policies);
    Record record;
    std::memcpy(&record, device.op().descriptors().data(), sizeof record);
    EXPECT_EQ(record.has(Flag::wide_rows), bytes == 128);
    device.launch();
    results.push_back(device.bytes());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(EmbeddingBagKernel, TakesOneLaunchForWhatFewModelsHaveToo) {
  reset();
  std::mt19937_64 random(17);
  const auto table = std::make_shared<TestTable>(DType::f16, 16, 50, true, 0, random);
  const auto bags = [&](Pooling pooling, int64_t weights_stride) {
    return make_bags(table, false, Form::offsets, {3, 0, 40}, pooling, weights_stride, random);
  };
  const auto launches = [](const std::vector<TestBags>& all) { return DeviceBags(all).op().num_launches(); };
  EXPECT_EQ(launches({bags(Pooling::sum, 0), bags(Pooling::mean, 0)}), 1);
  EXPECT_EQ(launches({bags(Pooling::sum, 1)}), 1);
  EXPECT_EQ(launches({bags(Pooling::sum, 0), bags(Pooling::max, 0), bags(Pooling::mean, 2)}), 1);
}

TEST(EmbeddingBagKernel, HasALineMoreForEachBlockOnlyWhereAFeatureNeedsIt) {
  reset();
  std::mt19937_64 random(18);
  const auto table = std::make_shared<TestTable>(DType::f16, 16, 50, true, 0, random);
  const auto bytes = [&](Pooling pooling, int64_t weights_stride, Form form, std::optional<int64_t> padding) {
    TestBags bags = make_bags(table, false, form, {3, 0, 40}, pooling, weights_stride, random);
    bags.padding = padding;
    return DeviceBags({bags}).op().descriptor_bytes();
  };
  const int64_t least = bytes(Pooling::sum, 0, Form::offsets, {});
  for (const Pooling pooling : {Pooling::mean, Pooling::sqrtn, Pooling::max}) {
    EXPECT_EQ(bytes(pooling, 0, Form::offsets, {}), least) << name_of_enum(pooling);
  }
  EXPECT_EQ(bytes(Pooling::sum, 0, Form::offsets, -1), least);
  EXPECT_EQ(bytes(Pooling::sum, 1, Form::offsets, {}), 2 * least);
  EXPECT_EQ(bytes(Pooling::sum, 0, Form::indices, {}), 2 * least);
  EXPECT_EQ(bytes(Pooling::sum, 0, Form::offsets, 0), 2 * least);
}

TEST(EmbeddingBagKernel, ReadsRowsOfHalfTheWidestLoads) {
  reset();
  std::mt19937_64 random(19);
  std::vector<TestBags> all;
  for (const DType type : row_types) {
    for (const int64_t elements : {1, 3, 5}) {  // of 8 bytes
      const int64_t dim = elements * 8 / size_of(type);
      const auto table = std::make_shared<TestTable>(type, dim, 50, elements == 3, 0, random);
      for (const Case& c : {cases[0], cases[2], cases[3], cases[7], cases[8]}) {
        const Form form = c.pooling == Pooling::none ? Form::each : Form::offsets;
        all.push_back(make_bags(table, false, form, ragged, c.pooling, c.weights_stride, random));
        all.back().half_output = all.size() % 2 == 0;
        all.back().y_gap = all.size() % 3 == 0 ? 1 : 0;
      }
    }
  }
  expect_right(all);
}

TEST(EmbeddingBagKernel, CutsLongBags) {
  reset();
  std::mt19937_64 random(4);
  std::vector<TestBags> all;
  for (const DType type : {DType::f16, DType::i8}) {
    for (const int64_t dim : {6, 40, 300}) {
      const auto table = std::make_shared<TestTable>(type, dim, 50, true, 0, random);
      const bool all_sizes = dim == 6 && type == DType::f16 && kernel_testing::build == Build::plain;
      std::vector<int64_t> sizes{0, piece - 1, piece, piece + 1, 5, 2 * piece, 2 * piece + 1, 0, 33};
      if (all_sizes) sizes.insert(sizes.end(), {255, 256, 257, 2047, 2048, 2049, 4096, 10000, 1});
      for (const Case& c : {cases[0], cases[3], cases[6], cases[7]}) {
        const Form form = all.size() % 2 == 0 ? Form::offsets : Form::indices;
        all.push_back(make_bags(table, dim == 40, form, sizes, c.pooling, c.weights_stride, random));
        if (dim == 300) break;
      }
    }
  }
  TestBags wrong_limit = all[0];  // what max_bag_ids says need not be true
  wrong_limit.max_bag_ids = 100;
  all.push_back(wrong_limit);
  expect_right(all);
}

TEST(EmbeddingBagKernel, LeavesTheWorkspaceReadyForTheNextLaunch) {
  reset();
  std::mt19937_64 random(5);
  const auto table = std::make_shared<TestTable>(DType::f32, 8, 50, true, 0, random);
  const std::vector<TestBags> all{
      make_bags(table, false, Form::offsets, {3 * piece, 2 * piece + 7}, Pooling::mean, 1, random)};
  DeviceBags device(all);
  device.launch();
  const std::vector<unsigned char> first = device.bytes();
  device.fill_outputs();
  device.launch();
  EXPECT_EQ(device.bytes(), first);
}

TEST(EmbeddingBagKernel, GivesABagTheSameBitsWhateverItsNeighbours) {
  std::mt19937_64 random(6);
  for (const DType type : row_types) {
    const Case& weighted = cases[type == DType::f32 ? 1 : type == DType::f16 ? 6 : type == DType::bf16 ? 3 : 0];
    for (const int64_t dim : {3, 40, 8, 72}) {  // the last two by the kernel for what models have
      if (kernel_testing::build != Build::plain && dim == 8) continue;
      const auto table = std::make_shared<TestTable>(type, dim, 50, true, 0, random);
      const Case& c = dim == 8 ? cases[0] : dim == 72 ? cases[2] : weighted;
      const std::vector<int64_t> sizes{3, 1, 32, 33, 0, piece, 100, 2 * piece + 3, 2, 31};
      const TestBags together = make_bags(table, dim == 40, Form::offsets, sizes, c.pooling, c.weights_stride, random);
      std::vector<TestBags> all{together};
      for (size_t b = 0; b < sizes.size(); ++b) {  // each by itself, in a launch of other capacities
        TestBags alone = together;
        const auto begin = static_cast<size_t>(together.offsets[b]), end = static_cast<size_t>(together.offsets[b + 1]);
        alone.offsets = {0, sizes[b]};
        alone.ids.assign(together.ids.begin() + static_cast<int64_t>(begin),
                         together.ids.begin() + static_cast<int64_t>(end));
        if (!together.weights.empty()) {
          alone.weights.assign(together.weights.begin() + static_cast<int64_t>(begin),
                               together.weights.begin() + static_cast<int64_t>(end));
        }
        alone.spare_bags = sizes[b] == 0 ? 0 : static_cast<int64_t>(b * 700);
        all.push_back(alone);
      }
      reset();
      const std::vector<Result> results = look_up(all);
      const std::vector<float> whole = values_of<float>(together, results[0]);
      for (size_t b = 0; b < sizes.size(); ++b) {
        const std::vector<float> one = values_of<float>(all[b + 1], results[b + 1]);
        EXPECT_EQ(std::memcmp(one.data(), whole.data() + b * static_cast<size_t>(dim), one.size() * sizeof(float)), 0)
            << describe(together) << ", bag " << b;
      }
    }
  }
}

#if defined(HAS_HOST)
TEST(EmbeddingBagKernel, AgreesWithTheHost) {
  std::mt19937_64 random(7);
  for (const DType type : row_types) {
    for (const Case& c : cases) {
      const auto table = std::make_shared<TestTable>(type, 20, 30, true, 0, random);
      const Form form = c.pooling == Pooling::none ? Form::each : Form::offsets;
      const TestBags bags = make_bags(table, false, form, ragged, c.pooling, c.weights_stride, random);
      std::vector<float> y(static_cast<size_t>(bags.num_bags() * 20)), strided(bags.weights);
      LookupCounters counters;
      host_ops::BagFeature host;
      host.table = table->view;
      host.ids = bags.ids;
      if (form != Form::each) host.bags = {bags.offsets.data(), bags.num_bags()};
      if (!bags.weights.empty()) host.weights = strided.data();
      host.pooling = c.pooling;
      host.y = {y.data(), bags.num_bags(), 20};
      host.counters = &counters;
      host_ops::embedding_bag({&host, 1});
      reset();
      const Result result = look_up({bags})[0];
      const reference::Bounded expected = bags.expected();
      const std::vector<float> got = values_of<float>(bags, result);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - y[i]), 2 * u * expected.bound[i]) << describe(bags) << ", element " << i;
      }
      EXPECT_EQ(std::memcmp(&result.counters, &counters, sizeof counters), 0) << describe(bags);
    }
  }
}
#endif

// ---- PyTorch's results

/// A table of tests/golden/.
std::shared_ptr<TestTable> golden_table(const SafetensorsFile& file, const std::string& name) {
  const auto& tensors = file.tensors();
  const auto rows =
      tensors.count("table/" + name) > 0 ? tensors.at("table/" + name) : tensors.at("table/" + name + ".rows");
  std::mt19937_64 random(1);
  auto table = std::make_shared<TestTable>(*rows.dtype, rows.shape[1], rows.shape[0], false, 0, random);
  const auto* bytes = reinterpret_cast<const unsigned char*>(rows.data);
  table->rows.assign(bytes, bytes + rows.bytes);
  table->view.rows = table->rows.data();
  const auto read = [&](const std::string& suffix, auto& values) {
    const auto found = tensors.find("table/" + name + suffix);
    if (found == tensors.end()) return;
    values.resize(static_cast<size_t>(found->second.size()));
    std::memcpy(values.data(), found->second.data, static_cast<size_t>(found->second.bytes));
  };
  read(".default", table->default_row);
  read(".scale", table->scale);
  read(".offset", table->offset);
  read(".keys", table->keys);
  table->row_of_key.clear();
  for (size_t r = 0; r < table->keys.size(); ++r) table->row_of_key[table->keys[r]] = static_cast<int64_t>(r);
  if (!table->default_row.empty()) table->view.default_row = table->default_row.data();
  if (!table->scale.empty()) table->view.scale = table->scale.data(), table->view.offset = table->offset.data();
  return table;
}

TEST(EmbeddingBagKernel, GivesWhatPyTorchGives) {
  const std::map<std::string, Pooling> modes{
      {"sum", Pooling::sum}, {"mean", Pooling::mean}, {"sqrtn", Pooling::sqrtn}, {"max", Pooling::max}};
  int num_compared = 0;
  for (const std::string file_name : {"embed", "embed_bag"}) {
    const SafetensorsFile file(std::string(WARPRANK_TEST_DATA) + "/golden/" + file_name + ".safetensors");
    const bool in_bags = file_name == "embed_bag";
    for (int r = 0; r < std::stoi(file.metadata().at("requests")); ++r) {
      const std::string request = "request/" + std::to_string(r) + "/";
      const auto read = [&](const std::string& name, auto value) {
        std::vector<decltype(value)> values;
        const auto found = file.tensors().find(request + name);
        if (found == file.tensors().end()) return values;
        for (int64_t i = 0; i < found->second.size(); ++i) {
          values.push_back(load_element<decltype(value)>(found->second.data, i));
        }
        return values;
      };
      std::vector<TestBags> all;
      std::vector<std::vector<double>> theirs;
      for (const auto& [name, tensor] : file.tensors()) {
        const std::string prefix = request + "output/";
        if (name.rfind(prefix, 0) != 0) continue;
        std::string output = name.substr(prefix.size());
        theirs.push_back(read("output/" + output, 0.0));
        TestBags bags;
        std::string table = output, ids = "direct_id";
        bool weighted = false;
        if (output == "padded") {
          table = in_bags ? "hashed_bytes" : "hashed_half";
          bags.pooling = Pooling::mean;
          weighted = in_bags;
          bags.padding = 5;
        } else if (output == "optional") {
          table = "direct";
        } else if (in_bags) {
          if (table.size() > 9 && table.substr(table.size() - 9) == "_weighted") {
            weighted = true;
            table.resize(table.size() - 9);
          }
          bags.pooling = modes.at(table.substr(table.rfind('_') + 1));
          table.resize(table.rfind('_'));
        }
        bags.hashed = table.rfind("hashed", 0) == 0;
        bags.table = golden_table(file, table);
        ids = output == "padded"     ? "padded_id"
              : output == "optional" ? "optional_id"
              : bags.hashed          ? "hashed_id"
                                     : "direct_id";
        bags.ids = read("ids/" + ids, int64_t{0});
        if (in_bags) {
          for (const int64_t length : read("lengths/tag", int64_t{0}))
            bags.offsets.push_back(bags.offsets.back() + length);
        } else {
          const int64_t items = read("lengths/item", int64_t{0})[0];
          bags.form = Form::each;
          bags.pooling = Pooling::none;
          if (bags.ids.empty()) bags.ids.assign(static_cast<size_t>(items), 3);  // the model's default
          for (int64_t i = 0; i < items; ++i) bags.offsets.push_back(i + 1);
        }
        if (weighted) bags.weights = read("dense/weight", 0.0f);
        all.push_back(bags);
      }
      reset();
      const std::vector<Result> results = look_up(all);
      for (size_t i = 0; i < all.size(); ++i) {
        reference::Bounded expected = all[i].expected();
        ASSERT_EQ(expected.value.size(), theirs[i].size());
        expected.value = theirs[i];
        kernel_testing::expect_within(expected, values_of<float>(all[i], results[i]), 1);
        ++num_compared;
      }
    }
  }
  EXPECT_GT(num_compared, 200);
}

// ---- What changes between launches, and what there may be none of

TEST(EmbeddingBagKernel, ReadsCountsWhenACapturedGraphRuns) {
  reset();
  std::mt19937_64 random(9);
  const auto table = std::make_shared<TestTable>(DType::f32, 8, 50, true, 0, random);
  TestBags bags = make_bags(table, false, Form::offsets, {4, 2 * piece + 3, 0, 40, 1, 7}, Pooling::mean, 1, random);
  DeviceBags device({bags});
  const Stream stream = create_stream();
  begin_capture(stream);
  device.launch(stream);
  const kernel_testing::Graph graph = end_capture(stream);
  EXPECT_EQ(num_launches(graph), 1);
  for (const int64_t count : {6, 2, 0, 5}) {
    device.fill_outputs();
    device.set_num_bags(0, count);
    kernel_testing::launch(graph, stream);
    kernel_testing::synchronize();
    TestBags actual = bags;
    actual.offsets.resize(static_cast<size_t>(count) + 1);
    SCOPED_TRACE(std::to_string(count) + " bags");
    expect_right(actual, device.result(0));
  }
}

TEST(EmbeddingBagKernel, TakesNothing) {
  reset();
  const EmbeddingBag none({});
  none.launch({});
  kernel_testing::synchronize();
  EXPECT_EQ(none.descriptor_bytes(), 0);
  EXPECT_EQ(none.workspace_bytes(), 0);

  std::mt19937_64 random(10);
  std::vector<TestBags> all;
  const auto empty_table = std::make_shared<TestTable>(DType::i8, 4, 0, true, 0, random);
  const auto table = std::make_shared<TestTable>(DType::f16, 4, 9, false, 0, random);
  for (const auto& one : {empty_table, table}) {
    for (const Form form : {Form::each, Form::offsets, Form::indices}) {
      for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{}, {0}, {0, 0, 0}, {2, 1}}) {
        if (form == Form::each && !sizes.empty() && sizes[0] == 0) continue;
        all.push_back(make_bags(one, false, form, sizes, Pooling::sum, 0, random));
      }
    }
  }
  expect_right(all);
}

// ---- Counts

TEST(EmbeddingBagKernel, RequestsLittleMoreThanRowsAndIds) {
  if (kernel_testing::build != Build::plain) GTEST_SKIP() << "counted once, by the executor's plain build";
#if !defined(__CUDACC__)
  Config config;
  config.count_sectors = true;
  reset(config);
  constexpr int64_t num_user = 30, num_item = 50, items = 100, dim = 32;
  std::mt19937_64 random(11);
  const auto table = std::make_shared<TestTable>(DType::f16, dim, 500, false, 0, random);
  std::vector<TestBags> all;
  for (int64_t f = 0; f < num_user + num_item; ++f) {
    TestBags bags = make_bags(table, false, Form::each, std::vector<int64_t>(f < num_user ? 1 : items, 1),
                              Pooling::none, 0, random);
    for (int64_t& id : bags.ids) id = static_cast<int64_t>(random() % 500);
    all.push_back(bags);
  }
  DeviceBags device(all);
  for (BagFeature& feature : device.features()) feature.counters = nullptr;
  device.prepare();
  clear_counters();
  device.launch();
  kernel_testing::synchronize();
  EXPECT_EQ(counters().launches, 1);
  EXPECT_EQ(counters().atomics, 0);
  // The least: two sectors of 32 bytes for each row of 64, and the ids of each feature, four in a sector.
  constexpr int64_t least = (num_user + num_item * items) * 2 + num_user + num_item * items / 4;
  std::printf("80 features, 100 items and 1 user: %.4f of the least sectors\n",
              static_cast<double>(counters().global_load_sectors) / least);
  EXPECT_LE(static_cast<double>(counters().global_load_sectors), 1.05 * least);
  EXPECT_GE(counters().global_load_sectors, least);
  EXPECT_EQ(counters().global_store_sectors, (num_user + num_item * items) * dim * 4 / 32);

  // FBGEMM's nbit_device, fewer bags: 20 ids each of rows of 256 bytes. Offsets are not among the least.
  reset(config);
  const auto wide = std::make_shared<TestTable>(DType::f16, 128, 500, false, 0, random);
  constexpr int64_t bags = 64, length = 20, features = 4;
  all.clear();
  for (int64_t f = 0; f < features; ++f) {
    all.push_back(make_bags(wide, false, Form::offsets, std::vector<int64_t>(bags, length), Pooling::sum, 0, random));
    for (int64_t& id : all.back().ids) id = static_cast<int64_t>(random() % 500);
  }
  DeviceBags pooled(all);
  clear_counters();
  pooled.launch();
  kernel_testing::synchronize();
  constexpr int64_t least_pooled = features * bags * length * 8 + features * bags * length / 4;
  std::printf("4 features, 64 bags of 20: %.4f of the least sectors\n",
              static_cast<double>(counters().global_load_sectors) / least_pooled);
  EXPECT_LE(static_cast<double>(counters().global_load_sectors), 1.05 * least_pooled);
  EXPECT_GE(counters().global_load_sectors, least_pooled);
  EXPECT_LE(counters().atomics, features * bags) << "integer counters, one for each unit";
#endif
}

TEST(EmbeddingBagKernel, TakesOneTicketForEachPiece) {
  if (on_gpu) GTEST_SKIP() << "counted by the executor";
  reset();
  std::mt19937_64 random(12);
  const auto table = std::make_shared<TestTable>(DType::f16, 8, 50, false, 0, random);
  DeviceBags device(
      {make_bags(table, false, Form::offsets, {piece, 3 * piece, 5, 2 * piece + 1}, Pooling::sum, 0, random)});
  device.features()[0].counters = nullptr;
  device.prepare();
#if !defined(__CUDACC__)
  clear_counters();
  device.launch();
  kernel_testing::synchronize();
  EXPECT_EQ(counters().atomics, 3 + 3);
#endif
}

TEST(EmbeddingBagKernel, ReachesRowsAndOutputsBeyondTwoToThe32Bytes) {
  if (kernel_testing::build != Build::plain) GTEST_SKIP() << "reserved memory, of the executor's plain build";
  reset();
  constexpr int64_t num_rows = (int64_t{1} << 32) - 3, dim = 8, stride = int64_t{1} << 31;
  DeviceArray<float16> rows(num_rows * dim);
  const std::vector<int64_t> ids{0, num_rows - 1, int64_t{1} << 31, 7, num_rows};
  const auto value = [](int64_t id) { return static_cast<float>(id % 100 + 1); };
  for (const int64_t id : ids) {
    if (id < num_rows) rows.write(std::vector<float16>(dim, to_float16(value(id))), id * dim);
  }
  const DeviceArray<int64_t> device_ids(ids), offsets({0, 2, 3, 5});
  DeviceArray<float> y(8 * stride);
  BagFeature feature;
  feature.table = {DType::f16, rows.data(), num_rows, dim, dim * 2};
  IdArray array;
  array.ids = device_ids.data();
  feature.ids = array;
  feature.num_bags.capacity = 5;
  feature.y = Matrix<float>(y.data(), 5, dim, stride);
  std::vector<BagFeature> features{feature};
  array.offsets = offsets.data();
  array.num_ids.capacity = 5;
  feature.ids = array;
  feature.num_bags.capacity = 3;
  feature.pooling = Pooling::sum;
  feature.y = Matrix<float>(y.data() + 5 * stride, 3, dim, stride);
  features.push_back(feature);
  const EmbeddingBag op(features);
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  const std::vector<float> expected{value(0),
                                    value(num_rows - 1),
                                    value(int64_t{1} << 31),
                                    value(7),
                                    0,
                                    value(0) + value(num_rows - 1),
                                    value(int64_t{1} << 31),
                                    value(7)};
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(y.read(row * stride, dim), std::vector<float>(dim, expected[static_cast<size_t>(row)])) << row;
  }
}

// ---- Bad input

TEST(EmbeddingBagKernel, RefusesOutputsThatOverlap) {
  reset();
  std::mt19937_64 random(14);
  const auto table = std::make_shared<TestTable>(DType::f32, 8, 20, true, 0, random);
  TestBags bags = make_bags(table, false, Form::offsets, {3, 2, 0}, Pooling::mean, 1, random);
  bags.y_gap = 8;  // room for the other's columns
  const TestBags indexed = make_bags(table, false, Form::indices, {3, 2, 0}, Pooling::sum, 0, random);
  const TestBags hashed = make_bags(table, true, Form::each, {1, 1}, Pooling::sum, 0, random);
  using Change = std::function<void(std::vector<BagFeature>&)>;
  const auto message_of = [&](const Change& change) -> std::string {
    DeviceBags device({bags, bags, indexed, hashed});
    change(device.features());
    try {
      device.prepare();
      return "";
    } catch (const invalid_argument& error) {
      return error.what();
    }
  };
  const auto y_of = [](BagFeature& f) -> Matrix<float>& { return std::get<Matrix<float>>(f.y); };
  const auto set_y = [&](const void* address) -> Change {
    return [=](std::vector<BagFeature>& all) { y_of(all[0]).data = static_cast<float*>(const_cast<void*>(address)); };
  };
  const auto expect_overlap = [&](const std::string& input, const Change& change) {
    EXPECT_NE(message_of(change).find("y of feature 0: expected memory of its own, got an overlap with " + input),
              std::string::npos)
        << input << ": " << message_of(change);
  };
  EXPECT_EQ(message_of([&](std::vector<BagFeature>& f) { y_of(f[0]).data = y_of(f[1]).data + 8; }), "");
  expect_overlap("y of feature 1", [&](auto& f) { y_of(f[0]).data = y_of(f[1]).data + 7; });
  expect_overlap("y of feature 1", [&](auto& f) { y_of(f[0]).data = y_of(f[1]).data + 2 * y_of(f[1]).stride; });
  expect_overlap("offsets of feature 1", [&](auto& f) { set_y(std::get<IdArray>(f[1].ids).offsets)(f); });
  expect_overlap("ids of feature 0", [&](auto& f) { set_y(std::get<IdArray>(f[0].ids).ids)(f); });
  expect_overlap("weights of feature 1", [&](auto& f) { set_y(std::get<IdArray>(f[1].ids).weights)(f); });
  expect_overlap("indices of feature 2", [&](auto& f) { set_y(std::get<IdArray>(f[2].ids).indices)(f); });
  expect_overlap("number of bags of feature 1", [&](auto& f) { set_y(f[1].num_bags.actual)(f); });
  expect_overlap("rows of feature 1", [&](auto& f) { set_y(f[1].table.rows)(f); });
  expect_overlap("default row of feature 2", [&](auto& f) { set_y(f[2].table.default_row)(f); });
  expect_overlap("hash table of feature 3", [&](auto& f) { set_y(f[3].hashed->buckets)(f); });
}

TEST(EmbeddingBagKernel, RefusesWhatDoesNotFit) {
  reset();
  std::mt19937_64 random(13);
  const auto table = std::make_shared<TestTable>(DType::i8, 8, 20, true, 0, random);
  const TestBags good = make_bags(table, false, Form::offsets, {3, 2}, Pooling::mean, 1, random);
  const TestBags hashed = make_bags(table, true, Form::offsets, {3, 2}, Pooling::mean, 1, random);
  const auto ids_of = [](BagFeature& f) -> IdArray& { return std::get<IdArray>(f.ids); };
  const auto y_of = [](BagFeature& f) -> Matrix<float>& { return std::get<Matrix<float>>(f.y); };
  const auto misaligned = [](auto* pointer) {
    return reinterpret_cast<decltype(pointer)>(reinterpret_cast<uintptr_t>(pointer) + 1);
  };
  expect_refused(good, "dim: expected 1", [](BagFeature& f) { f.table.dim = 0; });
  expect_refused(good, "rows: expected F32", [](BagFeature& f) { f.table.type = DType::i64; });
  expect_refused(good, "rows: expected F32", [](BagFeature& f) { f.table.type = static_cast<DType>(99); });
  expect_refused(good, "rows: expected 0 to 4294967293", [](BagFeature& f) { f.table.num_rows = -1; });
  expect_refused(good, "row stride", [](BagFeature& f) { f.table.row_stride_bytes = 7; });
  expect_refused(good, "rows: expected device memory", [](BagFeature& f) { f.table.rows = nullptr; });
  expect_refused(good, "scale", [](BagFeature& f) { f.table.scale = nullptr; });
  expect_refused(good, "offset", [&](BagFeature& f) { f.table.offset = misaligned(f.table.offset); });
  expect_refused(good, "default row", [&](BagFeature& f) { f.table.default_row = misaligned(f.table.default_row); });
  expect_refused(hashed, "hash table: expected 9 columns", [&](BagFeature& f) { f.table.dim = y_of(f).cols = 9; });
  expect_refused(hashed, "hash table: expected F32", [](BagFeature& f) { f.table.type = DType::f32; });
  expect_refused(hashed, "hash table: address of the buckets", [](BagFeature& f) { f.hashed->buckets = nullptr; });
  expect_refused(hashed, "hash table: address of the buckets", [](BagFeature& f) { f.hashed->buckets += 64; });
  expect_refused(hashed, "hash table: buckets", [](BagFeature& f) { f.hashed->placement.num_buckets = 3; });
  expect_refused(hashed, "hash table: probes", [](BagFeature& f) { f.hashed->placement.max_probes = 70; });
  expect_refused(hashed, "hash table: bytes of a row", [](BagFeature& f) { f.hashed->row_bytes += 4; });
  expect_refused(hashed, "hash table: bytes of a bucket", [](BagFeature& f) { f.hashed->shape.rows_begin += 16; });
  expect_refused(good, "number of bags", [](BagFeature& f) { f.num_bags.capacity = -1; });
  expect_refused(good, "number of bags", [&](BagFeature& f) { f.num_bags.actual = misaligned(f.num_bags.actual); });
  expect_refused(good, "number of ids", [&](BagFeature& f) { ids_of(f).num_ids.capacity = -1; });
  constexpr int64_t many = int64_t{1} << 30;
  expect_refused(good, "number of bags: expected a capacity of less than 1073741824, got 1073741824",
                 [&](BagFeature& f) { f.num_bags.capacity = y_of(f).rows = many; });
  expect_refused(good, "number of ids: expected a capacity of less than 1073741824, got 1073741824",
                 [&](BagFeature& f) { ids_of(f).num_ids.capacity = many; });
  expect_refused(good, "rows: expected 0 to 4294967293, got 4294967294",
                 [](BagFeature& f) { f.table.num_rows = (int64_t{1} << 32) - 2; });
  expect_refused(good, "max_bag_ids", [](BagFeature& f) { f.max_bag_ids = -1; });
  expect_refused(good, "ids: expected device memory", [&](BagFeature& f) { ids_of(f).ids = nullptr; });
  expect_refused(good, "ids: expected an address", [&](BagFeature& f) { ids_of(f).ids = misaligned(ids_of(f).ids); });
  expect_refused(good, "offsets", [&](BagFeature& f) { ids_of(f).offsets = misaligned(ids_of(f).offsets); });
  expect_refused(good, "offsets or indices", [&](BagFeature& f) { ids_of(f).indices = ids_of(f).offsets; });
  expect_refused(good, "weights: expected an address",
                 [&](BagFeature& f) { ids_of(f).weights = misaligned(ids_of(f).weights); });
  expect_refused(good, "weights stride", [&](BagFeature& f) { ids_of(f).weights_stride = -1; });
  expect_refused(good, "weights: expected pooling", [](BagFeature& f) { f.pooling = Pooling::max; });
  expect_refused(good, "pooling none", [](BagFeature& f) { f.pooling = Pooling::none; });
  expect_refused(good, "8 columns", [&](BagFeature& f) { y_of(f).cols = 7; });
  expect_refused(good, "a row for each", [&](BagFeature& f) { y_of(f).rows = 1; });
  expect_refused(good, "a stride", [&](BagFeature& f) { y_of(f).stride = 7; });
  expect_refused(good, "y: expected device memory", [&](BagFeature& f) { y_of(f).data = nullptr; });
  expect_refused(good, "y: expected an address", [&](BagFeature& f) { y_of(f).data = misaligned(y_of(f).data); });
  expect_refused(good, "counters", [&](BagFeature& f) { f.counters = misaligned(f.counters); });

  DeviceBags device({good});
  DeviceArray<unsigned char> memory(4096, 0);
  EXPECT_THROW(device.op().launch({nullptr, memory.data()}), invalid_argument);
  EXPECT_THROW(device.op().launch({memory.data() + 8, memory.data()}), invalid_argument);
  const DeviceBags cut({make_bags(table, false, Form::offsets, {2 * piece}, Pooling::sum, 0, random)});
  EXPECT_THROW(cut.op().launch({memory.data(), nullptr}), invalid_argument);
  EXPECT_THROW(cut.op().launch({memory.data(), memory.data() + 128}), invalid_argument);
}

}}  // namespace warprank
