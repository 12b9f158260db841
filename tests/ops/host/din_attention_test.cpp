// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/din_attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "guarded.hpp"
#include "reference/din_attention.hpp"
#include "support/host_op_testing.hpp"
#include "support/message_of.hpp"

namespace warprank { namespace {

using namespace test_support;

/// Of what rounding errors could add up to if all had one sign.
constexpr double din_attention_share_of_bound = 0.125;
using host_ops::PackedDin;
using host_ops::Precision;

std::vector<float> normal_values(std::mt19937& random, int64_t size, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = normal(random);
  return values;
}

/// A scoring network with random weights.
struct Network {
  Network(int64_t dim, const std::vector<int64_t>& hidden, Activation activation) : dim(dim) {
    std::mt19937 random(static_cast<uint32_t>(dim * 31 + hidden[0]));
    int64_t in = 4 * dim;
    const auto add_layer = [&](int64_t out, Activation f) {
      reference::Linear layer;
      layer.in = in, layer.out = out, layer.activation = f;
      layer.weight = normal_values(random, out * in, 1 / std::sqrt(static_cast<float>(in)));
      layer.bias = normal_values(random, out, 0.3f);
      const bool is_dice = f.kind == ActivationKind::dice;
      if (is_dice || f.kind == ActivationKind::prelu) layer.alpha = normal_values(random, out, 0.5f);
      if (is_dice) layer.scale = normal_values(random, out, 1), layer.shift = normal_values(random, out, 1);
      layers.push_back(layer);
      in = out;
    };
    for (const int64_t width : hidden) add_layer(width, activation);
    add_layer(1, identity);
  }

  PackedDin pack(Normalization normalization, bool scaled, Precision precision = Precision::fp32) const {
    std::vector<host_ops::DinLayer> views;
    for (const reference::Linear& layer : layers)
      views.push_back({layer.weight, layer.bias, {layer.activation, layer.alpha, layer.scale, layer.shift}});
    return {dim, views, normalization, scaled, precision};
  }

