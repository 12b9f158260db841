// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A made-up catalogue in the shape of MovieLens, for machines that cannot get the real one. It has nothing to do with
/// what the weights were trained on: everything runs, the scores mean nothing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "data.hpp"
#include "features.hpp"

namespace movielens {

/// The same on every machine: the standard fixes the engine's numbers, but not those of its distributions.
inline Data generate(int64_t num_users = 200, int64_t num_films = 400) {
  std::mt19937_64 engine(1);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(bound)); };
  constexpr std::array<const char*, 19> genres = {"unknown",   "Action",   "Adventure",   "Animation", "Children's",
                                                  "Comedy",    "Crime",    "Documentary", "Drama",     "Fantasy",
                                                  "Film-Noir", "Horror",   "Musical",     "Mystery",   "Romance",
                                                  "Sci-Fi",    "Thriller", "War",         "Western"};
  constexpr auto num_genres = static_cast<int64_t>(genres.size());

  Data data;
  data.genres.assign(genres.begin(), genres.end());
  for (int64_t id = 1; id <= num_films; ++id) {
    Film film{id, "Generated film " + std::to_string(id) + " (" + std::to_string(1930 + below(69)) + ")", {}};
    for (int64_t genre = 1 + below(num_genres - 1); genre < num_genres; genre += 1 + below(num_genres))
      film.genres.push_back(genre);
    data.films.push_back(std::move(film));
  }
  for (int64_t id = 1; id <= num_users; ++id)
    data.users.push_back({id, 15 + below(60), below(2) == 0 ? 'M' : 'F',
                          std::string(occupations[static_cast<size_t>(below(occupations.size()))])});

  for (int64_t user = 0; user < num_users; ++user) {
    const int64_t favourite = 1 + below(num_genres - 1);
    int64_t timestamp = 880000000 + below(10000000);
    for (int64_t film = below(7); film < num_films; film += 1 + below(7)) {
      timestamp += below(3);  // several at the same moment are common in the real data
      int64_t stars = 1 + below(4);
      for (const int64_t genre : data.films[static_cast<size_t>(film)].genres) stars += genre == favourite ? 1 : 0;
      data.ratings.push_back({user, film, std::min<int64_t>(stars, 5), timestamp});
    }
  }
  sort_ratings(data.ratings);
  return data;
}

}  // namespace movielens
