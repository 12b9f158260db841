// SPDX-License-Identifier: Apache-2.0

/// Products of heads (ops/detail/mlp/product.cuh): whichever factor of a row is there last makes them, in every order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/mlp_case.hpp"
#include "support/message_of.hpp"
#include "warprank/ops/mlp.cuh"

namespace product_kernels {

/// Two factors of a row each, by one thread after the other.
WARPRANK_KERNEL(32, 1)
multiply_two(const warprank::detail::mlp::HeadFactor* factors, float first, float second) {
  const int64_t row = warprank::device::thread_rank();
  warprank::detail::mlp::multiply_head(factors, 0, 1, row, first);
  warprank::detail::mlp::multiply_head(factors, 1, 1, row, second);
}

}  // namespace product_kernels

namespace {

using namespace kernel_testing;  // NOLINT: this is a test of kernels
using namespace warprank;        // NOLINT
using testing::HasSubstr;
using warprank::test_support::message_of;

using Sizes = std::vector<int64_t>;

/// Towers of 35 rows of a capacity, and products of their heads.
struct Towers {
  Towers(int64_t capacity, int64_t count, bool half_y = false) : capacity(capacity) {
    for (int64_t i = 0; i < count; ++i) {
      Extras extras;
      extras.more_rows = capacity - 35;
      extras.half_y = half_y;
      cases.emplace_back(35, Sizes{24 + 8 * i, 40, 1}, std::vector<Activation>{relu, sigmoid}, extras);
      devices.push_back(std::make_unique<DeviceMlp>(cases.back()));
    }
    for (const auto& device : devices) {
      stacks.push_back(device->view());
      stacks.back().num_rows = stacks[0].num_rows;  // one axis
    }
  }
  void add_product(Sizes of) {
    factors.push_back(std::make_unique<Sizes>(std::move(of)));
    y.push_back(std::make_unique<CapacityMatrix<float>>(35, 1, capacity, true));
    products.push_back({*factors.back(), y.back()->view()});
  }
  MlpLaunch launch(int target) {
    MlpLaunch made(stacks, target, false, products);
    workspace = std::make_unique<DeviceArray<unsigned char>>(made.workspace_bytes(), static_cast<unsigned char>(0));
    descriptors = std::make_unique<DeviceArray<unsigned char>>(made.descriptors(workspace->data()));
    return made;
  }
  warprank::LaunchMemory memory() const { return {descriptors->data(), workspace->data()}; }

