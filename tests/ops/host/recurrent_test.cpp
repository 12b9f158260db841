// SPDX-License-Identifier: Apache-2.0
#include "warprank/ops/host/recurrent.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "guarded.hpp"
#include "reference/recurrent.hpp"
#include "support/host_op_testing.hpp"

namespace warprank { namespace {

using namespace test_support;

/// A layer with random weights, so small that errors do not grow from event to event.
struct RecurrentCase {
  reference::Recurrent settings;
  int64_t keys;  ///< columns of queries and keys

  RecurrentCase(RecurrentCell cell, int64_t hidden, int64_t keys = 3) : keys(keys) {
    settings.cell = cell, settings.hidden = hidden, settings.scale = 0.5;
    const auto values = [](int64_t count, uint32_t seed, float scale) {
      const AwkwardMatrix matrix = AwkwardMatrix(1, count).fill(seed, scale);
      return std::vector<float>(matrix.view().data, matrix.view().data + count);
    };
    settings.weight = values(3 * hidden * hidden, 3, 1 / static_cast<float>(hidden));
    settings.bias = values(3 * hidden, 4, 0.5f);
  }
  bool attends() const { return settings.cell != RecurrentCell::gru; }
  /// Runs the op with a workspace that faults where it is exceeded.
  void run(const host_ops::RecurrentInputs& in, Matrix<float> y) const {
    const host_ops::RecurrentLayer layer{
        settings.cell, host_ops::PackedLinear(settings.weight, settings.bias, settings.hidden, 3 * settings.hidden),
        static_cast<float>(settings.scale)};
    int64_t longest = 0;
    for (int64_t s = 0; s < in.events.count; ++s) longest = std::max(longest, in.events.size(s));
    const int64_t size = host_ops::recurrent_workspace(layer, longest);
    const test::GuardedMatrix workspace(1, size);
    host_ops::recurrent(layer, in, y, {workspace.view().data, size});
  }
};

void check(const RecurrentCase& layer, const OwnedSegments& rows, const OwnedSegments& events) {
  SCOPED_TRACE(std::string(name_of_enum(layer.settings.cell)) + " of " + std::to_string(layer.settings.hidden));
  const int64_t hidden = layer.settings.hidden, num_events = events.view().rows();
  const AwkwardMatrix gates = AwkwardMatrix(num_events, 3 * hidden).fill(1);
  host_ops::RecurrentInputs in{gates.view(), events.view(), {}, {}, {}};
  const AwkwardMatrix q = AwkwardMatrix(rows.view().rows(), layer.keys).fill(5);
  const AwkwardMatrix k = AwkwardMatrix(num_events, layer.keys).fill(6);
  if (layer.attends()) in.q = q.view(), in.k = k.view(), in.rows = rows.view();
  AwkwardMatrix y(layer.attends() ? rows.view().rows() : num_events, hidden);
  layer.run(in, y.view());
  expect_within(reference::recurrent(layer.settings, in.gates, in.events, in.q, in.k, in.rows), y.view(), 1);
  y.expect_guards_untouched();
}

constexpr RecurrentCell cells[] = {RecurrentCell::gru, RecurrentCell::augru, RecurrentCell::agru};

TEST(HostRecurrent, MatchesTheFormulaForEveryHiddenSize) {
  for_each_target([] {
    for (const RecurrentCell cell : cells)
      for (const int64_t hidden : {1, 2, 3, 5, 8, 16, 17, 36, 64, 100})
        for (const int64_t keys : {1, 8, 19}) check({cell, hidden, keys}, {3, 1, 2}, {4, 2, 7});
  });
}

TEST(HostRecurrent, MatchesTheFormulaForRaggedHistories) {
  for_each_target([] {
    for (const RecurrentCell cell : cells) {
      check({cell, 12}, {1, 0, 13, 2, 0, 100, 4, 1}, {0, 5, 1, 60, 0, 33, 1, 150});
      check({cell, 12}, {}, {});
      check({cell, 12}, {2, 3}, {0, 0});
      check({cell, 12}, {0, 0}, {3, 4});
    }
  });
}

TEST(HostRecurrent, TakesMoreHistoriesThanItDoesAtOnce) {
  for_each_target([] {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < 3 * host_ops::recurrent_rows + 5; ++i) lengths.push_back(i * 7 % 11);
    check({RecurrentCell::gru, 6}, {}, OwnedSegments(lengths));
    check({RecurrentCell::augru, 6}, OwnedSegments(lengths), OwnedSegments(lengths));
  });
}

/// Each state follows from the one before: with weights as large as trained ones, too.
TEST(HostRecurrent, TakesEachStepFromTheStateBefore) {
  for_each_target([] {
    RecurrentCase layer(RecurrentCell::gru, 24);
    for (float& weight : layer.settings.weight) weight *= 24;
    const OwnedSegments events({100});
    const AwkwardMatrix gates = AwkwardMatrix(100, 72).fill(1, 3);
    AwkwardMatrix y(100, 24);
    layer.run({gates.view(), events.view(), {}, {}, {}}, y.view());
    reference::Bounded expected;
    for (int64_t t = 0; t < 100; ++t) {
      reference::Bounded before{std::vector<double>(24), std::vector<double>(24)};
      for (int64_t c = 0; t > 0 && c < 24; ++c) before.value[static_cast<size_t>(c)] = y.at(t - 1, c);
      const reference::Bounded next = reference::next_state(layer.settings, before, gates.view().row(t), 1, 0, false);
      expected.value.insert(expected.value.end(), next.value.begin(), next.value.end());
      expected.bound.insert(expected.bound.end(), next.bound.begin(), next.bound.end());
    }
    expect_within(expected, y.view(), 1);
  });
}

TEST(HostRecurrent, GivesARowTheSameBitsAloneAndAmongOthers) {
  for_each_target([] {
    for (const RecurrentCell cell : cells) {
      const RecurrentCase layer(cell, 20);
      const OwnedSegments rows({1, 2, 1}), events({5, 9, 2});
      const AwkwardMatrix gates = AwkwardMatrix(16, 60).fill(1), q = AwkwardMatrix(4, 3).fill(5),
                          k = AwkwardMatrix(16, 3).fill(6);
      const Matrix<const float> g = gates.view();
      AwkwardMatrix together(layer.attends() ? 4 : 16, 20);
      layer.run({g, events.view(), q.view(), k.view(), rows.view()}, together.view());
      const OwnedSegments own_row({1}), own_events({9});
      AwkwardMatrix alone(layer.attends() ? 1 : 9, 20);
      layer.run({g.row_range(5, 9), own_events.view(), Matrix<const float>(q.view()).row_range(2, 1),
                 Matrix<const float>(k.view()).row_range(5, 9), own_row.view()},
                alone.view());
      expect_same_bits(Matrix<const float>(together.view()).row_range(layer.attends() ? 2 : 5, alone.view().rows),
                       alone.view());
    }
  });
}

TEST(HostRecurrent, KeepsNaNWithinItsHistory) {
  for_each_target([] {
    for (const RecurrentCell cell : cells) {
      const RecurrentCase layer(cell, 5);
      const OwnedSegments rows({1, 1, 1}), events({2, 3, 2});
      AwkwardMatrix gates = AwkwardMatrix(7, 15).fill(1);
      const AwkwardMatrix q = AwkwardMatrix(3, 3).fill(5), k = AwkwardMatrix(7, 3).fill(6);
      gates.at(3, 4) = NAN;  // of the second event of three
      AwkwardMatrix y(layer.attends() ? 3 : 7, 5);
      layer.run({gates.view(), events.view(), q.view(), k.view(), rows.view()}, y.view());
      for (int64_t r = 0; r < y.view().rows; ++r) {
        const bool is_after = layer.attends() ? r == 1 : r == 3 || r == 4;
        EXPECT_EQ(std::isnan(y.at(r, 4)), is_after) << name_of_enum(cell) << ", row " << r;
      }
    }
  });
}

}}  // namespace warprank
