// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels of ops/mlp.cuh have in common: layers of stacks as they lie in device memory, and inputs of stacks
/// that are computed.

#include <cstdint>

#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/linear/kernel.cuh"
#include "warprank/ops/detail/mlp/policy.hpp"
#include "warprank/ops/detail/mlp/product.cuh"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// h_0 = sum_e w_e x_e of experts that lie side by side, first the own, then the shared.
struct MixInput {
  gemm::Operand<const void> own, shared, gate;
  const int64_t* gate_offsets;  ///< as those of a row bias
  const int64_t* num_gate_segments;
  int64_t max_gate_segments;
  int num_own, num_shared;  ///< 0 of both: no mix
  Normalization normalization;
};

/// What blocks that share a layer ask of it again and again (split.cuh): for its products,
struct alignas(16) SplitProducts {
  int num_steps;          ///< of 32 inputs
  int num_pairs, shares;  ///< of 8 outputs; what a block computes together
  int first_input;        ///< words before its inputs, of those that blocks exchange
};
/// and for what comes behind them.
struct alignas(16) SplitFinish {
  int outputs;
  int first_output;  ///< words before them, of those that blocks exchange
  float least;       ///< where is_simple, f(x) = max(x, least): relu or identity
  bool is_simple;
  bool has_added;      ///< more than the bias is added before the activation
  bool is_staged;      ///< of the whole stack: its inputs go through shared memory
  bool has_bias_rows;  ///< of the whole stack: a layer has a row bias
};

/// A layer of a stack as it lies in device memory.
struct Descriptor : linear::Descriptor {
  int stack_depth;        ///< of the stack that the layer is in
  bool is_done;           ///< the products are there already, in `sums`
  uint8_t num_factors;    ///< of the stack's last layer: what its head is of products,
  uint16_t first_factor;  ///< among those behind all layers
  gemm::Operand<const void> sums;
  MixInput mix;  ///< of the stack's first layer
  SplitProducts products;
  SplitFinish finish;
};
static_assert(std::is_trivially_copyable_v<Descriptor>);

/// 4 activations of a row, as FP16.
WARPRANK_DEVICE void store_activations(float16* to, const float (&values)[gemm::columns_at_once]) {
  device::Vector<float16, gemm::columns_at_once> four;
  WARPRANK_UNROLL
  for (int i = 0; i < gemm::columns_at_once; ++i) four[i] = device::narrow<float16>(values[i]);
  device::store_vector(to, four);
}

/// Brings the mixed experts of a block's rows, 0 in what a strip has beside them. Ends with a barrier. `weights` has
/// [Rows, experts]. All of a row's weights are made by one thread: there are few.
template <int Rows, int Threads>
WARPRANK_DEVICE void mix_experts(const MixInput& mix, int64_t row, int num_rows, int width, float* weights,
                                 float16* activations, int stride) {
  const int num_experts = mix.num_own + mix.num_shared;
  const int r = device::thread_rank();
  if (r < num_rows) {
    float* w = weights + r * num_experts;
    const int64_t gate_row = gemm::segment_of(mix.gate_offsets, mix.num_gate_segments, mix.max_gate_segments, row + r);
    float largest = -INFINITY, sum = 0;
    for (int e = 0; e < num_experts; ++e) {
      w[e] = gemm::load_element(mix.gate, gate_row, e);
      largest = w[e] > largest ? w[e] : largest;
    }
    for (int e = 0; e < num_experts; ++e) {
      if (mix.normalization == Normalization::softmax) w[e] = std::exp(w[e] - largest);
      if (mix.normalization == Normalization::sigmoid) w[e] = sigmoid_of(w[e]);
      sum += w[e];
    }
    if (mix.normalization == Normalization::softmax)
      for (int e = 0; e < num_experts; ++e) w[e] /= sum;
  }
  device::sync_block();
  const int fours = (width + 15) / 16 * 16 / gemm::columns_at_once;
  for (int at = device::thread_rank(); at < (num_rows + 15) / 16 * 16 * fours; at += Threads) {
    const int of_block = at / fours, column = at % fours * gemm::columns_at_once;
    float mixed[gemm::columns_at_once] = {};
    for (int e = 0; e < num_experts && of_block < num_rows && column < width; ++e) {
      const bool is_own = e < mix.num_own;
      const int64_t begin = int64_t{is_own ? e : e - mix.num_own} * width;
      float x[gemm::columns_at_once];
      gemm::load_operand(is_own ? mix.own : mix.shared, row + of_block, begin + column, begin + width, x);
      WARPRANK_UNROLL
      for (int c = 0; c < gemm::columns_at_once; ++c)
        mixed[c] = std::fma(weights[of_block * num_experts + e], x[c], mixed[c]);
    }
    WARPRANK_UNROLL
    for (int c = 0; c < gemm::columns_at_once; ++c)
      if (column + c >= width) mixed[c] = 0;
    store_activations(activations + of_block * stride + column, mixed);
  }
  device::sync_block();
}

