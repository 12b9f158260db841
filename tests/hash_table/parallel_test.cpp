// SPDX-License-Identifier: Apache-2.0

#include "warprank/hash_table/detail/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "support/allocation_counter.hpp"

namespace {

using warprank::detail::parallel_for;
using warprank::test_support::FailingAllocation;

TEST(ParallelFor, DoesItsWorkWithTheThreadsThatThereIsMemoryFor) {
  int64_t num_failed = 0;
  for (bool has_failed = true; has_failed; num_failed += has_failed) {
    std::atomic<int64_t> sum{0};
    {
      const FailingAllocation failing(num_failed);
      parallel_for(100, 4, [&](int64_t i) { sum += i; });
      has_failed = FailingAllocation::has_failed();
    }
    EXPECT_EQ(sum, 4950) << num_failed;
  }
  EXPECT_GE(num_failed, 4) << "three threads and a list of them";
}

}  // namespace
