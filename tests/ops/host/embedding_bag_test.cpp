// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/host/embedding_bag.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "guarded.hpp"
#include "reference/embedding_bag.hpp"
#include "support/host_op_testing.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/ops/scaled_rows.hpp"

namespace warprank { namespace {

using host_ops::BagFeature;
using host_ops::embedding_bag;
using test::GuardedMatrix;
using test_support::for_each_target;
using test_support::infinity;
using test_support::u;

constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();

void embedding_bag_of(const BagFeature& feature) { embedding_bag({&feature, 1}); }

/// Values that end where an inaccessible page begins, at any alignment: reading past them faults.
template <class Value>
class AtPageEnd {
 public:
  explicit AtPageEnd(const std::vector<Value>& values) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t used = values.size() * sizeof(Value), readable = (used + page - 1) / page * page;
    bytes_ = readable + page;
    map_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(static_cast<char*>(map_) + readable, page, PROT_NONE);
    data_ = static_cast<char*>(map_) + readable - used;
    if (used > 0) std::memcpy(data_, values.data(), used);
  }
  ~AtPageEnd() { munmap(map_, bytes_); }
  AtPageEnd(const AtPageEnd&) = delete;
  AtPageEnd& operator=(const AtPageEnd&) = delete;

  const Value* data() const { return reinterpret_cast<const Value*>(data_); }

 private:
  void* map_;
  char* data_;
  size_t bytes_;
};

/// A table of normally distributed elements with `gap` bytes between its rows, keys for use as a hashed table, and ids
/// of every kind.
class TestTable {
 public:
  TestTable(DType type, int64_t dim, int64_t num_rows, bool with_default, int64_t gap, std::mt19937_64& random)
      : default_row_(normals(with_default ? dim : 0, random)),
        scale_(type == DType::i8 ? normals(num_rows, random) : std::vector<float>{}),
        offset_(type == DType::i8 ? normals(num_rows, random) : std::vector<float>{}),
        rows_(encode(type, dim, num_rows, gap, random)) {
    for (int64_t r = 0; r < num_rows; ++r) {
      keys_.push_back(r < 4 ? std::vector<int64_t>{-1, 0, lowest, highest}[static_cast<size_t>(r)]
                            : static_cast<int64_t>(random()));
      row_of_key_[keys_.back()] = r;
    }
    view_.type = type;
    view_.rows = rows_.data();
    view_.num_rows = num_rows;
    view_.dim = dim;
    view_.row_stride_bytes = dim * size_of(type) + gap;
    if (type == DType::i8) view_.scale = scale_.data(), view_.offset = offset_.data();
    if (with_default) view_.default_row = default_row_.data();
    HashTableStream one_by_one = [this, r = int64_t{0}]() mutable {
      if (r == view_.num_rows) return r = 0, HashTableChunk{};
      const bool scaled = view_.scale != nullptr;
      const HashTableChunk chunk{1, &keys_[static_cast<size_t>(r)], view_.row(r), scaled ? view_.scale + r : nullptr,
                                 scaled ? view_.offset + r : nullptr};
      ++r;
      return chunk;
    };
    hashed_ = build_hash_table({type, dim}, one_by_one, {0.9, 0, 1});
  }

  const TableView& view() const { return view_; }
  const HashTableView& hashed() const { return hashed_.view(); }

  /// Mostly ids of rows; every eighth is padding, unknown or out of range.
  std::vector<int64_t> ids(int64_t count, bool hashed, std::mt19937_64& random) const {
    const std::vector<int64_t> odd{-1, -2, view_.num_rows, view_.num_rows + 7, lowest, highest, int64_t{1} << 32};
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<size_t>(random() % static_cast<uint64_t>(view_.num_rows));
      const int64_t id = hashed ? keys_[row] : static_cast<int64_t>(row);
      ids.push_back(random() % 8 == 0 ? odd[random() % odd.size()] : id);
    }
    return ids;
  }

