// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables whose rows lie in a store, with some of them in memory. docs/TIERS.md says how to choose.

#include <chrono>
#include <cstdint>
#include <memory>

#include "warprank/engine/row_source.hpp"
#include "warprank/store/parameter_store.hpp"

namespace warprank { inline namespace v0 {

/// How a look-up treats a key that is not in memory.
enum class Misses {
  default_row_now_fetch_later,  ///< it gets the default row; its own row is fetched for later look-ups
  wait                          ///< the batch waits until the row is fetched, or for TableInStore::longest_wait
};

/// The options of one table in a store, or of several, for LoadOptions::stores:
///
///     options.stores = {{"film", in_store}};
struct TableInStore {
  std::shared_ptr<ParameterStore> store = nullptr;
  /// The most memory for rows, keys included; for short rows at least 16 buckets. A GPU's table takes pinned memory of
  /// the host.
  int64_t memory_bytes = 0;
  Misses misses = Misses::default_row_now_fetch_later;
  std::chrono::microseconds longest_wait{5000};   ///< of a batch, for all its keys; late keys have the default row
  std::chrono::milliseconds store_timeout{1000};  ///< of each call of the store
  /// For so long the store is not asked again for a key that has no row there, or a damaged one.
  std::chrono::milliseconds absent_for{1000};
  int64_t most_queued = int64_t{1} << 16;  ///< keys that wait to be fetched; more are dropped until the next miss

  operator std::shared_ptr<const RowSource>() const;
};

}}  // namespace warprank::v0

#include "warprank/store/table_in_store_definitions.hpp"
