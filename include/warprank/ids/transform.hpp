// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The content of a file of transforms (docs/IDS.md defines each op), as plain data.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/fields.hpp"

namespace warprank { inline namespace v0 { namespace ids {

enum class ColumnType { text, i64, f32 };
/// The choice of a bucket for values outside a vocabulary: by the hash of their text, or by the remainder of an
/// integer, never negative.
enum class OovBy { hash, modulo };
enum class Encoding {
  one_hot,    ///< of exactly one id per row
  multi_hot,  ///< 1 for each id that a row has
  count,      ///< how often a row has the id, or the sum of its weights
};

constexpr auto names_of(ColumnType) {
  return std::array<std::pair<ColumnType, const char*>, 3>{
      {{ColumnType::text, "text"}, {ColumnType::i64, "i64"}, {ColumnType::f32, "f32"}}};
}
constexpr auto names_of(OovBy) {
  return std::array<std::pair<OovBy, const char*>, 2>{{{OovBy::hash, "hash"}, {OovBy::modulo, "modulo"}}};
}
constexpr auto names_of(Encoding) {
  return std::array<std::pair<Encoding, const char*>, 3>{
      {{Encoding::one_hot, "one_hot"}, {Encoding::multi_hot, "multi_hot"}, {Encoding::count, "count"}}};
}

/// An input that is given for every row.
struct TransformColumn {
  std::string name;
  ColumnType type = ColumnType::text;
  bool ragged = false;  ///< any number of values per row
  int64_t width = 1;    ///< for numbers: the size of one value
};

/// A column, or an earlier feature.
struct TransformSource {
  std::string column = {}, feature = {};
};

/// A value with an id of its own, or without an id: then it is dropped, and its row has one id less.
struct Mask {
  std::optional<std::string> text = {};
  std::optional<int64_t> integer = {};
  std::optional<int64_t> id = {};
};

/// first + fingerprint mod buckets; with a key of two integers SipHash-2-4 instead.
struct HashTransform {
  static constexpr const char* kind = "hash";
  int64_t buckets = 0;
  int64_t first = 0;
  std::vector<int64_t> key = {};
  std::optional<Mask> mask = {};
};

/// first + the value's position in the list.
struct VocabularyTransform {
  static constexpr const char* kind = "vocabulary";
  std::vector<std::string> texts = {};
  std::vector<int64_t> integers = {};
  int64_t first = 0;
  int64_t oov_buckets = 0;  ///< oov_first + one of them for values that are not in the list
  int64_t oov_first = 0;
  OovBy oov_by = OovBy::hash;
  std::vector<int64_t> key = {};           ///< of that hash, as in HashTransform
  std::optional<int64_t> default_id = {};  ///< without buckets; neither: such a value is an error
  std::optional<Mask> mask = {};
};

/// The integer itself, from 0 to buckets - 1.
struct IdentityTransform {
  static constexpr const char* kind = "identity";
  int64_t buckets = 0;
  std::optional<int64_t> default_id = {};  ///< for other integers; none: they are an error
  std::optional<Mask> mask = {};
};

/// ids::bucketize.
struct BucketizeTransform {
  static constexpr const char* kind = "bucketize";
  std::vector<float> boundaries = {};
};

/// For each combination of the sources' values, where the last source changes first: h = key, then h = concatenate(h,
/// part) for each part; a part is the fingerprint of a text, or the integer or id itself. The id is h mod buckets.
struct CrossTransform {
  static constexpr const char* kind = "cross";
  int64_t buckets = 0;
  int64_t key = 0xdecafcaffe;
};

/// The ids of a feature and the weights of a column, without those whose id is negative or weight not above 0.
struct WeighTransform {
  static constexpr const char* kind = "weigh";
};

/// Numbers [rows, tokens] from ids; ids that are no token add nothing, as in TensorFlow.
struct EncodeTransform {
  static constexpr const char* kind = "encode";
  int64_t tokens = 0;
  Encoding mode = Encoding::multi_hot;
};

/// (x - mean) / divisor by column; without them the numbers stay unchanged.
struct NumbersTransform {
  static constexpr const char* kind = "numbers";
  std::vector<float> mean = {}, divisor = {};
};

using TransformOp = std::variant<HashTransform, VocabularyTransform, IdentityTransform, BucketizeTransform,
                                 CrossTransform, WeighTransform, EncodeTransform, NumbersTransform>;

struct TransformFeature {
  std::string name;
  std::vector<TransformSource> of;
  TransformOp op;
};

constexpr auto fields_of(const TransformColumn*) {
  return std::make_tuple(field("name", &TransformColumn::name), field("type", &TransformColumn::type),
                         optional_field("ragged", &TransformColumn::ragged),
                         optional_field("width", &TransformColumn::width));
}
constexpr auto fields_of(const TransformSource*) {
  return std::make_tuple(optional_field("column", &TransformSource::column),
                         optional_field("feature", &TransformSource::feature));
}
constexpr auto fields_of(const Mask*) {
  return std::make_tuple(optional_field("text", &Mask::text), optional_field("integer", &Mask::integer),
                         optional_field("id", &Mask::id));
}
constexpr auto fields_of(const HashTransform*) {
  return std::make_tuple(field("buckets", &HashTransform::buckets), optional_field("first", &HashTransform::first),
                         optional_field("key", &HashTransform::key), optional_field("mask", &HashTransform::mask));
}
constexpr auto fields_of(const VocabularyTransform*) {
  using Op = VocabularyTransform;
  return std::make_tuple(optional_field("texts", &Op::texts), optional_field("integers", &Op::integers),
                         optional_field("first", &Op::first), optional_field("oov_buckets", &Op::oov_buckets),
                         optional_field("oov_first", &Op::oov_first), optional_field("oov_by", &Op::oov_by),
                         optional_field("key", &Op::key), optional_field("default_id", &Op::default_id),
                         optional_field("mask", &Op::mask));
}
constexpr auto fields_of(const IdentityTransform*) {
  return std::make_tuple(field("buckets", &IdentityTransform::buckets),
                         optional_field("default_id", &IdentityTransform::default_id),
                         optional_field("mask", &IdentityTransform::mask));
}
constexpr auto fields_of(const BucketizeTransform*) {
  return std::make_tuple(field("boundaries", &BucketizeTransform::boundaries));
}
constexpr auto fields_of(const CrossTransform*) {
  return std::make_tuple(field("buckets", &CrossTransform::buckets), optional_field("key", &CrossTransform::key));
}
constexpr auto fields_of(const WeighTransform*) { return std::make_tuple(); }
constexpr auto fields_of(const EncodeTransform*) {
  return std::make_tuple(field("tokens", &EncodeTransform::tokens), field("mode", &EncodeTransform::mode));
}
constexpr auto fields_of(const NumbersTransform*) {
  return std::make_tuple(optional_field("mean", &NumbersTransform::mean),
                         optional_field("divisor", &NumbersTransform::divisor));
}

}}}  // namespace warprank::v0::ids
