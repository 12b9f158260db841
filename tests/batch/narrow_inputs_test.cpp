// SPDX-License-Identifier: Apache-2.0

/// Ids of 32 bits and dense values of 16 in requests: what is packed, refused, saturated and converted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "batch/blob_testing.hpp"
#include "batch/expect_status.hpp"
#include "batch/random_requests.hpp"
#include "support/message_of.hpp"
#include "warprank/batch/batch.hpp"
#include "warprank/model.hpp"
#include "warprank/model/validate.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float largest_bf16 = 0x1.fep127f, largest = std::numeric_limits<float>::max();

class NarrowInputs : public testing::Test {
 protected:
  const BatchLayout layout_{narrow_graph()}, saturating_{narrow_graph(OutOfRange::saturate)};
  const Bytes blob_ = naive_blob(layout_, small_request(layout_));
  const FieldPositions fields_{layout_};

  Status with(size_t at, uint8_t value) const {
    Bytes bytes = blob_;
    put_at(bytes, at, value);
    return validate(bytes, layout_);
  }
};

TEST_F(NarrowInputs, AreDeclaredInAModel) {
  const Graph graph = build([](Builder& b) -> Outputs {
    const Axis user = b.axis("user");
    const Ids id = b.ids("id", user, {.padding = -7, .wire = IdsWire::i32, .out_of_range = OutOfRange::saturate});
    const Tensor x = b.dense("x", user, 3, {.wire = DenseWire::bf16, .out_of_range = OutOfRange::saturate});
    return {{"y", b.concat({b.embed(id, b.hashed_table("table", {.dim = 2})), x})}};
  });
  EXPECT_EQ(graph.ids[0].wire, IdsWire::i32);
  EXPECT_EQ(graph.ids[0].out_of_range, OutOfRange::saturate);
  EXPECT_EQ(graph.dense[0].wire, DenseWire::bf16);
  EXPECT_EQ(graph.dense[0].out_of_range, OutOfRange::saturate);
}

TEST_F(NarrowInputs, AreRefusedWithAPaddingThatTheyCannotHold) {
  const auto with_padding = [](int64_t padding) {
    return test_support::message_of([&] {
      build([&](Builder& b) -> Outputs {
        const Ids id = b.ids("id", b.axis("user"), {.padding = padding, .wire = IdsWire::i32});
        return {{"y", b.embed(id, b.hashed_table("table", {.dim = 2}))}};
      });
    });
  };
  EXPECT_THAT(with_padding(int64_t{1} << 31),
              HasSubstr("ids 'id': expected a padding of 32 bits, as its ids, got 2147483648"));
  EXPECT_THAT(with_padding(-(int64_t{1} << 31) - 1), HasSubstr("padding"));
  Graph graph = narrow_graph();
  graph.ids[1].padding = -(int64_t{1} << 31) - 1;
  Problems problems;
  validate(graph, problems);
  EXPECT_THAT(test_support::message_of([&] { problems.throw_if_any(); }),
              HasSubstr("ids 'film_id': expected a padding"));
}

TEST_F(NarrowInputs, ChangeTheVersionAndTheBatchButNotWhoMayRead) {
  const BatchLayout wide(small_graph());
  EXPECT_EQ(wide.version(), 1u);
  EXPECT_EQ(wide.batch_fingerprint(), wide.fingerprint());
  EXPECT_EQ(layout_.version(), 2u);
  EXPECT_EQ(layout_.fingerprint(), wide.fingerprint());
  EXPECT_NE(layout_.batch_fingerprint(), wide.fingerprint());
  EXPECT_EQ(layout_.batch_fingerprint(), saturating_.batch_fingerprint());
  EXPECT_EQ(layout_.wide().version(), 1u);
  EXPECT_EQ(layout_.wide().batch_fingerprint(), wide.batch_fingerprint());
  Graph other = narrow_graph();
  other.dense[2].wire = DenseWire::f16;
  EXPECT_NE(BatchLayout(other).batch_fingerprint(), layout_.batch_fingerprint());
  other = narrow_graph();
  other.ids[2].wire = IdsWire::i64;
  EXPECT_NE(BatchLayout(other).batch_fingerprint(), layout_.batch_fingerprint());
  Batch narrow_batch(layout_), wide_batch(wide);
  EXPECT_THROW(narrow_batch.append(wide_batch), invalid_argument);
}

