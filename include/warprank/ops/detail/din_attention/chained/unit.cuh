// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the warps of a block find its unit of work: up to `most` neighbouring items of one parent. Every warp searches
/// for itself, so that nothing waits for a single thread: its lanes read the offsets of 32 parents at once, in the same
/// trip to memory as the count of parents, and a prefix sum of units tells whose it is.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/common/item_units.cuh"

namespace warprank { inline namespace v0 { namespace detail::din::chained {

struct Unit {
  int first_item, first_event;
  int num_items, num_events;  ///< no items: there is no unit
  bool is_last;               ///< known: the block has no other behind this one
};

/// A parent's rows; those of a lane.
struct Parent {
  int64_t first_item = 0, end_item = 0, first_event = 0, end_event = 0;
};
WARPRANK_DEVICE Parent load_parent(const ItemsAndEvents& axes, int64_t number) {
  Parent parent;
  if (number >= axes.max_parents) return parent;
  parent.first_item = device::load_ahead(&axes.item_offsets[number]);
  parent.end_item = device::load_ahead(&axes.item_offsets[number + 1]);
  parent.first_event = device::load_ahead(&axes.history_offsets[number]);
  parent.end_event = device::load_ahead(&axes.history_offsets[number + 1]);
  return parent;
}

/// What a warp requests before it searches: offsets of its lane's parent, or of the only one.
struct Offsets {
  int64_t num_parents;
  Parent parent;
};
WARPRANK_DEVICE Offsets load_offsets(const ItemsAndEvents& axes) {
  Offsets offsets;
  offsets.num_parents = axes.max_parents;
  if (axes.num_parents != nullptr) offsets.num_parents = device::load_ahead(axes.num_parents);
  offsets.parent = load_parent(axes, axes.max_parents == 1 ? 0 : device::lane_index());
  return offsets;
}

/// Units of so many items that the blocks take equally many, in as few rounds as there may be.
WARPRANK_DEVICE unsigned unit_items_of(int num_items, unsigned num_blocks, unsigned most) {
  const auto items = static_cast<unsigned>(num_items);
  unsigned places = num_blocks;
  if (items <= places) return 1;  // divisions are long
  if (items > most * places) places *= (items + most * places - 1) / (most * places);
  return (items + places - 1) / places;
}

/// The unit of this number, of which `num_blocks` blocks take every num_blocks-th. All lanes of a warp call. Offsets of
/// all max_parents are read, those behind the true count not used.
WARPRANK_DEVICE Unit find_unit(const ItemsAndEvents& axes, const Offsets& offsets, int number, int num_blocks,
                               int most) {
  Unit unit{};
  const auto num_parents =
      static_cast<int>(offsets.num_parents < axes.max_parents ? offsets.num_parents : axes.max_parents);
  if (num_parents <= 0) return unit;
  const auto below = [&](int64_t item) { return static_cast<int>(item < axes.max_items ? item : axes.max_items); };
  const auto units_of = [&](int num_items) {
    return static_cast<int>(unit_items_of(num_items, static_cast<unsigned>(num_blocks), static_cast<unsigned>(most)));
  };
  Parent parent = offsets.parent;
  if (axes.max_parents == 1) {
    const int begin = below(parent.first_item), items = below(parent.end_item) - begin;
    const int unit_items = units_of(begin + items), place = number * unit_items;
    if (place >= items) return unit;
    unit.first_item = begin + place;
    unit.num_items = items - place < unit_items ? items - place : unit_items;
    unit.first_event = static_cast<int>(parent.first_event);
    unit.num_events = static_cast<int>(parent.end_event) - unit.first_event;
    unit.is_last = place + num_blocks * unit_items >= items;
    return unit;
  }
  const int lane = device::lane_index();
  const int unit_items = units_of(below(num_parents <= device::warp_size
                                            ? device::shuffle(device::full_warp, parent.end_item, num_parents - 1)
                                            : device::load(&axes.item_offsets[num_parents])));
  int before = 0;
  for (int first = 0; first < num_parents; first += device::warp_size) {
    if (first > 0) parent = load_parent(axes, first + lane);
    const int begin = below(parent.first_item);
    const int items = first + lane < num_parents ? below(parent.end_item) - begin : 0;
    const int units =
        unit_items == 1
            ? items
            : static_cast<int>(static_cast<unsigned>(items + unit_items - 1) / static_cast<unsigned>(unit_items));
    int sum = units;  // of the parents up to the lane's
    WARPRANK_UNROLL
    for (int distance = 1; distance < device::warp_size; distance *= 2) {
      const int other = device::shuffle_up(device::full_warp, sum, distance);
      if (lane >= distance) sum += other;
    }
    sum += before;
    before = device::shuffle(device::full_warp, sum, device::warp_size - 1);
    const uint32_t found = device::ballot(device::full_warp, number < sum);
    if (found == 0) continue;
    const int owner = device::first_bit(found);
    const auto of_owner = [&](int value) { return device::shuffle(device::full_warp, value, owner); };
    const int place = (number - of_owner(sum - units)) * unit_items;
    const int left = of_owner(items) - place;
    unit.first_item = of_owner(begin) + place;
    unit.num_items = left < unit_items ? left : unit_items;
    unit.first_event = of_owner(static_cast<int>(parent.first_event));
    unit.num_events = of_owner(static_cast<int>(parent.end_event - parent.first_event));
    unit.is_last = first + device::warp_size >= num_parents && number + num_blocks >= before;
    return unit;
  }
  return unit;
}

}}}  // namespace warprank::v0::detail::din::chained
