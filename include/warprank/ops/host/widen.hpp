// SPDX-License-Identifier: Apache-2.0
#pragma once

/// FP16 to FP32 on the host, by F16C where the processor has it: exact, NaN stays NaN.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/widen-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(widen);

/// to[i] = from[i]; neither needs to be aligned to more than its elements.
inline void widen(Span<const float16> from, float* to) { HWY_DYNAMIC_DISPATCH(widen)(from, to); }

}}}  // namespace warprank::v0::host_ops
