// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank { inline namespace v0 {

/// How many there are: at most `capacity`, and as many as device memory says when a launch runs.
struct DeviceCount {
  int64_t capacity = 0;
  const int64_t* actual = nullptr;  ///< device; null: always the capacity. Never more than the capacity
};

}}  // namespace warprank::v0
