// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/mlp_case.hpp"
#include "reference/mix.hpp"
#include "support/counts.hpp"
#include "warprank/ops/mlp.cuh"

// In the plain build alone: numbers and counts are the same in all.
#if !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WARPRANK_TEST_PLAIN
#include "support/longest_warp.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/weights.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

using Sizes = std::vector<int64_t>;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::vector<float>> run_stacks(const std::vector<MlpCase>& cases, int target) {
  std::vector<std::unique_ptr<DeviceMlp>> device;
  std::vector<Mlp> stacks;
  for (const MlpCase& c : cases) stacks.push_back(device.emplace_back(std::make_unique<DeviceMlp>(c))->view());
  DeviceMlpLaunch launch(stacks, target);
  launch.run();
  std::vector<std::vector<float>> y;
  for (const auto& stack : device) y.push_back(stack->values());
  return y;
}

int64_t num_launches_of(const MlpCase& c, int target) {
  DeviceMlp device(c);
  return DeviceMlpLaunch({device.view()}, target).launch().num_launches();
}

TEST(MlpKernel, MatchesTheOracleInEveryShape) {
  for_each_target([](const Config& config) {
    bool is_aligned = false;  // in turns: each number of rows and each capacity is seen with both
    for (const Sizes& widths :
         {Sizes{70, 40, 1}, Sizes{20, 240, 33, 9}, Sizes{13, 7, 240, 16, 3}, Sizes{5, 2, 2}, Sizes{13, 280, 1}})
      for (const int64_t rows : {0, 1, 17, 33})
        for (const int64_t more_rows : {3, 700, 2400}) {  // split, and blocks of 16 and 32 rows
          is_aligned = !is_aligned;
          Extras extras;
          extras.is_aligned = is_aligned;
          extras.half_y = is_aligned;
          extras.more_rows = more_rows;
          const MlpCase c(rows, widths, {relu, gelu, dice}, extras);
          SCOPED_TRACE(std::to_string(rows) + " of " + std::to_string(c.layers[0].capacity()) + " rows, " +
                       std::to_string(widths.size() - 1) + " layers");
          EXPECT_EQ(num_launches_of(c, config.target), 1);
          expect_close(propagate(c), run_stacks({c}, config.target)[0]);
        }
  });
}

TEST(MlpKernel, MatchesTheOracleOfAReferenceModel) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.half_y = false;
    extras.segment_sizes = Sizes{9, 0, 12};
    for (const int64_t capacity : {21, 3000}) {  // split, and not
      extras.more_rows = capacity - 21;
      const MlpCase c(21, {600, 256, 256, 256, 1}, {relu, relu, relu, sigmoid}, extras);
      EXPECT_EQ(num_launches_of(c, config.target), 1);
      expect_close(propagate(c), run_stacks({c}, config.target)[0]);
    }
  });
}

TEST(MlpKernel, MatchesTheOracleWithEveryActivationAndInput) {
  for_each_target([](const Config& config) {
    std::vector<MlpCase> cases;
    for (const Activation& activation :
         {identity, relu, leaky_relu(0.2f), elu(1.5f), prelu, dice, sigmoid, gelu, hyperbolic_tangent, silu, gelu_tanh})
      for (const int inputs : {0, 1, 2}) {
        Extras extras;
        if (inputs != 0) extras.segment_sizes = Sizes{3, 0, 1, 5};
        extras.multiply = extras.residual = inputs != 0;
        extras.residual_first = inputs == 2;
        extras.half_operands = extras.half_y = inputs == 1;
        cases.emplace_back(9, Sizes{20, 18, inputs == 1 ? 5 : 1}, std::vector<Activation>{activation}, extras);
      }
    const std::vector<std::vector<float>> y = run_stacks(cases, config.target);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(name_of_enum(cases[i].layers[0].layer.activation.kind));
      expect_close(propagate(cases[i]), y[i]);
    }
  });
}

TEST(MlpKernel, StaysWithinItsBoundAtEveryScale) {
  for_each_target([](const Config& config) {
    std::vector<MlpCase> cases;
    for (const float scale : {1e-5f, 1e-2f, 1.0f, 100.0f}) {
      Extras extras;
      extras.scale = scale;
      extras.half_y = false;
      cases.emplace_back(18, Sizes{100, 60, 20}, std::vector<Activation>{relu}, extras);
    }
    const std::vector<std::vector<float>> y = run_stacks(cases, config.target);
    for (size_t i = 0; i < cases.size(); ++i) expect_close(propagate(cases[i]), y[i]);
  });
}

