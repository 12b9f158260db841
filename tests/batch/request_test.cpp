// SPDX-License-Identifier: Apache-2.0

#include "warprank/batch/request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "batch/blob_testing.hpp"
#include "batch/random_requests.hpp"
#include "warprank/batch/batch.hpp"

namespace {

using namespace warprank;
using namespace warprank::batch_testing;
using testing::ElementsAre;
using testing::HasSubstr;

class RequestOfFilms : public testing::Test {
 protected:
  /// A request that lacks nothing but what a test is about: no rows below the outermost axis.
  Request begin() { return batch_.add_request().ids(user_id, {4}); }

  void expect_refused(Request request, StatusCode code, const std::string& message) {
    EXPECT_EQ(request.finish().code, code);
    EXPECT_THAT(request.status().message, HasSubstr(message));
    EXPECT_THROW(batch_.blob(request.index()), invalid_argument);
  }

  const BatchLayout layout_{small_graph()};
  Batch batch_{layout_};
  const IdsSlot user_id = layout_.ids("user_id"), film_id = layout_.ids("film_id"), film_age = layout_.ids("film_age"),
                genre = layout_.ids("genre"), seen = layout_.ids("seen"), tag = layout_.ids("tag");
  const DenseSlot context = layout_.dense("context"), hour = layout_.dense("hour"), weight = layout_.dense("weight");
  const AxisSlot user = layout_.axis("user"), item = layout_.axis("item"), genres = layout_.axis("genres"),
                 history = layout_.axis("history"), tags = layout_.axis("tags");
};

TEST_F(RequestOfFilms, IsPackedAsTheFormatSays) {
  Request request = batch_.add_request();
  request.ids(user_id, {-5})
      .ids(film_id, {10, 11})
      .ids(genre, {1, 2, 1}, Lengths{2, 1})
      .ids(seen, {20, 21, 22})
      .ids(tag, {30, 31, 30}, Offsets{0, 0, 2, 3})
      .dense(context, {0.5f, 1.5f, -2, 3})
      .dense(weight, {1, 0.25f, 2});
  EXPECT_EQ(request.finish().message, "");
  EXPECT_EQ(bytes_of(batch_, request.index()), naive_blob(layout_, small_request(layout_)));
}

TEST_F(RequestOfFilms, TakesValuesFromAnyContiguousContainer) {
  const std::array<int64_t, 2> films{10, 11};
  const std::vector<uint64_t> hashes{0x8000000000000001, 2};
  const std::vector<float> values{0.5f, 1.5f, -2, 3};
  Request request = begin()
                        .ids(film_id, films)
                        .ids(film_age, hashes)
                        .dense(context, Span<const float>(values))
                        .lengths(genres, std::vector<int64_t>{0, 0});
  EXPECT_EQ(request.finish().message, "");
  const BlobView view = batch_.blob(request.index());
  EXPECT_THAT(to_vector(view.ids(film_id)), ElementsAre(10, 11));
  EXPECT_THAT(to_vector(view.ids(film_age)), ElementsAre(std::numeric_limits<int64_t>::min() + 1, 2));
  EXPECT_EQ(to_vector(view.dense(context)), values);
}

TEST_F(RequestOfFilms, CopiesValuesAtOnce) {
  std::vector<int64_t> films{10, 11};
  std::vector<float> values{0.5f, 1.5f, -2, 3};
  Request request = begin().ids(film_id, films).dense(context, values);
  films = {0, 0};
  values = {0, 0, 0, 0};
  ASSERT_EQ(request.finish().message, "");
  EXPECT_THAT(to_vector(batch_.blob(0).ids(film_id)), ElementsAre(10, 11));
  EXPECT_THAT(to_vector(batch_.blob(0).dense(context)), ElementsAre(0.5f, 1.5f, -2, 3));
}

TEST_F(RequestOfFilms, HasNoRowsWhereNothingIsSet) {
  Request request = begin();
  ASSERT_EQ(request.finish().message, "");
  const BlobView view = batch_.blob(request.index());
  for (const AxisSlot axis : {item, genres, history, tags}) EXPECT_EQ(view.rows(axis), 0);
  EXPECT_THAT(to_vector(view.offsets(genres)), ElementsAre(0));
  EXPECT_FALSE(view.has(hour));
}

TEST_F(RequestOfFilms, HasEmptyBagsWhereNoneAreSet) {
  Request request = begin().ids(film_id, {1, 2}).dense(context, {1, 2, 3, 4});
  ASSERT_EQ(request.finish().message, "");
  EXPECT_THAT(to_vector(batch_.blob(0).offsets(genres)), ElementsAre(0, 0, 0));
}

TEST_F(RequestOfFilms, MaySetAnInputToNothing) {
  Request request = begin().ids(film_id, {}).dense(context, {}).ids(genre, {}, Lengths{}).ids(seen, {});
  ASSERT_EQ(request.finish().message, "");
  EXPECT_TRUE(batch_.blob(0).has(film_id));
  EXPECT_TRUE(batch_.blob(0).ids(film_id).empty());
}

TEST_F(RequestOfFilms, LearnsTheRowsOfAnAxisFromTheBagsNestedInIt) {
  Graph graph = small_graph();
  graph.ids[1].default_id = 0;
  graph.dense[0].default_value = 0.0f;
  Batch batch{BatchLayout(graph)};
  Request request = batch.add_request().ids(user_id, {4}).ids(genre, {1, 2, 3}, Lengths{1, 0, 2});
  ASSERT_EQ(request.finish().message, "");
  EXPECT_EQ(batch.blob(0).rows(item), 3);
}

TEST_F(RequestOfFilms, KeepsTheLastRowsAndWhatIsNestedInThem) {
  Request request = begin()
                        .ids(seen, {20, 21, 22, 23, 24, 25})
                        .ids(tag, {1, 2, 3, 4, 5}, Lengths{1, 1, 1, 0, 2, 0})
                        .dense(weight, {0.1f, 0.2f, 0.3f, 0.4f, 0.5f})
                        .ids(film_id, {10, 11})
                        .dense(context, {1, 2, 3, 4})
                        .ids(genre, {1, 2, 3, 4, 5, 6}, Offsets{0, 5, 6});
  ASSERT_EQ(request.finish().message, "");
  const BlobView view = batch_.blob(request.index());
  EXPECT_THAT(to_vector(view.ids(seen)), ElementsAre(22, 23, 24, 25));
  EXPECT_THAT(to_vector(view.offsets(tags)), ElementsAre(0, 1, 1, 3, 3));
  EXPECT_THAT(to_vector(view.ids(tag)), ElementsAre(3, 4, 5));
  EXPECT_THAT(to_vector(view.dense(weight)), ElementsAre(0.3f, 0.4f, 0.5f));
  EXPECT_THAT(to_vector(view.offsets(genres)), ElementsAre(0, 3, 4));
  EXPECT_THAT(to_vector(view.ids(genre)), ElementsAre(3, 4, 5, 6));
}

TEST_F(RequestOfFilms, SharesOffsetsBetweenTheInputsOfAnAxis) {
  Request request =
      begin().ids(seen, {20, 21}).ids(tag, {1, 2, 3}, Lengths{1, 2}).dense(weight, {1, 2, 3}, Offsets{0, 1, 3});
  EXPECT_EQ(request.finish().message, "");
  expect_refused(begin().ids(seen, {20, 21}).ids(tag, {1, 2, 3}, Lengths{1, 2}).dense(weight, {1, 2, 3}, Lengths{2, 1}),
                 StatusCode::set_twice, "lengths of axis 'tags': expected the same as before");
}

TEST_F(RequestOfFilms, IsRefusedWhenRowCountsDiffer) {
  expect_refused(batch_.add_request().ids(user_id, {1, 2}), StatusCode::inconsistent,
                 "ids 'user_id': expected 1 row of axis 'user', as every request has, got 2");
  expect_refused(begin().dense(hour, {}), StatusCode::inconsistent, "dense 'hour': expected 1 row of axis 'user'");
  expect_refused(begin().ids(film_id, {1, 2, 3}).dense(context, {1, 2, 3, 4}), StatusCode::inconsistent,
                 "dense 'context': expected 3 rows of axis 'item', as ids 'film_id' has, got 2");
  expect_refused(begin().ids(film_id, {1, 2, 3}).ids(genre, {1}, Lengths{0, 1}), StatusCode::inconsistent,
                 "lengths of axis 'genres': expected 3 rows of axis 'item', as ids 'film_id' has, got 2");
  expect_refused(begin().ids(genre, {1}, Lengths{0, 1}).ids(film_id, {1, 2, 3}), StatusCode::inconsistent,
                 "ids 'film_id': expected 2 rows of axis 'item', as lengths of axis 'genres' has, got 3");
  expect_refused(begin().ids(genre, {1, 2}, Offsets{0, 1, 3}), StatusCode::inconsistent,
                 "offsets of axis 'genres': expected 2 rows of axis 'genres', as ids 'genre' has, got 3");
  expect_refused(begin().ids(seen, {1, 2}, Lengths{1, 1}), StatusCode::inconsistent,
                 "lengths of axis 'history': expected 1 row of axis 'user', as every request has, got 2");
  expect_refused(begin().lengths(user, {1}), StatusCode::inconsistent, "expected an axis that is nested in another");
}

TEST_F(RequestOfFilms, IsRefusedWhenADenseInputHasAPartOfARow) {
  expect_refused(begin().dense(context, {1, 2, 3}), StatusCode::inconsistent,
                 "dense 'context': expected a multiple of 2 values, got 3");
}

TEST_F(RequestOfFilms, IsRefusedWhenOffsetsDoNotDivideTheRows) {
  expect_refused(begin().ids(genre, {1, 2}), StatusCode::inconsistent,
                 "ids 'genre': expected lengths or offsets of axis 'genres', which is nested in 'item', got none");
  expect_refused(begin().offsets(genres, {0, 2, 1}), StatusCode::inconsistent, "no offsets that decrease");
  expect_refused(begin().offsets(genres, {0, std::numeric_limits<int64_t>::min()}), StatusCode::inconsistent,
                 "decrease");
  expect_refused(begin().offsets(genres, {1, 2}), StatusCode::inconsistent, "expected the first to be 0, got 1");
  expect_refused(begin().offsets(genres, {}), StatusCode::inconsistent, "expected the first to be 0, got no offsets");
  expect_refused(begin().lengths(genres, {2, -1}), StatusCode::inconsistent, "no negative lengths");
}

TEST_F(RequestOfFilms, IsRefusedWhenRowsPass32Bits) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  expect_refused(begin().lengths(genres, {int64_t{1} << 32}), StatusCode::too_large, "fewer than 2^32 rows");
  expect_refused(begin().lengths(genres, {0xffffffff, 1}), StatusCode::too_large, "fewer than 2^32 rows");
  expect_refused(begin().lengths(genres, {1, most, most}), StatusCode::too_large, "fewer than 2^32 rows");
  expect_refused(begin().offsets(genres, {0, most}), StatusCode::too_large, "fewer than 2^32 rows");
}

