// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace warprank { inline namespace v0 {

/// A number that is at most `capacity`, and is read in device memory when a launch runs.
struct DeviceCount {
  int64_t capacity = 0;
  const int64_t* actual = nullptr;  ///< device; null: always the capacity. Never more than the capacity
};

}}  // namespace warprank::v0
