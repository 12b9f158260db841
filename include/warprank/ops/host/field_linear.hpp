// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer over fields on the host, the same for each of their D columns:
///
///     m[n, h, d] = f(sum_k W[h, k] v[n, k, d] + b[h]),  v the fields of a, or with b products a[n, i, d] b[n, j, d]
///     y[n]       = m[n, 0 .. kept - 1, :] as fields, then sum_d m[n, h, d] for h = H - summed .. H - 1
///
/// a [N, F * D], b [N, G * D] or of no columns; y [N, kept * D + summed]. W [H, F] or [H, F * G] with k = i G + j,
/// packed. A column of a few rows at a time becomes a row of a matrix [rows * D, k] in the workspace, which
/// ops/host/linear.hpp multiplies: products cost 1 / H of the layer, and are in FP32, with one rounding each before the
/// layer's bound; sums over columns are in FP32, one by one. A row has the same bits whatever its position and
/// neighbours. y overlaps no input; rows may be strided.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// Rows that are done at once: their matrix fits a second-level cache.
inline int64_t field_linear_rows(int64_t dim, int64_t terms) {
  return std::max<int64_t>(1, (int64_t{1} << 17) / (dim * terms));
}
inline int64_t field_linear_workspace(const PackedLinear& packed, int64_t dim) {
  const int64_t rows = field_linear_rows(dim, packed.in()) * dim;
  return rows * (packed.in() + packed.out()) + packed.workspace_size(rows);
}

inline void field_linear(const PackedLinear& packed, int64_t dim, int64_t kept, Matrix<const float> a,
                         Matrix<const float> b, Matrix<float> y, Span<float> workspace) {
  const int64_t terms = packed.in(), out = packed.out(), most = field_linear_rows(dim, terms);
  const int64_t of_a = a.cols / dim, of_b = b.cols / dim;
  const int64_t summed = y.cols - kept * dim;
  assert(terms == of_a * std::max<int64_t>(of_b, 1) && kept <= out && summed >= 0 && summed <= out);
  assert(y.rows == a.rows && (of_b == 0 || y.rows == b.rows));
  float* const values = workspace.data();
  float* const results = values + most * dim * terms;
  const Span<float> rest(results + most * dim * out, packed.workspace_size(most * dim));
  for (int64_t first = 0; first < a.rows; first += most) {
    const int64_t rows = std::min(most, a.rows - first);
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t d = 0; d < dim; ++d) {
        const float* const x = a.row(first + n) + d;
        float* const to = values + (n * dim + d) * terms;
        if (of_b == 0) {
          for (int64_t i = 0; i < of_a; ++i) to[i] = x[i * dim];
          continue;
        }
        const float* const z = b.row(first + n) + d;
        for (int64_t i = 0; i < of_a; ++i)
          for (int64_t j = 0; j < of_b; ++j) to[i * of_b + j] = x[i * dim] * z[j * dim];
      }
    linear(packed, {values, rows * dim, terms}, {results, rows * dim, out}, {}, rest);
    for (int64_t n = 0; n < rows; ++n) {
      const float* const of_row = results + n * dim * out;
      float* const to = y.row(first + n);
      for (int64_t h = 0; h < kept; ++h)
        for (int64_t d = 0; d < dim; ++d) to[h * dim + d] = of_row[d * out + h];
      float* const sums = to + kept * dim;
      std::fill_n(sums, summed, 0.0f);
      for (int64_t d = 0; d < dim; ++d)
        for (int64_t s = 0; s < summed; ++s) sums[s] += of_row[(d + 1) * out - summed + s];
    }
  }
}

}}}  // namespace warprank::v0::host_ops
