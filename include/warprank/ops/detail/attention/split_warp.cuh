// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A warp's part of a unit of the kernel that divides events (split.cuh).

#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/detail/attention/descriptor.cuh"
#include "warprank/ops/detail/attention/split_unit.cuh"
#include "warprank/ops/detail/common/direct_rows.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::attention {

/// A warp's part of a unit: weighted sums of the events that it takes. A lane has rows lane / 4 and 8 below; of each of
/// the groups of Dim / 8 columns lane % 4 * 2 and the one behind it, all columns.
template <int Target, int Dim, AttentionWeights Weights>
struct SplitPart {
  static constexpr bool is_softmax = Weights == AttentionWeights::softmax;
  static constexpr int factor_words = Dim / 8, value_words = Dim / 16, tiles = Dim / 8;
  static constexpr float unseen = -std::numeric_limits<float>::infinity();
  static constexpr float log2_of_weight_scale = 15;  ///< weights are normal FP16 down to 2^-29 of the largest

  uint32_t queries[2][factor_words], keys[2][factor_words], values[4][value_words];
  float sums[tiles][4], totals[4], tops[2];
  uint32_t spoilt;  ///< not 0: values were taken out

  WARPRANK_DEVICE void clear() {
    spoilt = 0;
    WARPRANK_UNROLL
    for (int c = 0; c < 4; ++c) {
      totals[c] = 0;
      WARPRANK_UNROLL
      for (int n = 0; n < tiles; ++n) sums[n][c] = 0;
    }
    tops[0] = tops[1] = -largest_score;
  }

  /// Which event of a step the lane's i-th values are of.
  static WARPRANK_DEVICE int event_of_values(int i) { return device::lane_index() % 4 * 2 + i / 2 * 8 + i % 2; }

