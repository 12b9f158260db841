// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/din_attention_case.hpp"
#include "support/counts.hpp"

#if !defined(__CUDACC__)
#include "support/longest_warp.hpp"
#include "warprank/ops/host/din_attention.hpp"
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/weights.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

namespace din = warprank::detail::din;

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

TEST(DinKernel, MatchesTheFormulaForEveryNormalization) {
  for_each_target([](const Config& config) {
    std::vector<DinCase> cases;
    for (const Normalization normalization : all_normalizations)
      for (const bool scaled : {false, true})
        for (const float scale : {0.03f, 1.0f, 5.0f}) {
          DinCase c = with(16, {32, 16}, {3, 2}, {50, 5});
          c.normalization = normalization, c.scaled = scaled, c.scale = scale;
          c.half_y = scaled;
          cases.push_back(c.make());
        }
    run_din(cases, config.target);
  });
}

TEST(DinKernel, MatchesTheFormulaForEveryWidth) {
  for_each_target([](const Config& config) {
    const std::vector<Sizes> networks{{1}, {4}, {17}, {64}, {80, 40}, {3, 70}, {5, 1}, {33, 2, 17}, {1, 1, 1}};
    std::vector<DinCase> cases;
    for (const int64_t dim : {1, 2, 3, 8, 15, 16, 17, 31, 64, 100})
      for (const Sizes& hidden : networks) {
        DinCase c = with(dim, hidden, {2, 1}, {3, 9});
        c.is_aligned = hidden.size() != 2;
        cases.push_back(c.make());
      }
    run_din(cases, config.target);
  });
}

TEST(DinKernel, MatchesTheFormulaForTheLargestWidths) {
  for_each_target(
      [](const Config& config) {
        // First layers that are folded in parts, and again for the next tasks; later weights that stay in global
        // memory.
        run_din({with(16, {80, 64}, {4}, {40}).make(), with(256, {96, 40}, {3}, {21}).make(),
                 with(200, {300}, {2}, {9}).make(), with(24, {512, 160, 48}, {2}, {12}).make()},
                config.target);
      },
      {75, 80, 86, 90});
}

TEST(DinKernel, MatchesTheFormulaForRaggedUsers) {
  for_each_target([](const Config& config) {
    DinCase c = with(24, {36, 20}, {1, 0, 40, 2, 1, 33, 0, 3, 2}, {0, 5, 1, 48, 70, 2, 7, 0, 49});
    c.activation = dice;
    run_din({c.make()}, config.target);
  });
}

TEST(DinKernel, GivesTheSameBitsHoweverManyBlocksThereAre) {
  Config config;
  config.target = 80;
  const DinCase c = with(16, {32, 16}, {40, 9}, {50, 5}).make();
  const auto run = [&](const warprank::LaunchPolicies& policies) {
    return run_din({c}, warprank::device::target(), true, policies)[0];
  };
  expect_same_bits(&warprank::LaunchPolicies::din_items_of_one_block, {0, 1000}, run, config);
}

/// Longer histories than expected pass through shared memory in chunks, all others too: 16 events at a time.
TEST(DinKernel, MatchesTheFormulaForStreamedHistories) {
  for_each_target([](const Config& config) {
    std::vector<DinCase> cases;
    for (const Normalization normalization : all_normalizations)
      for (const float scale : {1.0f, 8.0f}) {
        DinCase c = with(20, {24, 8}, {6, 1, 2, 9}, {50, 16, 17, 33});
        c.normalization = normalization, c.scale = scale, c.longest_history = 16;
        cases.push_back(c.make());
      }
    run_din(cases, config.target);
  });
}

/// By both kernels, of aligned rows and others, whole and in chunks: the bits of the sum that is rounded before.
TEST(DinKernel, AddsTwoPartsOfAHistory) {
  for_each_target([](const Config& config) {
    for (const int64_t dim : {5, 24, 40, 128})
      for (const Sizes& hidden : {Sizes{32, 16}, Sizes{7}})
        for (const int64_t longest : {0, 16})
          for (const bool is_aligned : {true, false}) {
            SCOPED_TRACE("dim " + std::to_string(dim) + ", longest " + std::to_string(longest));
            DinCase sum = with(dim, hidden, {3, 0, 1, 9}, {50, 5, 0, 33});
            sum.longest_history = longest, sum.is_aligned = is_aligned;
            sum.make();
            DinCase parts = sum;
            std::mt19937 engine(7);
            const std::vector<float> added = rounded(random_values(engine, sum.num_events() * dim, 3));
            for (size_t i = 0; i < sum.k.size(); ++i) sum.k[i] += added[i];
            sum.k = rounded(sum.k);
            DeviceHistory of_sum(sum), of_parts(parts);
            CapacityMatrix<float16> to_add(sum.num_events(), dim, sum.num_events() + sum.more, dim != 40, added);
            std::vector<DinHistory> views = {of_sum.view(), of_parts.view()};
            views[1].added = to_add.view();
            DeviceDin(views, config.target).run();
            EXPECT_EQ(of_parts.values(), of_sum.values());
            of_sum.expect_right(share_of_din_bound);
          }
  });
}

