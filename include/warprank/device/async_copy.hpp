// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Copies from global to shared memory that run beside the computation.
///
///     copy_async(&tile[i], &global[i]);  ...  commit_async();  ...  wait_async<0>();  sync_block();
///
/// Before the wait, do not touch the destination or change the source. The wait is for the caller's own copies, the
/// barrier after it for the copies of the other threads. sm_75 has no such instruction: there the copy is a load and a
/// store on the spot, which is correct if these rules are kept, but slow if a thread waits for each copy. On sm_75,
/// load several values into registers first and store them afterwards.

#include <cstdint>

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// Copies 16 bytes, aligned to 16, from global to shared memory, past L1.
WARPRANK_DEVICE void copy_async(void* shared, const void* global, Here here = Here::current()) {
  backend::copy_async(shared, global, here);
}
/// Ends a group: the copies since the last commit.
WARPRANK_DEVICE void commit_async(Here here = Here::current()) { backend::commit_async(here); }
/// Waits until at most `Pending` of the caller's latest groups are unfinished.
template <int Pending>
WARPRANK_DEVICE void wait_async(Here here = Here::current()) {
  backend::wait_async<Pending>(here);
}

}}}  // namespace warprank::v0::device
