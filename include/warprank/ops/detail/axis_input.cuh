// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which row of an input serves a row of the output.

#include <cstdint>

#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/axis_input.hpp"

namespace warprank::detail {

/// The row of the input that serves row n of the output.
template <class Value>
WARPRANK_DEVICE int64_t row_serving(const AxisInput<Value>& input, int64_t n) {
  if (input.offsets == nullptr) return n;
  return device::last_not_above(input.offsets, device::true_count(input.num_segments, input.values.rows), n);
}

}  // namespace warprank::detail