  /// Request the step from `event` on, where there are `limit` events; behind them the last one again.
  WARPRANK_DEVICE void request_keys(const SplitDescriptor& d, const float16* k, int event, int limit) {
    const int g = device::lane_index() / 4;
    WARPRANK_UNROLL
    for (int n = 0; n < 2; ++n) load_factor_ahead(k + offset_of(row_of(event + 8 * n + g, limit), d.k_stride), keys[n]);
  }
  WARPRANK_DEVICE void request_values(const SplitDescriptor& d, const float16* v, int event, int limit) {
    const int g = device::lane_index() / 4;
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i)
      load_words_ahead(v + offset_of(row_of(event + event_of_values(i), limit), d.v_stride) + g * (Dim / 8), values[i]);
  }
  WARPRANK_DEVICE void request_queries(const SplitDescriptor& d, const float16* q, int limit) {
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      load_factor_ahead(q + offset_of(row_of(lower * 8 + device::lane_index() / 4, limit), d.q_stride), queries[lower]);
    }
  }

  /// Adds the step that was requested, of which `rest` events are seen, or exist. The last ones of a causal unit are
  /// its own rows, of which each sees itself and those before it. With a window the lane's rows see no event of the
  /// step before `first`, and `is_edge` says whether a row of the warp does not see all for this reason. `bias` is that
  /// of the step's events, from `event` on. `request_next` is called as soon as other keys may come.
  template <bool HasWindow, class Bias, class RequestNext>
  WARPRANK_DEVICE void add(float factor, int rest, bool is_causal, const int (&first)[2], bool is_edge,
                           const Bias& bias, int event, RequestNext request_next) {
    const bool are_rows = is_causal && rest <= split_events;
    if (rest < split_events) {  // whatever lies behind the last event
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) {
        WARPRANK_UNROLL
        for (int w = 0; w < value_words; ++w) values[i][w] = event_of_values(i) < rest ? values[i][w] : 0;
      }
    }
    const int row = device::lane_index() / 4;
    const int seen[2] = {are_rows && row + 1 < rest ? row + 1 : rest, are_rows && row + 9 < rest ? row + 9 : rest};
    float scores[2][4] = {};
    WARPRANK_UNROLL
    for (int w = 0; w < factor_words; w += 2) {
      const uint32_t a[4] = {queries[0][w], queries[1][w], queries[0][w + 1], queries[1][w + 1]};
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) gemm::multiply_step<Target>(scores[n], a, keys[n][w], keys[n][w + 1], true);
    }
    request_next();
    uint32_t weights[4];
    if constexpr (is_softmax) {
      weigh(factor, seen, scores, weights);
      constexpr uint32_t ones = 0x3c003c00;
      gemm::multiply_step<Target>(totals, weights, ones, ones, true);
    } else {
      if constexpr (Bias::exists) bias.add_to(factor, event, scores), factor = 1;
      if constexpr (HasWindow)
        weigh_by_silu(factor, SeenKeys{{first[0], first[1]}, {seen[0], seen[1]}}, scores, weights);
      else
        weigh_by_silu(factor, FirstKeys{{seen[0], seen[1]}}, scores, weights);
    }
    if (are_rows || (HasWindow && is_edge)) take_out_spoilt();
    WARPRANK_UNROLL
    for (int w = 0; w < value_words; ++w) {
      using device::pack_high_halves, device::pack_low_halves;
      gemm::multiply_step<Target>(sums[2 * w], weights, pack_low_halves(values[0][w], values[1][w]),
                                  pack_low_halves(values[2][w], values[3][w]), true);
      gemm::multiply_step<Target>(sums[2 * w + 1], weights, pack_high_halves(values[0][w], values[1][w]),
                                  pack_high_halves(values[2][w], values[3][w]), true);
    }
  }

  /// Adds the own keys and values of the lane's rows, of which `limit` exist; the queries have been requested.
  template <class Bias>
  WARPRANK_DEVICE void add_own(const SiluSplitDescriptor& d, const float16* own_k, const float16* own_v, int limit,
                               const Bias& bias) {
    using device::widen_high, device::widen_low;
    uint32_t own_keys[2][factor_words], own_values[4][value_words];
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      const int rank = lower * 8 + device::lane_index() / 4, row = rank < limit ? rank : limit - 1;
      load_factor_ahead(own_k + offset_of(row, d.own_k_stride), own_keys[lower]);
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = (device::lane_index() % 4 * 2 + i) * (Dim / 8);
        load_words_ahead(own_v + offset_of(row, d.own_v_stride) + column, own_values[2 * lower + i]);
      }
    }
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      float score = 0;
      WARPRANK_UNROLL
      for (int w = 0; w < factor_words; ++w) {
        score = std::fma(widen_low(queries[lower][w]), widen_low(own_keys[lower][w]), score);
        score = std::fma(widen_high(queries[lower][w]), widen_high(own_keys[lower][w]), score);
      }
      const float weight = silu_weight(scaled(device::Tile<4>::sum(score), d.factor, bias));
      WARPRANK_UNROLL
      for (int i = 2 * lower; i < 2 * lower + 2; ++i) {
        WARPRANK_UNROLL
        for (int w = 0; w < value_words; ++w) {
          sums[2 * w][i] = std::fma(weight, widen_low(own_values[i][w]), sums[2 * w][i]);
          sums[2 * w + 1][i] = std::fma(weight, widen_high(own_values[i][w]), sums[2 * w + 1][i]);
        }
      }
    }
  }

 private:
  static WARPRANK_DEVICE int row_of(int i, int limit) { return i < limit ? i : limit - 1; }
  /// By one multiplication: without signs, of 32 bits.
  static WARPRANK_DEVICE uint64_t offset_of(int row, uint32_t stride) {
    return uint64_t{static_cast<uint32_t>(row)} * stride;
  }

  /// Values that are not finite become 0: their weight of 0 would be NaN in rows that do not see them.
  WARPRANK_DEVICE void take_out_spoilt() {
    WARPRANK_UNROLL
    for (int i = 0; i < 4; ++i) {
      WARPRANK_UNROLL
      for (int w = 0; w < value_words; ++w) {
        const uint32_t halves = spoilt_halves(values[i][w]);
        spoilt |= halves;
        values[i][w] &= ~((halves >> 15) * 0xffffu);
      }
    }
  }

  /// The upper bit of each half that is not finite.
  static WARPRANK_DEVICE uint32_t spoilt_halves(uint32_t pair) {
    return ((pair & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
  }

  template <class Seen>
  static WARPRANK_DEVICE void weigh_by_silu(float factor, const Seen& seen, const float (&scores)[2][4],
                                            uint32_t (&weights)[4]) {
    WARPRANK_UNROLL
    for (int n = 0; n < 2; ++n) {
      WARPRANK_UNROLL
      for (int lower = 0; lower < 2; ++lower) {
        float pair[2];
        WARPRANK_UNROLL
        for (int i = 0; i < 2; ++i) {
          const bool is_seen = seen.has(lower, n * 8 + device::lane_index() % 4 * 2 + i);
          pair[i] = is_seen ? silu_weight(scores[n][2 * lower + i] * factor) : 0.0f;
        }
        weights[2 * n + lower] = device::narrow_pair(pair[0], pair[1]);
      }
    }
  }

  /// Weights of the scores, in the layout of a left factor, and what the larger ones change of all before. Infinite
  /// scores count as the largest finite ones; NaN stays.
  WARPRANK_DEVICE void weigh(float factor, const int (&seen)[2], float (&scores)[2][4], uint32_t (&weights)[4]) {
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      float top = tops[lower];
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) {
        WARPRANK_UNROLL
        for (int c = 2 * lower; c < 2 * lower + 2; ++c) {
          const float scaled = scores[n][c] * factor, score = scaled < -largest_score ? -largest_score : scaled;
          const bool is_seen = n * 8 + device::lane_index() % 4 * 2 + c % 2 < seen[lower];
          scores[n][c] = is_seen ? score : unseen;
          top = std::fmax(top, scores[n][c]);
        }
      }
      top = std::fmin(device::Tile<4>::max(top), largest_score);
      const float correction = std::exp2(tops[lower] - top);
      tops[lower] = top;
      WARPRANK_UNROLL
      for (int n = 0; n < tiles; ++n) sums[n][2 * lower] *= correction, sums[n][2 * lower + 1] *= correction;
      totals[2 * lower] *= correction;
      const float zero = top - log2_of_weight_scale;  // an infinite score's weight saturates
      WARPRANK_UNROLL
      for (int n = 0; n < 2; ++n) {
        weights[2 * n + lower] =
            device::narrow_pair(std::exp2(scores[n][2 * lower] - zero), std::exp2(scores[n][2 * lower + 1] - zero));
      }
    }
  }
};

}}}  // namespace warprank::v0::detail::attention
