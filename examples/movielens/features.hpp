// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the model is told about a user and the films to rank, computed as tools/train_movielens.py does; README.md says
/// why. No engine here: plain vectors, one for each input of model.hpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data.hpp"

namespace movielens {

inline constexpr int64_t longest_history = 100;
inline constexpr int64_t unknown = -1;  ///< an id that adds nothing

inline constexpr std::array<std::string_view, 21> occupations = {
    "administrator", "artist",    "doctor",   "educator",  "engineer",  "entertainment", "executive",
    "healthcare",    "homemaker", "lawyer",   "librarian", "marketing", "none",          "other",
    "programmer",    "retired",   "salesman", "scientist", "student",   "technician",    "writer"};

/// MovieLens 1M's: under 18, 18-24, 25-34, 35-44, 45-49, 50-55, 56 and over.
inline int64_t age_group(int64_t age) {
  constexpr std::array<int64_t, 6> first = {18, 25, 35, 45, 50, 56};
  return std::upper_bound(first.begin(), first.end(), age) - first.begin();
}

inline int64_t occupation_id(std::string_view name) {
  const auto found = std::lower_bound(occupations.begin(), occupations.end(), name);
  return found != occupations.end() && *found == name ? found - occupations.begin() : unknown;
}

/// The year in the last "(1995)" of a title: 0 none, 1 to 7 a decade from the 1920s on, 8 to 16 a year from 1990 on.
inline int64_t year_group(std::string_view title) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t length = title.size(); length >= 6; --length) {
    const std::string_view last = title.substr(length - 6, 6);
    if (last[0] != '(' || last[5] != ')' || !std::all_of(last.begin() + 1, last.end() - 1, is_digit)) continue;
    int64_t year = 0;
    for (const char digit : last.substr(1, 4)) year = 10 * year + (digit - '0');
    return year >= 1990 ? 8 + std::min<int64_t>(year, 1998) - 1990 : std::max<int64_t>(year / 10 - 192, 0) + 1;
  }
  return 0;
}

/// Lists of ids, one after the other: list i is values[offsets[i]], .., values[offsets[i + 1] - 1].
struct Bags {
  std::vector<int64_t> values;
  std::vector<int64_t> offsets = {0};

  void add(const std::vector<int64_t>& bag) {
    values.insert(values.end(), bag.begin(), bag.end());
    offsets.push_back(static_cast<int64_t>(values.size()));
  }
};

/// One request: a user and the films to rank. Members are called after the inputs of the model.
struct RequestFeatures {
  int64_t user_id = 0;
  int64_t age = 0;
  int64_t gender = 0;
  int64_t occupation = 0;
  std::array<float, 3> user_context = {};  ///< age, length of the history, its mean rating
  std::vector<int64_t> hist_film_id;       ///< oldest first
  std::vector<int64_t> hist_rating;
  Bags hist_genre;
  std::vector<int64_t> film_id;
  std::vector<int64_t> year;
  std::vector<float> film_context;  ///< popularity
  Bags genre;
};

/// Where a user's ratings lie in Data::ratings: [begin, held_out) to learn and rank from, [held_out, end) to test on.
struct UserRatings {
  int64_t begin = 0;
  int64_t held_out = 0;
  int64_t end = 0;
};

/// Splits the ratings of each user by time: the last fifth is held out, from its first moment on, so that all that is
/// held out is younger than all that is not.
inline std::vector<UserRatings> split_ratings(const Data& data) {
  std::vector<UserRatings> split;
  const auto num_ratings = static_cast<int64_t>(data.ratings.size());
  const auto rating = [&](int64_t i) -> const Rating& { return data.ratings[static_cast<size_t>(i)]; };
  int64_t end = 0;
  for (size_t user = 0; user < data.users.size(); ++user) {
    const int64_t begin = end;
    while (end < num_ratings && rating(end).user == static_cast<int64_t>(user)) ++end;
    int64_t held_out = end - (end - begin) / 5;
    if (held_out < end)
      while (held_out > begin && rating(held_out - 1).timestamp == rating(held_out).timestamp) --held_out;
    split.push_back({begin, held_out, end});
  }
  return split;
}

/// Makes requests. Keeps a reference to the data.
class Features {
 public:
  explicit Features(const Data& data) : data_(data), split_(split_ratings(data)), popularity_(data.films.size()) {
    for (const UserRatings& user : split_)
      for (int64_t i = user.begin; i < user.held_out; ++i) ++popularity_[static_cast<size_t>(rating(i).film)];
  }

  /// By position of the user, as in Data::users.
  const UserRatings& ratings_of(int64_t user) const { return split_[static_cast<size_t>(user)]; }
  int64_t num_held_out() const {
    int64_t count = 0;
    for (const UserRatings& user : split_) count += user.end - user.held_out;
    return count;
  }
  const Rating& rating(int64_t i) const { return data_.ratings[static_cast<size_t>(i)]; }

  /// The films whose ratings by the user are held out, in the order of the ratings.
  std::vector<int64_t> held_out_films(int64_t user) const {
    std::vector<int64_t> films;
    for (int64_t i = ratings_of(user).held_out; i < ratings_of(user).end; ++i) films.push_back(rating(i).film);
    return films;
  }

  /// All films that are not in the part of the user's ratings that is known.
  std::vector<int64_t> unseen_films(int64_t user) const {
    std::vector<bool> seen(data_.films.size());
    for (int64_t i = ratings_of(user).begin; i < ratings_of(user).held_out; ++i)
      seen[static_cast<size_t>(rating(i).film)] = true;
    std::vector<int64_t> films;
    for (size_t film = 0; film < seen.size(); ++film)
      if (!seen[film]) films.push_back(static_cast<int64_t>(film));
    return films;
  }

  /// The inputs for ranking `films` (positions) for `user` (position) with the ratings before the held-out ones known.
  RequestFeatures request(int64_t user, const std::vector<int64_t>& films) const {
    RequestFeatures request;
    const User& person = data_.users[static_cast<size_t>(user)];
    request.user_id = person.id;
    request.age = age_group(person.age);
    request.gender = person.gender == 'F' ? 1 : 0;
    request.occupation = occupation_id(person.occupation);

    const UserRatings& known = ratings_of(user);
    double stars = 0;
    for (int64_t i = std::max(known.begin, known.held_out - longest_history); i < known.held_out; ++i) {
      const Film& film = data_.films[static_cast<size_t>(rating(i).film)];
      request.hist_film_id.push_back(film.id);
      request.hist_rating.push_back(rating(i).stars);
      request.hist_genre.add(film.genres);
      stars += static_cast<double>(rating(i).stars);
    }
    // The mean is drawn to 3.5 as by five more ratings: a history may be short or empty.
    const auto length = static_cast<double>(request.hist_film_id.size());
    request.user_context = {static_cast<float>(static_cast<double>(person.age) / 50 - 0.5),
                            static_cast<float>(std::log1p(length) / 5),
                            static_cast<float>((stars + 5 * 3.5) / (length + 5) - 3.5)};

    for (const int64_t position : films) {
      const Film& film = data_.films[static_cast<size_t>(position)];
      const auto popularity = static_cast<double>(popularity_[static_cast<size_t>(position)]);
      request.film_id.push_back(film.id);
      request.year.push_back(year_group(film.title));
      request.film_context.push_back(static_cast<float>(std::log1p(popularity) / 6));
      request.genre.add(film.genres);
    }
    return request;
  }

 private:
  const Data& data_;
  std::vector<UserRatings> split_;
  std::vector<int64_t> popularity_;  ///< known ratings of each film
};

}  // namespace movielens
