// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ops/linear_case.hpp"
#include "support/counts.hpp"
#include "support/message_of.hpp"
#include "warprank/ops/detail/gemm/cublaslt.cuh"
#include "warprank/ops/detail/gemm/finish.cuh"

// In the plain build alone: counts are the same in all, and the host's kernels take a minute to compile with
// sanitizers.
#if !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WARPRANK_TEST_PLAIN
#include "support/longest_warp.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/weights.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT
using warprank::LinearTile, warprank::detail::linear::tile_shape;

using Sizes = std::vector<int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

const std::vector<Activation> all_activations{identity, relu, leaky_relu(0.2f),   elu(1.5f), prelu,    dice,
                                              sigmoid,  gelu, hyperbolic_tangent, silu,      gelu_tanh};

template <class Layout>
void expect_every_weight_in_its_place() {
  for (const int64_t in : {1, 16, 33, 53})
    for (const int64_t out : {2, 8, 16, 19}) {
      std::vector<float> weight(static_cast<size_t>(in * out)), bias(static_cast<size_t>(out));
      std::iota(weight.begin(), weight.end(), 1.0f);
      std::iota(bias.begin(), bias.end(), 0.5f);
      const Buffer<unsigned char> packed = pack_linear<float, Layout>(weight, bias, in, out);
      const Layout layout{in, out};
      ASSERT_EQ(packed.size(), layout.bytes());
      const auto* halves = reinterpret_cast<const float16*>(packed.data());
      EXPECT_EQ(std::accumulate(halves, halves + layout.bias_offset() / 2, 0.0,
                                [](double sum, float16 value) { return sum + to_float(value); }),
                std::accumulate(weight.begin(), weight.end(), 0.0));  // so that all else is 0
      for (int64_t n = 0; n < out; ++n)
        for (int64_t k = 0; k < in; ++k)
          EXPECT_EQ(to_float(halves[layout.index(n, k)]), weight[static_cast<size_t>(n * in + k)]);
      const auto* packed_bias = reinterpret_cast<const float*>(packed.data() + layout.bias_offset());
      for (int64_t n = 0; n < layout.num_pairs() * 16; ++n)
        EXPECT_EQ(packed_bias[n], n < out ? bias[static_cast<size_t>(n)] : 0);
    }
}
TEST(PackedLinear, PutsEveryWeightWhereTheLayoutSays) {
  expect_every_weight_in_its_place<PackedLinearLayout>();
  expect_every_weight_in_its_place<PackedFragmentLayout>();
}

TEST(PackedLinear, TakesFp16AndRoundsFp32ToIt) {
  const std::vector<float> weight{1.0f + 0x1p-12f, 0x1p-26f, -65504.0f, 65519.0f};
  std::vector<float16> halves;
  for (const float value : weight) halves.push_back(to_float16(value));
  const Buffer<unsigned char> from_floats = pack_linear<float>(weight, {}, 2, 2);
  const Buffer<unsigned char> from_halves = pack_linear<float16>(halves, {}, 2, 2);
  ASSERT_EQ(from_floats.size(), from_halves.size());
  EXPECT_EQ(std::memcmp(from_floats.data(), from_halves.data(), static_cast<size_t>(from_floats.size())), 0);
}

TEST(PackedLinear, RefusesWhatIsNotAFiniteFp16) {
  for (const float value : {nan, infinity, -infinity, 65520.0f, -1e6f}) {
    const std::vector<float> weight{0, 0, 0, value};
    EXPECT_THROW(pack_linear<float>(weight, {}, 2, 2), invalid_argument) << value;
    if (std::isfinite(value))
      EXPECT_NO_THROW(pack_linear<float>(weight, {}, 4, 1)) << "a head's weights are FP32";
    else
      EXPECT_THROW(pack_linear<float>(weight, {}, 4, 1), invalid_argument);
  }
  try {
    pack_linear<float>(std::vector<float>{1, 2, 3, 70000, 5, 6}, {}, 3, 2);
    FAIL() << "must throw";
  } catch (const invalid_argument& e) {
    EXPECT_EQ(e.problems()[0].what, "weight [1, 0] of a linear layer");
  }
}

TEST(PackedLinear, RefusesWrongSizesTogether) {
  const std::vector<float> six(6), two(2);
  try {
    pack_linear<float>(six, two, 5, 3);
    FAIL() << "must throw";
  } catch (const invalid_argument& e) {
    ASSERT_EQ(e.problems().size(), 2u);
    EXPECT_EQ(e.problems()[0].to_string(), "weight of a linear layer: expected 15 values, got 6");
    EXPECT_EQ(e.problems()[1].to_string(), "bias of a linear layer: expected 3 values, got 2");
  }
  EXPECT_THROW(pack_linear<float>({}, {}, 0, 3), invalid_argument);
  EXPECT_THROW(pack_linear<float>({}, {}, 3, 0), invalid_argument);
}

/// The same with weights in INT8.
std::vector<LinearCase> with_int8(const std::vector<LinearCase>& cases) {
  std::vector<LinearCase> in_int8;
  for (const LinearCase& c : cases) {
    Extras extras = c.extras;
    extras.int8 = true;
    in_int8.emplace_back(c.rows, c.layer.in, c.layer.out, extras);
  }
  return in_int8;
}

TEST(LinearKernel, MatchesTheOracleForEveryShape) {
  for_each_target([](const Config& config) {
    std::vector<LinearCase> cases;
    for (const int64_t rows : {0, 1, 15, 16, 17, 33})
      for (const int64_t out : {1, 2, 8, 9, 17, 65})
        for (const int64_t in : {1, 8, 9, 15, 40}) {
          Extras extras;
          extras.half_y = in % 2 == 0;
          extras.is_aligned = (rows + out) % 2 == 0;
          cases.emplace_back(rows, in, out, extras);
        }
    run_cases(cases, config.target);
    run_cases(with_int8(cases), config.target);
  });
}

/// Every tile, and of those that can be cut into parts some.
const std::vector<Tiling> all_tilings = [] {
  std::vector<Tiling> all;
  for (int i = 0; i < warprank::detail::linear::num_tiles; ++i) {
    const auto tile = static_cast<LinearTile>(i);
    for (const int parts : {1, 2, 3})
      if (parts == 1 || tile_shape(tile).can_be_cut) all.push_back({tile, parts});
  }
  return all;
}();
const Tiling in_parts{LinearTile::staged_64x64, 3};

