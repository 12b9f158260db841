// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Searches in sorted lists in device memory that no thread of the launch writes.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// The last i of [0, count) with sorted[i] <= value, or 0 if there is none. If `sorted` are the offsets of segments,
/// this is the segment with row `value`; rows behind all segments belong to the last one.
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

/// A list that the lanes of a warp search together. All lanes of a warp construct it and search it, with the same list.
class ListOfLanes {
 public:
  /// Requests all numbers of a list of up to 65, so that they arrive together with their count and with other lists.
  /// Numbers from the count up to the capacity may be uninitialised.
  WARPRANK_DEVICE ListOfLanes(const int64_t* sorted, int64_t capacity, Here here = Here::current())
      : sorted_(sorted), is_here_(capacity <= at_once + 1) {
    if (is_here_) request(0, capacity, here);
  }

  /// As last_not_above, over the first `count` numbers, for one value of each lane. Values do not decrease from lane to
  /// lane; all lanes give the values of the first and the last lane as `least` and `most`. A longer list takes one trip
  /// to memory for each factor of 64. If more than 3 numbers lie between `least` and `most`, each lane continues the
  /// search alone.
  WARPRANK_DEVICE int64_t last_not_above(int64_t count, int64_t value, int64_t least, int64_t most,
                                         Here here = Here::current()) {
    if (count <= 1) return 0;
    int64_t begin = 0;
    if (!is_here_) {
      begin = narrow(count, least, here);
      request(begin, count, here);
    }
    // Numbers behind the count are above all.
    const int64_t rest = count - begin - 1;
    const int lane = lane_index();
    if (lane >= rest) low_ = INT64_MAX;
    if (lane + warp_size >= rest) high_ = INT64_MAX;
    const int passed = num_not_above(rest, least, here);
    const int most_passed = least == most ? passed : num_not_above(rest, most, here);
    begin += passed;
    if (most_passed - passed > few || most_passed == at_once) {
      const int64_t left = most_passed < at_once ? most_passed - passed + 1 : count - begin;
      return begin + device::last_not_above(sorted_ + begin, left, value, here);
    }
    WARPRANK_UNROLL
    for (int i = 0; i < few; ++i) {  // not a loop of as many rounds, which would be unrolled to more
      const int at = passed + i;
      if (at >= most_passed) break;
      begin += shuffle(full_warp, at < warp_size ? low_ : high_, at % warp_size, warp_size, here) <= value;
    }
    return begin;
  }

 private:
  static constexpr int at_once = 2 * warp_size;
  static constexpr int few = 3;

  /// Requests the caller's two of the 64 numbers behind `begin`.
  WARPRANK_DEVICE void request(int64_t begin, int64_t end, Here here) {
    const int64_t at = begin + 1 + lane_index();
    if (at < end) low_ = load_ahead(&sorted_[at], here);
    if (at + warp_size < end) high_ = load_ahead(&sorted_[at + warp_size], here);
  }
  /// How many of the `rest` requested numbers are not above the value; all lanes give the same value.
  WARPRANK_DEVICE int num_not_above(int64_t rest, int64_t value, Here here) const {
    const int passed = count_bits(ballot(full_warp, low_ <= value, here));
    return rest <= warp_size ? passed : passed + count_bits(ballot(full_warp, high_ <= value, here));
  }
  /// The index behind which at most 64 numbers are left to search, for a value that all lanes give.
  WARPRANK_DEVICE int64_t narrow(int64_t count, int64_t value, Here here) const {
    int64_t begin = 0;
    for (int64_t end = count; end - begin > at_once + 1;) {
      const int64_t step = (end - begin + at_once - 1) / at_once;
      int not_above = 0;
      WARPRANK_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int64_t at = begin + (i * warp_size + lane_index() + 1) * step;
        const bool is_not_above = at < end && load_read_only(&sorted_[at], here) <= value;
        not_above += count_bits(ballot(full_warp, is_not_above, here));
      }
      begin += not_above * step;
      end = begin + step < end ? begin + step : end;
    }
    return begin;
  }

  const int64_t* sorted_;
  bool is_here_;
  int64_t low_ = INT64_MAX, high_ = INT64_MAX;
};

/// As last_not_above, by all lanes of a warp, which give the same arguments and get the same result. Searches the first
/// `*count` of at most `capacity` values (null: all). Dependent loads: one for a capacity of up to 64, where values
/// behind the count are requested with it; above, also the count, and one more for each factor of 32.
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

}}}  // namespace warprank::v0::device
