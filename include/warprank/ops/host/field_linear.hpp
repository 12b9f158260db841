// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer over fields on the host, the same for each of their D columns:
///
///     m[n, h, d] = f(sum_k W[h, k] v[n, k, d] + b[h]),  v the fields of a, or with b products a[n, i, d] b[n, j, d]
///     y[n]       = m[n, 0 .. kept - 1, :] as fields, then sum_d m[n, h, d] for h = H - summed .. H - 1
///
/// a [N, F * D], b [N, G * D] or of no columns; y [N, kept * D + summed]. W [H, F] or [H, F * G] with k = i G + j.
/// A column of a row becomes a row of a matrix in the workspace, which ops/host/linear.hpp multiplies: that of a few
/// rows at a time and of a part of the fields of a, so that products stay in the second-level cache, and weights come
/// to it once for all of these rows. The sums of a part are where those of the next one start. Products cost 1 / H of
/// the layer, and are in FP32, with one rounding each before the layer's bound; sums over columns are in FP32, one by
/// one. A row has the same bits whatever its position and neighbours. y overlaps no input; rows may be strided.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/field_linear-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(run_field_part);

/// The weights of such a layer, in parts that are packed for this machine; immutable.
class PackedFieldLinear {
 public:
  /// Fields [first, first + count) of a.
  struct Part {
    int64_t first, count;
    PackedLinear weights;
  };

  /// `weight` [out, of_a * of_b], or [out, of_a] if of_b is 0; `bias` [out] or empty. Throws as PackedLinear does.
  PackedFieldLinear(Span<const float> weight, Span<const float> bias, int64_t of_a, int64_t of_b, int64_t dim,
                    int64_t out, Activation activation = {}, Precision precision = Precision::fp32)
      : of_a_(of_a), of_b_(of_b), dim_(dim) {
    const int64_t of_field = std::max<int64_t>(of_b, 1), terms = of_a * of_field;
    const int64_t most = std::max<int64_t>(1, max_terms / of_field);
    const int64_t num_parts = std::max<int64_t>(1, (of_a + most - 1) / most);
    const bool fits = weight.size() == out * terms;  // else PackedLinear says what it expects
    if (fits && precision == Precision::bf16 && out > max_dot_outputs && has_bf16_products())
      check_bf16("weight of a layer over fields", weight);
    std::vector<float> of_part;
    for (int64_t p = 0; p < num_parts; ++p) {
      const int64_t first = of_a * p / num_parts, count = of_a * (p + 1) / num_parts - first;
      of_part.clear();
      for (int64_t h = 0; fits && h < out; ++h) {
        const float* const from = weight.data() + h * terms + first * of_field;
        of_part.insert(of_part.end(), from, from + count * of_field);
      }
      const ChannelActivation f{p + 1 == num_parts ? activation : identity, {}, {}, {}};
      parts_.push_back({first, count,
                        PackedLinear(fits ? Span<const float>(of_part) : weight, p == 0 ? bias : Span<const float>(),
                                     count * of_field, out, 1, f, precision)});
    }
  }

  int64_t of_a() const { return of_a_; }
  int64_t of_b() const { return of_b_; }
  int64_t dim() const { return dim_; }
  int64_t out() const { return parts_[0].weights.out(); }
  Span<const Part> parts() const { return parts_; }
  /// Rows of a that are done at once: a panel of weights is multiplied with all of their columns.
  int64_t rows_at_once() const { return std::max<int64_t>(1, parts_[0].weights.target().block_rows / dim_); }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Part& part : parts_) sum += part.weights.bytes();
    return sum;
  }
  /// Floats of workspace.
  int64_t workspace_size() const {
    int64_t of_terms = 0;
    for (const Part& part : parts_) {
      const int64_t in = part.weights.in(), block = block_rows();
      const bool is_rounded = part.weights.precision() == Precision::bf16;
      of_terms = std::max(of_terms, is_rounded ? round_up(block, amx_rows) * pairs_stride(in) + in : block * in);
    }
    return rows_at_once() * dim_ * (of_a_ + of_b_ + 2 * out()) + of_terms;
  }
  /// Columns of rows that are multiplied together, at most.
  int64_t block_rows() const { return std::min(parts_[0].weights.target().block_rows, rows_at_once() * dim_); }

 private:
  /// Elements of k of a part, unless one field of a has more: 108 rows of them are 442 KB, or 221 KB in BF16. With half
  /// as many, xDeepFM takes 1 % longer on Zen 5, and 4 % in BF16.
  static constexpr int64_t max_terms = 1024;

  int64_t of_a_, of_b_, dim_;
  std::vector<Part> parts_;
};