TEST(DinKernel, MatchesTheFormulaForThousandsOfEvents) {
  if (build == Build::race) return;  // the same in chunks of 16 above
  for_each_target([](const Config& config) {
    const DinCase c = with(40, {32, 16}, {2, 1}, {1003, 4}).make();
    DeviceHistory history(c);
    const DinHistory view = history.view();
    DeviceDin launch({view}, config.target);
    EXPECT_LT(launch.launch().chunk_events(0), 1003);
    launch.run();
    history.expect_right(share_of_din_bound);
  });
}

/// Each of the chained kernels, with a unit for each item and with large ones; histories of several chunks.
TEST(DinKernel, MatchesTheFormulaForEveryChainedKernel) {
  for_each_target([](const Config& config) {
    for (const int multiprocessors : {1, 100}) {
      Config counting = config;
      counting.multiprocessors = multiprocessors;
      reset(counting);
      std::vector<DinCase> cases;
      for (const int64_t dim : {20, 64, 72})
        for (const Sizes& hidden : {Sizes{24, 30}, Sizes{80, 40}})
          for (const Activation& activation : {relu, dice}) {
            DinCase c = with(dim, hidden, {9, 2}, {70, 20});
            c.activation = activation, c.longest_history = activation.kind == ActivationKind::dice ? 32 : 0;
            c.normalization = all_normalizations[cases.size() % 3];
            ASSERT_TRUE(c.make().pack().is_chained());
            cases.push_back(c);
          }
      run_din(cases, config.target);
    }
  });
}

/// More users than lanes of a warp, some without items, some of several units.
TEST(DinKernel, FindsTheUnitsOfManyUsers) {
  for_each_target([](const Config& config) {
    DinCase c = with(8, {16, 8}, {}, {});
    for (int64_t user = 0; user < 70; ++user) {
      c.items.push_back(user % 5 == 0 ? 0 : user == 33 ? 20 : user % 3);
      c.events.push_back(user % 7 == 0 ? 0 : user % 20);
    }
    run_din({c.make()}, config.target);
    c.more = 0;
    run_din({c.make()}, config.target);
  });
}

std::vector<warprank::float16> halves(const std::vector<float>& values) {
  std::vector<warprank::float16> narrow;
  for (const float value : values) narrow.push_back(to_float16(value));
  return narrow;
}

std::vector<float> joined(const std::vector<std::vector<float>>& lists) {
  std::vector<float> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

TEST(DinKernel, GivesTheSameInEveryOrder) {
  for_each_target([](const Config& config) {
    std::vector<DinCase> cases{with(16, {32, 16}, {5, 1, 0, 2}, {21, 0, 3, 9}), with(8, {24}, {3}, {17}),
                               with(30, {20, 16, 4}, {2, 4}, {40, 1})};
    cases[0].longest_history = 16;
    cases[1].activation = dice;
    cases[2].normalization = Normalization::none;
    for (DinCase& c : cases) c.make();
    in_every_order([&] { return joined(run_din(cases, config.target, false)); }, build == Build::plain ? 20 : 8,
                   config);
  });
}

TEST(DinKernel, GivesZerosForAnEmptyHistory) {
  for_each_target([](const Config& config) {
    for (const Normalization normalization : all_normalizations) {
      DinCase c = with(12, {16}, {3, 2}, {0, 0}), chained = with(12, {16, 8}, {3, 2}, {0, 0});
      c.normalization = chained.normalization = normalization, c.activation = sigmoid;
      EXPECT_EQ(run_din({chained.make()}, config.target)[0], std::vector<float>(5 * 12, 0.0f));
      EXPECT_EQ(run_din({c.make()}, config.target)[0], std::vector<float>(5 * 12, 0.0f));
    }
  });
}

TEST(DinKernel, LaunchesNothingWithoutItemsAndNothingIsWrittenWithoutUsers) {
  for_each_target([](const Config& config) {
    DinCase empty = with(12, {16}, {}, {});
    run_din({empty.make()}, config.target);
    DinCase no_items = with(12, {16}, {0, 0}, {5, 0});
    run_din({no_items.make()}, config.target);
    empty.more = 0;
    clear_counters();
    run_din({empty.make(), empty}, config.target);
    run_din({}, config.target);
    if (!on_gpu) {
      EXPECT_EQ(counters().launches, 0);
    }
  });
}

/// Counts beyond the capacity are the caller's mistake; what he has not given is not written.
TEST(DinKernel, WritesNoMoreItemsThanTheCapacity) {
  for_each_target([](const Config& config) {
    for (const Sizes& hidden : {Sizes{16}, Sizes{16, 8}}) {
      DinCase c = with(12, hidden, {5, 2}, {4, 3});
      c.make();
      const std::vector<float> all = run_din({c}, config.target)[0];
      DeviceHistory history(c);
      CapacityMatrix<float> y(3, 12, 6, true);
      DinHistory view = history.view();
      view.y = y.view();
      view.y.rows = view.q.rows = 3;
      DeviceDin launch({view}, config.target);
      launch.run();
      EXPECT_EQ(y.values(), std::vector<float>(all.begin(), all.begin() + 3 * 12));
    }
  });
}

/// Whatever is computed beside it, and on however many multiprocessors.
TEST(DinKernel, GivesAnItemTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    DinCase together = with(40, {64, 20}, {9, 1, 5}, {59, 70, 1});
    together.activation = dice, together.scaled = true, together.longest_history = 32;
    together.make();
    const std::vector<float> all = run_din({together}, config.target)[0];
    Config wide = config;
    wide.multiprocessors = 100;
    reset(wide);
    EXPECT_EQ(run_din({together, together}, config.target)[1], all);
    int64_t item = 0, event = 0;
    for (size_t user = 0; user < together.items.size(); ++user) {
      for (int64_t n = 0; n < together.items[user]; ++n, ++item) {
        if (n > 2) continue;
        DinCase alone = together;
        alone.items = {1}, alone.events = {together.events[user]};
        alone.q.assign(together.q.begin() + item * 40, together.q.begin() + (item + 1) * 40);
        alone.k.assign(together.k.begin() + event * 40, together.k.begin() + (event + together.events[user]) * 40);
        EXPECT_EQ(run_din({alone}, config.target)[0],
                  std::vector<float>(all.begin() + item * 40, all.begin() + (item + 1) * 40));
      }
      event += together.events[user];
    }
  });
}

