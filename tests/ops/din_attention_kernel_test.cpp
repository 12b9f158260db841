// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/din_attention_case.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

using Sizes = std::vector<int64_t>;

const std::vector<Activation> all_activations{identity, relu, leaky_relu(0.2f),   elu(1.5f), prelu,    dice,
                                              sigmoid,  gelu, hyperbolic_tangent, silu,      gelu_tanh};
const std::vector<Normalization> all_normalizations{Normalization::none, Normalization::softmax,
                                                    Normalization::sigmoid};

DinCase with(int64_t dim, Sizes hidden, Sizes items, Sizes events) {
  DinCase c;
  c.dim = dim, c.hidden = std::move(hidden), c.items = std::move(items), c.events = std::move(events);
  return c;
}

TEST(DinKernel, MatchesTheFormulaForEveryActivation) {
  for_each_target([](const Config& config) {
    std::vector<DinCase> cases;
    for (const Activation& activation : all_activations) {
      DinCase c = with(9, {19, 6}, {2, 1, 3}, {7, 0, 13});
      c.activation = activation;
      c.half_y = activation.kind == ActivationKind::relu;
      c.is_aligned = activation.kind != ActivationKind::dice;
      cases.push_back(c.make());
    }
    run_din(cases, config.target);
  });
}

}  // namespace
