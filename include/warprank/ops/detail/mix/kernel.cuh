// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mix.cuh: a few lanes of a warp for each row, a row of blocks for each task. A lane has some
/// columns, 16 bytes of an expert where rows and D allow. It also makes the weight of one expert, and has those of the
/// others from as many neighbours as there are experts. The gate and columns of the first four experts are requested
/// together, where few rows are expected beside the number of rows: one trip to memory from launch to store, with
/// inputs on ancestors of more than one row two (detail/common/axis_input.cuh), and one more for each four experts.

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
inline constexpr int64_t max_columns = int64_t{1} << 30;  // of all experts: counted in 32 bits
inline constexpr int threads = 128, min_blocks = 5;
inline constexpr int experts_in_flight = 4;  // of a lane

template <class Value, class Out>
struct Task {
  AxisInput<Value> experts, gate;
  Matrix<const Value> multiply, residual;
  Matrix<Out> y;
  Normalization normalization;
  bool aligned;    // whether 16 bytes of inputs and as many columns of y may be loaded and stored at once
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

/// The weights of a row. Its lanes have an expert each at a time, of the first ones the logits in hand. All lanes of a
/// warp call.
template <class Value>
class Gate {
 public:
  WARPRANK_DEVICE Gate(const Value* logits, int num_experts, int lanes)
      : logits_(logits),
        num_experts_(num_experts),
        lanes_(lanes),
        rank_(device::lane_index() & (lanes - 1)),
        first_(rank_ < num_experts ? logit(rank_) : minus_infinity) {}
  WARPRANK_DEVICE int lanes() const { return lanes_; }

  /// Of the caller's first expert, 0 of none. Softmax looks at all logits here.
  WARPRANK_DEVICE float first_weight(Normalization normalization) {
    if (normalization == Normalization::softmax) {
      top_ = first_;
      for_each_behind([&](float logit) { top_ = max_or_nan(top_, logit); });
      top_ = combine_lanes(lanes_, top_, max_or_nan);
      first_ = std::exp(first_ - top_);
      float total = first_;
      for_each_behind([&](float logit) { total += std::exp(logit - top_); });
      share_ = 1 / combine_lanes(lanes_, total, [](float a, float b) { return a + b; });
      return first_ * share_;
    }
    return rank_ < num_experts_ ? of_logit(normalization, first_) : 0;
  }
  /// Of the caller's expert among as many as there are lanes, from `first` on, behind those.
  WARPRANK_DEVICE float weight(Normalization normalization, int first) const {
    const int e = first + rank_;
    return e < num_experts_ ? of_logit(normalization, logit(e)) : 0;
  }

 private:
  WARPRANK_DEVICE float logit(int e) const { return device::widen(device::load_read_only(logits_ + e)); }
  template <class Function>
  WARPRANK_DEVICE void for_each_behind(Function f) const {
    WARPRANK_ROLLED
    for (int e = rank_ + lanes_; e < num_experts_; e += lanes_) f(logit(e));
  }
  WARPRANK_DEVICE float of_logit(Normalization normalization, float logit) const {
    if (normalization == Normalization::softmax) return std::exp(logit - top_) * share_;
    return normalization == Normalization::sigmoid ? sigmoid_of(logit) : logit;
  }

  const Value* logits_;
  int num_experts_, lanes_, rank_;
  float first_, top_ = 0, share_ = 1;
};

/// Some columns of a row: neighbours, which one load has, or each as far from the next as there are lanes.
template <class Value, bool kNeighbours>
struct ColumnsOfLane {
  static constexpr int count = kNeighbours ? 16 / static_cast<int>(sizeof(Value)) : 4;
  using Vector = device::Vector<Value, count>;

  int first, step, dim;

  WARPRANK_DEVICE ColumnsOfLane(int base, int lanes, int rank, int dim)
      : first(base + (kNeighbours ? rank * count : rank)), step(kNeighbours ? 1 : lanes), dim(dim) {}
  WARPRANK_DEVICE bool has(int i) const { return first + i * step < dim; }

