// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Softmax over the columns of each row on the host: y[n, c] = exp(x[n, c] - max) / sum_c' exp(x[n, c'] - max).
///
/// x, y [N, C]. FP32: |y - exact| <= (C + 16 + 2 (max - min)) u y, the extremes over values other than -inf, u = 2^-24,
/// except for underflow (below 2^-126). -inf gives 0; a row with NaN, with +inf or with only -inf gives NaN, as in
/// PyTorch. A row has the same bits whatever its position and neighbours. y may be x; rows may be strided and need no
/// alignment; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/softmax-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(softmax);

inline void softmax(Matrix<const float> x, Matrix<float> y) { HWY_DYNAMIC_DISPATCH(softmax)(x, y); }

}}}  // namespace warprank::v0::host_ops
