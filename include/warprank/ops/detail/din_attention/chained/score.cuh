// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scoring network of the chained DIN kernel. Events are the rows of its products and outputs the columns, so that
/// the sums of the first layer, narrowed, are the A fragment of the second; W(q) exists only as B fragments in
/// registers:
///
///     c(q)       rows are items: one tile, its lower half empty
///     layer 0    A = 16 events, B = (Wk - Wd) + Wp q: one instruction for each register of a fragment
///     layer 1    grows by the 16 outputs of layer 0 that have just been computed, which are nowhere else
///     score      the head in FP32, and the weight that it becomes

#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/device/approximate.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/ops/detail/din_attention/chained/block.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::din::chained {

inline constexpr float max_score = std::numeric_limits<float>::max();
/// The second half of a weight is stored as so many times what it is.
inline constexpr float low_scale = 2048;

WARPRANK_DEVICE float max_of(float a, float b) { return a < b ? b : a; }

/// x (p + alpha (1 - p)), p = sigmoid(scale x + shift)
WARPRANK_DEVICE float fast_dice(float x, float alpha, float scale, float shift) {
  const float p = device::fast_sigmoid(std::fma(scale, x, shift));
  return x * std::fma(p, 1.0f - alpha, alpha);
}

/// Dice's vectors for two neighbouring outputs.
struct DicePair {
  FloatPair alpha, scale, shift;

  /// From three vectors of `width` behind one another.
  static WARPRANK_DEVICE DicePair load(const float* from, int width) {
    return {*reinterpret_cast<const FloatPair*>(from), *reinterpret_cast<const FloatPair*>(from + width),
            *reinterpret_cast<const FloatPair*>(from + 2 * width)};
  }
  WARPRANK_DEVICE float activate(float x, int i) const { return fast_dice(x, alpha[i], scale[i], shift[i]); }
};

template <class Block>
struct Scoring {
  static constexpr int steps = Block::steps, pairs = Block::pairs, tiles = Block::tiles;

  Block block;
  const Descriptor& d;
  int lane, group, pair;  ///< of a fragment: its row, and the column 2 pair

  explicit WARPRANK_DEVICE Scoring(const Block& block)
      : block(block), d(block.d), lane(device::lane_index()), group(lane / 4), pair(lane % 4) {}

  /// Requests what the warp wants of Wq + Wd: 16 outputs, which no other warp wants.
  WARPRANK_DEVICE void load_query_weights(Fragment (&weights)[steps], int chunk) const {
    const auto* const from = reinterpret_cast<const uint32_t*>(d.weights + block.shape().query());
    WARPRANK_UNROLL
    for (int s = 0; s < steps; ++s)
      weights[s] = device::load_vector_read_only<4>(from + ((chunk * steps + s) * device::warp_size + lane) * 4);
  }