TEST(MlpKernel, RunsStacksOfOtherShapesAndRowsSideBySide) {
  for_each_target([](const Config& config) {
    std::vector<MlpCase> cases;
    for (int64_t i = 0; i < 7; ++i)
      cases.emplace_back(i * 7 % 40, Sizes{10 + i, 30 + i * 20, 1 + i}, std::vector<Activation>{silu});
    const std::vector<std::vector<float>> together = run_stacks(cases, config.target);
    for (size_t i = 0; i < cases.size(); ++i) expect_close(propagate(cases[i]), together[i]);
  });
}

TEST(MlpKernel, TakesAnotherWayForWhatDoesNotFit) {
  for_each_target([](const Config& config) {
    const auto check = [&](const Sizes& widths, int64_t of_few_rows, int64_t of_many_rows) {
      for (const int64_t capacity : {19, 3000}) {
        SCOPED_TRACE(capacity);
        Extras extras;
        extras.more_rows = capacity - 19;
        const MlpCase c(19, widths, {relu, hyperbolic_tangent}, extras);
        EXPECT_EQ(num_launches_of(c, config.target), capacity == 19 ? of_few_rows : of_many_rows);
        expect_close(propagate(c), run_stacks({c}, config.target)[0]);
      }
    };
    check({65, 300, 30, 1}, 1, 2);    // the wide layer of many inputs, then two
    check({64, 512, 30, 1}, 1, 1);    // of few inputs
    check({64, 513, 30, 1}, 1, 2);    // one that is too wide
    check({40, 30, 300, 1}, 1, 3);    // a wide one that is not the first
    check({40, 30, 257}, 1, 2);       // nothing to fuse behind the wide one
    check({40, 20, 1, 10, 5}, 3, 3);  // a layer of one output before the last
    check(Sizes(12, 9), 4, 4);        // eleven layers: eight are fused
    check({40, 7}, 1, 1);             // one layer
    check({768, 50, 20}, 1, 1);
    check({1099, 50, 20}, 2, 1);  // rows that are no whole vectors, of which a block cannot hold so many
    check({20, 4097, 3}, 2, 2);   // wider than what blocks share
  });
}

TEST(MlpKernel, FusesTheFirstLayerOfFewRowsWhereAsked) {
  for_each_target([](const Config& config) {
    const MlpCase c(19, {1043, 50, 20}, {relu, hyperbolic_tangent});  // rows of no whole vectors are not split
    DeviceMlp device(c);
    DeviceMlpLaunch launch({device.view()}, config.target, false);
    EXPECT_EQ(launch.launch().num_launches(), 1);
    launch.run();
    expect_close(propagate(c), device.values());
  });
}

TEST(MlpKernel, AddsARowBiasInTheLastLayer) {
  for_each_target([](const Config& config) {
    std::mt19937 engine(5);
    for (const int biases : {0, 1, 2})
      for (const Sizes& widths : {Sizes{24, 50, 20, 1}, Sizes{24, 50, 5}, Sizes{24, 300, 257}}) {
        const bool in_both = biases == 2, has_segments = biases > 0;
        Extras extras;
        if (in_both) extras.segment_sizes = Sizes{10, 0, 13};
        MlpCase c(23, widths, {gelu, dice, sigmoid}, extras);
        LinearCase& last = c.layers.back();
        last.inputs.row_bias = random_values(engine, (has_segments ? 3 : 23) * widths.back(), 2);
        if (has_segments) last.inputs.row_bias_offsets = {0, 10, 10, 23};
        for (int64_t r = 0; r <= 23 && !has_segments; ++r) last.inputs.row_bias_offsets.push_back(r);
        DeviceMlp device(c);
        CapacityMatrix<float> bias(has_segments ? 3 : 23, widths.back(), has_segments ? 4 : device.view().x.rows, false,
                                   last.inputs.row_bias);
        Mlp stack = device.view();
        stack.last_row_bias.values = Matrix<const float>(bias.view());
        DeviceArray<int64_t> offsets(last.inputs.row_bias_offsets), num_segments(1, int64_t{3});
        if (has_segments) {
          stack.last_row_bias.offsets = offsets.data(), stack.last_row_bias.num_segments = num_segments.data();
          if (in_both) stack.row_bias.offsets = offsets.data(), stack.row_bias.num_segments = num_segments.data();
        }
        DeviceMlpLaunch launch({stack}, config.target);
        launch.run();
        expect_close(propagate(c), device.values());
      }
  });
}