  int64_t dim;
  std::vector<reference::Linear> layers;
};

int64_t longest(Segments segments) {
  int64_t size = 0;
  for (int64_t s = 0; s < segments.count; ++s) size = std::max(size, segments.size(s));
  return size;
}

/// Runs the op with a workspace that faults where it is exceeded.
AwkwardMatrix run(const PackedDin& packed, Matrix<const float> q, Matrix<const float> k, Segments items,
                  Segments history) {
  const int64_t size = packed.workspace_size(longest(history));
  const test::GuardedMatrix workspace(1, size);
  AwkwardMatrix y(q.rows, q.cols);
  host_ops::din_attention(packed, q, k, items, history, y.view(), {workspace.view().data, size});
  y.expect_guards_untouched();
  return y;
}

void check(const Network& network, const OwnedSegments& items, const OwnedSegments& history,
           Normalization normalization = Normalization::none, bool scaled = false, float scale = 1,
           Precision precision = Precision::fp32) {
  const int64_t dim = network.dim;
  SCOPED_TRACE(::testing::Message() << "dim " << dim << ", " << network.layers.size() << " layers, "
                                    << name_of_enum(network.layers[0].activation.kind) << ", "
                                    << name_of_enum(normalization) << (scaled ? ", scaled" : ""));
  const AwkwardMatrix q = AwkwardMatrix(items.view().rows(), dim).fill(1, scale);
  const AwkwardMatrix k = AwkwardMatrix(history.view().rows(), dim).fill(2, scale);
  const PackedDin packed = network.pack(normalization, scaled, precision);
  const AwkwardMatrix y = run(packed, q.view(), k.view(), items.view(), history.view());
  const double factor = scaled ? 1 / std::sqrt(static_cast<double>(dim)) : 1.0;
  const double product_error = precision == Precision::bf16 ? reference::bf16_product_error : 0;
  expect_within(reference::din_attention(q.view(), k.view(), items.view(), history.view(), network.layers,
                                         normalization, factor, product_error),
                y.view(), precision == Precision::bf16 ? 1 : din_attention_share_of_bound);
}

TEST(HostDinAttention, MatchesTheFormulaForEveryActivation) {
  for_each_target([] {
    for (const Activation& activation :
         {identity, relu, leaky_relu(), elu(), prelu, dice, sigmoid, hyperbolic_tangent, gelu, gelu_tanh, silu})
      check(Network(9, {19, 6}, activation), {2, 1, 3}, {7, 0, 13});
  });
}

TEST(HostDinAttention, MatchesTheFormulaForEveryNormalization) {
  for_each_target([] {
    for (const Normalization normalization : {Normalization::none, Normalization::softmax, Normalization::sigmoid})
      for (const bool scaled : {false, true})
        for (const float scale : {0.03f, 1.0f, 5.0f})
          check(Network(16, {32, 16}, dice), {3, 2}, {50, 5}, normalization, scaled, scale);
  });
}

TEST(HostDinAttention, MatchesTheFormulaForEveryWidth) {
  for_each_target([] {
    for (const int64_t dim : {1, 2, 3, 8, 15, 16, 17, 31, 64, 100, 256})
      for (const std::vector<int64_t>& hidden :
           std::vector<std::vector<int64_t>>{{1}, {4}, {5}, {64}, {80, 40}, {3, 70}, {33, 2, 17}, {4, 5, 4}})
        check(Network(dim, hidden, relu), {2, 1}, {3, 2}, Normalization::softmax);
  });
}

TEST(HostDinAttention, MatchesTheFormulaForRaggedHistories) {
  for_each_target([] {
    check(Network(24, {36, 20}, relu), {1, 0, 40, 2, 1, 33, 0, 3, 2}, {0, 5, 1, 48, 1000, 2, 7, 0, 49},
          Normalization::softmax);
    check(Network(64, {64, 32}, relu), {2}, {1003});
  });
}

TEST(HostDinAttention, TakesQueriesThatAreTheParentsThemselves) {
  for_each_target([] { check(Network(12, {20, 8}, relu), {1, 1, 1, 1}, {4, 0, 1, 9}); });
}

TEST(HostDinAttention, DoesNothingWithoutItems) {
  for_each_target([] {
    check(Network(8, {16}, relu), {}, {});
    check(Network(8, {16}, relu), {0, 0}, {5, 0});
  });
}

TEST(HostDinAttention, GivesZerosForAnEmptyHistory) {
  for_each_target([] {
    const Network network(8, {16}, sigmoid);
    const AwkwardMatrix q = AwkwardMatrix(2, 8).fill(1), k(0, 8);
    for (const Normalization normalization : {Normalization::none, Normalization::softmax, Normalization::sigmoid}) {
      const AwkwardMatrix y =
          run(network.pack(normalization, false), q.view(), k.view(), OwnedSegments{2}.view(), OwnedSegments{0}.view());
      for (int64_t n = 0; n < 2; ++n)
        for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(y.view().row(n)[c], 0);
    }
  });
}

TEST(HostDinAttention, TakesLayersWithoutBias) {
  for_each_target([] {
    Network network(8, {16, 5}, relu);
    for (reference::Linear& layer : network.layers) layer.bias.clear();
    check(network, {3}, {10});
  });
}

TEST(HostDinAttention, StaysFiniteForScoresOfAnySize) {
  for_each_target([] {
    for (const float weight : {1e6f, -1e18f, 3e38f, -3e38f})
      for (const Normalization normalization : {Normalization::softmax, Normalization::sigmoid}) {
        SCOPED_TRACE(::testing::Message() << "weight " << weight << ", " << name_of_enum(normalization));
        Network network(8, {16, 8}, relu);
        // Of one sign, so that scores may become infinite, but no infinity is subtracted from another.
        network.layers.back().weight.assign(8, weight);
        const AwkwardMatrix q = AwkwardMatrix(4, 8).fill(1), k = AwkwardMatrix(20, 8).fill(2);
        const AwkwardMatrix y = run(network.pack(normalization, false), q.view(), k.view(), OwnedSegments{4}.view(),
                                    OwnedSegments{20}.view());
        for (int64_t n = 0; n < 4; ++n)
          for (int64_t c = 0; c < 8; ++c) EXPECT_TRUE(std::isfinite(y.view().row(n)[c])) << y.view().row(n)[c];
      }
  });
}

/// Of three users, each item beside the others and alone.
void expect_same_bits_whatever_its_neighbours(const PackedDin& packed, int64_t dim) {
  const AwkwardMatrix q = AwkwardMatrix(70, dim).fill(1), k = AwkwardMatrix(160, dim).fill(2);
  const OwnedSegments items{37, 3, 30}, history{59, 100, 1};
  const AwkwardMatrix together = run(packed, q.view(), k.view(), items.view(), history.view());
  for (int64_t u = 0; u < 3; ++u)
    for (int64_t n = items.view().begin(u); n < items.view().end(u); ++n) {
      const Matrix<const float> events = k.view().row_range(history.view().begin(u), history.view().size(u));
      const AwkwardMatrix alone =
          run(packed, q.view().row_range(n, 1), events, OwnedSegments{1}.view(), OwnedSegments{events.rows}.view());
      expect_same_bits(together.view().row_range(n, 1), alone.view());
    }
}

TEST(HostDinAttention, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([] {
    expect_same_bits_whatever_its_neighbours(Network(40, {64, 20}, dice).pack(Normalization::softmax, true), 40);
  });
}

TEST(HostDinAttentionInBf16, MatchesTheFormulaForEveryWidth) {
  for_each_target([] {
    for (const int64_t dim : {1, 2, 3, 16, 31, 64, 100})
      for (const std::vector<int64_t>& hidden :
           std::vector<std::vector<int64_t>>{{4}, {9}, {64}, {80, 40}, {3, 70}, {33, 2, 17}})
        check(Network(dim, hidden, relu), {2, 1}, {3, 2}, Normalization::none, false, 1, Precision::bf16);
  });
}

TEST(HostDinAttentionInBf16, MatchesTheFormulaForRaggedHistoriesAndEveryNormalization) {
  for_each_target([] {
    for (const Normalization normalization : {Normalization::none, Normalization::softmax, Normalization::sigmoid})
      check(Network(25, {36, 20}, dice), {1, 0, 40, 2, 1, 33, 0, 3, 2}, {0, 5, 1, 48, 300, 2, 7, 0, 49}, normalization,
            true, 1, Precision::bf16);
    check(Network(8, {16}, relu), {0, 0}, {5, 0}, Normalization::none, false, 1, Precision::bf16);
  });
}

/// Of quarters, W(q) has sixteenths up to 3, and all sums are exact.
TEST(HostDinAttentionInBf16, IsExactWhereRoundingChangesNothing) {
  for_each_target([] {
    Network network(17, {20}, relu);
    std::mt19937 random(5);
    const auto quarters = [&] { return 0.25f * static_cast<float>(static_cast<int>(random() % 9) - 4); };
    for (reference::Linear& layer : network.layers)
      for (std::vector<float>* values : {&layer.weight, &layer.bias})
        for (float& value : *values) value = quarters();
    AwkwardMatrix q(3, 17), k(50, 17);
    for (AwkwardMatrix* matrix : {&q, &k})
      for (int64_t r = 0; r < matrix->view().rows; ++r)
        for (int64_t c = 0; c < 17; ++c) matrix->at(r, c) = quarters();
    const OwnedSegments items{1, 2}, history{49, 1};
    const auto run_in = [&](Precision precision) {
      return run(network.pack(Normalization::none, false, precision), q.view(), k.view(), items.view(), history.view());
    };
    expect_same_bits(run_in(Precision::fp32).view(), run_in(Precision::bf16).view());
  });
}

TEST(HostDinAttentionInBf16, RefusesWeightsThatBf16CannotHold) {
  if (!host_ops::has_bf16_products()) GTEST_SKIP() << "this processor has no products of BF16";
  for (const size_t layer : {0u, 1u}) {
    Network network(8, {16, 12}, relu);
    network.layers[layer].weight[3] = 3.4e38f;
    EXPECT_EQ(message_of([&] { network.pack(Normalization::none, false); }), "");
    EXPECT_THAT(message_of([&] { network.pack(Normalization::none, false, Precision::bf16); }),
                ::testing::StartsWith(layer == 0 ? "weight of layer 0 of DIN attention, element 3: expected a number"
                                                 : "weight of a linear layer, element 3: expected a number"));
  }
}

TEST(HostDinAttentionInBf16, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([] {
    const PackedDin packed = Network(41, {64, 20}, dice).pack(Normalization::softmax, true, Precision::bf16);
    EXPECT_EQ(packed.precision() == Precision::bf16, host_ops::has_bf16_products());
    expect_same_bits_whatever_its_neighbours(packed, 41);
  });
}

TEST(HostDinAttention, RefusesLayersThatDoNotFitTogether) {
  const std::vector<float> values(64, 1.0f);
  const auto weights = [&](int64_t size) { return Span<const float>(values.data(), size); };
  const auto message = [&](int64_t dim, const std::vector<host_ops::DinLayer>& layers) -> std::string {
    try {
      PackedDin packed(dim, layers);
    } catch (const invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(2, {{weights(24), weights(3), {relu, {}, {}, {}}}, {weights(3), weights(1), {}}}), "accepted");
  EXPECT_EQ(message(0, {}), "DIN attention: expected 1 or more columns, got 0");
  EXPECT_EQ(message(2, {{weights(8), {}, {}}}), "DIN attention: expected 2 to 4 layers, got 1");
  EXPECT_EQ(message(2, {{weights(23), {}, {}}, {weights(4), {}, {relu, {}, {}, {}}}}),
            "3 problems:\n"
            "  weight of layer 0 of DIN attention: expected a multiple of 8 values, got 23\n"
            "  weight of layer 1 of DIN attention: expected 2 values, got 4\n"
            "  activation of layer 1 of DIN attention: expected identity, got relu");
  EXPECT_THAT(message(2, {{weights(24), weights(4), {}}, {weights(3), {}, {}}}), ::testing::HasSubstr("bias"));
  EXPECT_THAT(message(2, {{weights(24), {}, {dice, {}, {}, {}}}, {weights(3), {}, {}}}), ::testing::HasSubstr("alpha"));
}

}}  // namespace warprank
