// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads files of transforms and checks what they say.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/json.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/ids/buckets.hpp"
#include "warprank/ids/detail/value_hash.hpp"
#include "warprank/ids/fingerprint.hpp"
#include "warprank/ids/transform.hpp"

namespace warprank { inline namespace v0 { namespace ids::detail {

struct TransformFile {
  std::vector<TransformColumn> columns;
  std::vector<TransformFeature> features;
};

template <class Enum>
const char* name_of(Enum value) {
  for (const auto& [enumerator, name] : names_of(Enum{}))
    if (enumerator == value) return name;
  return "?";
}

template <size_t Index = 0>
bool emplace_transform(const std::string& kind, TransformOp& op) {
  if constexpr (Index < std::variant_size_v<TransformOp>) {
    if (kind != std::variant_alternative_t<Index, TransformOp>::kind) return emplace_transform<Index + 1>(kind, op);
    op.emplace<Index>();
    return true;
  } else {
    return false;
  }
}

inline void read_feature(warprank::detail::JsonReader& reader, const warprank::detail::Json& json,
                         TransformFeature& feature) {
  warprank::detail::JsonReader::Members members(reader, json);
  std::string kind;
  members.get("name", feature.name);
  members.get("op", kind);
  members.get("of", feature.of);
  if (!emplace_transform(kind, feature.op)) reader.fail("a transform of docs/IDS.md", "\"" + kind + "\"");
  std::visit(
      [&](auto& op) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(op)>, WeighTransform>) members.get("settings", op);
      },
      feature.op);
  members.finish();
}

inline TransformFile read_transforms(const std::string& text, const std::string& source) {
  const warprank::detail::Json json = warprank::detail::parse_json(text, source);
  warprank::detail::JsonReader reader(source);
  warprank::detail::JsonReader::Members members(reader, json);
  TransformFile file;
  std::string ids;
  reader.check_format(members, "warprank.transforms", 1);
  members.get("scheme", ids);
  if (ids != scheme) reader.fail("scheme \"" + std::string(scheme) + "\"", "\"" + ids + "\"");
  members.get("columns", file.columns);
  members.get_list("features", file.features, read_feature);
  members.finish();
  return file;
}

/// What a feature's source is, once it has been found.
struct SourceInfo {
  int column = -1, feature = -1;  ///< one of them
};

enum class FeatureKind { ids, weighted_ids, numbers };

/// What a feature needs at run time beside its settings.
struct Step {
  std::vector<SourceInfo> sources;
  FeatureKind kind = FeatureKind::ids;
  int64_t width = 1;  ///< of numbers
  std::unique_ptr<Places<std::string>> texts;
  std::unique_ptr<Places<int64_t>> integers;
};

/// A file's transforms with every name found and every setting checked. Not copied: steps refer to its features.
struct Program {
  Program(TransformFile file, const std::string& source)
      : columns(std::move(file.columns)), features(std::move(file.features)) {
    check_columns(source);
    for (size_t i = 0; i < features.size(); ++i) {
      where_ = source + ": feature '" + features[i].name + "'";
      for (size_t j = 0; j < i; ++j)
        if (features[j].name == features[i].name) problems_.add(where_, "a name of its own", "that of another");
      steps.emplace_back();
      find_sources(features[i], i);
      const auto before = problems_.list().size();
      std::visit([&](const auto& op) { check(op, steps.back()); }, features[i].op);
      if (problems_.list().size() != before) steps.back().sources.clear();
    }
    problems_.throw_if_any();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::vector<TransformColumn> columns;
  std::vector<TransformFeature> features;
  std::vector<Step> steps;  ///< by feature

 private:
  void check_columns(const std::string& source) {
    for (size_t i = 0; i < columns.size(); ++i) {
      where_ = source + ": column '" + columns[i].name + "'";
      for (size_t j = 0; j < i; ++j)
        if (columns[j].name == columns[i].name) problems_.add(where_, "a name of its own", "that of another");
      expect(columns[i].width >= 1, "a width of at least 1", columns[i].width);
      expect(columns[i].width == 1 || columns[i].type == ColumnType::f32, "numbers where there is a width",
             columns[i].width);
    }
  }

  void find_sources(const TransformFeature& feature, size_t index) {
    std::vector<std::string> column_names, feature_names;
    for (const TransformColumn& column : columns) column_names.push_back(column.name);
    for (size_t i = 0; i < index; ++i) feature_names.push_back(features[i].name);
    const auto find = [&](const std::vector<std::string>& names, const std::string& name, const char* what) {
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i] == name) return static_cast<int>(i);
      problems_.add(where_ + ", of", what, "'" + name + "', " + unknown_name(name, names));
      return -1;
    };
    for (const TransformSource& source : feature.of) {
      SourceInfo info;
      if (source.column.empty() == source.feature.empty())
        problems_.add(where_ + ", of", "either a column or a feature", source.column.empty() ? "neither" : "both");
      else if (source.feature.empty())
        info.column = find(column_names, source.column, "a column");
      else
        info.feature = find(feature_names, source.feature, "a feature that stands before");
      steps.back().sources.push_back(info);
    }
  }

