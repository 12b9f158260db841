// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Takes out of a cache of rows what look-ups have told (ops/row_cache.hpp), for whoever decides which rows it has.

#include <cstdint>

#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/hash_table/find.cuh"
#include "warprank/ops/row_cache.hpp"

namespace warprank { inline namespace v0 { namespace detail::cached {

/// What is taken out of a cache's marks: memory of the host that kernels write.
struct TakenMarks {
  /// A key, and the line of its first bucket as it was; in the word of use, whether a key was found since last time.
  struct Mark {
    uint64_t key, unused;
    uint64_t line[hash_table::line_words];
  };
  struct alignas(16) Counts {
    uint64_t num_missed, num_absent, num_hits;  ///< so far
  };
  Counts* counts;
  Mark* marks;       ///< [capacity of the cache's marks]
  uint64_t* absent;  ///< the same
};

/// How many keys were taken out of the lists of a cache before.
struct TakenBefore {
  uint64_t missed = 0, absent = 0;
};

inline constexpr int take_marks_threads = 1024;

/// Of a list that has had `num` keys, of which so many were taken out: how many can be taken out now.
WARPRANK_DEVICE uint64_t num_new_keys(const KeyList& list, uint64_t num, uint64_t taken) {
  return num - taken < list.capacity ? num - taken : list.capacity;
}
WARPRANK_DEVICE uint64_t nth_key(const KeyList& list, uint64_t n) {
  return device::load<device::Order::relaxed, device::Scope::device>(&list.keys[n & (list.capacity - 1)]);
}

/// Takes out the keys behind those of `before`, and clears what the buckets of missed ones say of use. One block.
template <class = void>
WARPRANK_KERNEL(take_marks_threads, 1)
take_marks_kernel(RowCacheView cache, TakenBefore before, TakenMarks to) {
  using namespace device;  // NOLINT: a kernel
  TakenMarks::Counts& num = static_shared<TakenMarks::Counts>();
  if (thread_rank() == 0) {
    uint64_t hits = 0;
    for (int i = 0; i < row_cache::hit_counters; ++i) {
      hits += load<Order::relaxed, Scope::device>(&cache.hits[i * row_cache::hit_stride]);
    }
    num.num_missed = load<Order::relaxed, Scope::device>(cache.missed.num);
    num.num_absent = cache.absent.keys == nullptr ? 0 : load<Order::relaxed, Scope::device>(cache.absent.num);
    num.num_hits = hits;
    store(&to.counts->num_missed, num.num_missed);
    store(&to.counts->num_absent, num.num_absent);
    store(&to.counts->num_hits, num.num_hits);
  }
  sync_block();
  const uint64_t num_missed = num_new_keys(cache.missed, num.num_missed, before.missed);
  const uint64_t num_absent = num_new_keys(cache.absent, num.num_absent, before.absent);
  for (auto i = static_cast<uint64_t>(thread_rank()); i < num_absent; i += take_marks_threads) {
    store(&to.absent[i], nth_key(cache.absent, before.absent + i));
  }
  for (uint64_t i = static_cast<uint64_t>(thread_rank() / hashed::LineTile::size); i < num_missed;
       i += take_marks_threads / hashed::LineTile::size) {
    TakenMarks::Mark& mark = to.marks[i];
    const uint64_t key = nth_key(cache.missed, before.missed + i);
    const uint64_t bucket = cache.rows.placement.first_bucket(cache.rows.placement.hash(key));
    hashed::LinePart part = hashed::load_line_part(cache.rows, cache.rows.bucket(bucket));
    if (hashed::LineTile::rank() == row_cache::use_word / 2) {
      part[row_cache::use_word % 2] =
          atomic_exchange<Order::relaxed, Scope::device>(&cache.rows.line(bucket)[row_cache::use_word], uint64_t{0});
    }
    store_vector(mark.line + 2 * hashed::LineTile::rank(), part);
    if (hashed::LineTile::rank() == 0) store(&mark.key, key);
  }
  sync_block();
  if (thread_rank() != 0) return;
  store<Order::relaxed, Scope::device>(cache.missed.num_taken, num.num_missed);
  if (cache.absent.keys != nullptr) store<Order::relaxed, Scope::device>(cache.absent.num_taken, num.num_absent);
}

/// Queues take_marks_kernel.
WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch_take_marks(const RowCacheView& cache, const TakenBefore& before,
                                                               const TakenMarks& to, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void launch_take_marks(const RowCacheView& cache, const TakenBefore& before,
                                               const TakenMarks& to, device::Stream stream) {
  device::launch({1, take_marks_threads, 0, stream}, take_marks_kernel<>, cache, before, to);
}
#endif

}}}  // namespace warprank::v0::detail::cached
