// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/launch_policies.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "warprank/ops/detail/common/card_policies.hpp"

namespace warprank { namespace {

bool are_the_same(const LaunchPolicies& a, const LaunchPolicies& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST(LaunchPolicies, OfACardAreItsOwn) {
  for (const detail::CardPolicies& card : detail::card_policies)
    EXPECT_TRUE(are_the_same(detail::launch_policies_of(card.target), card.policies)) << card.target;
}

TEST(LaunchPolicies, OfASimulatedCardAreForThatCardAlone) {
  for (const int target : {80, 86, 89}) EXPECT_TRUE(are_the_same(detail::launch_policies_of(target), {})) << target;
  for (const int target : {100, 120})
    EXPECT_TRUE(are_the_same(detail::launch_policies_of(target), detail::launch_policies_of(90))) << target;
  for (const detail::CardPolicies& card : detail::card_policies) EXPECT_EQ(card.is_measured, card.target != 75);
}

TEST(LaunchPolicies, OfAT4AreNotThoseOfAnH200) {
  // By a T4's model 16 take half the time of 2 for 6,400 rows of 64; an H200 measured 4 as the best.
  EXPECT_EQ(detail::launch_policies_of(75).row_program_blocks, 16);
  EXPECT_EQ(detail::launch_policies_of(90).row_program_blocks, 4);
}

}}  // namespace warprank
