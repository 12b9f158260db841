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

inline const std::vector<Pooling> all_poolings = {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max};

/// Numbers pooled to one: their sum, divided by their count or its square root, or their maximum; 0 when there are
/// none.
inline void pool(const std::vector<double>& x, Pooling pooling, Bounded& y) {
  const double count = static_cast<double>(x.size());
  double sum = 0, magnitude = 0, top = -INFINITY;
  for (double value : x) {
    sum += value;
    magnitude += std::fabs(value);
    top = std::max(top, value);
  }
  const double divisor = pooling == Pooling::mean ? count : pooling == Pooling::sqrtn ? std::sqrt(count) : 1;
  y.value.push_back(x.empty() ? 0 : pooling == Pooling::max ? top : sum / divisor);
  y.bound.push_back(x.empty() || pooling == Pooling::max ? 0 : (count + 2) * magnitude / divisor);
}

/// The columns of each row pooled.
inline Bounded reduce(Matrix<const float> x, Pooling pooling) {
  Bounded y;
  for (int64_t n = 0; n < x.rows; ++n) pool({x.row(n), x.row(n) + x.cols}, pooling, y);
  return y;
}

/// The rows of each segment pooled, column by column.
inline Bounded segment_reduce(Matrix<const float> x, Segments segments, Pooling pooling) {
  Bounded y;
  for (int64_t s = 0; s < segments.count; ++s)
    for (int64_t c = 0; c < x.cols; ++c) {
      std::vector<double> column;
      for (int64_t n = segments.begin(s); n < segments.end(s); ++n) column.push_back(x.row(n)[c]);
      pool(column, pooling, y);
    }
  return y;
}

}  // namespace warprank::reference