TEST_F(RequestOfFilms, IsRefusedWhenADenseValueIsNotFinite) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  expect_refused(begin().dense(hour, {nan}), StatusCode::not_finite, "NaN or infinity in row 0, column 0");
  expect_refused(begin().dense(context, {1, 2, 3, -infinity}), StatusCode::not_finite, "row 1, column 1");
}

TEST_F(RequestOfFilms, IsRefusedWhenAnInputIsSetTwice) {
  expect_refused(begin().ids(user_id, {4}), StatusCode::set_twice, "ids 'user_id': expected to be set once");
  expect_refused(begin().dense(hour, {1}).dense(hour, {1}), StatusCode::set_twice, "dense 'hour'");
}

TEST_F(RequestOfFilms, IsRefusedWhenAnInputWithoutADefaultIsMissing) {
  expect_refused(batch_.add_request(), StatusCode::missing_input, "ids 'user_id': expected 1 row of axis 'user'");
  expect_refused(
      begin().ids(film_id, {1, 2, 3}), StatusCode::missing_input,
      "dense 'context': expected 3 rows of axis 'item', as ids 'film_id' has, since it has no default, got none");
  EXPECT_TRUE(begin().ids(film_id, {1}).dense(context, {1, 2}).finish().ok());  // film_age has a default
}

