// SPDX-License-Identifier: Apache-2.0

/// Transforms of columns: those that TensorFlow's feature columns and Keras' layers make of 100,000 rows
/// (transform_vectors.json, by tools/transform_vectors.py), and what is told of files and columns that are wrong.

#include "warprank/ids/transforms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ids/transform_columns.hpp"
#include "support/criteo.hpp"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using warprank::invalid_argument;
using warprank::Span;
using namespace warprank::ids;
namespace given = transform_columns;
using nlohmann::json;

template <class Value>
std::vector<Value> list(Span<const Value> values) {
  return {values.begin(), values.end()};
}

// --- as TensorFlow

const json& transform_vectors() {
  static const json parsed = json::parse(std::ifstream(WARPRANK_TEST_DATA "/ids/transform_vectors.json"));
  return parsed;
}

template <class Value>
void expect_values(const std::string& name, Span<const Value> values, Span<const int64_t> offsets) {
  SCOPED_TRACE(name);
  const json& expected = transform_vectors()["features"][name];
  const auto first = expected["first"].get<std::vector<Value>>();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(values[static_cast<int64_t>(i)], first[i]);
  EXPECT_EQ(given::checksums(values), expected["values"].get<std::vector<std::string>>());
  if (expected.contains("offsets")) {
    EXPECT_EQ(given::checksums(offsets), expected["offsets"].get<std::vector<std::string>>());
  } else {
    for (int64_t row = 0; row < offsets.size(); ++row) ASSERT_EQ(offsets[row], row);
  }
}

void expect_tensorflows(const std::string& file, int num_features) {
  const Transforms transforms = Transforms::load(WARPRANK_TEST_DATA "/ids/" + file);
  std::deque<given::Column> made;
  Columns columns(transforms, given::rows);
  for (const TransformColumn& info : transforms.columns()) {
    SCOPED_TRACE(info.name);
    given::Column& column = made.emplace_back();
    given::make(info, column);
    const json& expected = transform_vectors()["columns"][info.name];
    if (info.ragged) {
      EXPECT_EQ(given::checksums<int64_t>(column.offsets).back(), expected["offsets"]);
    }
    if (info.type == ColumnType::text) {
      const auto first = expected["first"].get<std::vector<std::string>>();
      EXPECT_TRUE(std::equal(first.begin(), first.end(), column.texts.begin()));
      columns.text(info.name, column.views, column.offsets);
    } else if (info.type == ColumnType::i64) {
      EXPECT_EQ(given::checksums<int64_t>(column.integers)[0], expected["values"]);
      columns.integers(info.name, column.integers, column.offsets);
    } else {
      EXPECT_EQ(given::checksums<float>(column.numbers)[0], expected["values"]);
      columns.numbers(info.name, column.numbers, column.offsets);
    }
  }
  Features features;
  transforms.run(columns, features);
  transforms.run(columns, features);  // what was there is replaced
  for (const TransformFeature& feature : transforms.features()) {
    const int i = transforms.feature(feature.name);
    if (!transform_vectors()["features"].contains(feature.name)) continue;  // the ids of what is encoded
    --num_features;
    if (transforms.is_numbers(i))
      expect_values(feature.name, features.numbers(i), features.offsets(i));
    else
      expect_values(feature.name, features.ids(i), features.offsets(i));
    if (std::holds_alternative<WeighTransform>(feature.op))
      expect_values(feature.name + ".weights", features.numbers(i), features.offsets(i));
  }
  EXPECT_EQ(num_features, 0);
}

TEST(Transforms, OfFeatureColumnsAreTensorFlows) { expect_tensorflows("feature_columns.json", 18); }
TEST(Transforms, OfPreprocessingLayersAreKeras) { expect_tensorflows("preprocessing_layers.json", 17); }

