// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Features on the host and in device memory, for the tests of the embedding bag's kernel.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "reference/embedding_bag.hpp"
#include "support/kernel_testing.hpp"
#include "support/policy_testing.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/ops/embedding_bag.cuh"

namespace warprank::embedding_bag_testing {

using namespace kernel_testing;  // NOLINT: for the tests that include it

inline constexpr double u = 0x1p-24;
inline constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
inline constexpr int64_t piece = detail::embedding_bag::policy.ids_per_piece;
inline const std::vector<DType> row_types{DType::f32, DType::f16, DType::bf16, DType::i8};

inline std::vector<float> normals(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(normal(random));
  return values;
}

/// Where scales and offsets of I8 rows are: in two arrays, in one in turns, behind the values of each row.
enum class Scales { apart, in_turns, behind };

/// A table of normally distributed elements on the host, with `gap` bytes of NaN between its rows and keys for use as a
/// hashed table.
struct TestTable {
  TestTable(DType type, int64_t dim, int64_t num_rows, bool with_default, int64_t gap, std::mt19937_64& random,
            Scales scales = Scales::apart)
      : default_row(normals(with_default ? dim : 0, random)), scales(scales) {
    if (type == DType::i8) scale = normals(num_rows, random), offset = normals(num_rows, random);
    const int64_t scale_at = (dim + 3) / 4 * 4 + 4 * gap;  // where it is behind the values
    if (scales == Scales::behind) gap = scale_at + 8 + 4 * gap - dim;
    view.type = type;
    view.num_rows = num_rows;
    view.dim = dim;
    view.row_stride_bytes = dim * size_of(type) + gap;
    rows.assign(static_cast<size_t>(num_rows * view.row_stride_bytes), 0xff);
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t c = 0; c < dim; ++c) {
        unsigned char* to = rows.data() + r * view.row_stride_bytes + c * size_of(type);
        const float value = normals(1, random)[0];
        const uint16_t as_half = to_float16(value).bits, as_bfloat16 = to_bfloat16(value).bits;
        if (type == DType::f32) std::memcpy(to, &value, 4);
        if (type == DType::f16) std::memcpy(to, &as_half, 2);
        if (type == DType::bf16) std::memcpy(to, &as_bfloat16, 2);
        if (type == DType::i8) *to = static_cast<unsigned char>(random());
      }
      keys.push_back(r < 4 ? std::vector<int64_t>{-1, 0, lowest, highest}[static_cast<size_t>(r)]
                           : static_cast<int64_t>(random()));
      row_of_key[keys.back()] = r;
    }
    view.rows = rows.data();
    if (type == DType::i8) place_scales(scale_at);
    if (with_default) view.default_row = default_row.data();
  }
  TestTable(const TestTable&) = delete;
  TestTable& operator=(const TestTable&) = delete;

  /// Mostly ids of rows; every eighth is padding, unknown or out of range.
  std::vector<int64_t> ids(int64_t count, bool hashed, std::mt19937_64& random) const {
    const std::vector<int64_t> odd{-1, -2, view.num_rows, view.num_rows + 7, lowest, highest, int64_t{1} << 32};
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<size_t>(random() % static_cast<uint64_t>(std::max<int64_t>(view.num_rows, 1)));
      const int64_t id = hashed && !keys.empty() ? keys[row] : static_cast<int64_t>(row);
      ids.push_back(random() % 8 == 0 ? odd[random() % odd.size()] : id);
    }
    return ids;
  }

  /// What the documentation of BagFeature says of an id.
  int64_t row_of(int64_t id, bool hashed, std::optional<int64_t> padding) const {
    if (padding.has_value() ? id == *padding : !hashed && id == -1) return reference::padding;
    if (!hashed) return 0 <= id && id < view.num_rows ? id : reference::the_default_row;
    const auto found = row_of_key.find(id);
    return found == row_of_key.end() ? reference::the_default_row : found->second;
  }

  HashTable hash_table(bool is_mutable) const {
    std::vector<unsigned char> packed;
    for (int64_t r = 0; r < view.num_rows; ++r) {
      packed.insert(packed.end(), view.row(r), view.row(r) + view.row_bytes());
    }
    HashTableOptions options;
    options.threads = 1;
    return build_hash_table({view.type, view.dim, is_mutable},
                            {view.num_rows, keys.data(), packed.data(), scale.data(), offset.data()}, options);
  }

  std::vector<float> default_row;
  Scales scales;
  std::vector<float> scale, offset, in_turns;
  std::vector<unsigned char> rows;
  std::vector<int64_t> keys;
  std::map<int64_t, int64_t> row_of_key;
  TableView view;

 private:
  void place_scales(int64_t scale_at) {
    view.scale = scale.data(), view.offset = offset.data();
    if (scales == Scales::apart) return;
    for (size_t r = 0; r < scale.size(); ++r) {
      in_turns.push_back(scale[r]), in_turns.push_back(offset[r]);
      unsigned char* const row = rows.data() + static_cast<int64_t>(r) * view.row_stride_bytes;
      if (scales == Scales::behind) std::memcpy(row + scale_at, &in_turns[2 * r], 8);
    }
    view.scale_stride_bytes = scales == Scales::behind ? view.row_stride_bytes : 8;
    view.scale = in_turns.data();
    if (scales == Scales::behind) view.scale = reinterpret_cast<const float*>(rows.data() + scale_at);
    view.offset = view.scale + 1;
  }
};

