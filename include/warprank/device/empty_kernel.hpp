// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A kernel that does nothing: what launching alone costs.

#include "warprank/device/launch.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank::device {

/// A template, so that several units may have it.
template <int Threads>
WARPRANK_KERNEL(Threads, 1)
empty_kernel() {}

WARPRANK_HIDDEN inline void launch_empty(Stream stream) { launch({1, 32, 0, stream}, empty_kernel<32>); }

}  // namespace warprank::device
