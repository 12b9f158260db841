// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What lanes have summed of a bag.

#include <cstdint>
#include <type_traits>

#include "warprank/device/collectives.hpp"
#include "warprank/ops/detail/embedding_bag/parts.cuh"
#include "warprank/ops/detail/embedding_bag/spans.cuh"

namespace warprank::detail::embedding_bag {

template <int N>
struct BagSums {
  float values[N];
  float offset;             ///< of I8: the sum of offsets
  uint32_t count, missing;  ///< ids that are not padding, and of them those that the table does not have
};
template <class Row, int N>
WARPRANK_DEVICE BagSums<N> no_sums() {
  BagSums<N> sums;
  WARPRANK_UNROLL
  for (float& value : sums.values) value = no_sum<Row>;
  sums.offset = 0, sums.count = 0, sums.missing = 0;
  return sums;
}

/// Adds ids [start, start + 4), then `step` further and so on, of a bag or piece: as many rows on their way, and
/// the ids behind them. Every lane of a group reads the ids itself: a shuffle for each would take longer.
template <class Row, int Bytes>
WARPRANK_DEVICE void add_ids(const Record& f, const BagIds& bag, int start, int step, int part,
                             BagSums<part_size<Row, Bytes>>& sums) {
  using device::load_constant;
  constexpr int in_flight = policy.ids_in_flight;
  const bool is_narrow = f.has(Flag::narrow_ids);
  const bool in_pairs = !is_narrow && bag.ids != nullptr && reinterpret_cast<uintptr_t>(bag.ids) % 16 == 0;
  uint32_t row[in_flight];
  const auto read = [&](int first) {
    int64_t id[in_flight];
    if (in_pairs && first + in_flight <= bag.length) {
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; k += 2) {
        const auto two = device::load_vector_constant<2>(reinterpret_cast<const int64_t*>(bag.ids) + first + k);
        id[k] = two[0], id[k + 1] = two[1];
      }
    } else {
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        id[k] = -1;
        if (first + k >= bag.length) continue;
        id[k] = bag.ids == nullptr ? f.requests.default_id : load_id(bag.ids, first + k, is_narrow);
      }
    }
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      row[k] = row_of(f, id[k]);
      sums.count += row[k] != padding_row;
      sums.missing += row[k] == missing_row;
    }
  };
  const bool has_part = part < static_cast<int>(f.parts), is_wide = f.has(Flag::wide_rows);
  read(start);
  for (int i = start; i < bag.length; i += step) {
    RawPart<Bytes> raw[in_flight];
    float scale[in_flight], offset[in_flight];
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      raw[k] = no_part<Row, Bytes>(), scale[k] = 0, offset[k] = 0;
      if (row[k] >= missing_row || !has_part) continue;
      raw[k] = load_part<Bytes>(row_address(f, row[k]) + part * Bytes, is_wide);
      if constexpr (std::is_same_v<Row, int8_t>) {
        scale[k] = load_constant(&f.scale[row[k]]);
        offset[k] = load_constant(&f.offset[row[k]]);
      }
    }
    read(i + step);
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      add_part<Row, Bytes>(sums.values, raw[k], scale[k]);
      if constexpr (std::is_same_v<Row, int8_t>) sums.offset += offset[k];
    }
  }
}

/// Adds what the groups of a warp have; all get the sum.
template <class Row, int N>
WARPRANK_DEVICE void add_groups(BagSums<N>& sums, int lanes_log2) {
  using namespace device;  // NOLINT: a device function
  for (int distance = 1 << lanes_log2; distance < warp_size; distance *= 2) {
    WARPRANK_UNROLL
    for (float& value : sums.values) value += shuffle_xor(full_warp, value, distance);
    if constexpr (std::is_same_v<Row, int8_t>) sums.offset += shuffle_xor(full_warp, sums.offset, distance);
    sums.count += shuffle_xor(full_warp, sums.count, distance);
    sums.missing += shuffle_xor(full_warp, sums.missing, distance);
  }
}

/// Adds what the warps have; the first gets the sum. The whole block calls.
template <int N>
WARPRANK_DEVICE void add_warps(Shared& shared, BagSums<N>& sums) {
  using namespace device;  // NOLINT: a device function
  const int thread = fresh_thread_rank(), lane = thread % warp_size, warp = thread / warp_size;
  sync_block();
  if (warp > 0) {
    WARPRANK_UNROLL
    for (int i = 0; i < N; ++i) shared.sums[warp - 1][i * warp_size + lane] = sums.values[i];
    if (lane == 0) {
      shared.offsets[warp - 1] = sums.offset;
      shared.counts[warp - 1] = sums.count;
      shared.missing[warp - 1] = sums.missing;
    }
  }
  sync_block();
  if (warp > 0) return;
  WARPRANK_UNROLL
  for (int w = 0; w < num_warps - 1; ++w) {
    WARPRANK_UNROLL
    for (int i = 0; i < N; ++i) sums.values[i] += shared.sums[w][i * warp_size + lane];
    sums.offset += shared.offsets[w];
    sums.count += shared.counts[w];
    sums.missing += shared.missing[w];
  }
}

/// Stores the lane's part of a bag. The default row is added for all ids that want it at once.
template <class Row, int N>
WARPRANK_DEVICE void store_bag(const Record& f, int64_t bag, int part, BagSums<N>& sums) {
  if (part >= static_cast<int>(f.parts)) return;
  if (sums.count == 0) {
    WARPRANK_UNROLL
    for (float& value : sums.values) value = 0;
  } else {
    WARPRANK_UNROLL
    for (int i = 0; i < N; ++i) {
      if constexpr (std::is_same_v<Row, int8_t>) sums.values[i] += sums.offset;
    }
    if (sums.missing > 0) {
      const auto times = static_cast<float>(sums.missing);
      WARPRANK_UNROLL
      for (int i = 0; i < N; ++i) {
        sums.values[i] += f.default_row == nullptr ? 0 : times * device::load_constant(&f.default_row[part * N + i]);
      }
    }
    if (f.has(Flag::mean) && sums.count > 1) {
      const auto divisor = static_cast<float>(sums.count);
      WARPRANK_UNROLL
      for (float& value : sums.values) value /= divisor;
    }
  }
  store_columns(f, bag, part * N, sums.values);
}

}  // namespace warprank::detail::embedding_bag
