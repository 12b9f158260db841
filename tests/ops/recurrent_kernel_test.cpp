// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/recurrent.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/recurrent.hpp"
#include "support/axis_input_testing.hpp"
#include "support/far_away.hpp"
#include "support/kernel_testing.hpp"
#include "support/narrowed.hpp"

namespace {

using namespace kernel_testing;  // NOLINT
using warprank::float16;
using warprank::Matrix;
using warprank::Recurrent;
using warprank::RecurrentCell;
using warprank::RecurrentInputs;
using warprank::RecurrentShape;
using warprank::Segments;

/// A layer and histories for it, on the host, as FP16 numbers; weights are so small that errors do not grow from event
/// to event.
struct Case {
  warprank::reference::Recurrent layer;
  std::vector<int64_t> events, rows;  // offsets
  AxisValues gates, q, k;

  Case(RecurrentCell cell, int64_t hidden, const std::vector<int64_t>& num_rows, const std::vector<int64_t>& num_events,
       int64_t keys = 12, uint32_t seed = 1)
      : events(offsets_of(num_events)),
        rows(offsets_of(num_rows)),
        gates(random_values<float16>(events.back(), 3 * hidden, seed)),
        q(random_values<float16>(rows.back(), keys, seed + 1)),
        k(random_values<float16>(events.back(), keys, seed + 2)) {
    layer.cell = cell, layer.hidden = hidden, layer.scale = 0.5;
    layer.weight = random_values<float16>(3 * hidden, hidden, seed + 3, 1 / static_cast<float>(hidden)).values;
    layer.bias = random_values<float>(1, 3 * hidden, seed + 4, 0.5f).values;
  }
  bool attends() const { return layer.cell != RecurrentCell::gru; }
  int64_t num_rows() const { return attends() ? rows.back() : events.back(); }
  Segments segments(const std::vector<int64_t>& offsets) const {
    return {offsets.data(), static_cast<int64_t>(offsets.size()) - 1};
  }
  DeviceArray<unsigned char> packed() const {
    const auto bytes = pack_recurrent(RecurrentShape{layer.hidden}, layer.weight, layer.bias);
    return DeviceArray<unsigned char>(std::vector<unsigned char>(bytes.data(), bytes.data() + bytes.size()));
  }
  warprank::RecurrentLayer on_device(const unsigned char* packed) const {
    return {layer.cell, {layer.hidden}, packed, static_cast<float>(layer.scale)};
  }
  warprank::reference::Bounded reference() const {
    const auto view = [](const AxisValues& of) { return Matrix<const float>(of.values.data(), of.rows, of.cols); };
    if (!attends()) return warprank::reference::recurrent(layer, view(gates), segments(events), {}, {}, {}, true);
    return warprank::reference::recurrent(layer, view(gates), segments(events), view(q), view(k), segments(rows), true);
  }
};

/// The case in device memory; there may be room for more parents than there are.
template <class Out>
struct OnDevice {
  DeviceMatrix<float16> gates, q, k;
  DeviceMatrix<Out> y;
  DeviceArray<int64_t> events, rows, num_parents;
  DeviceArray<unsigned char> packed;

