// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which thread, warp and block is running, and how many there are.

#include <cstdint>

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

inline constexpr int warp_size = 32;
inline constexpr uint32_t full_warp = 0xffffffffu;

/// The thread's place in its block, in three dimensions; x is the one that changes from lane to lane.
WARPRANK_DEVICE backend::Dim3 thread_index() { return backend::thread_index(); }
/// The block's place in the grid.
WARPRANK_DEVICE backend::Dim3 block_index() { return backend::block_index(); }
WARPRANK_DEVICE backend::Dim3 block_dim() { return backend::block_dim(); }
WARPRANK_DEVICE backend::Dim3 grid_dim() { return backend::grid_dim(); }

/// The thread's number in a block of one dimension, 0 to block_dim().x - 1.
WARPRANK_DEVICE int thread_rank() { return static_cast<int>(thread_index().x); }
/// The same, read anew: the compiler keeps no values derived from it in registers from before, nor across later memory
/// accesses.
WARPRANK_DEVICE int fresh_thread_rank() { return backend::fresh_thread_rank(); }
/// The thread's place in its warp, 0 to 31. Blocks have one dimension.
WARPRANK_DEVICE int lane_index() { return thread_rank() % warp_size; }
/// The warp's number in its block. Blocks have one dimension.
WARPRANK_DEVICE int warp_index() { return thread_rank() / warp_size; }
/// The thread's number in a grid of one dimension. 64-bit: grids of more than 2^31 threads are legal.
WARPRANK_DEVICE int64_t global_thread_rank() {
  return static_cast<int64_t>(block_index().x) * block_dim().x + thread_index().x;
}
/// How many threads a grid of one dimension has: the step of a grid-stride loop.
WARPRANK_DEVICE int64_t num_threads() { return static_cast<int64_t>(grid_dim().x) * block_dim().x; }

}}}  // namespace warprank::v0::device
