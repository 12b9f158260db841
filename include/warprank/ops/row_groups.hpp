// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows sorted by group, in device memory; scene_rows.cuh makes them from scenes.

#include <cstdint>

namespace warprank { inline namespace v0 {

/// The rows of group 0, of group 1, and so on; at last the rows of no group.
struct RowGroups {
  static constexpr int64_t max_groups = 64;

  const int32_t* rows = nullptr;  ///< [capacity]
  const int32_t* ends = nullptr;  ///< [num_groups + 1]: where each group ends in `rows`; last, the rows of no group
  int64_t num_groups = 0;         ///< 0: rows have no groups
};

}}  // namespace warprank::v0
