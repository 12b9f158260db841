// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Mixtures of experts on CUDA, of several tasks in one launch:
/// y[n, :] = sum_e w_e(n) E[n, e D : (e + 1) D] [* multiply[n, :]] [+ residual[n, :]], the weights from gate logits g
/// by a Normalization: softmax_e(g[n, :]) (MMoE, PLE), sigmoid(g[n, e]), or g itself. With both of the last two it is a
/// layer of DCN-Mix (Wang et al. 2021), of x_0 and of x.
///
/// | Array              | Shape                                                |
/// |--------------------|------------------------------------------------------|
/// | experts.values     | [N, E * D], or [segments, E * D] with offsets over N |
/// | gate.values        | [N, E], or [segments, E] with offsets over N         |
/// | multiply, residual | [N, D] each, or no data: 1, and 0                    |
/// | y                  | [N, D]                                               |
///
/// Inputs and y are FP16 or FP32, all intermediate values are FP32, with the bounds of ops/host/mix.hpp plus the
/// rounding to y's type: |mixture - exact| <= (2 E + 16 + 2 (max g - min g)) u sum_e |w_e E_e| for softmax, (E + 8) u
/// for sigmoid, E u for none, u = 2^-24, times |multiply|, and u of the product and of the sum. A gate of -inf is a
/// weight of 0; a row of logits with NaN, with +inf or with only -inf gives NaN. A row has the same bits whatever its
/// position and neighbours. Rows may be strided; rows and D of whole 16 bytes are read faster. y overlaps no input.

#include <cstdint>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/mix/kernel.cuh"

namespace warprank { inline namespace v0 {

/// One gate over experts, which tasks may share.
template <class Value, class Out>
struct MixTask {
  AxisInput<Value> experts, gate;
  Matrix<Out> y;
  Normalization normalization = Normalization::softmax;
  Matrix<const Value> multiply = {}, residual = {};
};

/// Used as contract.hpp says: one kernel, without descriptors or workspace.
template <class Value, class Out>
class Mix : public Primitive {
 public:
  static constexpr int max_tasks = detail::mix::max_tasks;

  /// All tasks have the same number of rows: `num_rows`, in device memory, at the time of a launch; null: y.rows. A
  /// larger number counts as y.rows. Throws invalid_argument for arguments that do not fit together.
  explicit Mix(Span<const MixTask<Value, Out>> tasks, const int64_t* num_rows = nullptr)
      : Primitive("mixes of experts"),
        arguments_(checked(tasks, num_rows)),
        max_blocks_(device::num_multiprocessors() * detail::mix::min_blocks) {
    set_launches(arguments_.max_rows > 0, arguments_.reads_ahead);
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const {
    detail::mix::launch(arguments_, max_blocks_, stream);
  }

 private:
  static detail::mix::Arguments<Value, Out> checked(Span<const MixTask<Value, Out>> tasks, const int64_t* num_rows);

  detail::mix::Arguments<Value, Out> arguments_;
  int max_blocks_;  // as many as can be resident
};

template <class Value, class Out>
detail::mix::Arguments<Value, Out> Mix<Value, Out>::checked(Span<const MixTask<Value, Out>> tasks,
                                                            const int64_t* num_rows) {
  Problems problems;
  if (tasks.size() < 1 || tasks.size() > max_tasks) {
    problems.add("mix: tasks", "1 to " + std::to_string(max_tasks), std::to_string(tasks.size()));
  }
  problems.throw_if_any();
  detail::mix::Arguments<Value, Out> arguments{};
  arguments.num_tasks = static_cast<int>(tasks.size());
  arguments.max_rows = tasks[0].y.rows;
  arguments.num_rows = num_rows;
  for (int i = 0; i < arguments.num_tasks; ++i) {
    const MixTask<Value, Out>& task = tasks[i];
    const std::string what = "mix: task " + std::to_string(i) + "'s ";
    detail::check_matrix(what + "y", task.y, problems);
    detail::check_axis_input(what + "experts", task.experts, task.y.rows, problems);
    detail::check_axis_input(what + "gate", task.gate, task.y.rows, problems);
    const auto check_end = [&](const char* name, const Matrix<const Value>& matrix) {
      if (matrix.data == nullptr) return;
      detail::check_matrix(what + name, matrix, problems);
      if (matrix.rows == task.y.rows && matrix.cols == task.y.cols) return;
      problems.add(what + name, "y's shape, [" + std::to_string(task.y.rows) + ", " + std::to_string(task.y.cols) + "]",
                   "[" + std::to_string(matrix.rows) + ", " + std::to_string(matrix.cols) + "]");
    };
    check_end("multiply", task.multiply);
    check_end("residual", task.residual);
    for (int j = 0; j < arguments.num_tasks; ++j) {
      const MixTask<Value, Out>& other = tasks[j];
      const std::string of = " of task " + std::to_string(j);
      detail::check_apart(what + "y", task.y, "the experts" + of, other.experts.values, problems);
      detail::check_apart(what + "y", task.y, "the gate" + of, other.gate.values, problems);
      detail::check_apart(what + "y", task.y, "multiply" + of, other.multiply, problems);
      detail::check_apart(what + "y", task.y, "the residual" + of, other.residual, problems);
      if (i < j) detail::check_apart(what + "y", task.y, "y" + of, other.y, problems);
    }
    if (task.y.rows != arguments.max_rows) {
      problems.add(what + "y", std::to_string(arguments.max_rows) + " rows", std::to_string(task.y.rows));
    }
    const int64_t columns = task.gate.values.cols * task.y.cols;
    if (task.experts.values.cols != columns) {
      problems.add(what + "experts", std::to_string(columns) + " columns", std::to_string(task.experts.values.cols));
    }
    if (columns > detail::mix::max_columns) {
      problems.add(what + "experts", "at most " + std::to_string(detail::mix::max_columns) + " columns",
                   std::to_string(columns));
    }
    if (task.gate.values.cols == 0) problems.add(what + "gate", "at least 1 column", "0");
    arguments.tasks[i] =
        detail::mix::describe(task.experts, task.gate, task.y, task.normalization, task.multiply, task.residual);
  }
  problems.throw_if_any();
  arguments.reads_ahead = detail::mix::can_read_ahead(arguments, device::num_multiprocessors());
  return arguments;
}

}}  // namespace warprank::v0
