// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/field_attention.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/field_attention.hpp"
#include "support/axis_input_testing.hpp"
#include "support/counted_replay.hpp"
#include "support/far_away.hpp"
#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::Activation;
using warprank::ActivationKind;
using warprank::FieldAttention;
using warprank::FieldAttentionShape;
using warprank::float16;
using warprank::Matrix;

/// A layer and rows for it, on the host, as FP16 numbers; scores are no larger for more columns.
struct Case {
  int64_t fields;
  FieldAttentionShape shape;
  AxisValues x;
  warprank::reference::FieldAttention layer;

  Case(int64_t rows, int64_t fields, FieldAttentionShape shape, bool has_residual = true,
       Activation activation = {ActivationKind::relu}, uint32_t seed = 1)
      : fields(fields), shape(shape), x(random_values<float16>(rows, fields * shape.dim, seed)) {
    layer.dim = shape.dim, layer.heads = shape.heads, layer.head_dim = shape.head_dim;
    layer.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    layer.activation = activation;
    const auto weights = [&](uint32_t of) {
      std::vector<float> values = random_values<float>(shape.heads * shape.head_dim, shape.dim, seed + of).values;
      for (float& value : values)
        value = warprank::to_float(warprank::to_float16(value / std::sqrt(static_cast<float>(shape.dim))));
      return values;
    };
    layer.query = weights(1), layer.key = weights(2), layer.value = weights(3);
    if (has_residual) layer.residual = weights(4);
  }
  int64_t columns() const { return fields * layer.columns(); }
  DeviceArray<unsigned char> packed() const {
    const auto bytes = pack_field_attention(shape, layer.query, layer.key, layer.value, layer.residual);
    return DeviceArray<unsigned char>(std::vector<unsigned char>(bytes.data(), bytes.data() + bytes.size()));
  }
  warprank::FieldAttentionLayer on_device(const unsigned char* packed) const {
    return {shape,
            packed,
            static_cast<float>(layer.scale),
            !layer.residual.empty(),
            {layer.activation.kind, layer.activation.alpha}};
  }
  warprank::reference::Bounded reference() const {
    return warprank::reference::field_attention(layer, {x.values.data(), x.rows, x.cols}, true);
  }
};

template <class Out>
std::vector<Out> run(const Case& given, Placement placement = {}) {
  DeviceMatrix<float16> x(converted<float16>(given.x.values), given.x.rows, given.x.cols, given.x.cols + placement.gap,
                          placement.skip);
  const int64_t cols = given.columns();
  DeviceMatrix<Out> y(given.x.rows, cols, cols + placement.gap, placement.skip);
  const DeviceArray<unsigned char> packed = given.packed();
  const FieldAttention<Out> op(x.view(), given.on_device(packed.data()), y.view());
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  return y.read();
}

template <class Out>
void expect_reference(const Case& given, Placement placement = {}, int seeds = 1, const Config& config = {}) {
  SCOPED_TRACE(std::to_string(given.x.rows) + " rows of " + std::to_string(given.fields) + " fields of " +
               std::to_string(given.shape.dim) + ", " + std::to_string(given.shape.heads) + " heads of " +
               std::to_string(given.shape.head_dim));
  expect_within(given.reference(), in_every_order([&] { return run<Out>(given, placement); }, seeds, config), 2);
}

template <class Out>
class FieldAttentionKernel : public testing::Test {};
using Outs = testing::Types<float, float16>;
TYPED_TEST_SUITE(FieldAttentionKernel, Outs, );

TYPED_TEST(FieldAttentionKernel, MatchesTheFormulaForEveryShape) {
  for_each_target([](const Config& config) {
    for (const int64_t fields : {1, 7, 16, 17, 39})
      for (const int64_t dim : {1, 10, 16, 36})
        for (const int64_t head_dim : {1, 8, 20})
          expect_reference<TypeParam>({3, fields, {dim, 2, head_dim}, dim != 10}, {}, 1, config);
  });
}

TYPED_TEST(FieldAttentionKernel, CutsRowsIntoBlocksOfEverySize) {
  for_each_target([](const Config& config) {
    for (const int64_t rows : {0, 1, 2, 6, 33})
      for (const int64_t fields : {3, 20, 50, 66})
        expect_reference<TypeParam>({rows, fields, {8, 1, 8}}, {}, 1, config);
  });
}

