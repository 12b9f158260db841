// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random requests of the MovieLens model: seeded, the same in every run.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "../movielens/features.hpp"

namespace serving {

/// Integers from 1 to `count`, n with a probability in proportion to n^-exponent.
class Zipf {
 public:
  Zipf(int64_t count, double exponent) {
    double sum = 0;
    for (int64_t n = 1; n <= count; ++n) up_to_.push_back(sum += std::pow(static_cast<double>(n), -exponent));
  }

  template <class Random>
  int64_t operator()(Random& random) const {
    const double at = std::uniform_real_distribution<double>(0, up_to_.back())(random);
    const auto found = std::upper_bound(up_to_.begin(), up_to_.end() - 1, at);
    return found - up_to_.begin() + 1;
  }

 private:
  std::vector<double> up_to_;  // unnormalised
};

/// As many users, films and genres as MovieLens 100K has, films by Zipf 1.05; half of the histories have more than 52
/// films (four fifths of the median of its users' ratings), a quarter the 100 that the model keeps.
inline std::vector<movielens::RequestFeatures> random_requests(size_t count, int64_t num_items, uint64_t seed) {
  std::mt19937_64 random(seed);
  const Zipf film(1682, 1.05);
  std::lognormal_distribution<double> history_length(std::log(52.0), 1.0);
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto genres = [&] {
    std::vector<int64_t> bag(static_cast<size_t>(between(1, 3)));
    for (int64_t& genre : bag) genre = between(1, 18);
    return bag;
  };

  std::vector<movielens::RequestFeatures> requests(count);
  for (movielens::RequestFeatures& request : requests) {
    request.user_id = between(1, 943);
    request.age = between(0, 6);
    request.gender = between(0, 1);
    request.occupation = between(0, 20);
    const double length = std::min(history_length(random), static_cast<double>(movielens::longest_history));
    for (int64_t i = 0; i < static_cast<int64_t>(length); ++i) {
      request.hist_film_id.push_back(film(random));
      request.hist_rating.push_back(between(1, 5));
      request.hist_genre.add(genres());
    }
    request.user_context = {0.1f, static_cast<float>(std::log1p(length) / 5), 0.0f};
    for (int64_t i = 0; i < num_items; ++i) {
      request.film_id.push_back(film(random));
      request.year.push_back(between(0, 16));
      request.film_context.push_back(static_cast<float>(between(0, 100)) / 100);
      request.genre.add(genres());
    }
  }
  return requests;
}

}  // namespace serving
