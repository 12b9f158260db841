// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The places of the rows of tables. docs/TIERS.md says how to choose.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 {

enum class Placement {
  device,  ///< all rows in the device's memory; with several devices in the memory of each
  cached,  ///< all rows in the host's memory, and the most requested also in the device's
  host,    ///< all rows in the host's memory, where look-ups read them
  sharded  ///< divided among LoadOptions::devices, where each device reads the others' rows in place; in the host's
           ///< memory if the devices cannot do this
};

constexpr const char* name_of_enum(Placement where) {
  return where == Placement::device   ? "device"
         : where == Placement::cached ? "cached"
         : where == Placement::host   ? "host"
                                      : "sharded";
}

/// The placement of one table. The host engine's device is the host: there all placements are the same.
struct TablePlacement {
  Placement where = Placement::device;
  /// For `cached`: the bytes of its rows on the device, keys included, at least least_cache_bytes(); for others 0. A
  /// table takes no more than all its rows need.
  int64_t device_bytes = 0;

  bool operator==(const TablePlacement& other) const {
    return where == other.where && device_bytes == other.device_bytes;
  }
};

/// By the names of tables, or patterns of them: `*` stands for any letters or none, `?` for one. The first pattern that
/// fits a table's name counts; a table without a fitting pattern is on the device.
using TablePlacements = std::vector<std::pair<std::string, TablePlacement>>;

/// Whether the pattern fits the whole name.
constexpr bool fits_pattern(std::string_view pattern, std::string_view name) {
  // After a mismatch the latest `*` takes one letter more.
  size_t p = 0, n = 0, after_star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

inline TablePlacement placement_of(const TablePlacements& placements, std::string_view table) {
  for (const auto& [pattern, placement] : placements)
    if (fits_pattern(pattern, table)) return placement;
  return {};
}

/// The buckets of a device's cache of such rows: the buckets of a hash table that changes while it is read.
constexpr hash_table::BucketShape cache_shape(DType type, int64_t dim) {
  return hash_table::shape_of(hash_table::row_bytes(type, dim), true);
}
/// The minimum of a cache: the fewest buckets of a hash table.
constexpr int64_t least_cache_bytes(DType type, int64_t dim) {
  return static_cast<int64_t>(hash_table::min_buckets) * cache_shape(type, dim).bucket_bytes;
}

}}  // namespace warprank::v0
