// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The product of a block with few rows: its warps divide the inputs. A warp's operands are its own, so that shared
/// memory would save nothing: they go straight to registers, those of all its steps (`depth` of 32 inputs) requested at
/// once, weights before rows. The warps' sums meet in shared memory and are added in the order of the warps.

#include <cstdint>

#include "warprank/ops/detail/linear/fragments.cuh"

namespace warprank { inline namespace v0 { namespace detail::linear {

template <int Target, LinearTile Tile, bool IsPlain, class Weight>
class DirectProduct {
 public:
  static constexpr TileShape shape = tile_shape(Tile);
  static constexpr bool is_direct = true;
  static constexpr int threads = shape.threads();
  static constexpr int strips = shape.rows / 8, pairs = shape.columns / 16;
  static constexpr int stride = shape.columns + 4;  ///< floats from row to row: lanes that store meet in no bank
  static constexpr int fours = shape.rows * shape.columns / 4;

  WARPRANK_DEVICE DirectProduct(const ProductDescriptor& layer, int first_column)
      : layer_(layer),
        begin_(device::warp_index()),
        end_((layer.inputs + 31) / 32),
        num_pairs_((layer.outputs - first_column + 15) / 16),
        weights_(layer.tiles() + (int64_t{first_column / 16} * end_ * Packed::words + device::lane_index() * 4)) {}

  /// Of the first `depth` steps; reads what no launch writes.
  WARPRANK_DEVICE void request_weights() {
    WARPRANK_UNROLL
    for (int d = 0; d < shape.depth; ++d) request_weights(d, begin_ + d * shape.warps);
  }
  WARPRANK_DEVICE void request_rows(const BlockRows& rows) {
    WARPRANK_UNROLL
    for (int r = 0; r < strips; ++r) {
      const int row = r * 8 + device::lane_index() / 4;
      rows_[r] = row < rows.count ? layer_.x + rows[row] * layer_.x_stride : nullptr;
    }
    WARPRANK_UNROLL
    for (int d = 0; d < shape.depth; ++d) request_rows(d, begin_ + d * shape.warps);
  }

  /// For blocks that have no rows.
  static WARPRANK_DEVICE void give_up() {}

  /// The warp's own steps; leaves the sums [warp, row, column] in shared memory.
  WARPRANK_DEVICE void multiply(float* shared) {
    float sums[pairs][strips][4] = {};
    for (int first = begin_; first < end_; first += shape.warps * shape.depth) {
      WARPRANK_UNROLL
      for (int d = 0; d < shape.depth; ++d) {
        const int step = first + d * shape.warps;
        if (step >= end_) break;
        multiply_step<Target>(sums, w_[d], x_[d]);
        request_weights(d, step + shape.depth * shape.warps);
        request_rows(d, step + shape.depth * shape.warps);
      }
    }
    const int g = device::lane_index() / 4, t = device::lane_index() % 4;
    float* own = shared + (device::warp_index() * shape.rows + 2 * t) * stride + g;
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      WARPRANK_UNROLL
      for (int r = 0; r < strips; ++r) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) own[(r * 8 + c % 2) * stride + j * 16 + c / 2 * 8] = sums[j][r][c];
      }
    }
  }

  /// Behind a barrier: the sums of four columns, number `four` of the tile's.
  static WARPRANK_DEVICE void sum_warps(const float* shared, int four, float (&sums)[4]) {
    const float* from = shared + row_of(four) * stride + column_of(four);
    WARPRANK_UNROLL
    for (int w = 0; w < shape.warps; ++w) {
      const auto of_warp = *reinterpret_cast<const device::Vector<float, 4>*>(from + w * shape.rows * stride);
      WARPRANK_UNROLL
      for (int c = 0; c < 4; ++c) sums[c] = w == 0 ? of_warp[c] : sums[c] + of_warp[c];
    }
  }
  static WARPRANK_DEVICE int row_of(int four) { return four / (shape.columns / 4); }
  static WARPRANK_DEVICE int column_of(int four) { return four % (shape.columns / 4) * 4; }

 private:
  using Packed = PackedSteps<Weight>;

  WARPRANK_DEVICE void request_weights(int d, int step) {
    WARPRANK_UNROLL
    for (int j = 0; j < pairs; ++j) {
      WARPRANK_UNROLL
      for (int h = 0; h < Packed::loads; ++h) {
        w_[d][h][j] = {};
        if (step < end_ && j < num_pairs_)
          w_[d][h][j] =
              device::load_vector_ahead<4>(weights_ + (int64_t{j} * end_ + step) * Packed::words + h * half_step_words);
      }
    }
  }
  WARPRANK_DEVICE void request_rows(int d, int step) {
    const int k = step * 32 + device::lane_index() % 4 * 8;
    WARPRANK_UNROLL
    for (int r = 0; r < strips; ++r) {
      x_[d][r] = {};
      if (rows_[r] == nullptr || k >= layer_.inputs) continue;
      x_[d][r] =
          reads_whole<IsPlain>(layer_, k) ? request_inputs(rows_[r] + k) : gather_inputs(rows_[r], k, layer_.inputs);
    }
  }

  const ProductDescriptor& layer_;
  int begin_, end_;  ///< steps: the warp's first, and the layer's end
  int num_pairs_;    ///< of 16 outputs that exist, from the tile's first on
  const uint32_t* weights_;
  const float16* rows_[strips];
  Fragment w_[shape.depth][Packed::loads][pairs], x_[shape.depth][strips];
};

}}}  // namespace warprank::v0::detail::linear
