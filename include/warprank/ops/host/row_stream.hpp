// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a batch's ids, fetched before they are used: RowStream, for kernels.

#include <algorithm>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/prefetch.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/ops/host/bag_feature.hpp"
#include "warprank/ops/host/hash_table.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace host_ops {

/// The place of one id's row. Rows are fetched only into the second level of the cache: more lines can be on the way to
/// it than to the first (on Zen 4, 24 ns become 16 for short rows in bags, 54 become 24 for rows of 256 bytes).
struct FoundRow {
  uintptr_t address;    ///< of a row; 0 in place of the default row, 1 in place of padding
  const float* scale;   ///< I8 rows only
  const float* offset;  ///< I8 rows only

  static FoundRow default_row() { return {0, nullptr, nullptr}; }
  static FoundRow padding() { return {1, nullptr, nullptr}; }
  /// Fetches a row of a hash table; scale and offset are its last bytes.
  static FoundRow in_bucket(const HashTableView& table, const unsigned char* row) {
    prefetch_second_level(row, table.row_bytes);
    const auto* end = reinterpret_cast<const float*>(row + table.row_bytes);
    return {reinterpret_cast<uintptr_t>(row), end - 2, end - 1};
  }

  bool is_row() const { return address > 1; }
  bool is_default_row() const { return address == 0; }
  bool is_padding() const { return address == 1; }
  template <class Value>
  const Value* values() const {
    return reinterpret_cast<const Value*>(address);
  }
};

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/row_stream-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"
