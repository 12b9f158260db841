// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What lanes have summed of a bag.

#include <cmath>
#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/ops/detail/embedding_bag/parts.cuh"
#include "warprank/ops/detail/embedding_bag/spans.cuh"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// NaN when one of them is.
WARPRANK_DEVICE float larger(float a, float b) { return b > a || b != b ? b : a; }
/// What two parts of a bag are together.
WARPRANK_DEVICE float pooled(bool is_max, float a, float b) { return is_max ? larger(a, b) : a + b; }

struct BagSums : BagCounts {
  PartSums values;  ///< or maxima
};
WARPRANK_DEVICE BagSums no_sums(const Record& f) {
  BagSums sums{};
  // Sums of I8 are of products, and never bits that were stored.
  const float none = f.has(Flag::max) ? -INFINITY : f.type == RowType::i8 ? 0.0f : -0.0f;
  WARPRANK_UNROLL
  for (float& value : sums.values) value = none;
  return sums;
}

/// The weight of id i; there are some.
WARPRANK_DEVICE float weight_of(const Block& block, const BagIds& bag, int i) {
  const Record& f = block.f();
  if (bag.weights == nullptr) return f.default_value;
  const unsigned char* weight = bag.weights + i * block.extras().weights_stride;
  if (f.has(Flag::weights_are_half))
    return device::widen(device::load_constant(reinterpret_cast<const float16*>(weight)));
  if (f.has(Flag::weights_are_bfloat16)) {
    return device::widen(device::load_constant(reinterpret_cast<const bfloat16*>(weight)));
  }
  return device::load_constant(reinterpret_cast<const float*>(weight));
}

/// Adds rows to sums without weights. Those of I8 leave their offsets to `offsets`.
WARPRANK_DEVICE void add_rows(const Record& f, const RowsInFlight& raw, BagSums& sums, float& offsets) {
  with_type(f.type, [&](auto rows) {
    constexpr RowType type = decltype(rows)::type;
    for_all_elements<type>(f, raw, [&](int k, int e, float x) {
      sums.values[e] = type == RowType::i8 ? std::fma(scale_of(raw[k]), x, sums.values[e]) : sums.values[e] + x;
    });
    if constexpr (type == RowType::i8) {
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) offsets += offset_of(raw[k]);
    }
  });
}
/// Adds rows as any pooling does. Not unrolled, or there would be as many copies of all that can be done with a row:
/// the others move up, and so that there is one weight on its way, not as many as rows.
template <class WeightAt>
WARPRANK_DEVICE void add_any_rows(const Record& f, RowsInFlight& raw, const WeightAt& weight_at, BagSums& sums) {
  float next = weight_at(0);
  WARPRANK_ROLLED
  for (int k = 0; k < in_flight; ++k) {
    const float weight = next;
    if (k + 1 < in_flight) next = weight_at(k + 1);
    with_type(f.type, [&](auto rows) {
      constexpr RowType type = decltype(rows)::type;
      const RawPart one[1] = {raw[0]};
      const auto value = [&](float x) {
        return type == RowType::i8 ? std::fma(scale_of(raw[0]), x, offset_of(raw[0])) : x;
      };
      if (f.has(Flag::max)) {
        for_all_elements<type>(f, one, [&](int, int e, float x) { sums.values[e] = larger(sums.values[e], value(x)); });
      } else {
        for_all_elements<type>(
            f, one, [&](int, int e, float x) { sums.values[e] = std::fma(weight, value(x), sums.values[e]); });
      }
    });
    WARPRANK_UNROLL
    for (int other = 0; other + 1 < in_flight; ++other) raw[other] = raw[other + 1];
  }
}