TEST(MlpKernel, AppliesOnLoadWhatTheFirstLayerLacks) {
  for_each_target([](const Config& config) {
    for (const bool half_sums : {false, true}) {
      Extras extras;
      extras.segment_sizes = Sizes{10, 0, 13};
      const MlpCase c(23, {24, 50, 20, 3}, {gelu, dice, identity}, extras);
      // The sums of layer 0, without bias and f.
      LinearCase sums_of_first = c.layers[0];
      sums_of_first.layer.activation = identity;
      sums_of_first.layer.bias.clear();
      sums_of_first.inputs.row_bias.clear();
      sums_of_first.inputs.row_bias_offsets.clear();
      sums_of_first.extras.half_y = half_sums;
      const std::vector<float> sums = run_cases({sums_of_first}, config.target)[0];
      DeviceMlp device(c);
      CapacityMatrix<float16> as_half(23, 50, 26, true, sums);
      CapacityMatrix<float> as_float(23, 50, 26, false, sums);
      Mlp stack = device.view();
      stack.first_is_done = true;
      stack.in = 24;
      if (half_sums)
        stack.x = Matrix<const float16>(as_half.view());
      else
        stack.x = Matrix<const float>(as_float.view());
      DeviceMlpLaunch launch({stack}, config.target);
      EXPECT_EQ(launch.launch().num_launches(), 1);
      launch.run();
      expect_close(propagate(c, {false, half_sums}), device.values());
    }
  });
}

TEST(MlpKernel, MixesExpertsByTheirGate) {
  for_each_target([](const Config& config) {
    std::mt19937 engine(7);
    for (const Normalization normalization : {Normalization::softmax, Normalization::sigmoid, Normalization::none})
      for (const Sizes& widths : {Sizes{20, 30, 1}, Sizes{13, 9}, Sizes{16, 300}})
        for (const bool is_half : {true, false}) {
          SCOPED_TRACE(name_of_enum(normalization));
          constexpr int64_t rows = 19, num_own = 3, num_shared = 2, num_experts = num_own + num_shared;
          const int64_t dim = widths[0];
          const MlpCase c(rows, widths, {relu, sigmoid});
          std::vector<float> experts = random_values(engine, rows * num_experts * dim, 3);
          std::vector<float> gate = random_values(engine, rows * num_experts, 5);
          if (is_half) experts = rounded(experts), gate = rounded(gate);
          std::vector<float> own, shared;
          for (int64_t i = 0; i < rows * num_experts * dim; ++i)
            (i % (num_experts * dim) < num_own * dim ? own : shared).push_back(experts[static_cast<size_t>(i)]);
          DeviceMlp device(c);
          Mlp stack = device.view();
          const auto run = [&](auto zero) {
            using Value = decltype(zero);
            CapacityMatrix<Value> device_own(rows, num_own * dim, rows + 3, is_half, own);
            CapacityMatrix<Value> device_shared(rows, num_shared * dim, rows + 3, !is_half, shared);
            CapacityMatrix<Value> device_gate(rows, num_experts, rows + 3, is_half, gate);
            stack.x = Matrix<const Value>(device_own.view());
            stack.in = dim;
            stack.mix = {
                {Matrix<const Value>(device_gate.view())}, Matrix<const Value>(device_shared.view()), normalization};
            DeviceMlpLaunch launch({stack}, config.target);
            EXPECT_EQ(launch.launch().num_launches(), 1);
            launch.run();
            return device.values();
          };
          const std::vector<float> y = is_half ? run(float16{}) : run(0.0f);
          const reference::Bounded mixed = reference::mix({{experts.data(), rows, num_experts * dim}},
                                                          {{gate.data(), rows, num_experts}}, normalization, rows, dim);
          Propagated h{mixed.value, {}};
          for (size_t i = 0; i < mixed.value.size(); ++i) {
            const double error = 2 * u * mixed.bound[i];
            h.error.push_back(error + half_u * (std::fabs(mixed.value[i]) + error) + 0x1p-25);
          }
          expect_close(propagate_from(h, c), y);
        }
  });
}

/// Exact: weights of one expert alone.
TEST(MlpKernel, TakesTheGateOfEachSegment) {
  for_each_target([](const Config& config) {
    constexpr int64_t rows = 19, dim = 20;
    const MlpCase c(rows, {dim, 9}, {relu});
    std::mt19937 engine(8);
    const std::vector<float> experts = rounded(random_values(engine, rows * 2 * dim));
    const std::vector<int64_t> offsets{0, 4, 4, 18, 19};
    DeviceMlp device(c);
    CapacityMatrix<float16> device_experts(rows, 2 * dim, rows + 3, true, experts);
    CapacityMatrix<float> gate(4, 2, 6, false, {1, 0, 7, 7, 0, 1, 1, 0});
    DeviceArray<int64_t> device_offsets(offsets), num_segments(std::vector<int64_t>{4});
    Mlp stack = device.view();
    stack.x = Matrix<const float16>(device_experts.view());
    stack.in = dim;
    stack.mix.gate = {Matrix<const float>(gate.view()), device_offsets.data(), num_segments.data()};
    stack.mix.normalization = Normalization::none;
    DeviceMlpLaunch({stack}, config.target).run();
    MlpCase chosen = c;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < dim; ++k)
        chosen.layers[0].inputs.x[static_cast<size_t>(r * dim + k)] =
            experts[static_cast<size_t>((r * 2 + (4 <= r && r < 18)) * dim + k)];
    EXPECT_EQ(device.values(), run_stacks({chosen}, config.target)[0]);
  });
}

