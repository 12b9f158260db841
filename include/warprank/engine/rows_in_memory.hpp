// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows in memory of a table whose rows lie elsewhere (engine/row_source.hpp): of the host engine
/// engine/host/cached_rows.hpp, of a GPU engine/cuda/rows_before_store.cuh.

#include <cstdint>
#include <functional>
#include <vector>

#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// What became of one key, there.
enum class StoreStatus : uint8_t {
  ok,       ///< got, put or erased
  absent,   ///< the store has no row of it
  damaged,  ///< the store has something else in place of a row of this table: cut off, of another width or type
  failed    ///< nobody knows: the store did not answer in time
};

/// By any threads at once. Whoever changes rows has them alone meanwhile; what is called back is called by who does.
class RowsInMemory {
 public:
  virtual ~RowsInMemory() = default;

  /// Moves those of `keys` that have rows here to `held`.
  virtual void take_out_held(std::vector<int64_t>& keys, std::vector<int64_t>& held) const = 0;
  /// Gives keys rows, of which there is one after the other, if is_wanted(i) still says so of the i-th. Others give way
  /// where there is no room: how many did is returned.
  virtual int64_t insert(Span<const int64_t> keys, const unsigned char* rows,
                         const std::function<bool(int64_t)>& is_wanted) = 0;
  /// The rows of keys that the store has now: those that have others here get them; of a status that is not ok, or
  /// where `rows` is null, they have none any more. No statuses: all are ok. Calls was_changed(key) for each.
  virtual void change(Span<const int64_t> keys, const unsigned char* rows, const StoreStatus* statuses,
                      const std::function<void(int64_t)>& was_changed) = 0;
  /// No key has a row any more.
  virtual void clear() = 0;

  virtual int64_t size() const = 0;
};

}}  // namespace warprank::v0