/// Adds ids [start, start + 4), then `step` further and so on, of a bag or piece: as many rows on their way, and
/// the ids behind them. Every lane of a group reads the ids itself: a shuffle for each would take longer. `Any` is for
/// what Path::any does.
template <bool Any>
WARPRANK_DEVICE void add_ids(const Block& block, const BagIds& bag, int start, int step, int part, BagSums& sums) {
  const Record& f = block.f();
  const bool is_narrow = f.has(Flag::narrow_ids);
  const bool in_pairs = !is_narrow && bag.ids != nullptr && reinterpret_cast<uintptr_t>(bag.ids) % 16 == 0;
  const auto padding = [&] { return Any ? block.extras().padding : int64_t{-1}; };
  float offsets = 0;  // of I8
  Shared& shared = block.shared;
  if (Any && f.has(Flag::weighted)) {
    const int thread = device::fresh_thread_rank();
    shared.divisor[thread] = 0, shared.missing_weight[thread] = 0;
  }
  uint32_t row[in_flight] = {};
  for (int i = start - step; i < bag.length; i += step) {  // the first time, ids alone are read
    RowsInFlight raw;
    uint32_t kinds = 0;  // two bits for each id: it is one, the table does not have it
    const bool has_rows = i >= start;
    if (has_rows) {
      const RawPart none = no_part(f.type, Any && f.has(Flag::max));
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        raw[k] = none;
        kinds |= (row[k] == padding_row ? 0u : row[k] == missing_row ? 3u : 1u) << 2 * k;
      }
      if (part < static_cast<int>(f.parts)) load_parts<Any>(f, row, part, raw);
    }
    int64_t id[in_flight];
    const int next = i + step;
    const auto for_ids = [&](const auto& give) {  // all loads are requested before one is waited for
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; ++k) {
        if (next + k < bag.length) give(k);
      }
    };
    if (in_pairs && next + in_flight <= bag.length) {
      WARPRANK_UNROLL
      for (int k = 0; k < in_flight; k += 2) {
        const auto two = device::load_vector_constant<2>(reinterpret_cast<const int64_t*>(bag.ids) + next + k);
        id[k] = two[0], id[k + 1] = two[1];
      }
    } else {
      WARPRANK_UNROLL
      for (int64_t& one : id) one = padding();
      if (bag.ids == nullptr) {
        for_ids([&](int k) { id[k] = f.requests.default_id; });
      } else if (is_narrow) {
        int32_t narrow[in_flight] = {};
        for_ids(
            [&](int k) { narrow[k] = device::load_constant(reinterpret_cast<const int32_t*>(bag.ids) + next + k); });
        for_ids([&](int k) { id[k] = narrow[k]; });
      } else {
        for_ids([&](int k) { id[k] = device::load_constant(reinterpret_cast<const int64_t*>(bag.ids) + next + k); });
      }
    }
    WARPRANK_UNROLL
    for (int k = 0; k < in_flight; ++k) {
      row[k] = row_of(f.num_rows, id[k], padding());
      sums.count += row[k] != padding_row;
      sums.missing += row[k] == missing_row;
    }
    if (!has_rows) continue;
    if constexpr (Any) {
      const auto weight_at = [&](int k) {  // 1 of what is not there
        if (!f.has(Flag::weighted) || (kinds >> 2 * k & 1) == 0) return 1.0f;
        const float weight = weight_of(block, bag, i + k);
        const int thread = device::fresh_thread_rank();
        shared.divisor[thread] += (f.has(Flag::sqrtn) ? double{weight} : 1.0) * weight;
        if ((kinds >> 2 * k & 2) == 0) return weight;
        shared.missing_weight[thread] += weight;
        return 1.0f;
      };
      add_any_rows(f, raw, weight_at, sums);
    } else {
      add_rows(f, raw, sums, offsets);
    }
  }
  if constexpr (Any) {
    if (!f.has(Flag::weighted)) return;
    const int thread = device::fresh_thread_rank();
    sums.divisor = shared.divisor[thread], sums.missing_weight = shared.missing_weight[thread];
  } else {
    if (f.type != RowType::i8) return;
    WARPRANK_UNROLL
    for (float& value : sums.values) value += offsets;
  }
}

/// Adds what the groups of lanes have of which `sharing` lanes sum one bag; all of a warp get the sum.
WARPRANK_DEVICE void add_groups(const Record& f, int sharing, BagSums& sums) {
  using namespace device;                                                     // NOLINT: a device function
  const bool is_max = f.has(Flag::max), is_weighted = f.has(Flag::weighted);  // read once: a shuffle lies between
  for (int distance = 1 << f.lanes_log2; distance < sharing && distance < warp_size; distance *= 2) {
    WARPRANK_UNROLL
    for (float& value : sums.values) value = pooled(is_max, value, shuffle_xor(full_warp, value, distance));
    sums.count += shuffle_xor(full_warp, sums.count, distance);
    sums.missing += shuffle_xor(full_warp, sums.missing, distance);
    if (!is_weighted) continue;
    sums.divisor += shuffle_xor(full_warp, sums.divisor, distance);
    sums.missing_weight += shuffle_xor(full_warp, sums.missing_weight, distance);
  }
}