namespace detail {

/// to[n * D + d, i] = from[n, i * D + d].
inline void columns_to_rows(Matrix<const float> from, int64_t dim, Matrix<float> to) {
  for (int64_t n = 0; n < from.rows; ++n)
    for (int64_t d = 0; d < dim; ++d)
      for (int64_t i = 0; i < to.cols; ++i) to.row(n * dim + d)[i] = from.row(n)[i * dim + d];
}

}  // namespace detail

/// `workspace`: packed.workspace_size() floats.
inline void field_linear(const PackedFieldLinear& packed, int64_t kept, Matrix<const float> a, Matrix<const float> b,
                         Matrix<float> y, Span<float> workspace) {
  const int64_t dim = packed.dim(), out = packed.out(), of_a = packed.of_a(), of_b = packed.of_b();
  const int64_t most = packed.rows_at_once(), summed = y.cols - kept * dim;
  assert(a.cols == of_a * dim && b.cols == of_b * dim && kept <= out && summed >= 0 && summed <= out);
  assert(y.rows == a.rows && (of_b == 0 || y.rows == b.rows) && workspace.size() >= packed.workspace_size());
  float* free = workspace.data();
  const auto take = [&](int64_t cols) {
    const Matrix<float> matrix(free, most * dim, cols);
    free += most * dim * cols;
    return matrix;
  };
  const Matrix<float> rows_of_a = take(of_a), rows_of_b = take(of_b);
  const Matrix<float> results = take(out), others = take(out);
  for (int64_t first = 0; first < a.rows; first += most) {
    const int64_t rows = std::min(most, a.rows - first), columns = rows * dim;
    detail::columns_to_rows(a.row_range(first, rows), dim, rows_of_a);
    if (of_b > 0) detail::columns_to_rows(b.row_range(first, rows), dim, rows_of_b);
    for (int64_t begin = 0; begin < columns; begin += packed.block_rows()) {
      const int64_t count = std::min(packed.block_rows(), columns - begin);
      // The last part writes `results`.
      Matrix<const float> before;
      int64_t left = packed.parts().size();
      for (const PackedFieldLinear::Part& part : packed.parts()) {
        const Matrix<float> after = (--left % 2 == 0 ? results : others).row_range(begin, count);
        HWY_DYNAMIC_DISPATCH(run_field_part)
        (part.weights.group(0), rows_of_a.row_range(begin, count).columns(part.first, part.count),
         rows_of_b.row_range(begin, count), before, after, {free, workspace.data() + workspace.size() - free});
        before = after;
      }
    }
    for (int64_t n = 0; n < rows; ++n) {
      const Matrix<const float> of_row = results.row_range(n * dim, dim);
      float* const to = y.row(first + n);
      for (int64_t h = 0; h < kept; ++h)
        for (int64_t d = 0; d < dim; ++d) to[h * dim + d] = of_row.row(d)[h];
      float* const ends = to + kept * dim;
      std::fill_n(ends, summed, 0.0f);
      for (int64_t d = 0; d < dim; ++d)
        for (int64_t s = 0; s < summed; ++s) ends[s] += of_row.row(d)[out - summed + s];
    }
  }
}

}}}  // namespace warprank::v0::host_ops
