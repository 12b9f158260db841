// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// w = normalization(s) for scores that are themselves uncertain. An error of a score is a relative one of its
/// exponential, and the difference from the largest is rounded to its own size.
inline Bounded attention_weights(const Bounded& scores, Normalization normalization) {
  if (normalization == Normalization::none) return scores;
  Bounded weights;
  const size_t count = scores.value.size();
  if (normalization == Normalization::sigmoid) {
    for (size_t t = 0; t < count; ++t) {
      const double weight = 1 / (1 + std::exp(-scores.value[t]));
      weights.value.push_back(weight);
      weights.bound.push_back(weight * ((1 - weight) * scores.bound[t] + 8));
    }
    return weights;
  }
  double top = -INFINITY, total = 0, mean_error = 0;
  for (const double score : scores.value) top = std::max(top, score);
  for (size_t t = 0; t < count; ++t) {
    const double exponential = std::exp(scores.value[t] - top), error = scores.bound[t] + top - scores.value[t];
    weights.value.push_back(exponential);
    weights.bound.push_back(error);
    total += exponential;
    mean_error += exponential * error;
  }
  mean_error /= total;
  for (size_t t = 0; t < count; ++t) {
    weights.value[t] /= total;
    weights.bound[t] = weights.value[t] * (weights.bound[t] + mean_error + static_cast<double>(count) + 16);
  }
  return weights;
}

/// w = silu(s) / divisor. No slope of silu is above 1.1.
inline Bounded silu_weights(const Bounded& scores, double divisor) {
  Bounded weights;
  for (size_t t = 0; t < scores.value.size(); ++t) {
    const double weight = scores.value[t] / (1 + std::exp(-scores.value[t])) / divisor;
    weights.value.push_back(weight);
    weights.bound.push_back(1.1 * scores.bound[t] / divisor + 12 * std::fabs(weight));
  }
  return weights;
}

/// Appends sum_t w_t x_t[c] for each of the columns; `of_magnitudes`: sum_t |w_t x_t[c]|.
inline void append_weighted_sums(const Bounded& weights, const std::vector<const float*>& rows, int64_t columns,
                                 Bounded& y, bool of_magnitudes = false) {
  const auto count = static_cast<double>(rows.size());
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0, bound = 0;
    for (size_t t = 0; t < rows.size(); ++t) {
      const double weight = weights.value[t], value = rows[t][c];
      sum += of_magnitudes ? std::fabs(weight * value) : weight * value;
      bound += (weights.bound[t] + count * std::fabs(weight)) * std::fabs(value);
    }
    y.value.push_back(sum);
    y.bound.push_back(bound);
  }
}
inline void append_weighted_sums(const Bounded& weights, Matrix<const float> x, Bounded& y) {
  std::vector<const float*> rows;
  for (int64_t t = 0; t < x.rows; ++t) rows.push_back(x.row(t));
  append_weighted_sums(weights, rows, x.cols, y);
}

}  // namespace warprank::reference
