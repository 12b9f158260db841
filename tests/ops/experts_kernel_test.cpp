// SPDX-License-Identifier: Apache-2.0

#include "warprank/ops/experts.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/experts_case.hpp"
#include "ops/mlp_case.hpp"
#include "support/counts.hpp"
#include "warprank/ops/elementwise.cuh"

// In the plain build alone: numbers and counts are the same in all.
#if !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WARPRANK_TEST_PLAIN
#include "warprank/weights/safetensors.hpp"
#include "warprank/weights/weights.hpp"
#endif

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

using Sizes = std::vector<int64_t>;

// ---- Experts of which each row goes through all

TEST(PackedExperts, AreTheirLayersInInt8OneAfterAnother) {
  std::mt19937 engine(1);
  const std::vector<float> weight = random_values(engine, 2 * 19 * 33), bias = random_values(engine, 2 * 19);
  const Buffer<unsigned char> packed = pack_int8_experts(weight, bias, 33, 19, 2);
  const int64_t bytes = PackedInt8Layout{33, 19}.bytes();
  ASSERT_EQ(packed.size(), 2 * bytes);
  for (int64_t e = 0; e < 2; ++e) {
    const Buffer<unsigned char> own = pack_int8_linear(Span<const float>(weight).subspan(e * 19 * 33, 19 * 33),
                                                       Span<const float>(bias).subspan(e * 19, 19), 33, 19);
    EXPECT_EQ(std::memcmp(packed.data() + e * bytes, own.data(), static_cast<size_t>(bytes)), 0);
  }
}

TEST(PackedExperts, AreTheirLayersOneAfterAnother) {
  std::mt19937 engine(1);
  for (const int64_t out : {1, 5}) {
    const std::vector<float> weight = random_values(engine, 3 * out * 21), bias = random_values(engine, 3 * out);
    const Buffer<unsigned char> packed = pack_experts<float>(weight, bias, 21, out, 3);
    const int64_t bytes = PackedLinearLayout{21, out}.bytes();
    ASSERT_EQ(packed.size(), 3 * bytes);
    for (int64_t e = 0; e < 3; ++e) {
      const Buffer<unsigned char> own = pack_linear(Span<const float>(weight).subspan(e * out * 21, out * 21),
                                                    Span<const float>(bias).subspan(e * out, out), 21, out);
      EXPECT_EQ(std::memcmp(packed.data() + e * bytes, own.data(), static_cast<size_t>(bytes)), 0);
    }
  }
  const std::vector<float> six(6), two(2);
  EXPECT_EQ(pack_int8_experts(six, two, 3, 1, 2).size(), 2 * PackedInt8Layout({3, 1}).bytes());
  EXPECT_THROW(pack_int8_experts(six, two, 3, 2, 2), invalid_argument);
  EXPECT_NO_THROW(pack_experts<float>(six, two, 3, 1, 2));
  EXPECT_NO_THROW(pack_experts<float>(six, {}, 3, 1, 2));
  EXPECT_THROW(pack_experts<float>(six, two, 3, 2, 2), invalid_argument);
  EXPECT_THROW(pack_experts<float>(six, two, 6, 1, 1), invalid_argument) << "a bias for each of two";
  EXPECT_THROW(pack_experts<float>({}, {}, 3, 1, 0), invalid_argument);
}

/// With everything that is cut, aligned and not. `int8`: weights of the first.
std::vector<Extras> extras_of_experts(bool int8 = false) {
  std::vector<Extras> all(2);
  all[0].int8 = int8;
  all[0].groups = all[1].groups = 3;
  all[0].segment_sizes = Sizes{10, 0, 11};
  all[0].multiply = all[0].residual = all[1].residual = all[1].residual_first = true;
  all[0].activation = dice;
  all[1].activation = prelu;
  all[1].is_aligned = all[1].half_operands = all[1].half_y = false;
  return all;
}

TEST(ExpertsKernel, ReadColumnsOfTheirOwn) {
  for_each_target([](const Config& config) {
    for (const Extras& extras : extras_of_experts(true))
      for (const int64_t out : {1, 7, 24}) {
        const LinearCase c(21, 40, out, extras);
        DeviceLayer device(c);
        const std::vector<LinearLayer> layers = split_experts(device.view(), 3);
        ASSERT_EQ(layers.size(), 3u);
        DeviceLaunch(layers, config.target).run();
        device.expect_right();
      }
  });
}

