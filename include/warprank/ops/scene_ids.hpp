// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scene ids that scene_rows.cuh reads.

#include <cstdint>
#include <variant>

#include "warprank/ops/bag_feature.hpp"

namespace warprank { inline namespace v0 {

/// The scene of each row. All pointers are to device memory that outlives the launches.
struct SceneIds {
  std::variant<const int64_t*, BlobIds> ids;  ///< an array, or ids in requests, without a parent
  DeviceCount num_ids;                        ///< for ids in requests only its capacity is used
  /// [num_ids.capacity + 1]: id i is the scene of rows [offsets[i], offsets[i + 1]); null: of row i. Offsets behind the
  /// last id's end may have any value, but are read.
  const int64_t* offsets = nullptr;
  LookupCounters* counters = nullptr;  ///< adds to `ids` and `out_of_range`; null: none
};

}}  // namespace warprank::v0