TEST_F(NarrowInputs, ArePackedInTheBytesThatTheyNeed) {
  const Bytes wide = naive_blob(layout_.wide(), small_request(layout_));
  ASSERT_EQ(validate(blob_, layout_).message, "");
  // 9 types; 2 film_id, 3 genre, 4 of context, 3 of weight: 5 x 4 and 4 x 2 and 3 x 2 bytes less, all padded to 8.
  EXPECT_EQ(static_cast<int64_t>(blob_.size()), static_cast<int64_t>(wide.size()) + 8 - 8 - 8 - 8 - 8);
  const BlobView view(blob_.data(), layout_);
  EXPECT_EQ(view.type(layout_.ids("user_id")), IdsWire::i64);
  EXPECT_EQ(view.type(layout_.ids("film_id")), IdsWire::i32);
  EXPECT_EQ(view.type(layout_.dense("context")), DenseWire::f16);
  EXPECT_EQ(view.type(layout_.dense("weight")), DenseWire::bf16);
  EXPECT_THAT(to_vector(view.ids(layout_.ids("user_id"))), ElementsAre(-5));
  EXPECT_THAT(ids_of(view, layout_, layout_.ids("film_id")), ElementsAre(10, 11));
  EXPECT_THAT(dense_of(view, layout_, layout_.dense("context")), ElementsAre(0.5f, 1.5f, -2, 3));
  EXPECT_THAT(dense_of(view, layout_, layout_.dense("weight")), ElementsAre(1, 0.25f, 2));
  EXPECT_FALSE(view.has(layout_.dense("hour")));
  float second[2];
  view.copy_dense(layout_.dense("context"), 1, 2, second);
  EXPECT_THAT(second, ElementsAre(1.5f, -2));
}

/// Bits of a float, and of what it becomes: by Python's struct and exact fractions.
struct Rounded {
  uint32_t f32;
  uint16_t f16, bf16;
};
const std::vector<Rounded> rounded{
    {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x3f800000, 0x3c00, 0x3f80},
    {0xc0200000, 0xc100, 0xc020}, {0x3dcccccd, 0x2e66, 0x3dcd}, {0xbdcccccd, 0xae66, 0xbdcd},
    {0x3eaaaaab, 0x3555, 0x3eab}, {0x45001000, 0x6800, 0x4500}, {0x45003000, 0x6802, 0x4500},
    {0x477fe000, 0x7bff, 0x4780}, {0x477fef00, 0x7bff, 0x4780}, {0xc77fefff, 0xfbff, 0xc780},
    {0x38800000, 0x0400, 0x3880}, {0x33800000, 0x0001, 0x3380}, {0x33000000, 0x0000, 0x3300},
    {0x33000347, 0x0001, 0x3300}, {0xb2800000, 0x8000, 0xb280}, {0x337d6730, 0x0001, 0x337d},
    {0x387fda40, 0x03ff, 0x3880}, {0x447a2000, 0x63d1, 0x447a}, {0x40490fdb, 0x4248, 0x4049}};

TEST_F(NarrowInputs, RoundToNearest) {
  for (const DenseWire type : {DenseWire::f16, DenseWire::bf16}) {
    for (const OutOfRange out_of_range : {OutOfRange::refuse, OutOfRange::saturate}) {
      Graph graph;
      graph.axes = {{"user", -1, 0}};
      graph.dense = {{"x", 0, static_cast<int64_t>(rounded.size()), {}, type, out_of_range}};
      Batch batch{BatchLayout(graph)};
      std::vector<float> values;
      std::vector<uint16_t> expected;
      for (const Rounded& one : rounded) {
        values.push_back(bits_float(one.f32));
        expected.push_back(type == DenseWire::f16 ? one.f16 : one.bf16);
      }
      ASSERT_EQ(batch.add_request().dense({0}, values).finish().message, "");
      const Bytes bytes = bytes_of(batch, 0);
      const auto at = get_at<uint32_t>(bytes, FieldPositions(batch.layout()).dense_at);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(get_at<uint16_t>(bytes, at + 2 * i), expected[i]) << values[i];
    }
  }
}