TEST(ExpertsKernel, OfSeveralLayersMatchTheOracle) {
  for_each_target([](const Config& config) {
    for (const Extras& extras : extras_of_experts())
      for (const bool shared_input : {false, true}) {
        // Where experts share x, the oracle is given a copy for each.
        MlpCase c(21, {24, 20, 9}, {gelu, dice}, extras);
        for (LinearCase& layer : c.layers) {
          Extras own = layer.extras;
          own.groups = 3;
          layer = LinearCase(21, layer.layer.in, layer.layer.out, own);
        }
        std::vector<float>& x = c.layers[0].inputs.x;
        if (shared_input)
          for (size_t i = 0; i < x.size(); ++i) x[i] = x[i / 72 * 72 + i % 24];
        DeviceMlp device(c);
        Mlp all = device.view();
        std::vector<MlpLayer> layers(all.layers.begin(), all.layers.end());
        for (MlpLayer& layer : layers) layer.out /= 3;
        all.layers = layers;
        if (shared_input) all.x.cols = 24;
        const ExpertStacks experts = split_experts(all, 3, shared_input);
        DeviceMlpLaunch(experts.stacks, config.target).run();
        expect_close(propagate(c), device.values());
      }
  });
}

TEST(ExpertsKernel, RefusesWhatCannotBeCut) {
  reset({});
  const MlpCase c(5, {24, 12, 3}, {relu});
  DeviceMlp device(c);
  DeviceLayer layer(c.layers[0]);
  const auto refused = [](auto f) {
    try {
      f();
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      std::string all;
      for (const Problem& problem : e.problems()) all += (all.empty() ? "" : "; ") + problem.to_string();
      return all;
    }
  };
  EXPECT_EQ(refused([&] { split_experts(layer.view(), 3); }), "nothing");
  EXPECT_EQ(
      refused([&] { split_experts(layer.view(), 5); }),
      "experts' x: expected a multiple of 5 columns, got 24; experts' y: expected a multiple of 5 columns, got 12");
  EXPECT_EQ(refused([&] { split_experts(layer.view(), 0); }), "experts: expected at least one, got 0");
  EXPECT_EQ(refused([&] { split_experts(device.view(), 3, false); }), "nothing");
  EXPECT_EQ(refused([&] { split_experts(device.view(), 2, true); }),
            "experts' y: expected a multiple of 2 columns, got 3");
  Mlp mixed = device.view();
  mixed.mix.gate.values = mixed.x;
  EXPECT_EQ(refused([&] { split_experts(mixed, 3, false); }),
            "experts that mix: expected an input that they share, got columns of their own");
  Mlp done = device.view();
  done.first_is_done = true;
  EXPECT_EQ(refused([&] { split_experts(done, 3, true); }),
            "experts whose first layer is done: expected sums of their own, got a shared x");
}

// ---- Scenes

TEST(SceneRowsKernel, SortsRowsByScene) {
  for (const bool in_segments : {false, true})
    for (const int64_t num_scenes : {1, 3, 64})
      for (const int64_t num_ids : {0, 1, 33, 90, 256, 257, 1024, 1500, 4000, 9000}) {
        // More rows than scenes are kept of, and more ids.
        if ((num_ids == 4000 && (num_scenes != 3 || !in_segments)) || (num_ids == 9000 && num_scenes != 3)) continue;
        SCOPED_TRACE(std::to_string(num_ids) + " ids of " + std::to_string(num_scenes) + " scenes");
        reset({});
        const Scenes scenes = random_scenes(num_scenes, num_ids, in_segments);
        const DeviceScenes device(scenes);
        device.rows().launch({});
        device.expect_right(scenes);
      }
}

TEST(SceneRowsKernel, SortsThemInEveryOrderOfThreads) {
  const Scenes scenes = random_scenes(5, 70, true);
  in_every_order(
      [&] {
        const DeviceScenes device(scenes);
        device.rows().launch({});
        device.expect_right(scenes);
      },
      build == Build::plain ? 20 : 3);
}

