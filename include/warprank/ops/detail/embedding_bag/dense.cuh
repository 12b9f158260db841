// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of a dense input, copied out of requests into columns of y. A request's rows lie end to end: a warp loads
/// windows of consecutive elements, from the beginning of a sector on, whatever rows they are of, and stores them row
/// by row, so that neither side touches a sector much more than once.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/embedding_bag/descriptor.hpp"
#include "warprank/ops/detail/embedding_bag/ids.cuh"
#include "warprank/ops/detail/embedding_bag/work.cuh"

namespace warprank::detail::embedding_bag {

WARPRANK_DEVICE void store_element(const Descriptor& f, int64_t row, int column, float value) {
  const int64_t at = row * f.y_stride + column;
  if (f.y_is_half) {
    device::store(reinterpret_cast<half*>(f.y) + at, device::narrow<half>(value));
  } else {
    device::store(reinterpret_cast<float*>(f.y) + at, value);
  }
}

/// Loads elements [begin, end) of the unit's rows, at most a window; there are none before 0.
WARPRANK_DEVICE void load_window(const Descriptor& f, WarpWork::Dense& dense, int begin, int end) {
  constexpr int loads = WarpWork::Dense::window / device::warp_size;
  const int width = static_cast<int>(f.dim);
  float values[loads] = {};
  WARPRANK_UNROLL
  for (int i = 0; i < loads; ++i) {
    const int first = begin + i * device::warp_size, e = first + device::lane_index();
    if (first >= end) break;
    const int known = e < 0 ? 0 : e < end ? e : end - 1;  // the same sector as a neighbour's
    const float* row = dense.rows[known / width];
    values[i] = row == nullptr ? f.default_value : device::load_read_only(row + known % width);
  }
  WARPRANK_UNROLL
  for (int i = 0; i < loads; ++i) dense.values[i * device::warp_size + device::lane_index()] = values[i];
}

/// Stores what load_window has loaded; as many rows at once as the lanes are enough for.
WARPRANK_DEVICE void store_window(const Descriptor& f, const WarpWork& work, int begin, int end) {
  const int width = static_cast<int>(f.dim), first = begin < 0 ? 0 : begin;
  const int lanes_per_row = width < device::warp_size ? width : device::warp_size;
  const int rows_at_once = device::warp_size / lanes_per_row;
  const int row_of_lane = device::lane_index() / lanes_per_row;
  if (row_of_lane >= rows_at_once) return;
  for (int row = first / width + row_of_lane; row * width < end; row += rows_at_once) {
    const int before = first - row * width,
              rest = end - row * width;  // columns of other windows, and those up to its end
    const int from = before > 0 ? before / lanes_per_row * lanes_per_row : 0, to = rest < width ? rest : width;
    for (int column = from + device::lane_index() % lanes_per_row; column < to; column += lanes_per_row) {
      if (column >= before) {
        store_element(f, work.first + row, column, work.dense.values[row * width + column - begin]);
      }
    }
  }
}

/// Copies the rows that `work` names. All lanes of the warp call.
WARPRANK_DEVICE void copy_dense_rows(const Descriptor& f, WarpWork& work) {
  using namespace device;  // NOLINT: a device function
  const int lane = lane_index();
  const float* row = lane < work.num_bags ? find_dense_row(f, work.first + lane) : nullptr;
  work.dense.rows[lane] = row;
  constexpr uintptr_t sector = 32;
  const uintptr_t first = reinterpret_cast<uintptr_t>(shuffle(full_warp, row, 0));
  const int skew = static_cast<int>(first % sector / sizeof(float));
  const int count = work.num_bags * static_cast<int>(f.dim);
  sync_warp();
  for (int begin = -skew; begin < count; begin += WarpWork::Dense::window) {
    const int rest = count - begin, end = begin + (rest < WarpWork::Dense::window ? rest : WarpWork::Dense::window);
    load_window(f, work.dense, begin, end);
    sync_warp();
    store_window(f, work, begin, end);
    sync_warp();
  }
}

}  // namespace warprank::detail::embedding_bag