TEST_F(NarrowInputs, AreRefusedOutOfRangeByRowAndColumn) {
  const auto set = [&](auto setter) {
    Batch batch(layout_);
    Request request = batch.add_request();
    setter(request);
    return request.status();
  };
  const DenseSlot context = layout_.dense("context"), weight = layout_.dense("weight");
  for (const float bad : {65520.0f, -65520.0f, 1e9f, largest})
    expect_status(set([&](Request& r) {
                    r.dense(context, {1, 65519.9f, -65504, bad});
                  }),
                  StatusCode::out_of_range,
                  "dense 'context': expected values below 65520, as it holds FP16, got " + std::to_string(bad) +
                      " in row 1, column 1");
  EXPECT_TRUE(set([&](Request& r) { r.dense(context, {65519.99f, -65519.99f}); }).ok());
  expect_status(set([&](Request& r) {
                  r.dense(weight, {1, largest});
                }),
                StatusCode::out_of_range, "dense 'weight': expected values that BF16 holds");
  EXPECT_TRUE(set([&](Request& r) { r.dense(weight, {largest_bf16, -largest_bf16, 65520}); }).ok());
  expect_status(set([&](Request& r) {
                  r.dense(context, {1, std::numeric_limits<float>::infinity()});
                }),
                StatusCode::not_finite, "NaN or infinity in row 0, column 1");
  const IdsSlot film_id = layout_.ids("film_id");
  for (const int64_t bad : {int64_t{1} << 31, -(int64_t{1} << 31) - 1, std::numeric_limits<int64_t>::max(),
                            std::numeric_limits<int64_t>::min(), int64_t{1} << 32})
    expect_status(set([&](Request& r) {
                    r.ids(film_id, {-1, 3, bad});
                  }),
                  StatusCode::out_of_range,
                  "ids 'film_id': expected ids of 32 bits, got " + std::to_string(bad) + " in row 2");
  EXPECT_TRUE(set([&](Request& r) { r.ids(film_id, {-1, INT32_MAX, INT32_MIN}); }).ok());
}

TEST_F(NarrowInputs, SaturateWhereTheModelSaysSo) {
  Batch batch(saturating_);
  const BatchLayout& layout = batch.layout();
  Request request = batch.add_request();
  request.ids(layout.ids("user_id"), {1})
      .ids(layout.ids("film_id"), {int64_t{1} << 40, std::numeric_limits<int64_t>::min()})
      .dense(layout.dense("context"), {65520, -largest, 65519, largest})
      .ids(layout.ids("seen"), {1})
      .ids(layout.ids("tag"), {1, 2}, Lengths{2})
      .dense(layout.dense("weight"), {largest, -largest});
  ASSERT_EQ(request.finish().message, "");
  const BlobView view = batch.blob(0);
  EXPECT_THAT(ids_of(view, layout, layout.ids("film_id")), ElementsAre(INT32_MAX, INT32_MIN));
  EXPECT_THAT(dense_of(view, layout, layout.dense("context")),
              ElementsAre(max_float16, -max_float16, max_float16, max_float16));
  EXPECT_THAT(dense_of(view, layout, layout.dense("weight")), ElementsAre(largest_bf16, -largest_bf16));
}

TEST_F(NarrowInputs, HaveDefaultsThatNoTypeRounds) {
  Graph graph = narrow_graph();
  graph.ids[2].default_id = int64_t{1} << 40;
  graph.dense[1].default_value = 1e9f;
  const BatchLayout layout(graph);
  EXPECT_EQ(validate(naive_blob(layout, small_request(layout)), layout).message, "");
  EXPECT_EQ(layout.ids(layout.ids("film_age")).default_id, int64_t{1} << 40);
}

TEST_F(NarrowInputs, AreConvertedFromAndToEveryOtherForm) {
  Random random(5);
  int converted = 0, out_of_range = 0;
  for (int round = 0; round < 3000; ++round) {
    Graph graph = random_graph(random);
    choose_types(graph, random);
    const BatchLayout from(graph);
    choose_types(graph, random);
    if (random.chance(30)) graph.dense.clear();
    const BatchLayout to = random.chance(30) ? from.wide() : BatchLayout(graph);
    if (to.fingerprint() != from.fingerprint()) continue;
    RequestData data = after_keep_last(from, random_request(from, random));
    for (size_t i = 0; i < data.dense.size(); ++i)
      if (data.dense[i] && !data.dense[i]->empty() && from.dense()[i].wire != DenseWire::f16 && random.chance(10))
        data.dense[i]->front() = 131072;  // not in FP16
    const Bytes blob = naive_blob(from, data);
    Batch batch(to);
    Request added = batch.add_blob(span_of(blob)), filled = batch.add_request();
    fill(filled, to, data, random);
    filled.finish();
    ASSERT_EQ(added.status().code, filled.status().code) << added.status().message << filled.status().message;
    if (!added.status().ok()) {
      ASSERT_EQ(added.status().code, StatusCode::out_of_range);
      EXPECT_THAT(added.status().message, HasSubstr("one beyond in row 0, column 0"));
      ++out_of_range;
      continue;
    }
    ASSERT_EQ(bytes_of(batch, 0), bytes_of(batch, 1));
    ASSERT_EQ(validate(bytes_of(batch, 0), from).message, "");
    converted += from.batch_fingerprint() != to.batch_fingerprint();
  }
  EXPECT_GT(converted, 500);
  EXPECT_GT(out_of_range, 10);
}