/// Depths of less and of more than what is requested at once, and that end within a step, a stage and a part.
TEST(LinearKernel, MatchesTheOracleWithEveryTile) {
  for_each_target([](const Config& config) {
    for (const Tiling& tiling : all_tilings)
      for (const auto& [is_plain, has_operands] :
           std::vector<std::pair<bool, bool>>{{true, true}, {true, false}, {false, true}}) {
        const auto& shape = tile_shape(tiling.tile);
        if (!is_plain && !shape.is_general) continue;
        if (!has_operands && shape.takes_operands) continue;
        SCOPED_TRACE(tiling.to_string() + (is_plain ? ", plain" : "") + (has_operands ? ", operands" : ""));
        std::vector<LinearCase> cases;
        const auto add = [&](int64_t rows, int64_t in, int64_t out, bool is_aligned, Activation activation) {
          Extras extras;
          extras.is_aligned = is_aligned;
          extras.activation = activation;
          cases.emplace_back(rows, in, out, extras);
        };
        const int64_t rows = shape.rows, columns = shape.columns;
        add(1, 8, 8, true, relu);
        add(rows + 1, 40, columns + 8, true, identity);
        add(rows / 2 + 1, 200, columns - 8, true, relu);
        add(5, 1048, 24, true, identity);
        add(9, 32, columns, true, identity);
        for (int operands = 0; has_operands && operands < 12; ++operands) {  // cross, late broadcasts, users' shares
          Extras extras;
          extras.activation = operands % 2 == 0 ? identity : relu;
          extras.multiply = operands % 4 < 2;
          extras.residual = operands % 3 == 0;
          extras.half_y = operands % 5 < 3;
          extras.float_row_bias = true;
          extras.row_bias_of_rows = operands % 4 == 1;
          const int64_t some_rows = operands == 8 ? 3 : rows + 2;
          if (operands >= 6 && !extras.row_bias_of_rows) extras.segment_sizes = {1, 0, some_rows - 1};
          cases.emplace_back(some_rows, 48, operands % 3 == 0 ? columns + 8 : 24, extras);
        }
        if (!is_plain) {
          add(rows + 1, 75, columns + 1, true, silu);
          add(rows - 1, 72, columns, false, relu);
          add(7, 1033, 24, false, identity);
          add(7, 33, 24, true, prelu);
        }
        for (const std::vector<LinearCase>& all : {cases, with_int8(cases)}) {
          SCOPED_TRACE(all[0].extras.int8 ? "INT8" : "FP16");
          std::vector<std::unique_ptr<DeviceLayer>> layers;
          std::vector<LinearLayer> views;
          for (const LinearCase& c : all)
            views.push_back(layers.emplace_back(std::make_unique<DeviceLayer>(c))->view());
          DeviceLaunch launch(views, config.target, tiling);
          EXPECT_EQ(launch.launch().is_plain(), is_plain && (shape.takes_operands || !has_operands));
          EXPECT_EQ(launch.launch().parts(3), tiling.parts);
          launch.run();
          launch.run();  // with the tickets that the first has left
          for (const auto& layer : layers) layer->expect_right();
        }
      }
  });
}

/// Only the first row of x begins at a multiple of 16 bytes.
TEST(LinearKernel, ReadsRowsOfAnyStride) {
  for_each_target([](const Config& config) {
    for (const int64_t stride : {40, 41, 44}) {
      reset(config);
      const LinearCase c(17, 40, 9);
      DeviceLayer device(c);
      std::vector<float16> values(static_cast<size_t>(c.capacity() * stride), narrowed<float16>(NAN));
      for (int64_t n = 0; n < c.rows; ++n)
        for (int64_t i = 0; i < 40; ++i)
          values[static_cast<size_t>(n * stride + i)] = narrowed<float16>(c.inputs.x[static_cast<size_t>(n * 40 + i)]);
      DeviceArray<float16> x(values);
      LinearLayer layer = device.view();
      layer.x = {x.data(), c.capacity(), 40, stride};
      DeviceLaunch({layer}, config.target).run();
      device.expect_right();
    }
  });
}

TEST(LinearKernel, MatchesTheOracleOverManyRowTilesAndSteps) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.residual = true;
    run_cases({LinearCase(100, 200, 130, extras)}, config.target);
    extras.more_rows = 450;
    extras.is_aligned = false;
    run_cases({LinearCase(150, 90, 70, extras)}, config.target);
  });
}

TEST(LinearKernel, AppliesEveryActivationWithEachInput) {
  for_each_target([](const Config& config) {
    std::vector<LinearCase> cases;
    for (const Activation& activation : all_activations)
      for (int inputs = 0; inputs < 12; ++inputs) {
        Extras extras;
        extras.activation = activation;
        if (inputs & 1) extras.segment_sizes = Sizes{4, 5};
        extras.multiply = inputs & 2;
        extras.residual = inputs >= 4;
        extras.residual_first = inputs >= 8;
        extras.half_operands = inputs % 3 == 0;
        extras.half_y = false;
        extras.is_aligned = inputs % 2 == 0;
        cases.emplace_back(9, 20, inputs == 5 || inputs == 9 ? 1 : 18, extras);
      }
    run_cases(cases, config.target);
    run_cases(with_int8(cases), config.target);
  });
}

/// Exact: small integers.
TEST(LinearKernel, SumsColumnsWhereWeightsAreOne) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.bias = extras.half_y = false;
    LinearCase c(5, 83, 1, extras);
    c.layer.weight.assign(83, 1.0f);
    for (size_t i = 0; i < c.inputs.x.size(); ++i) c.inputs.x[i] = static_cast<float>(i % 11) - 4;
    std::vector<float> sums;
    for (auto row = c.inputs.x.begin(); row != c.inputs.x.end(); row += 83)
      sums.push_back(std::accumulate(row, row + 83, 0.0f));
    EXPECT_EQ(run_cases({c}, config.target)[0], sums);
  });
}

TEST(LinearKernel, StaysWithinItsBoundAtEveryScale) {
  for_each_target([](const Config& config) {
    std::vector<LinearCase> cases;
    for (const float scale : {1e-6f, 1e-3f, 1.0f, 1e3f, 6e4f})
      for (const bool bias : {false, true})
        for (const int64_t out : {1, 24}) {
          Extras extras;
          extras.scale = scale;
          extras.bias = bias;
          extras.half_y = scale <= 1;
          cases.emplace_back(18, 257, out, extras);
        }
    run_cases(cases, config.target);
    run_cases(with_int8(cases), config.target);
  });
}

TEST(LinearKernel, AddsTheRowBiasOfEachSegmentHoweverRagged) {
  for_each_target([](const Config& config) {
    std::vector<LinearCase> cases;
    for (const Sizes& sizes : {Sizes{0}, Sizes{1}, Sizes{0, 0, 1, 0}, Sizes{17}, Sizes{1, 1, 1, 1, 1, 1, 1, 1},
                               Sizes{5, 0, 1, 12, 0, 0, 3}, Sizes{0, 40, 0}, Sizes(50, 2), Sizes{6, 6, 6}})
      for (const int64_t out : {1, 20}) {
        Extras extras;
        extras.segment_sizes = sizes;
        extras.activation = relu;
        extras.half_operands = out == 1;
        cases.emplace_back(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 12, out, extras);
      }
    Extras of_rows;
    of_rows.row_bias_of_rows = true;
    cases.emplace_back(19, 12, 20, of_rows);
    run_cases(cases, config.target);
  });
}

/// A layer that is deep enough for three parts.
LinearCase deep_case(int64_t rows, Extras extras = {}) {
  extras.half_y = false;
  extras.activation = gelu;
  return LinearCase(rows, 600, 40, extras);
}

TEST(LinearKernel, GivesTheSameBitsInEveryOrderOfBlocks) {
  for_each_target([](const Config& config) {
    const LinearCase c = deep_case(20);
    for (const Tiling& tiling : {in_parts, Tiling{LinearTile::direct_16x16, 1}})
      in_every_order(
          [&] {
            DeviceLayer layer(c);
            DeviceLaunch launch({layer.view()}, config.target, tiling);
            EXPECT_EQ(launch.launch().parts(0), tiling.parts);
            launch.run();
            launch.run();  // with the tickets that the first has left
            layer.expect_right();
            return layer.values();
          },
          build == Build::plain ? 20 : 3, config);
  });
}

TEST(LinearKernel, GivesARowTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.segment_sizes = Sizes{20, 1, 16};
    extras.multiply = true;
    const LinearCase all = deep_case(37, extras);
    for (const Tiling& tiling : all_tilings) {
      if (!tile_shape(tiling.tile).is_general) continue;
      SCOPED_TRACE(tiling.to_string());
      const std::vector<float> together = run_cases({all}, config.target, true, tiling)[0];
      const auto slice = [](const std::vector<float>& values, int64_t begin, int64_t count) {
        return std::vector<float>(values.begin() + begin, values.begin() + begin + count);
      };
      for (const int64_t first : {0, 3, 18, 21, 36}) {
        const int64_t rows = std::min<int64_t>(19, 37 - first);
        Extras some = extras;
        some.segment_sizes.clear();
        for (int64_t s = 0, begin = 0; s < 3; begin += extras.segment_sizes[static_cast<size_t>(s++)]) {
          const int64_t end = begin + extras.segment_sizes[static_cast<size_t>(s)];
          some.segment_sizes.push_back(std::max<int64_t>(0, std::min(end, first + rows) - std::max(begin, first)));
        }
        some.more_rows = all.capacity() - rows;
        LinearCase c = deep_case(rows, some);
        c.layer = all.layer;
        c.inputs.x = slice(all.inputs.x, first * 600, rows * 600);
        c.inputs.multiply = slice(all.inputs.multiply, first * 40, rows * 40);
        c.inputs.row_bias = all.inputs.row_bias;
        EXPECT_EQ(run_cases({c}, config.target, true, tiling)[0], slice(together, first * 40, rows * 40))
            << "from row " << first;
      }
    }
  });
}

