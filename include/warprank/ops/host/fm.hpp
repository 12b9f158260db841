// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Factorisation machine, second order (Rendle 2010), on the host:
///
///     y[n, d] = 1/2 ((sum_f e_f[d])^2 - sum_f e_f[d]^2) = sum_f e_f[d] (e_0[d] + ... + e_(f-1)[d])
///
/// computed in the second form, which has no cancellation at the same cost; or its sum over d.
///
/// | Array     | Shape                                                                                    |
/// |-----------|------------------------------------------------------------------------------------------|
/// | inputs[i] | [N, F_i * dim], fields side by side; or [segments, F_i * dim] with Segments over N rows  |
/// | y         | [N, 1], or [N, dim] unreduced ("bi-interaction")                                          |
///
/// The fields of ancestors are added once per segment. FP32: |y - exact| <= (2 F + dim) u sum_d sum_(f<g) |e_f e_g| for
/// F fields (without `dim` when unreduced), u = 2^-24. A row has the same bits whatever its position and neighbours. y
/// overlaps no input; rows may be strided and need no alignment; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/segmented_input.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// Floats of workspace.
constexpr int64_t fm_workspace(int64_t dim) { return 2 * dim; }

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/fm-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(fm);

/// `reduce`: the sum over the dim. `workspace`: fm_workspace(dim) floats.
inline void fm(Span<const SegmentedInput> inputs, int64_t dim, bool reduce, Matrix<float> y, Span<float> workspace) {
  HWY_DYNAMIC_DISPATCH(fm)(inputs, dim, reduce, y, workspace);
}

}}}  // namespace warprank::v0::host_ops