enum class Form { each, offsets, indices };

/// A feature on the host.
struct TestBags {
  std::shared_ptr<const TestTable> table;
  bool hashed = false, is_mutable = false;
  Form form = Form::offsets;
  std::vector<int64_t> offsets{0}, ids;
  std::vector<float> weights;  // none: all 1
  int64_t weights_stride = 1;
  Pooling pooling = Pooling::sum;
  std::optional<int64_t> padding;
  bool half_output = false;
  int64_t y_column = 0, y_gap = 0;  // columns before and behind those of the feature
  int64_t spare_bags = 0;           // capacity beyond the actual number
  int64_t rows_at = 0;              // bytes by which the rows are misaligned
  int64_t max_bag_ids = 0;
  std::optional<BlobIds> blob;  // where the ids lie on the device, instead of arrays

  int64_t num_bags() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t row_of(int64_t id) const { return table->row_of(id, hashed, padding); }

  reference::Bounded expected() const {
    return reference::embedding_bag(
        table->view, [this](int64_t id) { return row_of(id); }, ids, offsets, weights, pooling);
  }
  LookupCounters expected_counters() const {
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
    return expected;
  }
};

/// What a feature's look-up gave.
struct Result {
  std::vector<unsigned char> y;  // the whole matrix, with what is around the feature's columns
  LookupCounters counters;
};
inline constexpr unsigned char untouched = 0xa5;

/// Features in device memory, with all that a launch needs.
class DeviceBags {
 public:
  explicit DeviceBags(const std::vector<TestBags>& bags,
                      const LaunchPolicies& policies = kernel_testing::usual_policies())
      : bags_(bags), counters_(size(bags), LookupCounters{}), policies_(policies) {
    for (size_t i = 0; i < bags.size(); ++i) features_.push_back(upload(bags[i], i));
    prepare();
  }

  void prepare() {
    op_ = std::make_unique<EmbeddingBag>(features_, policies_);
    descriptors_ = std::make_unique<DeviceArray<unsigned char>>(op_->descriptor_bytes());
    descriptors_->write(op_->descriptors());
    workspace_ = std::make_unique<DeviceArray<unsigned char>>(op_->workspace_bytes(), 0);
  }
  const EmbeddingBag& op() const { return *op_; }
  void launch(Stream stream = {}) const { op_->launch({descriptors_->data(), workspace_->data()}, stream); }
  /// Changes features before anything is launched; prepare() is next.
  std::vector<BagFeature>& features() { return features_; }
  void set_num_bags(size_t i, int64_t count) { longs_[counts_[i]]->write({count}); }
  void fill_outputs() {
    for (const auto& output : outputs_) output->write(std::vector<unsigned char>(output->read().size(), untouched));
    counters_.write(std::vector<LookupCounters>(bags_.size()));
  }

