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
  uint64_t number = 0;          ///< no other states of the process have it, but for 0: DeviceStates does not keep these
};

/// Where values of a user's states are in a blob of the items' plan.
struct StateSection {
  int64_t in_states = 0, in_blob = 0;  ///< where they begin, in bytes: multiples of 8
  int64_t bytes = 0;                   ///< a multiple of 8
};

}}  // namespace warprank::v0
