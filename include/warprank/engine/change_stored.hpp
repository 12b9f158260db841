// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables::update and Tables::refresh of tables in stores, on whichever engine.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "warprank/engine/row_source.hpp"
#include "warprank/engine/table_delta.hpp"
#include "warprank/engine/table_options.hpp"

namespace warprank { inline namespace v0 {

/// Writes the store first, unless it has the rows already: a look-up that misses the key meanwhile gets its row from
/// the store.
inline void change_stored(RowTier& tier, int64_t row_bytes, const TableDelta& delta, bool store_has_it,
                          TableChanges& changes) {
  constexpr size_t most = 4096;
  std::vector<int64_t> keys;
  std::vector<unsigned char> rows;
  std::vector<StoreStatus> statuses;
  for (const std::vector<RowChange>* all : {&delta.erased, &delta.written})
    for (size_t begin = 0; begin < all->size(); begin += most) {
      const size_t count = std::min(most, all->size() - begin);
      const bool erases = all == &delta.erased;
      keys.resize(count);
      statuses.assign(count, store_has_it ? StoreStatus::ok : StoreStatus::failed);
      if (!erases) rows.resize(count * static_cast<size_t>(row_bytes));
      for (size_t i = 0; i < count; ++i) {
        const RowChange& one = (*all)[begin + i];
        keys[i] = one.key;
        if (!erases) delta.copy_row(one.row, rows.data() + i * static_cast<size_t>(row_bytes), row_bytes);
      }
      if (store_has_it)
        tier.refresh(keys, erases ? nullptr : rows.data());
      else if (erases)
        tier.erase(keys, statuses.data());
      else
        tier.put(keys, rows.data(), statuses.data());
      for (const StoreStatus status : statuses) {
        changes.failed += status == StoreStatus::failed;
        changes.absent += status == StoreStatus::absent;
        if (status == StoreStatus::ok) ++(erases ? changes.erased : changes.updated);
      }
    }
}

}}  // namespace warprank::v0
