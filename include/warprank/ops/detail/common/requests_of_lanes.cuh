// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which request a row is of, and where that one's blob is.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// The requests of a batch, as the lanes of a warp search them together, with the rows that they begin with on one axis
/// or on several, [requests + 1] each. Of up to 31 requests a lane has one, and one trip to memory brings all, beside
/// their number; more take a search, and then a trip to what the request has. All of a warp call everything.
template <int NumAxes>
class RequestsOfLanes {
 public:
  WARPRANK_DEVICE RequestsOfLanes(const int64_t* const (&starts)[NumAxes], const int64_t* positions,
                                  const int64_t* num_requests, int64_t max_requests)
      : positions_(positions),
        max_requests_(max_requests),
        count_(num_requests == nullptr ? max_requests : device::load_ahead(num_requests)),
        list_(starts[0], max_requests + 1) {
    const int lane = device::lane_index();
    WARPRANK_UNROLL
    for (int a = 0; a < NumAxes; ++a) {
      starts_[a] = starts[a];
      if (are_here() && lane <= max_requests) start_of_lane_[a] = device::load_ahead(&starts[a][lane]);
    }
    if (are_here() && lane < max_requests) position_of_lane_ = device::load_ahead(&positions[lane]);
  }

  /// How many there are; behind the loads that are to be requested beside their number.
  WARPRANK_DEVICE int64_t count() {
    device::use_from_here(count_);
    if (max_requests_ < count_) count_ = max_requests_;
    return count_;
  }
  /// The one that has row n of the first axis, count() behind all; n does not fall from lane to lane, from `first` to
  /// `last`.
  WARPRANK_DEVICE int64_t find(int64_t n, int64_t first, int64_t last) {
    return list_.last_not_above(count() + 1, n, first, last);
  }
  /// The row of an axis that a request begins with.
  WARPRANK_DEVICE int64_t start(int axis, int64_t request) const {
    return are_here() ? device::shuffle(device::full_warp, start_of_lane_[axis], static_cast<int>(request))
                      : device::load_read_only(&starts_[axis][request]);
  }
  /// The position of a request's blob, anything behind all.
  WARPRANK_DEVICE int64_t position(int64_t request) const {
    if (are_here()) return device::shuffle(device::full_warp, position_of_lane_, static_cast<int>(request));
    return request < count_ ? device::load_read_only(&positions_[request]) : 0;
  }

 private:
  WARPRANK_DEVICE bool are_here() const { return max_requests_ < device::warp_size; }

  const int64_t* starts_[NumAxes];
  const int64_t* positions_;
  int64_t max_requests_, count_;
  device::ListOfLanes list_;
  int64_t start_of_lane_[NumAxes] = {}, position_of_lane_ = 0;
};

}}}  // namespace warprank::v0::detail
