// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Mixture of experts on the host: y[n, :] = sum_e w_e(n) E[n, e * D : (e + 1) * D] [* multiply[n, :]] [+ residual[n,
/// :]], the weights from gate logits g by a Normalization: softmax_e(g[n, :]) (MMoE, PLE), sigmoid(g[n, e]), or g
/// itself. With both of the last two it is a layer of DCN-Mix (Wang et al. 2021), of x_0 and of x.
///
/// | Array    | Shape                                                            |
/// |----------|------------------------------------------------------------------|
/// | experts  | [N, E * D], or [segments, E * D] with Segments over N rows       |
/// | gate     | [N, E], or [segments, E]; then weights are computed once per segment |
/// | multiply | [N, D], or no data: 1                                            |
/// | residual | [N, D], or no data: 0                                            |
/// | y        | [N, D]                                                           |
///
/// FP32: |mixture - exact| <= (2 E + 16 + 2 (max g - min g)) u sum_e |w_e E_e| for softmax, (E + 8) u for sigmoid, E u
/// for none, u = 2^-24, times |multiply|; the product and the sum behind it add u of their result each. NaN and
/// infinity as in softmax.hpp. A row has the same bits whatever its position and neighbours. y overlaps no input; rows
/// may be strided and need no alignment; nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/host/softmax.hpp"
#include "warprank/ops/segmented_input.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// What a mixture is multiplied by, and then what is added.
struct MixEnd {
  Matrix<const float> multiply = {}, residual = {};
};

/// Floats of workspace.
constexpr int64_t mix_workspace(int64_t num_experts) { return num_experts; }

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/mix-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(mix);

/// `workspace`: mix_workspace(E) floats.
inline void mix(const SegmentedInput& experts, const SegmentedInput& gate, Normalization normalization, Matrix<float> y,
                Span<float> workspace, const MixEnd& end = {}) {
  HWY_DYNAMIC_DISPATCH(mix)(experts, gate, normalization, y, workspace, end);
}

}}}  // namespace warprank::v0::host_ops