  int64_t capacity;
  std::vector<MlpCase> cases;
  std::vector<std::unique_ptr<DeviceMlp>> devices;
  std::vector<Mlp> stacks;
  std::vector<std::unique_ptr<Sizes>> factors;
  std::vector<std::unique_ptr<CapacityMatrix<float>>> y;
  std::vector<HeadProduct> products;
  std::unique_ptr<DeviceArray<unsigned char>> workspace, descriptors;
};

/// Of the values that the heads are, which FP32 outputs hold: ((a b) c) d.
std::vector<float> product_of(const Towers& towers, const Sizes& factors) {
  std::vector<float> y = towers.devices[static_cast<size_t>(factors[0])]->values();
  for (size_t f = 1; f < factors.size(); ++f) {
    const std::vector<float> next = towers.devices[static_cast<size_t>(factors[f])]->values();
    for (size_t r = 0; r < y.size(); ++r) y[r] *= next[r];
  }
  return y;
}

/// Blocks that share a tile, and blocks of 16 and of 32 rows.
Sizes capacities(int target) { return target >= 80 ? Sizes{48, 1700, 1800} : Sizes{35, 600, 700}; }

TEST(MlpProducts, HaveTheSameBitsWhoeverIsThereLast) {
  for_each_target([](const Config& of_target) {
    for (const int64_t capacity : capacities(of_target.target))
      for (const int resident : {1, 3, 64}) {
        SCOPED_TRACE("capacity " + std::to_string(capacity) + ", blocks together " + std::to_string(resident));
        Config config = of_target;
        config.resident_blocks = resident;
        in_every_order(
            [&] {
              Towers towers(capacity, 4);
              // One in several products, as pCTR is; products of more factors, whose order is not that of the stacks.
              for (const Sizes& factors : {Sizes{0, 1}, Sizes{2, 0}, Sizes{3, 0, 2}, Sizes{1, 3, 0, 2}})
                towers.add_product(factors);
              const MlpLaunch launch = towers.launch(config.target);
              std::vector<float> all;
              for (int turn = 0; turn < 3; ++turn) {  // the words are clear again
                launch.launch(towers.memory());
                for (size_t p = 0; p < towers.products.size(); ++p) {
                  const std::vector<float> y = towers.y[p]->values();
                  EXPECT_EQ(y, product_of(towers, *towers.factors[p])) << "product " << p << ", launch " << turn;
                  all.insert(all.end(), y.begin(), y.end());
                }
              }
              for (size_t i = 0; i < towers.cases.size(); ++i)
                expect_close(propagate(towers.cases[i]), towers.devices[i]->values());
              return all;
            },
            build == Build::plain ? 2 : 1, config);
        if (build != Build::plain) break;
      }
  });
}

TEST(MlpProducts, AreMadeOfFewerRowsAtTheNextLaunch) {
  for_each_target([](const Config& config) {
    for (const int64_t capacity : capacities(config.target)) {
      Towers towers(capacity, 2);
      towers.add_product({0, 1});
      const MlpLaunch launch = towers.launch(config.target);
      for (const int64_t rows : {35, 9, 0, 20, 35}) {
        CapacityMatrix<float> y(rows, 1, capacity, true);
        towers.products[0].y = y.view();
        const MlpLaunch moved(towers.stacks, config.target, false, towers.products);
        towers.descriptors->write(moved.descriptors(towers.workspace->data()));
        towers.devices[0]->first().num_rows().write({rows});
        launch.launch(towers.memory());
        std::vector<float> expected = product_of(towers, {0, 1});
        expected.resize(static_cast<size_t>(rows));
        EXPECT_EQ(y.values(), expected) << rows << " rows";
      }
    }
  });
}

/// Whatever the bits: the word of a factor is never that of none.
TEST(MlpProducts, TakeEveryBitPattern) {
  reset();
  const auto of_bits = [](uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  for (const uint32_t bits : {0u, 0x80000000u, 0x3f800000u, 0x7f800000u, 0x7fffffffu, 0xffffffffu, 0xff800000u}) {
    DeviceArray<uint32_t> words(32, 0u);
    DeviceArray<float> y(32, 7.0f);
    DeviceArray<warprank::detail::mlp::HeadFactor> factors(2, {words.data(), y.data(), 1, 0, -1});
    device::launch({1, 32}, product_kernels::multiply_two,
                   static_cast<const warprank::detail::mlp::HeadFactor*>(factors.data()), of_bits(bits), 2.0f);
    const float expected = of_bits(bits) * 2;
    for (const float got : y.read())
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected) << std::hex << bits << " gives " << got;
    EXPECT_EQ(words.read(), std::vector<uint32_t>(32, 0u)) << std::hex << bits;
  }
}

/// A factor that is NaN or infinite is there like any other, and gets into its own row alone.
TEST(MlpProducts, PassOnNaN) {
  for_each_target([](const Config& config) {
    Towers towers(48, 2);
    towers.add_product({0, 1});
    const int64_t cols = towers.stacks[0].x.cols;
    std::vector<float> x = towers.cases[0].layers[0].inputs.x;
    x[static_cast<size_t>(7 * cols)] = std::numeric_limits<float>::quiet_NaN();
    CapacityMatrix<float16> with_nan(35, cols, 48, true, x);
    towers.stacks[0].x = Matrix<const float16>(with_nan.view());
    const MlpLaunch launch = towers.launch(config.target);
    launch.launch(towers.memory());
    const std::vector<float> y = towers.y[0]->values(), expected = product_of(towers, {0, 1});
    for (size_t r = 0; r < 35; ++r)
      if (r == 7)
        EXPECT_TRUE(std::isnan(y[r]));
      else
        EXPECT_EQ(y[r], expected[r]) << "row " << r;
    launch.launch(towers.memory());
    EXPECT_TRUE(std::isnan(towers.y[0]->values()[7])) << "the word was not cleared";
  });
}

TEST(MlpProducts, MayBeFP16) {
  for_each_target([](const Config& config) {
    Towers towers(48, 2);
    CapacityMatrix<float16> y(35, 1, 48, false);
    const Sizes factors = {1, 0};
    towers.products.push_back({factors, y.view()});
    towers.launch(config.target).launch(towers.memory());
    const std::vector<float> expected = rounded(product_of(towers, factors));
    const std::vector<float16> got = y.values();
    for (size_t r = 0; r < expected.size(); ++r) EXPECT_EQ(to_float(got[r]), expected[r]) << "row " << r;
  });
}

TEST(MlpProducts, RefuseWhatIsNoHead) {
  for_each_target([](const Config& config) {
    Towers towers(48, 3);
    MlpCase wide(35, {24, 40, 2}, {relu, sigmoid});
    DeviceMlp wide_device(wide);
    towers.stacks.push_back(wide_device.view());
    CapacityMatrix<float> y(35, 1, 48, true), short_y(35, 1, 40, true);
    const auto refused = [&](const Sizes& factors, FloatMatrix<void> to) {
      const std::vector<HeadProduct> products = {{factors, to}};
      return message_of([&] { MlpLaunch(towers.stacks, config.target, false, products); });
    };
    EXPECT_THAT(refused({0}, y.view()), HasSubstr("product 0 of heads: expected two stacks or more, got 1"));
    EXPECT_THAT(refused({0, 4}, y.view()), HasSubstr("expected stacks 0 to 3, got 4"));
    EXPECT_THAT(refused({9, 0}, y.view()), HasSubstr("expected stacks 0 to 3, got 9"));
    EXPECT_THAT(refused({-1, 0}, y.view()), HasSubstr("expected stacks 0 to 3, got -1"));
    EXPECT_THAT(refused({1, 1}, y.view()), HasSubstr("expected stacks that differ, got mlp 1 twice"));
    EXPECT_THAT(refused({0, 3}, y.view()), HasSubstr("a layer of one output, which is fused, got mlp 3"));
    EXPECT_THAT(refused({0, 1}, short_y.view()), HasSubstr("expected stacks of the same rows, got mlp 0 of others"));
    FloatMatrix<void> no_memory = y.view(), like_head = towers.stacks[2].y;
    no_memory.data = nullptr;
    EXPECT_THAT(refused({0, 1}, no_memory), HasSubstr("product 0 of heads"));
    EXPECT_THAT(refused({0, 1}, like_head), HasSubstr("memory of its own"));
    const Sizes factors = {0, 1};
    const std::vector<HeadProduct> many(256, {factors, y.view()});
    EXPECT_THAT(message_of([&] { MlpLaunch(towers.stacks, config.target, false, many); }),
                HasSubstr("products of heads: expected at most 255, got 256"));
    const std::vector<Mlp> crowd(258, towers.stacks[0]);
    EXPECT_THAT(message_of([&] { MlpLaunch(crowd, config.target, false, Span<const HeadProduct>(many.data(), 1)); }),
                HasSubstr("stacks with products of heads: expected at most 257, got 258"));
    towers.stacks[1].num_rows = nullptr;
    EXPECT_THAT(refused({0, 1}, y.view()), HasSubstr("expected stacks of the same rows, got mlp 1 of others"));
  });
}

}  // namespace
