// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The columns of each row pooled to one, on the host: y[n] = sum_c x[n, c], / C (mean), / sqrt(C) (sqrtn), or
/// max_c x[n, c].
///
/// x [N, C], y [N, 1]; zeros when C = 0. FP32: |y - exact| <= (C + 2) u sum_c |x[n, c]| (likewise divided), u = 2^-24;
/// max is exact, and NaN when any column is. A row has the same bits whatever its position and neighbours. y does not
/// overlap x; rows may be strided and need no alignment; nothing is allocated.

#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/reduce-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(reduce);

/// `pooling`: sum, mean, sqrtn or max.
inline void reduce(Matrix<const float> x, Pooling pooling, Matrix<float> y) {
  HWY_DYNAMIC_DISPATCH(reduce)(x, pooling, y);
}

}}}  // namespace warprank::v0::host_ops
