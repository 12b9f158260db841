// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Takes out of a cache of rows what look-ups have told (ops/row_cache.hpp), for whoever decides which rows it has.

#include <cstdint>

#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/hash_find.cuh"
#include "warprank/ops/row_cache.hpp"

namespace warprank::detail {

/// What is taken out of a cache's marks: memory of the host that kernels write.
struct TakenMarks {
  /// A key, and the line of its first bucket as it was; in the word of use, whether a key was found since last time.
  struct Mark {
    uint64_t key, unused;
    uint64_t line[hash_table::line_words];
  };
  struct Counts {
    uint64_t num_missed, num_hits;  ///< so far
  };
  Counts* counts;
  Mark* marks;  ///< [capacity of the cache's marks]
};

inline constexpr int take_marks_threads = 1024;

/// Takes out the marks behind `num_taken`, and clears what their buckets say of use. One block.
template <class = void>
WARPRANK_KERNEL(take_marks_threads, 1)
take_marks_kernel(RowCacheView cache, uint64_t num_taken, TakenMarks to) {
  using namespace device;  // NOLINT: a kernel
  uint64_t& num = static_shared<uint64_t>();
  if (thread_rank() == 0) {
    const uint64_t all = load<Order::relaxed, Scope::device>(cache.missed.num);
    uint64_t hits = 0;
    for (int i = 0; i < row_cache::hit_counters; ++i) {
      hits += load<Order::relaxed, Scope::device>(&cache.missed.hits[i * row_cache::hit_stride]);
    }
    store(&to.counts->num_missed, all);
    store(&to.counts->num_hits, hits);
    num = all;
  }
  sync_block();
  const uint64_t all = num, capacity = cache.missed.capacity;
  const uint64_t count = all - num_taken < capacity ? all - num_taken : capacity;
  for (uint64_t i = static_cast<uint64_t>(thread_rank() / LineTile::size); i < count;
       i += take_marks_threads / LineTile::size) {
    TakenMarks::Mark& mark = to.marks[i];
    const uint64_t key = load<Order::relaxed, Scope::device>(&cache.missed.keys[(num_taken + i) & (capacity - 1)]);
    const uint64_t bucket = cache.rows.placement.first_bucket(cache.rows.placement.hash(key));
    LinePart part = load_line_part(cache.rows, cache.rows.bucket(bucket));
    if (LineTile::rank() == row_cache::use_word / 2) {
      part[row_cache::use_word % 2] =
          atomic_exchange<Order::relaxed, Scope::device>(&cache.rows.line(bucket)[row_cache::use_word], uint64_t{0});
    }
    store_vector(mark.line + 2 * LineTile::rank(), part);
    if (LineTile::rank() == 0) store(&mark.key, key);
  }
  sync_block();
  if (thread_rank() == 0) store<Order::relaxed, Scope::device>(cache.missed.num_taken, all);
}

/// Queues take_marks_kernel.
WARPRANK_HIDDEN inline void launch_take_marks(const RowCacheView& cache, uint64_t num_taken, const TakenMarks& to,
                                              device::Stream stream) {
  device::launch({1, take_marks_threads, 0, stream}, take_marks_kernel<>, cache, num_taken, to);
}

}  // namespace warprank::detail
