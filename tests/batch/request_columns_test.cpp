// SPDX-License-Identifier: Apache-2.0

/// Batch::add_requests beside as many Requests.

#include "warprank/batch/request_columns.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/message_of.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { namespace {

/// Inputs of all types on the outermost axis, and an axis below it.
BatchLayout layout_of_columns() {
  Graph graph;
  graph.axes = {{"user", -1, 0}, {"item", 0, 3}};
  graph.ids = {
      {"wide", 0, {}, {}}, {"narrow", 0, {}, {}, IdsWire::i32}, {"with_default", 0, 7, {}}, {"item_id", 1, 9, {}}};
  graph.dense = {{"values", 0, 3, {}},
                 {"halves", 0, 1, {}, DenseWire::f16},
                 {"saturating", 0, 2, 0.5f, DenseWire::bf16, OutOfRange::saturate}};
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
  EXPECT_THAT(test_support::message_of([&] { batch.add_requests(2, columns); }),
              testing::AllOf(
                  testing::HasSubstr("ids 'item_id': expected an input of the outermost axis, got one of axis 'item'"),
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

}}  // namespace warprank
