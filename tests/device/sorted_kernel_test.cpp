// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/sorted.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"

namespace device_sorted_test {

namespace device = warprank::device;

/// found[w][l]: of value first + 32 w + l / lanes_of_value.
template <class = void>
WARPRANK_KERNEL(64, 1)
find_by_lanes(const int64_t* sorted, int64_t capacity, int64_t count, int64_t first, int lanes_of_value,
              int64_t* found) {
  const int thread = device::thread_rank();
  const int64_t least = first + thread / device::warp_size * 32, value = least + device::lane_index() / lanes_of_value;
  device::ListOfLanes list(sorted, capacity);
  device::store(&found[thread], list.last_not_above(count, value, least, least + 31 / lanes_of_value));
}

}  // namespace device_sorted_test

namespace {

using namespace kernel_testing;  // NOLINT

/// What one thread would find.
int64_t last_not_above(const std::vector<int64_t>& sorted, int64_t value) {
  const auto above = std::upper_bound(sorted.begin(), sorted.end(), value);
  return above == sorted.begin() ? 0 : above - sorted.begin() - 1;
}

/// `count` numbers from 0 on, `equal` at a time the same, `distance` apart.
std::vector<int64_t> numbers(int64_t count, int64_t equal, int64_t distance) {
  std::vector<int64_t> sorted;
  for (int64_t i = 0; i < count; ++i) sorted.push_back(i / equal * distance);
  return sorted;
}

TEST(DeviceSorted, LanesFindWhatOneThreadFinds) {
  for (const int64_t count : {0, 1, 2, 5, 32, 33, 34, 49, 64, 65, 66, 67, 100, 4160, 4161, 5000})
    for (const int64_t equal : {1, 3, 40, 90})  // so that values of a warp are 32 numbers apart, and 64, and more
      for (const int64_t distance : {1, 7, 1000}) {
        const std::vector<int64_t> sorted = numbers(count, equal, distance);
        const int64_t last = sorted.empty() ? 0 : sorted.back(), more = count % 2 * 3;  // that nobody has written
        SCOPED_TRACE(std::to_string(count) + " numbers, " + std::to_string(equal) + " equal, " +
                     std::to_string(distance) + " apart");
        for (const int64_t first : {int64_t{-40}, int64_t{0}, last / 2, last - 35, last})
          for (const int lanes_of_value : {1, 4, 32}) {
            reset();
            DeviceArray<int64_t> list(count + more), found(64);
            list.write(sorted);
            warprank::device::launch({1, 64}, device_sorted_test::find_by_lanes<>,
                                     static_cast<const int64_t*>(list.data()), count + more, count, first,
                                     lanes_of_value, found.data());
            const std::vector<int64_t> result = found.read();
            for (int64_t i = 0; i < 64; ++i) {
              const int64_t value = first + i / 32 * 32 + i % 32 / lanes_of_value;
              ASSERT_EQ(result[static_cast<size_t>(i)], last_not_above(sorted, value)) << value;
            }
          }
      }
}

}  // namespace