  Result result(size_t i) const { return {outputs_[i]->read(), counters_.read(static_cast<int64_t>(i), 1)[0]}; }
  /// All that was written, one feature after the other.
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all;
    for (size_t i = 0; i < bags_.size(); ++i) {
      const Result one = result(i);
      all.insert(all.end(), one.y.begin(), one.y.end());
      const auto* counters = reinterpret_cast<const unsigned char*>(&one.counters);
      all.insert(all.end(), counters, counters + sizeof one.counters);
    }
    return all;
  }

 private:
  static int64_t size(const std::vector<TestBags>& bags) { return static_cast<int64_t>(bags.size()); }
  template <class Value>
  Value* keep(std::vector<std::unique_ptr<DeviceArray<Value>>>& arrays, const std::vector<Value>& values) {
    if (values.empty()) return nullptr;
    return arrays.emplace_back(std::make_unique<DeviceArray<Value>>(values))->data();
  }

  /// As many as the capacity, of which those behind the actual ones must not be read.
  template <class Value>
  static std::vector<Value> padded(std::vector<Value> values, int64_t capacity, Value poison) {
    values.resize(static_cast<size_t>(capacity), poison);
    return values;
  }

  IdArray upload_ids(const TestBags& from) {
    IdArray ids;
    const auto num_ids = static_cast<int64_t>(from.ids.size());
    const int64_t capacity = num_ids + from.spare_bags;
    ids.ids = keep(longs_, padded(from.ids, capacity, lowest));
    if (from.form != Form::each) ids.num_ids.capacity = capacity;
    if (from.form == Form::offsets) {
      ids.offsets = keep(longs_, padded(from.offsets, from.num_bags() + from.spare_bags + 1, highest));
    }
    if (from.form == Form::indices) {
      std::vector<int64_t> indices;
      for (int64_t b = 0; b < from.num_bags(); ++b) {
        indices.resize(static_cast<size_t>(from.offsets[static_cast<size_t>(b) + 1]), b);
      }
      ids.indices = keep(longs_, padded(indices, std::max<int64_t>(capacity, 1), lowest));
      ids.num_ids.actual = keep(longs_, {num_ids});
    }
    if (from.weights.empty()) return ids;
    std::vector<float> strided;
    for (const float weight : from.weights) {
      strided.push_back(weight);
      strided.resize(strided.size() + static_cast<size_t>(from.weights_stride - 1), NAN);
    }
    ids.weights = keep(floats_, padded(strided, capacity * from.weights_stride, NAN));
    ids.weights_stride = from.weights_stride;
    return ids;
  }

  BagFeature upload(const TestBags& from, size_t i) {
    BagFeature feature;
    TableView& table = feature.table = from.table->view;
    std::vector<unsigned char> rows(static_cast<size_t>(from.rows_at), 0xff);
    rows.insert(rows.end(), from.table->rows.begin(), from.table->rows.end());
    table.rows = from.hashed || from.table->rows.empty() ? nullptr : keep(bytes_, rows) + from.rows_at;
    switch (from.table->scales) {
      case Scales::apart:
        table.scale = keep(floats_, from.table->scale);
        table.offset = keep(floats_, from.table->offset);
        break;
      case Scales::in_turns:
        table.scale = keep(floats_, from.table->in_turns);
        table.offset = table.scale + 1;
        break;
      case Scales::behind:
        if (table.rows == nullptr) break;
        table.scale = static_cast<const float*>(table.rows) +
                      (table.scale - reinterpret_cast<const float*>(from.table->rows.data()));
        table.offset = table.scale + 1;
    }
    table.default_row = keep(floats_, from.table->default_row);
    if (from.hashed) {
      const HashTable built = from.table->hash_table(from.is_mutable);
      feature.hashed = built.view();
      feature.hashed->buckets = keep(bytes_, {built.image().begin(), built.image().end()}) + hash_table::header_bytes;
    }
    if (from.blob) {
      feature.ids = *from.blob;
      counts_.push_back(0);
      feature.num_bags.capacity = from.num_bags() + from.spare_bags;
    } else {
      feature.ids = upload_ids(from);
      counts_.push_back(longs_.size());
      feature.num_bags = {from.num_bags() + from.spare_bags, keep(longs_, {from.num_bags()})};
    }
    feature.pooling = from.pooling;
    feature.padding = from.padding;
    feature.max_bag_ids = from.max_bag_ids;
    const int64_t stride = from.y_column + table.dim + from.y_gap, bags = feature.num_bags.capacity;
    const int64_t element = from.half_output ? 2 : 4;
    outputs_.push_back(std::make_unique<DeviceArray<unsigned char>>(bags * stride * element, untouched));
    unsigned char* y = outputs_.back()->data() + from.y_column * element;
    if (from.half_output) {
      feature.y = Matrix<float16>(reinterpret_cast<float16*>(y), bags, table.dim, stride);
    } else {
      feature.y = Matrix<float>(reinterpret_cast<float*>(y), bags, table.dim, stride);
    }
    feature.counters = counters_.data() + i;
    return feature;
  }

  std::vector<TestBags> bags_;
  DeviceArray<LookupCounters> counters_;
  LaunchPolicies policies_;
  std::vector<std::unique_ptr<DeviceArray<unsigned char>>> bytes_, outputs_;
  std::vector<std::unique_ptr<DeviceArray<float>>> floats_;
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> longs_;
  std::vector<size_t> counts_;
  std::vector<BagFeature> features_;
  std::unique_ptr<EmbeddingBag> op_;
  std::unique_ptr<DeviceArray<unsigned char>> descriptors_, workspace_;
};

