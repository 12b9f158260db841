// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables whose rows lie elsewhere, as engines see them: LoadOptions::stores has a RowSource of each. An engine has
/// some of the rows in memory, RowsInMemory; the source makes a RowTier for these, which fetches what look-ups miss.
/// Sources are no part of the engines: store/table_in_store.hpp has the one whose rows are in a ParameterStore.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/rows_in_memory.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/stored_rows.hpp"

namespace warprank { inline namespace v0 {

struct StoredTable {
  std::string name;
  StoredRows rows;
};

/// Throws invalid_argument for a table that no store can have.
inline void check_stored_table(const StoredTable& table) {
  Problems problems;
  if (table.name.empty()) problems.add("stored table", "a name", "none");
  const std::string where = "stored table '" + table.name + "': ";
  if (table.rows.type == DType::i64) problems.add(where + "type", "F32, F16, BF16 or I8", name_of(table.rows.type));
  const int64_t most = hash_table::max_row_bytes;
  if (table.rows.dim < 1 || table.rows.dim > most || table.rows.row_bytes() > most)
    problems.add(where + "dim", "1 to as many as " + std::to_string(most) + " bytes hold",
                 std::to_string(table.rows.dim) + " of " + name_of(table.rows.type));
  problems.throw_if_any();
}

/// Who fetches what is missed: a thread of the tier's own, or whoever calls RowTier::fetch_wanted and wait_for.
enum class Fetching { by_itself, when_called };

/// What became of look-ups in a table that lies in a store, since it was loaded; on a GPU as of the last pass over its
/// caches, and hits of a batch that was run again for rows that it waited for (RowTier::waits) count each time.
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

/// Keeps the rows in memory of one table. By any threads at once.
class RowTier {
 public:
  virtual ~RowTier() = default;

  /// Whether batches wait for rows that they miss; else these have the default row.
  virtual bool waits() const = 0;

  /// Counts ids that were looked up, those that had a row in memory and those that had none.
  virtual void looked_up(int64_t hits, int64_t misses) = 0;
  /// Counts keys that were missed, and that nobody can tell any more.
  virtual void were_dropped(int64_t count) = 0;

  /// Has the keys fetched, in the background. Of a table that waits: how many it makes sense to wait for.
  virtual int64_t want(Span<const int64_t> keys) = 0;
  /// Fetches what is wanted, unless a thread does so.
  virtual void fetch_wanted() = 0;
  /// Waits until what was wanted of these is fetched, or known not to be had, for as long as a batch may that has
  /// waited since `begin`; whether there is time for more. Of a table that waits.
  virtual bool wait_for(Span<const int64_t> keys, std::chrono::steady_clock::time_point begin) = 0;

  /// Writes rows there, then to memory where they are. Those that fail are in memory no more.
  virtual void put(Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses) = 0;
  virtual void erase(Span<const int64_t> keys, StoreStatus* statuses) = 0;
  /// Rows that are there already, null where there are none any more: written where memory has older ones.
  virtual void refresh(Span<const int64_t> keys, const unsigned char* rows) = 0;
  /// Nothing is in memory any more, so all rows are fetched anew.
  virtual void forget() = 0;

  virtual StoreCounters counters() const = 0;
};

/// Of one table, or of several that are alike.
class RowSource {
 public:
  virtual ~RowSource() = default;

  /// Tells what is wrong with it, as of `what`.
  virtual void check(const std::string& what, Problems& problems) const = 0;
  /// What rows the table has. Where that cannot be known it is nothing, and the problems say why, or those of check().
  virtual std::optional<StoredRows> describe(const std::string& table, Problems& problems) const = 0;
  /// What rows in memory may take, keys included.
  virtual int64_t memory_bytes() const = 0;
  /// Whether its tiers wait.
  virtual bool waits() const = 0;
  /// Keys are 0 to num_keys - 1, or any where that is 0. `rows` outlive it.
  virtual std::unique_ptr<RowTier> make_tier(StoredTable table, int64_t num_keys, RowsInMemory& rows,
                                             Fetching fetching) const = 0;
};

/// By the names of tables, or patterns of them as in LoadOptions::placement; the first that fits counts.
using RowSources = std::vector<std::pair<std::string, std::shared_ptr<const RowSource>>>;

}}  // namespace warprank::v0
