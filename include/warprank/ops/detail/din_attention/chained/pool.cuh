// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pooling of the chained DIN kernel: weights of 8 items times rows of the history on tensor cores. Warps divide
/// the columns and each goes over all events, so that nothing is combined across warps.

#include <cmath>
#include <cstdint>

#include "warprank/device/approximate.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/ops/detail/din_attention/chained/block.cuh"
#include "warprank/ops/detail/din_attention/chained/score.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::din::chained {

/// Sums of a lane for one item, from chunk to chunk.
template <class Block>
struct Pooling {
  static constexpr int column_tiles = Block::columns / 8, of_warp = (column_tiles + block_warps - 1) / block_warps;

  float sums[of_warp][2] = {};
  float top = -max_score, total = 0;  ///< softmax: largest score, and sum of weights in relation to it

  static WARPRANK_DEVICE int item() { return device::lane_index() / 4; }
  static WARPRANK_DEVICE int first_column() { return device::warp_index() * of_warp * 8; }
  static WARPRANK_DEVICE bool has_columns() { return first_column() < Block::columns; }

  WARPRANK_DEVICE void add(const Block& block, int num_items, int num_events) {
    if (!has_columns()) return;
    const Descriptor& d = block.d;
    const int lane = device::lane_index(), num_tiles = tiles_of(num_events);
    const bool is_softmax = d.normalization == Normalization::softmax, exists = item() < num_items;
    const Tile* const tiles = block.template at<const Tile>(d.places.tiles) + item();
    const Fragment* const weights = block.template at<const Fragment>(d.places.attention) + lane;
    const float16* const rows =
        block.template at<const float16>(d.places.history) + lane % tile_events * Block::row_stride + first_column();
    if (is_softmax) {
      const float before = top;
      for (int t = 0; t < num_tiles && exists; ++t) top = max_of(top, tiles[t * max_unit_items].top);
      const float factor = device::fast_exp(before - top);
      total *= factor;
      WARPRANK_UNROLL
      for (int n = 0; n < of_warp; ++n) sums[n][0] *= factor, sums[n][1] *= factor;
    }
    for (int t = 0; t < num_tiles; ++t) {
      uint32_t a[4] = {};
      float factor = 0;
      if (exists) {
        const Fragment fragment = weights[t * device::warp_size];
        a[0] = fragment[0], a[1] = fragment[1], a[2] = fragment[2], a[3] = fragment[3];
        const Tile tile = tiles[t * max_unit_items];
        factor = is_softmax ? device::fast_exp(tile.top - top) : tile.top;
        total = std::fma(tile.sum, factor, total);
      }
      WARPRANK_UNROLL
      for (int n = 0; n < of_warp; ++n) {
        uint32_t b[2];
        device::load_matrices<true>(b, rows + t * tile_events * Block::row_stride + n * 8);
        float products[4] = {};
        gemm::multiply_step<Block::target>(products, a, b[0], b[1], true);
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i)
          sums[n][i] = std::fma(std::fma(products[2 + i], 1 / low_scale, products[i]), factor, sums[n][i]);
      }
    }
  }

  /// Rows of zeros where there were no events.
  WARPRANK_DEVICE void store(const Descriptor& d, const Unit& unit) const {
    if (!has_columns() || item() >= unit.num_items) return;
    const bool divides = d.normalization == Normalization::softmax && unit.num_events > 0;
    const int64_t row = static_cast<int64_t>(unit.first_item + item()) * d.y.stride;
    WARPRANK_UNROLL
    for (int n = 0; n < of_warp; ++n) {
      const int column = first_column() + n * 8 + device::lane_index() % 4 * 2;
      const float low = divides ? sums[n][0] / total : sums[n][0], high = divides ? sums[n][1] / total : sums[n][1];
      if (d.y.is_half)
        store_pair(static_cast<float16*>(d.y.data) + row + column, device::narrow<float16>(low),
                   device::narrow<float16>(high), d.y.is_aligned, d.dim - column);
      else
        store_pair(static_cast<float*>(d.y.data) + row + column, low, high, d.y.is_aligned, d.dim - column);
    }
  }

 private:
  template <class Value>
  static WARPRANK_DEVICE void store_pair(Value* to, Value low, Value high, bool is_aligned, int columns) {
    if (is_aligned && columns >= 2) return device::store_vector(to, device::Vector<Value, 2>{{low, high}});
    if (columns >= 1) device::store(to, low);
    if (columns >= 2) device::store(to + 1, high);
  }
};

}}}  // namespace warprank::v0::detail::din::chained
