// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a block of recurrent/kernel.cuh: their events, and the shares of these in their attention.

#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/recurrent/arguments.cuh"

namespace warprank { inline namespace v0 { namespace detail::recurrent {

inline constexpr float largest_score = std::numeric_limits<float>::max();

/// In shared memory.
struct Rows {
  int64_t first[rows_of_block];  ///< event
  int64_t count[rows_of_block];  ///< of events
  float top[rows_of_block];      ///< the largest score, times log2(e)
  float inverse[rows_of_block];  ///< of the sum of exponentials
};

/// How many rows there are.
template <bool Attends, class Out>
WARPRANK_DEVICE int64_t number_of_rows(const Arguments<Out>& arguments) {
  const int64_t parents = device::true_count(arguments.num_parents, arguments.max_parents);
  if constexpr (!Attends) return parents;
  return device::load(arguments.row_offsets + parents);
}

/// By one thread.
template <bool Attends, class Out>
WARPRANK_DEVICE void find_events(const Arguments<Out>& arguments, int64_t row, int64_t num_rows, int place,
                                 Rows& rows) {
  int64_t first = 0, count = 0;
  if (row < num_rows) {
    int64_t parent = row;
    if constexpr (Attends) {
      const int64_t parents = device::true_count(arguments.num_parents, arguments.max_parents);
      parent = device::last_not_above(arguments.row_offsets, parents, row);
    }
    first = device::load(arguments.event_offsets + parent);
    count = device::load(arguments.event_offsets + parent + 1) - first;
  }
  rows.first[place] = first;
  rows.count[place] = count;
}

/// factor <q, k>, as a finite number or NaN: one chain in the order of columns.
template <class Out>
WARPRANK_DEVICE float score_of(const Arguments<Out>& arguments, int64_t row, int64_t event) {
  const float16* const q = arguments.q.data + row * arguments.q.stride;
  const float16* const k = arguments.k.data + event * arguments.k.stride;
  float sum = 0;
  if (arguments.keys_are_aligned) {
    for (int c = 0; c < arguments.keys; c += 4) {
      const auto a = device::load_vector<2>(reinterpret_cast<const uint32_t*>(q + c));
      const auto b = device::load_vector<2>(reinterpret_cast<const uint32_t*>(k + c));
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i) {
        sum = std::fma(device::widen_low(a[i]), device::widen_low(b[i]), sum);
        sum = std::fma(device::widen_high(a[i]), device::widen_high(b[i]), sum);
      }
    }
  } else {
    for (int c = 0; c < arguments.keys; ++c)
      sum = std::fma(device::widen(device::load(q + c)), device::widen(device::load(k + c)), sum);
  }
  const float score = sum * arguments.factor;
  return score > largest_score ? largest_score : score < -largest_score ? -largest_score : score;
}

/// Scores of the events [begin, begin + chunk_events) of each row, by its warp.
template <class Out>
WARPRANK_DEVICE void score_chunk(const Arguments<Out>& arguments, int64_t first_row, int64_t begin, const Rows& rows,
                                 float* scores) {
  for (int r = device::warp_index(); r < rows_of_block; r += arguments.tiles) {
    const int64_t left = rows.count[r] - begin;
    for (int e = device::lane_index(); e < left && e < chunk_events; e += device::warp_size)
      scores[r * chunk_events + e] = score_of(arguments, first_row + r, rows.first[r] + begin + e);
  }
}

/// The largest score of each row and the sum of exponentials, and the scores of the first chunk.
template <class Out>
WARPRANK_DEVICE void weigh_events(const Arguments<Out>& arguments, int64_t first_row, Rows& rows, float* scores) {
  using AllLanes = device::Tile<device::warp_size>;
  for (int r = device::warp_index(); r < rows_of_block; r += arguments.tiles) {
    const int64_t count = rows.count[r];
    float top = -largest_score, sum = 0;
    for (int64_t e = device::lane_index(); e < count; e += device::warp_size) {
      const float score = score_of(arguments, first_row + r, rows.first[r] + e);
      if (e < chunk_events) scores[r * chunk_events + static_cast<int>(e)] = score;
      const float larger = std::fmax(top, score);
      sum = std::fma(sum, std::exp2(top - larger), std::exp2(score - larger));
      top = larger;
    }
    const float of_all = AllLanes::max(top);
    const float total = AllLanes::sum(sum * std::exp2(top - of_all));
    if (device::lane_index() != 0) continue;
    rows.top[r] = of_all;
    rows.inverse[r] = 1.0f / total;
  }
}

}}}  // namespace warprank::v0::detail::recurrent
