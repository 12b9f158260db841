// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which row of an input serves a row of the output, as a thread finds it and as a warp does.

#include <cstdint>

#include "warprank/core/host_device.hpp"
#include "warprank/core/unroll.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/axis_input.hpp"

namespace warprank { inline namespace v0 { namespace detail {

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

/// What is known of inputs before any row is: bit i is of input i.
struct InputRows {
  uint32_t own = 0;       ///< on the rows' own axis
  uint32_t many = 0;      ///< on an ancestor, with more than one row
  uint32_t searched = 0;  ///< of these all but those with the segments of the last ancestor's input before them
};
template <class Value>
InputRows rows_of_inputs(const AxisInput<Value>* inputs, int num_inputs) {
  InputRows rows;
  const AxisInput<Value>* before = nullptr;
  for (int i = 0; i < num_inputs; ++i) {
    const AxisInput<Value>& input = inputs[i];
    const uint32_t bit = 1u << i;
    if (!input.on_ancestor()) {
      rows.own |= bit;
      continue;
    }
    const bool is_repeated = before != nullptr && before->offsets == input.offsets &&
                             before->num_segments == input.num_segments && before->values.rows == input.values.rows;
    if (!serves_all(input)) rows.many |= bit, rows.searched |= is_repeated ? 0 : bit;
    before = &input;
  }
  return rows;
}

/// Rows that kernels with a warp for each row count in 32 bits, and whether the input's are among them.
inline constexpr int64_t max_rows_of_warps = int64_t{1} << 30;
template <class Value>
bool has_rows_for_warps(const AxisInput<Value>& input) {
  return input.values.rows > 0 && input.values.rows <= max_rows_of_warps && input.values.stride <= INT32_MAX;
}

/// Finds the rows of inputs that serve row n; all lanes of a warp call, and lane i gets that of input i. Nothing is
/// read for ancestors that have one row at most. Returns the first row behind n that another row of an ancestor serves,
/// at most `last`.
template <class Value>
WARPRANK_DEVICE int find_rows_serving(const AxisInput<Value>* inputs, const InputRows& rows, int n, int last,
                                      int& row_of_lane) {
  const int lane = device::lane_index();
  int end = last, row = 0;
  WARPRANK_ROLLED
  for (uint32_t rest = rows.searched; rest != 0; rest &= rest - 1) {
    const int i = device::first_bit(rest);
    const AxisInput<Value>& input = inputs[i];
    const int64_t found = device::warp_last_not_above(input.offsets, input.values.rows, input.num_segments, n);
    if (n + 1 < last) {
      const int64_t end_of_segment = device::load_ahead(&input.offsets[found + 1]);
      if (end_of_segment < end) end = static_cast<int>(end_of_segment);
    }
    if (lane >= i) row = static_cast<int>(found);
  }
  row_of_lane = (rows.many >> lane & 1) != 0 ? row : 0;
  return end > n ? end : n + 1;  // rows that no segment has are served by one that ends before them
}

}}}  // namespace warprank::v0::detail
