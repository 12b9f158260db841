// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"

namespace warprank::reference {

/// y[n, c] = exp(x[n, c]) / sum_c' exp(x[n, c']), around the largest of the row. The difference x - max is rounded to
/// its own size; the sum has as many additions as columns.
inline Bounded softmax(Matrix<const float> x) {
  Bounded y;
  for (int64_t n = 0; n < x.rows; ++n) {
    double top = -INFINITY, total = 0;
    for (int64_t c = 0; c < x.cols; ++c) top = std::max<double>(top, x.row(n)[c]);
    double mean_distance = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double e = std::exp(x.row(n)[c] - top);
      total += e;
      if (e > 0) mean_distance += e * (top - x.row(n)[c]);
    }
    mean_distance /= total;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double value = std::exp(x.row(n)[c] - top) / total;
      const double distance = value > 0 ? top - x.row(n)[c] : 0;
      y.value.push_back(value);
      y.bound.push_back(value * (static_cast<double>(x.cols) + 16 + distance + mean_distance));
    }
  }
  return y;
}

}  // namespace warprank::reference
