// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Barriers and fences.

#include <cstdint>

#include "warprank/device/backend.hpp"
#include "warprank/device/index.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// Waits for every thread of the block that has not exited; their earlier writes are visible to all of them afterwards.
/// All must arrive at the same call.
WARPRANK_DEVICE void sync_block(Here here = Here::current()) {
  backend::sync_block(backend::Reduction::none, false, here);
}

/// As sync_block; gives every thread the number of threads whose `predicate` is true.
WARPRANK_DEVICE int sync_block_count(bool predicate, Here here = Here::current()) {
  return backend::sync_block(backend::Reduction::count, predicate, here);
}
/// As sync_block; true when any thread's `predicate` is.
WARPRANK_DEVICE bool sync_block_any(bool predicate, Here here = Here::current()) {
  return backend::sync_block(backend::Reduction::any, predicate, here) != 0;
}
/// As sync_block; true when every thread's `predicate` is.
WARPRANK_DEVICE bool sync_block_all(bool predicate, Here here = Here::current()) {
  return backend::sync_block(backend::Reduction::all, predicate, here) != 0;
}

/// Waits for the lanes in `mask`, which must name the caller and no lane that has exited; orders their memory accesses.
/// Shuffles and votes do not order memory: between lanes, data in shared memory needs this.
WARPRANK_DEVICE void sync_warp(uint32_t mask = full_warp, Here here = Here::current()) {
  backend::sync_warp(mask, here);
}

/// Orders the caller's accesses before it against those after it, for observers within the scope. With relaxed atomics
/// on both sides it carries data between threads: write, fence, atomic; atomic, fence, read.
template <Scope FenceScope>
WARPRANK_DEVICE void fence(Here here = Here::current()) {
  backend::fence<FenceScope>(here);
}

/// Waits until the previous launch in the stream has ended and its writes are visible. If launches overlap
/// (LaunchConfig::overlaps), a thread may write nothing before this call, and read only memory that no launch writes:
/// parameters, descriptors, weights. Every thread of the kernel must make the call, even a thread without work: the
/// next launch relies on it, and may begin once all blocks have made it.
WARPRANK_DEVICE void wait_for_previous_launch(Here here = Here::current()) { backend::wait_for_previous_launch(here); }

}}}  // namespace warprank::v0::device
