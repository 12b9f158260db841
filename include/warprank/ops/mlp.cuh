// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stacks of linear layers (MLPs, towers) whose activations stay on chip: layer i of a stack is
///
///     h_i = f_i(h_{i-1} W_i^T + b_i),    h_0 = x,    y = h_last * multiply + residual
///
/// or, with residual_first, with the residual inside of f_last, as ops/linear.cuh has it.
///
/// | Array    | Shape                | Type       |                                                                 |
/// |----------|----------------------|------------|-----------------------------------------------------------------|
/// | x        | [M, in]              | FP16       | with first_is_done the sums of layer 0 instead, FP16 or FP32    |
/// | x, mixed | [M, experts * in]    | FP16, FP32 | with mix: h_0 = sum_e w_e x_e, w = normalization(gate), by FP32 |
/// | mix.gate | [M, experts]         | FP16, FP32 | logits, of x and then of mix.shared [M, shared experts * in];   |
/// |          |                      |            | or [segments, experts], segments of their own                   |
/// | row_bias | [segments, out_0]    | FP16, FP32 | optional; added in layer 0, as in ops/linear.cuh                |
/// | last_row_bias | [segments, out_last] | FP16, FP32 | optional; likewise in the last layer                       |
/// | y        | [M, out_last]        | FP16, FP32 | may be columns of a wider row                                   |
/// | multiply, residual | [M, out_last] | FP16, FP32 | optional                                                    |
///
/// Several stacks of like depth run side by side, fused into one kernel. Where rows are few, several blocks share 16 or
/// 32 rows: each computes some outputs of every layer, and they exchange them through the second-level cache
/// (detail/mlp/split.cuh): up to 16 blocks where layers have up to 256 outputs and the first up to 768 inputs; up to 64
/// where they are wider, up to 4096, for up to 128 rows. With more rows, a block takes 16 or 32 through all layers
/// (detail/mlp/rows.cuh): layers of up to 256 outputs at the end of the stacks; the first of all may be 512 wide when
/// it has up to 64 inputs. Which of the two it is depends on capacities, alignment and the target alone
/// (detail/mlp/policy.hpp); they differ in their bits.
///
/// What comes before the fused layers is launched layer by layer (ops/linear.cuh): layers that are wider than that,
/// those of stacks of more than 8, and with spread_first and up to 256 rows that are not split, the first of several of
/// 256 inputs or more. With first_is_done that first layer, split between user and item (late broadcast), has been
/// computed as sums without bias by others; its bias, row bias and f are applied on load.
///
/// A mix is what comes between experts and towers: MMoE, and PLE, whose towers share some experts. It is as
/// ops/host/mix.hpp says, for up to 64 experts of up to 256 columns.
///
/// Products of heads, the layers of one output at the end of stacks, are made by the kernel that fuses them: for each
/// row by whichever head is there last.
///
/// Every layer is within the bound of ops/linear.cuh for the h it is given, which is rounded to FP16, or to 65504 with
/// its sign where that is smaller; as y is in FP16. A row has the same bits whatever M, its place and the other rows,
/// for one capacity and target. NaN and infinity in x get into their own row alone.
///
/// Alignment and overlap: as in ops/linear.cuh.
///
/// MlpLaunch is used as contract.hpp says, and needs descriptors and a workspace: one kernel, and one for each layer
/// that is launched before it.

#include <cstdint>
#include <utility>

#include "warprank/ops/contract.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank { inline namespace v0 {

/// A layer of a stack. Everything it points to is in device memory.
struct MlpLayer {
  const void* weights = nullptr;  ///< packed by pack_linear for this in and out; aligned to 16
  int64_t out = 0;
  DeviceActivation activation;
};

/// A mix of experts as a stack's input. No gate: none.
struct ExpertMix {
  AxisInput<void> gate;            ///< [capacity or segment capacity, experts]
  FloatMatrix<const void> shared;  ///< [capacity, shared experts * in]; no data: none
  Normalization normalization = Normalization::softmax;
};

/// A stack.
struct Mlp {
  FloatMatrix<const void> x;          ///< [capacity, in], FP16; sums [capacity, out_0] where first_is_done
  bool first_is_done = false;         ///< of layer 0 remains f_0(x + b_0 + row_bias); its `in` must be given
  ExpertMix mix;                      ///< then x has the stack's own experts side by side
  int64_t in = 0;                     ///< of layer 0, with first_is_done or a mix; otherwise x.cols
  const int64_t* num_rows = nullptr;  ///< M; null: always the capacity
  AxisInput<void> row_bias;           ///< [capacity or segment capacity, out_0]; no data: none
  AxisInput<void> last_row_bias;      ///< the same of out_last, of several layers; with row_bias: its segments
  Span<const MlpLayer> layers;
  FloatMatrix<const void> multiply;  ///< [capacity, out_last]; no data: none
  FloatMatrix<const void> residual;  ///< [capacity, out_last]; no data: none
  bool residual_first = false;       ///< it is added before the last activation
  FloatMatrix<void> y;               ///< [capacity, out_last]
};

/// y = (h_0 h_1) h_2 ..., in FP32, of the heads h of different stacks of the same rows, as they are before they are
/// stored. Their last layers have one output each and are fused. pCTCVR = pCTR x pCVR is one.
struct HeadProduct {
  Span<const int64_t> stacks;  ///< two or more, by number
  FloatMatrix<void> y;         ///< [capacity, 1]
};

}}  // namespace warprank::v0

#include "warprank/ops/detail/mlp/launch.cuh"

namespace warprank { inline namespace v0 {

/// Stacks that run together.
class MlpLaunch : public Primitive {
 public:
  /// For the kernels of `target`. `policy`: how all layers are fused, as who has measured it chooses; null: by rule.
  /// Throws invalid_argument, all problems together.
  explicit MlpLaunch(Span<const Mlp> stacks, int target = device::target(), bool spread_first = true,
                     Span<const HeadProduct> products = {}, const ChainPolicy* policy = nullptr)
      : Primitive("mlps"), plan_(detail::plan_mlp(stacks, products, target, spread_first, policy)) {
    set_launches(plan_.num_launches());
    set_descriptors(plan_.descriptors, plan_.in_workspace);
    set_workspace_bytes(plan_.workspace_bytes);
  }

  /// Layers of a stack that are fused into the last kernel.
  int64_t num_fused() const { return plan_.num_fused; }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::launch_mlp(plan_, memory, stream);
  }

 private:
  detail::MlpPlan plan_;
};

}}  // namespace warprank::v0
