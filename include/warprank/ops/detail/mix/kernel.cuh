// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mix.cuh: a few lanes of a warp for each row, a row of blocks for each task. A lane makes the
/// weight of one expert, and has those of the others from as many neighbours as there are experts. The gate and columns
/// of the first four experts are requested together, where few rows are expected beside the number of rows: one trip to
/// memory from launch to store, with inputs on ancestors of more than one row two (detail/common/axis_input.cuh), and
/// one more for each four experts.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "warprank/core/view.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/common/axis_input.cuh"
#include "warprank/ops/detail/common/row_lanes.cuh"

namespace warprank { inline namespace v0 { namespace detail::mix {

inline constexpr int max_tasks = 8;
inline constexpr int threads = 128, min_blocks = 5;
inline constexpr int experts_in_flight = 4;  // of a lane

template <class Value, class Out>
struct Task {
  AxisInput<Value> experts, gate;
  Matrix<Out> y;
  Normalization normalization;
  bool aligned;    // whether `row_vector_size` elements may be loaded and stored at once
  int lanes;       // of a row
  int gate_lanes;  // neighbours that make its weights, as others do of the same row
};

/// What the kernel is given, by value.
template <class Value, class Out>
struct Arguments {
  Task<Value, Out> tasks[max_tasks];
  int num_tasks;
  int64_t max_rows;
  const int64_t* num_rows;
  bool reads_ahead;  // rows behind the number of rows, when each warp has rows once
};

/// The largest logit of a row and, around it, the sum of the exponentials.
struct SoftmaxOfGate {
  float top, total;
};

/// The gate of a row. Its lanes have an expert each at a time, of the first ones the logits in hand.
template <class Value>
struct Gate {
  const Value* logits;
  RowLanes<1> lanes;  // over experts
  float first_logit;  // of the caller's first expert

  WARPRANK_DEVICE Gate(const Value* logits, const RowLanes<1>& lanes) : logits(logits), lanes(lanes), first_logit(0) {
    if (lanes.rank < lanes.cols) first_logit = device::widen(device::load_read_only(logits + lanes.rank));
  }
  WARPRANK_DEVICE float logit(int64_t e) const {
    return e == lanes.rank ? first_logit : device::widen(device::load_read_only(logits + e));
  }
  WARPRANK_DEVICE SoftmaxOfGate softmax() const {
    float top = minus_infinity, total = 0;
    lanes.for_each([&](int64_t e) { top = max_or_nan(top, logit(e)); });
    top = combine_lanes(lanes.lanes, top, max_or_nan);
    lanes.for_each([&](int64_t e) { total += std::exp(logit(e) - top); });
    return {top, lanes.sum(total)};
  }
  /// Of an expert; 0 of none.
  WARPRANK_DEVICE float weight(Normalization normalization, const SoftmaxOfGate& softmax, int64_t e) const {
    if (e >= lanes.cols) return 0;
    const float value = logit(e);
    if (normalization == Normalization::softmax) return std::exp(value - softmax.top);
    return normalization == Normalization::sigmoid ? sigmoid_of(value) : value;
  }
};

/// Columns of some neighbouring experts.
template <int VecSize, class Value>
struct Columns {
  device::Vector<Value, VecSize> of_expert[experts_in_flight];

