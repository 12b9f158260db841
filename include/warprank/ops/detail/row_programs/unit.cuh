// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of a program that a warp has at a time, and where the rows of inputs are that serve them.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/row_programs/descriptor.cuh"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

struct Storage {
  int64_t ancestor_rows[warps][max_ancestors][rows_per_unit_max];
};

/// What a warp works on.
template <class Source>
struct Unit {
  const Source& source;
  const float* const* addresses;  // of what learned vectors there are
  uint64_t address;               // of the learned vector that is the input of the lane's number
  const Program& program;
  const int64_t (*ancestor_rows)[rows_per_unit_max];  // [ancestor][row]
  int64_t first_row;
  int num_rows;         // that are read
  int64_t end_of_rows;  // behind the last that is stored
  int lanes_log2;       // of the program

  WARPRANK_DEVICE int lanes() const { return 1 << lanes_log2; }
  WARPRANK_DEVICE int rows_at_once_log2() const { return 5 - lanes_log2; }
  WARPRANK_DEVICE int rows_at_once() const { return 1 << rows_at_once_log2(); }
  WARPRANK_DEVICE int row_of_lane() const { return device::lane_index() >> lanes_log2; }
  WARPRANK_DEVICE int rank_of_lane() const { return device::lane_index() & (lanes() - 1); }

  /// Of an input, not of a learned vector.
  WARPRANK_DEVICE const unsigned char* row_of(const Input& input, int row) const {
    int64_t n = first_row + row;
    if (input.ancestor >= 0) n = ancestor_rows[input.ancestor][row];
    return input.data + n * input.row_bytes;
  }
  WARPRANK_DEVICE unsigned char* y_row(int row) const { return program.y + (first_row + row) * program.y_row_bytes; }
  WARPRANK_DEVICE bool is_stored(int row) const { return first_row + row < end_of_rows; }
};

/// Of each of `num_rows` rows, what row of each ancestor serves it. All of a warp call.
template <class Source>
WARPRANK_DEVICE void find_ancestors(const Source& source, uint32_t ancestors_at, int num_ancestors, int64_t first_row,
                                    int num_rows, int64_t (*rows)[rows_per_unit_max]) {
  const int lane = device::lane_index();
  if (num_ancestors == 0) return;
  const int64_t last = first_row + num_rows - 1, n = first_row + lane;
  device::sync_warp();  // the unit before is done with them
  for (int a = 0; a < num_ancestors; ++a) {
    const Ancestor& ancestor = source.template part<Ancestor>(ancestors_at, a);
    SegmentsOfLanes segments(ancestor.offsets, ancestor.num_segments, ancestor.max_segments);
    rows[a][lane] = segments.row_serving(n < last ? n : last, first_row, last);
  }
  device::sync_warp();
}

}}}  // namespace warprank::v0::detail::row_programs