  /// What the documentation of BagFeature says of an id.
  int64_t row_of(int64_t id, bool hashed, std::optional<int64_t> padding) const {
    if (padding.has_value() ? id == *padding : !hashed && id == -1) return reference::padding;
    if (!hashed) return 0 <= id && id < view_.num_rows ? id : reference::the_default_row;
    const auto found = row_of_key_.find(id);
    return found == row_of_key_.end() ? reference::the_default_row : found->second;
  }

 private:
  static std::vector<float> normals(int64_t count, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(normal(random));
    return values;
  }

  /// The rows, up to the last element: no gap after the last row.
  static std::vector<unsigned char> encode(DType type, int64_t dim, int64_t num_rows, int64_t gap,
                                           std::mt19937_64& random) {
    const int64_t row_bytes = dim * size_of(type), stride = row_bytes + gap;
    std::vector<unsigned char> bytes(static_cast<size_t>(num_rows * stride - gap), 0xff);  // gaps hold NaN
    for (int64_t r = 0; r < num_rows; ++r)
      for (int64_t c = 0; c < dim; ++c) {
        unsigned char* to = bytes.data() + r * stride + c * size_of(type);
        const float value = normals(1, random)[0];
        const uint16_t as_half = to_float16(value).bits, as_bfloat16 = to_bfloat16(value).bits;
        if (type == DType::f32) std::memcpy(to, &value, 4);
        if (type == DType::f16) std::memcpy(to, &as_half, 2);
        if (type == DType::bf16) std::memcpy(to, &as_bfloat16, 2);
        if (type == DType::i8) *to = static_cast<unsigned char>(random());
      }
    return bytes;
  }

  AtPageEnd<float> default_row_, scale_, offset_;
  AtPageEnd<unsigned char> rows_;
  std::vector<int64_t> keys_;
  std::map<int64_t, int64_t> row_of_key_;
  HashTable hashed_;
  TableView view_;
};

/// A feature over a TestTable with all it points to.
struct TestFeature {
  TestFeature(const TestTable& table, bool hashed, const std::vector<int64_t>& bag_sizes, Pooling pooling,
              int64_t weights_stride, std::optional<int64_t> padding, std::mt19937_64& random)
      : table(table), hashed(hashed), one_per_bag(pooling == Pooling::none) {
    for (const int64_t size : bag_sizes) offsets.push_back(offsets.back() + (one_per_bag ? 1 : size));
    ids = table.ids(offsets.back(), hashed, random);
    const bool weighted = weights_stride > 0;
    std::vector<float> strided;
    std::uniform_real_distribution<float> uniform(-0.5f, 2);
    for (int64_t i = 0; weighted && i < offsets.back(); ++i) {
      weights.push_back(uniform(random));
      if (i > 0) strided.resize(strided.size() + static_cast<size_t>(weights_stride - 1), NAN);
      strided.push_back(weights.back());
    }
    const auto bags = static_cast<int64_t>(bag_sizes.size());
    y = std::make_unique<GuardedMatrix>(bags, table.view().dim);
    edge_ids = std::make_unique<AtPageEnd<int64_t>>(ids);
    edge_weights = std::make_unique<AtPageEnd<float>>(strided);
    feature.table = table.view();
    feature.hashed = hashed ? &table.hashed() : nullptr;
    feature.ids = {edge_ids->data(), offsets.back()};
    if (!one_per_bag) feature.bags = {offsets.data(), bags};
    if (weighted) feature.weights = edge_weights->data();
    feature.weights_stride = weights_stride;
    feature.pooling = pooling;
    feature.padding = padding;
    feature.y = y->view();
    feature.counters = &counters;
  }

  int64_t row_of(int64_t id) const { return table.row_of(id, hashed, feature.padding); }

  void expect_result() const {
    const reference::Bounded expected = reference::embedding_bag(
        table.view(), [this](int64_t id) { return row_of(id); }, ids, offsets, weights, feature.pooling);
    const std::vector<float> got = y->values();
    ASSERT_EQ(got.size(), expected.value.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::fabs(got[i] - expected.value[i]), u * expected.bound[i])
          << "element " << i << ": expected " << expected.value[i] << ", got " << got[i];
    EXPECT_TRUE(y->gap_intact());
  }