TEST(MlpKernel, GivesTheSameBitsInEveryOrderOfThreads) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.segment_sizes = Sizes{5, 13};
    extras.half_y = false;
    const MlpCase c(18, {300, 40, 24, 1}, {relu}, extras);
    in_every_order(
        [&] {
          DeviceMlp device(c);
          DeviceMlpLaunch launch({device.view()}, config.target);
          launch.run();
          launch.run();
          return device.values();
        },
        build == Build::plain ? 20 : 3, config);
  });
}

TEST(MlpKernel, GivesARowTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    Extras extras;
    extras.more_rows = 3;
    const MlpCase all(40, {30, 60, 20}, {silu}, extras);
    const std::vector<float> together = run_stacks({all}, config.target)[0];
    for (const int64_t first : {0, 5, 17, 39}) {
      const int64_t rows = std::min<int64_t>(18, 40 - first);
      Extras some = extras;
      some.more_rows = 43 - rows;
      MlpCase c(rows, {30, 60, 20}, {silu}, some);
      for (size_t l = 0; l < 2; ++l) c.layers[l].layer = all.layers[l].layer;
      const std::vector<float>& x = all.layers[0].inputs.x;
      c.layers[0].inputs.x.assign(x.begin() + first * 30, x.begin() + (first + rows) * 30);
      EXPECT_EQ(run_stacks({c}, config.target)[0],
                std::vector<float>(together.begin() + first * 20, together.begin() + (first + rows) * 20));
    }
  });
}

TEST(MlpKernel, KeepsNaNAndInfinityToTheirRowAndHiddenValuesFinite) {
  for_each_target([](const Config& config) {
    MlpCase clean(9, {40, 20, 4}, {relu, identity});
    for (LinearCase& layer : clean.layers) {
      for (float& weight : layer.layer.weight) weight = 0.25f;
      for (float& bias : layer.layer.bias) bias = 0;
    }
    MlpCase dirty = clean;
    std::vector<float>& x = dirty.layers[0].inputs.x;
    x[2 * 40 + 39] = nan;
    x[5 * 40 + 7] = infinity;
    for (size_t k = 0; k < 40; ++k) x[7 * 40 + k] = 60000;  // 600,000 is stored as 65504
    const std::vector<float> before = run_stacks({clean}, config.target)[0];
    const std::vector<float> after = run_stacks({dirty}, config.target)[0];
    for (size_t i = 0; i < after.size(); ++i) {
      const size_t row = i / 4;
      if (row == 2)
        EXPECT_TRUE(std::isnan(after[i]));
      else if (row == 5)
        EXPECT_EQ(after[i], infinity);
      else if (row == 7)
        EXPECT_EQ(after[i], 65504);
      else
        EXPECT_EQ(after[i], before[i]);
    }
  });
}

TEST(MlpKernel, ReplaysAGraphWithOtherRows) {
  for_each_target([](const Config& config) {
    const MlpCase c(37, {300, 24, 16, 8}, {relu});
    DeviceMlp device(c);
    const std::vector<float> all = run_stacks({c}, config.target)[0];
    DeviceMlpLaunch launch({device.view()}, config.target);
    const Stream stream = create_stream();
    begin_capture(stream);
    launch.run(stream);
    const Graph graph = end_capture(stream);
    EXPECT_EQ(num_launches(graph), 1);
    for (const int64_t rows : {37, 0, 16, 36}) {
      CapacityMatrix<float16> y(rows, 8, 40, true);
      Mlp view = device.view();
      view.y = y.view();
      DeviceMlpLaunch moved({view}, config.target);
      launch.descriptors().write(moved.descriptors().read());
      device.first().num_rows().write({rows});
      kernel_testing::launch(graph, stream);
      std::vector<float> values;
      for (const float16 value : y.values()) values.push_back(to_float(value));
      EXPECT_EQ(values, std::vector<float>(all.begin(), all.begin() + rows * 8));
    }
  });
}