TEST(DinKernel, ReadsCountsOffsetsAndWeightsWhenAGraphIsReplayed) {
  for_each_target([](const Config& config) {
    DinCase c = with(16, {32, 16}, {4, 0, 3, 5}, {9, 4, 0, 20});
    c.make();
    DinCase other = c;
    for (auto& layer : other.layers)
      for (float& weight : layer.weight) weight = -weight;
    DeviceHistory history(c), with_other_weights(other);
    DeviceDin launch({history.view()}, config.target);
    const Stream stream = create_stream();
    begin_capture(stream);
    launch.run(stream);
    const Graph graph = end_capture(stream);
    EXPECT_EQ(num_launches(graph), 1);
    const std::vector<float> all = run_din({c}, config.target)[0];
    for (const int64_t users : {4, 0, 3, 1, 4}) {
      // Into a y of its own, so that nothing is left from before.
      CapacityMatrix<float> y(users == 4 ? 12 : users == 3 ? 7 : users * 4, 16, 14, true);
      DinHistory view = history.view();
      view.y = y.view();
      const DinLaunch moved({&view, 1}, config.target);
      launch.descriptors().write(moved.descriptors());
      history.num_parents().write({users});
      kernel_testing::launch(graph, stream);
      const std::vector<float> values = y.values();
      EXPECT_EQ(values, std::vector<float>(all.begin(), all.begin() + static_cast<int64_t>(values.size())));
    }
    // The events of the last user go to the one before.
    DinCase moved = c;
    moved.events = {9, 4, 20, 0};
    history.history_offsets().write({0, 9, 13, 33, 33});
    DinHistory view = history.view();
    const DinLaunch same({&view, 1}, config.target);
    launch.descriptors().write(same.descriptors());
    kernel_testing::launch(graph, stream);
    EXPECT_EQ(history.values(), run_din({moved}, config.target)[0]);

    history.history_offsets().write({0, 9, 13, 13, 33});
    view.device_weights = with_other_weights.weights().data();
    const DinLaunch swapped({&view, 1}, config.target);
    launch.descriptors().write(swapped.descriptors());
    kernel_testing::launch(graph, stream);
    EXPECT_EQ(history.values(), run_din({other}, config.target)[0]);
  });
}

TEST(DinKernel, StaysFiniteForScoresOfAnySize) {
  for_each_target([](const Config& config) {
    for (const float weight : {1e6f, -1e18f, 3e38f, -3e38f})
      for (const Normalization normalization : {Normalization::softmax, Normalization::sigmoid})
        for (const int64_t longest : {16, 0}) {
          DinCase c = with(8, {16, 8}, {4}, {20});
          c.normalization = normalization, c.longest_history = longest;
          c.make();
          // Of one sign, so that scores may become infinite, but no infinity is subtracted from another.
          c.layers.back().weight.assign(8, weight);
          for (const float value : joined(run_din({c}, config.target, false)))
            EXPECT_TRUE(std::isfinite(value)) << value;
        }
  });
}

/// Folded weights and hidden outputs above the largest FP16 saturate: a softmax over what follows is a convex
/// combination of the events.
TEST(DinKernel, StaysFiniteWhereFp16Overflows) {
  for_each_target([](const Config& config) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const Sizes& hidden : {Sizes{16, 8, 4}, Sizes{16, 8}}) {
        DinCase c = with(8, hidden, {4}, {20});
        c.scale = 60000;
        c.make();
        for (size_t l = 0; l + 1 < c.layers.size(); ++l)
          for (float& weight : c.layers[l].weight) weight *= sign * 10000;
        for (auto& layer : c.layers) layer.bias.clear();
        for (const Activation& activation : {identity, relu, leaky_relu(-1000)}) {
          for (size_t l = 0; l + 1 < c.layers.size(); ++l) c.layers[l].activation = activation;
          for (const float value : joined(run_din({c}, config.target, false)))
            EXPECT_LE(std::fabs(value), 60001) << value;
        }
      }
    }
  });
}

