// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/field_linear.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reference/field_linear.hpp"
#include "support/axis_input_testing.hpp"
#include "support/counted_replay.hpp"
#include "support/far_away.hpp"
#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::Activation;
using warprank::ActivationKind;
using warprank::DeviceActivation;
using warprank::FieldLinear;
using warprank::FieldLinearShape;
using warprank::float16;
using warprank::Matrix;

/// A layer and rows for it, on the host, as FP16 numbers.
struct Layer {
  FieldLinearShape shape;
  int64_t dim = 1, kept, summed = 0;
  AxisValues factors, fields;
  warprank::reference::Linear linear;

  Layer(int64_t rows, FieldLinearShape shape, int64_t dim, Activation activation = {}, bool has_bias = true,
        uint32_t seed = 1)
      : shape(shape),
        dim(dim),
        kept(shape.out),
        factors(random_values<float16>(rows, shape.num_factors * dim, seed)),
        fields(random_values<float16>(rows, shape.fields * dim, seed + 1)) {
    linear.in = shape.terms();
    linear.out = shape.out;
    linear.weight = random_values<float16>(shape.out, shape.terms(), seed + 2).values;
    if (has_bias) linear.bias = random_values<float>(1, shape.out, seed + 3).values;
    linear.activation = activation;
  }
  /// So many of the first fields, and sums of so many of the last.
  Layer with_results(int64_t new_kept, int64_t new_summed) const {
    Layer layer = *this;
    layer.kept = new_kept;
    layer.summed = new_summed;
    return layer;
  }
  int64_t rows() const { return fields.rows; }
  int64_t columns() const { return kept * dim + summed; }
  DeviceArray<unsigned char> packed() const {
    const auto bytes = warprank::pack_field_linear(shape, linear.weight, linear.bias);
    return DeviceArray<unsigned char>(std::vector<unsigned char>(bytes.data(), bytes.data() + bytes.size()));
  }
  warprank::FieldLinearLayer on_device(const unsigned char* packed) const {
    return {dim, shape.out, packed, {linear.activation.kind, linear.activation.alpha}, kept, summed};
  }
  warprank::reference::Bounded reference() const {
    return warprank::reference::field_linear(linear, dim, {factors.values.data(), factors.rows, factors.cols},
                                             {fields.values.data(), fields.rows, fields.cols}, kept, summed, true);
  }
};

template <class Out>
std::vector<Out> run(const Layer& layer, Placement placement = {}) {
  const auto on_device = [&](const AxisValues& x) {
    return DeviceMatrix<float16>(converted<float16>(x.values), x.rows, x.cols, x.cols + placement.gap, placement.skip);
  };
  DeviceMatrix<float16> factors = on_device(layer.factors), fields = on_device(layer.fields);
  const int64_t cols = layer.columns();
  DeviceMatrix<Out> y(layer.rows(), cols, cols + placement.gap, placement.skip);
  const DeviceArray<unsigned char> packed = layer.packed();
  const FieldLinear<Out> op(factors.view(), fields.view(), layer.on_device(packed.data()), y.view());
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  return y.read();
}

template <class Out>
void expect_reference(const Layer& layer, Placement placement = {}, int seeds = 1, const Config& config = {}) {
  SCOPED_TRACE(std::to_string(layer.rows()) + " rows, " + std::to_string(layer.shape.num_factors) + " factors, " +
               std::to_string(layer.shape.fields) + " fields of " + std::to_string(layer.dim) + ", " +
               std::to_string(layer.shape.out) + " outputs, " + std::to_string(layer.kept) + " kept and " +
               std::to_string(layer.summed) + " summed");
  expect_within(layer.reference(), in_every_order([&] { return run<Out>(layer, placement); }, seeds, config), 2);
}

template <class Out>
class FieldLinearKernel : public testing::Test {};
using Outs = testing::Types<float, float16>;
TYPED_TEST_SUITE(FieldLinearKernel, Outs, );

TYPED_TEST(FieldLinearKernel, MatchesTheFormulaForEveryShape) {
  for_each_target([](const Config& config) {
    for (const int64_t factors : {0, 1, 3, 13})
      for (const int64_t fields : {1, 8, 9, 39})
        for (const int64_t out : {1, 17, 40})
          for (const int64_t dim : {3, 8}) expect_reference<TypeParam>({3, {factors, fields, out}, dim}, {}, 1, config);
  });
}

/// One tile of 64 columns and more, and as few as the smallest has.
TYPED_TEST(FieldLinearKernel, CutsRowsIntoTilesOfEverySize) {
  for_each_target([](const Config& config) {
    for (const int64_t rows : {0, 1, 7, 100, 1001}) expect_reference<TypeParam>({rows, {3, 5, 40}, 10}, {}, 1, config);
  });
}

