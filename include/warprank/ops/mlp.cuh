// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stacks of linear layers (MLPs, towers) whose activations stay on chip: layer i of a stack is
///
///     h_i = f_i(h_{i-1} W_i^T + b_i),    h_0 = x,    y = h_last * multiply + residual
///
/// or, with residual_first, with the residual inside f_last, as in ops/linear.cuh.
///
/// | Array    | Shape                | Type       |                                                                 |
/// |----------|----------------------|------------|-----------------------------------------------------------------|
/// | x        | [M, in]              | FP16       | with first_is_done the sums of layer 0 instead, FP16 or FP32    |
/// | x, mixed | [M, experts * in]    | FP16, FP32 | with mix: h_0 = sum_e w_e x_e, w = normalization(gate), in FP32 |
/// | mix.gate | [M, experts]         | FP16, FP32 | logits, of x and then of mix.shared [M, shared experts * in];   |
/// |          |                      |            | or [segments, experts], segments of their own                   |
/// | row_bias | [segments, out_0]    | FP16, FP32 | optional; added in layer 0, as in ops/linear.cuh                |
/// | last_row_bias | [segments, out_last] | FP16, FP32 | optional; likewise in the last layer                       |
/// | y        | [M, out_last]        | FP16, FP32 | may be columns of a wider row                                   |
/// | multiply, residual | [M, out_last] | FP16, FP32 | optional                                                    |
///
/// Several stacks of equal depth run side by side, fused into one kernel. With few rows, several blocks share 16 or 32
/// rows: each computes some outputs of every layer, and they exchange the outputs through the second-level cache
/// (detail/mlp/split.cuh). There are up to 16 blocks if layers have up to 256 outputs and the first up to 768 inputs,
/// and up to 64 blocks if layers are wider, up to 4096, for up to 128 rows. With more rows, a block takes 16 or 32 rows
/// through all layers (detail/mlp/rows.cuh): layers of up to 256 outputs at the end of the stacks; the first layer of
/// all may be 512 wide if it has up to 64 inputs. Only capacities, alignment and the target decide between the two
/// (detail/mlp/policy.hpp); their bits differ.
///
/// Layers before the fused ones are launched one by one (ops/linear.cuh): wider layers, and those before the last 8 of
/// a stack. With spread_first and up to 256 rows that are not split, so is the first of several layers if it has 256
/// inputs or more. With first_is_done, other launches have computed the first layer, split between user and item (late
/// broadcast), as sums without bias; its bias, row bias and f are applied on load.
///
/// A mix comes between experts and towers, in MMoE, and in PLE, whose towers share some experts. ops/host/mix.hpp has
/// its formula; there are up to 64 experts of up to 256 columns.
///
/// A head is a layer of one output at the end of a stack. The kernel that fuses heads also makes their products: for
/// each row, the head that is done last makes it.
///
/// Every layer is within the bound of ops/linear.cuh for its input h, which is rounded to FP16, finite values to at
/// most 65504 with their sign; so is y in FP16. For one capacity and target, a row has the same bits whatever M, its
/// place and the other rows. NaN and infinity in x get only into their own row.
///
/// Alignment and overlap: as in ops/linear.cuh.
///
/// Where a stack has a mix or first_is_done, all layers of all stacks of the launch have to be fused, else it is
/// refused: at most 8 layers a stack, of 1 output only the last, and others of 2 to 256 outputs (the first of up to
/// 512, if it has up to 64 inputs); wider ones only where there are few rows, so that blocks share their outputs.
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
  bool first_is_done = false;         ///< layer 0 is only f_0(x + b_0 + row_bias); `in` must be given
  ExpertMix mix;                      ///< with a mix, x has the stack's own experts side by side
  int64_t in = 0;                     ///< of layer 0, with first_is_done or a mix; otherwise x.cols
  const int64_t* num_rows = nullptr;  ///< M; null: always the capacity
  AxisInput<void> row_bias;           ///< [capacity or segment capacity, out_0]; no data: none
  AxisInput<void> last_row_bias;      ///< the same with out_last, for several layers; with row_bias: its segments
  Span<const MlpLayer> layers;
  FloatMatrix<const void> multiply;  ///< [capacity, out_last]; no data: none
  FloatMatrix<const void> residual;  ///< [capacity, out_last]; no data: none
  bool residual_first = false;       ///< the residual is added before the last activation
  FloatMatrix<void> y;               ///< [capacity, out_last]
};

/// y = (h_0 h_1) h_2 ..., in FP32, of the heads h of different stacks with the same rows, before h is rounded for
/// storage. Their last layers have one output each and are fused. An example is pCTCVR = pCTR x pCVR.
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
  /// For the kernels of `target`. `policy`: how all layers are fused, chosen by measurement; null: by rule. Throws
  /// invalid_argument, all problems together.
  explicit MlpLaunch(Span<const Mlp> stacks, int target = device::target(), bool spread_first = true,
                     Span<const HeadProduct> products = {}, const ChainPolicy* policy = nullptr)
      : Primitive("mlps"), plan_(detail::mlp::plan_mlp(stacks, products, target, spread_first, policy)) {
    set_launches(plan_.num_launches());
    set_descriptors(plan_.descriptors, plan_.in_workspace);
    set_workspace_bytes(plan_.workspace_bytes);
  }

  /// Layers of a stack that are fused into the last kernel.
  int64_t num_fused() const { return plan_.num_fused; }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const {
    check(memory);
    detail::mlp::launch(plan_, memory, stream);
  }

 private:
  detail::mlp::Plan plan_;
};

}}  // namespace warprank::v0