/// Which row of the row bias serves each row of a block. Where both the first and the last layer have one, segments are
/// the same.
template <int Rows, int Threads>
WARPRANK_DEVICE void find_bias_rows(const Descriptor& first, const Descriptor& last, int64_t row, int num_rows,
                                    int64_t* bias_rows) {
  const gemm::Epilogue& segmented = first.epilogue.row_bias.data != nullptr ? first.epilogue : last.epilogue;
  for (int r = device::thread_rank(); r < Rows; r += Threads)
    bias_rows[r] = gemm::bias_row_of(segmented, row + (r < num_rows ? r : num_rows - 1));
}

/// Activations of a layer whose products are there, 0 in what a strip has beside them.
template <int Threads>
WARPRANK_DEVICE void finish_done_layer(const Descriptor& layer, int64_t row, int num_rows, const int64_t* bias_rows,
                                       float16* activations, int stride) {
  const int64_t width = layer.epilogue.width;
  const int fours = static_cast<int>((width + 15) / 16 * 16 / gemm::columns_at_once);
  for (int at = device::thread_rank(); at < (num_rows + 15) / 16 * 16 * fours; at += Threads) {
    const int of_block = at / fours, column = at % fours * gemm::columns_at_once;
    float sums[gemm::columns_at_once] = {};
    if (of_block < num_rows) gemm::load_operand(layer.sums, row + of_block, column, width, sums);
    gemm::combine_columns(layer.epilogue, row + of_block, bias_rows[of_block], column, sums);
    WARPRANK_UNROLL
    for (int c = 0; c < gemm::columns_at_once; ++c)
      if (column + c >= width) sums[c] = 0;  // also in a row of infinities
    store_activations(activations + of_block * stride + column, sums);
  }
}

/// The last layer where it has one output: FP32 products, 8 lanes for each row.
template <int Rows, int Threads>
WARPRANK_DEVICE void run_last_head(const Descriptor& layer, const HeadFactor* factors, const float16* activations,
                                   int stride, const int64_t* bias_rows, int64_t row, int num_rows) {
  static_assert(Rows * linear::head_lanes <= Threads);
  const int of_block = device::thread_rank() / linear::head_lanes, rank = device::Tile<linear::head_lanes>::rank();
  const bool exists = of_block < num_rows;  // all lanes of a row alike
  const float sum = linear::head_sum(layer, exists, [&](int k) {
    return *reinterpret_cast<const device::Vector<float16, 8>*>(activations + of_block * stride + k);
  });
  if (!exists || rank != 0) return;
  float values[gemm::columns_at_once] = {sum};
  gemm::finish_columns(layer.epilogue, row + of_block, bias_rows[of_block], 0, values);
  multiply_head(factors, layer.first_factor, layer.num_factors, row + of_block, values[0]);
}

}}}  // namespace warprank::v0::detail::mlp
