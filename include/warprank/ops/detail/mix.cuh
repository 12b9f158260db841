// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mix.cuh: a few lanes of a warp for each row, a row of blocks for each task.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/activation.cuh"
#include "warprank/ops/detail/axis_input.cuh"
#include "warprank/ops/detail/row_lanes.cuh"

namespace warprank::detail::mix {

inline constexpr int max_tasks = 8;
inline constexpr int threads = 128, min_blocks = 8;

template <class Value, class Out>
struct Task {
  AxisInput<Value> experts, gate;
  Matrix<Out> y;
  Normalization normalization;
  bool aligned;  // whether `row_vector_size` elements may be loaded and stored at once
  int lanes;     // of a row
};

/// What the kernel is given, by value.
template <class Value, class Out>
struct Arguments {
  Task<Value, Out> tasks[max_tasks];
  int num_tasks;
  int64_t max_rows;
  const int64_t* num_rows;
};

/// The largest logit of a row and, around it, the sum of the exponentials.
struct SoftmaxOfGate {
  float top, total;
};

template <class Value>
WARPRANK_DEVICE SoftmaxOfGate softmax_of(const Value* gate, const RowLanes<1>& row) {
  float top = minus_infinity, total = 0;
  row.for_each([&](int64_t e) { top = max_or_nan(top, device::widen(device::load_read_only(gate + e))); });
  top = row.combine(top, max_or_nan);
  row.for_each([&](int64_t e) { total += std::exp(device::widen(device::load_read_only(gate + e)) - top); });
  return {top, row.sum(total)};
}

/// The mixture of `VecSize` columns from `column` on.
template <int VecSize, class Value, class Out>
WARPRANK_DEVICE void mix_columns(const Task<Value, Out>& task, const Value* experts, const Value* gate,
                                 const SoftmaxOfGate& softmax, int64_t column, float (&sums)[VecSize]) {
  const int64_t num_experts = task.gate.values.cols, dim = task.y.cols;
  for (int64_t e = 0; e < num_experts; ++e) {
    float weight = device::widen(device::load_read_only(gate + e));
    if (task.normalization == Normalization::softmax) weight = std::exp(weight - softmax.top);
    if (task.normalization == Normalization::sigmoid) weight = sigmoid_of(weight);
    float values[VecSize];
    widen_values(device::load_vector_read_only<VecSize>(experts + e * dim + column), values);
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) sums[j] += weight * values[j];
  }
  if (task.normalization != Normalization::softmax) return;
  WARPRANK_UNROLL
  for (int j = 0; j < VecSize; ++j) sums[j] /= softmax.total;
}

template <int VecSize, class Value, class Out>
WARPRANK_DEVICE void mix_rows(const Task<Value, Out>& task, int64_t num_rows) {
  const int lanes = task.lanes;
  const int64_t rows_in_grid = device::num_threads() / lanes;
  const int lane = device::lane_index();
  // All lanes of a warp leave the loop together: those of a row that is none help to sum.
  for (int64_t n = device::global_thread_rank() / lanes; n - lane / lanes < num_rows; n += rows_in_grid) {
    const bool exists = n < num_rows;
    const int64_t some_row = exists ? n : 0;
    const Value* experts = task.experts.values.data + row_serving(task.experts, some_row) * task.experts.values.stride;
    const Value* gate = task.gate.values.data + row_serving(task.gate, some_row) * task.gate.values.stride;
    SoftmaxOfGate softmax{0, 1};
    if (task.normalization == Normalization::softmax) {
      softmax = softmax_of(gate, RowLanes<1>{lanes, lane % lanes, task.gate.values.cols, exists});
    }
    const RowLanes<VecSize> row{lanes, lane % lanes, task.y.cols, exists};
    row.for_each([&](int64_t column) {
      float sums[VecSize] = {};
      mix_columns(task, experts, gate, softmax, column, sums);
      store_values(task.y.data + n * task.y.stride + column, sums);
    });
  }
}

template <class Value, class Out>
WARPRANK_KERNEL(threads, min_blocks)
mix_kernel(Arguments<Value, Out> arguments) {
  const Task<Value, Out>& task = arguments.tasks[device::block_index().y];
  const int64_t num_rows = device::true_count(arguments.num_rows, arguments.max_rows);
  if (task.aligned) {
    mix_rows<row_vector_size>(task, num_rows);
  } else {
    mix_rows<1>(task, num_rows);
  }
}

/// A valid task as the kernel takes it.
template <class Value, class Out>
Task<Value, Out> describe(const AxisInput<Value>& experts, const AxisInput<Value>& gate, Matrix<Out> y,
                          Normalization normalization) {
  const bool aligned = y.cols % row_vector_size == 0 && rows_are_aligned(y) && rows_are_aligned(experts.values);
  return {experts, gate, y, normalization, aligned, lanes_for(aligned ? y.cols / row_vector_size : y.cols)};
}

template <class Value, class Out>
WARPRANK_HIDDEN void launch(const Arguments<Value, Out>& arguments, int max_blocks, device::Stream stream) {
  int64_t blocks = 0;
  for (int i = 0; i < arguments.num_tasks; ++i) {
    const Task<Value, Out>& task = arguments.tasks[i];
    if (task.y.cols == 0) continue;
    const int64_t rows_per_block = threads / task.lanes;
    blocks = std::max(blocks, (arguments.max_rows + rows_per_block - 1) / rows_per_block);
  }
  const device::LaunchConfig config(
      {static_cast<unsigned>(std::min<int64_t>(blocks, max_blocks)), static_cast<unsigned>(arguments.num_tasks)},
      threads, 0, stream);
  device::launch(config, mix_kernel<Value, Out>, arguments);
}

}  // namespace warprank::detail::mix
