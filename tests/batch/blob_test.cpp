// SPDX-License-Identifier: Apache-2.0

#include "warprank/batch/blob.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "batch/blob_testing.hpp"
#include "batch/expect_status.hpp"
#include "warprank/batch/validate.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using testing::ElementsAre;
using testing::HasSubstr;

class Blob : public testing::Test {
 protected:
  /// What validation says about the small request after an edit of its data.
  template <class Edit>
  Status after(Edit edit) const {
    RequestData data = small_request(layout_);
    edit(data);
    return validate(naive_blob(layout_, data), layout_);
  }
  /// What it says after one field of the bytes is overwritten.
  template <class Value>
  Status with(size_t at, Value value) const {
    Bytes bytes = blob_;
    put_at(bytes, at, value);
    return validate(bytes, layout_);
  }

  const BatchLayout layout_{small_graph()};
  const FieldPositions fields_{layout_};
  const Bytes blob_ = naive_blob(layout_, small_request(layout_));
};

/// Reads everything that a view offers; the sanitizers watch.
int64_t read_everything(const BlobView& view, const BatchLayout& layout) {
  int64_t sum = 0;
  for (int a = 0; a < static_cast<int>(layout.axes().size()); ++a) {
    sum += view.rows({a});
    for (const uint32_t offset : view.offsets({a})) sum += offset;
  }
  for (int i = 0; i < static_cast<int>(layout.ids().size()); ++i)
    for (const int64_t id : view.ids(IdsSlot{i})) sum ^= id;
  for (int i = 0; i < static_cast<int>(layout.dense().size()); ++i)
    for (const float value : view.dense(DenseSlot{i})) sum += value > 0 ? 1 : 2;
  return sum;
}

TEST_F(Blob, GivesBackWhatItHolds) {
  ASSERT_EQ(validate(blob_, layout_).message, "");
  const BlobView view(blob_.data(), layout_);
  EXPECT_EQ(view.bytes(), static_cast<int64_t>(blob_.size()));
  EXPECT_EQ(view.rows(layout_.axis("user")), 1);
  EXPECT_EQ(view.rows(layout_.axis("item")), 2);
  EXPECT_EQ(view.rows(layout_.axis("genres")), 3);
  EXPECT_TRUE(view.offsets(layout_.axis("item")).empty());
  EXPECT_THAT(to_vector(view.offsets(layout_.axis("genres"))), ElementsAre(0, 2, 3));
  EXPECT_THAT(to_vector(view.offsets(layout_.axis("tags"))), ElementsAre(0, 0, 2, 3));
  EXPECT_THAT(to_vector(view.ids(layout_.ids("user_id"))), ElementsAre(-5));
  EXPECT_THAT(to_vector(view.ids(layout_.ids("genre"))), ElementsAre(1, 2, 1));
  EXPECT_THAT(to_vector(view.dense(layout_.dense("context"))), ElementsAre(0.5f, 1.5f, -2, 3));
  EXPECT_TRUE(view.has(layout_.ids("film_id")));
  EXPECT_FALSE(view.has(layout_.ids("film_age")));
  EXPECT_TRUE(view.ids(layout_.ids("film_age")).empty());
  EXPECT_FALSE(view.has(layout_.dense("hour")));
  EXPECT_TRUE(view.dense(layout_.dense("hour")).empty());
}

TEST_F(Blob, MayHaveNoRowsBelowTheOutermostAxis) {
  RequestData data(layout_);
  data.ids[0] = {4};
  const Bytes bytes = naive_blob(layout_, data);
  EXPECT_EQ(validate(bytes, layout_).message, "");
  EXPECT_THAT(to_vector(BlobView(bytes.data(), layout_).offsets(layout_.axis("genres"))), ElementsAre(0));
}

TEST_F(Blob, IsValidatedAtAnyAddress) {
  Bytes shifted(blob_.size() + 8);
  for (size_t shift = 0; shift < 8; ++shift) {
    std::copy(blob_.begin(), blob_.end(), shifted.begin() + static_cast<int64_t>(shift));
    EXPECT_TRUE(validate_blob({shifted.data() + shift, static_cast<int64_t>(blob_.size())}, layout_).ok());
  }
}