/// Staged tiles of 64 x 64 have a kernel for plain layers with every activation, others for relu and none.
TEST(LinearKernel, MatchesTheOracleForPlainLayersWithAnyActivation) {
  using Kind = ActivationKind;
  for_each_target([](const Config& config) {
    for (const Tiling tiling : {Tiling{LinearTile::staged_64x64, 1}, in_parts, Tiling{LinearTile::direct_16x16, 1}})
      for (const Kind kind : {Kind::leaky_relu, Kind::elu, Kind::prelu, Kind::dice, Kind::sigmoid, Kind::tanh,
                              Kind::gelu, Kind::gelu_tanh, Kind::silu}) {
        const bool is_whole = tiling.tile == LinearTile::staged_64x64 && tiling.parts == 1;
        if (!is_whole && kind != Kind::silu && kind != Kind::dice) continue;
        SCOPED_TRACE(tiling.to_string() + " " + warprank::name_of_enum(kind));
        std::vector<LinearCase> cases;
        for (int operands = 0; operands < 8; ++operands) {
          Extras extras;
          extras.activation = {kind, 0.25f};
          extras.multiply = operands % 2 == 1, extras.residual = operands / 2 % 2 == 1;
          extras.half_operands = operands >= 4, extras.half_y = operands % 3 != 0;
          if (operands == 5) extras.segment_sizes = {30, 0, 40};
          cases.emplace_back(70, 264, operands == 5 ? 40 : 8, extras);
        }
        for (const std::vector<LinearCase>& all : {cases, with_int8(cases)}) {
          std::vector<std::unique_ptr<DeviceLayer>> layers;
          std::vector<LinearLayer> views;
          for (const LinearCase& c : all)
            views.push_back(layers.emplace_back(std::make_unique<DeviceLayer>(c))->view());
          DeviceLaunch launch(views, config.target, tiling);
          EXPECT_EQ(launch.launch().is_plain(), tiling.tile == LinearTile::staged_64x64);
          launch.run();
          for (const auto& layer : layers) layer->expect_right();
        }
      }
  });
}

/// They are cut as if they were not plain: what plain layers cost was measured without other activations.
TEST(LinearKernel, CutsPlainLayersWithAnActivationLikeOthers) {
  reset({});
  Extras with_silu, unaligned;
  with_silu.activation = warprank::silu;
  unaligned.is_aligned = false;
  for (const int64_t rows : {100, 600, 4000}) {
    with_silu.more_rows = unaligned.more_rows = rows;
    const LinearCase c(1, 64, 512, with_silu), other(1, 64, 512, unaligned);
    DeviceLayer device(c), other_device(other);
    const LinearLayer layer = device.view(), other_layer = other_device.view();
    EXPECT_EQ(LinearLaunch({&layer, 1}, 75).tiling().to_string(),
              LinearLaunch({&other_layer, 1}, 75).tiling().to_string());
  }
}

/// The same of the kernels for plain layers.
TEST(LinearKernel, GivesAPlainRowTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    for (const Tiling& tiling : all_tilings) {
      SCOPED_TRACE(tiling.to_string());
      const LinearCase all(37, 328, 24);
      const std::vector<float> together = run_cases({all}, config.target, true, tiling)[0];
      for (const int64_t first : {5, 33}) {
        Extras some;
        some.more_rows = all.capacity() - 4;
        LinearCase c(4, 328, 24, some);
        c.layer = all.layer;
        c.inputs.x.assign(all.inputs.x.begin() + first * 328, all.inputs.x.begin() + (first + 4) * 328);
        EXPECT_EQ(run_cases({c}, config.target, true, tiling)[0],
                  std::vector<float>(together.begin() + first * 24, together.begin() + (first + 4) * 24));
      }
    }
  });
}

TEST(LinearKernel, KeepsNaNAndInfinityToTheirRow) {
  for_each_target([](const Config& config) {
    for (const int64_t out : {1, 20})
      for (const Activation& activation : {identity, relu, sigmoid}) {
        Extras extras;
        extras.activation = activation;
        LinearCase clean(9, 40, out, extras);
        for (float& weight : clean.layer.weight) weight = std::abs(weight) + 0.125f;
        clean.layer.weight = rounded(clean.layer.weight);
        LinearCase dirty = clean;
        dirty.inputs.x[2 * 40 + 39] = nan;
        dirty.inputs.x[5 * 40 + 7] = infinity;
        const std::vector<float> before = run_cases({clean}, config.target)[0];
        const std::vector<float> after = run_cases({dirty}, config.target, false)[0];
        for (size_t i = 0; i < after.size(); ++i) {
          const int64_t row = static_cast<int64_t>(i) / out;
          if (row == 2)
            EXPECT_TRUE(std::isnan(after[i]));
          else if (row == 5)
            EXPECT_EQ(after[i], activation.kind == ActivationKind::sigmoid ? 1 : infinity);
          else
            EXPECT_EQ(after[i], before[i]);
        }
      }
  });
}

TEST(LinearKernel, StoresTheLargestFp16ForFiniteResultsAboveIt) {
  for_each_target([](const Config& config) {
    for (const int64_t out : {1, 4}) {
      LinearCase c(4, 16, out);
      c.layer.weight.assign(static_cast<size_t>(16 * out), 1000.0f);
      c.layer.bias.assign(static_cast<size_t>(out), 0.0f);
      for (int64_t row = 0; row < 4; ++row)
        for (int64_t k = 0; k < 16; ++k)
          c.inputs.x[static_cast<size_t>(row * 16 + k)] = row == 0   ? 10.0f
                                                          : row == 1 ? -10.0f
                                                          : row == 2 ? 4.0f
                                                                     : 4.25f;
      const std::vector<float> y = run_cases({c}, config.target, false)[0];
      for (int64_t o = 0; o < out; ++o) {
        EXPECT_EQ(y[static_cast<size_t>(o)], 65504);
        EXPECT_EQ(y[static_cast<size_t>(out + o)], -65504);
        EXPECT_EQ(y[static_cast<size_t>(2 * out + o)], 64000);
        EXPECT_EQ(y[static_cast<size_t>(3 * out + o)], 65504) << "68,000";
      }
      c.extras.half_y = false;
      EXPECT_EQ(run_cases({c}, config.target, false)[0][0], 160000) << "as FP32";
    }
  });
}

TEST(LinearKernel, MayWriteOverWhatItMultipliesOrAdds) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.multiply = extras.residual = true;
    extras.more_rows = 0;
    const LinearCase c(11, 300, 50, extras);
    const std::vector<float> expected = run_cases({c}, config.target)[0];
    for (const bool over_residual : {false, true}) {
      DeviceLayer layer(c);
      LinearLayer view = layer.view();
      const FloatMatrix<const void>& over = over_residual ? view.residual : view.multiply;
      auto* data = static_cast<float16*>(const_cast<void*>(over.data));
      view.y = Matrix<float16>(data, over.rows, over.cols, over.stride);
      DeviceLaunch launch({view}, config.target);
      launch.run();
      synchronize();
      std::vector<float16> memory(static_cast<size_t>(10 * over.stride + over.cols));
      copy(memory.data(), data, static_cast<int64_t>(memory.size() * sizeof(float16)));
      synchronize();
      for (int64_t r = 0; r < 11; ++r)
        for (int64_t o = 0; o < 50; ++o)
          ASSERT_EQ(to_float(memory[static_cast<size_t>(r * over.stride + o)]),
                    expected[static_cast<size_t>(r * 50 + o)]);
    }
  });
}

