// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Copies on the host: columns side by side, and rows repeated for the rows of a nested axis.
///
///     concat:  y[n, :] = parts[0][row(n), :], parts[1][row(n), :], ...
///     expand:  y[n, :] = x[s, :] for the rows n of segment s
///
/// | Array    | Shape                                                 |
/// |----------|-------------------------------------------------------|
/// | parts[i] | [N, C_i], or [segments, C_i] with Segments over N rows |
/// | y        | [N, sum C_i]                                          |
///
/// Bits are copied unchanged. Rows may be strided and need no alignment; y overlaps no input. Nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/segmented_input.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/concat-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(concat);

inline void concat(Span<const SegmentedInput> parts, Matrix<float> y) { HWY_DYNAMIC_DISPATCH(concat)(parts, y); }

/// Repeats rows of an ancestor axis for the rows of an axis below it.
inline void expand(Matrix<const float> x, Segments segments, Matrix<float> y) {
  const SegmentedInput part{x, segments};
  concat({&part, 1}, y);
}

}}}  // namespace warprank::v0::host_ops
