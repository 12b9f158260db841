// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs over rows on CUDA, any number of them in one launch, each
///
///     v[n, c] = program(inputs[0][row_0(n), c], ..., vectors[0][c], ...)
///     y[n, :] = step(v[n, :]), or step(v[n, :]) factor[row(n), :]
///
/// with the functions of model/elementwise.hpp. Without a program v is the one input: then a launch copies rows,
/// repeats those of an ancestor (expand), puts matrices side by side (concat) or changes their type, at the speed of a
/// copy. Or a layer norm folds several inputs from left to right, v = ((inputs[0] f_0 inputs[1]) f_1 inputs[2]) ...,
/// with sums and products.
///
/// | Array            | Shape                                                                                   |
/// |------------------|-----------------------------------------------------------------------------------------|
/// | inputs[i].values | [N, C]; [N, 1], for all columns; [1, C], for all rows; or [segments, C or 1] with offsets |
/// | factor.values    | as inputs                                                                               |
/// | vectors[v]       | [C]                                                                                     |
/// | y                | [N, C], may be columns of a wider row; [N, 1] after ReduceRow                           |
///
/// | Step           | y[n, c]                                                                                 |
/// |----------------|-----------------------------------------------------------------------------------------|
/// | EachElement    | v[c]                                                                                    |
/// | SoftmaxOfRow   | exp(v[c] - max v) / sum_c' exp(v[c'] - max v); -inf gives 0; NaN, +inf or only -inf: NaN |
/// | LayerNormOfRow | (v[c] - mean) / sqrt(variance + eps) gamma[c] + beta[c], variance = mean of (v - mean)^2 |
/// | ReduceRow      | sum_c v[c], / C (mean), / sqrt(C) (sqrtn), or max_c v[c], NaN when any is               |
///
/// Each input and y is FP16 or FP32. All intermediate values are FP32 with one rounding per instruction, so that
/// neither fusing programs nor a row's position or neighbours change a bit. exp, log (of log a), atan2, and sin and cos
/// for |a| <= 2^20 are within 4 u relatively, u = 2^-24; sin and cos of larger ones are those of a number that differs
/// from a by up to 16 u |a|. Activations are as in detail/common/activation.cuh; sums of a row err by (C + 2) u sum
/// |v|, softmax by (C + 16 + 2 (max - min)) u y. Finite results too large for FP16 become 65504 with their sign.
///
/// A program's y may be its input with the same rows, columns and stride; it overlaps nothing else that the launch
/// reads or writes. Matrices need no alignment beyond their elements'; rows and columns that are multiples of 4
/// elements (8 for copies of FP16) are read faster, and launches of nothing but layer norms of such rows, of up to
/// 1,024 columns and with inputs of these rows and columns, have a kernel of their own that reads each row once. So
/// have launches of one program on each element of such rows, of up to 6 inputs and vectors: it takes half to three
/// quarters of the time.
///
/// RowProgramLaunch is used as contract.hpp says: one kernel. The programs of a launch are parameters of the kernel,
/// together up to 3,968 bytes (100 for each program, 24 for each input and vector, 12 for each instruction and
/// constant, 24 for each ancestor). Larger launches keep them in descriptors, which costs trips to memory. Addresses of
/// vectors, gammas and betas are always in descriptors: between runs, descriptors of the same programs with other
/// addresses may replace them.

#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/row_programs/kernel.cuh"
#include "warprank/ops/detail/row_programs/launch.cuh"

namespace warprank { inline namespace v0 {

/// One program of a launch. `program` and the spans are read by the launch's constructor only; what they point to, and
/// the matrices, are in device memory.
struct RowProgram {
  const ElementwiseProgram* program = nullptr;  ///< null: the one input unchanged, or folds
  Span<const AxisInput<void>> inputs;           ///< inputs that serve all rows have one row, without offsets
  Span<const float* const> vectors;
  Span<const ElementwiseFunction> folds;  ///< only of LayerNormOfRow, without a program: add or mul, at most three
  RowStep step;                           ///< EachElement{}, SoftmaxOfRow{}, LayerNormOfRow{...} or ReduceRow{...}
  AxisInput<void> factor = {};  ///< only of SoftmaxOfRow and LayerNormOfRow, without a program; without data: none
  FloatMatrix<void> y;
  const int64_t* num_rows = nullptr;  ///< N at the time of a launch, in device memory, more count as y.rows; null: that
};

/// Whether a launch has room for a valid program: at most 16 values alive at once. Nothing else of it is limited.
inline bool fits_row_program(const ElementwiseProgram& program) {
  return !detail::row_programs::slot_operations(program).empty();
}

/// Programs that run together.
class RowProgramLaunch : public Primitive {
 public:
  /// Throws invalid_argument, all problems together: also for a program that does not fit, and for one with inputs on
  /// more than 6 different ancestors.
  explicit RowProgramLaunch(Span<const RowProgram> programs)
      : RowProgramLaunch(programs, programs.empty() ? LaunchPolicies{} : detail::launch_policies_of(device::target())) {
  }
  /// With these policies, in place of the measured ones (launch_policies.hpp).
  RowProgramLaunch(Span<const RowProgram> programs, const LaunchPolicies& policies)
      : Primitive("row programs"), plan_(detail::row_programs::plan_launch(programs, policies)) {
    set_launches(plan_.num_blocks > 0, plan_.reads_ahead);
    set_descriptors(plan_.descriptors);
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::row_programs::launch(plan_, memory.descriptors, stream);
  }

 private:
  detail::row_programs::LaunchPlan plan_;
};

}}  // namespace warprank::v0
