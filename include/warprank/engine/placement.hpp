// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the rows of tables lie. docs/TIERS.md says how to choose.

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
  device,  ///< all rows in the device's memory; of several devices in that of each
  cached,  ///< all rows in the host's memory, those that are asked for most in the device's as well
  host,    ///< all rows in the host's memory, where look-ups read them
  sharded  ///< divided among LoadOptions::devices, of which each reads the others' rows where they lie; in the host's
           ///< memory where they cannot
};

constexpr const char* name_of_enum(Placement where) {
  return where == Placement::device   ? "device"
         : where == Placement::cached ? "cached"
         : where == Placement::host   ? "host"
                                      : "sharded";
}

/// Of one table. The host engine's device is the host: there all placements are the same.
struct TablePlacement {
  Placement where = Placement::device;
  /// Of `cached`: what its rows on the device may take, keys included; at least least_cache_bytes(), else 0. A table
  /// takes no more than all its rows need.
  int64_t device_bytes = 0;

  bool operator==(const TablePlacement& other) const {
    return where == other.where && device_bytes == other.device_bytes;
  }
};

/// By the names of tables, or patterns of them: `*` stands for any letters or none, `?` for one. The first that fits a
/// table's name counts; a table that none fits is on the device.
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

/// The buckets of a device's cache, of such rows: those of a hash table that changes while it is read.
constexpr hash_table::BucketShape cache_shape(DType type, int64_t dim) {
  return hash_table::shape_of(hash_table::row_bytes(type, dim), true);
}
/// What a cache has at least: as many buckets as a hash table.
constexpr int64_t least_cache_bytes(DType type, int64_t dim) {
  return static_cast<int64_t>(hash_table::min_buckets) * cache_shape(type, dim).bucket_bytes;
}

}}  // namespace warprank::v0
