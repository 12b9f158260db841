// SPDX-License-Identifier: Apache-2.0
#include "golden/dlrm_hstu.hpp"

#include <gtest/gtest.h>

#include "warprank/host.hpp"

namespace warprank { namespace {

TEST(GoldenDlrmHstu, HostGivesTheScoresOfThePublicCode) {
  const Graph graph = build(golden::dlrm_hstu);
  CompileOptions unplanned;
  unplanned.passes = Passes::none();
  EXPECT_LE(golden::largest_difference_from_public_code(compile(graph), host()), 2e-6);
  EXPECT_LE(golden::largest_difference_from_public_code(compile(graph, unplanned), host()), 2e-6);
}

}}  // namespace warprank
