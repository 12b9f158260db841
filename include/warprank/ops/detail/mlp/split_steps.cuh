// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A warp's part of a layer whose outputs blocks share (split.cuh): its steps of 32 inputs, of any share of the
/// outputs. Operands are requested some steps at a time.

#include <cmath>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/linear/fragments.cuh"
#include "warprank/ops/detail/mlp/descriptor.cuh"
#include "warprank/ops/detail/mlp/policy.hpp"
#include "warprank/ops/detail/mlp/product.cuh"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// Device memory by which the blocks of a tile exchange activations; 0 before the first launch.
struct SplitExchange {
  static constexpr int64_t fragment_words = 128;  ///< of 8 rows and 32 outputs, as a warp reads them

  uint32_t* ended;       ///< [stacks, tiles]: of two launches in turns, how many blocks have
  uint32_t* words;       ///< [stacks, tiles, 2, fragments, fragment_words]
  int64_t fragments;     ///< of all layers but the last
  int64_t input_stride;  ///< of rows that lie in shared memory first, in halves
  int max_looks;         ///< for what another block computes, before a block computes it itself

  static constexpr int64_t ended_bytes(int64_t tiles) { return 4 * tiles; }
  static constexpr int64_t words_bytes(int64_t tiles, int64_t fragments) {
    return tiles * 2 * fragments * fragment_words * 4;
  }
};

/// Of one warp. Weights and inputs of steps are requested, then multiplied.
template <int Target, int Strips, int Pairs>
class SplitSteps {
 public:
  /// Steps whose operands are in flight together: on a T4 what leaves registers for two blocks.
  static constexpr int at_once = blocks_of_multiprocessor(Target, {1, Strips, Pairs}) == 2 ? 3 : 4;
  using Sums = float[Pairs][Strips][4];  ///< of a lane, as products leave them

  static WARPRANK_DEVICE int steps_of(int inputs) { return (inputs + 31) >> 5; }
  /// Of a layer's steps, the first that is the warp's; of the next warp, where its end.
  static WARPRANK_DEVICE int first_step(int warp, int num_steps) {
    static_assert(SplitBlock::num_warps == 8);
    return warp * num_steps >> 3;
  }
  /// Whether all pairs of a share exist.
  static WARPRANK_DEVICE bool has_whole_share(const SplitProducts& shape, int share) {
    return Pairs == 1 || share * Pairs + 1 < shape.num_pairs;
  }

  /// Takes a layer's shape, and which inputs are the warp's.
  WARPRANK_DEVICE void begin_layer(const Descriptor& layer) {
    shape_ = layer.products;
    const int warp = device::warp_index(), t = device::lane_index() % 4;
    begin_ = first_step(warp, shape_.num_steps);
    count_ = first_step(warp + 1, shape_.num_steps) - begin_;
    is_head_ = layer.is_head;
    const int first_word = is_head_ ? t * 4 : begin_ * linear::step_words + device::lane_index() * 4;
    from_ = device::global(device::in_register(layer.tiles() + first_word));
  }

  WARPRANK_DEVICE int num_shares() const { return shape_.shares; }
  /// Steps of the warp.
  WARPRANK_DEVICE int count() const { return count_; }

