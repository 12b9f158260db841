// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which row of an input serves a row of the output.

#include <cstdint>

#include "warprank/core/host_device.hpp"
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

/// Whether all rows of the output have the same one.
template <class Value>
constexpr WARPRANK_HOST_DEVICE bool serves_all(const AxisInput<Value>& input) {
  return input.values.rows == 1;
}

/// The rows of several inputs that serve row n of the output. All of a warp call, with rows that do not fall from lane
/// to lane: they find segments together, of all inputs with two loads that depend on one another up to 33 segments.
template <class Value, int NumInputs>
WARPRANK_DEVICE void rows_serving(const AxisInput<Value> (&inputs)[NumInputs], int64_t n, int64_t (&rows)[NumInputs]) {
  WARPRANK_UNROLL
  for (int i = 0; i < NumInputs; ++i) {
    const bool is_searched = inputs[i].offsets != nullptr && !serves_all(inputs[i]);
    rows[i] = is_searched ? device::true_count(inputs[i].num_segments, inputs[i].values.rows) : 0;
  }
  WARPRANK_UNROLL
  for (int i = 0; i < NumInputs; ++i) {
    if (serves_all(inputs[i])) continue;
    rows[i] = inputs[i].offsets == nullptr ? n : device::last_not_above_of_lanes(inputs[i].offsets, rows[i], n);
  }
}

}  // namespace warprank::detail
