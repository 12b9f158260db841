// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"

namespace warprank::reference {

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta over the columns of a row; gamma and beta may be empty.
/// The error of the mean is that of a sum; it moves every deviation, and the variance only in second order.
inline Bounded layer_norm(Matrix<const float> x, double eps, Span<const float> gamma, Span<const float> beta) {
  Bounded y;
  const double cols = static_cast<double>(x.cols);
  for (int64_t n = 0; n < x.rows; ++n) {
    double mean = 0, size = 0, variance = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      mean += x.row(n)[c] / cols;
      size += std::fabs(x.row(n)[c]) / cols;
    }
    for (int64_t c = 0; c < x.cols; ++c) variance += (x.row(n)[c] - mean) * (x.row(n)[c] - mean) / cols;
    const double mean_error = (cols + 2) * size;
    const double scale = 1 / std::sqrt(variance + eps);
    const double scale_error =
        scale * (0.5 * (cols + 4) + 4) + 0.5 * scale * scale * scale * mean_error * mean_error * 0x1p-24;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double g = gamma.empty() ? 1 : gamma[c], b = beta.empty() ? 0 : beta[c];
      const double deviation = x.row(n)[c] - mean;
      const double value = deviation * scale * g;
      y.value.push_back(value + b);
      y.bound.push_back(std::fabs(g) *
                            (scale * (mean_error + std::fabs(deviation)) + std::fabs(deviation) * scale_error) +
                        2 * std::fabs(value) + std::fabs(value + b));
    }
  }
  return y;
}

}  // namespace warprank::reference
