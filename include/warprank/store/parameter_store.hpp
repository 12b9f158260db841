// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stores of embedding tables outside the process: the interface for the tiers in front of them, and for changes of
/// rows.

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

/// The time when a call gives up.
using Deadline = std::chrono::steady_clock::time_point;

/// The error of a store that does not answer, or gives a wrong answer.
class store_error : public detail::error_of<std::runtime_error> {
 public:
  store_error(const std::string& what, const std::string& expected, const std::string& got)
      : error_of(what + ": expected " + expected + ", got " + got) {}
};

/// New rows of a table, and keys that have lost theirs. No key twice.
struct RowChanges {
  std::vector<int64_t> keys = {};
  std::vector<unsigned char> rows = {};  ///< [keys][row_bytes]
  std::vector<int64_t> erased = {};

  bool empty() const { return keys.empty() && erased.empty(); }
};

/// Publishes the changes of a table to all its followers, in the given order, each once. For one thread at a time; a
/// table may have any number of publishers.
class ChangePublisher {
 public:
  virtual ~ChangePublisher() = default;
  /// Returns whether all changes were published by the deadline. The others are kept, and published first by the next
  /// call, which may have no new changes. Throws invalid_argument if there are not as many rows as keys.
  virtual bool publish(const RowChanges& changes, Deadline deadline) = 0;
  /// The number of keys whose changes are not yet published.
  virtual int64_t unsent() const = 0;
  /// The text of the last error.
  virtual const std::string& trouble() const = 0;
};

/// The changes of a table since the last call of a reader.
struct ReadChanges {
  bool is_answer = false;                ///< false: the store did not answer, and the rest is as before
  std::vector<RowChanges> changes = {};  ///< in order
  std::string position = {};             ///< behind the changes: where to go on when they are applied
  bool has_more = false;                 ///< there are more changes to read
  /// Some changes, before these or among them, are lost: the stream was cut off before they were read, or has lost its
  /// end. Only a new copy of the table is complete.
  bool has_lost = false;
  int64_t garbage = 0;  ///< skipped entries, which are no changes of this table
};

/// A table, and the position to read its changes from, as end_of_changes or ReadChanges gives it.
struct FollowedTable {
  StoredTable table;
  std::string position;
};

/// Follows tables. Only the reader keeps its position, since it belongs to the rows that the changes are applied to: it
/// is lost and saved with them. For one thread at a time.
class ChangeReader {
 public:
  virtual ~ChangeReader() = default;
  /// The changes of each table, in the order of the tables. Does not wait for new changes. Never throws because of the
  /// store.
  virtual std::vector<ReadChanges> read(Deadline deadline) = 0;
};

/// Keeps a row of bytes for each key of each table. For any threads at once.
///
/// Calls for keys never throw because of the store: each key has a status of its own, and the bytes of a row are
/// written only if it is `ok`. All of these calls may be repeated. Keys may repeat in `get`, but not in `put` and
/// `erase`.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  /// The kind of the table's rows; nothing if the store does not know the table. Throws store_error if the store does
  /// not answer, or has something else in place of the description.
  virtual std::optional<StoredRows> describe(const std::string& table, Deadline deadline) = 0;
  /// Makes the table known, unless it is. Throws store_error if the store does not answer, invalid_argument if the
  /// table has other rows there, and for rows of more than hash_table::max_row_bytes.
  virtual void create(const StoredTable& table, Deadline deadline) = 0;

  /// Reads rows. rows: [keys][row_bytes], statuses: [keys].
  virtual void get(const StoredTable& table, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
                   Deadline deadline) = 0;
  /// Writes rows, in the shapes of `get`. A key whose status is `failed` has its old row or the new one.
  virtual void put(const StoredTable& table, Span<const int64_t> keys, const unsigned char* rows, StoreStatus* statuses,
                   Deadline deadline) = 0;
  /// Erases rows. A key without a row is `absent`.
  virtual void erase(const StoredTable& table, Span<const int64_t> keys, StoreStatus* statuses, Deadline deadline) = 0;

  /// Make a publisher of a table's changes, and a reader of changes; the tables need not have rows here. The store must
  /// outlive both. put and erase publish nothing: change_and_publish (store/row_changes.hpp) does both.
  virtual std::unique_ptr<ChangePublisher> publish_changes(const StoredTable& table) = 0;
  /// Throws invalid_argument for an invalid position.
  virtual std::unique_ptr<ChangeReader> read_changes(std::vector<FollowedTable> tables) = 0;
  /// The position behind all published changes. Throws store_error if the store does not answer.
  virtual std::string end_of_changes(const std::string& table, Deadline deadline) = 0;
};

}}  // namespace warprank::v0