TEST_F(NarrowInputs, AreConvertedFromVersion1AtAnyAddress) {
  RequestData data = small_request(layout_);
  data.dense[0] = {{0.1f, 65520, -1e6f, 3}};
  data.ids[1] = {{-1, int64_t{1} << 33}};
  const Bytes wide = naive_blob(layout_.wide(), data);
  Batch refusing(layout_), saturating(saturating_);
  expect_status(refusing.add_blob(span_of(wide)).status(), StatusCode::out_of_range,
                "blob: ids 'film_id': expected ids of 32 bits, got one beyond in row 1, column 0");
  Bytes shifted(wide.size() + 8);
  for (size_t shift = 0; shift < 8; ++shift) {
    std::copy(wide.begin(), wide.end(), shifted.begin() + static_cast<int64_t>(shift));
    const Request request = saturating.add_blob({shifted.data() + shift, static_cast<int64_t>(wide.size())});
    ASSERT_EQ(request.status().message, "");
    const BlobView view = saturating.blob(request.index());
    EXPECT_THAT(ids_of(view, saturating_, saturating_.ids("film_id")), ElementsAre(-1, INT32_MAX));
    EXPECT_THAT(dense_of(view, saturating_, saturating_.dense("context")),
                ElementsAre(to_float(to_float16(0.1f)), max_float16, -max_float16, 3));
  }
}

TEST_F(NarrowInputs, AreRefusedWithTypesThatAreNone) {
  expect_status(with(fields_.types, 2), StatusCode::malformed, "ids 'user_id': expected a type of 0 to 1, got 2");
  expect_status(with(fields_.types + 6 + 2, 3), StatusCode::malformed,
                "dense 'weight': expected a type of 0 to 2, got 3");
  expect_status(with(fields_.types + 6, 255), StatusCode::malformed,
                "dense 'context': expected a type of 0 to 2, got 255");
  expect_status(with(fields_.types + 9, 1), StatusCode::malformed, "tables: expected zeros");
  EXPECT_FALSE(with(fields_.types + 6, 0).ok());  // another type needs other bytes
  EXPECT_TRUE(with(fields_.types + 6, 2).ok());   // bf16 does not: the same positions
  EXPECT_TRUE(with(fields_.types + 2, 0).ok());   // film_age is not set
}

TEST_F(NarrowInputs, AreOfVersion1WhereNoneIsNarrow) {
  Bytes blob = blob_;
  Graph graph = small_graph();
  graph.ids[2].wire = IdsWire::i32;  // not set
  const BatchLayout layout(graph);
  Bytes bytes = naive_blob(layout, small_request(layout));
  ASSERT_EQ(validate(bytes, layout).message, "");
  put_at(bytes, fields_.types + 2, uint8_t{0});
  expect_status(validate(bytes, layout), StatusCode::malformed, "expected 1, since no input is narrow, got 2");
}

TEST_F(NarrowInputs, AreRefusedWhenNotFinite) {
  const auto context = get_at<uint32_t>(blob_, fields_.dense_at),
             weight = get_at<uint32_t>(blob_, fields_.dense_at + 8);
  for (const uint16_t bits : {0x7c00, 0xfc00, 0x7e01, 0xfc01}) {
    Bytes bytes = blob_;
    put_at(bytes, context + 6, bits);
    expect_status(validate(bytes, layout_), StatusCode::not_finite,
                  "dense 'context': expected finite values, got NaN or infinity in row 1, column 1");
  }
  for (const uint16_t bits : {0x7f80, 0xff80, 0x7f81, 0xffff}) {
    Bytes bytes = blob_;
    put_at(bytes, weight + 2, bits);
    expect_status(validate(bytes, layout_), StatusCode::not_finite, "dense 'weight': expected finite values");
  }
  Bytes bytes = blob_;
  put_at(bytes, context + 6, uint16_t{0x7bff});
  put_at(bytes, weight + 2, uint16_t{0x7f7f});
  EXPECT_TRUE(validate(bytes, layout_).ok());
}

TEST_F(NarrowInputs, AreReadInsideTheirBytesWhateverIsFlipped) {
  Random random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = blob_;
    for (int flips = round % 4; flips >= 0; --flips)
      bytes[static_cast<size_t>(random.below(static_cast<int64_t>(bytes.size())))] ^= std::byte{1} << random.below(8);
    const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    Batch batch(saturating_);
    if (!batch.add_blob({exact.get(), static_cast<int64_t>(bytes.size())}).status().ok()) continue;
    ++accepted;
    for (int i = 0; i < 6; ++i) ids_of(BlobView(exact.get(), layout_), layout_, {i});
    for (int i = 0; i < 3; ++i) dense_of(BlobView(exact.get(), layout_), layout_, {i});
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
