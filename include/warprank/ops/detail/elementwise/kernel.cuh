// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/elementwise.cuh: a few lanes of a warp for each row. Where few rows are expected their number is
/// not waited for: rows behind it are read and not stored. So rows are one trip to memory from launch to store, with
/// inputs on ancestors of more than one row the second: counts and up to 65 offsets come before, together
/// (detail/common/axis_input.cuh). These alone say which row it is; a guess would be a load more for each input, and
/// right for the first segment only.

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/common/check_matrix.hpp"
#include "warprank/ops/detail/common/row_steps.cuh"

namespace warprank { inline namespace v0 { namespace detail::elementwise {

inline constexpr int threads = 128, min_blocks = 6;

/// The rows of a launch.
template <class Out>
struct Rows {
  Matrix<Out> y;
  const int64_t* num_rows;
  int64_t cols;      // of the function
  bool aligned;      // whether `row_vector_size` elements may be loaded and stored at once
  bool reads_ahead;  // rows behind the number of rows, when each warp has rows once
  int max_blocks;
};

/// The values of a row from a column on; y may be the input, so that this is no read-only load.
template <int VecSize, class Value>
WARPRANK_DEVICE void load_values(const Value* row, bool one_column, int64_t column, float (&values)[VecSize]) {
  if (one_column) {
    const float value = device::widen(device::load(row));
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) values[j] = value;
    return;
  }
  widen_values(device::load_vector<VecSize>(row + column), values);
}

/// The function with its inputs.
template <class Function, class Value, int NumInputs>
struct FunctionCall {
  static_assert(NumInputs > 0 && std::is_trivially_copyable_v<Function>);
  Function function;
  AxisInput<Value> inputs[NumInputs];

  struct Row {
    const Value* inputs[NumInputs];
  };
  /// Whole warps call, with rows that do not fall from lane to lane, from `first` to `last`.
  WARPRANK_DEVICE Row find(int64_t n, int64_t first, int64_t last) const {
    return find(n, first, last, std::make_index_sequence<NumInputs>());
  }
  template <int VecSize>
  WARPRANK_DEVICE void evaluate(const Row& row, int64_t column, float (&values)[VecSize]) const {
    float x[NumInputs][VecSize];
    WARPRANK_UNROLL
    for (int i = 0; i < NumInputs; ++i) load_values(row.inputs[i], inputs[i].values.cols == 1, column, x[i]);
    WARPRANK_UNROLL
    for (int j = 0; j < VecSize; ++j) values[j] = call(x, j, std::make_index_sequence<NumInputs>());
  }

