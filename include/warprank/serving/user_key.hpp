// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank { inline namespace v0 {

/// Names a user, a session, or whatever else requests have in common: any 128 bits that the caller chooses.
struct UserKey {
  uint64_t low = 0, high = 0;

  friend bool operator==(const UserKey& a, const UserKey& b) { return a.low == b.low && a.high == b.high; }
};

}}  // namespace warprank::v0
