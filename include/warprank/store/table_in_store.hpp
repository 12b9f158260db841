// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables whose rows lie in a store, with some of them in memory. docs/TIERS.md says how to choose.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/store/parameter_store.hpp"

namespace warprank { inline namespace v0 {

/// What a look-up does with a key that memory does not have.
enum class Misses {
  default_row_now_fetch_later,  ///< it has the default row; its own is fetched for those who come later
  wait                          ///< the batch waits until it is fetched, or for TableInStore::longest_wait
};

/// Of one table.
struct TableInStore {
  std::shared_ptr<ParameterStore> store = nullptr;
  /// What its rows in memory may take, keys included; for short rows 16 buckets at least. Of a GPU's table it is pinned
  /// memory of the host.
  int64_t memory_bytes = 0;
  Misses misses = Misses::default_row_now_fetch_later;
  std::chrono::microseconds longest_wait{5000};   ///< of a batch, for all its keys; then they have the default row
  std::chrono::milliseconds store_timeout{1000};  ///< of each call of the store
  /// For so long the store is not asked again for a key that it does not have, or has something else for.
  std::chrono::milliseconds absent_for{1000};
  int64_t most_queued = int64_t{1} << 16;  ///< keys that wait to be fetched; more are dropped, and asked for again
};

/// By the names of tables, or patterns of them as in LoadOptions::placement; the first that fits counts.
using TablesInStores = std::vector<std::pair<std::string, TableInStore>>;

/// What became of look-ups in a table that lies in a store, since it was loaded; on a GPU as of the last pass over its
/// caches, and hits of a batch that was run again for rows that it waited for (Misses::wait) count each time.
struct StoreCounters {
  int64_t hits = 0;     ///< ids whose row was in memory, or on the device
  int64_t misses = 0;   ///< ids that got the default row: not in memory, or nowhere
  int64_t fetched = 0;  ///< rows that came from the store
  int64_t absent = 0;   ///< keys that it did not have
  int64_t damaged = 0;  ///< keys for which it had something else
  int64_t failed = 0;   ///< keys for which it did not answer in time
  int64_t evicted = 0;  ///< rows in memory that gave way to others
  int64_t dropped = 0;  ///< misses that found no room in the queue
  int64_t late = 0;     ///< batches that waited in vain for some of their keys
  int64_t rows = 0;     ///< that are in memory now
};

}}  // namespace warprank::v0