TEST(MlpKernel, RefusesEachThingThatIsWrong) {
  reset({});
  Extras extras;
  extras.segment_sizes = Sizes{2, 3};
  const MlpCase c(5, {24, 12, 3}, {relu}, extras);
  DeviceMlp device(c);
  const auto refused = [&](auto change) {
    Mlp stack = device.view();
    std::vector<MlpLayer> layers(stack.layers.begin(), stack.layers.end());
    stack.layers = layers;
    change(stack, layers);
    try {
      MlpLaunch({&stack, 1}, 75);
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      std::string all;
      for (const Problem& problem : e.problems()) all += (all.empty() ? "" : "; ") + problem.to_string();
      return all;
    }
  };
  using Layers = std::vector<MlpLayer>;
  EXPECT_EQ(refused([](Mlp&, Layers&) {}), "nothing");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.layers = {}; }), "mlp 0: expected at least one layer, got none");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.x.type = DType::f32; }), "mlp 0's x: expected F16, got F32");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.y.cols = 2; }), "mlp 0's y: expected [8, 3], got [8, 2]");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.x.stride = 5; }),
            "mlp 0's x: expected a stride of at least its 24 columns, got 5");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.row_bias.values.cols = 11; }),
            "mlp 0's row bias: expected [4, 12], got [4, 11]");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.residual_first = true; }),
            "mlp 0's residual: expected one, as it is first, got none");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.row_bias.values = {}; }),
            "mlp 0's row bias: expected a matrix, as it has segments, got none");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.last_row_bias = m.row_bias; }),
            "mlp 0's last_row_bias: expected [4, 3], got [4, 12]");
  EXPECT_EQ(refused([](Mlp& m, Layers& l) {
              m.layers = {l.data(), 1}, m.y.cols = 12, m.y.stride = 16, m.last_row_bias = m.row_bias;
            }),
            "mlp 0's last_row_bias: expected several layers, got one, which has row_bias");
  EXPECT_EQ(refused([](Mlp& m, Layers&) {
              m.last_row_bias = m.row_bias, m.last_row_bias.values.cols = 3, m.last_row_bias.num_segments = nullptr;
            }),
            "mlp 0's last_row_bias: expected the segments of row_bias, got others");
  EXPECT_EQ(refused([](Mlp&, Layers& l) { l[1].weights = nullptr; }),
            "mlp 0's layer 1's weights: expected device memory, got null");
  EXPECT_EQ(refused([](Mlp&, Layers& l) { l[0].activation.kind = ActivationKind::prelu; }),
            "mlp 0's layer 0's activation prelu: expected learned alphas, got none");
  EXPECT_EQ(refused([](Mlp& m, Layers&) { m.first_is_done = true; }),
            "mlp 0's in: expected 1 to 2^30, got 0; mlp 0's x: expected [8, 12], got [8, 24]");
  EXPECT_EQ(refused([](Mlp& m, Layers& l) {
              m.first_is_done = true, m.in = 24, m.x.cols = 12, m.layers = {l.data(), 1};
              m.y.cols = 12, m.y.stride = 16;
            }),
            "mlp 0: expected layers behind the one that is done, got none");
  EXPECT_EQ(refused([](Mlp& m, Layers&) {
              m.y = Matrix<float16>(static_cast<float16*>(const_cast<void*>(m.x.data)), 8, 3, m.x.stride);
            }),
            "y of linear layer 0: expected memory of its own, got an overlap with x of layer 0");
  DeviceArray<float16> experts(8 * 24), gate(8 * 2);
  const auto mixed = [&](auto change) {
    return refused([&](Mlp& m, Layers& l) {
      m.x = Matrix<const float16>(experts.data(), 8, 24);
      m.in = 12;
      m.mix.gate = {Matrix<const float16>(gate.data(), 8, 2)};
      change(m, l);
    });
  };
  EXPECT_EQ(mixed([](Mlp&, Layers&) {}), "nothing");
  EXPECT_EQ(mixed([](Mlp& m, Layers&) { m.in = 0; }).substr(0, 60),
            "mlp 0's in: expected 1 to 256, as it mixes experts, got 0; m");
  EXPECT_EQ(mixed([](Mlp& m, Layers&) { m.in = 10; }), "mlp 0's experts: expected a multiple of 10 columns, got 24");
  EXPECT_EQ(mixed([](Mlp& m, Layers&) { m.mix.gate.values.cols = 1; }), "mlp 0's gate: expected [8, 2], got [8, 1]");
  EXPECT_EQ(mixed([](Mlp& m, Layers&) { m.mix.gate.num_segments = m.num_rows; }),
            "mlp 0's gate: expected offsets of its segments, got none");
  EXPECT_EQ(mixed([](Mlp& m, Layers& l) { l[0].out = 513, m.row_bias = {}; }).substr(0, 51),
            "mlp 0, whose first layer is done or mixes experts: ");
  EXPECT_EQ(mixed([&](Mlp& m, Layers&) { m.y = Matrix<float16>(gate.data(), 8, 3, 4); }).substr(0, 62),
            "y of linear layer 0: expected memory of its own, got an overla");
  const Mlp stacks[] = {device.view(), device.view()};
  EXPECT_THROW(MlpLaunch({stacks, 2}, 75), invalid_argument) << "two stacks write the same";
  EXPECT_THROW(MlpLaunch({stacks, 1}, 70), invalid_argument);
  EXPECT_EQ(MlpLaunch({}, 75).workspace_bytes(), 0);
  const MlpCase wide(5, {70, 5000, 3}, {relu});  // whose layers are launched one by one
  DeviceMlp device_of_wide(wide);
  const Mlp stack = device_of_wide.view();
  const auto message = [](auto f) {
    try {
      f();
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      return e.problems()[0].to_string();
    }
  };
  const MlpLaunch launch({&stack, 1}, 75);
  EXPECT_EQ(message([&] { launch.descriptors(); }), "workspace of mlps: expected device memory, got null");
  DeviceArray<unsigned char> workspace(launch.workspace_bytes() + 256);
  EXPECT_EQ(message([&] { launch.descriptors(workspace.data() + 64); }),
            "workspace of mlps: expected memory aligned to 256 bytes, got an address that is not");
  DeviceArray<unsigned char> descriptors(launch.descriptors(workspace.data()));
  EXPECT_EQ(message([&] {
              launch.launch({descriptors.data(), nullptr});
            }),
            "workspace of mlps: expected device memory, got null");
  EXPECT_EQ(message([&] {
              launch.launch({nullptr, workspace.data()});
            }),
            "descriptors of mlps: expected device memory, got null");
  EXPECT_EQ(message([&] {
              launch.launch({descriptors.data() + 8, workspace.data()});
            }),
            "descriptors of mlps: expected memory aligned to 128 bytes, got an address that is not");
}