  /// Columns that do not exist are others.
  WARPRANK_DEVICE Vector load(const Value* row) const {
    if constexpr (kNeighbours) {
      return device::load_vector_read_only<count>(row + (has(0) ? first : 0));
    } else {
      Vector values;
      WARPRANK_UNROLL
      for (int i = 0; i < count; ++i) values[i] = device::load_read_only(row + (has(i) ? first + i * step : 0));
      return values;
    }
  }
  template <class Out>
  WARPRANK_DEVICE void store(Out* row, const float (&values)[count]) const {
    if constexpr (kNeighbours) {
      constexpr int at_once = 16 / sizeof(Out) < count ? 16 / sizeof(Out) : count;
      if (!has(0)) return;
      WARPRANK_UNROLL
      for (int i = 0; i < count; i += at_once) {
        float some[at_once];
        WARPRANK_UNROLL
        for (int j = 0; j < at_once; ++j) some[j] = values[i + j];
        store_values(row + first + i, some);
      }
    } else {
      WARPRANK_UNROLL
      for (int i = 0; i < count; ++i)
        if (has(i)) device::store(row + first + i * step, device::narrow<Out>(values[i]));
    }
  }
};

/// A row of a task, by the lanes that share it, as those of the warp's other rows do at once. Lanes without a row of
/// their own have the last one, which they do not store.
template <bool kNeighbours, class Value, class Out>
WARPRANK_DEVICE void mix_row(const Task<Value, Out>& task, int64_t row, const Value* experts, Gate<Value>& gate,
                             bool is_stored) {
  using Columns = ColumnsOfLane<Value, kNeighbours>;
  const int num_experts = static_cast<int>(task.gate.values.cols), dim = static_cast<int>(task.y.cols);
  const int lanes = task.lanes, rank = rank_in_row(lanes);
  const Value* const of_multiply = task.multiply.data + row * task.multiply.stride;
  const Value* const of_residual = task.residual.data + row * task.residual.stride;
  float first_weight = 0;
  WARPRANK_ROLLED
  for (int base = 0; base < dim; base += lanes * Columns::count) {
    const Columns columns(base, lanes, rank, dim);
    float sums[Columns::count] = {};
    typename Columns::Vector factor{}, residual{};
    float weight = 0;
    WARPRANK_ROLLED
    for (int e = 0; e < num_experts; e += experts_in_flight) {
      typename Columns::Vector values[experts_in_flight];
      WARPRANK_UNROLL
      for (int i = 0; i < experts_in_flight; ++i)
        if (e + i < num_experts) values[i] = columns.load(experts + int64_t{e + i} * dim);
      if (e == 0) {
        if (task.multiply.data != nullptr) factor = columns.load(of_multiply);
        if (task.residual.data != nullptr) residual = columns.load(of_residual);
        if (base == 0) first_weight = gate.first_weight(task.normalization);
        weight = first_weight;
      } else if ((e & (gate.lanes() - 1)) == 0) {
        weight = gate.weight(task.normalization, e);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < experts_in_flight; ++i) {
        if (e + i >= num_experts) continue;
        const float its_weight = device::shuffle(device::full_warp, weight, (e + i) & (gate.lanes() - 1), gate.lanes());
        WARPRANK_UNROLL
        for (int j = 0; j < Columns::count; ++j) sums[j] += its_weight * device::widen(values[i][j]);
      }
    }
    if (task.multiply.data != nullptr) {
      WARPRANK_UNROLL
      for (int j = 0; j < Columns::count; ++j) sums[j] *= device::widen(factor[j]);
    }
    if (task.residual.data != nullptr) {
      WARPRANK_UNROLL
      for (int j = 0; j < Columns::count; ++j) sums[j] += device::widen(residual[j]);
    }
    if (is_stored) columns.store(task.y.data + row * task.y.stride, sums);
  }
}

/// Blocks of all tasks for the same rows are neighbours: tasks may share experts. All lanes of a warp do the same
/// together: those without a row have the last, those without a column others, and neither is stored.
template <class Value, class Out>
WARPRANK_KERNEL(threads, min_blocks)
mix_kernel(const WARPRANK_GRID_CONSTANT Arguments<Value, Out> arguments) {
  const Task<Value, Out>& task = arguments.tasks[device::block_index().x];
  device::wait_for_previous_launch();
  // First used behind the rows' loads where that may be, and not to be loaded there: an ordered load stays here.
  using device::Order, device::Scope;
  int64_t end_of_rows = arguments.max_rows;
  if (arguments.num_rows != nullptr) end_of_rows = device::load<Order::relaxed, Scope::device>(arguments.num_rows);
  int64_t end_of_reads = arguments.max_rows;
  if (!arguments.reads_ahead && end_of_rows < end_of_reads) end_of_reads = end_of_rows;

  const int lanes = task.lanes, rows_at_once = rows_of_warp(lanes),
            num_experts = static_cast<int>(task.gate.values.cols);
  const int64_t warp = int64_t{device::block_index().y} * (threads / device::warp_size) + device::warp_index();
  const int64_t rows_in_grid = int64_t{device::grid_dim().y} * (threads / device::warp_size) * rows_at_once;
  WARPRANK_ROLLED
  for (int64_t first = warp * rows_at_once; first < end_of_reads; first += rows_in_grid) {
    const int64_t n = first + row_in_warp(lanes);
    const int64_t end = first + rows_at_once, last = (end < end_of_reads ? end : end_of_reads) - 1;
    const int64_t row = n < last ? n : last;
    SegmentsOfLanes of_experts(task.experts), of_gate(task.gate);
    const Value* experts =
        task.experts.values.data + of_experts.row_serving(row, first, last) * task.experts.values.stride;
    Gate<Value> gate(task.gate.values.data + of_gate.row_serving(row, first, last) * task.gate.values.stride,
                     num_experts, task.gate_lanes);
    const bool is_stored = n == row && n < end_of_rows;
    if (task.aligned) {
      mix_row<true>(task, row, experts, gate, is_stored);
    } else {
      mix_row<false>(task, row, experts, gate, is_stored);
    }
  }
}

/// A valid task as the kernel takes it.
template <class Value, class Out>
Task<Value, Out> describe(const AxisInput<Value>& experts, const AxisInput<Value>& gate, Matrix<Out> y,
                          Normalization normalization, Matrix<const Value> multiply, Matrix<const Value> residual) {
  constexpr int at_once = ColumnsOfLane<Value, true>::count;
  const auto are_aligned = [](const auto& matrix) { return rows_are_aligned(matrix, 16 / sizeof(*matrix.data)); };
  const bool aligned = y.cols % at_once == 0 && are_aligned(y) && are_aligned(experts.values) &&
                       are_aligned(multiply) && are_aligned(residual);
  const int columns = aligned ? at_once : ColumnsOfLane<Value, false>::count;
  const int lanes = std::max(lanes_for((y.cols + columns - 1) / columns), experts_in_flight);
  const int gate_lanes = std::min(lanes, std::max(lanes_for(gate.values.cols), experts_in_flight));
  return {experts, gate, multiply, residual, y, normalization, aligned, lanes, gate_lanes};
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
      {static_cast<unsigned>(arguments.num_tasks), static_cast<unsigned>(std::min<int64_t>(blocks, max_blocks))},
      threads, 0, stream);
  device::launch_overlapping(config, mix_kernel<Value, Out>, arguments);
}
#endif
#if defined(WARPRANK_KERNELS_OF_MIX)
template void launch(const Arguments<float16, float>& arguments, int max_blocks, device::Stream stream);
template void launch(const Arguments<float16, float16>& arguments, int max_blocks, device::Stream stream);
#endif

}}}  // namespace warprank::v0::detail::mix
