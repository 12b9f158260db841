// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linear layers on tensor cores: any number of them in one launch, each
///
///     y = f(x W^T + b + row_bias[segment of the row]) * multiply + residual
///     y = f(x W^T + b + row_bias[segment of the row] + residual) * multiply          with residual_first
///
/// | Array    | Shape             | Type       |                                                                |
/// |----------|-------------------|------------|----------------------------------------------------------------|
/// | W, b     | [out, in], [out]  | packed     | by pack_linear or pack_int8_linear, once                       |
/// | x        | [M, in]           | FP16       |                                                                |
/// | y        | [M, out]          | FP16, FP32 | may be columns of a wider row                                  |
/// | row_bias | [segments, out]   | FP16, FP32 | optional; without segments [M, out]                            |
/// | multiply | [M, out]          | FP16, FP32 | optional; with residual it makes DCN-v2's x0 * (W x + b) + x   |
/// | residual | [M, out]          | FP16, FP32 | optional                                                       |
///
/// M and the number of segments are read from device memory, up to the capacity; M = 0 is legal. Products are exact,
/// sums and all values behind them FP32. With u = 2^-24 and W as packed, before f
///
///     |y - exact| <= 2 (in + 2) u (|b| + |row_bias| + |residual that is first| + sum_k |x_k W_k|)
///
/// and with INT8 weights, for W' (ops/int8_weights.hpp) and in + 3 in the place of in + 2. The factor 2 is for
/// tensor cores, which truncate where other units round. FP16 outputs add half a unit of FP16; a finite result above
/// 65504 is stored as 65504 with its sign. NaN and infinity in x get only into their own row. With `groups` a layer has
/// weights for each group, and a row goes through the weights of its own group (experts.cuh). A sum over the columns of
/// x is also a layer: it has one output, and weights of 1. For one capacity and target, a row has the same bits
/// whatever M, its place and the other rows. Capacity and target, with the shapes and alignment of the launch's layers,
/// determine the tile that makes the sums (detail/linear/tiling.hpp has the table).
///
/// Matrices need no alignment beyond their elements'. An x with rows aligned to 16 bytes, and other matrices with rows
/// aligned to four elements, are read by whole vectors, and faster. A launch of only plain layers is fastest: `in` and
/// `out` are multiples of 8, all rows are aligned to 16 bytes, the activation is identity or relu, there are no groups,
/// multiply and residual are FP16, the residual comes last, and a row bias is FP32. y may be the layer's own multiply
/// or residual, and overlaps nothing else that the launch reads or writes.
///
/// LinearLaunch is used as contract.hpp says, and needs descriptors and, if sums are cut into parts, a workspace: one
/// kernel.

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
  const void* weights = nullptr;      ///< packed; aligned to 16. With groups, by experts.cuh
  DType weight_type = DType::f16;     ///< or i8: packed by pack_int8_linear; the same for all of a launch but heads
  Matrix<const float16> x;            ///< [capacity, in]
  const int64_t* num_rows = nullptr;  ///< M; null: always the capacity
  AxisInput<void> row_bias;           ///< [capacity or segment capacity, out]; no data: none
  DeviceActivation activation;        ///< with groups its vectors are [groups, out]
  FloatMatrix<const void> multiply;   ///< [capacity, out]; no data: none
  FloatMatrix<const void> residual;   ///< [capacity, out]; no data: none
  bool residual_first = false;        ///< the residual is added before the activation
  FloatMatrix<void> y;                ///< [capacity, out]
  RowGroups groups;                   ///< rows of no group become 0
};

/// Layers that run together.
class LinearLaunch : public Primitive {
 public:
  /// For the kernels of `target`. Throws invalid_argument, all problems together.
  explicit LinearLaunch(Span<const LinearLayer> layers, int target = device::target())
      : LinearLaunch(layers, target, nullptr) {}
  /// Cuts the layers as `tiling` says, not by the table (detail/linear/tiling.hpp).
  LinearLaunch(Span<const LinearLayer> layers, int target, LinearTiling tiling)
      : LinearLaunch(layers, target, &tiling) {}

  /// How the layers are cut.
  LinearTiling tiling() const { return plan_.tiling; }
  /// Whether all layers are plain, for the faster kernels (detail/linear/launch.cuh).
  bool is_plain() const { return plan_.is_plain; }
  int64_t num_blocks() const { return plan_.num_blocks; }
  /// The number of parts into which a layer's sums are cut.
  int parts(int64_t layer) const { return plan_.descriptors[static_cast<size_t>(layer)].parts; }

  /// A template, so that units which launch no linear layers of their own, such as those of mlp.cuh, compile no kernels
  /// for INT8.
  template <class Stream = device::Stream>
  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, Stream stream = {}) const {
    check(memory);
    if (plan_.is_int8)
      detail::linear::launch<int8_t>(plan_, memory, stream);
    else
      detail::linear::launch<float16>(plan_, memory, stream);
  }

 private:
  LinearLaunch(Span<const LinearLayer> layers, int target, const LinearTiling* tiling)
      : Primitive("linear layers"), plan_(detail::linear::plan_linear(layers, target, tiling)) {
    set_launches(plan_.num_blocks > 0);
    set_descriptors(detail::bytes_of(plan_.descriptors));
    set_workspace_bytes(plan_.workspace_bytes());
  }

  detail::linear::Plan plan_;
};

}}  // namespace warprank::v0