/// The feature's columns of the bags, and that nothing else of the matrix was written.
template <class Value>
std::vector<Value> values_of(const TestBags& bags, const Result& result) {
  const int64_t dim = bags.table->view.dim, stride = bags.y_column + dim + bags.y_gap;
  std::vector<Value> values;
  std::vector<unsigned char> written = result.y;
  for (int64_t b = 0; b < bags.num_bags(); ++b) {
    for (int64_t c = 0; c < dim; ++c) {
      unsigned char* at = written.data() + (b * stride + bags.y_column + c) * static_cast<int64_t>(sizeof(Value));
      Value value;
      std::memcpy(&value, at, sizeof value);
      values.push_back(value);
      std::memset(at, untouched, sizeof value);
    }
  }
  EXPECT_EQ(written, std::vector<unsigned char>(written.size(), untouched)) << "written outside of the columns";
  return values;
}

inline void expect_right(const TestBags& bags, const Result& result) {
  if (bags.half_output) {
    kernel_testing::expect_within(bags.expected(), values_of<float16>(bags, result), 1);
  } else {
    kernel_testing::expect_within(bags.expected(), values_of<float>(bags, result), 1);
  }
  const LookupCounters expected = bags.expected_counters();
  EXPECT_EQ(result.counters.ids, expected.ids);
  EXPECT_EQ(result.counters.unknown, expected.unknown);
  EXPECT_EQ(result.counters.out_of_range, expected.out_of_range);
  EXPECT_EQ(result.counters.padding, expected.padding);
  EXPECT_EQ(result.counters.empty_bags, expected.empty_bags);
}

inline std::string describe(const TestBags& bags) {
  const TableView& table = bags.table->view;
  return std::string(name_of(table.type)) + ", dim " + std::to_string(table.dim) + ", " + name_of_enum(bags.pooling) +
         (bags.hashed ? bags.is_mutable ? ", mutable" : ", hashed" : ", direct") + ", form " +
         std::to_string(static_cast<int>(bags.form)) + (bags.weights.empty() ? "" : ", weighted") +
         (bags.half_output ? ", half" : ", float") + ", rows at " + std::to_string(bags.rows_at);
}

/// Looks all up by one launch.
inline std::vector<Result> look_up(const std::vector<TestBags>& all) {
  const DeviceBags device(all);
  device.launch();
  std::vector<Result> results;
  for (size_t i = 0; i < all.size(); ++i) results.push_back(device.result(i));
  return results;
}
inline void expect_right(const std::vector<TestBags>& all) {
  const std::vector<Result> results = look_up(all);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE("feature " + std::to_string(i) + ": " + describe(all[i]));
    expect_right(all[i], results[i]);
    if (testing::Test::HasFailure()) return;
  }
}

/// Fills in bags of the given sizes.
inline TestBags make_bags(std::shared_ptr<const TestTable> table, bool hashed, Form form,
                          const std::vector<int64_t>& sizes, Pooling pooling, int64_t weights_stride,
                          std::mt19937_64& random) {
  TestBags bags;
  bags.table = std::move(table);
  bags.hashed = hashed;
  bags.form = form;
  bags.pooling = pooling;
  for (const int64_t size : sizes) bags.offsets.push_back(bags.offsets.back() + (form == Form::each ? 1 : size));
  bags.ids = bags.table->ids(bags.offsets.back(), hashed, random);
  std::uniform_real_distribution<float> uniform(-0.5f, 2);
  for (int64_t i = 0; weights_stride > 0 && i < bags.offsets.back(); ++i) bags.weights.push_back(uniform(random));
  bags.weights_stride = std::max<int64_t>(weights_stride, 1);
  return bags;
}

/// That a feature, changed so, is refused with a message that has `what` in it.
inline void expect_refused(const TestBags& bags, const std::string& what,
                           const std::function<void(BagFeature&)>& change) {
  DeviceBags device({bags});
  change(device.features()[0]);
  try {
    device.prepare();
    ADD_FAILURE() << "not refused: " << what;
  } catch (const invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

}  // namespace warprank::embedding_bag_testing