TEST(Transforms, OfCriteosLayoutAreThoseOfPython) {
  const Transforms transforms = Transforms::load(WARPRANK_TEST_DATA "/ids/criteo_transforms.json");
  const json expected = json::parse(std::ifstream(WARPRANK_TEST_DATA "/ids/criteo_ids.json"));
  std::ifstream file(WARPRANK_TEST_DATA "/ids/criteo.tsv", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  warprank::test_support::CriteoColumns rows;
  rows.read(text);
  Features features;
  transforms.run(rows.columns(transforms), features);
  ASSERT_EQ(expected.size(), transforms.features().size());
  for (const TransformFeature& feature : transforms.features()) {
    const Span<const int64_t> ids = features.ids(transforms.feature(feature.name));
    EXPECT_EQ(ids.size(), 100);
    EXPECT_EQ(given::checksums(ids), expected[feature.name].get<std::vector<std::string>>()) << feature.name;
  }
}

// --- each by hand

Transforms transforms_of(const std::string& columns, const std::string& features) {
  return Transforms::from_json(R"({"format": "warprank.transforms", "version": 1, "scheme": "warprank-ids-1",
    "columns": [)" + columns + R"(], "features": [)" +
                                   features + "]}",
                               "t");
}

TEST(Transforms, HaveAFeaturesIdsByItsNumber) {
  const Transforms transforms =
      transforms_of(R"({"name": "word", "type": "text"}, {"name": "n", "type": "i64", "ragged": true})",
                    R"({"name": "place", "op": "vocabulary", "of": [{"column": "word"}],
          "settings": {"texts": ["b", "a"], "first": 10, "default_id": -1, "mask": {"text": "", "id": 7}}},
         {"name": "n", "op": "identity", "of": [{"column": "n"}],
          "settings": {"buckets": 5, "default_id": 9, "mask": {"integer": 3}}},
         {"name": "both", "op": "cross", "of": [{"feature": "n"}, {"feature": "place"}], "settings": {"buckets": 99}})");
  const std::vector<std::string_view> words = {"a", "", "c", "b"};
  const std::vector<int64_t> n = {0, 3, 5, -1, 4}, offsets = {0, 2, 2, 4, 5};
  Features features;
  transforms.run(Columns(transforms, 4).text("word", words).integers("n", n, offsets), features);
  EXPECT_THAT(list(features.ids(0)), ElementsAre(11, 7, -1, 10));
  EXPECT_THAT(list(features.offsets(0)), IsEmpty());
  EXPECT_THAT(list(features.ids(1)), ElementsAre(0, 9, 9, 4));
  EXPECT_THAT(list(features.offsets(1)), ElementsAre(0, 1, 1, 3, 4));
  EXPECT_THAT(list(features.offsets(2)), ElementsAre(0, 1, 1, 3, 4));
  EXPECT_EQ(features.ids(2)[0],
            HashBuckets(99).bucket(cross({Fingerprint::from_value(0), Fingerprint::from_value(11)})));
  EXPECT_EQ(transforms.feature("both"), 2);
  EXPECT_THAT([&] { transforms.feature("bth"); },
              ThrowsMessage<invalid_argument>(HasSubstr("an unknown name; did you mean 'both'?")));
}

/// The file of docs/IDS.md.
std::string file_of_the_manual() {
  std::ifstream document(WARPRANK_TEST_DATA "/../docs/IDS.md");
  const std::string text{std::istreambuf_iterator<char>(document), {}};
  const size_t begin = text.find("```json\n") + 8;
  const std::string path = testing::TempDir() + "transforms_of_the_manual.json";
  std::ofstream(path) << text.substr(begin, text.find("```", begin) - begin);
  return path;
}

TEST(Transforms, AreUsedAsTheManualShows) {
  namespace ids = warprank::ids;
  const std::string path = file_of_the_manual();
  const int64_t num_rows = 2;
  const std::vector<std::string_view> cities = {"Berlin", ""}, tags = {"b", "?", "a"};
  const std::vector<float> prices = {1, 3};
  const std::vector<int64_t> tag_offsets = {0, 2, 3};
  const auto transforms = ids::Transforms::load(path);
  ids::Columns columns(transforms, num_rows);
  columns.text("city", cities).numbers("price", prices).text("tags", tags, tag_offsets);
  ids::Features features;  // of a thread, which keeps its memory
  transforms.run(columns, features);
  const Span<const int64_t> city_ids = features.ids(transforms.feature("city"));
  EXPECT_THAT(list(city_ids), ElementsAre(HashBuckets(1000).bucket("Berlin"), -1));
  EXPECT_THAT(list(features.ids(transforms.feature("tags"))), ElementsAre(1, -1, 0));
  EXPECT_THAT(list(features.ids(transforms.feature("price_group"))), ElementsAre(1, 2));
  EXPECT_EQ(features.ids(3)[0], HashBuckets(5000).bucket(cross({"Berlin", Fingerprint::from_value(1)})));
}

TEST(Transforms, OfNoRowsAreEmpty) {
  const Transforms transforms = transforms_of(
      R"({"name": "x", "type": "f32", "ragged": true}, {"name": "w", "type": "text"})",
      R"({"name": "b", "op": "bucketize", "of": [{"column": "x"}], "settings": {"boundaries": ["-inf", 1]}},
         {"name": "c", "op": "cross", "of": [{"feature": "b"}, {"column": "w"}], "settings": {"buckets": 3}},
         {"name": "e", "op": "encode", "of": [{"feature": "b"}], "settings": {"tokens": 3, "mode": "count"}})");
  Features features;
  const std::vector<int64_t> offsets = {0};
  transforms.run(Columns(transforms, 0).numbers("x", {}, offsets).text("w", {}), features);
  EXPECT_THAT(list(features.ids(0)), IsEmpty());
  EXPECT_THAT(list(features.offsets(1)), ElementsAre(0));
  EXPECT_THAT(list(features.numbers(2)), IsEmpty());
}

