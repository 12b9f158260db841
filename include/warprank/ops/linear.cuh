// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linear layers on tensor cores: any number of them in one launch, each
///
///     y = f(x W^T + b + row_bias[segment of the row]) * multiply + residual
///     y = f(x W^T + b + row_bias[segment of the row] + residual) * multiply          with residual_first
///
/// | Array    | Shape             | Type       |                                                                |
/// |----------|-------------------|------------|----------------------------------------------------------------|
/// | W, b     | [out, in], [out]  | packed     | by pack_linear (ops/pack_linear.hpp), once                     |
/// | x        | [M, in]           | FP16       |                                                                |
/// | y        | [M, out]          | FP16, FP32 | may be columns of a wider row                                  |
/// | row_bias | [segments, out]   | FP16, FP32 | optional; without segments [M, out]                            |
/// | multiply | [M, out]          | FP16, FP32 | optional; with residual it makes DCN-v2's x0 * (W x + b) + x   |
/// | residual | [M, out]          | FP16, FP32 | optional                                                       |
///
/// M and the number of segments are read from device memory, up to the capacity; M = 0 is legal. Products are exact,
/// sums FP32, all behind them FP32. With u = 2^-24 and W as packed, before f
///
///     |y - exact| <= 2 (in + 2) u (|b| + |row_bias| + |residual that is first| + sum_k |x_k W_k|)
///
/// the 2 being for tensor cores, which cut where others round. FP16 outputs add half a unit of FP16; a finite result
/// above 65504 is stored as 65504 with its sign. NaN and infinity in x get into their own row alone.
/// With `groups` a layer has weights for each of some groups, and a row goes through those of its own (experts.cuh).
/// A sum over the columns of x is a layer as well: of one output, its weights 1.
/// A row has the same bits whatever M, its place and the other rows, for one capacity and target: these decide with the
/// shapes and alignment of the launch's layers by which tile sums are made (detail/linear/tiling.hpp has the table).
///
/// Matrices need no alignment beyond their elements'. x whose rows are aligned to 16 bytes, and other matrices to four
/// elements, are read by whole vectors, and faster. Fastest is a launch of plain layers alone: `in` and `out` multiples
/// of 8, rows of everything aligned to 16 bytes, identity or relu, no groups, multiply and residual in FP16 and the
/// latter last, a row bias in FP32. y may be the layer's own multiply or residual, and overlaps nothing else that the
/// launch reads or writes.
///
/// LinearLaunch is used as contract.hpp says, and needs descriptors and, where sums are cut into parts, a workspace:
/// one kernel.

#include <cstdint>
#include <utility>

#include "warprank/core/view.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/linear/kernel.cuh"
#include "warprank/ops/detail/linear/launch.cuh"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

/// One layer of a launch. Everything it points to is in device memory.
struct LinearLayer {
  const void* weights = nullptr;      ///< packed; aligned to 16. With groups, theirs by pack_experts
  Matrix<const float16> x;            ///< [capacity, in]
  const int64_t* num_rows = nullptr;  ///< M; null: always the capacity
  AxisInput<void> row_bias;           ///< [capacity or segment capacity, out]; no data: none
  DeviceActivation activation;        ///< with groups its vectors are [groups, out]
  FloatMatrix<const void> multiply;   ///< [capacity, out]; no data: none
  FloatMatrix<const void> residual;   ///< [capacity, out]; no data: none
  bool residual_first = false;        ///< it is added before the activation
  FloatMatrix<void> y;                ///< [capacity, out]
  RowGroups groups;                   ///< rows of no group become 0
};

/// Layers that run together.
class LinearLaunch : public Primitive {
 public:
  /// For the kernels of `target`. Throws invalid_argument, all problems together.
  explicit LinearLaunch(Span<const LinearLayer> layers, int target = device::target())
      : LinearLaunch(layers, target, nullptr) {}
  /// Cut as said, and not by the table (detail/linear/tiling.hpp).
  LinearLaunch(Span<const LinearLayer> layers, int target, LinearTiling tiling)
      : LinearLaunch(layers, target, &tiling) {}

  /// How the layers are cut.
  LinearTiling tiling() const { return plan_.tiling; }
  /// Whether all layers are what the faster kernels are for: plain (detail/linear/launch.cuh).
  bool is_plain() const { return plan_.is_plain; }
  int64_t num_blocks() const { return plan_.num_blocks; }
  /// Into how many parts the sums of a layer are cut.
  int parts(int64_t layer) const { return plan_.descriptors[static_cast<size_t>(layer)].parts; }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::launch_linear(plan_, memory, stream);
  }

 private:
  LinearLaunch(Span<const LinearLayer> layers, int target, const LinearTiling* tiling)
      : Primitive("linear layers"), plan_(detail::plan_linear(layers, target, tiling)) {
    set_launches(plan_.num_blocks > 0);
    set_descriptors(detail::bytes_of(plan_.descriptors));
    set_workspace_bytes(plan_.workspace_bytes());
  }

  detail::LinearPlan plan_;
};

}}  // namespace warprank::v0
