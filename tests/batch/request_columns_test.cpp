// SPDX-License-Identifier: Apache-2.0

/// Batch::add_requests beside as many Requests.

#include "warprank/batch/request_columns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { namespace {

/// Inputs of all types on the outermost axis, and with items an axis below it.
BatchLayout layout_of_columns(bool has_items = true) {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 3}};
  graph.ids = {
      {"wide", 0, {}, {}}, {"narrow", 0, {}, {}, IdsWire::i32}, {"with_default", 0, 7, {}}, {"item_id", 1, 9, {}}};
  graph.dense = {{"values", 0, 3, {}},
                 {"halves", 0, 1, {}, DenseWire::f16},
                 {"saturating", 0, 2, 0.5f, DenseWire::bf16, OutOfRange::saturate}};
  if (!has_items) {
    graph.axes.pop_back();
    graph.ids.pop_back();
  }
  return BatchLayout(graph);
}

struct Given {
  std::vector<int64_t> wide, narrow;
  std::vector<float> values, halves, saturating;

  RequestColumns columns(const BatchLayout& layout) const {
    return {
        {{layout.ids("wide"), wide}, {layout.ids("narrow"), narrow}},
        {{layout.dense("values"), values}, {layout.dense("halves"), halves}, {layout.dense("saturating"), saturating}}};
  }
  /// As requests.
  void add_to(Batch& batch) const {
    const BatchLayout& layout = batch.layout();
    for (size_t r = 0; r < wide.size(); ++r)
      batch.add_request()
          .ids(layout.ids("wide"), {wide[r]})
          .ids(layout.ids("narrow"), {narrow[r]})
          .dense(layout.dense("values"), {values[3 * r], values[3 * r + 1], values[3 * r + 2]})
          .dense(layout.dense("halves"), {halves[r]})
          .dense(layout.dense("saturating"), {saturating[2 * r], saturating[2 * r + 1]})
          .finish();
  }
};

Given good_rows() {
  return {
      {1, -1, int64_t{1} << 40}, {5, -6, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {0.1f, -2, 60000}, {1, 2, 3, 3.4e38f, 5, 6}};
}

/// So many, and never the same twice.
Given some_rows(int64_t count) {
  Given given;
  for (int64_t r = 0; r < count; ++r) {
    const auto x = static_cast<float>(r);
    given.wide.push_back(r << 40);
    given.narrow.push_back(-r);
    given.values.insert(given.values.end(), {x, x + 0.25f, x + 0.5f});
    given.halves.push_back(-x);
    given.saturating.insert(given.saturating.end(), {x, 2 * x});
  }
  return given;
}

void expect_same(Batch& got, Batch& expected) {
  got.close();
  expected.close();
  ASSERT_EQ(got.size(), expected.size());
  for (int64_t r = 0; r < got.size(); ++r) {
    EXPECT_EQ(got.status(r).code, expected.status(r).code) << r;
    EXPECT_EQ(got.status(r).message, expected.status(r).message) << r;
    if (!expected.status(r).ok() || !got.status(r).ok()) continue;
    const BlobView a = got.blob(r), b = expected.blob(r);
    ASSERT_EQ(a.bytes(), b.bytes()) << r;
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << r;
    EXPECT_TRUE(validate_blob({a.data(), a.bytes()}, got.layout()).ok()) << r;
  }
  EXPECT_EQ(got.num_scored(), expected.num_scored());
}

TEST(RequestColumns, AreTheBlobsOfRequests) {
  Batch got(layout_of_columns()), expected(layout_of_columns());
  const Given given = good_rows();
  EXPECT_EQ(got.add_requests(3, given.columns(got.layout())), 0);
  given.add_to(expected);
  expect_same(got, expected);
  EXPECT_EQ(got.status(2).message, "");

  // Behind others, and before them.
  EXPECT_EQ(got.add_requests(3, given.columns(got.layout())), 3);
  given.add_to(expected);
  given.add_to(got);
  given.add_to(expected);
  EXPECT_EQ(got.add_requests(0, {}), 9);
  expect_same(got, expected);
}

TEST(RequestColumns, AreTheBlobsOfAnyNumberOfRequests) {
  for (const bool has_items : {false, true})
    for (const int64_t count : {0, 1, 2, 3, 4, 21}) {
      SCOPED_TRACE(count);
      Batch got(layout_of_columns(has_items)), expected(layout_of_columns(has_items));
      const Given given = some_rows(count);
      got.add_requests(count, given.columns(got.layout()));
      given.add_to(expected);
      expect_same(got, expected);
    }
}

TEST(RequestColumns, HaveTheStatusOfTheRequestThatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* what : {"values", "halves", "narrow", "saturating"}) {
    SCOPED_TRACE(what);
    Given given = good_rows();
    if (what == std::string("values")) given.values[4] = nan;
    if (what == std::string("halves")) given.halves[1] = 70000;
    if (what == std::string("narrow")) given.narrow[1] = int64_t{1} << 31;
    if (what == std::string("saturating")) given.saturating[3] = -std::numeric_limits<float>::infinity();
    Batch got(layout_of_columns()), expected(layout_of_columns());
    got.add_requests(3, given.columns(got.layout()));
    given.add_to(expected);
    expect_same(got, expected);
    EXPECT_TRUE(got.status(0).ok());
    EXPECT_FALSE(got.status(1).ok());
    EXPECT_EQ(got.num_scored(), 2);
  }
}