TEST(MlpKernel, StatesItsPolicies) {
  namespace mlp = warprank::detail::mlp;
  using warprank::MlpTile;
  const auto bytes = [](MlpTile tile, bool is_wide) {
    const int64_t stride = mlp::staged_stride(mlp::RowsBlock::max_inputs_at_once(tile));
    return mlp::rows_shared_bytes(tile, stride, is_wide) + 4096;  // and static
  };
  EXPECT_LE(bytes(MlpTile::rows_16, true), 64 << 10);
  EXPECT_LE(bytes(MlpTile::rows_32, false), 64 << 10) << "of a T4";
  EXPECT_EQ(mlp::choose_tile(75, 640, false), MlpTile::rows_16);
  EXPECT_EQ(mlp::choose_tile(75, 641, false), MlpTile::rows_32);
  EXPECT_EQ(mlp::choose_tile(75, 641, true), MlpTile::rows_16);
  EXPECT_EQ(mlp::choose_tile(90, 2112, false), MlpTile::rows_16);
  EXPECT_EQ(mlp::choose_tile(90, 2113, false), MlpTile::rows_32);
}

#if defined(WARPRANK_TEST_PLAIN)

/// PyTorch's stacks, whose numbers are FP32.
TEST(MlpKernel, AgreesWithPyTorch) {
  const SafetensorsFile file(std::string(WARPRANK_TEST_DATA) + "/golden/mlp.safetensors");
  const auto has = [&](const std::string& name) { return file.tensors().count(name) != 0; };
  const auto floats = [&](const std::string& name) {
    std::vector<float> values;
    if (!has(name)) return values;
    const TensorView& tensor = file.tensors().at(name);
    for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<float>(tensor.data, i));
    return values;
  };
  const std::vector<std::pair<std::string, Activation>> stacks = {
      {"identity", identity},       {"relu", relu}, {"prelu", prelu},         {"sigmoid", sigmoid},
      {"tanh", hyperbolic_tangent}, {"gelu", gelu}, {"gelu_tanh", gelu_tanh}, {"silu", silu}};
  std::vector<float> x;
  std::vector<std::vector<double>> exact(stacks.size());
  for (int r = 0; has("request/" + std::to_string(r) + "/dense/x"); ++r) {
    const std::string request = "request/" + std::to_string(r);
    for (const float value : floats(request + "/dense/x")) x.push_back(value);
    for (size_t i = 0; i < stacks.size(); ++i) {
      const TensorView& y = file.tensors().at(request + "/output/" + stacks[i].first);
      for (int64_t j = 0; j < y.size(); ++j) exact[i].push_back(load_element<double>(y.data, j));
    }
  }
  const int64_t rows = static_cast<int64_t>(x.size()) / 6;
  ASSERT_GT(rows, 16);
  for_each_target([&](const Config& config) {
    std::vector<MlpCase> cases;
    for (const auto& [name, activation] : stacks) {
      Extras extras;
      extras.half_y = false;
      MlpCase& c = cases.emplace_back(rows, Sizes{6, 5, 4, 2},
                                      std::vector<Activation>{activation, activation, identity}, extras);
      c.layers[0].inputs.x = x;
      for (size_t l = 0; l < 3; ++l) {
        const std::string layer = "weight/" + name + "." + std::to_string(l);
        c.layers[l].layer.weight = floats(layer + ".weight");
        c.layers[l].layer.bias = floats(layer + ".bias");
        if (l < 2) c.layers[l].layer.alpha = floats(layer + ".prelu.alpha");
      }
    }
    const std::vector<std::vector<float>> y = run_stacks(cases, config.target);
    for (size_t i = 0; i < stacks.size(); ++i) {
      SCOPED_TRACE(stacks[i].first);
      Propagated expected = propagate(cases[i], {true, false});
      ASSERT_EQ(expected.value.size(), exact[i].size());
      for (size_t j = 0; j < exact[i].size(); ++j) ASSERT_NEAR(expected.value[j], exact[i][j], 1e-12);
      expect_close(expected, y[i]);
    }
  });
}

