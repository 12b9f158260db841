// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What scene_rows.cuh reads scenes from.

#include <cstdint>
#include <variant>

#include "warprank/ops/bag_feature.hpp"

namespace warprank { inline namespace v0 {

/// Which scene each row is of. All pointers are to device memory that outlives the launches.
struct SceneIds {
  std::variant<const int64_t*, BlobIds> ids;  ///< an array, or those of requests, with no parent
  DeviceCount num_ids;                        ///< of those of requests only the capacity counts
  /// [num_ids.capacity + 1]: id i is of rows [offsets[i], offsets[i + 1]); null: of row i. Those behind the last id's
  /// end may be anything, but are read.
  const int64_t* offsets = nullptr;
  LookupCounters* counters = nullptr;  ///< adds to `ids` and `out_of_range`; null: none
};

}}  // namespace warprank::v0
