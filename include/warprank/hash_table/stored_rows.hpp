// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 {

/// The common properties of a table's rows.
struct StoredRows {
  DType type = DType::f32;
  int64_t dim = 0;

  /// As in hash tables: I8 rows end in scale and offset.
  int64_t row_bytes() const { return hash_table::row_bytes(type, dim); }
  bool operator==(const StoredRows& other) const { return type == other.type && dim == other.dim; }
  bool operator!=(const StoredRows& other) const { return !(*this == other); }
};

}}  // namespace warprank::v0
