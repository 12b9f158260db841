// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows by the group that each goes through, in device memory: what scene_rows.cuh makes of scenes.

#include <cstdint>

namespace warprank { inline namespace v0 {

/// Rows of group 0, of group 1, and so on, at last those of no group.
struct RowGroups {
  static constexpr int64_t max_groups = 64;

  const int32_t* rows = nullptr;  ///< [capacity]
  const int32_t* ends = nullptr;  ///< [num_groups + 1]: where those of a group end in `rows`, and those of none
  int64_t num_groups = 0;         ///< 0: rows have no groups
};

}}  // namespace warprank::v0
