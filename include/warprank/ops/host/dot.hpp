// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Dot products of fields on the host: y[n, p] = <e_f, e_g> for the p-th pair (f, g), fields numbered through all
/// inputs in their order. The pairs are all pairs of fields (Naumov et al. 2019, DLRM), or each of the first `num_left`
/// fields with each other one (Wukong, Zhang et al. 2024).
///
/// | Array     | Shape                                                                                    |
/// |-----------|------------------------------------------------------------------------------------------|
/// | inputs[i] | [N, F_i * dim], fields side by side; or [segments, F_i * dim] with Segments over N rows  |
/// | y         | [N, num_dot_pairs(F, pairs)], F = sum F_i                                                |
///
/// | DotPairs     | Pairs in order                                          | with `self`     |
/// |--------------|---------------------------------------------------------|-----------------|
/// | lower        | (1,0), (2,0), (2,1), (3,0), ...                         | also (f,f) last of its row |
/// | lower_padded | the same, then one zero                                 |                 |
/// | upper        | (0,1), (0,2), ..., (0,F-1), (1,2), ...                  | also (f,f) first of its row |
/// | num_left L   | (0,L), (0,L+1), ..., (0,F-1), (1,L), ..., (L-1,F-1)     | no matter       |
///
/// Pairs of two fields on ancestors are computed once per segment. Outputs are copied fastest if inputs on ancestors
/// come before the others (of each side, between two), or for `upper` after them. FP32: |y - exact| <= dim u sum_d
/// |e_f[d] e_g[d]|, u = 2^-24. BF16 (ops/host/products.hpp), where `dim` is even: with v = 2^-8,
///
///     |y - exact| <= (v (2 + v) + (1 + v)^2 dim u) sum_d |e_f[d] e_g[d]|,
///
/// and 2^-126 (2 dim + sum_d |e_f[d]| + |e_g[d]|) more for values that count as 0. A row has the same bits whatever its
/// position and neighbours, and a pair has the same bits at any place. y overlaps no input; rows may be strided and
/// need no alignment; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/round_up.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/dot_pairs.hpp"
#include "warprank/ops/host/concat.hpp"
#include "warprank/ops/host/products.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/segmented_input.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// Places of fields in the workspace: those of all, or of the left and behind them of the right, up to whole tiles.
constexpr int64_t dot_places(int64_t num_fields, const DotPairs& pairs) {
  return round_up(pairs.num_left, 16) + round_up(num_fields - pairs.num_left, 16);
}
/// Floats of workspace, for any precision.
constexpr int64_t dot_workspace(int64_t num_fields, int64_t dim, const DotPairs& pairs) {
  const int64_t padded_fields = dot_places(num_fields, pairs);
  return (dim + padded_fields) * padded_fields + num_fields + 2 * num_dot_pairs(num_fields, pairs) +
         pairs_stride(num_fields * dim);
}

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/dot-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(dot);

/// `workspace`: dot_workspace(F, dim, pairs) floats.
inline void dot(Span<const SegmentedInput> inputs, int64_t dim, const DotPairs& pairs, Matrix<float> y,
                Span<float> workspace, Precision precision = Precision::fp32) {
  HWY_DYNAMIC_DISPATCH(dot)(inputs, dim, pairs, y, workspace, precision);
}

}}}  // namespace warprank::v0::host_ops