  void expect_counted_once() const {
    LookupCounters expected;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      bool is_empty = true;
      for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
        const int64_t row = row_of(ids[static_cast<size_t>(i)]);
        ++expected.ids;
        expected.padding += row == reference::padding;
        (hashed ? expected.unknown : expected.out_of_range) += row == reference::the_default_row;
        is_empty = is_empty && row == reference::padding;
      }
      expected.empty_bags += is_empty;
    }
    EXPECT_EQ(counters.ids, expected.ids);
    EXPECT_EQ(counters.unknown, expected.unknown);
    EXPECT_EQ(counters.out_of_range, expected.out_of_range);
    EXPECT_EQ(counters.padding, expected.padding);
    EXPECT_EQ(counters.empty_bags, expected.empty_bags);
  }

  const TestTable& table;
  bool hashed, one_per_bag;
  std::vector<int64_t> offsets{0}, ids;
  std::vector<float> weights;
  std::unique_ptr<GuardedMatrix> y;
  std::unique_ptr<AtPageEnd<int64_t>> edge_ids;
  std::unique_ptr<AtPageEnd<float>> edge_weights;
  LookupCounters counters;
  BagFeature feature;
};

const std::vector<int64_t> ragged{3, 0, 1, 2, 31, 0, 0, 32, 33, 1, 100, 5, 0};
const std::vector<DType> row_types{DType::f32, DType::f16, DType::bf16, DType::i8};

struct Case {
  Pooling pooling;
  int64_t weights_stride;  // 0: no weights
};
const std::vector<Case> cases{{Pooling::none, 0},  {Pooling::sum, 0},   {Pooling::sum, 1},
                              {Pooling::mean, 0},  {Pooling::mean, 1},  {Pooling::mean, 3},
                              {Pooling::sqrtn, 0}, {Pooling::sqrtn, 1}, {Pooling::max, 0}};

TEST(EmbeddingBag, IsWithinItsErrorForEveryRowTypePoolingAndWidth) {
  for_each_target([] {
    std::mt19937_64 random(1);
    for (const int64_t dim : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 80, 81, 130})
      for (const DType type : row_types) {
        SCOPED_TRACE(std::string(name_of(type)) + ", dim " + std::to_string(dim));
        const int64_t gap = dim % 3;  // an odd gap misaligns rows
        const TestTable table(type, dim, 37, dim % 2 == 0, gap, random);
        for (const Case& c : cases)
          for (const bool hashed : {false, true}) {
            SCOPED_TRACE(std::string(name_of_enum(c.pooling)) + (hashed ? ", hashed" : ", direct") +
                         ", weights stride " + std::to_string(c.weights_stride));
            const TestFeature feature(table, hashed, ragged, c.pooling, c.weights_stride, std::nullopt, random);
            embedding_bag_of(feature.feature);
            feature.expect_result();
            feature.expect_counted_once();
          }
      }
  });
}

TEST(EmbeddingBag, GivesTheSameBitsWhereverScalesAre) {
  std::mt19937_64 random(21);
  for (const int64_t dim : {1, 4, 8, 13, 16, 40, 128}) {
    const TestTable table(DType::i8, dim, 50, true, 0, random);
    const TableView& apart = table.view();
    std::vector<unsigned char> rows(static_cast<size_t>(50 * scaled_row_bytes(dim)));
    to_scaled_rows(apart, 0, 50, rows.data());
    const AtPageEnd<unsigned char> behind(rows);
    std::vector<float> in_turns;
    for (int64_t r = 0; r < 50; ++r) in_turns.push_back(apart.scale[r]), in_turns.push_back(apart.offset[r]);
    const AtPageEnd<float> pairs(in_turns);
    TableView others[] = {view_scaled_rows(behind.data(), 50, dim), apart};
    others[0].default_row = apart.default_row;
    others[1].scale = pairs.data(), others[1].offset = pairs.data() + 1, others[1].scale_stride_bytes = 8;
    for (const Case& c : cases) {
      for_each_target([&] {
        TestFeature feature(table, false, ragged, c.pooling, c.weights_stride, std::nullopt, random);
        embedding_bag_of(feature.feature);
        feature.expect_result();
        const std::vector<float> expected = feature.y->values();
        for (const TableView& other : others) {
          feature.feature.table = other;
          embedding_bag_of(feature.feature);
          EXPECT_EQ(feature.y->values(), expected) << dim;
        }
      });
    }
  }
}

