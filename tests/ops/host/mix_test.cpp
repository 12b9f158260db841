// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/mix.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reference/mix.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

const std::vector<Normalization> normalizations = {Normalization::softmax, Normalization::sigmoid, Normalization::none};

void check(const SegmentedInput& experts, const SegmentedInput& gate, int64_t rows, int64_t dim,
           const host_ops::MixEnd& end = {}) {
  for (const Normalization normalization : normalizations) {
    SCOPED_TRACE(::testing::Message() << "rows " << rows << ", experts " << gate.values.cols << ", dim " << dim << ", "
                                      << name_of_enum(normalization));
    AwkwardMatrix y(rows, dim);
    Workspace workspace(host_ops::mix_workspace(gate.values.cols));
    host_ops::mix(experts, gate, normalization, y.view(), workspace.view(), end);
    expect_within(reference::mix(experts, gate, normalization, rows, dim, end.multiply, end.residual), y.view(), 1);
    y.expect_guards_untouched();
  }
}

TEST(HostMix, MatchesTheWeightedSumForEveryShape) {
  for_each_target([] {
    for (const int64_t num_experts : {1, 2, 3, 4, 5, 8, 17, 33})
      for (const int64_t dim : {0, 1, 3, 16, 37})
        for (const int64_t rows : {0, 1, 6})
          for (const float scale : {0.1f, 1.0f, 10.0f}) {
            const AwkwardMatrix experts = AwkwardMatrix(rows, num_experts * dim).fill(1),
                                gate = AwkwardMatrix(rows, num_experts).fill(2, scale);
            check({experts.view()}, {gate.view()}, rows, dim);
          }
  });
}

TEST(HostMix, TakesExpertsAndGateFromAncestors) {
  for_each_target([] {
    const OwnedSegments users({0, 7, 0, 1, 42, 0}), sessions({3, 0, 4, 1, 0, 40, 2});
    const int64_t rows = 50, dim = 9, num_experts = 4;
    const AwkwardMatrix item_experts = AwkwardMatrix(rows, num_experts * dim).fill(1),
                        user_experts = AwkwardMatrix(6, num_experts * dim).fill(2),
                        item_gate = AwkwardMatrix(rows, num_experts).fill(3),
                        session_gate = AwkwardMatrix(7, num_experts).fill(4);
    const SegmentedInput on_users{user_experts.view(), users.view()}, on_sessions{session_gate.view(), sessions.view()};
    check(on_users, {item_gate.view()}, rows, dim);
    check({item_experts.view()}, on_sessions, rows, dim);
    check(on_users, on_sessions, rows, dim);
  });
}

TEST(HostMix, MultipliesAndThenAdds) {
  for_each_target([] {
    for (const int64_t dim : {0, 1, 16, 37, 130}) {
      const int64_t rows = 6, num_experts = 3;
      const AwkwardMatrix experts = AwkwardMatrix(rows, num_experts * dim).fill(1),
                          gate = AwkwardMatrix(rows, num_experts).fill(2), multiply = AwkwardMatrix(rows, dim).fill(3),
                          residual = AwkwardMatrix(rows, dim).fill(4);
      check({experts.view()}, {gate.view()}, rows, dim, {multiply.view(), {}});
      check({experts.view()}, {gate.view()}, rows, dim, {{}, residual.view()});
      check({experts.view()}, {gate.view()}, rows, dim, {multiply.view(), residual.view()});
    }
  });
}

TEST(HostMix, KeepsExtremeLogitsFinite) {
  for_each_target([] {
    AwkwardMatrix experts(1, 2), gate(1, 2), y(1, 1);
    experts.at(0, 0) = 3, experts.at(0, 1) = 5;
    gate.at(0, 0) = 1e4f, gate.at(0, 1) = -1e4f;
    Workspace workspace(host_ops::mix_workspace(2));
    host_ops::mix({experts.view()}, {gate.view()}, Normalization::softmax, y.view(), workspace.view());
    EXPECT_EQ(y.at(0, 0), 3);
    host_ops::mix({experts.view()}, {gate.view()}, Normalization::sigmoid, y.view(), workspace.view());
    EXPECT_EQ(y.at(0, 0), 3);
  });
}

TEST(HostMix, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const int64_t rows = 5, dim = 21, num_experts = 6;
    const OwnedSegments one_user({rows});
    const AwkwardMatrix experts = AwkwardMatrix(rows, num_experts * dim).fill(1),
                        gate = AwkwardMatrix(1, num_experts).fill(2);
    AwkwardMatrix together(rows, dim), alone(1, dim);
    Workspace workspace(host_ops::mix_workspace(num_experts));
    for (const Normalization normalization : normalizations) {
      host_ops::mix({experts.view()}, {gate.view(), one_user.view()}, normalization, together.view(), workspace.view());
      for (int64_t n = 0; n < rows; ++n) {
        host_ops::mix({experts.view().row_range(n, 1)}, {gate.view()}, normalization, alone.view(), workspace.view());
        expect_same_bits(together.view().row_range(n, 1), alone.view());
      }
    }
  });
}

}}  // namespace warprank
