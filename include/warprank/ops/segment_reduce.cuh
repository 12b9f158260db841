// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a nested axis pooled onto its parent on CUDA, up to 24 matrices in one kernel: over the L rows n of
/// segment s
///
///     y[s, :] = sum_n x[n, :],  / L (mean),  / sqrt(L) (sqrtn),  or max_n x[n, :];  zeros when L = 0
///
/// | Array   | Shape          | Type       |                                                        |
/// |---------|----------------|------------|--------------------------------------------------------|
/// | x       | [N, C]         | FP16, FP32 | rows may be strided                                    |
/// | offsets | [segments + 1] | int64      | from 0 to N, never decreasing                          |
/// | y       | [segments, C]  | FP16, FP32 | may be columns of a wider row                          |
///
/// Sums are FP32: |y - exact| <= (L + 2) u sum_n |x[n, c]| (likewise divided), u = 2^-24, plus the rounding to y's
/// type; max is exact, and NaN when any row is. Every 8 rows of a segment, counted from its first, are added in their
/// order, and then these sums in order: a segment has the same bits whatever its position and neighbours. Matrices need
/// no alignment beyond their elements'; rows and columns that are multiples of 4 elements are read faster. y overlaps
/// nothing that the launch reads or writes.
///
/// SegmentReduceLaunch is used as contract.hpp says: one kernel for each 24 matrices, without descriptors or workspace.

#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/target.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/segment_reduce/kernel.cuh"

namespace warprank { inline namespace v0 {

/// One matrix of a launch. Everything it points to is in device memory.
struct SegmentReduction {
  FloatMatrix<const void> x;  ///< [capacity, C]
  /// [y.rows + 1]: segment s has rows [offsets[s], offsets[s + 1]). Offsets behind the last segment's end may have any
  /// value, but are read.
  const int64_t* offsets = nullptr;
  const int64_t* num_segments = nullptr;  ///< at the time of a launch, more count as y.rows; null: y.rows
  Pooling pooling = Pooling::sum;         ///< sum, mean, sqrtn or max
  FloatMatrix<void> y;                    ///< [segment capacity, C]
};

/// Reductions that run together.
class SegmentReduceLaunch : public Primitive {
 public:
  /// Throws invalid_argument, all problems together.
  explicit SegmentReduceLaunch(Span<const SegmentReduction> reductions)
      : SegmentReduceLaunch(reductions,
                            reductions.empty() ? LaunchPolicies{} : detail::launch_policies_of(device::target())) {}
  /// With these policies, in place of the measured ones (launch_policies.hpp).
  SegmentReduceLaunch(Span<const SegmentReduction> reductions, const LaunchPolicies& policies)
      : Primitive("reductions of segments"), plans_(detail::segment_reduce::plan_launches(reductions, policies)) {
    set_launches(static_cast<int64_t>(plans_.size()));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const {
    for (const detail::segment_reduce::LaunchPlan& plan : plans_) detail::segment_reduce::launch(plan, stream);
  }

 private:
  std::vector<detail::segment_reduce::LaunchPlan> plans_;
};

}}  // namespace warprank::v0
