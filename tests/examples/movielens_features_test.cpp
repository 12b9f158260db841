// SPDX-License-Identifier: Apache-2.0

#include "../../examples/movielens/features.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "../../examples/movielens/generated.hpp"

namespace {

using movielens::Data;
using movielens::Features;
using movielens::RequestFeatures;

/// One user who rates film i at times[i].
Data one_user(const std::vector<int64_t>& times) {
  Data data;
  data.genres = {"Drama", "War"};
  data.users = {{42, 30, 'F', "lawyer"}};
  for (size_t i = 0; i < times.size(); ++i) {
    const auto film = static_cast<int64_t>(i);
    data.films.push_back({film + 1, "Film (1995)", i % 2 == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{0, 1}});
    data.ratings.push_back({0, film, 1 + film % 5, times[i]});
  }
  movielens::sort_ratings(data.ratings);
  return data;
}

TEST(MovielensFeatures, HoldOutTheLastFifthOfAUser) {
  const Data data = one_user({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Features features(data);
  EXPECT_EQ(features.ratings_of(0).held_out, 9);
  EXPECT_EQ(features.num_held_out(), 2);
  EXPECT_EQ(features.held_out_films(0), (std::vector<int64_t>{9, 10}));
}

TEST(MovielensFeatures, HoldOutAllRatingsOfTheMomentAtWhichTheLastFifthBegins) {
  const Data data = one_user({1, 2, 3, 4, 5, 6, 7, 7, 7, 8});
  EXPECT_EQ(Features(data).ratings_of(0).held_out, 6);
}

TEST(MovielensFeatures, ServeAUserWithoutRatings) {
  Data data = one_user({1, 2});
  data.users.push_back({43, 30, 'M', "wizard"});
  const Features features(data);
  const RequestFeatures request = features.request(1, features.unseen_films(1));
  EXPECT_EQ(request.user_id, 43);
  EXPECT_EQ(request.occupation, movielens::unknown);
  EXPECT_TRUE(request.hist_film_id.empty());
  EXPECT_EQ(request.user_context[1], 0);
  EXPECT_EQ(request.user_context[2], 0);
  EXPECT_EQ(request.film_id.size(), 2u);
}

TEST(MovielensFeatures, KnowOnlyWhatIsNotHeldOut) {
  const Data data = one_user({5, 1, 2, 3, 4});
  const Features features(data);
  const std::vector<int64_t> unseen = features.unseen_films(0);
  EXPECT_EQ(unseen, (std::vector<int64_t>{0}));
  const RequestFeatures request = features.request(0, {0, 1});
  EXPECT_EQ(request.hist_film_id, (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(request.hist_rating, (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(request.hist_genre.values, (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(request.hist_genre.offsets, (std::vector<int64_t>{0, 2, 2, 4, 4}));
  EXPECT_FLOAT_EQ(request.user_context[0], 0.1f);
  EXPECT_FLOAT_EQ(request.user_context[1], static_cast<float>(std::log(5.0) / 5));
  EXPECT_FLOAT_EQ(request.user_context[2], static_cast<float>((14 + 17.5) / 9 - 3.5));
  EXPECT_EQ(request.film_id, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(request.film_context[0], 0);  // its only rating is held out
  EXPECT_FLOAT_EQ(request.film_context[1], static_cast<float>(std::log(2.0) / 6));
  EXPECT_EQ(request.genre.offsets, (std::vector<int64_t>{0, 0, 2}));
}

TEST(MovielensFeatures, KeepTheLastHundredOfALongHistory) {
  std::vector<int64_t> times;
  for (int64_t i = 0; i < 200; ++i) times.push_back(i);
  const Data data = one_user(times);
  const RequestFeatures request = Features(data).request(0, {});
  ASSERT_EQ(request.hist_film_id.size(), 100u);
  EXPECT_EQ(request.hist_film_id.front(), 61);
  EXPECT_EQ(request.hist_film_id.back(), 160);
  EXPECT_EQ(request.hist_genre.offsets.size(), 101u);
  EXPECT_TRUE(request.film_id.empty());
}

TEST(MovielensFeatures, TakeTheYearFromTheLastParenthesisOfFourDigits) {
  using movielens::year_group;
  EXPECT_EQ(year_group("Toy Story (1995)"), 13);
  EXPECT_EQ(year_group("Land Before Time (1995) (V)"), 13);
  EXPECT_EQ(year_group("Story (1931) of (1990)"), 8);
  EXPECT_EQ(year_group("(1989)"), 7);
  EXPECT_EQ(year_group("Old (1922)"), 1);
  EXPECT_EQ(year_group("Older (1895)"), 1);
  EXPECT_EQ(year_group("New (2024)"), 16);
  for (const char* none : {"", "(", "()", "(199)", "(1995", "(19951)", "(199x)", "unkonwn (unkonwn)", "1995)"})
    EXPECT_EQ(year_group(none), 0) << none;
}

TEST(MovielensFeatures, GroupAgesAndOccupations) {
  EXPECT_EQ(movielens::age_group(0), 0);
  EXPECT_EQ(movielens::age_group(17), 0);
  EXPECT_EQ(movielens::age_group(18), 1);
  EXPECT_EQ(movielens::age_group(55), 5);
  EXPECT_EQ(movielens::age_group(99), 6);
  for (size_t i = 0; i < movielens::occupations.size(); ++i)
    EXPECT_EQ(movielens::occupation_id(movielens::occupations[i]), static_cast<int64_t>(i));
  EXPECT_EQ(movielens::occupation_id("wizard"), movielens::unknown);
  EXPECT_EQ(movielens::occupation_id("zoologist"), movielens::unknown);
}

TEST(MovielensGenerated, IsACatalogueOfTheSameShapeOnEveryMachine) {
  const Data data = movielens::generate();
  EXPECT_EQ(data.genres.size(), 19u);
  EXPECT_EQ(data.users.size(), 200u);
  EXPECT_EQ(data.films.size(), 400u);
  uint64_t digest = 0;
  const auto mix = [&](int64_t value) { digest = (digest ^ static_cast<uint64_t>(value)) * 0x100000001b3u; };
  for (const movielens::Rating& rating : data.ratings) {
    ASSERT_TRUE(rating.stars >= 1 && rating.stars <= 5);
    for (const int64_t value : {rating.user, rating.film, rating.stars, rating.timestamp}) mix(value);
  }
  for (const movielens::User& user : data.users) {
    EXPECT_NE(movielens::occupation_id(user.occupation), movielens::unknown);
    mix(user.age);
  }
  for (const movielens::Film& film : data.films) {
    EXPECT_NE(movielens::year_group(film.title), 0);
    mix(static_cast<int64_t>(film.genres.size()));
  }
  EXPECT_EQ(digest, 10875366463334446844u);
  const Features features(data);
  EXPECT_GT(features.num_held_out(), static_cast<int64_t>(data.ratings.size()) / 5 - 200);
}

}  // namespace
