// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How well the held-out ratings are told apart.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "features.hpp"
#include "ranker.hpp"

namespace movielens {

/// Area under the ROC curve: the probability that a positive scores above a negative, ties counting half.
/// NaN when there are no positives or no negatives.
inline double auc(const std::vector<bool>& positive, const std::vector<float>& score) {
  std::vector<size_t> order(score.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] < score[b]; });
  double positives = 0, rank_sum = 0;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && score[order[end]] == score[order[begin]]) ++end;
    const double average_rank = static_cast<double>(begin + 1 + end) / 2;
    for (size_t i = begin; i < end; ++i) {
      if (!positive[order[i]]) continue;
      positives += 1;
      rank_sum += average_rank;
    }
  }
  const double negatives = static_cast<double>(score.size()) - positives;
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

/// The scores of all held-out ratings, in their order (user, timestamp, film).
struct Evaluation {
  std::vector<int64_t> stars;
  Probabilities scores;

  double auc_liked() const { return auc(at_least(4), scores.liked); }
  double auc_loved() const { return auc(at_least(5), scores.loved); }

 private:
  std::vector<bool> at_least(int64_t bound) const {
    std::vector<bool> result;
    for (const int64_t s : stars) result.push_back(s >= bound);
    return result;
  }
};

/// Scores every held-out rating of the first `most_users`, one request per user and `users_per_run` of them together;
/// `progress(done)` is called with the number of ratings done.
template <class Progress>
Evaluation evaluate(const Data& data, const Features& features, Ranker& ranker, Progress progress,
                    int64_t users_per_run = 16, int64_t most_users = std::numeric_limits<int64_t>::max()) {
  Evaluation evaluation;
  const int64_t num_users = std::min(static_cast<int64_t>(data.users.size()), most_users);
  for (int64_t first = 0; first < num_users; first += users_per_run) {
    std::vector<RequestFeatures> requests;
    for (int64_t user = first; user < std::min(first + users_per_run, num_users); ++user) {
      requests.push_back(features.request(user, features.held_out_films(user)));
      for (int64_t i = features.ratings_of(user).held_out; i < features.ratings_of(user).end; ++i)
        evaluation.stars.push_back(features.rating(i).stars);
    }
    Probabilities& all = evaluation.scores;
    for (const Probabilities& one : ranker.score(requests)) {
      all.liked.insert(all.liked.end(), one.liked.begin(), one.liked.end());
      all.loved.insert(all.loved.end(), one.loved.begin(), one.loved.end());
    }
    progress(static_cast<int64_t>(evaluation.stars.size()));
  }
  return evaluation;
}

}  // namespace movielens