/// As many columns as shared memory holds, heads of more than two tiles, and as many fields as there may be.
TEST(FieldAttentionKernelSizes, AreAllThatAreAllowed) {
  for_each_target([](const Config& config) {
    for (const int64_t fields : {1, 39, 65, 96, 113, 128})
      expect_reference<float16>({1, fields, {FieldAttention<float16>::max_columns(fields), 1, 40}}, {}, 1, config);
    expect_reference<float16>({2, 39, {64, 2, 32}}, {}, 1, config);
    expect_reference<float16>({1, 128, {128, 4, 64}}, {}, 1, config);
    expect_reference<float16>({1, 20, {32, 1, 256}}, {}, 1, config);
  });
}

TYPED_TEST(FieldAttentionKernel, TakesRowsThatAreStridedAndMisalignedInEveryOrder) {
  for (const Placement placement : {Placement{8, 8}, Placement{4, 4}, Placement{8, 1}, Placement{3, 0}})
    for (const int64_t dim : {8, 17}) expect_reference<TypeParam>({5, 20, {dim, 2, 12}}, placement, 5);
}

TEST(FieldAttentionKernelActivation, IsAnyWithoutLearnedVectors) {
  for (const ActivationKind kind :
       {ActivationKind::identity, ActivationKind::leaky_relu, ActivationKind::elu, ActivationKind::sigmoid,
        ActivationKind::tanh, ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::silu})
    for (const bool has_residual : {false, true})
      expect_reference<float>({2, 6, {5, 2, 4}, has_residual, {kind, 0.25f}});
}

TYPED_TEST(FieldAttentionKernel, GivesARowTheSameBitsAloneAndAmongOthers) {
  const Case all(23, 19, {12, 2, 8});
  const auto floats_of = [](const std::vector<TypeParam>& values) {
    std::vector<float> floats;
    for (const TypeParam value : values) floats.push_back(warprank::to_float(value));
    return floats;
  };
  reset();
  const std::vector<float> together = floats_of(run<TypeParam>(all));
  for (const int64_t n : {int64_t{0}, int64_t{11}, int64_t{22}}) {
    Case alone = all;
    alone.x = all.x.row(n);
    reset();
    EXPECT_EQ(floats_of(run<TypeParam>(alone)),
              std::vector<float>(together.begin() + n * all.columns(), together.begin() + (n + 1) * all.columns()));
  }
}

TEST(FieldAttentionKernelRows, KeepNaNAndInfinityWithinTheirRow) {
  for (const int64_t fields : {5, 20}) {
    Case given(4, fields, {6, 2, 4}, true, {});
    const int64_t in = fields * 6, out = given.columns();
    given.x.values[static_cast<size_t>(in + 7)] = NAN;
    given.x.values[static_cast<size_t>(2 * in + 3)] = INFINITY;
    reset();
    const std::vector<float> y = run<float>(given);
    for (size_t i = 0; i < y.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / out;
      if (row != 2) {
        EXPECT_EQ(std::isnan(y[i]), row == 1) << i;
      }
    }
  }
}

/// The largest FP16 take their places, and infinite scores count as the largest finite ones.
TEST(FieldAttentionKernelRows, TakeQueriesAndScoresOfAnySize) {
  Case given(1, 3, {1, 1, 1}, false, {});
  given.layer.query = {60000}, given.layer.key = {60000}, given.layer.value = {1};
  given.layer.scale = 3e38;
  given.x.values = {2, 3, -1};
  reset();
  const std::vector<float> y = run<float>(given);
  EXPECT_EQ(y[0], 2.5f);
  EXPECT_EQ(y[1], 2.5f);
  EXPECT_EQ(y[2], -1.0f);
}

TEST(FieldAttentionKernelMemory, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  reset();
  const Case given(3, 3, {8, 1, 8});
  const int64_t cols = given.x.cols, stride = (int64_t{1} << 30) + 8;  // 4 GB in three rows, mostly untouched
  DeviceArray<float16> x(2 * stride + cols), y(2 * stride + cols);
  for (int64_t n = 0; n < 3; ++n) x.write(converted<float16>(given.x.row(n).values), n * stride);
  const DeviceArray<unsigned char> packed = given.packed();
  const FieldAttention<float16> op(Matrix<const float16>(x.data(), 3, cols, stride), given.on_device(packed.data()),
                                   Matrix<float16>(y.data(), 3, cols, stride));
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  std::vector<float16> rows;
  for (int64_t n = 0; n < 3; ++n)
    for (const float16 value : y.read(n * stride, cols)) rows.push_back(value);
  expect_within(given.reference(), rows, 2);
}