/// Requests of two axes, one below the other, of which each request names the scenes of its rows of the second. Those
/// of the last have not set the input.
TEST(SceneRowsKernel, ReadsScenesOfRequests) {
  for (const bool in_segments : {false, true})
    for (const size_t num_requests : {4, 31, 40}) {
      reset({});
      std::vector<Sizes> ids_of_request;
      for (size_t r = 0; r + 1 < num_requests; ++r)
        ids_of_request.push_back(std::vector<Sizes>{{2, 0}, {}, {7, 1, 1}}[r % 3]);
      ids_of_request.push_back({3, 3});
      const size_t last = num_requests - 1;
      Scenes scenes{4, {}, {}};
      std::vector<unsigned char> bytes;
      Sizes positions, starts_of_first{0}, starts_of_second{0};
      for (size_t r = 0; r < ids_of_request.size(); ++r) {
        const Sizes& ids = ids_of_request[r];
        positions.push_back(static_cast<int64_t>(bytes.size()));
        std::vector<uint32_t> tables(10 + 2 + 2 +
                                     2);  // a header, rows, offsets and two inputs, of which ids are the last
        if (r != last) tables.back() = static_cast<uint32_t>(tables.size() * 4);
        const auto append = [&](const void* data, size_t size) {
          const auto* begin = static_cast<const unsigned char*>(data);
          bytes.insert(bytes.end(), begin, begin + size);
        };
        append(tables.data(), tables.size() * 4);
        if (r != last) append(ids.data(), ids.size() * 8);
        starts_of_first.push_back(static_cast<int64_t>(r) + 1);
        starts_of_second.push_back(starts_of_second.back() + static_cast<int64_t>(ids.size()));
        scenes.ids.insert(scenes.ids.end(), ids.begin(), ids.end());
      }
      if (in_segments)
        for (size_t i = 0; i < scenes.ids.size(); ++i) scenes.sizes.push_back(Sizes{4, 0, 1, 1, 0, 2, 5}[i % 7]);
      const auto count = static_cast<int64_t>(num_requests), num_ids = static_cast<int64_t>(scenes.ids.size());
      // Room for one request more.
      positions.push_back(0);
      Sizes row_starts = starts_of_first;
      row_starts.push_back(0);
      row_starts.insert(row_starts.end(), starts_of_second.begin(), starts_of_second.end());
      row_starts.push_back(0);
      const DeviceArray<unsigned char> blobs(bytes);
      const DeviceArray<int64_t> device_positions(positions), device_starts(row_starts), actual(Sizes{count});
      BlobIds blob;
      blob.requests.bytes = blobs.data();
      blob.requests.positions = device_positions.data();
      blob.requests.row_starts = device_starts.data();
      // Row starts of as many requests as there may be, or of more.
      blob.requests.num_requests = {in_segments ? count : count + 1, actual.data()};
      blob.requests.row_starts_stride = in_segments ? count + 2 : 0;
      blob.requests.num_axes = blob.requests.num_ids = 2;
      blob.input = 1;
      blob.axis = 1;
      blob.default_id = 3;
      const DeviceScenes device(scenes, blob, num_ids + 3);
      device.rows().launch({});
      device.expect_right(scenes);
    }
}

TEST(SceneRowsKernel, RefusesEachThingThatIsWrong) {
  reset({});
  DeviceArray<int64_t> memory(64, 0);
  const auto refused = [&](auto change) {
    SceneIds ids{memory.data(), {8, nullptr}, nullptr, nullptr};
    int64_t num_scenes = 4, capacity = 8;
    void* workspace = memory.data();
    change(ids, num_scenes, capacity, workspace);
    try {
      SceneRows(ids, num_scenes, {capacity}, workspace);
      return std::string("nothing");
    } catch (const invalid_argument& e) {
      std::string all;
      for (const Problem& problem : e.problems()) all += (all.empty() ? "" : "; ") + problem.to_string();
      return all;
    }
  };
  EXPECT_EQ(refused([](auto&, auto&, auto&, auto&) {}), "nothing");
  EXPECT_EQ(refused([](auto&, auto& scenes, auto&, auto&) { scenes = 0; }), "scenes: expected 1 to 64, got 0");
  EXPECT_EQ(refused([](auto&, auto& scenes, auto&, auto&) { scenes = 65; }), "scenes: expected 1 to 64, got 65");
  EXPECT_EQ(refused([](auto&, auto&, auto& capacity, auto&) { capacity = 9; }),
            "scenes: ids: expected one for each of 9 rows, got 8");
  EXPECT_EQ(refused([](auto&, auto&, auto& capacity, auto&) { capacity = -1; }),
            "scenes: rows: expected 0 to 2^31 - 1, got -1");
  EXPECT_EQ(refused([](auto&, auto&, auto&, auto& workspace) { workspace = nullptr; }),
            "scenes: groups: expected device memory, got null");
  EXPECT_EQ(refused([](auto& ids, auto&, auto&, auto&) { ids.ids = nullptr; }),
            "scenes: ids: expected device memory, got null");
  EXPECT_EQ(refused([](auto& ids, auto&, auto&, auto&) { ids.num_ids.capacity = -1; }).substr(0, 53),
            "scenes: ids: expected a capacity of 0 or more, got -1");
  EXPECT_EQ(refused([&](auto& ids, auto&, auto&, auto&) {
              BlobIds blob;
              blob.requests.bytes = reinterpret_cast<unsigned char*>(memory.data());
              blob.requests.positions = blob.requests.row_starts = memory.data();
              blob.requests.num_axes = 2, blob.requests.num_ids = 1;
              blob.input = 1, blob.axis = 2, blob.parent = 0;
              ids.ids = blob;
            }),
            "scenes: ids input: expected 0 to 0, got 1; scenes: axis of the ids: expected 0 to 1, got 2; "
            "scenes: axis of bags: expected none, got 0");
}

/// A layer of as many groups as there are scenes. The oracle computes all of them.
LinearCase case_of_scenes(const Scenes& scenes, int64_t in, int64_t out, Extras extras) {
  extras.groups = scenes.num_scenes;
  LinearCase c(scenes.rows(), in, out, extras);
  std::vector<float>& x = c.inputs.x;
  const size_t wide = static_cast<size_t>(c.layer.groups * in);
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i / wide * wide + i % static_cast<size_t>(in)];
  return c;
}

