// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "reference/attention_weights.hpp"
#include "reference/bounded.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"

namespace warprank::reference {

/// y[i, h] = sum_t p_t v[t, h], p = softmax over the keys t of i's segment of scale * <q[i, h], k[t, h]>; with `causal`
/// query i of a segment sees its keys 0..i. No key: zeros.
inline Bounded attention(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, Segments queries,
                         Segments keys, int64_t heads, double scale, bool causal) {
  const int64_t dim = q.cols / heads;
  Bounded y;
  for (int64_t s = 0; s < queries.count; ++s)
    for (int64_t i = queries.begin(s); i < queries.end(s); ++i) {
      const int64_t first = keys.begin(s), seen = causal ? i - queries.begin(s) + 1 : keys.size(s);
      for (int64_t h = 0; h < heads; ++h) {
        Bounded scores;
        for (int64_t t = first; t < first + seen; ++t) {
          double dot = 0, magnitude = 0;
          for (int64_t c = h * dim; c < (h + 1) * dim; ++c) {
            const double product = static_cast<double>(q.row(i)[c]) * k.row(t)[c];
            dot += product;
            magnitude += std::fabs(product);
          }
          scores.value.push_back(scale * dot);
          scores.bound.push_back(std::fabs(scale) * static_cast<double>(dim + 2) * magnitude);
        }
        append_weighted_sums(attention_weights(scores, Normalization::softmax),
                             v.row_range(first, seen).columns(h * dim, dim), y);
      }
    }
  return y;
}

}  // namespace warprank::reference
