// SPDX-License-Identifier: Apache-2.0

// Where the scales and offsets of I8 rows are: in arrays of their own, in turns, or behind each row.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/embedding_bag_testing.hpp"
#include "support/counts.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/ops/scaled_rows.hpp"

namespace warprank { namespace {

using namespace embedding_bag_testing;  // NOLINT: written for these tests

TEST(EmbeddingBagScalesKernel, GivesTheSameBitsWhereverScalesAre) {
  const std::vector<int64_t> sizes{3, 0, 1, 33, 2 * piece + 3, 70, 4};
  struct Use {
    Pooling pooling;
    int64_t weights_stride;
    bool half_output;
  };
  const std::vector<Use> uses{{Pooling::none, 0, true},
                              {Pooling::sum, 0, true},
                              {Pooling::mean, 0, false},
                              {Pooling::sum, 1, false},
                              {Pooling::max, 0, true}};
  for (const int64_t dim : {3, 8, 12, 16, 128, 264}) {
    reset();
    std::vector<TestBags> all;
    for (const Use& use : uses) {
      for (const Scales scales : {Scales::apart, Scales::in_turns, Scales::behind}) {
        std::mt19937_64 random(static_cast<uint64_t>(dim));
        const auto table = std::make_shared<TestTable>(DType::i8, dim, 50, true, 0, random, scales);
        const Form form = use.pooling == Pooling::none ? Form::each : Form::offsets;
        all.push_back(make_bags(table, false, form, sizes, use.pooling, use.weights_stride, random));
        all.back().half_output = use.half_output;
      }
    }
    const std::vector<Result> results = look_up(all);
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(describe(all[i]) + ", layout " + std::to_string(i % 3));
      expect_right(all[i], results[i]);
      EXPECT_EQ(results[i].y, results[i / 3 * 3].y);
      if (HasFailure()) return;
    }
  }
}

TEST(EmbeddingBagScalesKernel, ReadsRowsThatWereConverted) {
  for (const DType type : row_types) {
    for (const int64_t dim : {1, 7, 16, 36}) {
      reset();
      std::mt19937_64 random(static_cast<uint64_t>(dim));
      auto table = std::make_shared<TestTable>(type, dim, 40, true, 2, random);
      std::vector<unsigned char> rows(static_cast<size_t>(40 * scaled_row_bytes(dim)));
      to_scaled_rows(table->view, 0, 40, rows.data());
      const float* const default_row = table->view.default_row;
      table->rows = rows;
      table->scales = Scales::behind;
      table->view = view_scaled_rows(table->rows.data(), 40, dim);
      table->view.default_row = default_row;
      std::vector<TestBags> all{make_bags(table, false, Form::each, {1, 1, 1, 1, 1}, Pooling::none, 0, random),
                                make_bags(table, false, Form::offsets, {3, 0, 40}, Pooling::mean, 0, random)};
      expect_right(all);
    }
  }
}

TEST(EmbeddingBagScalesKernel, ReachesScalesBeyondTwoToThe32Bytes) {
  if (kernel_testing::build != Build::plain) GTEST_SKIP() << "reserved memory, of the executor's plain build";
  reset();
  constexpr int64_t num_rows = int64_t{1} << 30, dim = 8, bytes = scaled_row_bytes(dim);
  DeviceArray<unsigned char> rows(num_rows * bytes);
  DeviceArray<float> scales(2 * num_rows), y(4 * dim);
  const std::vector<int64_t> ids{num_rows - 1, int64_t{1} << 28};
  for (const int64_t id : ids) {
    const std::vector<float> both{static_cast<float>(id % 7 + 1), static_cast<float>(id % 5)};
    std::vector<unsigned char> row(static_cast<size_t>(bytes), 3);
    std::memcpy(row.data() + bytes - 8, both.data(), 8);
    rows.write(row, id * bytes);
    scales.write(both, 2 * id);
  }
  const DeviceArray<int64_t> device_ids(ids);
  BagFeature feature;
  feature.table = view_scaled_rows(rows.data(), num_rows, dim);
  IdArray array;
  array.ids = device_ids.data();
  feature.ids = array;
  feature.num_bags.capacity = 2;
  feature.y = Matrix<float>(y.data(), 2, dim);
  std::vector<BagFeature> features{feature, feature};
  TableView& apart = features[1].table;
  apart.scale = scales.data(), apart.offset = scales.data() + 1, apart.scale_stride_bytes = 8;
  features[1].y = Matrix<float>(y.data() + 2 * dim, 2, dim);
  const EmbeddingBag op(features);
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  for (int64_t row = 0; row < 4; ++row) {
    const int64_t id = ids[static_cast<size_t>(row % 2)];
    const auto expected = static_cast<float>(3 * (id % 7 + 1) + id % 5);
    EXPECT_EQ(y.read(row * dim, dim), std::vector<float>(dim, expected)) << row;
  }
}

TEST(EmbeddingBagScalesKernel, RefusesWhatDoesNotFit) {
  reset();
  std::mt19937_64 random(13);
  const auto table = std::make_shared<TestTable>(DType::i8, 8, 20, true, 0, random, Scales::behind);
  const TestBags good = make_bags(table, false, Form::offsets, {3, 2}, Pooling::mean, 0, random);
  for (const int64_t stride : {int64_t{0}, int64_t{-4}, int64_t{18}, int64_t{1} << 32}) {
    expect_refused(good, "scale stride: expected a multiple of 4 up to 4294967295 bytes, got " + std::to_string(stride),
                   [&](BagFeature& f) { f.table.scale_stride_bytes = stride; });
  }
  expect_refused(good, "y of feature 0: expected memory of its own, got an overlap with scale of feature 0",
                 [](BagFeature& f) {
                   auto& y = std::get<Matrix<float>>(f.y);
                   f.table.scale = y.data - 16, f.table.scale_stride_bytes = 8;
                 });
}

#if !defined(__CUDACC__)
/// Sectors of 32 bytes from `begin` on.
int64_t sectors_of(const void* begin, int64_t bytes) {
  const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % 32);
  return (at + bytes + 31) / 32;
}
#endif

