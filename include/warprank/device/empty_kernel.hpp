// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A kernel that does nothing, to measure the cost of a launch.

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/runtime.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// A template, so that several units may have it.
template <int Threads>
WARPRANK_KERNEL(Threads, 1)
empty_kernel() {}

WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch_empty(Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void launch_empty(Stream stream) { launch({1, 32, 0, stream}, empty_kernel<32>); }
#endif

}}}  // namespace warprank::v0::device
