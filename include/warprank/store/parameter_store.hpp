// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of embedding tables that lie outside of the process, what the tiers in front of them ask for, and what tells
/// them of changes.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/row_source.hpp"

namespace warprank { inline namespace v0 {

/// When a call gives up.
using Deadline = std::chrono::steady_clock::time_point;

/// A store that does not answer, or answers what it never should.
class store_error : public detail::error_of<std::runtime_error> {
 public:
  store_error(const std::string& what, const std::string& expected, const std::string& got)
      : error_of(what + ": expected " + expected + ", got " + got) {}
};

/// Rows that a table has now, and keys that have none any more. No key twice.
struct RowChanges {
  std::vector<int64_t> keys = {};
  std::vector<unsigned char> rows = {};  ///< [keys][row_bytes]
  std::vector<int64_t> erased = {};

  bool empty() const { return keys.empty() && erased.empty(); }
};

/// Tells all who follow a table of its changes, in the order in which they are given, each once. One thread at a time;
/// any number of publishers.
class ChangePublisher {
 public:
  virtual ~ChangePublisher() = default;
  /// Whether all were told by the deadline. What was not is kept, and told first by the next call, which may have
  /// nothing new. Throws invalid_argument where there are not as many rows as keys.
  virtual bool publish(const RowChanges& changes, Deadline deadline) = 0;
  /// Keys that nobody is told of yet.
  virtual int64_t unsent() const = 0;
  /// What went wrong last.
  virtual const std::string& trouble() const = 0;
};

/// What has become of a table since a reader was last asked.
struct ReadChanges {
  bool is_answer = false;                ///< else the store did not answer, and the rest is as before
  std::vector<RowChanges> changes = {};  ///< in order
  std::string position = {};             ///< behind them: where to go on when they are applied
  bool has_more = false;                 ///< there are more to be read
  /// Some from before, or among them, are gone: the stream was cut off before they were read, or has lost its end. Only
  /// a copy that is made anew is whole.
  bool has_lost = false;
  int64_t garbage = 0;  ///< entries that are no changes of this table, which are skipped
};

/// A table, and from where on its changes are to be read: a position as others tell it.
struct FollowedTable {
  StoredTable table;
  std::string position;
};

/// Follows tables. Nobody but the reader keeps its position, as it belongs to the rows that the changes are applied to:
/// it is lost with them, and saved with them. One thread at a time.
class ChangeReader {
 public:
  virtual ~ChangeReader() = default;
  /// Of each table, in their order. Does not wait for changes to come. Never throws because of the store.
  virtual std::vector<ReadChanges> read(Deadline deadline) = 0;
};

/// Keeps a row of bytes for each key of each table. By any threads at once.
///
/// Calls for keys never throw because of the store: each key has a status of its own, and the bytes of a row are
/// written where that is `ok` and nowhere else. All of these calls may be repeated. Keys may repeat in `get`; in `put`
/// and `erase` not.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  /// What rows the table has; nothing where the store does not know it. Throws store_error when the store does not
  /// answer, or has something else in its place.
  virtual std::optional<StoredRows> describe(const std::string& table, Deadline deadline) = 0;
  /// Makes the table known, unless it is. Throws store_error when the store does not answer, invalid_argument where it
  /// has other rows, and for rows of more than hash_table::max_row_bytes.
  virtual void create(const StoredTable& table, Deadline deadline) = 0;

  /// rows: [keys][row_bytes], statuses: [keys].
  virtual void get(const StoredTable& table, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
                   Deadline deadline) = 0;
  /// A key whose status is `failed` has its old row or the new one.
  virtual void put(const StoredTable& table, Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses,
                   Deadline deadline) = 0;
  virtual void erase(const StoredTable& table, Span<const int64_t> keys, StoreStatus* statuses, Deadline deadline) = 0;

  /// Who publishes changes of a table, and who reads them; the table need not have rows here. The store outlives both.
  /// put and erase publish nothing: store/row_changes.hpp does both.
  virtual std::unique_ptr<ChangePublisher> publish_changes(const StoredTable& table) = 0;
  /// Throws invalid_argument for a position that is none.
  virtual std::unique_ptr<ChangeReader> read_changes(std::vector<FollowedTable> tables) = 0;
  /// The position behind all changes that were published. Throws store_error when the store does not answer.
  virtual std::string end_of_changes(const std::string& table, Deadline deadline) = 0;
};

}}  // namespace warprank::v0
