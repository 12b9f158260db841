// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// The number of elements in this launch: the count in device memory, at most the capacity; without a count, the
/// capacity.
WARPRANK_DEVICE int64_t true_count(const int64_t* count, int64_t capacity, Here here = Here::current()) {
  if (count == nullptr) return capacity;
  const int64_t actual = load_read_only(count, here);
  return actual < capacity ? actual : capacity;
}

}}}  // namespace warprank::v0::device
