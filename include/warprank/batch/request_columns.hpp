// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arguments of Batch::add_requests.

#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/batch/layout.hpp"
#include "warprank/batch/values.hpp"

namespace warprank { inline namespace v0 {

/// Values of many requests that have no rows but their one row of the outermost axis, by input: request i has the i-th
/// value, or row, of each. Views: their containers outlive the call, which braced lists do not.
struct RequestColumns {
  std::vector<std::pair<IdsSlot, Values<int64_t>>> ids;    ///< [requests]
  std::vector<std::pair<DenseSlot, Values<float>>> dense;  ///< [requests, width], row-major
};

}}  // namespace warprank::v0