TYPED_TEST(FieldLinearKernel, SumsTheColumnsOfFields) {
  for_each_target([](const Config& config) {
    for (const int64_t rows : {1, 5, 250})
      for (const int64_t dim : {1, 3, 8, 10, 24, 40, 64}) {
        const Layer layer(rows, {2, 5, 37}, dim, {ActivationKind::relu});
        for (const auto& [kept, summed] : {std::pair{0, 37}, std::pair{37, 37}, std::pair{18, 19}, std::pair{3, 7}})
          if (rows < 100 || kept == 18) expect_reference<TypeParam>(layer.with_results(kept, summed), {}, 1, config);
      }
  });
}

/// Where a block has whole rows, wide ones leave room for fewer operands.
TEST(FieldLinearKernelSizes, AreAllThatSharedMemoryHolds) {
  for (const int64_t dim : {10, 16, 32, 64}) {
    const int64_t most = FieldLinear<float16>::max_operands(dim, true);
    expect_reference<float16>(Layer(2, {most - 16, 10, 9}, dim).with_results(4, 5));
    expect_reference<float16>(Layer(2, {1, most / 8 * 8 - 8, 9}, dim).with_results(4, 5));
  }
}

TEST(FieldLinearKernelSizes, AreThoseOfXDeepFmAndWukong) {
  for_each_target([](const Config& config) {
    expect_reference<float16>({3, {200, 39, 200}, 16, {ActivationKind::relu}}, {}, 1, config);
    expect_reference<float16>({3, {0, 1400, 48}, 16}, {}, 1, config);
    expect_reference<float16>({120, {0, 64, 32}, 64}, {}, 1, config);
    expect_reference<float16>({100, {3, 9, 33}, 32}, {}, 1, config);
  });
}

TYPED_TEST(FieldLinearKernel, TakesRowsThatAreStridedAndMisalignedInEveryOrder) {
  for (const Placement placement : {Placement{8, 8}, Placement{8, 1}, Placement{3, 0}})
    for (const int64_t factors : {0, 3}) expect_reference<TypeParam>({5, {factors, 10, 33}, 8}, placement, 5);
}

TEST(FieldLinearKernelActivation, IsAnyWithoutLearnedVectors) {
  for (const ActivationKind kind :
       {ActivationKind::relu, ActivationKind::leaky_relu, ActivationKind::elu, ActivationKind::sigmoid,
        ActivationKind::tanh, ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::silu})
    for (const bool has_bias : {false, true}) expect_reference<float>({2, {2, 6, 5}, 4, {kind, 0.25f}, has_bias});
}

TYPED_TEST(FieldLinearKernel, GivesARowTheSameBitsAloneAndAmongOthers) {
  const Layer layer(500, {4, 11, 33}, 8);
  const auto floats_of = [](const std::vector<TypeParam>& values) {
    std::vector<float> floats;
    for (const TypeParam value : values) floats.push_back(warprank::to_float(value));
    return floats;
  };
  reset();
  const std::vector<float> together = floats_of(run<TypeParam>(layer));
  for (const int64_t n : {int64_t{0}, int64_t{211}, int64_t{499}}) {
    Layer alone = layer;
    alone.factors = layer.factors.row(n);
    alone.fields = layer.fields.row(n);
    reset();
    const int64_t cols = 33 * 8;
    EXPECT_EQ(floats_of(run<TypeParam>(alone)),
              std::vector<float>(together.begin() + n * cols, together.begin() + (n + 1) * cols));
  }
}

TEST(FieldLinearKernelRows, KeepNaNWithinItsColumn) {
  Layer layer(3, {2, 5, 4}, 3);
  layer.fields.values[15 + 4] = NAN;  // row 1, field 1, column 1
  reset();
  const std::vector<float> y = run<float>(layer);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 12 == 1 && i % 3 == 1) << i;
}

TYPED_TEST(FieldLinearKernel, FollowsTheCountInDeviceMemoryAndTakesOtherWeights) {
  const Layer layer(9, {3, 7, 6}, 8), others(9, {3, 7, 6}, 8, {}, true, 50);
  constexpr int64_t cols = 6 * 8;
  in_every_order(
      [&] {
        DeviceMatrix<float16> factors(converted<float16>(layer.factors.values), 9, layer.factors.cols);
        DeviceMatrix<float16> fields(converted<float16>(layer.fields.values), 9, layer.fields.cols);
        DeviceMatrix<TypeParam> y(9, cols);
        const DeviceArray<unsigned char> packed = layer.packed(), other_packed = others.packed();
        DeviceArray<int64_t> num_rows(1);
        const auto made_with = [&](const unsigned char* weights) {
          return FieldLinear<TypeParam>(factors.view(), fields.view(), layer.on_device(weights), y.view(),
                                        num_rows.data());
        };
        const FieldLinear<TypeParam> op = made_with(packed.data());
        DeviceArray<unsigned char> descriptors(op.descriptors());
        const CountedReplay replay(op, descriptors.data());
        for (const bool are_others : {false, true})
          for (const int64_t count : {9, 3, 0}) {
            if (are_others) descriptors.write(made_with(other_packed.data()).descriptors());
            Layer counted = layer;
            counted.factors.rows = counted.fields.rows = count;
            if (are_others) counted.linear = others.linear;
            expect_within(counted.reference(), replay.rows_of(count, num_rows, y), 2);
          }
      },
      3);
}