TEST(EmbeddingBag, TakesAnyIdAsPaddingOfAnyTable) {
  std::mt19937_64 random(2);
  const TestTable table(DType::f16, 12, 20, true, 0, random);
  for (const bool hashed : {false, true})
    for (const int64_t padding : {int64_t{-1}, int64_t{0}, int64_t{20}, lowest, highest})
      for (const Case& c : cases) {
        const TestFeature feature(table, hashed, ragged, c.pooling, c.weights_stride, padding, random);
        embedding_bag_of(feature.feature);
        feature.expect_result();
        feature.expect_counted_once();
      }
}

TEST(EmbeddingBag, LooksAllFeaturesOfABatchUpAtOnce) {
  for_each_target([] {
    std::mt19937_64 random(3);
    std::vector<std::unique_ptr<TestTable>> tables;
    std::vector<std::unique_ptr<TestFeature>> features;
    std::vector<BagFeature> batch;
    for (int64_t f = 0; f < 60; ++f) {
      tables.push_back(std::make_unique<TestTable>(row_types[random() % 4], 1 + random() % 40, 10 + random() % 100,
                                                   f % 3 == 0, f % 2, random));
      std::vector<int64_t> sizes(random() % 20);
      for (int64_t& size : sizes) size = static_cast<int64_t>(f % 5 == 0 ? 0 : random() % 50);
      const Case& c = cases[random() % cases.size()];
      features.push_back(std::make_unique<TestFeature>(*tables.back(), random() % 2 == 0, sizes, c.pooling,
                                                       c.weights_stride, std::nullopt, random));
      batch.push_back(features.back()->feature);
    }
    embedding_bag(batch);
    for (const auto& feature : features) {
      feature->expect_result();
      feature->expect_counted_once();
    }
  });
}

TEST(EmbeddingBag, GivesABagTheSameBitsWhateverItsNeighbours) {
  for_each_target([] {
    std::mt19937_64 random(4);
    for (const DType type : row_types)
      for (const Case& c : cases)
        for (const int64_t dim : {3, 24, 100}) {
          const TestTable table(type, dim, 50, true, 0, random);
          const TestFeature together(table, true, ragged, c.pooling, c.weights_stride, std::nullopt, random);
          embedding_bag_of(together.feature);
          for (int64_t b = 0; b < static_cast<int64_t>(ragged.size()); ++b) {
            const int64_t begin = together.offsets[static_cast<size_t>(b)];
            const int64_t alone_offsets[] = {0, together.offsets[static_cast<size_t>(b) + 1] - begin};
            BagFeature alone = together.feature;
            alone.ids = alone.ids.subspan(begin, alone_offsets[1]);
            if (!together.one_per_bag) alone.bags = {alone_offsets, 1};
            if (alone.weights != nullptr) alone.weights += begin * alone.weights_stride;
            std::vector<float> y(static_cast<size_t>(dim));
            alone.y = {y.data(), 1, dim};
            embedding_bag_of(alone);
            ASSERT_EQ(std::memcmp(y.data(), together.feature.y.row(b), y.size() * sizeof(float)), 0) << "bag " << b;
          }
        }
  });
}

/// Rows 1..20 as 5x4, with answers by hand.
class SmallOracle : public testing::Test {
 protected:
  SmallOracle() {
    for (int i = 0; i < 20; ++i) rows_.push_back(static_cast<float>(i + 1));
  }
  std::vector<float> pool(Pooling pooling, const std::vector<int64_t>& ids, const std::vector<int64_t>& offsets,
                          const std::vector<float>& weights = {}) {
    std::vector<float> y((offsets.size() - 1) * 4, -99.0f);
    BagFeature feature;
    feature.table = {DType::f32, rows_.data(), 5, 4, 16};
    feature.ids = ids;
    feature.bags = {offsets.data(), static_cast<int64_t>(offsets.size()) - 1};
    if (!weights.empty()) feature.weights = weights.data();
    feature.pooling = pooling;
    feature.y = {y.data(), feature.bags.count, 4};
    embedding_bag_of(feature);
    return y;
  }
  using Values = std::vector<float>;
  std::vector<float> rows_;
};

