// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Transforms over the columns of a batch.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ids/buckets.hpp"
#include "warprank/ids/detail/transform_reader.hpp"
#include "warprank/ids/transform.hpp"

namespace warprank { inline namespace v0 { namespace ids {

namespace detail {

/// A column as it was given; of its values those of its type.
struct ColumnData {
  bool is_set = false;
  Span<const std::string_view> texts;
  Span<const int64_t> integers;
  Span<const float> numbers;
  Span<const int64_t> offsets;  ///< empty: one value a row
};

struct FeatureData {
  std::vector<int64_t> ids;
  std::vector<float> numbers;
  std::vector<int64_t> own_offsets;
  Span<const int64_t> offsets;  ///< its own or a column's; empty: one value a row
};

class Run;

}  // namespace detail

/// What transforms made of a batch, by the feature's number; refers to offsets of the columns. Empty at first.
class Features {
 public:
  /// Of features that are ids.
  Span<const int64_t> ids(int feature) const { return data_.at(static_cast<size_t>(feature)).ids; }
  /// [values, width] of features that are numbers, and the weights of weighted ids.
  Span<const float> numbers(int feature) const { return data_.at(static_cast<size_t>(feature)).numbers; }
  /// Where the values of each row begin, and their number; empty: every row has one.
  Span<const int64_t> offsets(int feature) const { return data_.at(static_cast<size_t>(feature)).offsets; }

 private:
  std::vector<detail::FeatureData> data_;

  friend class Transforms;
};

namespace detail {

class Run {
 public:
  Run(const Program& program, const std::vector<ColumnData>& columns, int64_t num_rows,
      std::vector<FeatureData>& features)
      : program_(program), columns_(columns), num_rows_(num_rows), features_(features) {}

  void run() {
    features_.resize(program_.features.size());
    for (index_ = 0; index_ < program_.features.size(); ++index_) {
      step_ = &program_.steps[index_];
      out_ = &features_[index_];
      std::visit([&](const auto& op) { make(op); }, program_.features[index_].op);
    }
  }

 private:
  const ColumnData& column(size_t source) const { return columns_[static_cast<size_t>(step_->sources[source].column)]; }
  bool is_column(size_t source) const { return step_->sources[source].column >= 0; }
  ColumnType type(size_t source) const {
    return program_.columns[static_cast<size_t>(step_->sources[source].column)].type;
  }
  Span<const int64_t> ids_of(size_t source) const {
    return is_column(source) ? column(source).integers
                             : Span<const int64_t>(features_[static_cast<size_t>(step_->sources[source].feature)].ids);
  }
  Span<const int64_t> offsets_of(size_t source) const {
    return is_column(source) ? column(source).offsets
                             : features_[static_cast<size_t>(step_->sources[source].feature)].offsets;
  }
  static int64_t begin(Span<const int64_t> offsets, int64_t row) { return offsets.empty() ? row : offsets[row]; }

  [[noreturn]] void fail(Span<const int64_t> offsets, int64_t value, const std::string& expected,
                         const std::string& got) const {
    int64_t row = 0;
    while (begin(offsets, row + 1) <= value) ++row;
    fail_row(row, expected, got);
  }
  [[noreturn]] void fail_row(int64_t row, const std::string& expected, const std::string& got) const {
    throw invalid_argument("feature '" + program_.features[index_].name + "', row " + std::to_string(row), expected,
                           got);
  }
  static std::string show(std::string_view text) { return "'" + std::string(text) + "'"; }
  static std::string show(int64_t integer) { return std::to_string(integer); }

  // --- one id for each value, or none where it is dropped

  static bool equals(std::string_view value, const Mask& mask) { return value == *mask.text; }
  static bool equals(int64_t value, const Mask& mask) { return value == *mask.integer; }