/// Weights of W(q) above the largest FP16 are that one, and nothing else changes: also not for other items of the unit.
TEST(DinKernel, SaturatesFoldedWeightsWhereTheyOverflow) {
  for_each_target([](const Config& config) {
    DinCase c = with(8, {16, 8}, {5}, {20});
    c.normalization = Normalization::none;
    c.make();
    for (float& value : c.q) value = to_float(to_float16(value * 0x1p-7f));
    c.layers[0].weight[3 * 8 + 2] = 300;  // Wp of output 0, column 2
    for (size_t t = 0; t < 20; ++t) c.k[t * 8 + 2] = t % 2 == 0 ? 0 : 0x1p-9f;
    const std::vector<float> before = run_din({c}, config.target)[0];
    c.q[3 * 8 + 2] = 4000;
    const std::vector<float> after = run_din({c}, config.target, false)[0];
    for (size_t i = 0; i < after.size(); ++i)
      if (i / 8 == 3)
        EXPECT_TRUE(std::isfinite(after[i])) << i;
      else
        EXPECT_EQ(after[i], before[i]) << i;
  });
}

TEST(DinKernel, KeepsNaNInItsItemOrItsUser) {
  for_each_target([](const Config& config) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Activation& activation : {sigmoid, relu, dice}) {
      DinCase c = with(8, {16, 8}, {5, 2}, {20, 9});
      c.activation = activation;
      c.make();
      const std::vector<float> clean = run_din({c}, config.target)[0];
      const auto expect = [&](const DinCase& spoilt, const std::function<bool(size_t)>& item_is_spoilt) {
        const std::vector<float> values = run_din({spoilt}, config.target, false)[0];
        for (size_t i = 0; i < values.size(); ++i) {
          if (item_is_spoilt(i / 8))
            EXPECT_TRUE(std::isnan(values[i])) << i;
          else
            EXPECT_EQ(values[i], clean[i]) << i;
        }
      };
      DinCase in_q = c, in_k = c;
      in_q.q[1 * 8 + 3] = nan;
      expect(in_q, [](size_t item) { return item == 1; });
      in_k.k[22 * 8 + 3] = nan;
      expect(in_k, [](size_t item) { return item >= 5; });
    }
  });
}

/// (Wk - Wd) + Wp q is rounded once: here the terms cancel but for what FP16 would have lost of Wk - Wd.
TEST(DinKernel, FoldsTheFirstLayerBeforeItIsRounded) {
  for_each_target([](const Config& config) {
    DinCase c = with(1, {1}, {1}, {1});
    c.activation = identity, c.normalization = Normalization::none, c.bias = false;
    c.make();
    c.q = {1}, c.k = {1};
    c.layers[0].weight = {0, 1 + 0x1p-13f, 0, -1};
    c.layers[1].weight = {1};
    EXPECT_EQ(run_din({c}, config.target, false)[0], std::vector<float>{0x1p-13f});
  });
}

#if !defined(__CUDACC__)

TEST(DinKernel, AgreesWithTheHost) {
  for_each_target([](const Config& config) {
    for (const Normalization normalization : all_normalizations) {
      DinCase c = with(24, {36, 20}, {1, 0, 9, 2}, {0, 5, 40, 17});
      c.activation = dice, c.normalization = normalization, c.scaled = true;
      c.make();
      std::vector<host_ops::DinLayer> layers;
      for (const auto& layer : c.layers)
        layers.push_back({layer.weight, layer.bias, {layer.activation, layer.alpha, layer.scale, layer.shift}});
      const host_ops::PackedDin packed(c.dim, layers, normalization, c.scaled);
      const std::vector<int64_t> items{0, 1, 1, 10, 12}, history{0, 0, 5, 45, 62};
      std::vector<float> workspace(static_cast<size_t>(packed.workspace_size(40))), y(12 * 24);
      host_ops::din_attention(packed, {c.q.data(), 12, 24}, {c.k.data(), 62, 24}, {items.data(), 4},
                              {history.data(), 4}, {y.data(), 12, 24}, workspace);
      Bounded expected = c.expected();
      expected.value.assign(y.begin(), y.end());
      DeviceHistory memory(c);
      DeviceDin launch({memory.view()}, config.target);
      launch.run();
      expect_within(expected, memory.values(), share_of_din_bound);
    }
  });
}