TEST_F(Blob, IsRefusedAtEveryLengthButItsOwn) {
  for (size_t size = 0; size < blob_.size(); ++size) {
    const Bytes cut(blob_.begin(), blob_.begin() + static_cast<int64_t>(size));
    EXPECT_EQ(validate(cut, layout_).code, StatusCode::malformed) << size;
    if (size < 16) continue;
    Bytes adjusted = cut;
    put_at(adjusted, 12, static_cast<uint32_t>(size));
    EXPECT_EQ(validate(adjusted, layout_).code, StatusCode::malformed) << size;
  }
  expect_status(validate({}, layout_), StatusCode::malformed, "blob: size: expected at least the 40 bytes of a header");
  Bytes longer = blob_;
  longer.resize(blob_.size() + 8);
  expect_status(validate(longer, layout_), StatusCode::malformed, "bytes that its header announces");
  put_at(longer, 12, static_cast<uint32_t>(longer.size()));
  expect_status(validate(longer, layout_), StatusCode::malformed, "to end with its last section");
}

TEST_F(Blob, IsRefusedWhenItsHeaderIsOfSomethingElse) {
  expect_status(with(0, 'W'), StatusCode::malformed, "blob: magic: expected \"warprank\"");
  for (const uint32_t version : {0u, 3u})
    expect_status(with(8, version), StatusCode::wrong_version,
                  "blob: version of the format: expected 1 to 2, got " + std::to_string(version));
  expect_status(with(16, uint64_t{0x1234}), StatusCode::wrong_plan, "got 0x0000000000001234");
  expect_status(with(12, static_cast<uint32_t>(blob_.size() + 1)), StatusCode::malformed, "a multiple of 8 bytes");
  expect_status(with(12, static_cast<uint32_t>(blob_.size() + 8)), StatusCode::malformed, "header announces");
  expect_status(with(12, uint32_t{0}), StatusCode::malformed, "header announces");
  expect_status(with(24, uint32_t{4}), StatusCode::malformed, "blob: axes: expected 5, got 4");
  expect_status(with(28, uint32_t{7}), StatusCode::malformed, "blob: ids inputs: expected 6, got 7");
  expect_status(with(32, uint32_t{0}), StatusCode::malformed, "blob: dense inputs: expected 3, got 0");
  expect_status(with(36, uint32_t{1}), StatusCode::malformed, "blob: reserved bytes: expected 0, got 1");
}

TEST_F(Blob, IsRefusedWhenPaddingIsNotZero) {
  const auto genres = get_at<uint32_t>(blob_, fields_.offsets_at + 4 * 2);
  expect_status(with(genres + 12, '\1'), StatusCode::malformed,
                "offsets of axis 'genres': expected zeros after its last");
  Graph graph = small_graph();
  graph.dense.pop_back();
  graph.dense.pop_back();  // 5 axes twice and 7 inputs: the tables need padding
  const BatchLayout layout(graph);
  RequestData data(layout);
  data.ids[0] = {4};
  Bytes bytes = naive_blob(layout, data);
  ASSERT_TRUE(validate(bytes, layout).ok());
  put_at(bytes, FieldPositions(layout).dense_at + 4, uint8_t{9});
  expect_status(validate(bytes, layout), StatusCode::malformed, "tables: expected zeros");
}

TEST_F(Blob, IsRefusedWhenRowCountsDoNotFitTheBytes) {
  expect_status(with(fields_.rows, uint32_t{2}), StatusCode::inconsistent, "axis 'user': expected 1 row, got 2");
  expect_status(with(fields_.rows, uint32_t{0}), StatusCode::inconsistent, "axis 'user': expected 1 row, got 0");
  for (const uint32_t rows : {0x7fffffffu, 0x80000000u, 0xffffffffu})
    for (size_t axis = 1; axis < 5; ++axis) EXPECT_FALSE(with(fields_.rows + 4 * axis, rows).ok());
  expect_status(with(fields_.rows + 4, uint32_t{0xffffffff}), StatusCode::malformed,
                "offsets of axis 'genres': expected 4294967296 rows of 4 bytes");
}

TEST_F(Blob, IsRefusedWhenOffsetsDoNotDivideTheRows) {
  expect_status(after([](RequestData& d) {
                  d.offsets[4] = {0, 2, 1, 3};
                }),
                StatusCode::inconsistent,
                "offsets of axis 'tags': expected offsets that do not decrease, got 1 after 2");
  expect_status(after([](RequestData& d) {
                  d.offsets[4] = {0, 0xffffffff, 2, 3};
                }),
                StatusCode::inconsistent, "decrease");
  expect_status(after([](RequestData& d) {
                  d.offsets[4] = {1, 1, 2, 3};
                }),
                StatusCode::inconsistent, "expected the first to be 0, got 1");
  expect_status(after([](RequestData& d) {
                  d.offsets[4] = {0, 0, 2, 2};
                }),
                StatusCode::inconsistent, "expected the last to be the row count 3, got 2");
  expect_status(after([](RequestData& d) {
                  d.offsets[4] = {0, 0, 2, 4};
                }),
                StatusCode::inconsistent, "expected the last to be the row count 3, got 4");
  expect_status(after([](RequestData& d) { d.offsets[4] = {0, 0, 3}; }), StatusCode::inconsistent, "tags");
}