  /// The lane's rows of the first layer's x, of the tile that begins with `first_row`.
  WARPRANK_DEVICE void find_input_rows(const Descriptor& layer, int64_t first_row, int num_rows) {
    const int begin = first_step(device::warp_index(), layer.products.num_steps);
    lane_count_ = steps_of(layer.inputs - device::lane_index() % 4 * 8) - begin;
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      const int row = r * 8 + device::lane_index() / 4;
      // Another row of the tile for those that do not exist: what comes of it is not stored.
      x_rows_[r] = layer.x + (first_row + (row < num_rows ? row : 0)) * layer.x_stride + begin * 32 +
                   device::lane_index() % 4 * 8;
    }
  }

  /// Asks for the weights of a share's outputs for the warp's steps from `step` of them on.
  WARPRANK_DEVICE void request_weights(int share, int step) {
    if (is_head_) return request_head(step);
    const int words_of_pair = shape_.num_steps * linear::step_words;
    const uint32_t* const from = from_ + (share * Pairs * words_of_pair + step * linear::step_words);
    // The same weights again where there is no other pair: what comes of it is not stored.
    const int next_pair = has_whole_share(shape_, share) ? words_of_pair : 0;
    WARPRANK_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (step + s >= count_) break;
      WARPRANK_UNROLL
      for (int j = 0; j < Pairs; ++j) {
        WARPRANK_UNROLL
        for (int h = 0; h < 2; ++h)
          weights_[s][h][j] = device::load_vector_read_only<4>(from + j * next_pair + s * linear::step_words +
                                                               h * linear::half_step_words);
      }
    }
  }
  /// Asks for the inputs of the first layer for the warp's steps from `step` of them on.
  WARPRANK_DEVICE void request_inputs(int step) {
    WARPRANK_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (step + s >= count_) break;
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r) {
        x_[s][r] = {};
        if (step + s < lane_count_)
          x_[s][r] = device::load_vector_ahead<4>(reinterpret_cast<const uint32_t*>(x_rows_[r] + step * 32) + s * 16);
      }
    }
  }
  /// The same, of those that lie in shared memory.
  WARPRANK_DEVICE void read_inputs(const float16* input, int stride, int step) {
    const float16* const from =
        input + device::lane_index() / 4 * stride + (begin_ + step) * 32 + device::lane_index() % 4 * 8;
    WARPRANK_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (step + s >= count_) break;
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r)
        x_[s][r] = *reinterpret_cast<const linear::Fragment*>(from + r * 8 * stride + s * 32);
    }
  }

  /// Looks among a launch's words for what other blocks have computed of the layer before, until it is there or until
  /// it has looked so often; 0: without end. Whole warps call.
  WARPRANK_DEVICE bool receive(const uint32_t* words, int step, int max_looks) {
    const int strip_words = shape_.num_steps * static_cast<int>(SplitExchange::fragment_words);
    const uint32_t* const from =
        device::in_register(words + (shape_.first_input + device::lane_index() * 4 +
                                     (begin_ + step) * static_cast<int>(SplitExchange::fragment_words)));
    for (int looks = 1;; ++looks) {
      uint32_t least = ~0u;
      WARPRANK_UNROLL
      for (int s = 0; s < at_once; ++s) {
        if (step + s >= count_) break;
        WARPRANK_UNROLL
        for (int r = 0; r < Strips; ++r)
          x_[s][r] = device::load<device::Order::relaxed, device::Scope::device>(
              reinterpret_cast<const linear::Fragment*>(from + r * strip_words) + s * device::warp_size);
      }
      WARPRANK_UNROLL
      for (int s = 0; s < at_once; ++s) {
        if (step + s >= count_) break;
        WARPRANK_UNROLL
        for (int r = 0; r < Strips; ++r) {
          const linear::Fragment& x = x_[s][r];
          least = least_of(least, least_of(least_of(x[0], x[1]), least_of(x[2], x[3])));
        }
      }
      if (device::all(device::full_warp, least != 0)) return true;
      if (looks == max_looks) return false;
    }
  }

  /// Adds the products of the steps whose weights and inputs are here.
  WARPRANK_DEVICE void multiply(Sums& sums, int step) {
    if (is_head_) return multiply_as_head(sums, step);
    WARPRANK_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (step + s >= count_) break;
      linear::multiply_half_steps<Target, 0>(sums, weights_[s][0], x_[s]);
      linear::multiply_half_steps<Target, 1>(sums, weights_[s][1], x_[s]);
    }
  }
  /// Brings a head's sums to where products leave those of the first output, and 0 to those of the others.
  WARPRANK_DEVICE void arrange(Sums& sums) const {
    if (!is_head_) return;
    const int lane = device::lane_index();
    WARPRANK_UNROLL
    for (int r = 0; r < Strips; ++r) {
      const float sum = device::Tile<4>::sum(sums[0][r][0]);
      WARPRANK_UNROLL
      for (int c = 0; c < 2; ++c) {
        const float of_row = device::shuffle(device::full_warp, sum, lane % 4 * 8 + c * 4);
        sums[0][r][c] = lane < 4 ? of_row : 0.0f;
      }
    }
  }

 private:
  static WARPRANK_DEVICE uint32_t least_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
  /// The FP32 weights of the lane's 8 inputs of each step.
  WARPRANK_DEVICE void request_head(int step) {
    constexpr int words = PackedLinearLayout::head_step;  // of two steps
    static_assert(words == 64);
    WARPRANK_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (step + s >= count_) break;
      const int at = begin_ + step + s;
      const uint32_t* const from = from_ + ((at >> 1) * words + (at & 1) * (words / 4));
      WARPRANK_UNROLL
      for (int h = 0; h < 2; ++h) weights_[s][h][0] = device::load_vector_read_only<4>(from + h * (words / 2));
    }
  }

  /// The lane's part of the sums of its rows, one of each strip.
  WARPRANK_DEVICE void multiply_as_head(Sums& sums, int step) const {
    WARPRANK_UNROLL
    for (int s = 0; s < at_once; ++s) {
      if (step + s >= count_) break;
      WARPRANK_UNROLL
      for (int r = 0; r < Strips; ++r) {
        WARPRANK_UNROLL
        for (int c = 0; c < 4; ++c) {
          const linear::Fragment& w = weights_[s][c / 2][0];
          float& sum = sums[0][r][0];
          sum = std::fma(device::widen_low(x_[s][r][c]), device::float_of_bits(w[c % 2 * 2]), sum);
          sum = std::fma(device::widen_high(x_[s][r][c]), device::float_of_bits(w[c % 2 * 2 + 1]), sum);
        }
      }
    }
  }

  const float16* x_rows_[Strips] = {};  ///< of the lane, from the warp's first step on, unless they are staged
  int lane_count_ = 0;                  ///< steps from there on whose inputs of the lane exist
  // Of the layer whose weights are on their way:
  SplitProducts shape_{};
  int begin_ = 0, count_ = 0;       ///< steps that are the warp's
  const uint32_t* from_ = nullptr;  ///< the lane's weights of the first of them; a head's of the first of all
  bool is_head_ = false;
  linear::Fragment weights_[at_once][2][Pairs], x_[at_once][Strips];
};

}}}  // namespace warprank::v0::detail::mlp
