// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What Tables::load is told, and what Tables::update answers.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "warprank/core/page_pool.hpp"

namespace warprank {

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
};

/// What became of the keys of an update; each is counted once.
struct TableChanges {
  int64_t updated = 0;   ///< had a row, and has the new one
  int64_t inserted = 0;  ///< have a row now
  int64_t erased = 0;    ///< have none any more
  int64_t absent = 0;    ///< were to be erased, and had none
  /// Were to be inserted, and there was no room: the table needs more LoadOptions::capacity, or, where it is an image,
  /// more HashTableOptions::capacity when that is built.
  int64_t full = 0;

  bool operator==(const TableChanges& other) const {
    return updated == other.updated && inserted == other.inserted && erased == other.erased && absent == other.absent &&
           full == other.full;
  }
};

/// By table; of those that the update has tensors of.
using UpdateReport = std::map<std::string, TableChanges>;

}  // namespace warprank