/// PyTorch's numbers are FP32: q and k are rounded to FP16 as well.
TEST(DinKernel, AgreesWithPyTorch) {
  const SafetensorsFile file(std::string(WARPRANK_TEST_DATA) + "/golden/din_attention.safetensors");
  const auto append = [&](const std::string& name, auto& values) {
    using Value = typename std::remove_reference_t<decltype(values)>::value_type;
    const TensorView& tensor = file.tensors().at(name);
    for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<Value>(tensor.data, i));
    return tensor.size();
  };
  const auto floats = [&](const std::string& name) {
    std::vector<float> values;
    append("weight/" + name, values);
    return values;
  };
  struct Golden {
    const char* name;
    Sizes hidden;
    Activation activation;
    Normalization normalization;
    bool scaled;
  };
  const Activation affine{ActivationKind::dice, 0, 1e-8f, true};
  using N = Normalization;
  const Golden goldens[] = {
      {"plain", {6, 5}, dice, N::none, false},         {"plain_scaled", {80, 40}, affine, N::none, true},
      {"softmax", {6, 3}, sigmoid, N::softmax, false}, {"softmax_scaled", {6}, prelu, N::softmax, true},
      {"sigmoid", {6, 4}, relu, N::sigmoid, false},    {"sigmoid_scaled", {7, 5, 3}, gelu, N::sigmoid, true}};
  for_each_target([&](const Config& config) {
    for (const Golden& golden : goldens) {
      SCOPED_TRACE(golden.name);
      DinCase c = with(4, golden.hidden, {}, {});
      c.activation = golden.activation, c.normalization = golden.normalization, c.scaled = golden.scaled;
      c.inputs_are_half = false;
      c.make();
      std::vector<double> exact;
      for (int r = 0; r < std::stoi(file.metadata().at("requests")); ++r) {
        const std::string request = "request/" + std::to_string(r);
        c.items.push_back(append(request + "/dense/q", c.q) / 4);
        c.events.push_back(append(request + "/dense/k", c.k) / 4);
        append(request + "/output/" + golden.name, exact);
      }
      for (size_t l = 0; l < c.layers.size(); ++l) {
        auto& layer = c.layers[l];
        const std::string name = golden.name + ("." + std::to_string(l));
        layer.weight = floats(name + ".weight"), layer.bias = floats(name + ".bias");
        if (layer.activation.kind == ActivationKind::prelu) layer.alpha = floats(name + ".prelu.alpha");
        if (layer.activation.kind != ActivationKind::dice) continue;
        layer.alpha = floats(name + ".dice.alpha");
        const std::vector<float> mean = floats(name + ".dice.running_mean"),
                                 variance = floats(name + ".dice.running_var");
        const std::vector<float> one(mean.size(), 1.0f), zero(mean.size(), 0.0f);
        const bool is_affine = layer.activation.affine;
        const std::vector<float> weight = is_affine ? floats(name + ".dice.weight") : one,
                                 bias = is_affine ? floats(name + ".dice.bias") : zero;
        for (size_t j = 0; j < mean.size(); ++j) {
          const double deviation = std::sqrt(static_cast<double>(variance[j]) + layer.activation.eps);
          layer.scale[j] = static_cast<float>(weight[j] / deviation);
          layer.shift[j] = static_cast<float>(bias[j] - mean[j] * (weight[j] / deviation));
        }
      }
      ASSERT_GT(c.num_items(), 12);
      Bounded expected = c.expected();
      for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(expected.value[i], exact[i], 1e-5) << "the oracle";
      expected.value = exact;
      DeviceHistory memory(c);
      DeviceDin launch({memory.view()}, config.target);
      launch.run();
      expect_within(expected, memory.values(), 1);  // of one event nothing else is rounded, and there is no chance
    }
  });
}

#endif

