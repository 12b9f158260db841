// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Dot products of fields on CUDA, by tensor cores: y[n, p] = <e_f, e_g> for the p-th pair (f, g), fields numbered
/// through all inputs in their order. The pairs are all pairs of fields (Naumov et al. 2019, DLRM), or each of the
/// first `num_left` fields with each other one (Wukong, Zhang et al. 2024).
///
/// | Array            | Shape                                                                             |
/// |------------------|-----------------------------------------------------------------------------------|
/// | inputs[i].values | [N, F_i * dim], fields side by side; or [segments, F_i * dim] with offsets over N |
/// | y                | [N, num_dot_pairs(F, pairs)], F = sum F_i                                         |
///
/// | DotPairs     | Pairs in order                                          | with `self`     |
/// |--------------|---------------------------------------------------------|-----------------|
/// | lower        | (1,0), (2,0), (2,1), (3,0), ...                         | also (f,f) last of its row |
/// | lower_padded | the same, then one zero                                 |                 |
/// | upper        | (0,1), (0,2), ..., (0,F-1), (1,2), ...                  | also (f,f) first of its row |
/// | num_left L   | (0,L), (0,L+1), ..., (0,F-1), (1,L), ..., (L-1,F-1)     | no matter       |
///
/// Pairs of two fields on ancestors are computed once for neighbouring rows of the same ancestors. Inputs are FP16, y
/// is FP16 or FP32, sums are FP32: |y - exact| <= 2 dim u sum_d |e_f[d] e_g[d]|, u = 2^-24 (tensor cores truncate where
/// other units round), plus the rounding to y's type. A row has the same bits whatever its position and neighbours, and
/// a pair has the same bits at any place. Rows may be strided. y overlaps no input.
///
/// Up to 64 fields of 8, 16, 32, 64 or 128 elements, in rows that are aligned to 16 bytes, have kernels of their own.
/// All other inputs use a kernel for any shape, which is several times slower. Rows of y are written faster if they are
/// a multiple of 16 bytes apart (lower_padded). Infinite products may become the largest FP16.

#include <cstdint>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/dot_pairs.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/dot/launch.cuh"

namespace warprank { inline namespace v0 {

/// Used as contract.hpp says: one kernel, without descriptors or workspace.
template <class Out>
class Dot : public Primitive {
 public:
  static constexpr int max_inputs = detail::dot::max_inputs;

  /// `num_rows` is the number of rows at the time of a launch, in device memory; null: y.rows. A larger number counts
  /// as y.rows. Throws invalid_argument for arguments that do not fit together, and for fields that need more shared
  /// memory than a block has: about F (dim + 8) FP16 values in 64 KB.
  Dot(Span<const AxisInput<float16>> inputs, int64_t dim, const DotPairs& pairs, Matrix<Out> y,
      const int64_t* num_rows = nullptr)
      : Dot(inputs, dim, pairs, y, num_rows, detail::launch_policies_of(device::target())) {}
  /// With these policies, in place of the measured ones (launch_policies.hpp).
  Dot(Span<const AxisInput<float16>> inputs, int64_t dim, const DotPairs& pairs, Matrix<Out> y, const int64_t* num_rows,
      const LaunchPolicies& policies)
      : Primitive("dots"), plan_(planned(inputs, dim, pairs, y, num_rows, policies)), target_(device::target()) {
    set_launches(y.rows > 0 && y.cols > 0);
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const {
    detail::dot::launch(plan_, target_, stream);
  }

 private:
  static detail::dot::Plan<Out> planned(Span<const AxisInput<float16>> inputs, int64_t dim, const DotPairs& pairs,
                                        Matrix<Out> y, const int64_t* num_rows, const LaunchPolicies& policies);

  detail::dot::Plan<Out> plan_;
  int target_;
};

template <class Out>
detail::dot::Plan<Out> Dot<Out>::planned(Span<const AxisInput<float16>> inputs, int64_t dim, const DotPairs& pairs,
                                         Matrix<Out> y, const int64_t* num_rows, const LaunchPolicies& policies) {
  Problems problems;
  if (dim < 1 || dim > detail::dot::max_dim) {
    problems.add("dot: dim", "1 to " + std::to_string(detail::dot::max_dim), std::to_string(dim));
  }
  if (inputs.size() > max_inputs) {
    problems.add("dot: inputs", "at most " + std::to_string(max_inputs), std::to_string(inputs.size()));
  }
  problems.throw_if_any();

  int64_t num_fields = 0;
  for (int64_t i = 0; i < inputs.size(); ++i) {
    const std::string what = "dot: input " + std::to_string(i);
    detail::check_axis_input(what, inputs[i], y.rows, problems);
    detail::check_apart("dot: y", y, "input " + std::to_string(i), inputs[i].values, problems);
    if (inputs[i].values.cols % dim != 0) {
      problems.add(what, "a multiple of " + std::to_string(dim) + " columns", std::to_string(inputs[i].values.cols));
    }
    num_fields += inputs[i].values.cols / dim;
  }
  detail::check_matrix("dot: y", y, problems);
  if (num_fields > detail::dot::max_fields) {
    problems.add("dot: fields", "at most " + std::to_string(detail::dot::max_fields), std::to_string(num_fields));
  }
  if (pairs.num_left < 0 || pairs.num_left > num_fields) {
    problems.add("dot: num_left", "0 to " + std::to_string(num_fields), std::to_string(pairs.num_left));
  }
  problems.throw_if_any();
  const int64_t columns = num_dot_pairs(num_fields, pairs);
  if (y.cols != columns) problems.add("dot: y", std::to_string(columns) + " columns", std::to_string(y.cols));
  const int64_t multiprocessors = device::num_multiprocessors();
  auto arguments = detail::dot::arguments_for(inputs, dim, pairs, y, num_rows, multiprocessors);
  const int64_t bytes = detail::dot::lay_out(arguments);
  if (bytes > detail::dot::max_shared_bytes) {
    problems.add("dot: shared memory for the fields of a row",
                 "at most " + std::to_string(detail::dot::max_shared_bytes) + " bytes", std::to_string(bytes));
  }
  problems.throw_if_any();
  return detail::dot::plan_dot(arguments, inputs, multiprocessors, policies);
}

}}  // namespace warprank::v0
