// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lanes of a warp that go different ways, and meet again.

#include "execute/warp.hpp"

namespace t4 {

/// Lanes go on at an instruction, with those that are there already.
void go_on(Warp& warp, Mask lanes, int at);
/// Lanes wait, and go on behind the instruction at which they are.
void park(Warp& warp, Parked::Why why, uint32_t what, Mask lanes, int at);
/// Lets go whose convergence or meeting of the warp is complete. For after lanes have been parked or have ended.
void release_converged(Warp& warp);

/// Threads arrive at a barrier of the block; expected 0: all that have not ended.
void arrive(Block& block, uint32_t number, int threads, int expected);
/// Lets go who waits for a barrier that is complete now.
void release_barriers(Block& block);
void end_threads(Warp& warp, Mask lanes);

/// The group of a warp whose turn it is: the one that is least far, but others too after a long time, as it may wait
/// for them.
size_t chosen_group(const Warp& warp);

}  // namespace t4