/// 100 items of xDeepFM.
TEST(FieldLinearKernelCounts, StoresResultsInOneLaunchAndNoProducts) {
  if constexpr (build == Build::plain) {
    Config config;
    config.count_sectors = true;
    reset(config);
    const Layer layer(100, {30, 39, 128}, 16);
    clear_counters();
    run<float16>(layer);
    EXPECT_EQ(counters().launches, 1);
    EXPECT_EQ(counters().atomics, 0);
    EXPECT_EQ(counters().global_store_sectors, 100 * 128 * 16 / 16);
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

TEST(FieldLinearKernelArguments, AreRefusedWhereTheyDoNotFit) {
  alignas(16) float16 from[64] = {};
  alignas(16) unsigned char packed[16] = {};
  auto* const to = warprank::test_support::far_away<float>();
  struct Given {
    Matrix<const float16> factors, fields;
    warprank::FieldLinearLayer layer;
    Matrix<float> y;
  };
  const auto refusal = [&](const std::function<void(Given&)>& change) -> std::string {
    Given given{{from, 2, 12}, {from, 2, 32}, {4, 8, packed, {}, -1, 0}, {to, 2, 32}};
    change(given);
    try {
      FieldLinear<float> made(given.factors, given.fields, given.layer, given.y);
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&) {}), "nothing was thrown");
  EXPECT_EQ(refusal([](auto& given) { given.layer.dim = 0; }),
            "field_linear: layer: expected 1 or more outputs of 1 or more columns, 1073741824 at most, got 8 of 0");
  EXPECT_EQ(refusal([](auto& given) { given.layer.kept = 9; }),
            "field_linear: layer: expected results among 8 outputs, got 9 kept and 0 summed");
  EXPECT_EQ(refusal([](auto& given) { given.layer.kept = 0; }),
            "field_linear: layer: expected results among 8 outputs, got 0 kept and 0 summed");
  EXPECT_EQ(refusal([](auto& given) { given.layer.summed = 2; }), "field_linear: y: expected 34 columns, got 32");
  EXPECT_EQ(refusal([](auto& given) {
              given.layer.dim = given.fields.cols = given.fields.stride = 65;
              given.factors.cols = 0;
              given.layer.kept = 0, given.layer.summed = 8, given.y.cols = 8;
            }),
            "field_linear: fields that are summed: expected at most 64 columns, got 65");
  EXPECT_EQ(refusal([](auto& given) { given.factors.cols = 10; }),
            "field_linear: factors: expected fields of 4 columns, at most 1073741824, got 10 columns");
  EXPECT_EQ(refusal([](auto& given) { given.fields.cols = 0; }),
            "field_linear: fields: expected fields of 4 columns, at most 1073741824, got 0 columns");
  EXPECT_EQ(refusal([](auto& given) { given.factors.rows = 1; }), "field_linear: factors: expected 2 rows, got 1");
  EXPECT_EQ(refusal([](auto& given) { given.layer.packed = nullptr; }),
            "field_linear: packed: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& given) { given.y.data = nullptr; }), "field_linear: y: expected an address, got null");
  EXPECT_EQ(refusal([](auto& given) { given.factors.cols = given.factors.stride = 4 * 1493; }),
            "field_linear: factors and padded fields: expected at most 1500, got 1501");
  EXPECT_EQ(refusal([](auto& given) {
              given.layer.dim = 33;
              given.layer.kept = 0, given.layer.summed = 8, given.y.cols = 8;
              given.fields.cols = given.fields.stride = 33 * 64;
              given.factors.cols = given.factors.stride = 33 * 312;
            }),
            "field_linear: factors and padded fields: expected at most 375, got 376");
  const std::string learned = refusal([](auto& given) { given.layer.activation.kind = ActivationKind::prelu; });
  EXPECT_NE(learned.find("field_linear: activation: expected one without learned vectors, got prelu"),
            std::string::npos)
      << learned;
}

}  // namespace
