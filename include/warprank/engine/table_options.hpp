// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What Tables::load is told, and what Tables::update answers.

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
  /// GPU one more wait in their stream, and hashed tables of short rows more memory; else nothing changes. On a GPU
  /// hashed tables must then have at most 128 columns of F32 or 256 of the other types.
  bool updatable = false;
  /// Room of updatable hashed tables that are loaded as keys and rows: for so many keys more, as a share of those that
  /// they are loaded with, 0 to 1000. Images have the room that they were built with: HashTableOptions::capacity.
  double spare = 0.25;
  /// The same, by table, as the number of keys that there is room for in all. Refused for images.
  std::map<std::string, int64_t> capacity = {};
  /// Rows are copied in pieces, with pauses, so that no more bytes a second are: for loading beside requests. 0: as
  /// many as there can be.
  int64_t most_bytes_per_second = 0;
  /// Where rows on the host lie that are 2 MB and more: memory that tables before have left there is used again.
  /// Without it a swap waits, and lets requests wait, for the system's new memory; with it there is room for two models
  /// all the time. Null: the system's.
  std::shared_ptr<PagePool> pages = nullptr;
  /// Which tables do not lie in the device's memory.
  TablePlacements placement = {};
  /// The cards whose models use the tables (Tables::on), by their numbers: the one that they are loaded to among them,
  /// none twice. Placement says what each of them has. Empty: that one alone. The host engine is one device, whatever
  /// they are.
  std::vector<int> devices = {};
  /// How long a GPU's tables wait between two passes over their caches of rows, by which those that are asked for come
  /// to the device; 0: Tables::pass_over_caches alone does it.
  double cache_pass_seconds = 2e-3;
  /// Which tables have their rows in a store, and some of them in memory; the weights have only their default rows.
  /// store/table_in_store.hpp says in which. On the host engine look-ups then take a lock. On a GPU they are hashed,
  /// and of placement `cached`, with the least cache where nothing else is said; one of `devices` alone may have them.
  RowSources stores = {};
};

/// What became of the keys of an update; each is counted once.
struct TableChanges {
  int64_t updated = 0;   ///< had a row, and has the new one; or is in a store, which does not tell
  int64_t inserted = 0;  ///< have a row now
  int64_t erased = 0;    ///< have none any more
  int64_t absent = 0;    ///< were to be erased, and had none
  /// Were to be inserted, and there was no room: the table needs more LoadOptions::capacity, or, where it is an image,
  /// more HashTableOptions::capacity when that is built.
  int64_t full = 0;
  /// Of a table in a store, which did not answer: it has the old row or the new one, and is asked when it is needed.
  int64_t failed = 0;

  bool operator==(const TableChanges& other) const {
    return updated == other.updated && inserted == other.inserted && erased == other.erased && absent == other.absent &&
           full == other.full && failed == other.failed;
  }
};

/// What became of look-ups in a table of placement `cached` on a GPU, and of its rows there; since it was loaded.
struct CacheCounters {
  int64_t hits = 0;      ///< rows that were read on the device
  int64_t misses = 0;    ///< rows that were read in the host's memory
  int64_t dropped = 0;   ///< misses among them that no pass was told of, as there were too many since the one before
  int64_t admitted = 0;  ///< rows that came to the device
  int64_t evicted = 0;   ///< and that gave way to others

  bool operator==(const CacheCounters& other) const {
    return hits == other.hits && misses == other.misses && dropped == other.dropped && admitted == other.admitted &&
           evicted == other.evicted;
  }
};

/// By table; of those that the update has tensors of.
using UpdateReport = std::map<std::string, TableChanges>;

}}  // namespace warprank::v0