TEST(LinearKernel, WritesColumnsOfOneWideRowFromSeveralLayersOverOneInput) {
  for_each_target([](const Config& config) {
    constexpr int64_t rows = 21, widths[] = {20, 1, 9};
    std::vector<LinearCase> cases;
    for (const int64_t out : widths) cases.emplace_back(rows, 30, out);
    for (LinearCase& c : cases) c.inputs.x = cases[0].inputs.x;
    const std::vector<std::vector<float>> apart = run_cases(cases, config.target);
    CapacityMatrix<float16> wide(rows, 30, rows, true);
    std::vector<std::unique_ptr<DeviceLayer>> layers;
    std::vector<LinearLayer> views;
    int64_t column = 0;
    for (const LinearCase& c : cases) {
      layers.push_back(std::make_unique<DeviceLayer>(c));
      views.push_back(layers.back()->view());
      views.back().x = views[0].x.row_range(0, rows);
      views.back().y = wide.view().columns(column, c.layer.out);
      column += c.layer.out;
    }
    DeviceLaunch launch(views, config.target);
    launch.run();
    const std::vector<float16> together = wide.values();
    column = 0;
    for (size_t i = 0; i < 3; ++i) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t o = 0; o < widths[i]; ++o)
          ASSERT_EQ(to_float(together[static_cast<size_t>(r * 30 + column + o)]),
                    apart[i][static_cast<size_t>(r * widths[i] + o)]);
      column += widths[i];
    }
  });
}

TEST(LinearKernel, RunsMoreLayersThanAWarpHasLanes) {
  for_each_target([](const Config& config) {
    std::vector<LinearCase> cases;
    for (int64_t i = 0; i < 70; ++i) cases.emplace_back(i % 4, 5 + i % 3, i % 5 + 1);
    run_cases(cases, config.target);
  });
}

TEST(LinearKernel, ReplaysAGraphWithOtherRowsAndOtherWeights) {
  for_each_target([](const Config& config) {
    const LinearCase c = deep_case(37);
    LinearCase other = c;
    for (float& weight : other.layer.weight) weight = -weight;
    DeviceLayer layer(c), with_other_weights(other);
    DeviceLaunch launch({layer.view()}, config.target, in_parts);
    const Stream stream = create_stream();
    begin_capture(stream);
    launch.run(stream);
    const Graph graph = end_capture(stream);
    EXPECT_EQ(num_launches(graph), 1);
    const std::vector<float> all = run_cases({c}, config.target, true, in_parts)[0];
    for (const int64_t rows : {37, 0, 1, 16, 36}) {
      CapacityMatrix<float> y(rows, 40, 40, true);
      LinearLayer view = layer.view();
      view.y = y.view();
      const LinearLaunch moved({&view, 1}, config.target, in_parts);
      launch.descriptors().write(moved.descriptors());
      layer.num_rows().write({rows});
      kernel_testing::launch(graph, stream);
      EXPECT_EQ(y.values(), std::vector<float>(all.begin(), all.begin() + rows * 40));
    }
    LinearLayer view = layer.view();
    view.weights = with_other_weights.packed().data();
    layer.num_rows().write({37});
    const LinearLaunch swapped({&view, 1}, config.target, in_parts);
    launch.descriptors().write(swapped.descriptors());
    kernel_testing::launch(graph, stream);
    EXPECT_EQ(layer.values(), run_cases({other}, config.target, true, in_parts)[0]);
  });
}

TEST(LinearKernel, RunsOnSeveralStreamsAtOnce) {
  for_each_target([](const Config& config) {
    const LinearCase c = deep_case(20);
    DeviceLayer first(c), second(c);
    DeviceLaunch launches[] = {DeviceLaunch({first.view()}, config.target, in_parts),
                               DeviceLaunch({second.view()}, config.target, in_parts)};
    for (DeviceLaunch& launch : launches) launch.run(create_stream());
    first.expect_right();
    EXPECT_EQ(first.values(), second.values());
  });
}

TEST(LinearKernel, LaunchesNothingWithoutLayersOrRows) {
  for_each_target([](const Config& config) {
    LinearLaunch({}, config.target).launch({});
    LinearLayer layer;
    DeviceArray<float16> weights(PackedLinearLayout{8, 8}.bytes() / 2);
    layer.weights = weights.data();
    layer.x = {nullptr, 0, 8};
    layer.y = Matrix<float>(nullptr, 0, 8);
    const LinearLaunch launch({&layer, 1}, config.target);
    EXPECT_EQ(launch.num_blocks(), 0);
    launch.launch({});
  });
}

