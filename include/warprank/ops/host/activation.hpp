// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Activations on the host: y = f(x) for every ActivationKind (model/types.hpp has the formulas).
///
/// Error against the exact value, u = 2^-24: relu, leaky_relu and prelu 1 u; sigmoid, tanh, elu, silu, and gelu for x >
/// 0, 8 u; for x < 0, where the tail is an exponential of x^2 or x^3, gelu (8 + x^2) u and gelu_tanh (8 + 4 |x|^3) u;
/// each relative to the value, and 2^-118 beside where an exponential underflows. Dice: 8 u (|x p| + |alpha x (1 - p)|)
/// besides what the rounding of scale x + shift does to p. NaN gives NaN; +-infinity gives the limit. Behind products
/// in BF16, sigmoid, silu and dice have 2^-12 in the place of 8 u, and 2^-118 beside, also at -infinity; their last
/// bits differ between makers of processors, whose approximate reciprocals differ.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/simd.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// An activation of `width` channels with what it learned; a vector that the kind does not use may be empty.
struct ChannelActivation {
  Activation spec;
  Span<const float> alpha;  ///< [width] prelu, dice
  Span<const float> scale;  ///< [width] dice: p = sigmoid(scale x + shift)
  Span<const float> shift;  ///< [width] dice
};

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/activation-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(activate);

/// y = f(x), x and y [rows, width]; y may be x. Each element depends only on its own input and channel.
inline void activate(const ChannelActivation& activation, Matrix<const float> x, Matrix<float> y) {
  HWY_DYNAMIC_DISPATCH(activate)(activation, x, y);
}

}}}  // namespace warprank::v0::host_ops
