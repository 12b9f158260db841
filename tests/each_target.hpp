// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace warprank::test {

/// Runs `check` with the host kernels of each instruction set that is compiled and that this machine has, the baseline
/// included. Include the op's header before this one: it chooses what is compiled.
template <class Check>
void for_each_target(Check&& check) {
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((supported & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace warprank::test
