// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Look-ups in caches of rows (ops/row_cache.hpp), inside kernels.
///
/// A key that is there costs what one of a hash table costs: a line, and the row. One that is not costs a line more
/// than a read of the host's memory, and each warp of them an atomic addition, which waits beside the rows.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/hash_table/find.cuh"
#include "warprank/ops/row_cache.hpp"

namespace warprank { inline namespace v0 { namespace detail::cached {

/// A cache as look-ups of a warp see it: read from device memory each time, because registers are for rows.
struct Table {
  static constexpr bool is_mutable = true;
  const unsigned char* buckets;
  hash_table::Placement placement;
  hash_table::BucketShape shape;

  WARPRANK_DEVICE explicit Table(const HashTableView& of)
      : buckets(device::load_constant(&of.buckets)),
        placement{device::load_constant(&of.placement.seed), device::load_constant(&of.placement.num_buckets), 0, 2},
        shape{hash_table::Layout::header, hash_table::header_slots, device::load_constant(&of.shape.row_stride),
              hash_table::line_bytes, device::load_constant(&of.shape.bucket_bytes)} {}
  WARPRANK_DEVICE const unsigned char* bucket(uint64_t index) const {
    return buckets + index * static_cast<uint64_t>(shape.bucket_bytes);
  }
};

/// Counts rows that a warp has found in the cache. All lanes call.
WARPRANK_DEVICE void tell_hits(const RowCacheView& cache, bool is_hit) {
  using namespace device;  // NOLINT: a device function
  const uint32_t hits = ballot(full_warp, is_hit);
  if (fresh_thread_rank() % warp_size != 0 || hits == 0) return;
  const auto counter = block_index().x % row_cache::hit_counters * row_cache::hit_stride;
  atomic_add<Order::relaxed, Scope::device>(load_constant(&cache.hits) + counter,
                                            static_cast<uint64_t>(count_bits(hits)));
}

/// Adds the keys of those lanes that have one to tell. All lanes call.
WARPRANK_DEVICE void tell_keys(const KeyList& to, uint64_t key, bool is_told) {
  using namespace device;  // NOLINT: a device function
  const uint32_t told = ballot(full_warp, is_told);
  if (told == 0) return;
  const int lane = fresh_thread_rank() % warp_size;
  uint64_t first = 0, taken = 0;
  if (lane == 0) {
    taken = load<Order::relaxed, Scope::device>(load_constant(&to.num_taken));
    first = atomic_add<Order::relaxed, Scope::device>(load_constant(&to.num), static_cast<uint64_t>(count_bits(told)));
  }
  first = shuffle(full_warp, first, 0);
  taken = shuffle(full_warp, taken, 0);
  const uint64_t at = first + static_cast<uint64_t>(count_bits(told & ((1u << lane) - 1)));
  const uint64_t capacity = load_constant(&to.capacity);
  if (!is_told || at - taken >= capacity) return;
  store<Order::relaxed, Scope::device>(&load_constant(&to.keys)[at & (capacity - 1)], key);
}

}}}  // namespace warprank::v0::detail::cached

namespace warprank { inline namespace v0 { namespace detail::hashed {

template <>
inline constexpr bool marks_use<cached::Table> = true;

}}}  // namespace warprank::v0::detail::hashed