TEST(RequestColumns, AllLackAnInputWithoutDefault) {
  Batch got(layout_of_columns()), expected(layout_of_columns());
  const std::vector<int64_t> narrow = {1, 2};
  RequestColumns columns;
  columns.ids.emplace_back(got.layout().ids("narrow"), narrow);
  got.add_requests(2, columns);
  for (const int64_t id : narrow) expected.add_request().ids(expected.layout().ids("narrow"), {id}).finish();
  expect_same(got, expected);

  // A wrong value comes first, as in a Request.
  const std::vector<float> halves = {1, std::numeric_limits<float>::infinity()};
  columns.dense.emplace_back(got.layout().dense("halves"), halves);
  got.add_requests(2, columns);
  for (size_t r = 0; r < 2; ++r)
    expected.add_request()
        .ids(expected.layout().ids("narrow"), {narrow[r]})
        .dense(expected.layout().dense("halves"), {halves[r]})
        .finish();
  expect_same(got, expected);
  EXPECT_EQ(got.status(3).code, StatusCode::not_finite);
  EXPECT_THAT(got.status(1).message, testing::HasSubstr("wide"));
}

TEST(RequestColumns, AreRefusedWhereTheyDoNotFit) {
  Batch batch(layout_of_columns());
  const BatchLayout& layout = batch.layout();
  const std::vector<int64_t> ids = {1, 2};
  const std::vector<float> values = {1, 2, 3};
  RequestColumns columns;
  columns.ids = {{layout.ids("item_id"), ids}, {layout.ids("wide"), ids}, {layout.ids("wide"), ids}};
  columns.dense = {{layout.dense("values"), values}};
  EXPECT_THAT(
      test_support::message_of([&] { batch.add_requests(2, columns); }),
      testing::AllOf(testing::HasSubstr("ids 'item_id': expected offsets of axis 'item', whose rows it has, got none"),
                     testing::HasSubstr("ids 'wide': expected to be given once, got a second time"),
                     testing::HasSubstr("dense 'values': expected 2 rows of 3, got 3 values")));
  columns = {{{IdsSlot{4}, ids}}, {}};
  EXPECT_THAT(test_support::message_of([&] { batch.add_requests(2, columns); }),
              testing::HasSubstr("slot of ids: expected an index below 4, got 4"));
  EXPECT_THAT(test_support::message_of([&] { batch.add_requests(-1, {}); }),
              testing::HasSubstr("number of requests: expected 0 or more, got -1"));
  columns = {{}, {{layout.dense("values"), std::vector<float>()}}};
  EXPECT_THAT(test_support::message_of([&] { batch.add_requests(int64_t{1} << 62, columns); }),
              testing::HasSubstr("dense 'values': expected 4611686018427387904 rows of 3, got 0 values"));
  EXPECT_EQ(batch.size(), 0);
}

/// Histories within users, and words within what is in them, of which the last ones are kept or all.
BatchLayout nested_layout() {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 3}, {"tag", 1, 0}, {"event", 0, 0}, {"word", 3, 2}};
  graph.ids = {{"user_id", 0, {}, {}}, {"item_id", 1, {}, {}}, {"tag", 2, {}, {}, IdsWire::i32}, {"word", 4, 7, {}}};
  graph.dense = {{"price", 1, 3, {}, DenseWire::f16}, {"age", 3, 1, {}}, {"weight", 2, 1, 1.0f}};
  return BatchLayout(graph);
}

/// Columns of requests, and as many requests of the same values.
struct Nested {
  std::vector<int64_t> users, items, tags, words;
  std::vector<float> prices, ages, weights;
  std::vector<int64_t> item_offsets = {0}, tag_offsets = {0}, event_offsets = {0}, word_offsets = {0};

