// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/attention.hpp"
#include "reference/attention_weights.hpp"
#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// weight [3 hidden, hidden], bias [3 hidden]: rows of r, of z and of n.
struct Recurrent {
  RecurrentCell cell = RecurrentCell::gru;
  int64_t hidden = 1;
  double scale = 1;  ///< of the scores
  std::vector<float> weight, bias;
};

/// The state behind an event: `gates` [3 hidden] is its row, and `share` its share of the attention. With `halves` the
/// state is rounded to FP16 where it is multiplied.
inline Bounded next_state(const Recurrent& layer, const Bounded& before, const float* gates, double share,
                          double share_bound, bool halves) {
  constexpr double u = 0x1p-24;
  const int64_t hidden = layer.hidden;
  const auto product = [&](int64_t row, double& value, double& bound) {
    double magnitude = std::fabs(static_cast<double>(layer.bias[static_cast<size_t>(row)]));
    value = layer.bias[static_cast<size_t>(row)], bound = 0;
    for (int64_t c = 0; c < hidden; ++c) {
      const double weight = layer.weight[static_cast<size_t>(row * hidden + c)];
      const double h = before.value[static_cast<size_t>(c)];
      value += weight * h;
      magnitude += std::fabs(weight * h);
      bound += std::fabs(weight) * (before.bound[static_cast<size_t>(c)] + (halves ? 0x1p13 * std::fabs(h) + 1 : 0));
    }
    bound += static_cast<double>(hidden + 3) * magnitude;
  };
  const auto gate = [&](int64_t row, double& value, double& bound) {
    product(row, value, bound);
    const double x = value + gates[row];
    bound += std::fabs(x) + std::fabs(value);
    value = 1 / (1 + std::exp(-x));
    bound = std::min(0.25, value * (1 - value) + 0.1 * u * bound) * bound + 8 * value;
  };
  Bounded y;
  for (int64_t c = 0; c < hidden; ++c) {
    double r, r_bound, z, z_bound, p, p_bound;
    gate(c, r, r_bound);
    gate(hidden + c, z, z_bound);
    product(2 * hidden + c, p, p_bound);
    const double x = gates[2 * hidden + c] + r * p;
    const double x_bound = r * p_bound + std::fabs(p) * r_bound + 2 * std::fabs(r * p) + std::fabs(x);
    const double n = std::tanh(x);
    const double n_bound = std::min(1.0, 1 - n * n + u * x_bound) * x_bound + 8 * std::fabs(n);
    const double h = before.value[static_cast<size_t>(c)], h_bound = before.bound[static_cast<size_t>(c)];
    double kept = z, kept_bound = z_bound;  // of h
    if (layer.cell != RecurrentCell::gru) {
      const double taken = layer.cell == RecurrentCell::augru ? share * z : share;
      kept = 1 - taken;
      kept_bound = layer.cell == RecurrentCell::augru ? share * z_bound + z * share_bound + taken : share_bound;
    }
    y.value.push_back((1 - kept) * n + kept * h);
    y.bound.push_back((1 - kept) * n_bound + kept * h_bound + kept_bound * std::fabs(h - n) +
                      3 * (std::fabs(n) + std::fabs(h)));
  }
  return y;
}

/// A GRU: the states behind all events, [events, hidden]; else the last states, [rows, hidden], of `rows` below the
/// parents of `events`, 0 where there are none. q [rows, K], k [events, K], gates [events, 3 hidden].
inline Bounded recurrent(const Recurrent& layer, Matrix<const float> gates, Segments events, Matrix<const float> q = {},
                         Matrix<const float> k = {}, Segments rows = {}, bool halves = false) {
  const auto none = static_cast<size_t>(layer.hidden);
  Bounded y;
  const auto append = [&](const Bounded& state) {
    y.value.insert(y.value.end(), state.value.begin(), state.value.end());
    y.bound.insert(y.bound.end(), state.bound.begin(), state.bound.end());
  };
  for (int64_t s = 0; s < events.count; ++s) {
    if (layer.cell == RecurrentCell::gru) {
      Bounded state{std::vector<double>(none), std::vector<double>(none)};
      for (int64_t t = events.begin(s); t < events.end(s); ++t) {
        state = next_state(layer, state, gates.row(t), 1, 0, halves);
        append(state);
      }
      continue;
    }
    for (int64_t i = rows.begin(s); i < rows.end(s); ++i) {
      Bounded scores;
      for (int64_t t = events.begin(s); t < events.end(s); ++t)
        append_score(q.row(i), k.row(t), 0, q.cols, layer.scale, scores);
      const Bounded shares = attention_weights(scores, Normalization::softmax);
      Bounded state{std::vector<double>(none), std::vector<double>(none)};
      for (int64_t t = events.begin(s); t < events.end(s); ++t) {
        const auto e = static_cast<size_t>(t - events.begin(s));
        state = next_state(layer, state, gates.row(t), shares.value[e], shares.bound[e], halves);
      }
      append(state);
    }
  }
  return y;
}

}  // namespace warprank::reference
