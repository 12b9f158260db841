// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arguments of Batch::add_requests.

#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/batch/layout.hpp"
#include "warprank/batch/values.hpp"

namespace warprank { inline namespace v0 {

/// Values of many requests by input, those of each request behind those of the one before. Views: their containers
/// outlive the call, which braced lists do not.
struct RequestColumns {
  std::vector<std::pair<IdsSlot, Values<int64_t>>> ids;    ///< [rows of the axis in all requests]
  std::vector<std::pair<DenseSlot, Values<float>>> dense;  ///< [rows, width], row-major
  /// Of each axis but the outermost that has rows: where those of each row of its parent begin, and where the last end:
  /// [parent rows + 1], never decreasing. Columns begin with the row of the first, which is not 0 in a part of longer
  /// columns.
  std::vector<std::pair<AxisSlot, Offsets>> offsets = {};
};

}}  // namespace warprank::v0
