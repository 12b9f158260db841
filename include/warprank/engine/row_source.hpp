// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables whose rows lie elsewhere, as engines see them: LoadOptions::stores has a RowSource for each. An engine has
/// some of the rows in memory, RowsInMemory; the source makes a RowTier for them, which fetches the rows that look-ups
/// miss. Sources are no part of the engines: store/table_in_store.hpp has the one whose rows are in a ParameterStore.

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

/// Which thread fetches missed rows: the tier's own thread, or each caller of RowTier::fetch_wanted and wait_for.
enum class Fetching { by_itself, when_called };

/// Counters of look-ups in a table in a store, since it was loaded. On a GPU they are as of the last pass over its
/// caches, and hits of a batch that was run again after a wait for rows (RowTier::waits) count each time.
struct StoreCounters {
  int64_t hits = 0;     ///< ids whose row was in memory, or on the device
  int64_t misses = 0;   ///< ids that got the default row: not in memory, or nowhere
  int64_t fetched = 0;  ///< rows that came from the store
  int64_t absent = 0;   ///< keys that the store did not have
  int64_t damaged = 0;  ///< keys for which the store had something else
  int64_t failed = 0;   ///< keys for which the store did not answer in time
  int64_t evicted = 0;  ///< rows in memory that gave way to others
  int64_t dropped = 0;  ///< misses that found no room in the queue
  int64_t late = 0;     ///< batches that waited in vain for some of their keys
  int64_t rows = 0;     ///< rows in memory now
};

/// Manages the rows in memory of one table. Any threads may call it at once.
class RowTier {
 public:
  virtual ~RowTier() = default;

  /// Whether batches wait for rows that they miss; else these have the default row.
  virtual bool waits() const = 0;

  /// Counts looked-up ids: ids with a row in memory and ids without.
  virtual void looked_up(int64_t hits, int64_t misses) = 0;
  /// Counts missed keys that are no longer known.
  virtual void were_dropped(int64_t count) = 0;

  /// Has the keys fetched, in the background. For a table that waits, returns the number of keys that are worth waiting
  /// for.
  virtual int64_t want(Span<const int64_t> keys) = 0;
  /// Fetches the wanted keys, unless a thread does so.
  virtual void fetch_wanted() = 0;
  /// For a table that waits: waits until the wanted keys among these are fetched, or known to be unavailable, for as
  /// long as a batch may wait that began at `begin`. Returns whether there is time for more.
  virtual bool wait_for(Span<const int64_t> keys, std::chrono::steady_clock::time_point begin) = 0;

  /// Writes rows to the store, then to memory where they are. Rows that fail are no longer in memory.
  virtual void put(Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses) = 0;
  virtual void erase(Span<const int64_t> keys, StoreStatus* statuses) = 0;
  /// Rows that the store has already, null for removed rows: they replace older rows in memory.
  virtual void refresh(Span<const int64_t> keys, const unsigned char* rows) = 0;
  /// Drops all rows from memory, so that all are fetched anew.
  virtual void forget() = 0;

  virtual StoreCounters counters() const = 0;
};

/// The source of one table, or of several equal ones.
class RowSource {
 public:
  virtual ~RowSource() = default;

  /// Reports its errors, about `what`.
  virtual void check(const std::string& what, Problems& problems) const = 0;
  /// The kind of the table's rows. Nothing if it cannot be known; the problems, or those of check(), then give the
  /// reason.
  virtual std::optional<StoredRows> describe(const std::string& table, Problems& problems) const = 0;
  /// The bytes that rows in memory may take, keys included.
  virtual int64_t memory_bytes() const = 0;
  /// Whether its tiers wait.
  virtual bool waits() const = 0;
  /// Keys are 0 to num_keys - 1, or any if num_keys is 0. `rows` outlive the tier.
  virtual std::unique_ptr<RowTier> make_tier(StoredTable table, int64_t num_keys, RowsInMemory& rows,
                                             Fetching fetching) const = 0;
};

/// By the names of tables, or patterns of names as in LoadOptions::placement; the first that fits counts.
using RowSources = std::vector<std::pair<std::string, std::shared_ptr<const RowSource>>>;

}}  // namespace warprank::v0