TEST_F(SmallOracle, HasTheKnownAnswers) {
  for_each_target([this] {
    const std::vector<int64_t> ids{1, 3, 0, 4}, offsets{0, 2, 4};
    const std::vector<float> weights{1, 0.5f, 1, 0.5f};
    EXPECT_EQ(pool(Pooling::sum, ids, offsets), (Values{18, 20, 22, 24, 18, 20, 22, 24}));
    EXPECT_EQ(pool(Pooling::mean, ids, offsets), (Values{9, 10, 11, 12, 9, 10, 11, 12}));
    EXPECT_EQ(pool(Pooling::sum, ids, offsets, weights), (Values{11.5, 13, 14.5, 16, 9.5, 11, 12.5, 14}));
    EXPECT_EQ(pool(Pooling::max, ids, offsets), (Values{13, 14, 15, 16, 17, 18, 19, 20}));
    // Four equal weights of 2: the mean is that of weight 1; sqrtn divides by sqrt(4 * 2 * 2) = 4.
    const std::vector<int64_t> one_bag{0, 4};
    EXPECT_EQ(pool(Pooling::mean, ids, one_bag, {2, 2, 2, 2}), (Values{9, 10, 11, 12}));
    EXPECT_EQ(pool(Pooling::sqrtn, ids, one_bag, {2, 2, 2, 2}), (Values{18, 20, 22, 24}));
    EXPECT_EQ(pool(Pooling::sqrtn, ids, one_bag), (Values{18, 20, 22, 24}));
  });
}

TEST_F(SmallOracle, DividesByWeightsOfAnySize) {
  for_each_target([this] {
    const float most = 3e38f;
    rows_ = std::vector<float>(20, 0x1p-20f);
    for (const float weight : {0x1p-120f, 0x1p-60f, 0x1p60f, 0x1p127f, most}) {
      const std::vector<float> four(4, weight);
      EXPECT_EQ(pool(Pooling::mean, {0, 1, 2, 3}, {0, 4}, four), Values(4, 0x1p-20f)) << weight;
      EXPECT_EQ(pool(Pooling::sqrtn, {0, 1, 2, 3}, {0, 4}, four), Values(4, 0x1p-19f)) << weight;
    }
    EXPECT_EQ(pool(Pooling::mean, {0, 1}, {0, 2}, {-most, -most}), Values(4, 0x1p-20f));
  });
}

TEST_F(SmallOracle, CountsNeitherPaddingNorItsWeightInTheMean) {
  EXPECT_EQ(pool(Pooling::mean, {-1, 1, -1, 3}, {0, 4}), (Values{9, 10, 11, 12}));
  EXPECT_EQ(pool(Pooling::mean, {-1, 1, -1, 3}, {0, 4}, {100, 1, NAN, 1}), (Values{9, 10, 11, 12}));
  EXPECT_EQ(pool(Pooling::sqrtn, {1, -1}, {0, 2}, {2, 5}), (Values{5, 6, 7, 8}));
}

TEST_F(SmallOracle, CountsIdsOutOfRangeInTheMean) {
  EXPECT_EQ(pool(Pooling::mean, {0, 5}, {0, 2}), (Values{0.5, 1, 1.5, 2}));
  EXPECT_EQ(pool(Pooling::mean, {0, -2}, {0, 2}), (Values{0.5, 1, 1.5, 2}));
}

TEST_F(SmallOracle, GivesZerosWhereThereIsNothingToPool) {
  const Values zeros{0, 0, 0, 0};
  for (const Pooling pooling : {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max}) {
    EXPECT_EQ(pool(pooling, {}, {0, 0}), zeros) << name_of_enum(pooling);
    EXPECT_EQ(pool(pooling, {-1, -1}, {0, 2}), zeros) << name_of_enum(pooling);
    EXPECT_EQ(pool(pooling, std::vector<int64_t>(70, -1), {0, 70}), zeros) << name_of_enum(pooling);
  }
  EXPECT_EQ(pool(Pooling::mean, {1, 3}, {0, 2}, {1, -1}), zeros);
  EXPECT_EQ(pool(Pooling::sqrtn, {1, 3}, {0, 2}, {0, 0}), zeros);
}