 private:
  template <size_t... I>
  WARPRANK_DEVICE Row find(int64_t n, int64_t first, int64_t last, std::index_sequence<I...>) const {
    SegmentsOfLanes segments[] = {SegmentsOfLanes(inputs[I])...};  // all are requested before one is waited for
    return {{(inputs[I].values.data + segments[I].row_serving(n, first, last) * inputs[I].values.stride)...}};
  }
  template <int VecSize, size_t... I>
  WARPRANK_DEVICE float call(const float (&x)[NumInputs][VecSize], int j, std::index_sequence<I...>) const {
    return function(x[I][j]...);
  }
};

/// `lanes`, a power of two up to 32, share a row.
template <int VecSize, class Call, class Step, class Out>
WARPRANK_KERNEL(threads, min_blocks)
elementwise_kernel(const WARPRANK_GRID_CONSTANT Rows<Out> rows, const WARPRANK_GRID_CONSTANT Call call, Step step,
                   int lanes) {
  device::wait_for_previous_launch();
  // First used behind the rows' loads where that may be, and not to be loaded there: an ordered load stays here.
  using device::Order, device::Scope;
  int64_t end_of_rows = rows.y.rows;
  if (rows.num_rows != nullptr) end_of_rows = device::load<Order::relaxed, Scope::device>(rows.num_rows);
  int64_t end_of_reads = rows.y.rows;
  if (!rows.reads_ahead && end_of_rows < end_of_reads) end_of_reads = end_of_rows;

  const int rows_at_once = rows_of_warp(lanes);
  const int64_t warps_in_grid = device::num_threads() / device::warp_size;
  // All lanes of a warp leave the loop together: those of a row that is none help to find and to reduce.
  for (int64_t first = device::global_thread_rank() / device::warp_size * rows_at_once; first < end_of_reads;
       first += warps_in_grid * rows_at_once) {
    const int64_t n = first + row_in_warp(lanes), end = first + rows_at_once;
    const int64_t last = (end < end_of_reads ? end : end_of_reads) - 1;
    const RowLanes<VecSize> row{lanes, rank_in_row(lanes), rows.cols, n < end_of_reads};
    const typename Call::Row inputs = call.find(row.exists ? n : last, first, last);
    const auto evaluate = [&](int64_t column, float(&values)[VecSize]) {
      call.template evaluate<VecSize>(inputs, column, values);
    };
    Out* y = rows.y.data + n * rows.y.stride;
    const auto store = [&](int64_t column, const auto& values) {
      if (n < end_of_rows) store_values(y + column, values);
    };
    finish_row(step, row, evaluate, store, [&](float value) {
      const float result[1] = {value};
      store(0, result);
    });
  }
}

/// How many lanes share a row.
template <class Out>
int lanes_of(const Rows<Out>& rows) {
  return lanes_for(rows.aligned ? rows.cols / row_vector_size : rows.cols);
}

/// Throws invalid_argument for what does not fit together.
template <class Value, class Step, class Out>
Rows<Out> checked_rows(Span<const AxisInput<Value>> inputs, Matrix<Out> y, const Step& step, const int64_t* num_rows) {
  constexpr bool reduces = std::is_same_v<Step, ReduceRow>;
  Problems problems;
  check_matrix("elementwise: y", y, problems);
  check_row_step(step, "elementwise", problems);
  int64_t cols = reduces ? 0 : y.cols;
  if (reduces) {
    for (const AxisInput<Value>& input : inputs) cols = std::max(cols, input.values.cols);
    if (y.cols != 1) problems.add("elementwise: y", "1 column", std::to_string(y.cols));
  }
  Rows<Out> rows{y, num_rows, cols, cols % row_vector_size == 0 && (reduces || rows_are_aligned(y)), true, 0};
  for (int64_t i = 0; i < inputs.size(); ++i) {
    const AxisInput<Value>& input = inputs[i];
    const std::string what = "elementwise: input " + std::to_string(i);
    check_axis_input(what, input, input.values.rows == 1 ? 0 : y.rows, problems);
    if (input.values.cols != 1 && input.values.cols != cols) {
      problems.add(what, "1 or " + std::to_string(cols) + " columns", std::to_string(input.values.cols));
    }
    rows.aligned &= input.values.cols == 1 || rows_are_aligned(input.values);
  }
  problems.throw_if_any();
  const int64_t num_multiprocessors = device::num_multiprocessors();
  rows.max_blocks = static_cast<int>(num_multiprocessors) * min_blocks;
  // Many blocks without rows would read for nothing, and those with rows hide each other's latency.
  const int rows_per_block = threads / lanes_of(rows);
  rows.reads_ahead &= (y.rows + rows_per_block - 1) / rows_per_block <= num_multiprocessors;
  return rows;
}

template <class Call, class Step, class Out>
WARPRANK_HIDDEN void launch(const Rows<Out>& rows, const Call& call, Step step, device::Stream stream) {
  const int lanes = lanes_of(rows);
  const int64_t rows_per_block = threads / lanes;
  const int64_t blocks = (rows.y.rows + rows_per_block - 1) / rows_per_block;
  const device::LaunchConfig config(static_cast<unsigned>(std::min<int64_t>(blocks, rows.max_blocks)), threads, 0,
                                    stream);
  if (rows.aligned) {
    device::launch_overlapping(config, elementwise_kernel<row_vector_size, Call, Step, Out>, rows, call, step, lanes);
  } else {
    device::launch_overlapping(config, elementwise_kernel<1, Call, Step, Out>, rows, call, step, lanes);
  }
}

}}}  // namespace warprank::v0::detail::elementwise
