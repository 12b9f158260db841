// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How many loads of global memory wait for one another, found by experiment: what a load brings is changed, and loads
/// of the same block that then read elsewhere, or are made no more, or are made only then, wait for it. What lies
/// between (arithmetic, branches, shuffles, shared memory, barriers) need not be known.
///
/// Loads are told apart by their line and by the how manieth time a thread comes there. Of each, all that it brings is
/// changed in all threads at once: every 64-bit word, or the word where it has fewer bits, to one more and to one less,
/// in a run of its own each. A load that brings addresses of device memory is not changed: all later loads from
/// allocations that it points into are taken to wait for it.
///
/// So it is an approximation. It sees no load that waits for another only at some other values; it takes two rounds
/// where a load comes from an allocation that a pointer leads to as well as a parameter. What asynchronous copies and
/// atomics bring is not changed: nothing is taken to wait for it. And it is a number of trips to memory, not their
/// time.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace simt {

struct LoadRounds {
  int64_t rounds = 0;              ///< loads of the longest chain of a block
  std::vector<std::string> chain;  ///< one such: "kernel.cuh:37", "kernel.cuh:37 time 2"
};

/// `run` resets the executor, makes its memory and runs kernels until they have ended, in the same way each time. It is
/// called once as it is, and twice for each load with wrong values, in processes of their own: how they end is ignored.
LoadRounds load_rounds(const std::function<void()>& run);

}  // namespace simt
