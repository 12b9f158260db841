// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A warp's part of the attention kernel: 16 queries of a head, and all keys step by step.
///
///     scores   [16, step] = queries [16, dim] x keys^T                   FP32
///     weights  [16, step] = 2^15 exp(scale scores - largest so far)      FP16; those of unseen keys 0
///     sums     [16, dim]  = sums exp(largest before - largest so far) + weights x values
///
/// or, with silu in the place of the softmax,
///
///     weights  [16, step] = silu(scale scores)                       FP16; those of unseen keys 0
///     sums     [16, dim]  = sums + weights x values
///
/// Weights are what scores lie in registers as: the layout of a product's result is that of the next one's left factor.
/// 2^15 keeps the weights normal FP16 down to 2^-29 of the largest one.

#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/attention/bias.cuh"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/detail/gemm/epilogue.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

/// A lane has two rows of the strip, lane / 4 and 8 below, and of each tile of 8 columns two, from lane % 4 * 2 on.
template <int Target, int Columns, AttentionWeights Weights>
struct Strip {
  static constexpr bool is_softmax = Weights == AttentionWeights::softmax;
  static constexpr int step = policy<Target, Columns>.step;
  static constexpr float weight_scale = 0x1p15f;
  static constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

  float sums[Columns / 8][4];
  float tops[2];    ///< largest scores
  float totals[2];  ///< of the lane's weights

  WARPRANK_DEVICE void clear() {
    WARPRANK_UNROLL
    for (int n = 0; n < Columns / 8; ++n) {
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) tops[lower] = -largest_score, totals[lower] = 0;
  }

  /// Adds `count` keys, at most a step, of which the lane's rows see those of `seen`; with a softmax these begin with
  /// the first. Rows of keys and values exist up to a multiple of 16; those behind the count are finite.
  /// `bias` is that of the keys, of which the first is `first_key` of its parent.
  template <class Bias>
  WARPRANK_DEVICE void add(const Descriptor& d, const float16* queries, const float16* keys, const float16* values,
                           int count, const SeenKeys& seen, const Bias& bias, int first_key) {
    float scores[step / 8][4] = {};
    multiply_keys(d, queries, keys, count, scores);
    uint32_t weights[step / 8][2];
    if constexpr (Bias::exists) {
      bias.add_to(d.scale, first_key, scores);
      weigh_by_silu(1, scores, seen, weights);
    } else if constexpr (is_softmax) {
      weigh(d.scale, scores, seen.end, weights);
    } else {
      weigh_by_silu(d.scale, scores, seen, weights);
    }
    add_values(d, values, count, weights);
  }