  Nested(int64_t requests, uint32_t seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint32_t>(most + 1)); };
    const auto value = [&] { return static_cast<float>(up_to(1000)) / 8; };
    for (int64_t r = 0; r < requests; ++r) {
      users.push_back(up_to(1000) - 1);
      for (int64_t left = up_to(5); left > 0; --left) {
        items.push_back(up_to(1000));
        for (int c = 0; c < 3; ++c) prices.push_back(value());
        for (int64_t tag = up_to(2); tag > 0; --tag) {
          tags.push_back(up_to(9));
          weights.push_back(value());
        }
        tag_offsets.push_back(static_cast<int64_t>(tags.size()));
      }
      item_offsets.push_back(static_cast<int64_t>(items.size()));
      for (int64_t left = up_to(3); left > 0; --left) {
        ages.push_back(value());
        for (int64_t word = up_to(4); word > 0; --word) words.push_back(up_to(9));
        word_offsets.push_back(static_cast<int64_t>(words.size()));
      }
      event_offsets.push_back(static_cast<int64_t>(ages.size()));
    }
  }

  /// Those of requests [begin, end), with or without the tags' weights, and the words.
  RequestColumns columns(const BatchLayout& layout, size_t begin, size_t end, bool with_weights,
                         bool with_words) const {
    const auto part = [](const auto& values, size_t first, size_t last) {
      return Span(values.data() + first, static_cast<int64_t>(last - first));
    };
    const auto at = [](const std::vector<int64_t>& offsets, size_t i) { return static_cast<size_t>(offsets[i]); };
    const size_t item = at(item_offsets, begin), last_item = at(item_offsets, end);
    const size_t event = at(event_offsets, begin), last_event = at(event_offsets, end);
    const size_t tag = at(tag_offsets, item), last_tag = at(tag_offsets, last_item);
    RequestColumns columns;
    columns.offsets.emplace_back(layout.axis("tag"), part(tag_offsets, item, last_item + 1));
    columns.offsets.emplace_back(layout.axis("item"), part(item_offsets, begin, end + 1));
    columns.offsets.emplace_back(layout.axis("event"), part(event_offsets, begin, end + 1));
    columns.ids.emplace_back(layout.ids("tag"), part(tags, tag, last_tag));
    columns.ids.emplace_back(layout.ids("item_id"), part(items, item, last_item));
    columns.ids.emplace_back(layout.ids("user_id"), part(users, begin, end));
    columns.dense.emplace_back(layout.dense("age"), part(ages, event, last_event));
    columns.dense.emplace_back(layout.dense("price"), part(prices, 3 * item, 3 * last_item));
    if (with_weights) columns.dense.emplace_back(layout.dense("weight"), part(weights, tag, last_tag));
    if (with_words) {
      columns.offsets.emplace_back(layout.axis("word"), part(word_offsets, event, last_event + 1));
      columns.ids.emplace_back(layout.ids("word"), part(words, at(word_offsets, event), at(word_offsets, last_event)));
    }
    return columns;
  }

  void add_to(Batch& batch, size_t begin, size_t end, bool with_weights, bool with_words) const {
    const BatchLayout& layout = batch.layout();
    const auto lengths_of = [](const std::vector<int64_t>& offsets, int64_t first, int64_t last) {
      std::vector<int64_t> lengths;
      for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i)
        lengths.push_back(offsets[i + 1] - offsets[i]);
      return lengths;
    };
    for (size_t r = begin; r < end; ++r) {
      const int64_t item = item_offsets[r], last_item = item_offsets[r + 1];
      const int64_t event = event_offsets[r], last_event = event_offsets[r + 1];
      const int64_t tag = tag_offsets[static_cast<size_t>(item)],
                    last_tag = tag_offsets[static_cast<size_t>(last_item)];
      Request request = batch.add_request();
      request.ids(layout.ids("user_id"), {users[r]})
          .ids(layout.ids("item_id"), Span(items.data() + item, last_item - item))
          .ids(layout.ids("tag"), Span(tags.data() + tag, last_tag - tag))
          .dense(layout.dense("price"), Span(prices.data() + 3 * item, 3 * (last_item - item)))
          .dense(layout.dense("age"), Span(ages.data() + event, last_event - event))
          .lengths(layout.axis("tag"), lengths_of(tag_offsets, item, last_item));
      if (with_weights) request.dense(layout.dense("weight"), Span(weights.data() + tag, last_tag - tag));
      if (with_words) {
        const int64_t word = word_offsets[static_cast<size_t>(event)],
                      last_word = word_offsets[static_cast<size_t>(last_event)];
        request.ids(layout.ids("word"), Span(words.data() + word, last_word - word))
            .lengths(layout.axis("word"), lengths_of(word_offsets, event, last_event));
      }
      request.finish();
    }
  }
};

