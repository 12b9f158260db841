// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Layer normalisation on the host (Ba, Kiros, Hinton 2016): over the C columns of a row
///
///     y[n, c] = ((x[n, c] - mean) / sqrt(variance + eps) gamma[c] + beta[c]) factor[n, c]
///     variance = sum_c (x[n, c] - mean)^2 / C
///
/// x, y [N, C]; gamma, beta [C] or empty (1 and 0); factor [N, C] or of no rows (1). FP32 in two passes, with
/// deviations from the rounded mean, so that a large common offset costs no more accuracy than it must. A row has the
/// same bits whatever its position and neighbours; one with NaN or infinity gives NaN. y may be x; rows may be strided
/// and need no alignment; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/reduce.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/layer_norm-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(layer_norm);

inline void layer_norm(Matrix<const float> x, float eps, Span<const float> gamma, Span<const float> beta,
                       Matrix<float> y, Matrix<const float> factor = {}) {
  HWY_DYNAMIC_DISPATCH(layer_norm)(x, eps, gamma, beta, factor, y);
}

}}}  // namespace warprank::v0::host_ops