TEST_F(Blob, IsRefusedWhenAnAxisHasMoreRowsThanItKeeps) {
  expect_status(after([](RequestData& d) {
                  d.rows[3] = 5;
                  d.ids[4] = {1, 2, 3, 4, 5};
                  d.offsets[4] = {0, 0, 2, 3, 3, 3};
                }),
                StatusCode::inconsistent, "axis 'history': expected at most 4 rows, got 5");
  expect_status(after([](RequestData& d) {
                  d.rows[2] = 5;
                  d.ids[3] = {1, 2, 3, 4, 5};
                  d.offsets[2] = {0, 1, 5};
                }),
                StatusCode::inconsistent, "expected at most 3 rows per parent row, got 4 in segment 1");
}

TEST_F(Blob, IsRefusedWhenSectionsAreNotEndToEnd) {
  const size_t film_id = fields_.ids_at + 4;
  const auto position = get_at<uint32_t>(blob_, film_id);
  for (const uint32_t moved : {position - 8, position + 8, position + 4, position - 1, uint32_t{1}, uint32_t{8},
                               static_cast<uint32_t>(blob_.size()), uint32_t{0xfffffff8}, uint32_t{0xffffffff}})
    expect_status(with(film_id, moved), StatusCode::malformed,
                  "ids 'film_id': expected data at byte " + std::to_string(position) +
                      ", where the section before it ends, got byte " + std::to_string(moved));
  expect_status(with(fields_.offsets_at + 4 * 2, uint32_t{0}), StatusCode::malformed, "offsets of axis 'genres'");
  expect_status(with(fields_.offsets_at + 4 * 1, uint32_t{88}), StatusCode::malformed,
                "axis 'item': expected no offsets: position 0, got 88");
  expect_status(with(fields_.dense_at + 4 * 1, uint32_t{8}), StatusCode::malformed, "dense 'hour'");
}

TEST_F(Blob, IsRefusedWhenAnInputWithoutADefaultIsMissing) {
  expect_status(after([](RequestData& d) { d.ids[0].reset(); }), StatusCode::missing_input,
                "ids 'user_id': expected values, since it has no default, got none");
  expect_status(after([](RequestData& d) { d.dense[0].reset(); }), StatusCode::missing_input, "dense 'context'");
  EXPECT_TRUE(after([](RequestData& d) { d.dense[2].reset(); }).ok());
}

TEST_F(Blob, IsRefusedWhenADenseValueIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::signaling_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    expect_status(after([&](RequestData& d) { (*d.dense[0])[3] = bad; }), StatusCode::not_finite,
                  "dense 'context': expected finite values, got NaN or infinity in row 1, column 1");
  const float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(after([&](RequestData& d) { d.dense[0] = {largest, -largest, smallest, -0.0f}; }).ok());
}

TEST_F(Blob, MayHoldAnyIds) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(after([](RequestData& d) { d.ids[5] = {least, most, -1}; }).ok());
}

TEST_F(Blob, CannotAskForRowsThatItDoesNotPayFor) {
  Graph graph = small_graph();
  graph.ids[3].default_id = 1;  // genre: the one input of its axis
  const BatchLayout layout(graph);
  RequestData data = small_request(layout);
  data.rows[2] = 6;
  data.offsets[2] = {0, 3, 6};
  data.ids[3].reset();
  expect_status(validate(naive_blob(layout, data), layout), StatusCode::inconsistent,
                "axis 'genres': expected no rows, since none of its inputs is set, got 6 rows");
  data.rows[2] = 1;
  data.offsets[2] = {0, 0, 1};
  expect_status(validate(naive_blob(layout, data), layout), StatusCode::inconsistent,
                "axis 'genres': expected no rows, since none of its inputs is set, got 1 rows");
}

TEST_F(Blob, IsReadInsideItsBytesWhateverIsFlipped) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = blob_;
    for (int flips = round % 4; flips >= 0; --flips) {
      const size_t bit = random() % (8 * bytes.size());
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    if (!validate_blob({exact.get(), static_cast<int64_t>(bytes.size())}, layout_).ok()) continue;
    ++accepted;  // flips of ids and of dense values mostly go through
    read_everything(BlobView(exact.get(), layout_), layout_);
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
