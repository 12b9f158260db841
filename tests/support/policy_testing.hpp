// SPDX-License-Identifier: Apache-2.0
#pragma once

/// That launches may be divided in any way: no bit of a result depends on a field of LaunchPolicies.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"

namespace kernel_testing {

/// What a launch takes that is told nothing else.
inline warprank::LaunchPolicies usual_policies() {
  return warprank::detail::launch_policies_of(warprank::device::target());
}

/// run(policies) gives the same for each value of the field, each of which launches another number of blocks.
template <class Run>
void expect_same_bits(int warprank::LaunchPolicies::*field, const std::vector<int>& values, Run run,
                      Config config = {}) {
  if (on_gpu) config.target = warprank::device::target();
  std::set<int64_t> blocks;
  decltype(run(warprank::LaunchPolicies())) first{};
  for (const int value : values) {
    SCOPED_TRACE("value " + std::to_string(value));
    reset(config);
    warprank::LaunchPolicies policies = usual_policies();
    policies.*field = value;
    auto got = run(policies);
    if (value == values.front()) first = got;
    EXPECT_TRUE(detail::same_bits(first, got));
    if constexpr (!on_gpu) blocks.insert(counters().blocks);
  }
  if constexpr (!on_gpu) {
    EXPECT_EQ(blocks.size(), values.size()) << "values launch the same";
  }
}

}  // namespace kernel_testing
