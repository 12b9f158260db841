// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which row of an input serves a row of the output.

#include <cstdint>

#include "warprank/device/memory.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/axis_input.hpp"

namespace warprank::detail {

/// The segment that has row n: the first that ends behind n. Rows that no segment has count as the last one's, or as
/// those of segment 0.
WARPRANK_DEVICE int64_t segment_of(const int64_t* offsets, int64_t num_segments, int64_t n) {
  int64_t low = 0, high = num_segments - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (device::load_read_only(&offsets[middle + 1]) > n) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// The row of the input that serves row n of the output.
template <class Value>
WARPRANK_DEVICE int64_t row_serving(const AxisInput<Value>& input, int64_t n) {
  if (input.offsets == nullptr) return n;
  return segment_of(input.offsets, device::true_count(input.num_segments, input.values.rows), n);
}

}  // namespace warprank::detail
