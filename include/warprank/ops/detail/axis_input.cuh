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

/// Finds rows of inputs on ancestors that serve rows of the output, by the lanes of a warp together.
class SegmentsOfLanes {
 public:
  /// Requests the number of segments and, of up to 65, all offsets: one trip to memory, also for several inputs.
  /// Nothing for inputs on the output's own axis, and on ancestors that have one row at most. All of a warp call.
  WARPRANK_DEVICE SegmentsOfLanes(const int64_t* offsets, const int64_t* num_segments, int64_t capacity)
      : is_searched_(offsets != nullptr && capacity > 1),
        is_own_(offsets == nullptr && capacity != 1),
        capacity_(capacity),
        count_(capacity),
        offsets_(offsets, is_searched_ ? capacity : 0) {
    if (is_searched_ && num_segments != nullptr) count_ = device::load_ahead(num_segments);
  }
  template <class Value>
  WARPRANK_DEVICE explicit SegmentsOfLanes(const AxisInput<Value>& input)
      : SegmentsOfLanes(input.offsets, input.num_segments, input.values.rows) {}

  /// The row that serves row n, which does not fall from lane to lane, from `first` to `last`. All of a warp call.
  WARPRANK_DEVICE int64_t row_serving(int64_t n, int64_t first, int64_t last) {
    if (!is_searched_) return is_own_ ? n : 0;
    device::use_from_here(count_);
    return offsets_.last_not_above(count_ < capacity_ ? count_ : capacity_, n, first, last);
  }

 private:
  bool is_searched_, is_own_;
  int64_t capacity_, count_;
  device::ListOfLanes offsets_;
};

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