/// Adds what the warps have; the first gets the sum. The whole block calls.
WARPRANK_DEVICE void add_warps(const Block& block, BagSums& sums) {
  using namespace device;  // NOLINT: a device function
  Shared& shared = block.shared;
  const int thread = fresh_thread_rank(), lane = thread % warp_size, warp = thread / warp_size;
  sync_block();
  if (warp > 0) {
    WARPRANK_UNROLL
    for (int i = 0; i < max_part_size; ++i) shared.sums[warp - 1][i * warp_size + lane] = sums.values[i];
    if (lane == 0) shared.counts[warp - 1] = sums;
  }
  sync_block();
  if (warp > 0) return;
  const bool is_max = block.f().has(Flag::max);
  WARPRANK_ROLLED
  for (int w = 0; w < num_warps - 1; ++w) {
    WARPRANK_UNROLL
    for (int i = 0; i < max_part_size; ++i) {
      sums.values[i] = pooled(is_max, sums.values[i], shared.sums[w][i * warp_size + lane]);
    }
    const BagCounts& other = shared.counts[w];
    sums.divisor += other.divisor;
    sums.count += other.count;
    sums.missing += other.missing;
    sums.missing_weight += other.missing_weight;
  }
}

/// What sums are divided by and then multiplied by, in FP32: that is 1 but for divisors beyond its range.
struct Divisor {
  float by;  ///< 0 where the bag gives zeros
  float times;
};
WARPRANK_DEVICE Divisor divisor_of(const Record& f, const BagCounts& counts) {
  if (counts.count == 0) return {0, 1};
  if (!f.has(Flag::weighted)) {
    const auto count = static_cast<float>(counts.count);
    return {f.has(Flag::mean) ? count : f.has(Flag::sqrtn) ? std::sqrt(count) : 1, 1};
  }
  // Sums of weights are below 2^160, those of squares between 2^-298 and 2^288.
  const bool is_large = std::fabs(counts.divisor) >= 0x1p126;
  const float times = is_large ? 0x1p-32f : 1;
  if (f.has(Flag::mean)) return {static_cast<float>(counts.divisor * times), times};
  if (!f.has(Flag::sqrtn)) return {1, 1};
  // A root of FP64 takes many registers: that of FP32, of a number that it holds.
  const bool is_small = counts.divisor < 0x1p-100;
  const double scale = is_large ? 0x1p-192 : is_small ? 0x1p192 : 1.0;
  const float back = is_large ? 0x1p64f : is_small ? 0x1p-96f : 1.0f;  // to the root, times 2^-32 where it is large
  return {std::sqrt(static_cast<float>(counts.divisor * scale)) * back, times};
}

/// Stores the lane's part of a bag. The default row is added for all ids that want it at once.
WARPRANK_DEVICE void store_bag(const Record& f, int64_t bag, int part, BagSums& sums) {
  if (part >= static_cast<int>(f.parts)) return;
  if (sums.missing > 0) {
    const bool is_max = f.has(Flag::max);
    const float times = f.has(Flag::weighted) ? sums.missing_weight : is_max ? 1.0f : static_cast<float>(sums.missing);
    WARPRANK_UNROLL
    for (int i = 0; i < max_part_size; ++i) {
      if (i >= f.part_size) continue;
      const float x = f.default_row == nullptr ? 0 : device::load_constant(&f.default_row[part * f.part_size + i]);
      sums.values[i] = pooled(is_max, sums.values[i], times * x);
    }
  }
  const Divisor divisor = divisor_of(f, sums);
  if (divisor.by != 1 || divisor.times != 1) {
    WARPRANK_UNROLL
    for (float& value : sums.values) value = divisor.by == 0 ? 0 : value / divisor.by * divisor.times;
  }
  store_part(f, bag, part, sums.values);
}

}}}  // namespace warprank::v0::detail::embedding_bag
