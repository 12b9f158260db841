// SPDX-License-Identifier: Apache-2.0
//
// A kernel for each target, of which a program contains those that it can launch.

#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/target.hpp"

namespace targets {

template <int Target>
WARPRANK_KERNEL(32, 1)
chosen_kernel(int* x) {
  warprank::device::store(x, Target);
}

}  // namespace targets

WARPRANK_HIDDEN void launch_chosen(int* x) {
  warprank::device::dispatch_target<75, 80, 90>(warprank::device::target(), [&](auto target) {
    warprank::device::launch({1, 32}, targets::chosen_kernel<target()>, x);
  });
}
