// SPDX-License-Identifier: Apache-2.0
#include "execute/divergence.hpp"

#include <algorithm>

namespace t4 {
namespace {

/// Those that fulfil a condition go on.
template <class Condition>
void release_if(Warp& warp, const Condition& condition) {
  const auto rest = std::stable_partition(warp.parked.begin(), warp.parked.end(),
                                          [&](const Parked& parked) { return !condition(parked); });
  for (auto parked = rest; parked != warp.parked.end(); ++parked) go_on(warp, parked->group.lanes, parked->group.at);
  warp.parked.erase(rest, warp.parked.end());
}
template <class Condition>
Mask lanes_of(const Warp& warp, const Condition& condition) {
  Mask lanes = 0;
  for (const Parked& parked : warp.parked)
    if (condition(parked)) lanes |= parked.group.lanes;
  return lanes;
}

}  // namespace

void go_on(Warp& warp, Mask lanes, int at) {
  if (lanes == 0) return;
  const auto place = std::lower_bound(warp.groups.begin(), warp.groups.end(), at,
                                      [](const Group& group, int other) { return group.at < other; });
  if (place != warp.groups.end() && place->at == at) {
    place->lanes |= lanes;
  } else {
    warp.groups.insert(place, Group{at, lanes});
  }
}

void park(Warp& warp, Parked::Why why, uint32_t what, Mask lanes, int at) {
  if (lanes != 0) warp.parked.push_back({why, what, {at + 1, lanes}});
}

void release_converged(Warp& warp) {
  for (uint32_t number = 0; number < Warp::num_barriers; ++number) {
    const auto is_here = [&](const Parked& parked) {
      return parked.why == Parked::Why::convergence && parked.what == number;
    };
    const Mask here = lanes_of(warp, is_here);
    if (here == 0 || (warp.barriers[number] & warp.alive & ~here) != 0) continue;
    warp.barriers[number] = 0;  // lanes of another group, which had set it before, do not wait for these
    release_if(warp, is_here);
  }
  const auto meets = [](const Parked& parked) { return parked.why == Parked::Why::warp; };
  const Mask here = lanes_of(warp, meets);
  if (here != 0)
    release_if(warp, [&](const Parked& parked) { return meets(parked) && (parked.what & warp.alive & ~here) == 0; });
}

void arrive(Block& block, uint32_t number, int threads, int expected) {
  Block::Barrier& barrier = block.barriers[number];
  barrier.arrived += threads;
  barrier.expected = expected;
}

void release_barriers(Block& block) {
  for (uint32_t number = 0; number < Warp::num_barriers; ++number) {
    Block::Barrier& barrier = block.barriers[number];
    const int expected = barrier.expected != 0 ? barrier.expected : block.alive;
    if (barrier.arrived == 0 || barrier.arrived < expected) continue;
    barrier.arrived = 0;
    for (Warp& warp : block.warps) {
      const auto waits = [&](const Parked& parked) {
        return parked.why == Parked::Why::block && parked.what == number;
      };
      if (lanes_of(warp, waits) == 0) continue;
      warp.reduced = barrier.reduced;
      release_if(warp, waits);
    }
  }
}

void end_threads(Warp& warp, Mask lanes) {
  warp.alive &= ~lanes;
  warp.block->alive -= count_lanes(lanes);
  release_converged(warp);
  release_barriers(*warp.block);
}

size_t chosen_group(const Warp& warp) {
  constexpr int patience = 4096;
  return static_cast<size_t>(warp.turns / patience) % warp.groups.size();
}

}  // namespace t4
