// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/bounded.hpp"
#include "reference/segmented_input.hpp"

namespace warprank::reference {

/// y[n, d] = sum over all pairs f < g of e_f[d] e_g[d], or with `reduce` its sum over d. The bound is in the sizes of
/// these products, times the number of additions.
inline Bounded fm(Span<const SegmentedInput> inputs, int64_t dim, bool reduce, int64_t rows) {
  Bounded y;
  for (int64_t n = 0; n < rows; ++n) {
    std::vector<double> e;  // [fields, dim]
    for (const SegmentedInput& input : inputs) {
      const float* row = serving_row(input, n);
      e.insert(e.end(), row, row + input.values.cols);
    }
    const size_t width = static_cast<size_t>(dim), num_fields = dim == 0 ? 0 : e.size() / width;
    double total = 0, total_bound = 0;
    for (size_t d = 0; d < width; ++d) {
      double pairs = 0, bound = 0;
      for (size_t f = 0; f < num_fields; ++f)
        for (size_t g = 0; g < f; ++g) {
          pairs += e[f * width + d] * e[g * width + d];
          bound += std::fabs(e[f * width + d] * e[g * width + d]);
        }
      total += pairs;
      total_bound += bound * (2 * static_cast<double>(num_fields) + static_cast<double>(dim));
      if (reduce) continue;
      y.value.push_back(pairs);
      y.bound.push_back(bound * 2 * static_cast<double>(num_fields));
    }
    if (!reduce) continue;
    y.value.push_back(total);
    y.bound.push_back(total_bound);
  }
  return y;
}

}  // namespace warprank::reference
