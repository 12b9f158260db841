// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/field_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/field_attention.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

/// A layer with random weights, of which scores are no larger for more columns.
struct FieldAttentionCase {
  int64_t fields;
  reference::FieldAttention settings;

  FieldAttentionCase(int64_t fields, int64_t dim, int64_t heads, int64_t head_dim, bool has_residual = true,
                     Activation activation = {ActivationKind::relu}, float size = 1)
      : fields(fields) {
    settings.dim = dim, settings.heads = heads, settings.head_dim = head_dim;
    settings.scale = 1 / std::sqrt(static_cast<double>(head_dim));
    settings.activation = activation;
    const auto values = [&](uint32_t seed) {
      const float of_weights = size / std::sqrt(static_cast<float>(dim));
      const AwkwardMatrix matrix = AwkwardMatrix(1, heads * head_dim * dim).fill(seed, of_weights);
      return std::vector<float>(matrix.view().data, matrix.view().data + heads * head_dim * dim);
    };
    settings.query = values(3), settings.key = values(4), settings.value = values(5);
    if (has_residual) settings.residual = values(6);
  }
  void run(Matrix<const float> x, Matrix<float> y) const {
    const int64_t columns = settings.columns();
    std::vector<float> projections;
    for (const std::vector<float>* weight : {&settings.query, &settings.key, &settings.value})
      projections.insert(projections.end(), weight->begin(), weight->end());
    host_ops::FieldAttentionLayer layer;
    layer.projections = {projections, {}, settings.dim, 3 * columns};
    layer.has_residual = !settings.residual.empty();
    layer.activation = settings.activation;
    if (layer.has_residual)
      layer.residual = {settings.residual, {}, settings.dim, columns, 1, {settings.activation, {}, {}, {}}};
    layer.attention.heads = settings.heads;
    layer.attention.scale = static_cast<float>(settings.scale);
    Workspace workspace(host_ops::field_attention_workspace(layer, fields));
    host_ops::field_attention(layer, x, y, workspace.view());
  }
};

void check(const FieldAttentionCase& layer, int64_t rows, int64_t gap = 3) {
  const reference::FieldAttention& settings = layer.settings;
  SCOPED_TRACE(::testing::Message() << rows << " rows of " << layer.fields << " fields of " << settings.dim << ", "
                                    << settings.heads << " heads of " << settings.head_dim);
  const AwkwardMatrix x = AwkwardMatrix(rows, layer.fields * settings.dim, gap).fill(1);
  AwkwardMatrix y(rows, layer.fields * settings.columns(), gap);
  layer.run(x.view(), y.view());
  expect_within(reference::field_attention(settings, x.view(), false), y.view(), 2);
  y.expect_guards_untouched();
}

TEST(HostFieldAttention, MatchesTheFormulaForEveryShape) {
  for_each_target([] {
    for (const int64_t fields : {1, 2, 9, 39})
      for (const int64_t dim : {1, 3, 16})
        for (const int64_t heads : {1, 3})
          for (const int64_t head_dim : {1, 5, 16})
            for (const int64_t rows : {0, 1, 4})
              check(
                  {fields, dim, heads, head_dim, dim != 3, {heads == 1 ? ActivationKind::relu : ActivationKind::tanh}},
                  rows, rows == 4 ? 0 : 3);
  });
}

TEST(HostFieldAttention, TakesMoreRowsThanItDoesAtOnce) {
  for_each_target([] {
    for (const int64_t gap : {0, 3}) check({39, 16, 2, 32}, 37, gap);
  });
}

TEST(HostFieldAttention, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    const FieldAttentionCase layer(39, 16, 2, 32);
    const int64_t in = 39 * 16, out = 39 * 64;
    const AwkwardMatrix x = AwkwardMatrix(23, in, 0).fill(1), strided = AwkwardMatrix(23, in).fill(1);
    AwkwardMatrix together(23, out, 0), apart(23, out);
    layer.run(x.view(), together.view());
    layer.run(strided.view(), apart.view());
    expect_same_bits(together.view(), apart.view());
    for (int64_t r = 0; r < 23; r += 11) {
      AwkwardMatrix alone(1, out);
      layer.run({x.view().row(r), 1, in}, alone.view());
      expect_same_bits({together.view().row(r), 1, out}, alone.view());
    }
  });
}

TEST(HostFieldAttention, KeepsNaNWithinItsRow) {
  for_each_target([] {
    const FieldAttentionCase layer(3, 4, 2, 4, true, {ActivationKind::identity});
    AwkwardMatrix x = AwkwardMatrix(3, 12).fill(2), y(3, 24);
    x.at(1, 5) = NAN;
    layer.run(x.view(), y.view());
    for (int64_t i = 0; i < 72; ++i) EXPECT_EQ(std::isnan(y.at(i / 24, i % 24)), i / 24 == 1) << i;
  });
}

/// One that is infinite counts as the largest finite one.
TEST(HostFieldAttention, TakesInfiniteScores) {
  for_each_target([] {
    FieldAttentionCase layer(3, 1, 1, 1, false, {ActivationKind::identity});
    layer.settings.query = {3e38f}, layer.settings.key = {1}, layer.settings.value = {1};
    layer.settings.scale = 2;
    AwkwardMatrix x(1, 3), y(1, 3);
    x.at(0, 0) = 1, x.at(0, 1) = 2, x.at(0, 2) = -1;
    layer.run(x.view(), y.view());
    // The first two scores of the first field are infinite.
    for (int64_t c = 0; c < 2; ++c) EXPECT_EQ(y.at(0, c), 1.5f) << c;
    EXPECT_EQ(y.at(0, 2), -1.0f);
  });
}

}}  // namespace warprank