/// What the oracle gives for the scene of each row.
reference::Bounded chosen(const reference::Bounded& all, const Scenes& scenes, int64_t out) {
  reference::Bounded y;
  const Sizes of_rows = scenes.of_rows();
  for (size_t r = 0; r < of_rows.size(); ++r)
    for (int64_t o = 0; o < out; ++o) {
      const bool exists = of_rows[r] < scenes.num_scenes;
      const size_t at = r * static_cast<size_t>(scenes.num_scenes * out) + static_cast<size_t>(of_rows[r] * out + o);
      y.value.push_back(exists ? all.value[at] : 0);
      y.bound.push_back(exists ? all.bound[at] : 0);
    }
  return y;
}

/// A layer of scenes in the device's memory; y and what is added and multiplied have columns of one scene.
class DeviceSceneLayer {
 public:
  DeviceSceneLayer(const LinearCase& c, const DeviceScenes& scenes)
      : layer_(c),
        view_(layer_.view()),
        half_y_(c.rows, c.layer.out, c.capacity(), c.extras.is_aligned),
        float_y_(c.rows, c.layer.out, c.capacity(), c.extras.is_aligned),
        is_half_(c.extras.half_y) {
    view_.x.cols = c.layer.in;
    view_.groups = scenes.groups();
    if (is_half_)
      view_.y = half_y_.view();
    else
      view_.y = float_y_.view();
  }
  const LinearLayer& view() const { return view_; }
  void expect_right(const reference::Bounded& expected) const {
    if (is_half_)
      expect_within(expected, half_y_.values(), 2);
    else
      expect_within(expected, float_y_.values(), 2);
  }
  std::vector<float> values() const { return float_y_.values(); }

 private:
  DeviceLayer layer_;
  LinearLayer view_;
  CapacityMatrix<float16> half_y_;
  CapacityMatrix<float> float_y_;
  bool is_half_;
};

TEST(SceneExpertsKernel, GoThroughTheGroupOfTheirScene) {
  for_each_target([](const Config& config) {
    int i = 0;
    const bool is_plain = build == Build::plain || on_gpu;
    for (const int64_t more_rows : is_plain ? Sizes{3, 100, 600} : Sizes{3, 600})  // every policy
      for (const int64_t out : is_plain ? Sizes{1, 9, 70} : Sizes{1, 9})
        for (const Scenes& scenes : {random_scenes(3, 40, false), random_scenes(40, 20, true), Scenes{2, {1}, {17}}}) {
          reset(config);
          Extras extras;
          extras.more_rows = more_rows;
          extras.activation = i % 2 == 0 ? dice : leaky_relu(0.1f);
          extras.is_aligned = extras.half_y = ++i % 3 != 0;
          extras.int8 = i % 2 == 0;
          const LinearCase c = case_of_scenes(scenes, 75, out, extras);
          SCOPED_TRACE(std::to_string(c.rows) + " rows, " + std::to_string(out) + " outputs");
          const DeviceScenes device_scenes(scenes, more_rows);
          const DeviceSceneLayer device(c, device_scenes);
          device_scenes.rows().launch({});
          DeviceLaunch({device.view()}, config.target).run();
          device.expect_right(chosen(c.expected(), scenes, out));
        }
  });
}

/// Sums in parts, beside a layer without scenes.
TEST(SceneExpertsKernel, GiveTheSameBitsInEveryOrderOfBlocks) {
  for_each_target([](const Config& config) {
    const Scenes scenes = random_scenes(3, 9, true);
    Extras extras;
    extras.half_y = false;
    const LinearCase c = case_of_scenes(scenes, 300, 20, extras), other(30, 100, 17);
    in_every_order(
        [&] {
          const DeviceScenes device_scenes(scenes);
          const DeviceSceneLayer device(c, device_scenes);
          DeviceLayer device_of_other(other);
          DeviceLaunch launch({device_of_other.view(), device.view()}, config.target,
                              Tiling{warprank::LinearTile::staged_64x64, 3});
          EXPECT_EQ(launch.launch().parts(1), 3);
          device_scenes.rows().launch({});
          launch.run();
          launch.run();
          device_of_other.expect_right();
          device.expect_right(chosen(c.expected(), scenes, 20));
          return device.values();
        },
        build == Build::plain ? 20 : 3, config);
  });
}

