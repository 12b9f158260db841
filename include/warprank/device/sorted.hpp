// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Searches in sorted lists in device memory that no thread of the launch writes.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"

namespace warprank::device {

/// The last i of [0, count) with sorted[i] <= value, or 0 where there is none. So of segments by their offsets the one
/// that has row `value`; rows behind all segments count as the last one's.
template <class Value>
WARPRANK_DEVICE int64_t last_not_above(const Value* sorted, int64_t count, int64_t value, Here here = Here::current()) {
  int64_t begin = 0;
  for (int64_t end = count; end - begin > 1;) {
    const int64_t middle = begin + (end - begin) / 2;
    if (static_cast<int64_t>(load_read_only(&sorted[middle], here)) <= value) {
      begin = middle;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// How many of the lanes' numbers, which do not fall from lane to lane, are not above the caller's value. All of a warp
/// call.
WARPRANK_DEVICE int num_lanes_not_above(int64_t number, int64_t value, Here here = Here::current()) {
  int passed = 0;
  WARPRANK_UNROLL
  for (int half = warp_size / 2; half > 0; half /= 2) {
    if (shuffle(full_warp, number, passed + half - 1, warp_size, here) <= value) passed += half;
  }
  if (shuffle(full_warp, number, passed, warp_size, here) <= value) ++passed;
  return passed;
}

/// As last_not_above, by the lanes of a warp together, for a value of each that does not fall from lane to lane. All of
/// a warp call, with the same list. One trip to memory for up to 33 numbers, else one more for each factor of 64; lanes
/// whose values are more than 32 numbers apart from the first's search on alone.
template <class Value>
WARPRANK_DEVICE int64_t last_not_above_of_lanes(const Value* sorted, int64_t count, int64_t value,
                                                Here here = Here::current()) {
  constexpr int probes = 2;  // of a lane at a time
  const int lane = lane_index();
  const int64_t first_value = shuffle(full_warp, value, 0, warp_size, here);
  int64_t begin = 0;
  for (int64_t end = count; end - begin > warp_size + 1;) {
    const int64_t step = (end - begin + probes * warp_size - 1) / (probes * warp_size);
    int not_above = 0;
    WARPRANK_UNROLL
    for (int i = 0; i < probes; ++i) {
      const int64_t at = begin + (i * warp_size + lane + 1) * step;
      const bool is_not_above = at < end && static_cast<int64_t>(load_read_only(&sorted[at], here)) <= first_value;
      not_above += count_bits(ballot(full_warp, is_not_above, here));
    }
    begin += not_above * step;
    end = begin + step < end ? begin + step : end;
  }
  // The next 32 numbers, a lane each, in which every lane finds how many are not above its own value.
  const int64_t at = begin + 1 + lane;
  const int64_t number = at < count ? static_cast<int64_t>(load_read_only(&sorted[at], here)) : INT64_MAX;
  const int passed = num_lanes_not_above(number, value, here);
  begin += passed;
  return passed < warp_size ? begin : begin + last_not_above(sorted + begin, count - begin, value, here);
}

/// As last_not_above, by all lanes of a warp, which give the same arguments and get the same result: among the first
/// `capacity` values, of which there are `*count` (null: all). Loads that depend on one another: one for a capacity of
/// up to 64, where values behind the count are requested with it; then the count, and one more for each 32 times as
/// many.
template <class Value>
WARPRANK_DEVICE int64_t warp_last_not_above(const Value* sorted, int64_t capacity, const int64_t* count, int64_t value,
                                            Here here = Here::current()) {
  const int lane = lane_index();
  const auto votes = [&](const Value& element, bool exists) {
    return count_bits(ballot(full_warp, exists && static_cast<int64_t>(element) <= value, here));
  };
  int64_t begin = 0, end = capacity, actual = count == nullptr ? capacity : load_ahead(count, here);
  if (capacity > 2 * warp_size && actual < end) end = actual;
  while (end - begin > 2 * warp_size) {
    const int64_t step = (end - begin + warp_size - 1) / warp_size, i = begin + lane * step;
    const Value element = i < end ? load_read_only(&sorted[i], here) : Value{};
    const int64_t passed = votes(element, i < end);
    begin += (passed > 0 ? passed - 1 : 0) * step;
    if (begin + step < end) end = begin + step;
  }
  const int64_t i = begin + lane, j = i + warp_size;
  Value low{}, high{};
  if (i < end) low = load_ahead(&sorted[i], here);
  if (j < end) high = load_ahead(&sorted[j], here);
  use_from_here(actual);
  if (actual < end) end = actual;
  const int found = votes(low, i < end) + votes(high, j < end);
  return begin + (found > 0 ? found - 1 : 0);
}

/// The first i of [0, count] that is `count` or has sorted[i] >= value.
WARPRANK_DEVICE int64_t first_not_below(const int64_t* sorted, int64_t count, int64_t value,
                                        Here here = Here::current()) {
  int64_t begin = 0;
  for (int64_t end = count; begin < end;) {
    const int64_t middle = begin + (end - begin) / 2;
    if (load_read_only(&sorted[middle], here) < value) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace warprank::device