/// Of whole stacks, against what their shapes need: mma of tiles of 16 rows and 8 outputs, and every input, weight and
/// output once.
TEST(MlpCounts, OfReferenceModels) {
  CountTable table({"stacks", "rows", "target", "launches", "mma", "/ least", "bytes read", "bytes written", "/ once",
                    "rows from shared memory"});
  struct Stacks {
    const char* name;
    int64_t count;
    Sizes widths;
  };
  for (const Stacks& stacks :
       {Stacks{"600-256-256-256-1", 1, {600, 256, 256, 256, 1}},
        Stacks{"1024-1024-512-256-1", 1, {1024, 1024, 512, 256, 1}}, Stacks{"2528-512-256", 4, {2528, 512, 256}}})
    for (const int64_t rows : all_counts() ? Sizes{1, 17, 50, 100, 200, 500} : Sizes{17}) {
      if (!all_counts() && stacks.widths[0] != 600) continue;
      for (const int target : {75, 80}) {
        SCOPED_TRACE(std::string(stacks.name) + ", " + std::to_string(rows) + " rows, sm_" + std::to_string(target));
        Config config;
        config.target = target;
        config.schedule = simt::Schedule::random;  // blocks run together, as on a card, and none waits in vain
        config.preemption = 64;
        config.resident_blocks = 128;
        config.count_sectors = true;
        reset(config);
        std::vector<std::unique_ptr<DeviceArray<float16>>> memory;
        const auto zeros = [&](int64_t count) {
          memory.push_back(std::make_unique<DeviceArray<float16>>(count, float16{}));
          return memory.back()->data();
        };
        const Matrix<const float16> x(zeros(rows * stacks.widths[0]), rows, stacks.widths[0]);
        const int64_t strips = (rows + 15) / 16, depth = target >= 80 ? 16 : 8, out = stacks.widths.back();
        int64_t mma = 0, bytes_once = x.rows * x.cols * 2;
        std::vector<std::vector<MlpLayer>> layers(static_cast<size_t>(stacks.count));
        std::vector<Mlp> all;
        for (std::vector<MlpLayer>& own : layers) {
          for (size_t l = 0; l + 1 < stacks.widths.size(); ++l) {
            const PackedLinearLayout layout{stacks.widths[l], stacks.widths[l + 1]};
            own.push_back({zeros(layout.bytes() / 2), layout.out, {}});
            if (!layout.is_head()) mma += strips * ((layout.in + depth - 1) / depth) * ((layout.out + 7) / 8);
            bytes_once += layout.bytes();
          }
          Mlp& stack = all.emplace_back();
          stack.x = x;
          stack.layers = own;
          stack.y = Matrix<float16>(zeros(rows * out), rows, out);
          bytes_once += rows * out * 2;
        }
        DeviceMlpLaunch launch(all, target);
        clear_counters();
        launch.run();
        synchronize();
        const Counters& counts = counters();
        EXPECT_LE(static_cast<double>(counts.mma), 1.05 * static_cast<double>(mma));
        EXPECT_EQ(counts.launches, launch.launch().num_launches());
        const int64_t moved = (counts.global_load_sectors + counts.global_store_sectors) * 32;
        table.add(std::string(stacks.name) + (stacks.count > 1 ? " x " + std::to_string(stacks.count) : ""), rows,
                  target, counts.launches, counts.mma, over(counts.mma, static_cast<double>(mma)),
                  counts.global_load_sectors * 32, counts.global_store_sectors * 32,
                  over(moved, static_cast<double>(bytes_once)), counts.load_matrices * 512);
      }
    }
}

