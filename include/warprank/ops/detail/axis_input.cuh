// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which row of an input serves a row of the output, as a thread finds it and as a warp does.

#include <cstdint>

#include "warprank/core/host_device.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
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

/// Bit i: the last input before i that is on an ancestor has the same segments as i.
template <class Value>
uint32_t repeated_segments(const AxisInput<Value>* inputs, int num_inputs) {
  uint32_t repeated = 0;
  const AxisInput<Value>* before = nullptr;
  for (int i = 0; i < num_inputs; ++i) {
    const AxisInput<Value>& input = inputs[i];
    if (!input.on_ancestor()) continue;
    if (before != nullptr && before->offsets == input.offsets && before->num_segments == input.num_segments &&
        before->values.rows == input.values.rows)
      repeated |= 1u << i;
    before = &input;
  }
  return repeated;
}

/// Finds the rows of inputs on ancestors that serve row n; all lanes of a warp call, and lane i keeps that of input i.
/// Nothing is read for ancestors that have one row at most. Returns the first row behind n that another row of an
/// ancestor serves, at most `last`.
template <class Value>
WARPRANK_DEVICE int64_t find_rows_serving(const AxisInput<Value>* inputs, int num_inputs, uint32_t repeated, int64_t n,
                                          int64_t last, int64_t& row_of_lane) {
  int64_t end = last, found = 0;
  for (int i = 0; i < num_inputs; ++i) {
    const AxisInput<Value>& input = inputs[i];
    if (input.offsets == nullptr) continue;
    if ((repeated >> i & 1) == 0) {
      found = 0;
      if (input.values.rows > 1) {
        found = device::warp_last_not_above(input.offsets, input.values.rows, input.num_segments, n);
        if (n + 1 < last) {
          const int64_t end_of_segment = device::load_ahead(&input.offsets[found + 1]);
          if (end_of_segment < end) end = end_of_segment;
        }
      }
    }
    if (device::lane_index() == i) row_of_lane = found;
  }
  return end > n ? end : n + 1;  // rows that no segment has are served by one that ends before them
}

}  // namespace warprank::detail