TEST_F(SmallOracle, TakesTheMaximumOfNegativeAndInfiniteElementsAndKeepsNan) {
  for_each_target([this] {
    rows_ = {-1, -infinity, NAN, 2, -3, -infinity, 1, NAN, -2, -infinity, 5, 7};
    for (const std::vector<int64_t>& ids : std::vector<std::vector<int64_t>>{{0, 1, 2}, {2, 1, 0}}) {
      const Values y = pool(Pooling::max, ids, {0, 3});
      EXPECT_EQ(y[0], -1);
      EXPECT_EQ(y[1], -infinity);
      EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
    }
  });
}

TEST(EmbeddingBag, DecodesEvery16BitNumberExactly) {
  for_each_target([] {
    std::vector<uint16_t> rows(1 << 16);
    std::vector<int64_t> ids;
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
    for (const DType type : {DType::f16, DType::bf16})
      for (const int64_t dim : {1, 2, 4, 8, 16, 32}) {
        BagFeature feature;
        feature.table = {type, rows.data(), (1 << 16) / dim, dim, 2 * dim};
        ids.clear();
        for (int64_t r = 0; r < feature.table.num_rows; ++r) ids.push_back(r);
        std::vector<float> y(rows.size());
        feature.ids = ids;
        feature.y = {y.data(), feature.table.num_rows, dim};
        embedding_bag_of(feature);
        for (size_t i = 0; i < rows.size(); ++i) {
          const double value =
              type == DType::f16 ? reference::value_of_half(rows[i]) : reference::value_of_bfloat16(rows[i]);
          ASSERT_TRUE(std::isnan(value) ? std::isnan(y[i]) : value == y[i] && std::signbit(value) == std::signbit(y[i]))
              << name_of(type) << " " << i << ": expected " << value << ", got " << y[i];
        }
      }
  });
}

TEST(EmbeddingBag, CopiesOneHotRowsAndGivesPaddingZeros) {
  const std::vector<float> rows{1, 2, 3, 4, 5, 6}, default_row{7, 8, 9};
  std::vector<float> y(12, -99.0f);
  LookupCounters counters;
  BagFeature feature;
  feature.table = {DType::f32, rows.data(), 2, 3, 12, nullptr, nullptr, default_row.data()};
  const std::vector<int64_t> ids{1, -1, 2, 0};
  feature.ids = ids;
  feature.y = {y.data(), 4, 3};
  feature.counters = &counters;
  for_each_target([&] {
    embedding_bag_of(feature);
    EXPECT_EQ(y, (std::vector<float>{4, 5, 6, 0, 0, 0, 7, 8, 9, 1, 2, 3}));
  });
  EXPECT_EQ(counters.ids % 4, 0);
  EXPECT_EQ(counters.padding, counters.ids / 4);
  EXPECT_EQ(counters.empty_bags, counters.ids / 4);
  EXPECT_EQ(counters.out_of_range, counters.ids / 4);
}

TEST(EmbeddingBag, WeighsSingleIdsOutsideBags) {
  const std::vector<float> rows{1, 2, 3, 4}, weights{0.5f, 3};
  const std::vector<int64_t> ids{1, 0};
  std::vector<float> y(4);
  BagFeature feature;
  feature.table = {DType::f32, rows.data(), 2, 2, 8};
  feature.ids = ids;
  feature.weights = weights.data();
  feature.pooling = Pooling::sum;
  feature.y = {y.data(), 2, 2};
  embedding_bag_of(feature);
  EXPECT_EQ(y, (std::vector<float>{1.5, 2, 3, 6}));
}

TEST(EmbeddingBag, TakesBatchesOfNothing) {
  embedding_bag({});
  std::mt19937_64 random(5);
  const TestTable table(DType::f32, 4, 3, false, 0, random);
  const TestFeature feature(table, false, {}, Pooling::mean, 0, std::nullopt, random);
  const std::vector<BagFeature> batch(3, feature.feature);
  embedding_bag(batch);
  EXPECT_TRUE(feature.y->gap_intact());
}