TEST_F(RequestOfFilms, IsRefusedWhenRowsHaveNoInput) {
  Graph graph = small_graph();
  graph.ids[3].default_id = 1;  // genre: the one input of its axis
  Batch batch{BatchLayout(graph)};
  Request request = batch.add_request().ids(user_id, {4}).ids(film_id, {1}).dense(context, {1, 2}).lengths(genres, {3});
  EXPECT_EQ(request.finish().code, StatusCode::inconsistent);
  EXPECT_EQ(request.status().message, "lengths of axis 'genres': expected an input that is set on the axis, got none");
  Request one = batch.add_request().ids(user_id, {4}).ids(film_id, {1}).dense(context, {1, 2}).lengths(genres, {1});
  EXPECT_EQ(one.finish().message, "lengths of axis 'genres': expected an input that is set on the axis, got none");
}

TEST_F(RequestOfFilms, KeepsTheFirstOfItsProblems) {
  Request request = begin().dense(context, {1, 2, 3}).ids(user_id, {1}).lengths(user, {1}).offsets(user, {1});
  EXPECT_EQ(request.status().code, StatusCode::inconsistent);
  expect_refused(request, StatusCode::inconsistent, "dense 'context'");
}

TEST_F(RequestOfFilms, ThrowsForASlotThatDoesNotExist) {
  Request request = begin();
  EXPECT_THROW(request.ids({6}, {1}), invalid_argument);
  EXPECT_THROW(request.ids({-1}, {1}, Lengths{1}), invalid_argument);
  EXPECT_THROW(request.dense({3}, {1}), invalid_argument);
  EXPECT_THROW(request.lengths({5}, {1}), invalid_argument);
  EXPECT_THROW(request.offsets({-1}, {0, 1}), invalid_argument);
  EXPECT_TRUE(request.finish().ok());
}

