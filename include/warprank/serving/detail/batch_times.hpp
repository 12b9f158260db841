// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How long batches take, learned from those that ran.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace warprank { inline namespace v0 { namespace detail {

using ServiceClock = std::chrono::steady_clock;

/// Of each capacity the running mean of the times of its batches. What has not run yet takes no time: nothing is
/// refused for a guess.
class BatchTimes {
 public:
  explicit BatchTimes(size_t num_capacities) : means_(num_capacities) {}

  void add(size_t capacity, ServiceClock::duration took) {
    if (capacity >= means_.size()) return;  // above all, where each batch is of another size
    std::optional<ServiceClock::duration>& mean = means_[capacity];
    mean = mean ? *mean + (took - *mean) / 8 : took;
  }
  ServiceClock::duration expected(size_t capacity) const {
    return capacity < means_.size() ? means_[capacity].value_or(ServiceClock::duration(0)) : ServiceClock::duration(0);
  }
  /// Of a batch of whatever capacity takes least.
  ServiceClock::duration least() const {
    ServiceClock::duration least = ServiceClock::duration::max();
    for (size_t c = 0; c < means_.size(); ++c) least = std::min(least, expected(c));
    return means_.empty() ? ServiceClock::duration(0) : least;
  }

 private:
  std::vector<std::optional<ServiceClock::duration>> means_;  // [capacities]
};

}}}  // namespace warprank::v0::detail