  explicit OnDevice(const Case& given, Placement placement = {})
      : gates(on_device(given.gates, placement)),
        q(on_device(given.q, placement)),
        k(on_device(given.k, placement)),
        y(given.num_rows(), given.layer.hidden, given.layer.hidden + placement.gap, placement.skip),
        events(given.events),
        rows(given.rows),
        num_parents(std::vector<int64_t>{static_cast<int64_t>(given.events.size()) - 1}),
        packed(given.packed()) {}
  static DeviceMatrix<float16> on_device(const AxisValues& of, Placement placement) {
    return {converted<float16>(of.values), of.rows, of.cols, of.cols + placement.gap, placement.skip};
  }
  RecurrentInputs inputs(const Case& given, int64_t more_parents = 0) {
    const auto parents = static_cast<int64_t>(given.events.size()) - 1;
    RecurrentInputs in{gates.view(), events.data(), {parents + more_parents, num_parents.data()}, {}, {}, nullptr};
    if (given.attends()) in.q = q.view(), in.k = k.view(), in.row_offsets = rows.data();
    return in;
  }
};

template <class Out>
std::vector<Out> run(const Case& given, Placement placement = {}, int64_t more_parents = 0) {
  OnDevice<Out> memory(given, placement);
  const Recurrent<Out> op(given.on_device(memory.packed.data()), memory.inputs(given, more_parents), memory.y.view());
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  return memory.y.read();
}

template <class Out>
void expect_reference(const Case& given, Placement placement = {}, int seeds = 1, const Config& config = {}) {
  SCOPED_TRACE(std::string(name_of_enum(given.layer.cell)) + " of " + std::to_string(given.layer.hidden) +
               ", keys of " + std::to_string(given.q.cols));
  expect_within(given.reference(), in_every_order([&] { return run<Out>(given, placement, 3); }, seeds, config), 1);
}

constexpr RecurrentCell cells[] = {RecurrentCell::gru, RecurrentCell::augru, RecurrentCell::agru};

template <class Out>
class RecurrentKernel : public testing::Test {};
using Outs = testing::Types<float, float16>;
TYPED_TEST_SUITE(RecurrentKernel, Outs, );

TYPED_TEST(RecurrentKernel, MatchesTheFormulaForEveryHiddenSize) {
  for_each_target([](const Config& config) {
    for (const RecurrentCell cell : cells)
      for (const int64_t hidden : {1, 7, 8, 16, 17, 33, 36, 64, 65, 100, 128})
        expect_reference<TypeParam>({cell, hidden, {3, 1}, {4, 3}, hidden % 3 == 0 ? 7 : 8}, {}, 1, config);
  });
}

TYPED_TEST(RecurrentKernel, CutsHistoriesIntoBlocksOfEverySize) {
  for_each_target([](const Config& config) {
    for (const RecurrentCell cell : cells) {
      expect_reference<TypeParam>({cell, 12, {}, {}}, {}, 1, config);
      expect_reference<TypeParam>({cell, 12, {0, 0}, {3, 4}}, {}, 1, config);
      expect_reference<TypeParam>({cell, 12, {2, 3}, {0, 0}}, {}, 1, config);
      expect_reference<TypeParam>({cell, 12, {1, 0, 13, 2, 0, 17, 4, 1}, {0, 5, 1, 30, 0, 3, 1, 9}}, {}, 1, config);
      expect_reference<TypeParam>({cell, 12, std::vector<int64_t>(37, 1), std::vector<int64_t>(37, 2)}, {}, 1, config);
    }
  });
}

/// More events than scores are in shared memory together.
TYPED_TEST(RecurrentKernel, TakesHistoriesOfAnyLength) {
  for (const RecurrentCell cell : cells)
    for (const int64_t length : {127, 128, 129, 300}) expect_reference<TypeParam>({cell, 9, {2, 1}, {length, 140}});
}

TYPED_TEST(RecurrentKernel, TakesRowsThatAreStridedAndMisalignedInEveryOrder) {
  for (const RecurrentCell cell : cells)
    for (const Placement placement :
         {Placement{8, 8}, Placement{4, 4}, Placement{2, 2}, Placement{8, 1}, Placement{3, 0}})
      expect_reference<TypeParam>({cell, 20, {5, 12, 1}, {2, 4, 3}}, placement, 5);
}

/// Each state follows from the one before: with weights as large as trained ones, too.
TEST(RecurrentKernelSteps, FollowFromTheStateBefore) {
  Case given(RecurrentCell::gru, 36, {}, {100});
  for (float& weight : given.layer.weight) weight = warprank::to_float(warprank::to_float16(36 * weight));
  reset();
  const std::vector<float> y = run<float>(given);
  warprank::reference::Bounded expected;
  for (size_t t = 0; t < 100; ++t) {
    warprank::reference::Bounded before{std::vector<double>(36), std::vector<double>(36)};
    for (size_t c = 0; t > 0 && c < 36; ++c) before.value[c] = static_cast<double>(y[(t - 1) * 36 + c]);
    const auto next =
        warprank::reference::next_state(given.layer, before, given.gates.values.data() + t * 108, 1, 0, true);
    expected.value.insert(expected.value.end(), next.value.begin(), next.value.end());
    expected.bound.insert(expected.bound.end(), next.bound.begin(), next.bound.end());
  }
  expect_within(expected, y, 1);
}

TYPED_TEST(RecurrentKernel, GivesARowTheSameBitsAloneAndAmongOthers) {
  const auto floats_of = [](const std::vector<TypeParam>& values) {
    std::vector<float> floats;
    for (const TypeParam value : values) floats.push_back(warprank::to_float(value));
    return floats;
  };
  for (const RecurrentCell cell : cells) {
    const Case all(cell, 20, {9, 3, 12}, {5, 9, 130});
    reset();
    const std::vector<float> together = floats_of(run<TypeParam>(all));
    Case alone = all;  // the second history, and the second row below it
    alone.events = {0, 9}, alone.rows = {0, 1};
    const auto cut = [](AxisValues& of, int64_t first, int64_t count) {
      of.values = {of.values.begin() + first * of.cols, of.values.begin() + (first + count) * of.cols};
      of.rows = count;
    };
    cut(alone.gates, 5, 9), cut(alone.k, 5, 9), cut(alone.q, 10, 1);
    reset();
    const int64_t first = all.attends() ? 10 : 5, count = all.attends() ? 1 : 9;
    EXPECT_EQ(floats_of(run<TypeParam>(alone)),
              std::vector<float>(together.begin() + first * 20, together.begin() + (first + count) * 20));
  }
}

TEST(RecurrentKernelRows, KeepNaNAndInfinityWithinTheirHistory) {
  for (const RecurrentCell cell : cells) {
    Case given(cell, 12, {1, 2, 1}, {3, 3, 2});
    given.gates.values[4 * 36 + 7] = NAN;  // of the second history's second event
    given.k.values[12] = INFINITY;         // a score of the first history
    reset();
    const std::vector<float> y = run<float>(given);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / 12;
      const bool is_after = given.attends() ? row == 1 || row == 2 : row == 4 || row == 5;
      if (i % 12 == 7 || !is_after) {
        EXPECT_EQ(std::isnan(y[i]), is_after) << name_of_enum(cell) << ", " << i;
      }
    }
  }
}