TEST(DinWeights, RefusesLayersThatDoNotFitTogether) {
  const std::vector<float> values(5000, 1.0f);
  const auto some = [&](int64_t size) { return Span<const float>(values.data(), size); };
  const auto message = [&](int64_t dim, const std::vector<DinLayer>& layers) -> std::string {
    try {
      DinWeights weights(dim, layers);
    } catch (const invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  const DinLayer head{some(3), some(1), {}, {}, {}, {}};
  EXPECT_EQ(message(2, {{some(24), some(3), relu, {}, {}, {}}, head}), "accepted");
  EXPECT_EQ(message(0, {}), "columns of DIN attention: expected 1 to 256, got 0");
  EXPECT_EQ(message(257, {}), "columns of DIN attention: expected 1 to 256, got 257");
  EXPECT_EQ(message(2, {head}), "layers of DIN attention: expected 2 to 4, got 1");
  EXPECT_EQ(message(2, std::vector<DinLayer>(5, head)), "layers of DIN attention: expected 2 to 4, got 5");
  EXPECT_EQ(message(2, {{some(23), {}, {}, {}, {}, {}}, {some(4), {}, relu, {}, {}, {}}}),
            "3 problems:\n"
            "  weight of layer 0 of DIN attention: expected a multiple, 1 to 512, of 8 values, got 23\n"
            "  weight of layer 1 of DIN attention: expected 2 values, got 4\n"
            "  activation of layer 1 of DIN attention: expected identity, got relu");
  EXPECT_THAT(message(2, {{some(513 * 8), {}, {}, {}, {}, {}}, {some(513), {}, {}, {}, {}, {}}}),
              ::testing::HasSubstr("512"));
  const std::string layer = "layer 0 of DIN attention: expected ";
  EXPECT_EQ(message(2, {{some(24), some(4), relu, {}, {}, {}}, head}), "bias of " + layer + "3 values, got 4");
  EXPECT_EQ(message(2, {{some(24), {}, relu, some(3), {}, {}}, head}), "alpha of " + layer + "0 values, got 3");
  EXPECT_EQ(message(2, {{some(24), {}, leaky_relu(NAN), {}, {}, {}}, head}),
            "alpha of " + layer + "a finite number, got nan");
  EXPECT_EQ(message(2, {{some(24), {}, prelu, {}, {}, {}}, head}), "alpha of " + layer + "3 values, got 0");
  EXPECT_EQ(message(2, {{some(24), {}, dice, some(3), some(2), some(3)}, head}),
            "scale of " + layer + "3 values, got 2");
  EXPECT_EQ(message(2, {{some(24), {}, dice, some(3), some(3), {}}, head}), "shift of " + layer + "3 values, got 0");
}

TEST(DinWeights, RefusesNumbersThatWouldSpoilScores) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto accepts = [&](int layer, size_t place, float value) {
    DinCase c = with(2, {3, 3}, {1}, {1});
    c.make();
    c.layers[static_cast<size_t>(layer)].weight[place] = value;
    try {
      c.pack();
    } catch (const invalid_argument&) {
      return false;
    }
    return true;
  };
  for (const float value : {infinity, -infinity, nan})
    for (const int layer : {0, 1, 2})
      for (size_t place = 0; place < 3; ++place) EXPECT_FALSE(accepts(layer, place, value));
  // Wq, Wk, Wd, Wp: Wq + Wd and Wp are FP16, Wk - Wd and the last layer FP32.
  for (const size_t place : {0, 4, 6}) EXPECT_FALSE(accepts(0, place, 70000.0f)) << place;
  EXPECT_TRUE(accepts(0, 2, 70000.0f));
  EXPECT_FALSE(accepts(1, 0, -70000.0f));
  EXPECT_TRUE(accepts(2, 0, 3e38f));
  DinCase c = with(2, {3}, {1}, {1});
  c.activation = dice;
  c.make();
  c.layers[0].scale[1] = nan;
  EXPECT_THROW(c.pack(), invalid_argument);
  c.make();
  c.layers[0].bias[2] = infinity;
  EXPECT_THROW(c.pack(), invalid_argument);
}

TEST(DinLaunch, RefusesWhatDoesNotFitTogether) {
  for_each_target(
      [](const Config& config) {
        DinCase c = with(8, {16}, {3}, {4});
        c.make();
        DeviceHistory memory(c), second(c);
        const auto message = [&](const std::function<void(DinHistory&)>& change) -> std::string {
          DinHistory view = memory.view(), next = second.view();
          change(view);
          try {
            DinLaunch launch(std::vector<DinHistory>{next, view}, config.target);
          } catch (const invalid_argument& error) {
            return error.what();
          }
          return "accepted";
        };
        using testing::HasSubstr;
        EXPECT_EQ(message([](DinHistory&) {}), "accepted");
        EXPECT_THAT(message([](DinHistory& h) { h.network = nullptr; }), HasSubstr("history 1's network"));
        EXPECT_EQ(message([](DinHistory& h) { h.added = h.k; }), "accepted");
        EXPECT_THAT(message([](DinHistory& h) { h.added = h.k.columns(0, 7); }), HasSubstr("history 1's added"));
        EXPECT_THAT(message([](DinHistory& h) { h.added = h.k.row_range(0, 3); }), HasSubstr("history 1's added"));
        EXPECT_THAT(message([](DinHistory& h) {
                      h.added = h.k;
                      h.y = Matrix<float16>(const_cast<float16*>(h.k.data), h.q.rows, 8, h.k.stride);
                      h.k = h.q;  // as many rows matter only to the check of shapes
                      h.added.rows = h.k.rows;
                    }),
                    HasSubstr("an overlap with added of history 1"));
        EXPECT_THAT(message([](DinHistory& h) { h.device_weights = nullptr; }), HasSubstr("history 1's weights"));
        EXPECT_THAT(message([](DinHistory& h) { h.device_weights = static_cast<const char*>(h.device_weights) + 8; }),
                    HasSubstr("aligned to 16"));
        EXPECT_THAT(message([](DinHistory& h) { h.q.cols = 7; }), HasSubstr("history 1's q: expected [5, 8]"));
        EXPECT_THAT(message([](DinHistory& h) { h.k.cols = 9; }), HasSubstr("history 1's k: expected [6, 8]"));
        EXPECT_THAT(message([](DinHistory& h) { h.y.rows = 4; }), HasSubstr("history 1's y: expected [5, 8]"));
        EXPECT_THAT(message([](DinHistory& h) { h.y.type = DType::i8; }), HasSubstr("F16 or F32"));
        EXPECT_THAT(message([](DinHistory& h) { h.k.stride = 7; }), HasSubstr("stride"));
        EXPECT_THAT(message([](DinHistory& h) { h.q.data = nullptr; }), HasSubstr("history 1's q"));
        EXPECT_THAT(message([](DinHistory& h) { h.parents.capacity = -1; }), HasSubstr("parents: expected 0 or more"));
        EXPECT_THAT(message([](DinHistory& h) { h.longest_history = -1; }), HasSubstr("longest history"));
        EXPECT_THAT(message([](DinHistory& h) { h.item_offsets = nullptr; }), HasSubstr("item offsets"));
        EXPECT_THAT(message([](DinHistory& h) { h.history_offsets = nullptr; }), HasSubstr("history offsets"));
        EXPECT_THAT(message([](DinHistory& h) { h.network = nullptr, h.device_weights = nullptr; }),
                    HasSubstr("network"));
        EXPECT_THAT(message([&](DinHistory& h) { h.y = second.view().y; }), HasSubstr("overlap with y of history"));
        EXPECT_THAT(message([&](DinHistory& h) {
                      h.y = Matrix<warprank::float16>(const_cast<warprank::float16*>(h.k.data), 5, 8, h.k.stride);
                    }),
                    HasSubstr("y of history 1: expected memory of its own, got an overlap with k of history 1"));
        EXPECT_THROW(DinLaunch(std::vector<DinHistory>{memory.view()}, 70), invalid_argument);
      },
      {75});
}

TEST(DinPartition, FitsForEveryShapeAndTarget) {
  for (const int target : {75, 80, 86, 89, 90}) {
    if (!has_shared_memory_of(target)) continue;
    for (const int dim : {16, 64, 128, 256})
      for (const int hidden : {16, 64, 80, 256, 512})
        for (const int layers : {1, 2, 3})
          for (const int64_t longest : {0, 1, 50, 1000}) {
            const din::Shape shape{dim, layers, {hidden, hidden, hidden}, longest};
            const din::Partition p = din::choose_partition(shape, target, target >= 80 ? 4 : 2);
            EXPECT_LE(p.bytes, device::shared_limit(target, p.blocks));
            EXPECT_GE(p.events, std::min<int64_t>(longest, 16));
            EXPECT_GE(p.fold_rows, 16);
            EXPECT_LE(p.fold_rows, hidden);
          }
    EXPECT_EQ(device::shared_limit(target, 1), simt::shared_limit(target));
  }
}

TEST(DinPlaces, FitsForEveryShapeAndTarget) {
  for (const int target : {75, 80, 86, 89, 90}) {
    if (!has_shared_memory_of(target)) continue;
    for (const int steps : {2, 4, 8})
      for (const int pairs : {2, 3})
        for (const int chunks : {1, 4, 5, 10, 32})
          for (const bool is_dice : {false, true})
            for (const int64_t longest : {0, 1, 50, 100, 100000}) {
              const din::chained::Shape shape{chunks, steps, pairs, is_dice};
              if (!din::chained::fits(shape)) continue;
              const din::chained::Places p = din::chained::choose_places(shape, longest, target);
              EXPECT_LE(p.bytes, device::shared_limit(target, 1));
              EXPECT_EQ(p.chunk_events % 16, 0);
              EXPECT_GE(p.chunk_events, 16);
              EXPECT_LE(p.chunk_events, 512);
              const bool is_small = chunks <= 4 && steps <= 4 && pairs == 2 && longest <= 100;
              if (is_small) {
                EXPECT_GE(p.chunk_events, longest);
              }
              if (is_small && target >= 80) {
                EXPECT_LE(p.bytes, device::shared_limit(target, 2));
              }
            }
  }
  EXPECT_TRUE(din::chained::fits({5, 8, 3, true}));     // {80, 40} of 128 columns with Dice
  EXPECT_FALSE(din::chained::fits({32, 8, 2, false}));  // 512 hidden outputs
}

// ---- What the executor counts

/// From the definition of the work and its division alone.
struct Counted {
  int64_t mma = 0, history_sectors = 0, load_sectors = 0, store_sectors = 0;
  int64_t unit_items = 0;
  double least_mma = 0;  ///< of the products that remain when the first layer is folded
};

/// One user, rows of whole sectors, ReLU, two hidden layers of multiples of 16: the chained kernel.
Counted count(const DinCase& c, const warprank::DinKernel& launch, const din::chained::Shape& shape,
              int64_t chunk_events, int target) {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  constexpr int64_t sector = 32, warps = din::chained::block_warps, most = din::chained::max_unit_items;
  const int64_t items = c.items[0], events = c.events[0], dim = c.dim, h0 = c.hidden[0], h1 = c.hidden[1];
  const int64_t depth = target >= 80 ? 16 : 8, chunks = h0 / 16, pairs = h1 / 16;
  Counted counted;
  counted.least_mma = static_cast<double>(items * events * (dim * h0 + h0 * h1)) / static_cast<double>(16 * 8 * depth);
  counted.store_sectors = items * dim * 4 / sector;

  const int64_t rounds = ceil_div(items, most * launch.blocks);
  counted.unit_items = ceil_div(items, rounds * launch.blocks);
  const int64_t units = ceil_div(items, counted.unit_items);
  counted.history_sectors = units * events * dim * 2 / sector;
  const int64_t columns = 2 * dim / depth;  // mma of 16 rows, 16 outputs and all columns
  counted.mma = units * chunks * columns;   // c(q)
  for (int64_t first = 0; first < events; first += chunk_events) {
    const int64_t tiles = ceil_div(std::min(events - first, chunk_events), 16);
    const int most = din::chained::tiles_at_once(target, shape.steps, shape.pairs);
    for (int64_t item = 0; item < items; item += counted.unit_items) {
      const int64_t of_unit = std::min(counted.unit_items, items - item);
      const int64_t at_once = din::chained::tiles_together(most, static_cast<int>(tiles), static_cast<int>(of_unit));
      const int64_t scored = ceil_div(tiles, at_once) * at_once;  // the last one again where there is no other
      counted.mma += of_unit * scored * chunks * (columns + pairs * 2 * 16 / depth);
    }
    counted.mma += units * tiles * dim / 8 * 16 / depth;  // pooling
  }

  const int64_t searches = std::max(units, launch.blocks);  // the last unit of a block is known to be that
  // By every warp: where offsets are, four of them, and their count.
  const int64_t of_search = warps * (static_cast<int64_t>(sizeof(din::chained::Start)) / 16 + 5);
  const int64_t of_block = ceil_div(sizeof(din::chained::Descriptor), sector) + ceil_div(shape.query(), sector);
  const int64_t of_unit = (shape.bytes() - shape.query()) / sector;  // Wq + Wd
  counted.load_sectors = launch.blocks * of_block + searches * of_search + units * of_unit + counted.history_sectors +
                         items * dim * 2 / sector;
  return counted;
}

/// The folded minimum is the mma of the products that remain, undivided into tiles.
TEST(DinCounts, ExecutesTheProductsThatRemainAndReadsAHistoryOncePerUnit) {
  if (build != Build::plain) return;
  CountTable table({"target", "L", "D", "N", "mma", "/ folded minimum", "bytes read", "of history", "units of items",
                    "bytes written", "blocks", "events on chip"});
  for_each_target([&](const Config& config) {
    for (const auto& [events, dim] : std::vector<std::pair<int64_t, int64_t>>{{50, 32}, {100, 64}, {200, 128}})
      for (const int64_t items : {1, 100, 500}) {
        if (!all_counts() && items * events > 5000) continue;
        SCOPED_TRACE(std::to_string(events) + " x " + std::to_string(dim) + ", " + std::to_string(items) + " items");
        Config counting = config;
        counting.count_sectors = true;
        counting.multiprocessors = config.target == 75 ? 40 : 108;
        reset(counting);
        DinCase c = with(dim, {64, 32}, {items}, {events});
        c.more = 0, c.make();
        DeviceHistory history(c);
        // Rows of whole sectors.
        DeviceMatrix<warprank::float16> q(halves(c.q), items, dim), k(halves(c.k), events, dim);
        DeviceMatrix<float> y(items, dim);
        DinHistory view = history.view();
        view.q = q.view(), view.k = k.view(), view.y = y.view();
        DeviceDin launch({view}, config.target);
        clear_counters();
        launch.run();
        synchronize();
        ASSERT_EQ(launch.launch().num_launches(), 1);
        const warprank::DinKernel how = launch.launch().kernel(0);
        ASSERT_TRUE(how.is_chained);
        const Counted expected = count(c, how, warprank::detail::din::packed(*view.network).shape,
                                       launch.launch().chunk_events(0), config.target);
        const Counters& counts = counters();
        EXPECT_EQ(counts.mma, expected.mma);
        // Events are padded to 16, c(q) of one item costs as much as of 8, and the pooling is products, too.
        EXPECT_LE(static_cast<double>(counts.mma), 1.65 * expected.least_mma);
        EXPECT_EQ(counts.global_load_sectors, expected.load_sectors);
        EXPECT_EQ(counts.global_store_sectors, expected.store_sectors);
        EXPECT_EQ(counts.launches, 1);
        table.add(config.target, events, dim, items, counts.mma, over(counts.mma, expected.least_mma),
                  counts.global_load_sectors * 32, expected.history_sectors * 32, expected.unit_items,
                  counts.global_store_sectors * 32, how.blocks, launch.launch().chunk_events(0));
      }
  });
}

#if !defined(__CUDACC__)
TEST(DinCounts, OfTheLongestWarp) {
  if (build != Build::plain) return;
  CountTable table(longest_warp_columns({"L", "D", "N"}));
  // Of few items: on as many multiprocessors, blocks have no more.
  for (const int64_t events : {100, 1000}) {
    DinCase c = with(64, {64, 32}, {4}, {events});
    c.make();
    add_longest_warp(
        table,
        [&](const Config& config) {
          reset(config);
          DeviceHistory history(c);
          DeviceDin launch({history.view()}, config.target);
          launch.run();
          synchronize();
        },
        events, 64, 4);
  }
}
#endif

}  // namespace
