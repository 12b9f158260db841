// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shared code of the attention kernels: a softmax that takes any score, and sums of rows weighted by it.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "warprank/core/view.hpp"
#include "warprank/ops/host/activation.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/simd.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// Packed weights made in a caller's workspace start at a cache line.
inline constexpr int64_t floats_per_line = 16;
constexpr int64_t with_room_to_align(int64_t floats) { return floats + floats_per_line - 1; }
inline float* align_to_line(Span<float> workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  constexpr uintptr_t line = floats_per_line * sizeof(float);
  return reinterpret_cast<float*>((address + line - 1) / line * line);
}

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/attention_weights-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"
