// SPDX-License-Identifier: Apache-2.0

/// Resident, by primitives of each kind: without memory, with a workspace, and with descriptors that hold addresses in
/// it.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/linear_case.hpp"
#include "ops/mlp_case.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/linear.cuh"
#include "warprank/ops/mlp.cuh"
#include "warprank/ops/resident.hpp"

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT

constexpr Tiling in_parts{warprank::LinearTile::staged_64x64, 3};

/// So deep that it can be cut into parts.
LinearCase deep_case() {
  Extras extras;
  extras.half_y = false;
  return LinearCase(20, 600, 40, extras);
}
/// Gives parts of an array, and counts.
class Counted {
 public:
  struct Part {
    unsigned char* data() const { return at; }
    unsigned char* at = nullptr;
  };
  explicit Counted(unsigned char* memory, int64_t offset = 0) : memory_(memory + offset) {}
  Part operator()(int64_t bytes, const std::string&) {
    EXPECT_GT(bytes, 0);
    unsigned char* const at = memory_ + *used_;
    *used_ += (bytes + 255) / 256 * 256;
    return {at};
  }
  int64_t used() const { return *used_; }

 private:
  unsigned char* memory_;
  std::shared_ptr<int64_t> used_ = std::make_shared<int64_t>(0);
};

struct Nothing {
  Counted::Part operator()(int64_t, const std::string&) const { return {}; }
};

template <class F>
std::string message_of(F&& f) {
  try {
    f();
    return "nothing";
  } catch (const invalid_argument& e) {
    return e.problems()[0].to_string();
  }
}

TEST(Resident, LaunchesWithMemoryOfItsOwn) {
  for_each_target([](const Config& config) {
    const LinearCase deep = deep_case();
    DeviceLayer layer(deep);
    const LinearLayer view = layer.view();
    const Resident linear(LinearLaunch({&view, 1}, config.target, in_parts));
    EXPECT_GT(linear.op().workspace_bytes(), 0);
    const Stream stream = create_stream();
    linear.launch(stream);
    linear.launch(stream);
    layer.expect_right();

    const MlpOfTwoLaunches two(config.target);
    const Resident mlp(two.launch());
    mlp.launch(stream);
    mlp.launch(stream);
    two.expect_right();
  });
}

TEST(Resident, WantsNoMemoryForWhatNeedsNone) {
  reset({});
  DeviceArray<float16> x(std::vector<float16>(8 * 16, to_float16(0.5f)));
  DeviceArray<float16> y(8);
  const AxisInput<float16> input{Matrix<const float16>(x.data(), 8, 16), nullptr, nullptr};
  const Resident<Fm<float16, float16>, Nothing> fm(
      Fm<float16, float16>({&input, 1}, 8, Matrix<float16>(y.data(), 8, 1), nullptr, {true}), {}, Nothing{});
  fm.launch();
  EXPECT_EQ(to_float(y.read()[7]), 2.0f) << "8 products of halves";
}

TEST(Resident, TakesMemoryThatIsGivenAndNoMore) {
  for_each_target([](const Config& config) {
    const MlpOfTwoLaunches two(config.target);
    const MlpLaunch& launch = two.launch();
    const auto rounded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const int64_t needed = rounded(launch.workspace_bytes()) + rounded(launch.descriptor_bytes());
    DeviceArray<unsigned char> memory(needed + 512, static_cast<unsigned char>(7));
    const Counted counted(memory.data());
    const Resident<MlpLaunch, Counted> mlp(launch, {}, counted);
    EXPECT_EQ(counted.used(), needed);
    mlp.launch();
    two.expect_right();

    const auto made_of = [&](auto allocate) {
      return message_of([&] { Resident<MlpLaunch, decltype(allocate)>(launch, {}, allocate); });
    };
    EXPECT_EQ(made_of(Nothing{}), "a workspace of a primitive: expected device memory, got null");
    EXPECT_EQ(made_of(Counted(memory.data(), 64)),
              "a workspace of a primitive: expected memory aligned to 256 bytes, got an address that is not");
  });
}

TEST(Resident, ReplacesWhatACapturedGraphComputes) {
  for_each_target([](const Config& config) {
    const LinearCase c = deep_case();
    LinearCase other = c;
    for (float& weight : other.layer.weight) weight = -weight;
    DeviceLayer layer(c), with_other_weights(other);
    LinearLayer view = layer.view();
    Resident linear(LinearLaunch({&view, 1}, config.target, in_parts));
    const Stream stream = create_stream();
    begin_capture(stream);
    linear.launch(stream);
    const kernel_testing::Graph graph = end_capture(stream);
    kernel_testing::launch(graph, stream);
    layer.expect_right();

    view.weights = with_other_weights.packed().data();
    linear.replace(LinearLaunch({&view, 1}, config.target, in_parts), stream);
    kernel_testing::launch(graph, stream);
    EXPECT_EQ(layer.values(), run_cases({other}, config.target, true, in_parts)[0]);

    const LinearLayer two[] = {view, with_other_weights.view()};
    const std::string refusal = message_of([&] { linear.replace(LinearLaunch({two, 2}, config.target, in_parts)); });
    EXPECT_EQ(refusal.substr(0, 43), "Resident::replace: expected descriptors of ");
  });
}

}  // namespace