TEST(MlpCounts, OfTheLongestWarp) {
  CountTable table(longest_warp_columns({"stack", "rows", "capacity"}));
  struct Counted {
    const char* name;
    Sizes widths;
    int64_t capacity;
    bool tries_loads;  // few: each takes two runs
  };
  for (const Counted& counted : {Counted{"600-256-256-256-1", {600, 256, 256, 256, 1}, 100, false},
                                 Counted{"600-256-256-256-1", {600, 256, 256, 256, 1}, 2400, false},
                                 Counted{"64-32-1", {64, 32, 1}, 2400, true}}) {
    Extras extras;
    extras.more_rows = counted.capacity - 16;
    const MlpCase c(16, counted.widths, std::vector<Activation>(counted.widths.size() - 2, relu), extras);
    const auto run = [&](const Config& config) {
      reset(config);
      DeviceMlp device(c);
      DeviceMlpLaunch launch({device.view()}, config.target);
      launch.run();
      synchronize();
    };
    if (counted.tries_loads)
      add_longest_warp(table, run, counted.name, 16, counted.capacity);
    else
      add_operations_of_longest_warp(table, run, "-", counted.name, 16, counted.capacity);
  }
}

TEST(MlpKernel, ExecutesAndReadsWhatItMust) {
  for (const int64_t rows : {1, 17, 50})
    for (const int target : {75, 80})
      for (const int64_t capacity : {rows, int64_t{700}}) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(capacity) + ", sm_" + std::to_string(target));
        Config config;
        config.target = target;
        config.schedule = simt::Schedule::random;  // blocks run together, as on a card, and none waits in vain
        config.preemption = 64;
        config.resident_blocks = 64;
        config.count_sectors = true;
        reset(config);
        Extras extras;
        extras.more_rows = capacity - rows;
        const Sizes widths = {600, 256, 256, 256, 1};
        const MlpCase c(rows, widths, {relu, relu, relu, sigmoid}, extras);
        DeviceMlp device(c);
        DeviceMlpLaunch launch({device.view()}, target);
        clear_counters();
        launch.run();
        synchronize();
        const int64_t rows_of_block = capacity == 700 && target == 75 ? 32 : 16, depth = target >= 80 ? 16 : 8;
        const int64_t strips = (rows + rows_of_block - 1) / rows_of_block * rows_of_block / 16;
        int64_t mma = 0, weight_sectors = 0;
        for (size_t l = 0; l + 2 < widths.size(); ++l) {
          const int64_t of_inputs = (widths[l] + 31) / 32 * 32 / depth;
          mma += strips * of_inputs * (widths[l + 1] / 8);
          weight_sectors += PackedLinearLayout{widths[l], widths[l + 1]}.bias_offset() / 32;
        }
        const Counters& counts = counters();
        EXPECT_EQ(counts.mma, mma);
        EXPECT_EQ(counts.launches, 1);
        if (capacity == rows) continue;  // split: looks are not counted on
        // Weights and biases once for each block, x once; beside them what all
        // blocks of the capacity read before they know that they have no rows: descriptors.
        const int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
        const int64_t all_blocks = (capacity + rows_of_block - 1) / rows_of_block;
        const int64_t of_descriptors =
            launch.launch().descriptor_bytes() / 32 + 8 * (4 + 2);  // 8 warps look for theirs
        const int64_t head = (rows + 3) / 4 * (PackedLinearLayout{256, 1}.bias_offset() / 32 + 1);
        const int64_t least = blocks * weight_sectors + rows * 600 * 2 / 32 + blocks * 3 * (256 * 4 / 32) + head +
                              all_blocks * of_descriptors;
        EXPECT_GE(counts.global_load_sectors, least);
        EXPECT_LE(counts.global_load_sectors, 1.01 * static_cast<double>(least));
        EXPECT_EQ(counts.global_store_sectors, rows) << "rows of y are apart";
      }
}
#endif

}  // namespace