TEST(LinearKernel, RefusesEachThingThatIsWrong) {
  reset({});
  Extras extras;
  extras.segment_sizes = Sizes{2, 3};
  extras.multiply = extras.residual = true;
  const LinearCase c(5, 24, 12, extras), other(5, 24, 12);
  DeviceLayer device(c), device_of_other(other);
  const auto refused = [&](auto change) {
    LinearLayer layer = device.view();
    change(layer);
    try {
      const LinearLaunch launch({&layer, 1}, 75);
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      std::string all;
      for (const Problem& problem : e.problems()) all += (all.empty() ? "" : "; ") + problem.to_string();
      return all;
    }
  };
  EXPECT_EQ(refused([](LinearLayer&) {}), "nothing");
  EXPECT_EQ(refused([](LinearLayer& l) { l.weights = nullptr; }),
            "linear layer 0's weights: expected device memory, got null");
  EXPECT_EQ(refused([](LinearLayer& l) { l.weights = static_cast<const char*>(l.weights) + 4; }),
            "linear layer 0's weights: expected memory aligned to 16 bytes, got an address that is not");
  EXPECT_EQ(refused([](LinearLayer& l) { l.x.data = nullptr; }),
            "linear layer 0's x: expected device memory, got null");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.x.data = reinterpret_cast<const float16*>(reinterpret_cast<uintptr_t>(l.x.data) + 1);
            }),
            "linear layer 0's x: expected memory aligned to 2 bytes, got an address that is not");
  EXPECT_EQ(refused([](LinearLayer& l) { l.x.stride = 23; }),
            "linear layer 0's x: expected a stride of at least its 24 columns, got 23");
  EXPECT_EQ(refused([](LinearLayer& l) { l.y.rows = 7; }), "linear layer 0's y: expected [8, 12], got [7, 12]");
  EXPECT_EQ(refused([](LinearLayer& l) { l.y.type = DType::bf16; }),
            "linear layer 0's y: expected F16 or F32, got BF16");
  EXPECT_EQ(refused([](LinearLayer& l) { l.multiply.cols = 11; }),
            "linear layer 0's multiply: expected [8, 12], got [8, 11]");
  EXPECT_EQ(refused([](LinearLayer& l) { l.residual.rows = 5; }),
            "linear layer 0's residual: expected [8, 12], got [5, 12]");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.row_bias.values.cols = 13;
              l.row_bias.values.stride = 16;
            }),
            "linear layer 0's row bias: expected [4, 12], got [4, 13]");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.row_bias.offsets = nullptr;
              l.row_bias.num_segments = nullptr;
            }),
            "linear layer 0's row bias: expected [8, 12], got [4, 12]");
  EXPECT_EQ(refused([](LinearLayer& l) { l.row_bias.values = {}; }),
            "linear layer 0's row bias: expected a matrix, as it has segments, got none");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.row_bias.offsets = nullptr;
              l.row_bias.values.rows = 8;
            }),
            "linear layer 0's row bias: expected offsets of its segments, got none");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.residual = {};
              l.residual_first = true;
            }),
            "linear layer 0's residual: expected one, as it is first, got none");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.groups.ends = reinterpret_cast<const int32_t*>(l.num_rows);
              l.groups.num_groups = 65;
            }),
            "linear layer 0: expected 1 to 64 groups, got 65; "
            "linear layer 0's rows of groups: expected device memory, got null");
  EXPECT_EQ(refused([](LinearLayer& l) { l.activation.kind = ActivationKind::prelu; }),
            "linear layer 0's activation prelu: expected learned alphas, got none");
  EXPECT_EQ(refused([&](LinearLayer& l) { l.activation.scales = static_cast<const float*>(l.weights); }),
            "linear layer 0's activation identity: expected no learned scales, got some");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.x = {nullptr, 0, 0};
              l.y = Matrix<float16>(nullptr, 0, 0);
              l.multiply = l.residual = {};
              l.row_bias = {};
            }),
            "linear layer 0: expected in and out of 1 to 2^30, got 0 and 0");
  EXPECT_EQ(
      refused([](LinearLayer& l) { l.y = Matrix<float16>(const_cast<float16*>(l.x.data), l.x.rows, 12, l.x.stride); }),
      "y of linear layer 0: expected memory of its own, got an overlap with x of layer 0");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.y = Matrix<float16>(static_cast<float16*>(const_cast<void*>(l.residual.data)) + 1, 8, 12,
                                    l.residual.stride);
            }),
            "y of linear layer 0: expected memory of its own, got an overlap with the residual of layer 0");
  EXPECT_EQ(refused([](LinearLayer& l) {
              l.y = Matrix<float16>(static_cast<float16*>(const_cast<void*>(l.row_bias.values.data)), 8, 12,
                                    l.row_bias.values.stride);
            }),
            "y of linear layer 0: expected memory of its own, got an overlap with the row bias of layer 0");
  LinearLayer layers[] = {device.view(), device_of_other.view()};
  layers[1].y = layers[0].y;
  EXPECT_THROW(LinearLaunch(Span<const LinearLayer>(layers, 2), 75), invalid_argument) << "two layers write the same";
  layers[1].y = device_of_other.view().y;
  EXPECT_NO_THROW(LinearLaunch(Span<const LinearLayer>(layers, 2), 75));
  layers[1].weight_type = DType::i8;
  EXPECT_EQ(test_support::message_of([&] { LinearLaunch(Span<const LinearLayer>(layers, 2), 75); }),
            "weights of linear layer 1: expected F16 as of the layers before it, got I8");
  const LinearCase head(5, 24, 1);
  DeviceLayer device_of_head(head);
  layers[0] = device_of_head.view();
  EXPECT_NO_THROW(LinearLaunch(Span<const LinearLayer>(layers, 2), 75)) << "a head is in FP32";
  layers[1].weight_type = DType::bf16;
  EXPECT_EQ(test_support::message_of([&] { LinearLaunch(Span<const LinearLayer>(layers, 2), 75); }),
            "weights of linear layer 1: expected F16 or I8, got BF16");
  layers[1].weight_type = DType::f16;
  EXPECT_THROW(LinearLaunch(Span<const LinearLayer>(layers, 2), 70), invalid_argument) << "no kernel for sm_70";
}

TEST(LinearKernel, RefusesToRunInMemoryThatCannotBe) {
  reset({});
  const LinearCase c = deep_case(20);
  DeviceLayer device(c);
  const LinearLayer layer = device.view();
  const LinearLaunch launch({&layer, 1}, 75, in_parts);
  DeviceArray<unsigned char> memory(launch.workspace_bytes() + 4, static_cast<unsigned char>(0));
  const auto refused = [&](const void* descriptors, void* workspace) {
    try {
      launch.launch({descriptors, workspace});
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      return e.problems()[0].to_string();
    }
  };
  EXPECT_EQ(refused(nullptr, memory.data()), "descriptors of linear layers: expected device memory, got null");
  EXPECT_EQ(refused(memory.data() + 8, memory.data()),
            "descriptors of linear layers: expected memory aligned to 128 bytes, got an address that is not");
  EXPECT_EQ(refused(memory.data(), nullptr), "workspace of linear layers: expected device memory, got null");
  EXPECT_EQ(refused(memory.data(), memory.data() + 4),
            "workspace of linear layers: expected memory aligned to 256 bytes, got an address that is not");
}

TEST(LinearKernel, RefusesTilingsThatCannotBe) {
  reset({});
  const LinearCase c = deep_case(20);
  DeviceLayer device(c);
  const LinearLayer layer = device.view();
  const auto refused = [&](Tiling tiling) {
    try {
      const LinearLaunch launch({&layer, 1}, 75, tiling);
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      return e.problems()[0].to_string();
    }
  };
  EXPECT_EQ(refused({LinearTile::staged_64x128, 1}),
            "tile of linear layers: expected one for layers that are not plain, got staged 64 x 128");
  EXPECT_EQ(refused({LinearTile::direct_16x16, 2}), "parts of linear layers: expected 1 of a direct 16 x 16, got 2");
  EXPECT_EQ(refused({LinearTile::staged_64x64, 0}), "parts of linear layers: expected 1 or more, got 0");
  EXPECT_EQ(refused(in_parts), "nothing");
}

/// Of the sizes that were measured: what the rule makes of its table.
TEST(LinearTilings, AreWhatTheTableSays) {
  namespace linear = warprank::detail::linear;
  const auto chosen = [](std::vector<linear::Size> sizes, int target = 90, bool is_plain = true) {
    return linear::choose_tiling(sizes, is_plain, target).to_string();
  };
  EXPECT_EQ(chosen({}), "direct 16 x 16");
  EXPECT_EQ(chosen({{1, 600, 256}}), "direct 16 x 16");
  EXPECT_EQ(chosen({{100, 256, 256}}), "direct 16 x 32");
  EXPECT_EQ(chosen({{100, 1024, 1024}}), "direct 32 x 32");
  EXPECT_EQ(chosen({{500, 1024, 1024}}), "staged 64 x 64");
  EXPECT_EQ(chosen({{1000, 1024, 1024}}), "staged 64 x 128");
  EXPECT_EQ(chosen({{1000, 1024, 1024}}, 90, false), "staged 64 x 64");
  EXPECT_EQ(chosen({{4096, 2528, 2048}}), "staged 64 x 128");
  EXPECT_EQ(chosen({{50, 2528, 2048}}), "staged 64 x 64 in 4 parts");
  EXPECT_EQ(chosen({{50, 2528, 512}, {50, 2528, 512}, {50, 2528, 512}, {50, 2528, 512}}), "staged 64 x 64 in 4 parts");
  EXPECT_EQ(chosen({{100, 256, 256}}, 75), "direct 32 x 32");
  // By the costs of an H100 these would be direct 32 x 32 and staged 64 x 128: 2.6 and 1.2 times as long, simulated.
  EXPECT_EQ(chosen({{500, 64, 256}}, 75), "staged 64 x 64");
  EXPECT_EQ(chosen({{500, 512, 3456}}, 75), "staged 64 x 64");
  EXPECT_EQ(chosen({{500, 256, 256}}, 75), "staged 64 x 64");
  EXPECT_EQ(chosen({{500, 1024, 1024}}, 75), "staged 64 x 128");
  EXPECT_EQ(chosen({{4096, 256, 256}}, 75), "staged 64 x 64");
  constexpr std::array<linear::Size, 1> small{{{1, 256, 256}}};
  static_assert(linear::choose_tiling(small, true, 90).tile == LinearTile::direct_16x16);
}

