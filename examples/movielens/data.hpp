// SPDX-License-Identifier: Apache-2.0
#pragma once

/// MovieLens 100K as its publisher ships it. Lines that are empty are skipped; fields not named here are not read.
///
///     u.genre  name|index                                          indices 0, 1, 2, ..
///     u.user   user|age|gender M or F|occupation|zip code
///     u.item   film|title (year)|date|date|address|0 or 1 for each genre   Latin-1 or UTF-8
///     u.data   user TAB film TAB rating 1..5 TAB seconds since 1970

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text.hpp"

namespace movielens {

struct User {
  int64_t id = 0;
  int64_t age = 0;
  char gender = 'M';
  std::string occupation;
};

struct Film {
  int64_t id = 0;
  std::string title;            ///< UTF-8
  std::vector<int64_t> genres;  ///< indices, ascending
};

struct Rating {
  int64_t user = 0;  ///< positions in Data::users and Data::films
  int64_t film = 0;
  int64_t stars = 0;
  int64_t timestamp = 0;
};

struct Data {
  std::vector<std::string> genres;
  std::vector<User> users;      ///< by id
  std::vector<Film> films;      ///< by id
  std::vector<Rating> ratings;  ///< by (user, timestamp, film)
};

namespace detail {

inline constexpr int64_t largest_id = 2147483647;

/// From the ids of records to their positions once they are sorted by id.
template <class Record>
std::unordered_map<int64_t, int64_t> sort_by_id(std::vector<Record>& records) {
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.id < b.id; });
  std::unordered_map<int64_t, int64_t> positions;
  for (const Record& record : records) positions.emplace(record.id, static_cast<int64_t>(positions.size()));
  return positions;
}

inline int64_t new_id(const Line& line, const std::string& name, std::unordered_set<int64_t>& seen) {
  const int64_t id = line.integer(0, name, 1, largest_id);
  if (!seen.insert(id).second) line.fail(name + " not listed before", std::to_string(id) + " again");
  return id;
}

inline int64_t known_id(const Line& line, size_t field, const std::string& name, const std::string& file,
                        const std::unordered_map<int64_t, int64_t>& positions) {
  const auto found = positions.find(line.integer(field, name, 1, largest_id));
  if (found == positions.end()) line.fail(name + " of " + file, shown(line.fields[field]));
  return found->second;
}

}  // namespace detail

/// Sorts ratings into the order that everything else relies on.
inline void sort_ratings(std::vector<Rating>& ratings) {
  std::sort(ratings.begin(), ratings.end(), [](const Rating& a, const Rating& b) {
    return std::tie(a.user, a.timestamp, a.film) < std::tie(b.user, b.timestamp, b.film);
  });
}

/// Reads the four files of `folder`. Throws invalid_argument with every missing file, or with what is wrong in the
/// first malformed one, line by line.
inline Data load(const std::filesystem::path& folder) {
  const auto path = [&](const char* name) { return (folder / name).string(); };
  warprank::Problems problems;
  for (const char* name : {"u.genre", "u.user", "u.item", "u.data"})
    if (!std::filesystem::exists(path(name))) problems.add(path(name), "a file of MovieLens 100K", "no such file");
  problems.throw_if_any();
  const auto finish = [&](const char* name, bool empty) {
    if (empty && problems.empty()) problems.add(path(name), "at least one line", "none");
    problems.throw_if_any();
  };

  Data data;
  each_line(path("u.genre"), '|', 2, problems, [&](const Line& line) {
    const auto next = static_cast<int64_t>(data.genres.size());
    line.integer(1, "a genre's index", next, next);
    data.genres.push_back(to_utf8(line.fields[0]));
  });
  finish("u.genre", data.genres.empty());

  std::unordered_set<int64_t> user_ids, film_ids, rated;
  each_line(path("u.user"), '|', 5, problems, [&](const Line& line) {
    User user{detail::new_id(line, "a user", user_ids), line.integer(1, "an age", 0, 150), 'M',
              to_utf8(line.fields[3])};
    if (line.fields[2] != "M" && line.fields[2] != "F") line.fail("a gender, M or F", shown(line.fields[2]));
    user.gender = line.fields[2][0];
    data.users.push_back(std::move(user));
  });
  finish("u.user", data.users.empty());

  constexpr size_t first_flag = 5;
  each_line(path("u.item"), '|', first_flag + data.genres.size(), problems, [&](const Line& line) {
    Film film{detail::new_id(line, "a film", film_ids), to_utf8(line.fields[1]), {}};
    for (size_t genre = 0; genre < data.genres.size(); ++genre)
      if (line.integer(first_flag + genre, "the flag of genre " + shown(data.genres[genre]), 0, 1) == 1)
        film.genres.push_back(static_cast<int64_t>(genre));
    data.films.push_back(std::move(film));
  });
  finish("u.item", data.films.empty());

  const auto user_positions = detail::sort_by_id(data.users), film_positions = detail::sort_by_id(data.films);
  each_line(path("u.data"), '\t', 4, problems, [&](const Line& line) {
    const Rating rating{detail::known_id(line, 0, "a user", "u.user", user_positions),
                        detail::known_id(line, 1, "a film", "u.item", film_positions),
                        line.integer(2, "a rating", 1, 5), line.integer(3, "a time in seconds", 0, int64_t{1} << 40)};
    if (!rated.insert(rating.user << 32 | rating.film).second)
      line.fail("a film that user " + shown(line.fields[0]) + " has not rated before",
                shown(line.fields[1]) + " again");
    data.ratings.push_back(rating);
  });
  finish("u.data", data.ratings.empty());
  sort_ratings(data.ratings);
  return data;
}

}  // namespace movielens