  void expect(bool holds, const std::string& expected, int64_t got) { expect(holds, expected, std::to_string(got)); }
  void expect(bool holds, const std::string& expected, const std::string& got) {
    if (!holds) problems_.add(where_, expected, got);
  }

  static constexpr int text = 1, integers = 2, numbers = 4, ids = 8;
  /// That there are as many sources, each one of the kinds in `allowed`; one that was not found has been told.
  void expect_sources(const Step& step, size_t least, size_t most, int allowed) {
    const auto count = static_cast<int64_t>(step.sources.size());
    const std::string wanted = least == most ? std::to_string(least) : "at least " + std::to_string(least);
    expect(step.sources.size() >= least && step.sources.size() <= most, wanted + " in \"of\"", count);
    for (size_t i = 0; i < step.sources.size(); ++i) expect_source(step, i, allowed);
  }
  void expect_source(const Step& step, size_t i, int allowed) {
    const SourceInfo& source = step.sources[i];
    int kind = 0;
    std::string got;
    if (source.column >= 0) {
      const TransformColumn& column = columns[static_cast<size_t>(source.column)];
      kind = column.type == ColumnType::text ? text : column.type == ColumnType::i64 ? integers : numbers;
      got = "column '" + column.name + "' of " + name_of(column.type);
    } else if (source.feature >= 0) {
      const Step& other = steps[static_cast<size_t>(source.feature)];
      kind = other.kind == FeatureKind::ids ? ids : 0;
      got = "feature '" + features[static_cast<size_t>(source.feature)].name + "', which has " +
            (other.kind == FeatureKind::numbers ? "numbers" : "weights");
    } else {
      return;
    }
    if ((kind & allowed) != 0) return;
    std::string expected;
    const auto say = [&](int one, const char* name) {
      if ((allowed & one) != 0) expected += std::string(expected.empty() ? "" : ", ") + name;
    };
    say(text, "text"), say(integers, "integers"), say(numbers, "numbers"), say(ids, "ids");
    problems_.add(where_ + ", of", expected, got);
  }
  void expect_width_1(const Step& step, size_t i) {
    if (step.sources[i].column < 0) return;
    const int64_t width = columns[static_cast<size_t>(step.sources[i].column)].width;
    if (width != 1) problems_.add(where_ + ", of", "a column of width 1", std::to_string(width));
  }
  bool is_text(const Step& step) const {
    return !step.sources.empty() && step.sources[0].column >= 0 &&
           columns[static_cast<size_t>(step.sources[0].column)].type == ColumnType::text;
  }

  void check_range(int64_t first, int64_t buckets, const std::string& what) {
    expect(first >= 0 && first <= INT64_MAX - buckets, what + " from 0 on, and ids of 63 bits", first);
  }
  void check_key(const std::vector<int64_t>& key) {
    expect(key.empty() || key.size() == 2, "a key of two integers, or none", static_cast<int64_t>(key.size()));
  }
  void check_mask(const std::optional<Mask>& mask, const Step& step) {
    if (!mask) return;
    const bool fits = is_text(step) ? mask->text && !mask->integer : mask->integer && !mask->text;
    expect(fits, is_text(step) ? "a mask of text" : "a mask of an integer", "another");
  }

  void check(const HashTransform& op, Step& step) {
    expect_sources(step, 1, 1, text | integers);
    expect(op.buckets >= 1, "at least 1 bucket", op.buckets);
    if (op.buckets >= 1) check_range(op.first, op.buckets, "a first bucket");
    check_key(op.key);
    check_mask(op.mask, step);
  }

