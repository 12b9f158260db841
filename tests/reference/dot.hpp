// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/segmented_input.hpp"
#include "warprank/model/dot_pairs.hpp"

namespace warprank::reference {

/// The pairs of fields in the order of the output.
inline std::vector<std::pair<size_t, size_t>> dot_pairs(size_t num_fields, const DotPairs& wanted) {
  const auto has = [&, left = static_cast<size_t>(wanted.num_left)](size_t f, size_t g) {
    if (left > 0) return f < left && g >= left;
    return (wanted.order == DotOrder::upper ? g > f : g < f) || (wanted.self && g == f);
  };
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t f = 0; f < num_fields; ++f)
    for (size_t g = 0; g < num_fields; ++g)
      if (has(f, g)) pairs.emplace_back(f, g);
  return pairs;
}

/// y[n, p] = sum_d e_f[d] e_g[d] for the p-th pair, then a zero when padded.
inline Bounded dot(Span<const SegmentedInput> inputs, int64_t dim, const DotPairs& pairs, int64_t rows) {
  Bounded y;
  for (int64_t n = 0; n < rows; ++n) {
    std::vector<double> e;  // [fields, dim]
    for (const SegmentedInput& input : inputs) {
      const float* row = serving_row(input, n);
      e.insert(e.end(), row, row + input.values.cols);
    }
    const size_t width = static_cast<size_t>(dim);
    for (const auto& [f, g] : dot_pairs(e.size() / width, pairs)) {
      double product = 0, magnitude = 0;
      for (size_t d = 0; d < width; ++d) {
        product += e[f * width + d] * e[g * width + d];
        magnitude += std::fabs(e[f * width + d] * e[g * width + d]);
      }
      y.value.push_back(product);
      y.bound.push_back(static_cast<double>(dim) * magnitude);
    }
    if (pairs.order != DotOrder::lower_padded || pairs.num_left > 0) continue;
    y.value.push_back(0);
    y.bound.push_back(0);
  }
  return y;
}

}  // namespace warprank::reference
