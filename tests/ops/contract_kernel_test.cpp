// SPDX-License-Identifier: Apache-2.0

/// What all primitives have in common: how they are launched, and which memory that takes.

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/mlp_case.hpp"
#include "support/message_of.hpp"
#include "warprank/ops/attention.cuh"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/din_attention.cuh"
#include "warprank/ops/dot.cuh"
#include "warprank/ops/elementwise.cuh"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/field_attention.cuh"
#include "warprank/ops/field_linear.cuh"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/linear.cuh"
#include "warprank/ops/mix.cuh"
#include "warprank/ops/mix_tokens.cuh"
#include "warprank/ops/mlp.cuh"
#include "warprank/ops/recurrent.cuh"
#include "warprank/ops/row_programs.cuh"
#include "warprank/ops/scene_rows.cuh"
#include "warprank/ops/segment_reduce.cuh"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

struct Copied {
  WARPRANK_DEVICE float operator()(float value) const { return value; }
};

template <class... Op>
constexpr bool are_primitives =
    (... && (std::is_base_of_v<Primitive, Op> &&
             std::is_same_v<void, decltype(std::declval<const Op&>().launch(LaunchMemory{}, device::Stream{}))>));
static_assert(are_primitives<AttentionLaunch, DinLaunch, Dot<float16>, Elementwise<Copied, float16, 1, float>,
                             EmbeddingBag, FieldAttention<float16>, FieldLinear<float16>, Fm<float16, float>,
                             LinearLaunch, Mix<float16, float16>, MixTokens<float16>, MlpLaunch, Recurrent<float16>,
                             RowProgramLaunch, SceneRows, SegmentReduceLaunch>);

TEST(Primitive, NeedsNothingWhereThereIsNothingToCompute) {
  reset({});
  const EmbeddingBag bags({});
  const RowProgramLaunch programs({});
  const SegmentReduceLaunch reductions({});
  const LinearLaunch layers({}, 75);
  for (const Primitive* op : {static_cast<const Primitive*>(&bags), static_cast<const Primitive*>(&programs),
                              static_cast<const Primitive*>(&reductions), static_cast<const Primitive*>(&layers)}) {
    EXPECT_EQ(op->num_launches(), 0);
    EXPECT_EQ(op->workspace_bytes(), 0);
    EXPECT_EQ(op->descriptor_bytes(), 0);
    EXPECT_TRUE(op->descriptors().empty());
  }
  bags.launch({}), programs.launch({}), reductions.launch({}), layers.launch({});
}

TEST(Primitive, PutsItsWorkspaceWhereDescriptorsAreAskedFor) {
  for_each_target([](const Config& config) {
    const MlpOfTwoLaunches two(config.target);
    for (int turn = 0; turn < 2; ++turn) {
      DeviceArray<unsigned char> workspace(two.launch().workspace_bytes(), static_cast<unsigned char>(0));
      const DeviceArray<unsigned char> descriptors(two.launch().descriptors(workspace.data()));
      two.launch().launch({descriptors.data(), workspace.data()});
      two.expect_right();
    }
  });
}

TEST(Primitive, RefusesMemoryThatIsMissingOrMisaligned) {
  reset({});
  const MlpOfTwoLaunches two(75);
  const MlpLaunch& launch = two.launch();
  DeviceArray<unsigned char> workspace(launch.workspace_bytes() + 256);
  const DeviceArray<unsigned char> descriptors(launch.descriptors(workspace.data()));
  const auto refused = [&](const LaunchMemory& memory) {
    return test_support::message_of([&] { launch.launch(memory); });
  };
  EXPECT_EQ(refused({nullptr, workspace.data()}), "descriptors of mlps: expected device memory, got null");
  EXPECT_EQ(refused({descriptors.data() + 16, workspace.data()}),
            "descriptors of mlps: expected memory aligned to 128 bytes, got an address that is not");
  EXPECT_EQ(refused({descriptors.data(), nullptr}), "workspace of mlps: expected device memory, got null");
  EXPECT_EQ(refused({descriptors.data(), workspace.data() + 64}),
            "workspace of mlps: expected memory aligned to 256 bytes, got an address that is not");
}

}  // namespace
