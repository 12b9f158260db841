// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows in memory of a table whose rows lie elsewhere (engine/row_source.hpp). engine/host/cached_rows.hpp
/// implements it for the host engine, engine/cuda/rows_before_store.cuh for a GPU.

#include <cstdint>
#include <functional>
#include <vector>

#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// The result for one key in the store.
enum class StoreStatus : uint8_t {
  ok,       ///< got, put or erased
  absent,   ///< the store has no row of it
  damaged,  ///< the store has something else in place of a row of this table: cut off, of another width or type
  failed    ///< unknown: the store did not answer in time
};

/// Any threads may call it at once. A thread that changes rows has exclusive access meanwhile, and makes the callbacks
/// itself.
class RowsInMemory {
 public:
  virtual ~RowsInMemory() = default;

  /// Moves the keys of `keys` that have rows here to `held`.
  virtual void take_out_held(std::vector<int64_t>& keys, std::vector<int64_t>& held) const = 0;
  /// Gives keys their rows, which lie one after the other, if is_wanted(i) still holds for the i-th key. If there is no
  /// room, other rows give way; returns their number.
  virtual int64_t insert(Span<const int64_t> keys, const unsigned char* rows,
                         const std::function<bool(int64_t)>& is_wanted) = 0;
  /// Takes the rows that the store has now for these keys. Keys with another row here get the new row; keys with a
  /// status that is not ok, or with null `rows`, lose their row. No statuses: all are ok. Calls was_changed(key) for
  /// each.
  virtual void change(Span<const int64_t> keys, const unsigned char* rows, const StoreStatus* statuses,
                      const std::function<void(int64_t)>& was_changed) = 0;
  /// No key has a row any more.
  virtual void clear() = 0;

  virtual int64_t size() const = 0;
};

}}  // namespace warprank::v0