TEST(Transforms, CountWeights) {
  const Transforms transforms =
      transforms_of(R"({"name": "i", "type": "i64", "ragged": true}, {"name": "w", "type": "f32", "ragged": true})",
                    R"({"name": "e", "op": "encode", "of": [{"column": "i"}, {"column": "w"}],
          "settings": {"tokens": 3, "mode": "count"}})");
  Features features;
  const std::vector<int64_t> ids = {0, 2, 0, 3, -1}, offsets = {0, 3, 5}, others = {0, 2, 5};
  const std::vector<float> weights = {1, 2, 0.5f, 4, 8};
  transforms.run(Columns(transforms, 2).integers("i", ids, offsets).numbers("w", weights, offsets), features);
  EXPECT_THAT(list(features.numbers(0)), ElementsAre(1.5f, 0.f, 2.f, 0.f, 0.f, 0.f));
  EXPECT_THAT(
      [&] {
        transforms.run(Columns(transforms, 2).integers("i", ids, offsets).numbers("w", weights, others), features);
      },
      ThrowsMessage<invalid_argument>("feature 'e', row 0: expected 3 weights, one for each id, got 2"));
}

// --- what is wrong

TEST(Transforms, TellOfColumnsTogether) {
  const Transforms transforms = transforms_of(
      R"({"name": "city", "type": "text"}, {"name": "tags", "type": "text", "ragged": true},
         {"name": "age", "type": "f32", "width": 2}, {"name": "hour", "type": "i64"})",
      "");
  const std::vector<std::string_view> texts = {"a", "b"};
  const std::vector<int64_t> descending = {0, 2, 1};
  const std::vector<float> three = {1, 2, 3};
  Columns columns(transforms, 2);
  columns.integers("city", descending).text("tags", texts, descending).numbers("age", three).text("citi", texts);
  Features features;
  try {
    transforms.run(columns, features);
    FAIL();
  } catch (const invalid_argument& error) {
    std::vector<std::string> problems;
    for (const auto& problem : error.problems()) problems.push_back(problem.to_string());
    EXPECT_THAT(problems,
                ElementsAre("column 'city': expected values of type text, got i64",
                            "column 'tags': expected 3 offsets from 0 to 2 that never decrease, got 3 that do not fit",
                            "column 'age': expected 2 numbers for each value, got 3",
                            "column 'citi': expected a column of the transforms, got an unknown name; did you mean "
                            "'city'?",
                            "column 'hour': expected its values, got none"));
  }
  EXPECT_THROW(transforms.run(Columns(transforms_of("", ""), 1), features), invalid_argument);
}

TEST(Transforms, TellOfValuesWithoutIds) {
  const std::string column = R"({"name": "x", "type": "i64", "ragged": true})";
  const std::vector<int64_t> x = {1, 2, 5}, offsets = {0, 2, 2, 3};
  Features features;
  const auto run = [&](const std::string& op, const std::string& settings) {
    const Transforms transforms = transforms_of(
        column, R"({"name": "f", "op": ")" + op + R"(", "of": [{"column": "x"}], "settings": )" + settings + "}");
    transforms.run(Columns(transforms, 3).integers("x", x, offsets), features);
  };
  EXPECT_THAT([&] { run("identity", R"({"buckets": 5})"); },
              ThrowsMessage<invalid_argument>("feature 'f', row 2: expected an integer from 0 to 4, got 5"));
  EXPECT_THAT([&] { run("vocabulary", R"({"integers": [1, 5]})"); },
              ThrowsMessage<invalid_argument>("feature 'f', row 0: expected a value of the vocabulary, got 2"));
  EXPECT_THAT([&] { run("encode", R"({"tokens": 9, "mode": "one_hot"})"); },
              ThrowsMessage<invalid_argument>("feature 'f', row 0: expected one id, got 2"));
  EXPECT_NO_THROW(run("vocabulary", R"({"integers": [1, 5, 2]})"));
}

struct WrongFile {
  const char* feature;
  const char* message;
};

