// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Dot-product attention of several heads over ragged rows, on the host. For query i of a segment, the keys t of the
/// same segment and every head h:
///
///     y[i, h] = sum_t w_t v[t, h],   s_t = scale <q[i, h], k[t, h]>
///     w = softmax(s)                                                (Vaswani et al. 2017)
///     w = silu(s) / divisor, silu(s) = s / (1 + exp(-s))            (HSTU, Zhai et al. 2024)
///
/// | Array        | Shape           |                                                                  |
/// |--------------|-----------------|------------------------------------------------------------------|
/// | q, y         | [N, heads * D]  | rows grouped by `queries`; head h has columns [h D, (h + 1) D)   |
/// | k, v         | [T, heads * D]  | rows grouped by `keys`, with as many segments as `queries`       |
/// | own.k, own.v | [N, heads * D]  | with the weights of silu: a key and a value more for each query  |
///
/// Target attention: items over the history of their user; self-attention: a history over itself. Projections are
/// linears of their own. A segment without keys gives zeros, or what the query's own key gives. Infinite scores count
/// as the largest finite ones. With a window, which needs the weights of silu, query i of a causal attention sees the
/// keys i - window to i, and queries of other rows than the keys see the last `window` keys; the last `full_last`
/// queries of a causal segment, and other queries where it is not 0, see all up to theirs. With the weights of silu a
/// bias may be added to each score (attention_bias.hpp), s_t = scale <q, k_t> + bias.
///
/// FP32. With s the scores, u = 2^-24 and d_t = |scale| (D + 2) sum_d |q_d k_t,d|, the error of y is at most
///
///     softmax:  u sum_t w_t |v_t| (2 T + 16 + e_t + sum_t' w_t' e_t'),   e_t = d_t + max(s) - s_t
///     silu:     u sum_t (|w_t| (T + 12) + 1.1 d_t / divisor) |v_t|, and 2^-118 sum_t |v_t| beside
///
/// where the parts of a bias add 2 (|position| + |time|) to d_t.
///
/// BF16 (ops/host/products.hpp): scores are products of q and k rounded, which is |scale| v (2 + v) / u sum_d |q_d
/// k_t,d| more in d_t, v = 2^-8, and results are sums of weights, good to v / 16, and values, both rounded, which is
/// v (2.1 + 2 v) sum_t |w_t v_t| more. What belongs to a query's own key stays FP32, as do weights and values where one
/// of the segment's values is not finite in BF16. A row of y has the same bits whatever the other queries and segments
/// are. Rows may be strided and need no alignment; y may be q and overlaps nothing else; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/attention_bias.hpp"
#include "warprank/ops/host/attention_weights.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/products.hpp"
#include "warprank/ops/host/simd.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

struct AttentionOptions {
  int64_t heads = 1;
  float scale = 1;
  bool causal = false;  ///< query i of a segment sees keys up to i; only with `queries` equal to `keys`
  Precision precision = Precision::fp32;  ///< of scores; FP32 where the kernels have no BF16
  AttentionWeights weights = AttentionWeights::softmax;
  float divisor = 1;                  ///< of the weights of silu, above 0
  int64_t window = 0, full_last = 0;  ///< 0: none; above 0 only with silu, and causal where keys are queries
};

/// Keys [begin, end) of `count`, which query `place` of a segment sees.
struct SeenKeys {
  int64_t begin, end;
};
inline SeenKeys seen_keys(const AttentionOptions& options, int64_t place, int64_t count) {
  const int64_t end = options.causal ? place + 1 : count;
  const bool is_full = options.causal ? place >= count - options.full_last : options.full_last > 0;
  if (options.window == 0 || is_full) return {0, end};
  return {std::max<int64_t>((options.causal ? place : count) - options.window, 0), end};
}

/// A key and a value of each query; null: none.
struct OwnKeys {
  Matrix<const float> k, v;
};

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/attention_bias-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"
#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/attention-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(attention);
HWY_EXPORT(attention_workspace);

/// Floats of workspace for heads of `dim` columns and at most `max_keys` keys in a segment.
inline int64_t attention_workspace(int64_t dim, int64_t max_keys, Precision precision = Precision::fp32) {
  return HWY_DYNAMIC_DISPATCH(attention_workspace)(dim, max_keys, precision);
}

/// `workspace`: attention_workspace(D, longest segment of `keys`, options.precision) floats.
inline void attention(Matrix<const float> q, Matrix<const float> k, Matrix<const float> v, Segments queries,
                      Segments keys, const AttentionOptions& options, Matrix<float> y, Span<float> workspace,
                      const OwnKeys& own = {}, const AttentionBias& bias = {}) {
  HWY_DYNAMIC_DISPATCH(attention)(q, k, v, queries, keys, options, y, workspace, own, bias);
}

}}}  // namespace warprank::v0::host_ops
