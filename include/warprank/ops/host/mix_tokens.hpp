// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Token mixing of RankMixer (Zhu et al. 2025) on the host. A row is T tokens of D columns, and a token has T parts:
///
///     y[n, t] = norm(x'[n, t] + (part t of x'[n, 0], part t of x'[n, 1], .., part t of x'[n, T - 1]))
///
/// norm is the layer norm of ops/host/layer_norm.hpp over the D columns of a token, with gamma and beta [D] for all
/// tokens. x' is x, or with an input norm x whose tokens are normed likewise.
///
/// x, y [N, T * D]. Sums are FP32, with the bounds of the layer norm. A row has the same bits whatever its position and
/// neighbours. y may be x; rows may be strided and need no alignment. The workspace is of T * D floats, with an input
/// norm of twice as many.

#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/layer_norm.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

struct TokenNormVectors {
  float eps = 1e-5f;
  Span<const float> gamma, beta;
};

/// `input_norm`: null for none.
inline void mix_tokens(Matrix<const float> x, int64_t tokens, const TokenNormVectors& norm,
                       const TokenNormVectors* input_norm, Matrix<float> y, Span<float> workspace) {
  const int64_t columns = x.cols / tokens, part = columns / tokens;
  assert(y.rows == x.rows && y.cols == x.cols && part * tokens * tokens == x.cols);
  assert(workspace.size() >= x.cols * (input_norm != nullptr ? 2 : 1));
  float* const sums = workspace.data();
  float* const normed = sums + x.cols;
  for (int64_t n = 0; n < x.rows; ++n) {
    const float* row = x.row(n);
    if (input_norm != nullptr) {
      layer_norm({row, tokens, columns}, input_norm->eps, input_norm->gamma, input_norm->beta,
                 {normed, tokens, columns});
      row = normed;
    }
    float* sum = sums;
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t source = 0; source < tokens; ++source) {
        const float* const own = row + token * columns + source * part;
        const float* const mixed = row + source * columns + token * part;
        for (int64_t c = 0; c < part; ++c) *sum++ = own[c] + mixed[c];
      }
    layer_norm({sums, tokens, columns}, norm.eps, norm.gamma, norm.beta, {y.row(n), tokens, columns});
  }
}

}}}  // namespace warprank::v0::host_ops