  /// Adds the key and the value of each of the lane's rows, in columns of one head; those of other rows do not matter.
  template <class Bias>
  WARPRANK_DEVICE void add_own(const Descriptor& d, const gemm::RowSource& q, const gemm::RowSource& own_k,
                               const gemm::RowSource& own_v, int first_row, int num_rows, const Bias& bias) {
    const int lane = device::lane_index();
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const int of_strip = lower * 8 + lane / 4, row = first_row + (of_strip < num_rows ? of_strip : num_rows - 1);
      const float16* const queries = q.first + row * q.stride;
      const float16* const keys = own_k.first + row * own_k.stride;
      float score = 0;
      for (int c = lane % 4; c < d.dim; c += 4)
        score = std::fma(device::widen(device::load(&queries[c])), device::widen(device::load(&keys[c])), score);
      const float weight = silu_weight(scaled(device::Tile<4>::sum(score), d.scale, bias));
      const float16* const values = own_v.first + row * own_v.stride;
      WARPRANK_UNROLL
      for (int n = 0; n < Columns / 8; ++n) {
        const int column = n * 8 + lane % 4 * 2;
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (column + i >= d.dim) continue;
          float& sum = sums[n][lower * 2 + i];
          sum = std::fma(weight, device::widen(device::load(&values[column + i])), sum);
        }
      }
    }
  }

  /// y of the rows [0, num_rows), from `row` on. `staging` is float [8, padded_dim + row_padding], of the warp alone.
  /// Columns of `v` with a spoilt key among those that `seen_by(row)` says are NaN; `spoilt` has the first of each
  /// column, or is null: none.
  template <class SeenBy>
  WARPRANK_DEVICE void store(const Descriptor& d, const gemm::Operand<void>& y, int64_t row, int num_rows,
                             float* staging, const uint32_t* spoilt, const gemm::RowSource& v, const SeenBy& seen_by) {
    const int lane = device::lane_index(), stride = d.padded_dim + row_padding;
    const int fours = (d.dim + gemm::columns_at_once - 1) / gemm::columns_at_once;
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const float total = is_softmax ? device::Tile<4>::sum(totals[lower]) : 0;
      device::sync_warp();  // what was staged before has been read
      WARPRANK_UNROLL
      for (int n = 0; n < Columns / 8; ++n) {
        if (n * 8 >= d.padded_dim) break;
        device::Vector<float, 2> pair;
        const int column = n * 8 + lane % 4 * 2;
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const float sum = sums[n][lower * 2 + i];
          pair[i] = !is_softmax ? sum * d.share : total == 0 ? 0.0f : sum / total;
        }
        *reinterpret_cast<device::Vector<float, 2>*>(&staging[lane / 4 * stride + column]) = pair;
      }
      device::sync_warp();
      for (int i = lane; i < 8 * fours; i += device::warp_size) {
        const int of_strip = lower * 8 + i / fours, column = i % fours * gemm::columns_at_once;
        if (of_strip >= num_rows) break;
        auto four = *reinterpret_cast<const device::Vector<float, gemm::columns_at_once>*>(
            &staging[i / fours * stride + column]);
        if (spoilt != nullptr) take_in_spoilt(spoilt + column, v, column, seen_by(of_strip), four);
        gemm::store_operand(y, row + of_strip, column, d.dim, four.values);
      }
    }
  }

 private:
  /// NaN where a value of the columns from `column` on is spoilt and seen.
  static WARPRANK_DEVICE void take_in_spoilt(const uint32_t* spoilt, const gemm::RowSource& v, int column,
                                             const SeenRange& seen,
                                             device::Vector<float, gemm::columns_at_once>& values) {
    constexpr uint16_t exponent = 0x7c00;
    WARPRANK_UNROLL
    for (int i = 0; i < gemm::columns_at_once; ++i) {
      bool is_seen = spoilt[i] < static_cast<uint32_t>(seen.end);
      if (is_seen && spoilt[i] < static_cast<uint32_t>(seen.begin)) {  // others may be in the window
        is_seen = false;
        WARPRANK_ROLLED
        for (int key = seen.begin; key < seen.end && !is_seen; ++key)
          is_seen = (device::load(&v.first[key * v.stride + column + i]).bits & exponent) == exponent;
      }
      if (is_seen) values[i] = not_a_number;
    }
  }

  static WARPRANK_DEVICE void multiply_keys(const Descriptor& d, const float16* queries, const float16* keys, int count,
                                            float (&scores)[step / 8][4]) {
    const int lane = device::lane_index(), stride = d.padded_dim + row_padding;
    for (int k = 0; k < d.dim; k += 16) {
      const bool has_second_half = k + 8 < d.dim;
      uint32_t a[4];
      gemm::load_rows(a, queries + k, stride);
      WARPRANK_UNROLL
      for (int n = 0; n < step / 8; n += 2) {
        if (n * 8 >= count) break;
        uint32_t b[4];  // two tiles of keys, two halves of the inputs
        device::load_matrices(b, keys + (n * 8 + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8);
        gemm::multiply_step<Target>(scores[n], a, b[0], b[1], has_second_half);
        if (n * 8 + 8 < count) gemm::multiply_step<Target>(scores[n + 1], a, b[2], b[3], has_second_half);
      }
    }
  }

  /// Weights of the scores, and what the larger ones change of all before.
  WARPRANK_DEVICE void weigh(float scale, float (&scores)[step / 8][4], const int (&seen)[2],
                             uint32_t (&weights)[step / 8][2]) {
    const int first_key = device::lane_index() % 4 * 2;
    float factors[2];
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      float top = tops[lower];
      WARPRANK_UNROLL
      for (int n = 0; n < step / 8; ++n) {
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][lower * 2 + i];
          score = finite(score * scale);
          if (n * 8 + first_key + i < seen[lower] && top < score) top = score;
        }
      }
      top = device::Tile<4>::max(top);
      factors[lower] = std::exp(tops[lower] - top);
      tops[lower] = top;
      totals[lower] *= factors[lower];
      WARPRANK_UNROLL
      for (int n = 0; n < step / 8; ++n) {
        float16 pair[2];
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const bool is_seen = n * 8 + first_key + i < seen[lower];
          pair[i] = device::narrow<float16>(is_seen ? std::exp(scores[n][lower * 2 + i] - top) * weight_scale : 0.0f);
          totals[lower] += device::widen(pair[i]);
        }
        weights[n][lower] = device::pack_halves(pair[0], pair[1]);
      }
    }
    if (!device::any(device::full_warp, factors[0] != 1 || factors[1] != 1)) return;
    WARPRANK_UNROLL
    for (int n = 0; n < Columns / 8; ++n) {
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) sums[n][i] *= factors[i / 2];
    }
  }

  static WARPRANK_DEVICE void weigh_by_silu(float scale, const float (&scores)[step / 8][4], const SeenKeys& seen,
                                            uint32_t (&weights)[step / 8][2]) {
    const int first_key = device::lane_index() % 4 * 2;
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      WARPRANK_UNROLL
      for (int n = 0; n < step / 8; ++n) {
        float pair[2];
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const bool is_seen = seen.has(lower, n * 8 + first_key + i);
          pair[i] = is_seen ? silu_weight(scores[n][lower * 2 + i] * scale) : 0.0f;
        }
        weights[n][lower] = device::narrow_pair(pair[0], pair[1]);
      }
    }
  }

  WARPRANK_DEVICE void add_values(const Descriptor& d, const float16* values, int count,
                                  const uint32_t (&weights)[step / 8][2]) {
    const int lane = device::lane_index(), stride = d.padded_dim + row_padding;
    WARPRANK_UNROLL
    for (int k = 0; k < step; k += 16) {
      if (k >= count) break;
      const bool has_second_half = k + 8 < count;
      const uint32_t a[4] = {weights[k / 8][0], weights[k / 8][1], weights[k / 8 + 1][0], weights[k / 8 + 1][1]};
      WARPRANK_UNROLL
      for (int n = 0; n < Columns / 8; n += 2) {
        if (n * 8 >= d.dim) break;
        uint32_t b[4];  // two tiles of columns, two halves of the keys
        device::load_matrices<true>(b, values + (k + lane % 16) * stride + n * 8 + lane / 16 * 8);
        gemm::multiply_step<Target>(sums[n], a, b[0], b[1], has_second_half);
        if (n * 8 + 8 < d.dim) gemm::multiply_step<Target>(sums[n + 1], a, b[2], b[3], has_second_half);
      }
    }
  }

  static WARPRANK_DEVICE float finite(float score) {
    return score > largest_score ? largest_score : score < -largest_score ? -largest_score : score;
  }
};

}}}  // namespace warprank::v0::detail::attention