TEST(LinearTilings, OfASimulatedCardAreForThatCardAlone) {
  namespace linear = warprank::detail::linear;
  EXPECT_EQ(linear::tile_costs_of(75).target, 75);
  for (const int target : {80, 86, 89, 90, 120}) EXPECT_EQ(linear::tile_costs_of(target).target, 90);
  for (const auto& costs : linear::tile_costs) EXPECT_EQ(costs.is_measured, costs.target != 75);
}

TEST(LinearTilings, AreNotCutIntoPartsThatAreShortOrDoNotFitOnTheCard) {
  namespace linear = warprank::detail::linear;
  EXPECT_TRUE(linear::may_be_cut(4, 512, 160, 75));
  EXPECT_FALSE(linear::may_be_cut(5, 512, 160, 75));
  EXPECT_FALSE(linear::may_be_cut(4, 512, 161, 75));
  EXPECT_TRUE(linear::may_be_cut(1, 32, 1e6, 75));
  const std::array<linear::Size, 1> many{{{4096, 2048, 64}}};
  EXPECT_EQ(linear::cost_of(many, {LinearTile::staged_64x64, 8}, 75), std::numeric_limits<double>::infinity());
}

TEST(LinearTilings, FitSharedMemory) {
  for (const auto& shape : warprank::detail::linear::tile_shapes) {
    for (const int64_t blocks : {1, 1000}) {
      EXPECT_LE(shape.shared_bytes(2, shape.stages_of(75, blocks)) + (4 << 10), 64 << 10) << shape.name;
      EXPECT_LE(shape.shared_bytes(2, shape.stages_of(80, blocks)) + (4 << 10), 99 << 10) << shape.name;
    }
  }
}

/// Three blocks share a T4's shared memory, unless each has a multiprocessor for itself.
TEST(LinearTilings, HaveTwoStagesBeforeSm80WhereBlocksShareNothing) {
  const auto& shape = tile_shape(LinearTile::staged_64x64);
  EXPECT_EQ(shape.stages_of(75, 40), 2);
  EXPECT_EQ(shape.stages_of(75, 41), 1);
  EXPECT_LE(3 * (shape.shared_bytes(2, 1) + (2 << 10)), 64 << 10);
  EXPECT_EQ(shape.stages_of(80, 40), shape.stages);
  EXPECT_EQ(tile_shape(LinearTile::staged_64x128).stages_of(75, 1000), 2);
}

/// Sums that another kernel left, in rows that are further apart than they are wide, and the rest of the layers.
TEST(FinishLaunch, DoesAllThatComesBehindProducts) {
  reset();
  std::vector<LinearCase> cases;
  for (size_t i = 0; i < all_activations.size(); ++i) {
    Extras extras;
    extras.activation = all_activations[i];
    extras.multiply = i % 3 != 0;
    extras.residual = i % 4 != 0;
    extras.residual_first = extras.residual && i % 2 == 0;
    if (i % 2 == 0) extras.segment_sizes = {3, 0, 7, 2};
    extras.half_y = i % 3 == 0;
    extras.is_aligned = i % 4 < 2;
    cases.emplace_back(12, 9, 4 * static_cast<int64_t>(i) + 3, extras);
  }
  std::vector<std::unique_ptr<DeviceLayer>> layers;
  std::vector<std::unique_ptr<DeviceArray<float>>> sums;
  std::vector<warprank::detail::gemm::FinishedLayer> finished;
  for (const LinearCase& c : cases) {
    const LinearLayer layer = layers.emplace_back(std::make_unique<DeviceLayer>(c))->view();
    const int64_t out = c.layer.out, stride = (out + 3) / 4 * 4;
    std::vector<float> values(static_cast<size_t>(c.capacity() * stride), nan);  // also of rows that are none
    for (int64_t n = 0; n < c.rows; ++n)
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (int64_t k = 0; k < c.layer.in; ++k)
          sum += static_cast<double>(c.inputs.x[static_cast<size_t>(n * c.layer.in + k)]) *
                 c.layer.weight[static_cast<size_t>(o * c.layer.in + k)];
        values[static_cast<size_t>(n * stride + o)] = static_cast<float>(sum);
      }
    sums.push_back(std::make_unique<DeviceArray<float>>(values));
    const Matrix<const float> of_layer(sums.back()->data(), c.capacity(), out, stride);
    finished.push_back({of_layer, warprank::detail::linear::describe(layer).epilogue, layer.num_rows});
  }
  const warprank::detail::gemm::FinishLaunch finish(finished);
  DeviceArray<unsigned char> descriptors(finish.descriptors());
  finish.launch({descriptors.data()});
  for (const auto& layer : layers) layer->expect_right();
}

TEST(CublasLinear, RefusesABiasAboveHalf) {
  const std::vector<float> weight(6, 1.0f);
  EXPECT_EQ(warprank::detail::gemm::pack_row_major(weight, std::vector<float>{1, 65504, -3}, 2, 3).size(), 3 * 8 + 3);
  EXPECT_TRUE(warprank::detail::gemm::pack_row_major(weight, std::vector<float>{1, 65600, -3}, 2, 3).empty());
}

/// The case's oracle with what cuBLASLt may round beside an FP32 evaluation, since it promises no order of roundings:
/// where y is FP16, the sum is an FP16 number before a bias or an activation comes (2^-11 of it); and gelu_tanh takes
/// the card's tanh.approx, whose relative error is 2^-11, so x/2 (1 + tanh) errs by 2^-11 |x|/2 more.
warprank::reference::Bounded expected_of_cublaslt(const LinearCase& c) {
  warprank::reference::Bounded expected = c.expected();
  warprank::reference::Linear products = c.layer;
  products.activation = identity;
  const auto sums = warprank::reference::linear(products, c.rows, c.inputs);
  products.bias.clear();
  const auto unbiased = warprank::reference::linear(products, c.rows, c.inputs);
  const bool is_gelu = c.layer.activation.kind == ActivationKind::gelu_tanh;
  constexpr double rounding = 0x1p-11 / 0x1p-24, twice = 2;  // in units of the bound, of which the test allows two
  for (size_t i = 0; i < expected.bound.size(); ++i) {
    const double slope = is_gelu ? 1.13 : 1;  // at most, of the activation
    if (c.extras.half_y) expected.bound[i] += slope * rounding * std::fabs(unbiased.value[i]) / twice;
    if (is_gelu) expected.bound[i] += rounding * std::fabs(sums.value[i]) / 2 / twice;
  }
  return expected;
}

/// x, W and b as it takes them; its sums may be in any order.
TEST(CublasLinear, MatchesTheOracleAndIsCaptured) {
  if (!has_cublaslt()) GTEST_SKIP() << "cuBLASLt: " << describe_cublaslt();
  reset();
  for (const Activation& activation : {identity, relu, gelu_tanh})
    for (const bool half_y : {false, true})
      for (const bool has_bias : {false, true}) {
        Extras extras;
        extras.activation = activation;
        extras.bias = has_bias;
        extras.half_y = half_y;
        extras.more_rows = 0;
        LinearCase c(50, 60, 24, extras);
        c.layer.bias = rounded(c.layer.bias);
        DeviceLayer device(c);
        DeviceArray<float16> weights(warprank::detail::gemm::pack_row_major(c.layer.weight, c.layer.bias, 60, 24));
        DeviceArray<float> float_bias(c.layer.bias);
        const void* bias = half_y ? static_cast<const void*>(weights.data() + 24 * 64) : float_bias.data();
        const CublasLinear linear(device.view(), {weights.data(), 64}, has_bias ? bias : nullptr);
        DeviceArray<unsigned char> workspace(linear.workspace_bytes());
        const Stream stream = create_stream();
        begin_capture(stream);
        linear.launch({nullptr, workspace.data()}, stream);
        const Graph graph = end_capture(stream);
        kernel_testing::launch(graph, stream);
        synchronize(stream);
        device.expect_right(expected_of_cublaslt(c));
      }
}

