// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a nested axis pooled onto its parent, on the host: over the L rows n of segment s
/// y[s, :] = sum_n x[n, :], / L (mean), / sqrt(L) (sqrtn), or max_n x[n, :]; zeros when L = 0.
///
/// x [segments.rows(), C], y [segments.count, C]. FP32: |y - exact| <= (L + 2) u sum_n |x[n, c]| (likewise divided),
/// u = 2^-24; max is exact, and NaN when any row is. Rows are added in their order: a segment has the same bits
/// whatever its position and neighbours. y does not overlap x; rows may be strided and need no alignment; nothing is
/// allocated.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/segment_reduce-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(segment_reduce);

/// `pooling`: sum, mean, sqrtn or max.
inline void segment_reduce(Matrix<const float> x, Segments segments, Pooling pooling, Matrix<float> y) {
  HWY_DYNAMIC_DISPATCH(segment_reduce)(x, segments, pooling, y);
}

}}}  // namespace warprank::v0::host_ops