TEST(SceneExpertsKernel, GiveARowTheSameBitsWhateverItsNeighbours) {
  for_each_target([](const Config& config) {
    Scenes all = random_scenes(4, 37, false);
    Extras extras;
    extras.half_y = false;
    LinearCase c = case_of_scenes(all, 300, 20, extras);
    const auto run = [&](const Scenes& scenes, const LinearCase& of_scenes) {
      reset(config);
      const DeviceScenes device_scenes(scenes, of_scenes.extras.more_rows);
      const DeviceSceneLayer device(of_scenes, device_scenes);
      device_scenes.rows().launch({});
      DeviceLaunch({device.view()}, config.target).run();
      return device.values();
    };
    const std::vector<float> together = run(all, c);
    for (const int64_t first : {5, 20}) {
      Scenes some{4, Sizes(all.ids.begin() + first, all.ids.end()), {}};
      extras.more_rows = c.capacity() - some.rows();
      LinearCase of_some = case_of_scenes(some, 300, 20, extras);
      of_some.layer = c.layer;
      of_some.inputs.x.assign(c.inputs.x.begin() + first * 4 * 300, c.inputs.x.end());
      EXPECT_EQ(run(some, of_some), std::vector<float>(together.begin() + first * 20, together.end()));
    }
  });
}

TEST(SceneExpertsKernel, ReplayAGraphWithOtherScenes) {
  for_each_target([](const Config& config) {
    const Scenes scenes = random_scenes(3, 33, false);
    Extras extras;
    extras.half_y = false;
    const LinearCase c = case_of_scenes(scenes, 40, 20, extras);
    const reference::Bounded of_all = c.expected();
    DeviceScenes device_scenes(scenes);
    const DeviceSceneLayer device(c, device_scenes);
    DeviceLaunch launch({device.view()}, config.target);
    const Stream stream = create_stream();
    begin_capture(stream);
    device_scenes.rows().launch({}, stream);
    launch.run(stream);
    const kernel_testing::Graph graph = end_capture(stream);
    EXPECT_EQ(num_launches(graph), 2);
    for (const uint32_t seed : {1u, 2u, 3u}) {
      const Scenes others = random_scenes(3, 33, false, seed);
      device_scenes.ids().write(others.ids);
      kernel_testing::launch(graph, stream);
      device.expect_right(chosen(of_all, others, 20));
    }
  });
}

#if defined(WARPRANK_TEST_PLAIN)

// ---- Whole models

/// A value of a model on the device, FP16, and what it must be.
struct Value {
  std::unique_ptr<CapacityMatrix<float16>> memory;
  Propagated exact;
  int64_t width = 0;

  Matrix<float16> view() const { return memory->view(); }
};

/// Runs layers and mixes one after another on the device, and beside it in double.
class ModelRun {
 public:
  ModelRun(const SafetensorsFile& file, int64_t rows, int target) : file_(file), rows_(rows), target_(target) {}

  std::vector<float> floats(const std::string& name) const {
    std::vector<float> values;
    const auto found = file_.tensors().find(name);
    if (found == file_.tensors().end()) return values;
    for (int64_t i = 0; i < found->second.size(); ++i) values.push_back(load_element<float>(found->second.data, i));
    return values;
  }

  Value value(int64_t width, const std::vector<float>& values = {}) const {
    return {std::make_unique<CapacityMatrix<float16>>(rows_, width, rows_, true, values),
            propagated_input(values, true), width};
  }

  /// A layer as the file has it, whose groups read columns of their own of h.
  const LinearCase& layer(const std::string& name, int64_t groups, int64_t in, int64_t out, const Activation& f) {
    Extras extras;
    extras.groups = groups;
    extras.activation = f;
    extras.more_rows = 0;
    auto& c = *cases_.emplace_back(std::make_unique<LinearCase>(rows_, in, out, extras));
    c.layer.weight = floats("weight/" + name + ".weight");
    c.layer.bias = floats("weight/" + name + ".bias");
    if (f.kind == ActivationKind::dice) {
      c.layer.alpha = floats("weight/" + name + ".dice.alpha");
      const std::vector<float> mean = floats("weight/" + name + ".dice.running_mean"),
                               variance = floats("weight/" + name + ".dice.running_var");
      for (size_t o = 0; o < mean.size(); ++o) {
        c.layer.scale[o] = static_cast<float>(1 / std::sqrt(static_cast<double>(variance[o]) + 1e-9));
        c.layer.shift[o] = -mean[o] * c.layer.scale[o];
      }
    }
    return c;
  }
  LinearLayer on_device(const LinearCase& c, Matrix<const float16> x, Matrix<float16> y) {
    LinearLayer to = layers_.emplace_back(std::make_unique<DeviceLayer>(c))->view();
    to.x = x;
    to.y = y;
    to.num_rows = nullptr;
    return to;
  }

  void run(const std::vector<LinearLayer>& layers) { launches_.emplace_back(layers, target_).run(); }
  void run(const std::vector<Mlp>& stacks) { mlps_.emplace_back(stacks, target_).run(); }

  /// One layer, [rows, groups * in] -> [rows, groups * out]; a layer of one group takes all of a shared x.
  Value linear(const std::string& name, const Value& x, int64_t groups, int64_t in, int64_t out,
               const Activation& f = identity) {
    const LinearCase& c = layer(name, groups, in, out, f);
    Value y = value(groups * out);
    run(split_experts(on_device(c, x.view(), y.view()), groups));
    y.exact = propagate_layer(x.exact, c, {true, false}, true);
    return y;
  }