/// Whichever algorithm it is, and whether it cuts sums or not; rows that are alike come out alike where none is cut.
TEST(CublasLinear, HasSomeAlgorithmsThatAllMatchTheOracle) {
  if (!has_cublaslt()) GTEST_SKIP() << "cuBLASLt: " << describe_cublaslt();
  reset();
  Extras extras;
  extras.bias = false;
  extras.half_y = false;
  extras.more_rows = 0;
  const LinearCase c(50, 60, 24, extras);
  DeviceLayer device(c);
  DeviceArray<float16> weights(warprank::detail::gemm::pack_row_major(c.layer.weight, c.layer.bias, 60, 24));
  const auto with = [&](int algorithm) {
    return CublasLinear(device.view(), {weights.data(), 64}, nullptr, algorithm);
  };
  EXPECT_FALSE(with(0).cuts_sums()) << "unless it is asked";
  int num = 0;
  for (;; ++num) {
    SCOPED_TRACE("algorithm " + std::to_string(num));
    std::optional<CublasLinear> linear;
    try {
      linear.emplace(device.view(), RowMajorWeights{weights.data(), 64}, nullptr, num);
    } catch (const no_cublaslt_algorithm&) {
      break;
    }
    DeviceArray<unsigned char> workspace(linear->workspace_bytes());
    linear->launch({nullptr, workspace.data()}, {});
    synchronize();
    device.expect_right(expected_of_cublaslt(c));
  }
  EXPECT_GE(num, 1);
  EXPECT_THROW(with(-1), no_cublaslt_algorithm);
}

TEST(CublasLinear, RefusesWhatItDoesNotFuse) {
  reset();
  Extras extras;
  extras.multiply = extras.residual = extras.row_bias_of_rows = true;
  extras.activation = sigmoid;
  const LinearCase c(5, 24, 12, extras);
  DeviceLayer device(c);
  DeviceArray<float16> weights(24 * 12, float16{});
  try {
    warprank::detail::gemm::check_cublas_linear(device.view(), {weights.data(), 20}, nullptr);
    FAIL() << "must throw";
  } catch (const invalid_argument& e) {
    ASSERT_EQ(e.problems().size(), 5u);
    EXPECT_EQ(e.problems()[0].to_string(),
              "linear layer of cuBLASLt's weights: expected a stride of at least its 24 inputs, got 20");
    EXPECT_EQ(e.problems()[1].to_string(),
              "linear layer of cuBLASLt's activation: expected identity, relu or gelu_tanh, got sigmoid");
    EXPECT_EQ(e.problems()[4].to_string(),
              "linear layer of cuBLASLt: expected a bias and an activation alone, got a residual");
  }
}

#if defined(WARPRANK_TEST_PLAIN)

/// Layers of the reference models, one launch each, in the plain build alone: what the executor counts is exact.
struct CountedLaunch {
  const char* name;
  int64_t rows;
  std::vector<std::pair<int64_t, int64_t>> layers;  ///< in, out
};

/// What a launch has to execute and move, from its shapes and how they are cut.
struct LeastCounts {
  int64_t mma = 0, load_sectors = 0, store_sectors = 0;
  int64_t once = 0;  ///< sectors of every input, weight and output, each touched once
};

LeastCounts least_counts(const CountedLaunch& counted, const LinearLaunch& launch, int target) {
  const auto cut = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  const auto& shape = tile_shape(launch.tiling().tile);
  LeastCounts least;
  const int64_t num_layers = static_cast<int64_t>(counted.layers.size()), num_warps = shape.warps;
  // Every warp finds its layer, where there are several, and reads that; a head's is read once, into shared memory.
  const int64_t of_search = num_layers == 1 ? 0 : num_layers;
  const int64_t of_layer = sizeof(warprank::detail::linear::ProductDescriptor) / 16 + 3;
  least.load_sectors = launch.is_plain() ? launch.num_blocks() * num_warps * (of_search + of_layer)
                                         : launch.num_blocks() * launch.descriptor_bytes() / num_layers / 32;
  for (int64_t i = 0; i < num_layers; ++i) {
    const auto [in, out] = counted.layers[static_cast<size_t>(i)];
    const PackedLinearLayout layout{in, out};
    const int64_t rows = counted.rows, parts = launch.parts(i), y = cut(rows * out * 2, 32);
    const int64_t weights = cut(layout.bias_offset(), 32);
    least.once += cut(rows * in * 2, 32) + y + weights;
    if (out == 1) {  // a warp has four rows at once, in steps of 64 inputs
      least.load_sectors += rows * cut(in * 2, 32) + cut(rows, 4) * (weights + 1);
      least.store_sectors += cut(rows, 4);
      continue;
    }
    const int64_t row_tiles = cut(rows, shape.rows), column_tiles = cut(out, shape.columns), steps = cut(in, 32);
    const int64_t of_step = target >= 80 ? 2 : 4;  // products of 16 outputs and 8 rows
    // Warps without rows or outputs multiply nothing where each has its own.
    least.mma += of_step * steps *
                 (shape.is_direct() ? row_tiles * column_tiles * (shape.rows / 8) * (shape.columns / 16)
                                    : cut(rows, shape.warp_rows) * cut(out, shape.warp_columns) *
                                          (shape.warp_rows / 8) * (shape.warp_columns / 16));
    // x by steps or stages, which begin and end within sectors where rows are no whole number of them. The last row
    // stands for those behind it where stages are whole.
    const int64_t piece = shape.is_direct() ? 32 : 64;
    int64_t x = 0;
    for (int64_t r = 0; r < (shape.is_direct() ? rows : row_tiles * shape.rows); ++r)
      for (int64_t k = 0; k < in; k += piece) {
        const int64_t row = std::min(r, rows - 1);
        x += cut((row * in + std::min<int64_t>(k + piece, in)) * 2, 32) - (row * in + k) * 2 / 32;
      }
    const int64_t pairs = shape.is_direct() ? layout.num_pairs() : column_tiles * shape.columns / 16;
    const int64_t warps_with_bias =
        shape.is_direct() ? std::min<int64_t>(num_warps, int64_t{shape.rows} * shape.columns / 128) : 1;
    const int64_t bias = row_tiles * parts * warps_with_bias * cut(out * 4, 32);
    const int64_t partials = parts > 1 ? row_tiles * column_tiles * parts * shape.part_size() * 4 / 32 : 0;
    least.load_sectors += column_tiles * x + row_tiles * pairs * steps * 32 + bias + partials;
    least.store_sectors += y + partials;
  }
  return least;
}

