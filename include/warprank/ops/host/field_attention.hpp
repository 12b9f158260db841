// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The interacting layer of AutoInt (Song et al. 2019) on the host: each field of a row attends to all fields of it.
/// For the fields x_f of D columns of a row, and each head of C columns,
///
///     q_f, k_f, v_f = Wq x_f, Wk x_f, Wv x_f,   w_f = softmax over g of scale <q_f, k_g>
///     y_f = act(sum_g w_fg v_g + Wr x_f)
///
/// x [N, F * D], y [N, F * heads * C], heads side by side in a field of y. Wq, Wk and Wv are packed one below the other
/// as [3 * heads * C, D]; Wr [heads * C, D] has the activation, and is optional.
///
/// The fields of a few rows at a time are the rows of a matrix that ops/host/linear.hpp multiplies, into the workspace;
/// ops/host/attention.hpp weighs them. So products are of `Precision`, sums and softmax in FP32, with the bounds given
/// there: those of q, k and v come from the linear layer, and their effect on y is that of uncertain inputs of the
/// attention. Infinite scores count as the largest finite ones. A row has the same bits whatever its position and
/// neighbours. Rows may be strided; y does not overlap x.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/attention.hpp"
#include "warprank/ops/host/linear.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

struct FieldAttentionLayer {
  PackedLinear projections;  ///< Wq, Wk and Wv
  PackedLinear residual;     ///< Wr and the activation, if `has_residual`
  bool has_residual = true;
  Activation activation;  ///< one without learned vectors
  AttentionOptions attention;

  int64_t columns() const { return projections.out() / 3; }  ///< of a field of y
};

/// Rows that are done at once: their projections fit a second-level cache.
inline int64_t field_attention_rows(const FieldAttentionLayer& layer, int64_t fields) {
  return std::max<int64_t>(1, (int64_t{1} << 17) / (fields * layer.projections.out()));
}
inline int64_t field_attention_workspace(const FieldAttentionLayer& layer, int64_t fields) {
  const int64_t rows = field_attention_rows(layer, fields) * fields;
  const int64_t dim = layer.columns() / layer.attention.heads;
  const int64_t of_residual = layer.has_residual ? layer.residual.workspace_size(rows) : 0;
  return rows * layer.projections.out() + std::max({layer.projections.workspace_size(rows), of_residual,
                                                    attention_workspace(dim, fields, layer.attention.precision)});
}

/// `workspace`: field_attention_workspace(layer, F) floats.
inline void field_attention(const FieldAttentionLayer& layer, Matrix<const float> x, Matrix<float> y,
                            Span<float> workspace) {
  const int64_t dim = layer.projections.in(), fields = x.cols / dim, columns = layer.columns();
  assert(x.cols == fields * dim && y.cols == fields * columns && x.rows == y.rows);
  assert(workspace.size() >= field_attention_workspace(layer, fields));
  const int64_t most = field_attention_rows(layer, fields);
  const Matrix<float> projected(workspace.data(), most * fields, 3 * columns);
  const Span<float> rest(workspace.data() + projected.rows * projected.cols,
                         workspace.size() - projected.rows * projected.cols);
  const int64_t offsets[] = {0, fields};
  const Segments of_row{offsets, 1};
  const bool are_contiguous = x.stride == x.cols && y.stride == y.cols;
  const int64_t step = are_contiguous ? most : 1;
  for (int64_t first = 0; first < x.rows; first += step) {
    const int64_t rows = std::min(step, x.rows - first), count = rows * fields;
    const Matrix<const float> in(x.row(first), count, dim);
    const Matrix<float> out(y.row(first), count, columns);
    linear(layer.projections, in, projected.row_range(0, count), {}, rest);
    for (int64_t r = 0; r < rows; ++r) {
      const auto part = [&](int64_t which) -> Matrix<const float> {
        return projected.row_range(r * fields, fields).columns(which * columns, columns);
      };
      attention(part(0), part(1), part(2), of_row, of_row, layer.attention, out.row_range(r * fields, fields), rest);
    }
    if (!layer.has_residual) {
      activate({layer.activation, {}, {}, {}}, out, out);
      continue;
    }
    LinearInputs inputs;
    inputs.residual = out;
    inputs.residual_first = true;
    linear(layer.residual, in, out, inputs, rest);
  }
}

}}}  // namespace warprank::v0::host_ops