/// Histories that others of the same batch had are not read.
TYPED_TEST(RecurrentKernel, FollowsTheCountInDeviceMemoryAndTakesOtherWeights) {
  for (const RecurrentCell cell : {RecurrentCell::gru, RecurrentCell::augru}) {
    const Case own(cell, 20, {9, 3, 12}, {5, 9, 2}), others(cell, 20, {9, 3, 12}, {5, 9, 2}, 12, 50);
    in_every_order(
        [&] {
          OnDevice<TypeParam> memory(own);
          const DeviceArray<unsigned char> other_packed = others.packed();
          const auto made_with = [&](const unsigned char* weights) {
            return Recurrent<TypeParam>(own.on_device(weights), memory.inputs(own), memory.y.view());
          };
          const Recurrent<TypeParam> op = made_with(memory.packed.data());
          DeviceArray<unsigned char> descriptors(op.descriptors());
          for (const bool are_others : {false, true})
            for (const int64_t count : {3, 1, 0}) {
              if (are_others) descriptors.write(made_with(other_packed.data()).descriptors());
              Case counted = own;
              counted.events.resize(static_cast<size_t>(count) + 1),
                  counted.rows.resize(static_cast<size_t>(count) + 1);
              if (are_others) counted.layer = others.layer;
              memory.num_parents.write({count});
              const auto view = memory.y.view();
              fill(view.data, 0xff, view.rows * view.cols * int64_t{sizeof(TypeParam)});
              synchronize();
              op.launch({descriptors.data()});
              std::vector<TypeParam> y = memory.y.read();
              const auto written = static_cast<size_t>(counted.num_rows() * view.cols);
              for (size_t i = written; i < y.size(); ++i) EXPECT_TRUE(std::isnan(warprank::to_float(y[i]))) << i;
              y.resize(written);
              expect_within(counted.reference(), y, 1);
            }
        },
        3);
  }
}

TEST(RecurrentKernelMemory, MayBeBeyondTwoToTheThirtyOneElements) {
  if constexpr (build == Build::asan) GTEST_SKIP() << "so much memory has no shadow";
  reset();
  const Case given(RecurrentCell::gru, 8, {}, {2, 1});
  const int64_t cols = 24, stride = (int64_t{1} << 30) + 8;  // 4 GB in three rows, mostly untouched
  DeviceArray<float16> gates(2 * stride + cols), y(2 * stride + 8);
  for (int64_t n = 0; n < 3; ++n) gates.write(converted<float16>(given.gates.row(n).values), n * stride);
  const DeviceArray<unsigned char> packed = given.packed();
  const DeviceArray<int64_t> events(given.events);
  const Recurrent<float16> op(
      given.on_device(packed.data()),
      {Matrix<const float16>(gates.data(), 3, cols, stride), events.data(), {2, nullptr}, {}, {}, nullptr},
      Matrix<float16>(y.data(), 3, 8, stride));
  const DeviceArray<unsigned char> descriptors(op.descriptors());
  op.launch({descriptors.data()});
  std::vector<float16> rows;
  for (int64_t n = 0; n < 3; ++n)
    for (const float16 value : y.read(n * stride, 8)) rows.push_back(value);
  expect_within(given.reference(), rows, 1);
}