/// "/ once": beside every input, weight and output read or written once.
TEST(LinearCounts, ExecutesAndMovesWhatItMustAndHardlyMore) {
  CountTable table(
      {"layers", "rows", "target", "tile", "mma", "/ least", "bytes read", "/ least", "bytes written", "/ once"});
  for (const int64_t rows : all_counts() ? Sizes{1, 17, 50, 100, 200, 500} : Sizes{1, 50, 513})
    for (const CountedLaunch& counted :
         {CountedLaunch{"600-256", rows, {{600, 256}}}, CountedLaunch{"256-256", rows, {{256, 256}}},
          CountedLaunch{"256-1", rows, {{256, 1}}}, CountedLaunch{"1024-1024", rows, {{1024, 1024}}},
          CountedLaunch{"1024-512", rows, {{1024, 512}}}, CountedLaunch{"512-256", rows, {{512, 256}}},
          CountedLaunch{"2528-512 x 4", rows, {{2528, 512}, {2528, 512}, {2528, 512}, {2528, 512}}},
          CountedLaunch{"512-256 x 4", rows, {{512, 256}, {512, 256}, {512, 256}, {512, 256}}}}) {
      int64_t size = 0;
      for (const auto& [in, out] : counted.layers) size += in * out;
      if (!all_counts() && size * rows > 10'000'000) continue;
      for (const int target : {75, 80}) {
        SCOPED_TRACE(std::string(counted.name) + ", " + std::to_string(rows) + " rows, sm_" + std::to_string(target));
        Config config;
        config.target = target;
        config.schedule = simt::Schedule::forward;
        config.count_sectors = true;
        reset(config);
        std::vector<std::unique_ptr<DeviceArray<float16>>> memory;
        const auto zeros = [&](int64_t count) {
          memory.push_back(std::make_unique<DeviceArray<float16>>(count, float16{}));
          return memory.back()->data();
        };
        std::vector<LinearLayer> layers;
        const float16* x = zeros(rows * counted.layers[0].first);
        for (const auto& [in, out] : counted.layers) {
          LinearLayer& layer = layers.emplace_back();
          layer.weights = zeros(PackedLinearLayout{in, out}.bytes() / 2);
          layer.x = {x, rows, in};
          layer.y = Matrix<float16>(zeros(rows * out), rows, out);
        }
        DeviceLaunch launch(layers, target);
        clear_counters();
        launch.run();
        synchronize();
        const LeastCounts least = least_counts(counted, launch.launch(), target);
        const Counters& counts = counters();
        EXPECT_EQ(counts.launches, 1);
        EXPECT_EQ(counts.mma, least.mma);
        EXPECT_LE(counts.global_store_sectors, 1.01 * static_cast<double>(least.store_sectors) + 1);
        EXPECT_LE(counts.global_load_sectors, 1.01 * static_cast<double>(least.load_sectors) + 1);
        table.add(counted.name, rows, target, launch.launch().tiling().to_string(), counts.mma,
                  over(counts.mma, static_cast<double>(least.mma)), counts.global_load_sectors * 32,
                  over(counts.global_load_sectors, static_cast<double>(least.load_sectors)),
                  counts.global_store_sectors * 32,
                  over(counts.global_load_sectors + counts.global_store_sectors, static_cast<double>(least.once)));
      }
    }
}

TEST(LinearCounts, OfTheLongestWarp) {
  CountTable table(longest_warp_columns({"layer", "rows", "tile"}));
  for (const auto& [in, out, rows] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {256, 1, 16}, {256, 64, 16}, {600, 64, 16}, {1024, 64, 16}, {256, 64, 513}}) {
    const LinearCase c(rows, in, out);
    std::string tile;
    const auto run = [&](const Config& config) {
      reset(config);
      DeviceLayer layer(c);
      DeviceLaunch launch({layer.view()}, config.target);
      tile = launch.launch().tiling().to_string();
      launch.run();
      synchronize();
    };
    run(config_of_longest_warp());
    const std::string layer = std::to_string(in) + "-" + std::to_string(out);
    if (rows > 16)  // each load takes two runs
      add_operations_of_longest_warp(table, run, "-", layer, rows, tile);
    else
      add_longest_warp(table, run, layer, rows, tile);
  }
}

TEST(LinearKernel, AgreesWithTheHost) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.activation = dice;
    extras.segment_sizes = Sizes{10, 0, 27};
    extras.multiply = extras.residual = true;
    extras.half_y = false;
    const LinearCase c(37, 100, 40, extras);
    const std::vector<float> y = run_cases({c}, config.target)[0];
    const host_ops::PackedLinear packed(c.layer.weight, c.layer.bias, 100, 40, 1,
                                        {c.layer.activation, c.layer.alpha, c.layer.scale, c.layer.shift});
    host_ops::LinearInputs inputs;
    inputs.row_bias = {c.inputs.row_bias.data(), 3, 40};
    inputs.row_bias_segments = {c.inputs.row_bias_offsets.data(), 3};
    inputs.multiply = {c.inputs.multiply.data(), 37, 40};
    inputs.residual = {c.inputs.residual.data(), 37, 40};
    std::vector<float> host(37 * 40);
    host_ops::linear(packed, {c.inputs.x.data(), 37, 100}, {host.data(), 37, 40}, inputs);
    const reference::Bounded expected = c.expected();
    for (size_t i = 0; i < y.size(); ++i)  // each has a bound of its own: one and two times
      ASSERT_LE(std::fabs(static_cast<double>(y[i]) - host[i]), 3 * 0x1p-24 * expected.bound[i]);
  });
}

/// PyTorch's layers, whose numbers are FP32: rounding x and W to FP16 adds 2^-10 sum |x W| (and a little) to the bound.
TEST(LinearKernel, AgreesWithPyTorch) {
  const SafetensorsFile file(std::string(WARPRANK_TEST_DATA) + "/golden/linear.safetensors");
  const auto floats = [&](const std::string& name) {
    const TensorView& tensor = file.tensors().at(name);
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<float>(tensor.data, i));
    return values;
  };
  const auto has = [&](const std::string& name) { return file.tensors().count(name) != 0; };
  std::vector<float> x;
  std::vector<std::vector<double>> exact;
  const std::vector<std::pair<std::string, Activation>> layers = {
      {"identity", identity},       {"relu", relu}, {"prelu", prelu},         {"dice", dice}, {"sigmoid", sigmoid},
      {"tanh", hyperbolic_tangent}, {"gelu", gelu}, {"gelu_tanh", gelu_tanh}, {"silu", silu}, {"no_bias", identity}};
  exact.resize(layers.size());
  for (int r = 0; has("request/" + std::to_string(r) + "/dense/x"); ++r) {
    const std::string request = "request/" + std::to_string(r);
    for (const float value : floats(request + "/dense/x")) x.push_back(value);
    for (size_t i = 0; i < layers.size(); ++i) {
      const TensorView& y = file.tensors().at(request + "/output/" + layers[i].first);
      for (int64_t j = 0; j < y.size(); ++j) exact[i].push_back(load_element<double>(y.data, j));
    }
  }
  const int64_t rows = static_cast<int64_t>(x.size()) / 7;
  ASSERT_GT(rows, 16);
  for_each_target([&](const Config& config) {
    std::vector<LinearCase> cases;
    for (const auto& [name, activation] : layers) {
      Extras extras;
      extras.half_y = false;
      extras.activation = activation;
      LinearCase& c = cases.emplace_back(rows, 7, 5, extras);
      c.layer.weight = floats("weight/" + name + ".weight");
      c.layer.bias = has("weight/" + name + ".bias") ? floats("weight/" + name + ".bias") : std::vector<float>();
      if (activation.kind == ActivationKind::prelu) c.layer.alpha = floats("weight/" + name + ".prelu.alpha");
      if (activation.kind == ActivationKind::dice) {
        c.layer.alpha = floats("weight/" + name + ".dice.alpha");
        const std::vector<float> mean = floats("weight/" + name + ".dice.running_mean");
        const std::vector<float> variance = floats("weight/" + name + ".dice.running_var");
        for (size_t o = 0; o < 5; ++o) {
          c.layer.scale[o] = static_cast<float>(1 / std::sqrt(static_cast<double>(variance[o]) + 1e-9));
          c.layer.shift[o] = -mean[o] * c.layer.scale[o];
        }
      }
      c.inputs.x = x;
    }
    const std::vector<std::vector<float>> y = run_cases(cases, config.target, false);
    constexpr double c = 2 + (0x1p14 + 0x1p4) / (7 + 2);
    for (size_t i = 0; i < layers.size(); ++i) {
      SCOPED_TRACE(layers[i].first);
      ASSERT_EQ(y[i].size(), exact[i].size());
      expect_within(reference::Bounded{exact[i], cases[i].expected().bound}, y[i], c);
    }
  });
}

#endif

}  // namespace
