// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The options of Tables::load, and the report of Tables::update.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "warprank/core/page_pool.hpp"
#include "warprank/engine/placement.hpp"
#include "warprank/engine/row_source.hpp"

namespace warprank { inline namespace v0 {

struct LoadOptions {
  /// Rows may be changed while models look them up: Tables::update. Look-ups on the host then take a lock, batches on a
  /// GPU have one more wait in their stream, and hashed tables of short rows need more memory; nothing else changes. On
  /// a GPU hashed tables must then have at most 128 columns of F32 or 256 of the other types.
  bool updatable = false;
  /// Spare room of updatable hashed tables that are loaded as keys and rows: the number of further keys, as a share of
  /// the loaded keys, 0 to 1000. Images have the room with which they were built: HashTableOptions::capacity.
  double spare = 0.25;
  /// The same, by table, as the total number of keys. Refused for images.
  std::map<std::string, int64_t> capacity = {};
  /// Rows are copied in pieces, with pauses, so that no more bytes are copied per second: for loading beside requests.
  /// 0: no limit.
  int64_t most_bytes_per_second = 0;
  /// The pool for tables of 2 MB and more on the host: it reuses memory of earlier tables. Without it a swap, and
  /// requests beside it, wait for the system's new memory; with it, room for two models stays allocated. Null: the
  /// system's memory.
  std::shared_ptr<PagePool> pages = nullptr;
  /// The tables that do not lie in the device's memory.
  TablePlacements placement = {};
  /// The cards whose models use the tables (Tables::on), by their numbers, with the card to which they are loaded, none
  /// twice. Placement says which rows each card has. Empty: only that card. The host engine is one device and ignores
  /// them.
  std::vector<int> devices = {};
  /// The pause between two passes over a GPU's caches of rows, which bring requested rows to the device; 0: only
  /// Tables::pass_over_caches makes passes.
  double cache_pass_seconds = 2e-3;
  /// The tables whose rows are in a store, some of them also in memory; the weights have only their default rows.
  /// store/table_in_store.hpp names the store. On the host engine look-ups then take a lock. On a GPU these tables are
  /// hashed and of placement `cached`, with the smallest cache by default; they can be on one device only.
  RowSources stores = {};
};

/// The results of an update's keys; each key is counted once.
struct TableChanges {
  int64_t updated = 0;   ///< had a row, and has the new one; or is in a store, which does not say
  int64_t inserted = 0;  ///< have a row now
  int64_t erased = 0;    ///< have none any more
  int64_t absent = 0;    ///< were to be erased, and had none
  /// Found no room: the table needs more LoadOptions::capacity, or, for an image, more HashTableOptions::capacity when
  /// it is built.
  int64_t full = 0;
  /// The store did not answer: it has the old row or the new one, and is asked when the row is needed.
  int64_t failed = 0;

  bool operator==(const TableChanges& other) const {
    return updated == other.updated && inserted == other.inserted && erased == other.erased && absent == other.absent &&
           full == other.full && failed == other.failed;
  }
};

/// Counters of look-ups in a table of placement `cached` on a GPU, and of its rows there, since it was loaded.
struct CacheCounters {
  int64_t hits = 0;      ///< rows that were read on the device
  int64_t misses = 0;    ///< rows that were read in the host's memory
  int64_t dropped = 0;   ///< misses that no pass saw, as there were too many since the pass before
  int64_t admitted = 0;  ///< rows that came to the device
  int64_t evicted = 0;   ///< rows there that gave way to others

  bool operator==(const CacheCounters& other) const {
    return hits == other.hits && misses == other.misses && dropped == other.dropped && admitted == other.admitted &&
           evicted == other.evicted;
  }
};

/// By table, for the tables of which the update has tensors.
using UpdateReport = std::map<std::string, TableChanges>;

}}  // namespace warprank::v0
