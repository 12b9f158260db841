// SPDX-License-Identifier: Apache-2.0

/// The examples of primitives, as they are: each checks its own results, and returns how many are wrong.

#define WARPRANK_KERNELS_OF_HASH_TABLE  // inserts are none of the engine's: compiled here

#include <gtest/gtest.h>

#include "support/kernel_testing.hpp"

#define main look_ups
#include "../../examples/primitives/look_ups.cu"
#undef main
#define main hash_table
#include "../../examples/primitives/hash_table.cu"
#undef main
#define main din_attention
#include "../../examples/primitives/din_attention.cu"
#undef main
#define main mlp
#include "../../examples/primitives/mlp.cu"
#undef main
#define main interactions
#include "../../examples/primitives/interactions.cu"
#undef main

namespace {

void expect_right(int (*example)()) {
  kernel_testing::for_each_target([&](const kernel_testing::Config& config) {
    kernel_testing::reset(config);
    EXPECT_EQ(example(), 0);
  });
}

TEST(Primitives, LookUp) { expect_right(look_ups); }
TEST(Primitives, FindInHashTables) { expect_right(hash_table); }
TEST(Primitives, PoolHistories) { expect_right(din_attention); }
TEST(Primitives, FuseLayers) { expect_right(mlp); }
TEST(Primitives, Interact) { expect_right(interactions); }

}  // namespace
