// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which row of an input serves a row of the output.

#include <cstdint>

#include "warprank/device/memory.hpp"
#include "warprank/ops/axis_input.hpp"

namespace warprank::detail {

/// The count in device memory, at most the capacity; where there is none the capacity.
WARPRANK_DEVICE int64_t true_count(const int64_t* count, int64_t capacity) {
  if (count == nullptr) return capacity;
  const int64_t actual = device::load_read_only(count);
  return actual < capacity ? actual : capacity;
}

/// The row of the input that serves row n of the output: n, or the first segment that ends behind n. Rows that no
/// segment has are served by the last one, or by row 0.
template <class Value>
WARPRANK_DEVICE int64_t row_serving(const AxisInput<Value>& input, int64_t n) {
  if (input.offsets == nullptr) return n;
  int64_t low = 0, high = true_count(input.num_segments, input.values.rows) - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (device::load_read_only(&input.offsets[middle + 1]) > n) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace warprank::detail
