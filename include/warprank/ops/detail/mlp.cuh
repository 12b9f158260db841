// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mlp.cuh: a block computes all layers of a stack for its rows, whose activations stay in shared
/// memory as FP16. Weights go past it, from the second-level cache to the registers of the warps they belong to.

#include <cstdint>

#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/ops/detail/gemm/block.cuh"
#include "warprank/ops/detail/linear.cuh"
#include "warprank/ops/detail/mlp/product.cuh"

namespace warprank::detail {

/// Layers of one kernel, and their outputs: what a block has room for. A first layer of few inputs may be wider: every
/// block reads its weights whole.
inline constexpr int max_fused_layers = 8, max_fused_width = 256;
inline constexpr int max_first_width = 512, max_inputs_of_wide_first = 64;
/// Experts that a stack can mix: their weights lie where sums are staged later.
inline constexpr int max_mixed_experts = 64;

/// Rows of a block: few, until every multiprocessor has some.
enum class MlpTile { rows_16, rows_32 };

/// Two blocks for each multiprocessor of a T4, or of an A100: bits must not depend on the card's own number.
constexpr int64_t blocks_wanted(int target) { return target >= 80 ? 216 : 80; }

constexpr MlpTile mlp_tile(int target, int64_t max_rows) {
  return max_rows <= blocks_wanted(target) / 2 * 16 ? MlpTile::rows_16 : MlpTile::rows_32;
}

constexpr GemmPolicy mlp_policy(int target, MlpTile tile) {
  const int stages = target >= 80 ? 3 : 2;
  return tile == MlpTile::rows_16 ? GemmPolicy{1, 8, 1, 2, 4, stages, 2} : GemmPolicy{1, 8, 2, 2, 3, stages, 2};
}

template <int Target, MlpTile Tile>
struct MlpConfig {
  static constexpr int target = Target;
  static constexpr GemmPolicy policy = mlp_policy(Target, Tile);
  static constexpr int num_staged = static_cast<int>(policy.staging_bytes() / 4);  // floats
};

/// From one row of activations to the next, in halves: an odd number of 16 bytes.
inline constexpr int activation_stride = max_fused_width + 8, wide_activation_stride = max_first_width + 8;

/// What warps stage; the outputs of odd layers, where the tiles of the first layer's input were; and those of even
/// ones, which are wider when a first layer is.
constexpr int64_t activations_bytes(const GemmPolicy& policy) { return int64_t{2} * policy.rows() * activation_stride; }
constexpr int64_t mlp_shared_bytes(const GemmPolicy& policy, bool is_wide) {
  return policy.staging_bytes() + activations_bytes(policy) +
         int64_t{2} * policy.rows() * (is_wide ? wide_activation_stride : activation_stride);
}
static_assert(mlp_policy(75, MlpTile::rows_32).staging_bytes() >= 32 * max_mixed_experts * 4);
static_assert(mlp_policy(75, MlpTile::rows_32).tiles_bytes() <= activations_bytes(mlp_policy(75, MlpTile::rows_32)));
static_assert(mlp_policy(80, MlpTile::rows_32).tiles_bytes() <= activations_bytes(mlp_policy(80, MlpTile::rows_32)));

/// h_0 = sum_e w_e x_e of experts that lie side by side, first the own, then the shared.
struct MixInput {
  Operand<const void> own, shared, gate;
  const int64_t* gate_offsets;  ///< as those of a row bias
  const int64_t* num_gate_segments;
  int64_t max_gate_segments;
  int num_own, num_shared;  ///< 0 of both: no mix
  Normalization normalization;
};

/// A layer of a stack as it lies in device memory.
struct MlpDescriptor : LinearDescriptor {
  int stack_depth;  ///< of the stack that the layer is in
  bool is_done;     ///< the products are there already, in `sums`
  Operand<const void> sums;
  MixInput mix;                   ///< of the stack's first layer
  int first_factor, num_factors;  ///< of the stack's last layer: what its head is of products, behind all layers
};
static_assert(std::is_trivially_copyable_v<MlpDescriptor>);

template <class Block>
struct MlpStorage {
  MlpDescriptor layers[max_fused_layers];
  int64_t bias_rows[Block::rows];  ///< what bias_row_of gives for the rows
};

/// 4 activations of a row, as FP16.
WARPRANK_DEVICE void store_activations(half* to, const float (&values)[columns_at_once]) {
  device::Vector<half, columns_at_once> four;
  WARPRANK_UNROLL
  for (int i = 0; i < columns_at_once; ++i) four[i] = device::narrow<half>(values[i]);
  device::store_vector(to, four);
}

/// Brings the mixed experts of a block's rows, 0 in what a strip has beside them. Ends with a barrier. `weights` has
/// [Rows, experts]. All of a row's weights are made by one thread: there are few.
template <int Rows, int Threads>
WARPRANK_DEVICE void mix_experts(const MixInput& mix, int64_t row, int num_rows, int width, float* weights,
                                 half* activations, int stride) {
  const int num_experts = mix.num_own + mix.num_shared;
  const int r = device::thread_rank();
  if (r < num_rows) {
    float* w = weights + r * num_experts;
    const int64_t gate_row = segment_of(mix.gate_offsets, mix.num_gate_segments, mix.max_gate_segments, row + r);
    float largest = -INFINITY, sum = 0;
    for (int e = 0; e < num_experts; ++e) {
      w[e] = load_element(mix.gate, gate_row, e);
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
  const int fours = (width + 15) / 16 * 16 / columns_at_once;
  for (int at = device::thread_rank(); at < (num_rows + 15) / 16 * 16 * fours; at += Threads) {
    const int of_block = at / fours, column = at % fours * columns_at_once;
    float mixed[columns_at_once] = {};
    for (int e = 0; e < num_experts && of_block < num_rows && column < width; ++e) {
      const bool is_own = e < mix.num_own;
      const int64_t begin = int64_t{is_own ? e : e - mix.num_own} * width;
      float x[columns_at_once];
      load_operand(is_own ? mix.own : mix.shared, row + of_block, begin + column, begin + width, x);
      WARPRANK_UNROLL
      for (int c = 0; c < columns_at_once; ++c)
        mixed[c] = std::fma(weights[of_block * num_experts + e], x[c], mixed[c]);
    }
    WARPRANK_UNROLL
    for (int c = 0; c < columns_at_once; ++c)
      if (column + c >= width) mixed[c] = 0;
    store_activations(activations + of_block * stride + column, mixed);
  }
  device::sync_block();
}

/// Which row of the row bias serves each row of a block. Where both the first and the last layer have one, segments are
/// the same.
template <int Rows, int Threads>
WARPRANK_DEVICE void find_bias_rows(const MlpDescriptor& first, const MlpDescriptor& last, int64_t row, int num_rows,
                                    int64_t* bias_rows) {
  const Epilogue& segmented = first.epilogue.row_bias.data != nullptr ? first.epilogue : last.epilogue;
  for (int r = device::thread_rank(); r < Rows; r += Threads)
    bias_rows[r] = bias_row_of(segmented, row + (r < num_rows ? r : num_rows - 1));
}

/// Activations of a layer whose products are there, 0 in what a strip has beside them.
template <int Threads>
WARPRANK_DEVICE void finish_done_layer(const MlpDescriptor& layer, int64_t row, int num_rows, const int64_t* bias_rows,
                                       half* activations, int stride) {
  const int64_t width = layer.epilogue.width;
  const int fours = static_cast<int>((width + 15) / 16 * 16 / columns_at_once);
  for (int at = device::thread_rank(); at < (num_rows + 15) / 16 * 16 * fours; at += Threads) {
    const int of_block = at / fours, column = at % fours * columns_at_once;
    float sums[columns_at_once] = {};
    if (of_block < num_rows) load_operand(layer.sums, row + of_block, column, width, sums);
    combine_columns(layer.epilogue, row + of_block, bias_rows[of_block], column, sums);
    WARPRANK_UNROLL
    for (int c = 0; c < columns_at_once; ++c)
      if (column + c >= width) sums[c] = 0;  // also in a row of infinities
    store_activations(activations + of_block * stride + column, sums);
  }
}

/// The last layer where it has one output: FP32 products, 8 lanes for each row.
template <int Rows, int Threads>
WARPRANK_DEVICE void run_last_head(const MlpDescriptor& layer, const HeadFactor* factors, const half* activations,
                                   int stride, const int64_t* bias_rows, int64_t row, int num_rows) {
  static_assert(Rows * head_lanes <= Threads);
  const int of_block = device::thread_rank() / head_lanes, rank = device::Tile<head_lanes>::rank();
  const bool exists = of_block < num_rows;  // all lanes of a row alike
  const float sum = head_sum(layer, exists, [&](int k) {
    return *reinterpret_cast<const device::Vector<half, 8>*>(activations + of_block * stride + k);
  });
  if (!exists || rank != 0) return;
  float values[columns_at_once] = {sum};
  finish_columns(layer.epilogue, row + of_block, bias_rows[of_block], 0, values);
  multiply_head(factors, layer.first_factor, layer.num_factors, row + of_block, values[0]);
}

/// layers: those of all stacks, one stack after another, and behind them the factors of products.
template <int Target, MlpTile Tile>
WARPRANK_KERNEL(mlp_policy(Target, Tile).threads(), mlp_policy(Target, Tile).min_blocks)
mlp_kernel(const MlpDescriptor* layers, int num_layers) {
  using Block = GemmBlock<MlpConfig<Target, Tile>>;
  auto& shared = device::static_shared<MlpStorage<Block>>();
  const int64_t block = device::block_index().x;
  // All layers of a stack begin at its first block: what is found is the last.
  const int last = problem_of_block(layers, num_layers, block);
  const int depth = device::load_read_only(&layers[last].stack_depth);
  read_descriptors(layers + last + 1 - depth, depth, shared.layers);
  device::wait_for_previous_launch();

  const MlpDescriptor& first = shared.layers[0];
  const int64_t row = (block - first.first_block) * Block::rows;
  const BlockRows rows = neighbours(row, rows_of(first), Block::rows);
  if (rows.count <= 0) return;
  find_bias_rows<Block::rows, Block::threads>(first, shared.layers[depth - 1], row, rows.count, shared.bias_rows);

  auto* staging = device::dynamic_shared<float>();
  auto* odd = reinterpret_cast<half*>(staging + MlpConfig<Target, Tile>::num_staged);
  half* const even = odd + Block::rows * activation_stride;
  const int even_stride = first.epilogue.width > max_fused_width ? wide_activation_stride : activation_stride;
  const bool is_mixed = first.mix.num_own > 0;
  if (is_mixed) {
    mix_experts<Block::rows, Block::threads>(first.mix, row, rows.count, first.inputs, staging, odd, activation_stride);
  }
  for (int i = 0; i < depth; ++i) {
    const MlpDescriptor& layer = shared.layers[i];
    const Epilogue& epilogue = layer.epilogue;
    const bool is_even = i % 2 == 0;
    const half* from = is_even ? odd : even;
    half* to = is_even ? even : odd;
    const int from_stride = is_even ? activation_stride : even_stride;
    const int to_stride = is_even ? even_stride : activation_stride;
    const int padded = static_cast<int>((epilogue.width + 15) / 16 * 16);
    const bool is_last = i + 1 == depth;
    const auto store = [&](int of_block, int column, float(&sums)[columns_at_once]) {
      combine_columns(epilogue, row + of_block, shared.bias_rows[of_block], column, sums);
      if (is_last) return store_operand(epilogue.y, row + of_block, column, epilogue.width, sums);
      WARPRANK_UNROLL
      for (int c = 0; c < columns_at_once; ++c)
        if (column + c >= epilogue.width) sums[c] = 0;  // also in a row of infinities
      store_activations(to + of_block * to_stride + column, sums);
    };
    if (layer.is_done) {
      device::sync_block();  // bias_rows
      finish_done_layer<Block::threads>(layer, row, rows.count, shared.bias_rows, to, to_stride);
    } else if (layer.is_head) {
      const auto* factors = reinterpret_cast<const HeadFactor*>(layers + num_layers);
      run_last_head<Block::rows, Block::threads>(layer, factors, from, from_stride, shared.bias_rows, row, rows.count);
    } else {
      for (int column_tile = 0; column_tile * Block::columns < padded; ++column_tile) {
        const Block tile(source_of(layer, rows), epilogue.width, column_tile, 0, (layer.inputs + 15) / 16);
        typename Block::Warp warp;
        if (i == 0 && !is_mixed) {
          if (column_tile > 0) device::sync_block();  // all warps have left the tiles of the input
          tile.multiply(layer.weights, odd, warp);
        } else {
          tile.multiply_resident(layer.weights, from, from_stride, warp);
        }
        tile.finish(warp, is_last ? epilogue.width : padded, !is_last, staging, store);
      }
    }
    device::sync_block();
  }
}

}  // namespace warprank::detail