TEST(Transforms, TellOfFilesThatAreWrong) {
  const WrongFile files[] = {
      {R"({"name": "f", "op": "hsh", "of": []})", "features[0]: expected a transform of docs/IDS.md, got \"hsh\""},
      {R"({"name": "f", "op": "weigh", "of": [{"column": "w"}]})", "expected ids and weights in \"of\", got 1"},
      {R"({"name": "f", "op": "hash", "of": [{"column": "w"}], "settings": {"buckets": 0}})",
       "t: feature 'f': expected at least 1 bucket, got 0"},
      {R"({"name": "f", "op": "hash", "of": [{"column": "w"}], "settings": {"buckets": 2, "first": -1}})",
       "a first bucket from 0 on, and ids of 63 bits, got -1"},
      {R"({"name": "f", "op": "hash", "of": [{"column": "w"}], "settings": {"buckets": 9, "key": [1]}})",
       "expected a key of two integers, or none, got 1"},
      {R"({"name": "f", "op": "hash", "of": [{"column": "w"}], "settings": {"buckets": 9, "mask": {"integer": 1}}})",
       "expected a mask of text, got another"},
      {R"({"name": "f", "op": "hash", "of": [{"column": "x"}], "settings": {"buckets": 9}})",
       "expected text, integers, got column 'x' of f32"},
      {R"({"name": "f", "op": "hash", "of": [{"feature": "f"}], "settings": {"buckets": 9}})",
       "expected a feature that stands before, got 'f', an unknown name"},
      {R"({"name": "f", "op": "hash", "of": [{"column": "w", "feature": "f"}], "settings": {"buckets": 9}})",
       "expected either a column or a feature, got both"},
      {R"({"name": "f", "op": "vocabulary", "of": [{"column": "w"}], "settings": {"texts": ["a", "b", "a"]}})",
       "expected each value once, got 'a'"},
      {R"({"name": "f", "op": "vocabulary", "of": [{"column": "w"}], "settings": {"integers": [1]}})",
       "expected a vocabulary of texts, got another"},
      {R"({"name": "f", "op": "vocabulary", "of": [{"column": "w"}],
           "settings": {"texts": [], "oov_buckets": 1, "default_id": 0, "oov_by": "modulo"}})",
       "expected either a default or buckets for other values, got both"},
      {R"({"name": "f", "op": "bucketize", "of": [{"column": "x"}], "settings": {"boundaries": [2, 1]}})",
       "t: feature 'f', boundary 1: expected a number greater than the one before it"},
      {R"({"name": "f", "op": "bucketize", "of": [{"column": "wide"}], "settings": {"boundaries": [2]}})",
       "expected a column of width 1, got 2"},
      {R"({"name": "f", "op": "cross", "of": [{"column": "w"}], "settings": {"buckets": 2}})",
       "expected at least 2 in \"of\", got 1"},
      {R"({"name": "f", "op": "numbers", "of": [{"column": "wide"}], "settings": {"mean": [1], "divisor": [1]}})",
       "expected 2 means and divisors, or none, got 1 and 1"},
      {R"({"name": "f", "op": "encode", "of": [{"column": "n"}], "settings": {"tokens": 99999999, "mode": "count"}})",
       "expected 1 to 16777216 tokens, got 99999999"},
      {R"({"name": "f", "op": "encode", "of": [{"column": "n"}, {"column": "x"}],
           "settings": {"tokens": 9, "mode": "multi_hot"}})",
       "expected ids in \"of\", of counts also weights, got 2"},
      {R"({"name": "f", "op": "numbers", "of": [{"column": "x"}], "settings": {}},
          {"name": "f", "op": "encode", "of": [{"feature": "f"}], "settings": {"tokens": 2, "mode": "count"}})",
       "expected integers, ids, got feature 'f', which has numbers"},
      {R"({"name": "f", "op": "numbers", "of": [{"column": "x"}], "settings": {"means": []}})",
       "expected no other members, got \"means\""},
  };
  for (const WrongFile& file : files) {
    const auto read = [&] {
      transforms_of(R"({"name": "w", "type": "text"}, {"name": "x", "type": "f32"}, {"name": "n", "type": "i64"},
                       {"name": "wide", "type": "f32", "width": 2})",
                    file.feature);
    };
    EXPECT_THAT(read, ThrowsMessage<invalid_argument>(HasSubstr(file.message))) << file.feature;
  }
  EXPECT_THAT(
      [] { transforms_of(R"({"name": "w", "type": "text", "width": 2}, {"name": "w", "type": "i64"})", ""); },
      ThrowsMessage<invalid_argument>(HasSubstr("t: column 'w': expected numbers where there is a width, got 2")));
  EXPECT_THAT([] { Transforms::from_json(R"({"format": "warprank.transforms", "version": 1, "scheme": "x"})"); },
              ThrowsMessage<invalid_argument>(HasSubstr("transforms: expected scheme \"warprank-ids-1\", got \"x\"")));
  EXPECT_THROW(Transforms::load("/nowhere"), invalid_argument);
}

}  // namespace
