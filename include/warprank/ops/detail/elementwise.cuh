// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/elementwise.cuh: a few lanes of a warp for each row.

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
#include "warprank/device/target.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/axis_input.cuh"
#include "warprank/ops/detail/check_matrix.hpp"
#include "warprank/ops/detail/row_steps.cuh"

namespace warprank::detail::elementwise {

inline constexpr int threads = 128, min_blocks = 6;

/// The rows of a launch.
template <class Out>
struct Rows {
  Matrix<Out> y;
  const int64_t* num_rows;
  int64_t cols;  // of the function
  bool aligned;  // whether `row_vector_size` elements may be loaded and stored at once
  int max_blocks;
};

/// The row of the input that serves row n; one row serves all.
template <class Value>
WARPRANK_DEVICE const Value* row_of(const AxisInput<Value>& input, int64_t n) {
  const bool serves_all = input.offsets == nullptr && input.values.rows == 1;
  return input.values.data + (serves_all ? 0 : row_serving(input, n)) * input.values.stride;
}

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
  WARPRANK_DEVICE Row find(int64_t n) const {
    Row row;
    WARPRANK_UNROLL
    for (int i = 0; i < NumInputs; ++i) row.inputs[i] = row_of(inputs[i], n);
    return row;
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
  template <int VecSize, size_t... I>
  WARPRANK_DEVICE float call(const float (&x)[NumInputs][VecSize], int j, std::index_sequence<I...>) const {
    return function(x[I][j]...);
  }
};

/// `lanes`, a power of two up to 32, share a row.
template <int VecSize, class Call, class Step, class Out>
WARPRANK_KERNEL(threads, min_blocks)
elementwise_kernel(Rows<Out> rows, Call call, Step step, int lanes) {
  const int64_t num_rows = device::true_count(rows.num_rows, rows.y.rows);
  const int64_t rows_in_grid = device::num_threads() / lanes;
  const int lane = device::lane_index();
  // All lanes of a warp leave the loop together: those of a row that is none help to reduce.
  for (int64_t n = device::global_thread_rank() / lanes; n - lane / lanes < num_rows; n += rows_in_grid) {
    const RowLanes<VecSize> row{lanes, lane % lanes, rows.cols, n < num_rows};
    typename Call::Row inputs{};
    if (row.exists) inputs = call.find(n);
    const auto evaluate = [&](int64_t column, float(&values)[VecSize]) {
      call.template evaluate<VecSize>(inputs, column, values);
    };
    Out* y = rows.y.data + n * rows.y.stride;
    finish_row(step, row, evaluate, [&](int64_t column, const auto& values) { store_values(y + column, values); });
  }
}

/// Throws invalid_argument for what does not fit together.
template <class Value, class Step, class Out>
Rows<Out> checked_rows(Span<const AxisInput<Value>> inputs, Matrix<Out> y, const Step& step, const int64_t* num_rows) {
  constexpr bool reduces = std::is_same_v<Step, ReduceRow>;
  Problems problems;
  check_matrix("elementwise: y", y, problems);
  check_step(step, "elementwise", problems);
  int64_t cols = reduces ? 0 : y.cols;
  if (reduces) {
    for (const AxisInput<Value>& input : inputs) cols = std::max(cols, input.values.cols);
    if (y.cols != 1) problems.add("elementwise: y", "1 column", std::to_string(y.cols));
  }
  Rows<Out> rows{y, num_rows, cols, cols % row_vector_size == 0 && (reduces || rows_are_aligned(y)), 0};
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
  rows.max_blocks = device::num_multiprocessors() * min_blocks;
  return rows;
}

template <class Call, class Step, class Out>
WARPRANK_HIDDEN void launch(const Rows<Out>& rows, const Call& call, Step step, device::Stream stream) {
  const int64_t vectors = rows.aligned ? rows.cols / row_vector_size : rows.cols;
  const int lanes = lanes_for(vectors);
  const int64_t rows_per_block = threads / lanes;
  const int64_t blocks = (rows.y.rows + rows_per_block - 1) / rows_per_block;
  const device::LaunchConfig config(static_cast<unsigned>(std::min<int64_t>(blocks, rows.max_blocks)), threads, 0,
                                    stream);
  if (rows.aligned) {
    device::launch(config, elementwise_kernel<row_vector_size, Call, Step, Out>, rows, call, step, lanes);
  } else {
    device::launch(config, elementwise_kernel<1, Call, Step, Out>, rows, call, step, lanes);
  }
}

}  // namespace warprank::detail::elementwise