TEST(EmbeddingBag, GivesTheDefaultRowForEveryIdOfATableOfNoRows) {
  const std::vector<float> default_row{3, 4};
  const std::vector<int64_t> ids{0, 1, -1}, offsets{0, 3};
  const HashTable table = build_hash_table({DType::i8, 2}, HashTableChunk{});
  for (const HashTableView* hashed : {static_cast<const HashTableView*>(nullptr), &table.view()}) {
    std::vector<float> y(2);
    BagFeature feature;
    feature.table = {DType::i8, nullptr, 0, 2, 2, nullptr, nullptr, default_row.data()};
    feature.hashed = hashed;
    feature.ids = ids;
    feature.bags = {offsets.data(), 1};
    feature.pooling = Pooling::sum;
    feature.y = {y.data(), 1, 2};
    embedding_bag_of(feature);
    const float elements = hashed == nullptr ? 2 : 3;  // -1 is a key like any other to a hashed table
    EXPECT_EQ(y, (std::vector<float>{3 * elements, 4 * elements}));
  }
}

TEST(EmbeddingBag, StaysWithinItsErrorInBagsOfManyIds) {
  std::mt19937_64 random(6);
  for (const DType type : row_types) {
    const TestTable table(type, 20, 1000, true, 0, random);
    for (const Case& c : cases) {
      const TestFeature feature(table, true, {20000, 1, 30001}, c.pooling, c.weights_stride, std::nullopt, random);
      embedding_bag_of(feature.feature);
      feature.expect_result();
      feature.expect_counted_once();
    }
  }
}

TEST(EmbeddingBag, ReachesRowsBeyond2To32) {
  for (const DType type : row_types) {
    SCOPED_TRACE(name_of(type));
    const int64_t dim = 8, num_rows = (int64_t{1} << 32) + 5, stride = dim * size_of(type);
    const auto bytes = static_cast<size_t>(num_rows * stride);
    void* const map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) GTEST_SKIP() << "the machine forbids " << bytes << " bytes of reserved memory";
    const auto scale_bytes = static_cast<size_t>(num_rows) * sizeof(float);
    void* const scale_map =
        mmap(nullptr, scale_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(scale_map, MAP_FAILED);
    auto* const scale = static_cast<float*>(scale_map);

    const std::vector<int64_t> ids{num_rows - 1, (int64_t{1} << 31) + 1, (int64_t{1} << 28) + 1, 2}, offsets{0, 2, 4};
    for (const int64_t id : ids) {
      unsigned char* row = static_cast<unsigned char*>(map) + id * stride;
      for (int64_t c = 0; c < dim; ++c) {
        const auto value = static_cast<float>(id % 7 + c);
        if (type == DType::f32) std::memcpy(row + 4 * c, &value, 4);
        const uint16_t as_half = to_float16(value).bits, as_bfloat16 = to_bfloat16(value).bits;
        if (type == DType::f16) std::memcpy(row + 2 * c, &as_half, 2);
        if (type == DType::bf16) std::memcpy(row + 2 * c, &as_bfloat16, 2);
        if (type == DType::i8) row[c] = static_cast<unsigned char>(value);
      }
      scale[id] = 1;
    }
    std::vector<float> y(2 * dim);
    BagFeature feature;
    feature.table = {type, map, num_rows, dim, stride, scale, scale};  // of I8: x = q + 1
    feature.ids = ids;
    feature.bags = {offsets.data(), 2};
    feature.pooling = Pooling::sum;
    feature.y = {y.data(), 2, dim};
    embedding_bag_of(feature);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < dim; ++c) {
        const int64_t first = ids[static_cast<size_t>(2 * b)] % 7 + c,
                      second = ids[static_cast<size_t>(2 * b) + 1] % 7 + c;
        EXPECT_EQ(y[static_cast<size_t>(b * dim + c)],
                  static_cast<float>(first + second + (type == DType::i8 ? 2 : 0)));
      }
    munmap(map, bytes);
    munmap(scale_map, scale_bytes);
  }
}

}}  // namespace warprank