TEST(RequestColumns, HaveTheRowsOfNestedAxes) {
  for (const bool with_weights : {false, true})
    for (const bool with_words : {false, true}) {
      SCOPED_TRACE(testing::Message() << with_weights << with_words);
      const Nested nested(50, 7);
      Batch got(nested_layout()), expected(nested_layout());
      // All, and parts whose columns begin in the middle of longer ones, of which one has no request.
      const std::vector<std::pair<size_t, size_t>> parts = {{0, 50}, {0, 1}, {13, 40}, {20, 20}, {49, 50}};
      for (const auto& [begin, end] : parts) {
        got.add_requests(static_cast<int64_t>(end - begin),
                         nested.columns(got.layout(), begin, end, with_weights, with_words));
        nested.add_to(expected, begin, end, with_weights, with_words);
      }
      expect_same(got, expected);
      EXPECT_EQ(got.num_scored(), 79);
    }
}

TEST(RequestColumns, OfNestedAxesHaveTheStatusOfTheRequestThatIsWrong) {
  Nested nested(20, 3);
  nested.tags.back() = int64_t{1} << 31;
  nested.ages.front() = std::numeric_limits<float>::infinity();
  for (const bool with_words : {false, true}) {
    Batch got(nested_layout()), expected(nested_layout());
    got.add_requests(20, nested.columns(got.layout(), 0, 20, true, with_words));
    nested.add_to(expected, 0, 20, true, with_words);
    expect_same(got, expected);
    EXPECT_EQ(got.num_scored(), 18);
  }
  // An input that has no default.
  Batch got(nested_layout()), expected(nested_layout());
  const std::vector<int64_t> users = {1, 2, 3}, items = {4, 5}, offsets = {0, 0, 2, 2};
  RequestColumns columns;
  columns.ids = {{got.layout().ids("user_id"), users}, {got.layout().ids("item_id"), items}};
  columns.offsets = {{got.layout().axis("item"), offsets}};
  got.add_requests(3, columns);
  expected.add_request().ids(expected.layout().ids("user_id"), {1}).finish();
  expected.add_request()
      .ids(expected.layout().ids("user_id"), {2})
      .ids(expected.layout().ids("item_id"), {4, 5})
      .finish();
  expected.add_request().ids(expected.layout().ids("user_id"), {3}).finish();
  got.close();
  expected.close();
  EXPECT_EQ(got.num_scored(), 2);
  EXPECT_EQ(got.status(1).message, expected.status(1).message);
  EXPECT_THAT(got.status(1).message, testing::HasSubstr("price"));
}

TEST(RequestColumns, AreRefusedWhereOffsetsDoNotFit) {
  Batch batch(nested_layout());
  const BatchLayout& layout = batch.layout();
  const std::vector<int64_t> users = {1, 2}, three = {0, 1, 3}, falling = {0, 2, 1}, negative = {-1, 0, 1},
                             four = {0, 1, 2, 3};
  const auto message_of = [&](const RequestColumns& columns) {
    return test_support::message_of([&] { batch.add_requests(2, columns); });
  };
  const auto with_items = [&](const std::vector<int64_t>& offsets, const std::vector<int64_t>& items) {
    return RequestColumns{
        {{layout.ids("user_id"), users}, {layout.ids("item_id"), items}}, {}, {{layout.axis("item"), offsets}}};
  };
  EXPECT_THAT(message_of(with_items(falling, four)),
              testing::HasSubstr("offsets of axis 'item': expected 3 that never decrease, got 1 behind 2 at place 2"));
  EXPECT_THAT(message_of(with_items(four, three)),
              testing::HasSubstr("offsets of axis 'item': expected 3 that never decrease, got 4"));
  EXPECT_THAT(message_of(with_items(negative, users)),
              testing::HasSubstr("offsets of axis 'item': expected 3 that never decrease, got a first one of -1"));
  EXPECT_THAT(message_of(with_items(three, four)),
              testing::HasSubstr("ids 'item_id': expected 3 rows of 1, got 4 values"));
  RequestColumns columns = with_items(three, three);
  columns.offsets.emplace_back(layout.axis("item"), three);
  columns.offsets.emplace_back(layout.axis("user"), three);
  columns.offsets.emplace_back(layout.axis("event"), std::vector<int64_t>());
  EXPECT_THAT(
      message_of(columns),
      testing::AllOf(
          testing::HasSubstr("offsets of axis 'item': expected to be given once, got a second time"),
          testing::HasSubstr("offsets of axis 'user': expected none: the outermost axis has one row for each request"),
          testing::HasSubstr(
              "offsets of axis 'event': expected those of each row of its parent, and their end, got none")));
  columns.offsets = {{layout.axis("item"), three}, {layout.axis("event"), three}};
  EXPECT_THAT(message_of(columns),
              testing::HasSubstr("axis 'event': expected a column of one of its inputs, beside offsets, got none"));
  columns.offsets = {{AxisSlot{5}, three}};
  EXPECT_THAT(message_of(columns), testing::HasSubstr("slot of axis: expected an index below 5, got 5"));
  EXPECT_EQ(batch.size(), 0);
}

}}  // namespace warprank
