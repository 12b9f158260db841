// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 { namespace detail::hashed {

/// Adds, about `where`, what keeps kernels from looking keys up in the table, as far as the view itself tells.
inline void check_view(const std::string& where, const HashTableView& table, Problems& problems) {
  using namespace hash_table;
  const auto require = [&](bool holds, const char* what, const std::string& expected, int64_t got) {
    if (!holds) problems.add(where + ": " + what, expected, std::to_string(got));
  };
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(table.buckets));
  const hash_table::Placement& placement = table.placement;
  const BucketShape shape = shape_of(table.row_bytes, table.is_mutable);
  require(address != 0 && address % line_bytes == 0, "address of the buckets", "a multiple of 128", address);
  require(placement.num_buckets >= min_buckets, "buckets", "4 or more", static_cast<int64_t>(placement.num_buckets));
  require(placement.max_probes >= 2 && static_cast<uint64_t>(placement.overflow_probes()) <= placement.num_overflow / 2,
          "probes", "2, and up to half as many more as there are overflow buckets", placement.max_probes);
  require(table.row_bytes >= min_row_bytes && table.row_bytes <= max_row_bytes, "bytes of a row", "2 to 1024",
          table.row_bytes);
  require(table.row_bytes == row_bytes(table.type, table.dim), "bytes of a row",
          "those of " + std::to_string(table.dim) + " x " + name_of(table.type), table.row_bytes);
  require(table.shape.layout == shape.layout && table.shape.num_slots == shape.num_slots &&
              table.shape.row_stride == shape.row_stride && table.shape.rows_begin == shape.rows_begin &&
              table.shape.bucket_bytes == shape.bucket_bytes,
          "bytes of a bucket", std::to_string(shape.bucket_bytes) + ", with its rows where they belong",
          table.shape.bucket_bytes);
}

}}}  // namespace warprank::v0::detail::hashed