  /// Of `count` experts, but at most as many as there is room for.
  WARPRANK_DEVICE void load(const Value* first, int64_t dim, int64_t count) {
    WARPRANK_UNROLL
    for (int i = 0; i < experts_in_flight; ++i) {
      if (i < count) of_expert[i] = device::load_vector_read_only<VecSize>(first + i * dim);
    }
  }
};

/// Rows of one task. All lanes of a warp do the same together: those without a row have the last, those without a
/// column add nothing, and neither is stored.
template <int VecSize, class Value, class Out>
WARPRANK_DEVICE void mix_rows(const Task<Value, Out>& task, int64_t end_of_reads, int64_t end_of_rows) {
  const int64_t num_experts = task.gate.values.cols, dim = task.y.cols;
  const int lanes = task.lanes, rank = rank_in_row(lanes), rows_at_once = rows_of_warp(lanes);
  const int64_t warps_in_grid = device::num_threads() / device::warp_size;
  for (int64_t first = device::global_thread_rank() / device::warp_size * rows_at_once; first < end_of_reads;
       first += warps_in_grid * rows_at_once) {
    const int64_t n = first + row_in_warp(lanes);
    const int64_t end = first + rows_at_once, last = (end < end_of_reads ? end : end_of_reads) - 1;
    SegmentsOfLanes of_experts(task.experts), of_gate(task.gate);
    const auto row_in = [&](SegmentsOfLanes& segments) {
      return segments.row_serving(n < last ? n : last, first, last);
    };
    const Value* experts = task.experts.values.data + row_in(of_experts) * task.experts.values.stride;
    const Gate<Value> gate(task.gate.values.data + row_in(of_gate) * task.gate.values.stride,
                           RowLanes<1>{task.gate_lanes, rank & (task.gate_lanes - 1), num_experts, true});
    const int64_t first_column = int64_t{rank} * VecSize;
    Columns<VecSize, Value> columns;
    columns.load(experts + first_column, dim, first_column < dim ? num_experts : 0);
    SoftmaxOfGate softmax{0, 1};
    if (task.normalization == Normalization::softmax) softmax = gate.softmax();
    // Of the caller's expert among the next of a row.
    float weight = gate.weight(task.normalization, softmax, gate.lanes.rank);

    for (int64_t column = first_column; column - first_column < dim; column += int64_t{lanes} * VecSize) {
      float sums[VecSize] = {};
      for (int64_t e = 0; e < num_experts; e += experts_in_flight) {
        const int in_weights = static_cast<int>(e) & (task.gate_lanes - 1);
        if (in_weights == 0 && num_experts > task.gate_lanes)
          weight = gate.weight(task.normalization, softmax, e + gate.lanes.rank);
        if (e > 0 || column > first_column) {
          columns.load(experts + e * dim + column, dim, column < dim ? num_experts - e : 0);
        }
        WARPRANK_UNROLL
        for (int i = 0; i < experts_in_flight; ++i) {
          const float its_weight = device::shuffle(device::full_warp, weight, in_weights + i, task.gate_lanes);
          if (e + i >= num_experts || column >= dim) continue;
          float values[VecSize];
          widen_values(columns.of_expert[i], values);
          WARPRANK_UNROLL
          for (int j = 0; j < VecSize; ++j) sums[j] += its_weight * values[j];
        }
      }
      if (n >= end_of_rows || n >= end_of_reads || column >= dim) continue;
      WARPRANK_UNROLL
      for (int j = 0; j < VecSize; ++j)
        sums[j] = task.normalization == Normalization::softmax ? sums[j] / softmax.total : sums[j];
      store_values(task.y.data + n * task.y.stride + column, sums);
    }
  }
}

template <class Value, class Out>
WARPRANK_KERNEL(threads, min_blocks)
mix_kernel(const WARPRANK_GRID_CONSTANT Arguments<Value, Out> arguments) {
  const Task<Value, Out>& task = arguments.tasks[device::block_index().y];
  device::wait_for_previous_launch();
  // First used behind the rows' loads where that may be, and not to be loaded there: an ordered load stays here.
  using device::Order, device::Scope;
  int64_t end_of_rows = arguments.max_rows;
  if (arguments.num_rows != nullptr) end_of_rows = device::load<Order::relaxed, Scope::device>(arguments.num_rows);
  int64_t end_of_reads = arguments.max_rows;
  if (!arguments.reads_ahead && end_of_rows < end_of_reads) end_of_reads = end_of_rows;
  if (task.aligned) {
    mix_rows<row_vector_size>(task, end_of_reads, end_of_rows);
  } else {
    mix_rows<1>(task, end_of_reads, end_of_rows);
  }
}

/// A valid task as the kernel takes it.
template <class Value, class Out>
Task<Value, Out> describe(const AxisInput<Value>& experts, const AxisInput<Value>& gate, Matrix<Out> y,
                          Normalization normalization) {
  const bool aligned = y.cols % row_vector_size == 0 && rows_are_aligned(y) && rows_are_aligned(experts.values);
  const int lanes = std::max(lanes_for(aligned ? y.cols / row_vector_size : y.cols), experts_in_flight);
  const int gate_lanes = std::min(lanes, std::max(lanes_for(gate.values.cols), experts_in_flight));
  return {experts, gate, y, normalization, aligned, lanes, gate_lanes};
}

/// Blocks of a task that has the most.
template <class Value, class Out>
int64_t num_blocks(const Arguments<Value, Out>& arguments) {
  int64_t blocks = 0;
  for (int i = 0; i < arguments.num_tasks; ++i) {
    const Task<Value, Out>& task = arguments.tasks[i];
    if (task.y.cols == 0) continue;
    const int64_t rows_per_block = threads / task.lanes;
    blocks = std::max(blocks, (arguments.max_rows + rows_per_block - 1) / rows_per_block);
  }
  return blocks;
}

/// Whether rows behind the number of rows are read: where there are a few blocks, not to wait for the number. Many
/// would read for nothing, and those with rows hide each other's latency.
template <class Value, class Out>
bool can_read_ahead(const Arguments<Value, Out>& arguments, int64_t num_multiprocessors) {
  return arguments.num_rows != nullptr && num_blocks(arguments) * arguments.num_tasks <= num_multiprocessors;
}

template <class Value, class Out>
WARPRANK_HIDDEN void launch(const Arguments<Value, Out>& arguments, int max_blocks, device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_MIX)
template <class Value, class Out>
void launch(const Arguments<Value, Out>& arguments, int max_blocks, device::Stream stream) {
  const int64_t blocks = num_blocks(arguments);
  const device::LaunchConfig config(
      {static_cast<unsigned>(std::min<int64_t>(blocks, max_blocks)), static_cast<unsigned>(arguments.num_tasks)},
      threads, 0, stream);
  device::launch_overlapping(config, mix_kernel<Value, Out>, arguments);
}
#endif
#if defined(WARPRANK_KERNELS_OF_MIX)
template void launch(const Arguments<float16, float>& arguments, int max_blocks, device::Stream stream);
template void launch(const Arguments<float16, float16>& arguments, int max_blocks, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::mix
