// SPDX-License-Identifier: Apache-2.0
//
// The main function of kernel tests on a GPU. Without one they are skipped, and counted.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "warprank/device/find_device.hpp"
#include "warprank/device/target.hpp"

namespace {

constexpr int skipped = 77;  // what CTest is told to take for it

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("WARPRANK_TUNE_AT_BIND", "0", 0);  // hundreds of small models are bound, for up to a second each
  const auto found = warprank::device::backend::runtime::find_device(0);
  if (const auto why = warprank::device::why_unusable(found)) {
    std::printf("SKIPPED %d tests: there is no GPU (%s)\n", testing::UnitTest::GetInstance()->total_test_count(),
                why->what());
    return skipped;
  }
  std::printf("%s, sm_%d, with code for sm_%d\n", found.name.c_str(), found.capability, warprank::device::target());
  return RUN_ALL_TESTS();
}