  template <class Values, class IdOf>
  void map(const Values& values, Span<const int64_t> offsets, const std::optional<Mask>& mask, const IdOf& id_of) {
    out_->ids.resize(static_cast<size_t>(values.size()));
    int64_t* const ids = out_->ids.data();
    out_->offsets = offsets;
    if (!mask) {
      for (int64_t i = 0; i < values.size(); ++i) ids[i] = id_of(i, values[i]);
    } else if (mask->id) {
      for (int64_t i = 0; i < values.size(); ++i) ids[i] = equals(values[i], *mask) ? *mask->id : id_of(i, values[i]);
    } else {
      int64_t kept = 0;
      start_offsets();
      for (int64_t row = 0; row < num_rows_; ++row) {
        for (int64_t i = begin(offsets, row); i < begin(offsets, row + 1); ++i)
          if (!equals(values[i], *mask)) ids[kept++] = id_of(i, values[i]);
        out_->own_offsets.push_back(kept);
      }
      out_->ids.resize(static_cast<size_t>(kept));
      out_->offsets = out_->own_offsets;
    }
  }
  void start_offsets() { out_->own_offsets.assign(1, 0); }

  template <class IdOf>
  void map_column(const std::optional<Mask>& mask, const IdOf& id_of) {
    if (type(0) == ColumnType::text)
      map(column(0).texts, column(0).offsets, mask, id_of);
    else
      map(column(0).integers, column(0).offsets, mask, id_of);
  }

  void make(const HashTransform& op) {
    const ValueHash hash(op.key);
    const auto buckets = static_cast<uint64_t>(op.buckets);
    map_column(op.mask, [&](int64_t, auto value) { return op.first + static_cast<int64_t>(hash(value) % buckets); });
  }

  int64_t place(std::string_view text) const { return step_->texts->find(text); }
  int64_t place(int64_t integer) const { return step_->integers->find(integer); }
  static int64_t modulo(std::string_view, int64_t) { return 0; }
  static int64_t modulo(int64_t integer, int64_t n) { return integer % n + (integer % n < 0 ? n : 0); }

  void make(const VocabularyTransform& op) {
    const ValueHash hash(op.key);
    const auto buckets = static_cast<uint64_t>(op.oov_buckets);
    map_column(op.mask, [&](int64_t i, auto value) {
      const int64_t found = place(value);
      if (found >= 0) return op.first + found;
      if (buckets > 0)
        return op.oov_first +
               (op.oov_by == OovBy::hash ? static_cast<int64_t>(hash(value) % buckets) : modulo(value, op.oov_buckets));
      if (!op.default_id) fail(column(0).offsets, i, "a value of the vocabulary", show(value));
      return *op.default_id;
    });
  }

  void make(const IdentityTransform& op) {
    map(column(0).integers, column(0).offsets, op.mask, [&](int64_t i, int64_t value) {
      if (value >= 0 && value < op.buckets) return value;
      if (!op.default_id)
        fail(column(0).offsets, i, "an integer from 0 to " + std::to_string(op.buckets - 1), show(value));
      return *op.default_id;
    });
  }

  void make(const BucketizeTransform& op) {
    const auto size = static_cast<int64_t>(op.boundaries.size());
    const auto id_of = [&](int64_t, auto value) {
      return bucketize(static_cast<float>(value), op.boundaries.data(), size);
    };
    if (type(0) == ColumnType::f32)
      map_without_mask(column(0).numbers, id_of);
    else
      map_without_mask(column(0).integers, id_of);
  }
  template <class Values, class IdOf>
  void map_without_mask(const Values& values, const IdOf& id_of) {
    out_->ids.resize(static_cast<size_t>(values.size()));
    for (int64_t i = 0; i < values.size(); ++i) out_->ids[static_cast<size_t>(i)] = id_of(i, values[i]);
    out_->offsets = column(0).offsets;
  }

  // --- of several sources

  /// What a cross takes of the values of a source.
  void read_parts(size_t source, std::vector<uint64_t>& parts) const {
    parts.clear();
    if (is_column(source) && type(source) == ColumnType::text)
      for (const std::string_view text : column(source).texts) parts.push_back(ValueHash()(text));
    else
      for (const int64_t id : ids_of(source)) parts.push_back(static_cast<uint64_t>(id));
  }

