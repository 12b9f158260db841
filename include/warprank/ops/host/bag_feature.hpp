// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "warprank/core/view.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// Ids that a look-up did not find, as many as there is room for.
struct MissedIds {
  int64_t* data = nullptr;
  int64_t room = 0, count = 0;

  void add(int64_t id) {
    if (count < room) data[count++] = id;
  }
};

/// One feature of a batch: its ids, the table of their rows, and the place of the pooled rows.
///
/// An id is one of
/// - padding: it adds nothing, and neither it nor its weight counts in a mean;
/// - a row of the table;
/// - unknown (not in the hash table) or out of range (no row of a direct table): an element whose row is the default
///   row.
struct BagFeature {
  TableView table;                        ///< of a hashed table, only type, dim and default_row are used
  const HashTableView* hashed = nullptr;  ///< a hashed table: ids are its keys, rows are in it; null: the id is the row
  Span<const int64_t> ids;                ///< [num_ids]
  Segments bags;                          ///< segments that cover all ids; offsets == nullptr: each id is a bag
  const float* weights = nullptr;         ///< weight of id i at weights[i * weights_stride]; null: all 1
  int64_t weights_stride = 1;
  Pooling pooling = Pooling::none;
  std::optional<int64_t> padding;  ///< the id that is padding; unless set, -1 in a direct and none in a hashed table
  Matrix<float> y;                 ///< [num_bags, table.dim]
  LookupCounters* counters = nullptr;  ///< may be null
  MissedIds* missed = nullptr;         ///< gets the ids that a hashed table does not have; may be null

  int64_t num_bags() const { return bags.offsets == nullptr ? ids.size() : bags.count; }
};

}}}  // namespace warprank::v0::host_ops