  /// The same of a mix of experts.
  Value linear_of_mix(const std::string& name, const Mlp& mixed, const Propagated& x, int64_t in, int64_t out,
                      const Activation& f = identity) {
    const LinearCase& c = layer(name, 1, in, out, f);
    Value y = value(out);
    run_mixed(c, mixed, y);
    y.exact = propagate_layer(x, c, {true, false}, true);
    return y;
  }
  /// The mix itself, by a layer that changes nothing.
  Value mix(const Mlp& mixed, const Propagated& x, int64_t width) {
    LinearCase c = layer("", 1, width, width, identity);
    c.layer.weight.assign(static_cast<size_t>(width * width), 0.0f);
    for (int64_t i = 0; i < width; ++i) c.layer.weight[static_cast<size_t>(i * width + i)] = 1;
    Value y = value(width);
    run_mixed(c, mixed, y);
    y.exact = propagate_layer(x, c, {false, false}, true);
    return y;
  }

 private:
  void run_mixed(const LinearCase& c, const Mlp& mixed, const Value& y) {
    const LinearLayer layer = on_device(c, {nullptr, 0, c.layer.in}, y.view());
    const MlpLayer only[] = {{layer.weights, c.layer.out, layer.activation}};
    Mlp stack = mixed;
    stack.in = c.layer.in;
    stack.layers = {only, 1};
    stack.y = y.view();
    run(std::vector<Mlp>{stack});
  }

  const SafetensorsFile& file_;
  int64_t rows_;
  int target_;
  std::vector<std::unique_ptr<LinearCase>> cases_;
  std::vector<std::unique_ptr<DeviceLayer>> layers_;
  std::deque<DeviceLaunch> launches_;
  std::deque<DeviceMlpLaunch> mlps_;
};

/// Columns [first, first + count) of each row of `width`.
Propagated columns_of(const Propagated& all, int64_t width, int64_t first, int64_t count) {
  Propagated some;
  for (int64_t begin = first; begin < static_cast<int64_t>(all.value.size()); begin += width)
    for (int64_t i = 0; i < count; ++i)
      some.push_back(all.value[static_cast<size_t>(begin + i)], all.error[static_cast<size_t>(begin + i)]);
  return some;
}

/// Side by side, of rows of `width_of_a` and `width_of_b`.
Propagated beside(const Propagated& a, int64_t width_of_a, const Propagated& b, int64_t width_of_b) {
  Propagated both;
  for (size_t r = 0; r < a.value.size() / static_cast<size_t>(width_of_a); ++r) {
    const auto append = [&](const Propagated& from, int64_t width) {
      for (size_t i = r * static_cast<size_t>(width); i < (r + 1) * static_cast<size_t>(width); ++i)
        both.push_back(from.value[i], from.error[i]);
    };
    append(a, width_of_a);
    append(b, width_of_b);
  }
  return both;
}

/// sum_e w_e x_e, stored as FP16. Weights of logits that err by d err by factors of exp(2 d).
Propagated propagate_mix(const Propagated& experts, const Propagated& gate, Normalization normalization, int64_t num,
                         int64_t width) {
  Propagated mixed;
  for (size_t r = 0; r < gate.value.size() / static_cast<size_t>(num); ++r) {
    const double* logits = &gate.value[r * static_cast<size_t>(num)];
    const double* errors = &gate.error[r * static_cast<size_t>(num)];
    const double largest = *std::max_element(logits, logits + num), worst = *std::max_element(errors, errors + num);
    double total = 0;
    for (int64_t e = 0; e < num; ++e) total += std::exp(logits[e] - largest);
    for (int64_t d = 0; d < width; ++d) {
      double value = 0, error = 0, magnitude = 0;
      for (int64_t e = 0; e < num; ++e) {
        double w = logits[e], of_w = errors[e];
        if (normalization == Normalization::sigmoid) w = 1 / (1 + std::exp(-logits[e])), of_w = of_w / 4 + 8 * u;
        if (normalization == Normalization::softmax) {
          w = std::exp(logits[e] - largest) / total;
          of_w = w * (std::expm1(2 * worst) + (2 * (largest - logits[e]) + 16 + static_cast<double>(num)) * u);
        }
        const auto at = r * static_cast<size_t>(num * width) + static_cast<size_t>(e * width + d);
        value += w * experts.value[at];
        magnitude += (std::fabs(w) + of_w) * (std::fabs(experts.value[at]) + experts.error[at]);
        error += of_w * (std::fabs(experts.value[at]) + experts.error[at]) + std::fabs(w) * experts.error[at];
      }
      error += static_cast<double>(num) * u * magnitude;
      mixed.push_back(value, error + error_as_half(std::fabs(value) + error));
    }
  }
  return mixed;
}

struct Product {
  WARPRANK_DEVICE float operator()(float a, float b) const { return a * b; }
};

