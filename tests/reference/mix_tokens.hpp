// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/layer_norm.hpp"
#include "warprank/core/view.hpp"

namespace warprank::reference {

struct TokenNormOf {
  double eps = 1e-5;
  Span<const float> gamma, beta;
};

/// The layer norm of tokens [T, D] that are known with an error each, in units of u = 2^-24: an error moves its own
/// deviation, by their mean all of them, and the spread by their root mean square.
inline Bounded norm_of_tokens(const Bounded& x, int64_t tokens, const TokenNormOf& norm) {
  std::vector<float> values(x.value.begin(), x.value.end());
  const int64_t columns = static_cast<int64_t>(values.size()) / tokens;
  Bounded y = layer_norm({values.data(), tokens, columns}, norm.eps, norm.gamma, norm.beta);
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = [&](int64_t c) { return static_cast<size_t>(t * columns + c); };
    double mean = 0, variance = 0, mean_error = 0, square_error = 0;
    for (int64_t c = 0; c < columns; ++c) {
      mean += x.value[at(c)] / static_cast<double>(columns);
      mean_error += x.bound[at(c)] / static_cast<double>(columns);
    }
    for (int64_t c = 0; c < columns; ++c) {
      variance += std::pow(x.value[at(c)] - mean, 2) / static_cast<double>(columns);
      square_error += std::pow(x.bound[at(c)] + mean_error, 2) / static_cast<double>(columns);
    }
    const double scale = 1 / std::sqrt(variance + norm.eps);
    for (int64_t c = 0; c < columns; ++c) {
      const double gamma = norm.gamma.empty() ? 1 : std::fabs(norm.gamma[c]);
      const double deviation = std::fabs(x.value[at(c)] - mean);
      y.bound[at(c)] += gamma * scale * (x.bound[at(c)] + mean_error + deviation * scale * std::sqrt(square_error));
    }
  }
  return y;
}

/// y[n, t] = norm(x'[n, t] + (part t of x'[n, 0], part t of x'[n, 1], ..)) for rows of T tokens of D columns. x' is x,
/// or with an input norm x normed likewise, with `halves` then rounded to FP16.
inline Bounded mix_tokens(Matrix<const float> x, int64_t tokens, const TokenNormOf& norm, const TokenNormOf* input_norm,
                          bool halves) {
  Bounded y;
  const int64_t columns = x.cols / tokens, part = columns / tokens;
  for (int64_t n = 0; n < x.rows; ++n) {
    Bounded row{std::vector<double>(x.row(n), x.row(n) + x.cols), std::vector<double>(static_cast<size_t>(x.cols))};
    if (input_norm != nullptr) {
      row = norm_of_tokens(row, tokens, *input_norm);
      for (size_t c = 0; c < row.value.size(); ++c)
        if (halves) row.bound[c] += 0x1p24 * (0x1p-11 * std::fabs(row.value[c]) + 0x1p-25);
    }
    Bounded sums;
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t c = 0; c < columns; ++c) {
        const auto own = static_cast<size_t>(token * columns + c);
        const auto mixed = static_cast<size_t>(c / part * columns + token * part + c % part);
        sums.value.push_back(row.value[own] + row.value[mixed]);
        sums.bound.push_back(row.bound[own] + row.bound[mixed] + 2 * std::fabs(sums.value.back()));
      }
    const Bounded of_row = norm_of_tokens(sums, tokens, norm);
    y.value.insert(y.value.end(), of_row.value.begin(), of_row.value.end());
    y.bound.insert(y.bound.end(), of_row.bound.begin(), of_row.bound.end());
  }
  return y;
}

}  // namespace warprank::reference