TEST_F(RequestOfFilms, TakesNothingOnceItIsFinished) {
  Request request = begin();
  request.finish();
  EXPECT_THROW(request.dense(hour, {1}), invalid_argument);
  EXPECT_TRUE(request.finish().ok());
  EXPECT_FALSE(batch_.blob(request.index()).has(hour));
}

TEST_F(RequestOfFilms, IsGoneWhenItsBatchIsCleared) {
  Request request = begin();
  batch_.clear();
  EXPECT_THROW(request.dense(hour, {1}), invalid_argument);
  EXPECT_THROW(request.finish(), invalid_argument);
}

TEST(Request, HoldsWhatWasSetForRandomLayouts) {
  Random random(1);
  int truncated = 0, deep = 0;
  for (int round = 0; round < 3000; ++round) {
    const BatchLayout layout(random_graph(random));
    Batch batch(layout);
    for (int i = 0; i < 3; ++i) {
      const RequestData data = random_request(layout, random);
      Request request = batch.add_request();
      fill(request, layout, data, random);
      ASSERT_EQ(request.finish().message, "");
      const RequestData kept = after_keep_last(layout, data);
      const Bytes bytes = bytes_of(batch, request.index());
      ASSERT_EQ(bytes, naive_blob(layout, kept));
      ASSERT_EQ(validate(bytes, layout).message, "");

      const BlobView view = batch.blob(request.index());
      for (int a = 0; a < static_cast<int>(kept.rows.size()); ++a) {
        ASSERT_EQ(view.rows({a}), kept.rows[static_cast<size_t>(a)]);
        if (!layout.has_offsets({a})) continue;
        ASSERT_EQ(to_vector(view.offsets({a})), kept.offsets[static_cast<size_t>(a)]);
        deep += layout.has_offsets({layout.axis(AxisSlot{a}).parent}) && view.rows({a}) > 0;
      }
      for (int s = 0; s < static_cast<int>(kept.ids.size()); ++s) {
        const auto& expected = kept.ids[static_cast<size_t>(s)];
        ASSERT_EQ(view.has(IdsSlot{s}), expected.has_value());
        ASSERT_EQ(ids_of(view, layout, {s}), expected.value_or(std::vector<int64_t>()));
      }
      for (int s = 0; s < static_cast<int>(kept.dense.size()); ++s) {
        const auto& expected = kept.dense[static_cast<size_t>(s)];
        ASSERT_EQ(view.has(DenseSlot{s}), expected.has_value());
        ASSERT_EQ(dense_of(view, layout, {s}), expected.value_or(std::vector<float>()));
      }
      truncated += kept.rows != data.rows;
    }
  }
  EXPECT_GT(truncated, 1000);
  EXPECT_GT(deep, 1000);
}

}  // namespace