/// MMoE, two levels of PLE, and experts by scene, as PyTorch computes them in double.
TEST(ExpertsKernel, AgreeWithPyTorch) {
  const SafetensorsFile file(std::string(WARPRANK_TEST_DATA) + "/golden/experts.safetensors");
  const auto append = [&](const std::string& name, auto& values) {
    using Element = typename std::remove_reference_t<decltype(values)>::value_type;
    const TensorView& tensor = file.tensors().at(name);
    for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(load_element<Element>(tensor.data, i));
  };
  std::vector<float> x_values;
  Scenes scenes{3, {}, {}};
  std::map<std::string, std::vector<double>> expected;
  for (int r = 0; r < std::stoi(file.metadata().at("requests")); ++r) {
    const std::string request = "request/" + std::to_string(r) + "/";
    append(request + "dense/x", x_values);
    append(request + "ids/scene", scenes.ids);
    append(request + "lengths/item", scenes.sizes);
    for (const std::string name : {"scene", "mix_softmax", "mix_sigmoid", "mix_none", "ple_0", "ple_1", "ple_2"})
      append(request + "output/" + name, expected[name]);
  }
  const int64_t rows = scenes.rows();
  ASSERT_EQ(static_cast<int64_t>(x_values.size()), rows * 6);
  ASSERT_GT(rows, 16);
  const auto expect_right = [&](const std::string& name, const Value& y, double exactness = 1e-12) {
    SCOPED_TRACE(name);
    const std::vector<double>& theirs = expected.at(name);
    ASSERT_EQ(y.exact.value.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i) ASSERT_NEAR(y.exact.value[i], theirs[i], exactness);
    std::vector<float> values;
    for (const float16 value : y.memory->values()) values.push_back(to_float(value));
    expect_close(y.exact, values);
  };
  for_each_target([&](const Config& config) {
    ModelRun run(file, rows, config.target);
    const Value x = run.value(6, x_values);

    // First layers of all experts are one layer of all their outputs.
    const Value experts = run.linear("experts.1", run.linear("experts.0", x, 1, 6, 20, silu), 4, 5, 3, silu);
    std::vector<Value> towers;
    for (const Normalization normalization : {Normalization::softmax, Normalization::sigmoid, Normalization::none}) {
      const std::string name = name_of_enum(normalization);
      const Value gate = run.linear("gate_" + name, x, 1, 6, 4);
      Mlp tower;
      tower.x = Matrix<const float16>(experts.view());
      tower.mix.gate.values = Matrix<const float16>(gate.view());
      tower.mix.normalization = normalization;
      towers.push_back(run.mix(tower, propagate_mix(experts.exact, gate.exact, normalization, 4, 3), 3));
      expect_right("mix_" + name, towers.back());
    }
    CapacityMatrix<float> product(rows, 3, rows, true);
    const AxisInput<float16> factors[] = {{towers[0].view()}, {towers[1].view()}};
    Elementwise(Product{}, factors, product.view()).launch({});
    Propagated expected_product;
    for (size_t i = 0; i < towers[0].exact.value.size(); ++i) {
      const double a = towers[0].exact.value[i], b = towers[1].exact.value[i];
      const double of_a = towers[0].exact.error[i], of_b = towers[1].exact.error[i];
      expected_product.push_back(a * b, of_a * std::fabs(b) + (std::fabs(a) + of_a) * of_b + u * std::fabs(a * b));
    }
    expect_close(expected_product, product.values());

    // PLE: level 0 leaves the experts of all tasks and the shared one side by side.
    Value level = run.value(7 * 4);
    std::vector<Propagated> own;
    for (int task = 0; task < 4; ++task) {
      const std::string name = task < 3 ? "ple.0.task" + std::to_string(task) : "ple.0.shared";
      const int64_t num = task < 3 ? 2 : 1;
      const Value hidden = run.linear(name + ".0", x, 1, 6, num * 5, relu);
      const LinearCase& second = run.layer(name + ".1", num, 5, 4, relu);
      run.run(split_experts(run.on_device(second, hidden.view(), level.view().columns(task * 8, num * 4)), num));
      own.push_back(propagate_layer(hidden.exact, second, {true, false}, true));
    }
    const Matrix<const float16> at_level(level.view());
    const auto mixed_by = [&](const Value& gate, Matrix<const float16> experts_of_it, Matrix<const float16> shared) {
      Mlp stack;
      stack.x = experts_of_it;
      if (shared.data != nullptr) stack.mix.shared = shared;
      stack.mix.gate.values = Matrix<const float16>(gate.view());
      return stack;
    };
    const Propagated all = beside(beside(beside(own[0], 8, own[1], 8), 16, own[2], 8), 24, own[3], 4);
    const Value shared_gate = run.linear("ple.0.shared_gate", x, 1, 6, 7);
    const Value shared =
        run.linear_of_mix("ple.1.shared.0", mixed_by(shared_gate, at_level, {}),
                          propagate_mix(all, shared_gate.exact, Normalization::softmax, 7, 4), 4, 3, relu);
    for (int task = 0; task < 3; ++task) {
      const std::string t = std::to_string(task);
      const Value gate0 = run.linear("ple.0.gate" + t, x, 1, 6, 3);
      const Mlp input = mixed_by(gate0, at_level.columns(task * 8, 8), at_level.columns(24, 4));
      const Propagated mixed = propagate_mix(beside(own[static_cast<size_t>(task)], 8, own[3], 4), gate0.exact,
                                             Normalization::softmax, 3, 4);
      const Value experts1 = run.linear_of_mix("ple.1.task" + t + ".0", input, mixed, 4, 6, relu);
      const Value gate1 = run.linear_of_mix("ple.1.gate" + t, input, mixed, 4, 3);
      expect_right("ple_" + t, run.mix(mixed_by(gate1, experts1.view(), shared.view()),
                                       propagate_mix(beside(experts1.exact, 6, shared.exact, 3), gate1.exact,
                                                     Normalization::softmax, 3, 3),
                                       3));
    }

    // Scenes: the oracle computes all of them for every row.
    const DeviceScenes device_scenes(scenes, 0);
    device_scenes.rows().launch({});
    Value h = run.value(6, x_values);
    for (const int l : {0, 1}) {
      const int64_t in = l == 0 ? 6 : 5, out = l == 0 ? 5 : 2;
      const LinearCase& c = run.layer("scene." + std::to_string(l), 3, in, out, dice);
      Value y = run.value(out);
      LinearLayer layer = run.on_device(c, h.view(), y.view());
      layer.groups = device_scenes.groups();
      run.run(std::vector<LinearLayer>{layer});
      const Propagated of_all =
          propagate_layer(beside(beside(h.exact, in, h.exact, in), 2 * in, h.exact, in), c, {true, false}, true);
      const Sizes of_rows = scenes.of_rows();
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t scene = of_rows[static_cast<size_t>(r)];
        const Propagated own_columns = columns_of(of_all, 3 * out, scene % 3 * out, out);
        for (int64_t o = 0; o < out; ++o) {
          const auto at = static_cast<size_t>(r * out + o);
          y.exact.push_back(scene < 3 ? own_columns.value[at] : 0, scene < 3 ? own_columns.error[at] : 0);
        }
      }
      h = std::move(y);
    }
    expect_right("scene", h, 8 * u);  // Dice's scale and shift are FP32
  });
}