TEST(EmbeddingBagCounts, ReadsScaleAndOffsetWithTheRow) {
  if (kernel_testing::build != Build::plain) GTEST_SKIP() << "counted once, by the executor's plain build";
#if !defined(__CUDACC__)
  kernel_testing::CountTable table({"dim", "scales", "sectors", "/ row", "/ least"});
  constexpr int64_t bags = 64, length = 20, num_ids = bags * length;
  for (const int64_t dim : {16, 32, 64, 128}) {
    int64_t before = 0;
    for (const Scales scales : {Scales::apart, Scales::in_turns, Scales::behind}) {
      Config config;
      config.count_sectors = true;
      reset(config);
      std::mt19937_64 random(11);
      const auto rows = std::make_shared<TestTable>(DType::i8, dim, 5000, false, 0, random, scales);
      TestBags pooled =
          make_bags(rows, false, Form::offsets, std::vector<int64_t>(bags, length), Pooling::sum, 0, random);
      for (int64_t& id : pooled.ids) id = static_cast<int64_t>(random() % 5000);
      DeviceBags device({pooled});
      device.features()[0].counters = nullptr;
      device.prepare();
      clear_counters();
      device.launch();
      kernel_testing::synchronize();
      // Values, one load for what is side by side, and two ids by one; offsets of bags are not among the least.
      const TableView& view = device.features()[0].table;
      int64_t least = num_ids / 2;
      for (const int64_t id : pooled.ids) {
        least += sectors_of(view.row(id), dim);
        least += scales == Scales::apart ? 2 : sectors_of(view.scale_of(id), 8);
      }
      const int64_t sectors = counters().global_load_sectors;
      const char* const names[] = {"apart", "in turns", "behind"};
      table.add(dim, names[static_cast<int>(scales)], sectors, kernel_testing::over(sectors, num_ids),
                kernel_testing::over(sectors, least));
      EXPECT_GE(sectors, least);
      EXPECT_LE(static_cast<double>(sectors), 1.05 * static_cast<double>(least));
      if (scales == Scales::apart) before = sectors;
      if (scales == Scales::behind) {
        EXPECT_LT(sectors, before) << dim;
      }
    }
  }
#endif
}

}}  // namespace warprank
