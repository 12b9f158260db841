// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables whose rows lie in a store, with some of them in memory. docs/TIERS.md says how to choose.

#include <chrono>
#include <cstdint>
#include <memory>

#include "warprank/engine/row_source.hpp"
#include "warprank/store/parameter_store.hpp"

namespace warprank { inline namespace v0 {

/// What a look-up does with a key that memory does not have.
enum class Misses {
  default_row_now_fetch_later,  ///< it has the default row; its own is fetched for those who come later
  wait                          ///< the batch waits until it is fetched, or for TableInStore::longest_wait
};

/// Of one table, or of several: what LoadOptions::stores takes.
///
///     options.stores = {{"film", in_store}};
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

  operator std::shared_ptr<const RowSource>() const;
};

}}  // namespace warprank::v0

#include "warprank/store/table_in_store_definitions.hpp"