  void make(const CrossTransform& op) {
    const size_t num_sources = step_->sources.size();
    std::vector<std::vector<uint64_t>> parts(num_sources);
    bool one_each = true;
    for (size_t s = 0; s < num_sources; ++s) {
      read_parts(s, parts[s]);
      one_each = one_each && offsets_of(s).empty();
    }
    out_->ids.clear();
    start_offsets();
    std::vector<int64_t> place(num_sources);
    for (int64_t row = 0; row < num_rows_; ++row) {
      bool has_more = true;
      for (size_t s = 0; s < num_sources; ++s) {
        place[s] = begin(offsets_of(s), row);
        has_more = has_more && place[s] < begin(offsets_of(s), row + 1);
      }
      while (has_more) {
        auto hash = static_cast<uint64_t>(op.key);
        for (size_t s = 0; s < num_sources; ++s) hash = concatenate(hash, parts[s][static_cast<size_t>(place[s])]);
        out_->ids.push_back(static_cast<int64_t>(hash % static_cast<uint64_t>(op.buckets)));
        has_more = advance(place, row);
      }
      if (!one_each) out_->own_offsets.push_back(static_cast<int64_t>(out_->ids.size()));
    }
    out_->offsets = one_each ? Span<const int64_t>() : Span<const int64_t>(out_->own_offsets);
  }
  /// To a row's next combination; false: there is none.
  bool advance(std::vector<int64_t>& place, int64_t row) const {
    for (size_t s = place.size(); s-- > 0;) {
      if (++place[s] < begin(offsets_of(s), row + 1)) return true;
      place[s] = begin(offsets_of(s), row);
    }
    return false;
  }

  /// That each id has a weight.
  void check_weights() const {
    const Span<const int64_t> ids = offsets_of(0), weights = offsets_of(1);
    for (int64_t row = 0; row < num_rows_; ++row) {
      const int64_t wanted = begin(ids, row + 1) - begin(ids, row), got = begin(weights, row + 1) - begin(weights, row);
      if (wanted != got) fail_row(row, std::to_string(wanted) + " weights, one for each id", std::to_string(got));
    }
  }

  void make(const WeighTransform&) {
    check_weights();
    const Span<const int64_t> ids = ids_of(0), offsets = offsets_of(0);
    const Span<const float> weights = column(1).numbers;
    out_->ids.clear();
    out_->numbers.clear();
    start_offsets();
    for (int64_t row = 0; row < num_rows_; ++row) {
      for (int64_t i = begin(offsets, row); i < begin(offsets, row + 1); ++i) {
        if (ids[i] < 0 || !(weights[i] > 0)) continue;
        out_->ids.push_back(ids[i]);
        out_->numbers.push_back(weights[i]);
      }
      out_->own_offsets.push_back(static_cast<int64_t>(out_->ids.size()));
    }
    out_->offsets = out_->own_offsets;
  }

  void make(const EncodeTransform& op) {
    const Span<const int64_t> ids = ids_of(0), offsets = offsets_of(0);
    const bool weighted = step_->sources.size() == 2;
    if (weighted) check_weights();
    out_->numbers.assign(static_cast<size_t>(num_rows_ * op.tokens), 0.f);
    out_->offsets = {};
    for (int64_t row = 0; row < num_rows_; ++row) {
      const int64_t first = begin(offsets, row), last = begin(offsets, row + 1);
      if (op.mode == Encoding::one_hot && last - first != 1) fail_row(row, "one id", std::to_string(last - first));
      float* const encoded = out_->numbers.data() + row * op.tokens;
      for (int64_t i = first; i < last; ++i) {
        if (ids[i] < 0 || ids[i] >= op.tokens) continue;
        float& token = encoded[ids[i]];
        token = op.mode == Encoding::count ? token + (weighted ? column(1).numbers[i] : 1.f) : 1.f;
      }
    }
  }

  void make(const NumbersTransform& op) {
    const bool is_f32 = type(0) == ColumnType::f32;
    const auto size = static_cast<size_t>(is_f32 ? column(0).numbers.size() : column(0).integers.size());
    const auto width = static_cast<size_t>(step_->width);
    out_->numbers.resize(size);
    for (size_t i = 0; i < size; ++i) {
      const auto at = static_cast<int64_t>(i);
      const float x = is_f32 ? column(0).numbers[at] : static_cast<float>(column(0).integers[at]);
      out_->numbers[i] = op.mean.empty() ? x : (x - op.mean[i % width]) / op.divisor[i % width];
    }
    out_->offsets = column(0).offsets;
  }

  const Program& program_;
  const std::vector<ColumnData>& columns_;
  int64_t num_rows_;
  std::vector<FeatureData>& features_;
  size_t index_ = 0;
  const Step* step_ = nullptr;
  FeatureData* out_ = nullptr;
};

}  // namespace detail

}}}  // namespace warprank::v0::ids
