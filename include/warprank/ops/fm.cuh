// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Factorisation machine, second order (Rendle 2010), on CUDA:
///
///     y[n, d] = 1/2 ((sum_f e_f[d])^2 - sum_f e_f[d]^2) = sum_f e_f[d] (e_0[d] + ... + e_(f-1)[d])
///
/// computed in the second form, which has no cancellation at the same cost; or its sum over d.
///
/// | Array            | Shape                                                                            |
/// |------------------|----------------------------------------------------------------------------------|
/// | inputs[i].values | [N, F_i * dim], fields side by side; or [segments, F_i * dim] with offsets over N |
/// | y                | [N, 1], or [N, dim] unreduced ("bi-interaction")                                  |
///
/// Inputs and y are FP16 or FP32, sums are FP32: |y - exact| <= (2 F + dim) u sum_d sum_(f<g) |e_f e_g| for F fields
/// (without `dim` when unreduced), u = 2^-24, plus the rounding to y's type. A row has the same bits whatever its
/// position and neighbours. Rows may be strided. y overlaps no input.
///
/// Sums over d have a kernel of their own, for rows that are aligned to 16 bytes and dims of 16 to 512 bytes that are
/// powers of two. All else, and [N, dim] outputs, uses a kernel for any shape, which is several times slower; it reads
/// rows and dims that are multiples of 4 elements faster.

#include <cstdint>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/fm/launch.cuh"

namespace warprank { inline namespace v0 {

/// Used as contract.hpp says: one kernel, without descriptors or workspace.
template <class Value, class Out>
class Fm : public Primitive {
 public:
  static constexpr int max_inputs = detail::fm::max_inputs;

  /// `num_rows` is the number of rows at the time of a launch, in device memory; null: y.rows. A larger number counts
  /// as y.rows. Throws invalid_argument for arguments that do not fit together.
  Fm(Span<const AxisInput<Value>> inputs, int64_t dim, Matrix<Out> y, const int64_t* num_rows = nullptr,
     const FmOptions& options = {})
      : Fm(inputs, dim, y, num_rows, options, detail::launch_policies_of(device::target())) {}
  /// With these policies, in place of the measured ones (launch_policies.hpp).
  Fm(Span<const AxisInput<Value>> inputs, int64_t dim, Matrix<Out> y, const int64_t* num_rows, const FmOptions& options,
     const LaunchPolicies& policies)
      : Primitive("factorisation machines"),
        plan_(
            detail::fm::plan_fm(checked(inputs, dim, y, num_rows, options), device::num_multiprocessors(), policies)) {
    set_launches(y.rows > 0);
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const {
    detail::fm::launch(plan_, stream);
  }

 private:
  static detail::fm::Arguments<Value, Out> checked(Span<const AxisInput<Value>> inputs, int64_t dim, Matrix<Out> y,
                                                   const int64_t* num_rows, const FmOptions& options);

  detail::fm::Plan<Value, Out> plan_;
};

template <class Value, class Out>
detail::fm::Arguments<Value, Out> Fm<Value, Out>::checked(Span<const AxisInput<Value>> inputs, int64_t dim,
                                                          Matrix<Out> y, const int64_t* num_rows,
                                                          const FmOptions& options) {
  Problems problems;
  if (dim < 1) problems.add("fm: dim", "at least 1", std::to_string(dim));
  if (inputs.size() > max_inputs) {
    problems.add("fm: inputs", "at most " + std::to_string(max_inputs), std::to_string(inputs.size()));
  }
  problems.throw_if_any();

  const int64_t columns = options.reduce ? 1 : dim;
  detail::check_matrix("fm: y", y, problems);
  if (y.cols != columns) problems.add("fm: y", std::to_string(columns) + " columns", std::to_string(y.cols));
  detail::fm::Arguments<Value, Out> arguments{{}, static_cast<int>(inputs.size()), dim, options.reduce, y, num_rows};
  for (int i = 0; i < arguments.num_inputs; ++i) {
    const std::string what = "fm: input " + std::to_string(i);
    detail::check_axis_input(what, inputs[i], y.rows, problems);
    detail::check_apart("fm: y", y, "input " + std::to_string(i), inputs[i].values, problems);
    if (inputs[i].values.cols % dim != 0) {
      problems.add(what, "a multiple of " + std::to_string(dim) + " columns", std::to_string(inputs[i].values.cols));
    }
    arguments.inputs[i] = inputs[i];
  }
  problems.throw_if_any();
  return arguments;
}

}}  // namespace warprank::v0