TYPED_TEST(FieldAttentionKernel, FollowsTheCountInDeviceMemoryAndTakesOtherWeights) {
  const Case own(9, 20, {8, 2, 8}), others(9, 20, {8, 2, 8}, true, {ActivationKind::relu}, 50);
  in_every_order(
      [&] {
        DeviceMatrix<float16> x(converted<float16>(own.x.values), 9, own.x.cols);
        DeviceMatrix<TypeParam> y(9, own.columns());
        const DeviceArray<unsigned char> packed = own.packed(), other_packed = others.packed();
        DeviceArray<int64_t> num_rows(1);
        const auto made_with = [&](const unsigned char* weights) {
          return FieldAttention<TypeParam>(x.view(), own.on_device(weights), y.view(), num_rows.data());
        };
        const FieldAttention<TypeParam> op = made_with(packed.data());
        DeviceArray<unsigned char> descriptors(op.descriptors());
        const CountedReplay replay(op, descriptors.data());
        for (const bool are_others : {false, true})
          for (const int64_t count : {9, 3, 0}) {
            if (are_others) descriptors.write(made_with(other_packed.data()).descriptors());
            Case counted = own;
            counted.x.rows = count;
            if (are_others) counted.layer = others.layer;
            expect_within(counted.reference(), replay.rows_of(count, num_rows, y), 2);
          }
      },
      3);
}

/// 100 items of AutoInt: a barrier for each 16 columns of keys and of values.
TEST(FieldAttentionKernelCounts, StoresResultsInOneLaunchAndNothingElse) {
  if constexpr (build == Build::plain) {
    Config config;
    config.count_sectors = true;
    reset(config);
    const Case given(100, 39, {64, 2, 32});
    clear_counters();
    run<float16>(given);
    EXPECT_EQ(counters().launches, 1);
    EXPECT_EQ(counters().atomics, 0);
    EXPECT_EQ(counters().global_store_sectors, 100 * 39 * 64 / 16);
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

TEST(FieldAttentionKernelArguments, AreRefusedWhereTheyDoNotFit) {
  alignas(16) float16 from[64] = {};
  alignas(16) unsigned char packed[16] = {};
  auto* const to = warprank::test_support::far_away<float>();
  struct Given {
    Matrix<const float16> x;
    warprank::FieldAttentionLayer layer;
    Matrix<float> y;
  };
  const auto refusal = [&](const std::function<void(Given&)>& change) -> std::string {
    Given given{{from, 2, 12}, {{4, 2, 3}, packed, 1, true, {}}, {to, 2, 18}};
    change(given);
    try {
      FieldAttention<float> made(given.x, given.layer, given.y);
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& given) { given.layer.shape.heads = 0; }),
            "field_attention: heads: expected 1 to 65535 of 1 or more columns, and fields of as many, got 0 of 3, "
            "fields of 4");
  EXPECT_EQ(refusal([](auto& given) { given.layer.shape.dim = 5; }),
            "field_attention: x: expected fields of 5 columns, got 12 columns");
  EXPECT_EQ(refusal([](auto& given) { given.x.cols = 0; }),
            "field_attention: x: expected fields of 4 columns, got 0 columns");
  EXPECT_EQ(refusal([](auto& given) { given.y.cols = 17; }),
            "field_attention: y: expected 3 fields of 6 columns, got 17 columns");
  EXPECT_EQ(refusal([](auto& given) { given.x.rows = 1; }), "field_attention: x: expected 2 rows, got 1");
  EXPECT_EQ(refusal([](auto& given) { given.layer.packed = nullptr; }),
            "field_attention: packed: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& given) { given.y.data = nullptr; }), "field_attention: y: expected an address, got null");
  EXPECT_EQ(refusal([](auto& given) {
              given.x.cols = given.x.stride = 129 * 4;
              given.y.cols = given.y.stride = 129 * 6;
            }),
            "field_attention: fields: expected at most 128, got 129");
  EXPECT_EQ(refusal([](auto& given) {
              given.layer.shape.dim = 161;
              given.x.cols = given.x.stride = 128 * 161;
              given.y.cols = given.y.stride = 128 * 6;
            }),
            "field_attention: columns of 128 fields: expected at most 160, got 161");
  const std::string not_finite = refusal([](auto& given) { given.layer.scale = NAN; });
  EXPECT_NE(not_finite.find("field_attention: scale: expected a finite number"), std::string::npos) << not_finite;
  const std::string learned = refusal([](auto& given) { given.layer.activation.kind = ActivationKind::prelu; });
  EXPECT_NE(learned.find("field_attention: activation: expected one without learned vectors, got prelu"),
            std::string::npos)
      << learned;
}

}  // namespace
