// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tables::describe.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/text.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 {

/// A table, and where its rows lie.
struct PlacedTable {
  TableInfo info;
  DType type = DType::f32;
  int64_t num_rows = 0;  ///< when it was loaded; 0: as many as a store has
  std::string where;     ///< in words
};

/// "film  5 M x 16 F32   device memory, 320 MB", a line for each.
inline std::string describe_tables(const std::vector<PlacedTable>& tables) {
  std::vector<std::string> rows;
  size_t name_width = 0, rows_width = 0;
  for (const PlacedTable& table : tables) {
    const TableInfo& info = table.info;
    rows.push_back((table.num_rows > 0 ? detail::with_unit(static_cast<double>(table.num_rows)) + " x " : "") +
                   std::to_string(info.dim) + " " + name_of(table.type) + (info.hashed ? ", hashed" : ""));
    name_width = std::max(name_width, info.name.size());
    rows_width = std::max(rows_width, rows.back().size());
  }
  std::string text;
  for (size_t t = 0; t < tables.size(); ++t)
    text += detail::padded(tables[t].info.name, name_width + 2) + detail::padded(rows[t], rows_width + 2) +
            tables[t].where + "\n";
  return text;
}

}}  // namespace warprank::v0