// ---- Counts

/// Rows of one scene make tiles of their own, and the products of no other are computed.
TEST(ExpertsCounts, ExecuteTheProductsOfEachRowsSceneAlone) {
  CountTable table(
      {"scenes", "rows", "layer", "target", "mma", "/ least", "/ one scene", "bytes read", "lists' bytes"});
  for (const int64_t num_scenes : {2, 8, 64})
    for (const int64_t rows : all_counts() ? Sizes{100, 500, 2000} : Sizes{100})
      for (const int target : {75, 80}) {
        Config config;
        config.target = target;
        config.schedule = simt::Schedule::forward;
        config.count_sectors = true;
        reset(config);
        // A scene for each of 10 users.
        Scenes scenes{num_scenes, {}, {}};
        for (int64_t i = 0; i < 10; ++i) scenes.ids.push_back(i * 7 % num_scenes), scenes.sizes.push_back(rows / 10);
        constexpr int64_t in = 256, out = 128;
        DeviceArray<float16> weights(num_scenes * PackedLinearLayout{in, out}.bytes() / 2, float16{});
        DeviceArray<float16> x(rows * in, float16{}), y(rows * out, float16{});
        const DeviceScenes device_scenes(scenes, 0);
        LinearLayer layer;
        layer.weights = weights.data();
        layer.x = {x.data(), rows, in};
        layer.y = Matrix<float16>(y.data(), rows, out);
        layer.groups = device_scenes.groups();
        DeviceLaunch launch({layer}, target);
        clear_counters();
        device_scenes.rows().launch({});
        synchronize();
        const int64_t list_sectors = counters().global_load_sectors + counters().global_store_sectors;
        clear_counters();
        launch.run();
        synchronize();
        const Sizes of_rows = scenes.of_rows();
        int64_t strips = 0;
        for (int64_t s = 0; s < num_scenes; ++s) strips += (std::count(of_rows.begin(), of_rows.end(), s) + 15) / 16;
        const int64_t per_strip = out / 8 * (in / (target >= 80 ? 16 : 8));
        EXPECT_EQ(counters().mma, strips * per_strip);
        table.add(num_scenes, rows, "256-128", target, counters().mma,
                  over(counters().mma, static_cast<double>(strips * per_strip)),
                  over(counters().mma, static_cast<double>((rows + 15) / 16 * per_strip)),
                  counters().global_load_sectors * 32, list_sectors * 32);
      }
}

#endif

}  // namespace
