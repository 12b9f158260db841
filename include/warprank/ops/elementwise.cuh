// SPDX-License-Identifier: Apache-2.0
#pragma once

/// An elementwise function over rows on CUDA, and then a step over each row, in one launch:
///
///     v[n, c] = f(x_0[row_0(n), c], x_1[row_1(n), c], ...)        y[n, :] = step(v[n, :])
///
/// | Array            | Shape                                                                                |
/// |------------------|--------------------------------------------------------------------------------------|
/// | inputs[i].values | [N, C]; [N, 1], for all columns; [1, C], for all rows; or [segments, C or 1] with offsets |
/// | y                | [N, C]; [N, 1] after ReduceRow                                                       |
///
/// | Step           | y[n, c]                                                                                 |
/// |----------------|-----------------------------------------------------------------------------------------|
/// | EachElement    | v[c]                                                                                    |
/// | SoftmaxOfRow   | exp(v[c] - max v) / sum_c' exp(v[c'] - max v); -inf gives 0; NaN, +inf or only -inf: NaN |
/// | LayerNormOfRow | (v[c] - mean) / sqrt(variance + eps) gamma[c] + beta[c], variance = mean of (v - mean)^2 |
/// | ReduceRow      | sum_c v[c], / C (mean), / sqrt(C) (sqrtn), or max_c v[c], NaN when any is               |
///
/// The function is a functor of floats:
///
///     struct Gated {
///       WARPRANK_DEVICE float operator()(float value, float gate) const { return gate > 0 ? value : 0; }
///     };
///     const AxisInput<float16> inputs[] = {{values}, {gates}};
///     Elementwise(Gated{}, inputs, y, SoftmaxOfRow{}).launch({}, stream);
///
/// row_programs.cuh has functions that are known only at run time.
///
/// Inputs and y are FP16 or FP32, all intermediate values are FP32: sums of a row err by (C + 2) u sum |v|, softmax by
/// (C + 16 + 2 (max - min)) u y. A slice of columns is a view, Matrix::columns. y may be an input with the same rows,
/// columns and stride, and overlaps none otherwise. Rows may be strided; rows and columns that are multiples of 4
/// elements are read faster. Rows of inputs behind `num_rows`, up to y.rows, may be read; nothing depends on them. A
/// row has the same bits whatever its position and neighbours.

#include <cstdint>
#include <type_traits>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/elementwise/kernel.cuh"

namespace warprank { inline namespace v0 {

/// Used as contract.hpp says: one kernel, without descriptors or workspace.
template <class Function, class Value, int NumInputs, class Out, class Step = EachElement>
class Elementwise : public Primitive {
 public:
  /// `num_rows` is the number of rows at the time of a launch, in device memory; null: y.rows. A larger number counts
  /// as y.rows. Throws invalid_argument for arguments that do not fit together.
  Elementwise(Function function, const AxisInput<Value> (&inputs)[NumInputs], Matrix<Out> y, Step step = {},
              const int64_t* num_rows = nullptr)
      : Primitive("elementwise functions"),
        rows_(detail::elementwise::checked_rows<Value>({inputs, NumInputs}, y, step, num_rows)),
        call_{function, {}},
        step_(step) {
    set_launches(y.rows > 0);
    for (int i = 0; i < NumInputs; ++i) call_.inputs[i] = inputs[i];
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const {
    detail::elementwise::launch(rows_, call_, step_, stream);
  }

 private:
  detail::elementwise::Rows<Out> rows_;
  detail::elementwise::FunctionCall<Function, Value, NumInputs> call_;
  Step step_;
};

}}  // namespace warprank::v0