  void check(const VocabularyTransform& op, Step& step) {
    expect_sources(step, 1, 1, text | integers);
    const bool has_texts = is_text(step);
    expect(has_texts ? op.integers.empty() : op.texts.empty(),
           has_texts ? "a vocabulary of texts" : "a vocabulary of integers", "another");
    const auto size = static_cast<int64_t>(has_texts ? op.texts.size() : op.integers.size());
    check_range(op.first, size, "a first id");
    expect(op.oov_buckets >= 0, "no bucket for other values, or some", op.oov_buckets);
    if (op.oov_buckets > 0) check_range(op.oov_first, op.oov_buckets, "a first bucket for other values");
    expect(op.oov_by == OovBy::hash || !has_texts, "the modulo of integers", "that of text");
    expect(!(op.oov_buckets > 0 && op.default_id), "either a default or buckets for other values", "both");
    check_key(op.key);
    check_mask(op.mask, step);
    int64_t twice = -1;
    if (has_texts)
      step.texts = std::make_unique<Places<std::string>>(op.texts, twice);
    else
      step.integers = std::make_unique<Places<int64_t>>(op.integers, twice);
    if (twice < 0) return;
    const auto place = static_cast<size_t>(twice);
    expect(false, "each value once", has_texts ? "'" + op.texts[place] + "'" : std::to_string(op.integers[place]));
  }

  void check(const IdentityTransform& op, Step& step) {
    expect_sources(step, 1, 1, integers);
    expect(op.buckets >= 1, "at least 1 bucket", op.buckets);
    check_mask(op.mask, step);
  }

  void check(const BucketizeTransform& op, Step& step) {
    expect_sources(step, 1, 1, numbers | integers);
    if (!step.sources.empty()) expect_width_1(step, 0);
    try {
      check_boundaries(op.boundaries.data(), static_cast<int64_t>(op.boundaries.size()));
    } catch (const invalid_argument& error) {
      const Problem& problem = error.problems()[0];
      problems_.add(where_ + ", " + problem.what, problem.expected, problem.got);
    }
  }

  void check(const CrossTransform& op, Step& step) {
    expect_sources(step, 2, SIZE_MAX, text | integers | ids);
    expect(op.buckets >= 1, "at least 1 bucket", op.buckets);
  }

  void check(const WeighTransform&, Step& step) {
    step.kind = FeatureKind::weighted_ids;
    expect(step.sources.size() == 2, "ids and weights in \"of\"", static_cast<int64_t>(step.sources.size()));
    if (step.sources.size() != 2) return;
    expect_source(step, 0, ids | integers);
    expect_source(step, 1, numbers);
    expect_width_1(step, 1);
  }

  void check(const EncodeTransform& op, Step& step) {
    step.kind = FeatureKind::numbers;
    step.width = op.tokens;
    const bool weighted = step.sources.size() == 2;
    expect(step.sources.size() == 1 || (weighted && op.mode == Encoding::count),
           "ids in \"of\", of counts also weights", static_cast<int64_t>(step.sources.size()));
    expect(op.tokens >= 1 && op.tokens <= max_tokens, "1 to " + std::to_string(max_tokens) + " tokens", op.tokens);
    if (!step.sources.empty()) expect_source(step, 0, ids | integers);
    if (!weighted) return;
    expect_source(step, 1, numbers);
    expect_width_1(step, 1);
  }

  void check(const NumbersTransform& op, Step& step) {
    step.kind = FeatureKind::numbers;
    expect_sources(step, 1, 1, numbers | integers);
    if (step.sources.empty() || step.sources[0].column < 0) return;
    step.width = columns[static_cast<size_t>(step.sources[0].column)].width;
    const auto width = static_cast<size_t>(step.width);
    expect(op.mean.size() == op.divisor.size() && (op.mean.empty() || op.mean.size() == width),
           std::to_string(width) + " means and divisors, or none",
           std::to_string(op.mean.size()) + " and " + std::to_string(op.divisor.size()));
  }

  static constexpr int64_t max_tokens = 1 << 24;

  std::string where_;
  Problems problems_;
};

}}}  // namespace warprank::v0::ids::detail
