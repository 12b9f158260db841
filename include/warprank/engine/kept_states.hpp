// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace warprank { inline namespace v0 {

/// All that the items' side of a divided plan reads of one user.
struct KeptStates {
  std::vector<std::byte> blob;  ///< of the layout DividedPlan::kept_states
  uint64_t side = 0;            ///< DividedRequests::hash of the user's side that they were computed from
};

}}  // namespace warprank::v0