/// 100 items of DIEN with 100 events.
TEST(RecurrentKernelCounts, StoresResultsInOneLaunchAndNothingElse) {
  if constexpr (build == Build::plain) {
    Config config;
    config.count_sectors = true;
    for (const RecurrentCell cell : {RecurrentCell::gru, RecurrentCell::augru}) {
      reset(config);
      const Case given(cell, 48, {100}, {100}, 48);
      clear_counters();
      run<float16>(given);
      EXPECT_EQ(counters().launches, 1);
      EXPECT_EQ(counters().atomics, 0);
      EXPECT_EQ(counters().global_store_sectors, 100 * 48 / 8);  // a warp stores half a sector of each row
    }
  } else {
    GTEST_SKIP() << "counted in the plain build";
  }
}

TEST(RecurrentKernelArguments, AreRefusedWhereTheyDoNotFit) {
  alignas(16) float16 from[64] = {};
  alignas(16) unsigned char packed[16] = {};
  const int64_t offsets[2] = {};
  auto* const to = warprank::test_support::far_away<float>();
  struct Given {
    warprank::RecurrentLayer layer;
    RecurrentInputs in;
    Matrix<float> y;
  };
  const auto refusal = [&](const std::function<void(Given&)>& change) -> std::string {
    Given given{{RecurrentCell::augru, {4}, packed, 1},
                {{from, 3, 12}, offsets, {1, nullptr}, {from, 2, 5}, {from, 3, 5}, offsets},
                {to, 2, 4}};
    change(given);
    try {
      Recurrent<float> made(given.layer, given.in, given.y);
    } catch (const warprank::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal([](auto&) {}), "nothing was thrown");
  for (const int64_t hidden : {0, 129})
    EXPECT_EQ(refusal([&](auto& given) { given.layer.shape.hidden = hidden; }),
              "recurrent: hidden: expected 1 to 128 columns, got " + std::to_string(hidden));
  EXPECT_EQ(refusal([](auto& given) { given.in.gates.cols = 11; }), "recurrent: gates: expected 12 columns, got 11");
  EXPECT_EQ(refusal([](auto& given) { given.y.cols = 3; }), "recurrent: y: expected 4 columns, got 3");
  EXPECT_EQ(refusal([](auto& given) { given.in.k.cols = 4; }), "recurrent: k: expected 5 columns, got 4");
  EXPECT_EQ(refusal([](auto& given) { given.in.k.rows = 2; }), "recurrent: k: expected 3 rows, got 2");
  EXPECT_EQ(refusal([](auto& given) { given.in.q.rows = 1; }), "recurrent: q: expected 2 rows, got 1");
  EXPECT_EQ(refusal([](auto& given) { given.in.q.cols = given.in.k.cols = 0; }),
            "recurrent: q: expected 1 to 16777216 columns, got 0");
  EXPECT_EQ(refusal([](auto& given) { given.layer.cell = RecurrentCell::gru; }),
            "recurrent: y: expected 3 rows, got 2");
  EXPECT_EQ(refusal([](auto& given) { given.in.row_offsets = nullptr; }),
            "recurrent: row_offsets: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& given) { given.in.event_offsets = nullptr; }),
            "recurrent: event_offsets: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& given) { given.in.parents.capacity = int64_t{1} << 31; }),
            "recurrent: events, rows and parents: expected 0 to 1073741824 of each, got 3, 2 and 2147483648");
  EXPECT_EQ(refusal([](auto& given) { given.in.parents.capacity = -1; }),
            "recurrent: events, rows and parents: expected 0 to 1073741824 of each, got 3, 2 and -1");
  EXPECT_EQ(refusal([](auto& given) { given.layer.packed = nullptr; }),
            "recurrent: packed: expected device memory, got null");
  EXPECT_EQ(refusal([](auto& given) { given.y.data = nullptr; }), "recurrent: y: expected an address, got null");
  const std::string not_finite = refusal([](auto& given) { given.layer.scale = NAN; });
  EXPECT_NE(not_finite.find("recurrent: scale: expected a number that is finite times log2(e)"), std::string::npos)
      << not_finite;
}

}  // namespace