  /// c(q) of all items; `weights` are those of the warp's first chunk.
  WARPRANK_DEVICE void compute_constants(Fragment (&weights)[steps]) const {
    const int stride = block.shape().width() + 8;
    uint32_t q[2 * steps];
    load_query(q, group);
    const int chunks = d.chunks;
    for (int chunk = device::warp_index(); chunk < chunks;) {
      float sums[2][4] = {};
      WARPRANK_UNROLL
      for (int s = 0; s < steps; ++s) {
        const uint32_t a[4] = {q[2 * s], 0u, q[2 * s + 1], 0u};
        gemm::multiply_step<Block::target>(sums[0], a, weights[s][0], weights[s][1], true);
        gemm::multiply_step<Block::target>(sums[1], a, weights[s][2], weights[s][3], true);
      }
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) {
        const int output = chunk * 16 + n * 8 + 2 * pair;
        const FloatPair bias = *block.template weights<FloatPair>(block.shape().bias() + output * 4);
        *block.template at<FloatPair>(d.places.constants +
                                      (group * stride + output) * 4) = {{sums[n][0] + bias[0], sums[n][1] + bias[1]}};
      }
      chunk += block_warps;
      if (chunk < chunks) load_query_weights(weights, chunk);
    }
  }

  /// Turns the chunk's events into weights, for all items of the unit, with so many tiles at once as take the busiest
  /// warp least.
  WARPRANK_DEVICE void score(int num_items, int num_events, bool saturates) const {
    const int num_tiles = tiles_of(num_events);
    if (saturates) return score<1, true>(num_items, num_events, num_tiles);
    if (tiles > 1 && tiles_together(tiles, num_tiles, num_items) > 1)
      return score<tiles, false>(num_items, num_events, num_tiles);
    score<1, false>(num_items, num_events, num_tiles);
  }

 private:
  /// A task is `AtOnce` tiles of events of one item; tasks are cut evenly among the warps, and those of the same events
  /// are neighbours.
  template <int AtOnce, bool Saturates>
  WARPRANK_DEVICE void score(int num_items, int num_events, int num_tiles) const {
    const int tasks = (num_tiles + AtOnce - 1) / AtOnce * num_items, warp = device::warp_index();
    const auto begin_of = [&](int of) { return static_cast<int>(static_cast<unsigned>(of * tasks) / block_warps); };
    const int begin = begin_of(warp);
    int left = begin_of(warp + 1) - begin;
    if (left == 0) return;
    int tile = begin, item = 0;
    if (num_items > 1) {  // a division is long
      tile = static_cast<int>(static_cast<unsigned>(begin) / static_cast<unsigned>(num_items));
      item = begin - tile * num_items;
    }
    tile *= AtOnce;
    uint32_t events[AtOnce][steps][4];
    load_events(events, tile, num_events);
    for (;;) {
      float sums[AtOnce][2 * pairs][4];
      run_layers<Saturates>(events, item, sums);
      float scores[AtOnce][2] = {};
      add_head(sums, scores);
      WARPRANK_UNROLL
      for (int m = 0; m < AtOnce; ++m)
        if (m == 0 || (tile + m) * tile_events < num_events) store_weight(scores[m], tile + m, item, num_events);
      if (--left == 0) break;
      if (++item == num_items) {
        item = 0, tile += AtOnce;
        load_events(events, tile, num_events);
      }
    }
  }

  /// Of neighbouring tiles; behind the last one any.
  template <int AtOnce>
  WARPRANK_DEVICE void load_events(uint32_t (&events)[AtOnce][steps][4], int tile, int num_events) const {
    WARPRANK_UNROLL
    for (int m = 0; m < AtOnce; ++m) {
      const int row = (m == 0 || (tile + m) * tile_events < num_events ? tile + m : tile) * tile_events;
      const float16* const rows = block.template at<float16>(d.places.history) + row * Block::row_stride;
      WARPRANK_UNROLL
      for (int s = 0; s < steps; ++s) gemm::load_rows(events[m][s], rows + s * 16, Block::row_stride);
    }
  }

  /// An item's query: the columns [16 s + 2 pair, 16 s + 2 pair + 2) and those 8 behind them.
  WARPRANK_DEVICE void load_query(uint32_t (&q)[2 * steps], int item) const {
    const auto* const from =
        block.template at<const uint32_t>(d.places.queries) + item * (Block::columns / 2) + pair * 2 * steps;
    WARPRANK_UNROLL
    for (int i = 0; i < 2 * steps; i += 4) {
      const Fragment four = *reinterpret_cast<const Fragment*>(from + i);
      q[i] = four[0], q[i + 1] = four[1], q[i + 2] = four[2], q[i + 3] = four[3];
    }
  }

  template <bool Saturates>
  static WARPRANK_DEVICE uint32_t fold(uint32_t of_pair, uint32_t q, uint32_t of_event) {
    const uint32_t folded = device::fma_halves(of_pair, q, of_event);
    return Saturates ? device::saturate_halves(folded) : folded;
  }

  /// sums: of the second layer, before its activation.
  template <bool Saturates, int AtOnce>
  WARPRANK_DEVICE void run_layers(const uint32_t (&events)[AtOnce][steps][4], int item,
                                  float (&sums)[AtOnce][2 * pairs][4]) const {
    const Shape shape = block.shape();
    uint32_t q[2 * steps];
    load_query(q, item);
    WARPRANK_UNROLL
    for (int n = 0; n < 2 * pairs; ++n) {
      const FloatPair bias = *block.template weights<FloatPair>(shape.later_bias() + (n * 8 + 2 * pair) * 4);
      WARPRANK_UNROLL
      for (int m = 0; m < AtOnce; ++m) sums[m][n][0] = sums[m][n][2] = bias[0], sums[m][n][1] = sums[m][n][3] = bias[1];
    }
    const float* constants = block.template at<const float>(d.places.constants) + item * (shape.width() + 8) + 2 * pair;
    const Fragment* weights = block.template weights<Fragment>(0) + lane;
    const int chunks = d.chunks;
    // With two the next chunk's weights come while this one's outputs are narrowed.
    [[maybe_unused]] constexpr int at_a_time = tiles == 1 ? 2 : 1;
    WARPRANK_UNROLL_BY(at_a_time)
    for (int chunk = 0; chunk < chunks; ++chunk) {
      float first[AtOnce][2][4];
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) {
        const FloatPair c = *reinterpret_cast<const FloatPair*>(constants + n * 8);
        WARPRANK_UNROLL
        for (int m = 0; m < AtOnce; ++m) first[m][n][0] = first[m][n][2] = c[0], first[m][n][1] = first[m][n][3] = c[1];
      }
      WARPRANK_UNROLL
      for (int s = 0; s < steps; ++s) {
        const Fragment of_event = weights[2 * s * device::warp_size],
                       of_pair = weights[(2 * s + 1) * device::warp_size];
        uint32_t b[4];
        WARPRANK_UNROLL
        for (int i = 0; i < 4; ++i) b[i] = fold<Saturates>(of_pair[i], q[2 * s + i % 2], of_event[i]);
        WARPRANK_UNROLL
        for (int m = 0; m < AtOnce; ++m) {
          gemm::multiply_step<Block::target>(first[m][0], events[m][s], b[0], b[1], true);
          gemm::multiply_step<Block::target>(first[m][1], events[m][s], b[2], b[3], true);
        }
      }
      uint32_t outputs[AtOnce][4];
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) narrow(first, n, chunk, outputs);
      WARPRANK_UNROLL
      for (int n = 0; n < pairs; ++n) {
        const Fragment w = weights[(2 * steps + n) * device::warp_size];
        WARPRANK_UNROLL
        for (int m = 0; m < AtOnce; ++m) {
          gemm::multiply_step<Block::target>(sums[m][2 * n], outputs[m], w[0], w[1], true);
          gemm::multiply_step<Block::target>(sums[m][2 * n + 1], outputs[m], w[2], w[3], true);
        }
      }
      constants += 16, weights += (2 * steps + pairs) * device::warp_size;
    }
  }

  /// The activation of 8 outputs of the first layer, as half of an A fragment.
  template <int AtOnce>
  WARPRANK_DEVICE void narrow(const float (&first)[AtOnce][2][4], int n, int chunk,
                              uint32_t (&outputs)[AtOnce][4]) const {
    if constexpr (Block::is_dice) {
      const Shape shape = block.shape();
      const DicePair dice =
          DicePair::load(block.template weights<float>(shape.dice()) + chunk * 16 + n * 8 + 2 * pair, shape.width());
      WARPRANK_UNROLL
      for (int m = 0; m < AtOnce; ++m) {
        const float(&x)[4] = first[m][n];
        outputs[m][2 * n] = device::narrow_pair(dice.activate(x[0], 0), dice.activate(x[1], 1));
        outputs[m][2 * n + 1] = device::narrow_pair(dice.activate(x[2], 0), dice.activate(x[3], 1));
      }
    } else {
      WARPRANK_UNROLL
      for (int m = 0; m < AtOnce; ++m) {
        outputs[m][2 * n] = device::narrow_pair_relu(first[m][n][0], first[m][n][1]);
        outputs[m][2 * n + 1] = device::narrow_pair_relu(first[m][n][2], first[m][n][3]);
      }
    }
  }

  /// What the lane's columns add to the scores of rows `group` and `group + 8`.
  template <int AtOnce>
  WARPRANK_DEVICE void add_head(const float (&sums)[AtOnce][2 * pairs][4], float (&scores)[AtOnce][2]) const {
    const Shape shape = block.shape();
    WARPRANK_UNROLL
    for (int n = 0; n < 2 * pairs; ++n) {
      const int output = n * 8 + 2 * pair;
      const FloatPair weight = *block.template weights<FloatPair>(shape.head() + output * 4);
      [[maybe_unused]] DicePair dice;
      if constexpr (Block::is_dice)
        dice = DicePair::load(block.template weights<float>(shape.later_dice()) + output, shape.later_width());
      WARPRANK_UNROLL
      for (int m = 0; m < AtOnce; ++m) {
        WARPRANK_UNROLL
        for (int i = 0; i < 4; ++i) {
          float x = sums[m][n][i];
          if constexpr (Block::is_dice)
            x = dice.activate(x, i % 2);
          else
            x = x < 0 ? 0.0f : x;
          scores[m][i / 2] = std::fma(weight[i % 2], x, scores[m][i / 2]);
        }
      }
    }
  }

  /// The weights of a tile's events, each as two halves of 22 bits together, in the order of the pooling's A fragment:
  /// rows 0 to 7 are the upper halves of 8 items, rows 8 to 15 the lower ones.
  WARPRANK_DEVICE void store_weight(float (&scores)[2], int tile, int item, int num_events) const {
    WARPRANK_UNROLL
    for (int i = 0; i < 2; ++i) {
      scores[i] += device::shuffle_xor(device::full_warp, scores[i], 1);
      scores[i] += device::shuffle_xor(device::full_warp, scores[i], 2);
    }
    // Of the four lanes of a row, the even ones take its event and the odd ones that 8 rows below.
    const bool exists = tile * tile_events + group + pair % 2 * 8 < num_events;
    float weight = ((pair % 2 == 0 ? scores[0] : scores[1]) + d.head_bias) * d.factor;
    weight = weight > max_score ? max_score : weight < -max_score ? -max_score : weight;
    Tile of_tile{};
    if (d.normalization == Normalization::softmax) {
      of_tile.top = device::Warp::max(exists ? weight : -max_score);
      weight = exists ? device::fast_exp(weight - of_tile.top) : 0.0f;
      of_tile.sum = device::Warp::sum(pair < 2 ? weight : 0.0f);
    } else {
      if (d.normalization == Normalization::sigmoid) weight = device::fast_sigmoid(weight);
      if (!exists) weight = 0;
      // Halves have few exponents: the tile's largest weight gets that of 1.
      const uint32_t exponent = device::bits_of_float(device::Warp::max(std::fabs(weight))) >> 23;
      const uint32_t bounded = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
      of_tile.top = device::float_of_bits(bounded << 23);
      weight *= device::float_of_bits((254 - bounded) << 23);
    }
    if (lane == 0) block.template at<Tile>(d.places.tiles)[tile * max_unit_items + item] = of_tile;
    if (pair >= 2) return;
    float16* const to = block.template at<float16>(d.places.attention) +
                        ((tile * max_unit_items + item) * 4 + group / 2) * 8 + 4 * pair + group % 2;
    const float16 upper = device::low_half(device::narrow_pair(weight, 0));
    to[0] = upper;
    to[2] = device::low_half(device::narrow_pair((weight - device::widen(upper)) * low_scale, 0));
  }
};

}}}  // namespace warprank::v0::detail::din::chained
