// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ids of whole batches, made as in training by the transforms of a file: hash buckets, vocabularies, intervals,
/// crosses, bit for bit equal to TensorFlow's feature columns and Keras' preprocessing layers (docs/IDS.md).
///
///     const auto transforms = ids::Transforms::load(path);
///     ids::Columns columns(transforms, num_rows);
///     columns.text("city", cities).numbers("age", ages).integers("films", films, film_offsets);
///     ids::Features features;  // keeps its memory from batch to batch
///     transforms.run(columns, features);
///     request.ids(city_id, features.ids(transforms.feature("city")));

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/json.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ids/detail/transform_reader.hpp"
#include "warprank/ids/detail/transform_run.hpp"
#include "warprank/ids/transform.hpp"

namespace warprank { inline namespace v0 { namespace ids {

class Columns;

/// The transforms of a file, checked. Cheap to copy; threads may run it side by side, each with Features of its own.
class Transforms {
 public:
  /// `source` names the text in errors. Throws invalid_argument for everything that docs/IDS.md does not define.
  static Transforms from_json(const std::string& text, const std::string& source = "transforms") {
    return Transforms(std::make_shared<const detail::Program>(detail::read_transforms(text, source), source));
  }
  static Transforms load(const std::string& path) { return from_json(warprank::detail::read_text(path), path); }

  const std::vector<TransformColumn>& columns() const { return program_->columns; }
  const std::vector<TransformFeature>& features() const { return program_->features; }
  /// A feature's number; throws invalid_argument if no feature has the name.
  int feature(const std::string& name) const {
    std::vector<std::string> names;
    for (const TransformFeature& feature : features()) {
      if (feature.name == name) return static_cast<int>(names.size());
      names.push_back(feature.name);
    }
    throw invalid_argument("feature '" + name + "'", "one of the transforms", unknown_name(name, names));
  }

  /// Whether the feature is numbers, not ids; weighted ids are both.
  bool is_numbers(int feature) const { return kind(feature) == detail::FeatureKind::numbers; }
  /// How many numbers the feature has for each value.
  int64_t width(int feature) const { return program_->steps.at(static_cast<size_t>(feature)).width; }

  /// Throws invalid_argument with all errors of the columns, or with the value of a row that has no id.
  inline void run(const Columns& columns, Features& features) const;

 private:
  explicit Transforms(std::shared_ptr<const detail::Program> program) : program_(std::move(program)) {}

  detail::FeatureKind kind(int feature) const { return program_->steps.at(static_cast<size_t>(feature)).kind; }

  std::shared_ptr<const detail::Program> program_;

  friend class Columns;
};

/// The columns of a batch, read without a copy. Values of a ragged column belong to the rows by offsets [num_rows + 1].
class Columns {
 public:
  Columns(const Transforms& transforms, int64_t num_rows)
      : program_(transforms.program_), data_(program_->columns.size()), num_rows_(num_rows) {}

  Columns& text(const std::string& name, Span<const std::string_view> values, Span<const int64_t> offsets = {}) {
    return set(name, ColumnType::text, values.size(), offsets, [&](auto& data) { data.texts = values; });
  }
  Columns& integers(const std::string& name, Span<const int64_t> values, Span<const int64_t> offsets = {}) {
    return set(name, ColumnType::i64, values.size(), offsets, [&](auto& data) { data.integers = values; });
  }
  /// [values, width] if the column has a width.
  Columns& numbers(const std::string& name, Span<const float> values, Span<const int64_t> offsets = {}) {
    return set(name, ColumnType::f32, values.size(), offsets, [&](auto& data) { data.numbers = values; });
  }

 private:
  template <class Give>
  Columns& set(const std::string& name, ColumnType type, int64_t size, Span<const int64_t> offsets, const Give& give) {
    std::vector<std::string> names;
    for (const TransformColumn& column : program_->columns) {
      if (column.name != name) {
        names.push_back(column.name);
        continue;
      }
      const size_t index = names.size();
      const int64_t values = size / column.width;
      const std::string what = "column '" + name + "'";
      if (type != column.type) {
        problems_.add(what, std::string("values of type ") + name_of(column.type), name_of(type));
      } else if (size % column.width != 0) {
        problems_.add(what, std::to_string(column.width) + " numbers for each value", std::to_string(size));
      } else if (!column.ragged && (values != num_rows_ || !offsets.empty())) {
        problems_.add(what, "one value for each of " + std::to_string(num_rows_) + " rows",
                      std::to_string(values) + (offsets.empty() ? "" : " and offsets"));
      } else if (column.ragged && !fit(offsets, values)) {
        problems_.add(
            what,
            std::to_string(num_rows_ + 1) + " offsets from 0 to " + std::to_string(values) + " that never decrease",
            std::to_string(offsets.size()) + " that do not fit");
      }
      data_[index].offsets = offsets;
      data_[index].is_set = true;
      give(data_[index]);
      return *this;
    }
    problems_.add("column '" + name + "'", "a column of the transforms", unknown_name(name, names));
    return *this;
  }

  bool fit(Span<const int64_t> offsets, int64_t values) const {
    if (offsets.size() != num_rows_ + 1 || offsets[0] != 0 || offsets[num_rows_] != values) return false;
    for (int64_t row = 0; row < num_rows_; ++row)
      if (offsets[row] > offsets[row + 1]) return false;
    return true;
  }
  static const char* name_of(ColumnType type) { return detail::name_of(type); }

  std::shared_ptr<const detail::Program> program_;
  std::vector<detail::ColumnData> data_;
  int64_t num_rows_;
  Problems problems_;

  friend class Transforms;
};

inline void Transforms::run(const Columns& columns, Features& features) const {
  if (columns.program_ != program_)
    throw invalid_argument("Transforms::run", "columns that were made for these transforms", "others");
  Problems problems = columns.problems_;
  for (size_t i = 0; i < columns.data_.size(); ++i)
    if (!columns.data_[i].is_set) problems.add("column '" + program_->columns[i].name + "'", "its values", "none");
  problems.throw_if_any();
  detail::Run(*program_, columns.data_, columns.num_rows_, features.data_).run();
}

}}}  // namespace warprank::v0::ids
