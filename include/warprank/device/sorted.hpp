// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Binary searches in sorted lists in device memory that no thread of the launch writes, as one thread does them.

#include <cstdint>

#include "warprank/device/memory.hpp"

namespace warprank::device {

/// The last i of [0, count) with sorted[i] <= value, or 0 where there is none. So of segments by their offsets the one
/// that has row `value`; rows behind all segments count as the last one's.
template <class Value>
WARPRANK_DEVICE int64_t last_not_above(const Value* sorted, int64_t count, int64_t value, Here here = Here::current()) {
  int64_t begin = 0;
  for (int64_t end = count; end - begin > 1;) {
    const int64_t middle = begin + (end - begin) / 2;
    if (static_cast<int64_t>(load_read_only(&sorted[middle], here)) <= value) {
      begin = middle;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// The first i of [0, count] that is `count` or has sorted[i] >= value.
WARPRANK_DEVICE int64_t first_not_below(const int64_t* sorted, int64_t count, int64_t value,
                                        Here here = Here::current()) {
  int64_t begin = 0;
  for (int64_t end = count; begin < end;) {
    const int64_t middle = begin + (end - begin) / 2;
    if (load_read_only(&sorted[middle], here) < value) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace warprank::device
