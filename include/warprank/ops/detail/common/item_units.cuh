// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How blocks find items to attend and the events of the same parent, for kernels whose counts and offsets are in
/// device memory. A unit of work is neighbouring items of one parent. Which items share a unit, and which block takes
/// it, depends on their number and the grid; a result must not.

#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Items and events of the same parents, as they lie in device memory.
struct ItemsAndEvents {
  int64_t max_items = 0, max_parents = 0;
  const int64_t* num_parents = nullptr;      ///< null: max_parents
  const int64_t* item_offsets = nullptr;     ///< [parents + 1]
  const int64_t* history_offsets = nullptr;  ///< [parents + 1]
};

/// Items of one parent, and its events.
struct ItemUnit {
  int64_t first_item;   ///< row of the items
  int64_t first_event;  ///< row of the events
  int64_t num_events;
  int num_items;  ///< 0: all is done
};

/// What a block does now, and what it does next; in shared memory, so that it needs no registers.
struct ItemWork {
  ItemUnit unit;
  int64_t num_parents, num_items, unit_items;
  int64_t next;  ///< item
  int64_t skip;  ///< items of the other blocks, between two shares of this one
};

/// Reads the true counts, and cuts the items so that each of `num_blocks` has some: units of whole groups, of at most
/// `most` items. One thread calls.
WARPRANK_DEVICE void begin_items(const ItemsAndEvents& axes, ItemWork& work, int64_t group, int64_t most, int64_t block,
                                 int64_t num_blocks) {
  const int64_t parents = device::true_count(axes.num_parents, axes.max_parents);
  const int64_t items = parents > 0 ? device::load(&axes.item_offsets[parents]) : 0;
  const int64_t of_block = (items + num_blocks - 1) / num_blocks;
  work.num_parents = parents;
  work.num_items = items < axes.max_items ? items : axes.max_items;
  work.unit_items = (of_block + group - 1) / group * group;
  if (work.unit_items > most / group * group) work.unit_items = most / group * group;
  work.next = block * work.unit_items;
  work.skip = (num_blocks - 1) * work.unit_items;
}

/// Finds the next unit; one thread calls. Blocks take unit_items in turn.
WARPRANK_DEVICE void next_items(const ItemsAndEvents& axes, ItemWork& work) {
  const int64_t first = work.next;
  work.unit.num_items = 0;
  if (first >= work.num_items) return;
  const int64_t parent = device::last_not_above(axes.item_offsets, work.num_parents, first);
  int64_t end = (first / work.unit_items + 1) * work.unit_items;
  if (end > work.num_items) end = work.num_items;
  const int64_t last = device::load(&axes.item_offsets[parent + 1]);
  work.next = last < end ? last : end;
  work.unit.first_item = first;
  work.unit.num_items = static_cast<int>(work.next - first);
  work.unit.first_event = device::load(&axes.history_offsets[parent]);
  work.unit.num_events = device::load(&axes.history_offsets[parent + 1]) - work.unit.first_event;
  if (work.next == end) work.next += work.skip;
}

/// Copies a descriptor, a multiple of 16 bytes, into shared memory; all threads of the block call, and wait.
template <int Threads, class Descriptor>
WARPRANK_DEVICE void copy_descriptor(Descriptor& to, const Descriptor* from) {
  static_assert(sizeof(Descriptor) % 16 == 0 && alignof(Descriptor) == 16);
  using Words = device::Vector<uint32_t, 4>;  // bytes would be put together one by one
  static_assert(sizeof(Descriptor) / 16 <= Threads, "one piece for each thread");
  const int i = device::thread_rank();
  if (i < static_cast<int>(sizeof(Descriptor) / 16))
    reinterpret_cast<Words*>(&to)[i] = device::load_read_only(reinterpret_cast<const Words*>(from) + i);
}

/// Of what an op is given: its q, k, parents and offsets.
template <class Attended>
void check_items_and_events(const Attended& given, const std::string& what, Problems& problems) {
  if (given.parents.capacity < 0)
    problems.add(what + "'s parents", "0 or more", std::to_string(given.parents.capacity));
  if (given.parents.capacity > 0) {
    check_pointer(what + "'s item offsets", given.item_offsets, 8, problems);
    check_pointer(what + "'s history offsets", given.history_offsets, 8, problems);
  }
}
template <class Attended>
ItemsAndEvents items_and_events_of(const Attended& given) {
  return {given.q.rows, given.parents.capacity, given.parents.actual, given.item_offsets, given.history_offsets};
}

}}}  // namespace warprank::v0::detail
