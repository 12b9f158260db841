// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random layouts and valid requests, and what keep_last leaves of a request: row by row, from its definition.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "batch/blob_testing.hpp"

namespace warprank::batch_testing {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_); }
  bool chance(int percent) { return below(100) < percent; }
  int64_t id() { return static_cast<int64_t>(uint64_t{engine_()} << 32 | engine_()); }
  float value() { return static_cast<float>(below(2001) - 1000) / 8; }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

inline void choose_types(Graph& graph, Random& random) {
  for (IdsInfo& info : graph.ids) info.wire = static_cast<IdsWire>(random.below(2));
  for (DenseInfo& info : graph.dense) info.wire = static_cast<DenseWire>(random.below(3));
}

/// Up to 7 axes, nested in any way; some inputs with defaults, some axes with keep_last, some without inputs.
inline Graph random_graph(Random& random) {
  Graph graph;
  const int num_axes = static_cast<int>(1 + random.below(7));
  for (int a = 0; a < num_axes; ++a)
    graph.axes.push_back({"axis" + std::to_string(a), a == 0 ? -1 : static_cast<int>(random.below(a)),
                          a > 0 && random.chance(40) ? 1 + random.below(4) : 0});
  for (int64_t i = random.below(8); i > 0; --i) {
    graph.ids.push_back({"ids" + std::to_string(i), static_cast<int>(random.below(num_axes)), {}, {}});
    if (random.chance(40)) graph.ids.back().default_id = random.id();
  }
  for (int64_t i = random.below(5); i > 0; --i) {
    graph.dense.push_back(
        {"dense" + std::to_string(i), static_cast<int>(random.below(num_axes)), 1 + random.below(4), {}});
    if (random.chance(40)) graph.dense.back().default_value = random.value();
  }
  if (random.chance(50)) choose_types(graph, random);
  return graph;
}

/// Whether the request sets an input of the axis.
inline bool sets_input(const BatchLayout& layout, const RequestData& data, int axis) {
  for (size_t i = 0; i < data.ids.size(); ++i)
    if (data.ids[i] && layout.ids()[i].axis == axis) return true;
  for (size_t i = 0; i < data.dense.size(); ++i)
    if (data.dense[i] && layout.dense()[i].axis == axis) return true;
  return false;
}

/// A valid request before anything is dropped by keep_last: up to 5 rows for each parent row.
inline RequestData random_request(const BatchLayout& layout, Random& random) {
  RequestData data(layout);
  for (size_t i = 0; i < data.ids.size(); ++i)
    if (!layout.ids()[i].default_id || random.chance(70)) data.ids[i].emplace();
  for (size_t i = 0; i < data.dense.size(); ++i)
    if (!layout.dense()[i].default_value || random.chance(70)) data.dense[i].emplace();

  const bool empty = random.chance(10);
  for (size_t a = 1; a < data.rows.size(); ++a) {
    const AxisSlot slot{static_cast<int>(a)};
    const bool may_have_rows = sets_input(layout, data, slot.index) || layout.has_children(slot);
    data.offsets[a] = {0};
    for (uint32_t s = 0; s < data.rows[static_cast<size_t>(layout.axis(slot).parent)]; ++s)
      data.offsets[a].push_back(data.offsets[a].back() +
                                (may_have_rows && !empty ? static_cast<uint32_t>(random.below(6)) : 0));
    data.rows[a] = data.offsets[a].back();
  }

  for (size_t i = 0; i < data.ids.size(); ++i)
    for (uint32_t row = 0; data.ids[i] && row < data.rows[static_cast<size_t>(layout.ids()[i].axis)]; ++row)
      data.ids[i]->push_back(layout.ids()[i].wire == IdsWire::i32 ? static_cast<int32_t>(random.id()) : random.id());
  for (size_t i = 0; i < data.dense.size(); ++i) {
    const DenseInfo& info = layout.dense()[i];
    for (int64_t j = 0; data.dense[i] && j < info.width * data.rows[static_cast<size_t>(info.axis)]; ++j)
      data.dense[i]->push_back(info.wire == DenseWire::bf16 ? to_float(to_bfloat16(random.value())) : random.value());
  }
  return data;
}

/// The request without the rows that keep_last drops: a row stays when its parent row does and fewer than keep_last
/// rows of the same parent row follow it.
inline RequestData after_keep_last(const BatchLayout& layout, const RequestData& data) {
  std::vector<std::vector<bool>> stays(data.rows.size());
  stays[0] = {true};
  RequestData kept(layout);
  for (size_t a = 1; a < data.rows.size(); ++a) {
    const AxisInfo& info = layout.axes()[a];
    const auto parent = static_cast<size_t>(info.parent);
    stays[a].assign(data.rows[a], false);
    kept.offsets[a] = {0};
    for (uint32_t s = 0; s < data.rows[parent]; ++s) {
      if (!stays[parent][s]) continue;
      for (uint32_t row = data.offsets[a][s]; row < data.offsets[a][s + 1]; ++row) {
        stays[a][row] = info.keep_last == 0 || data.offsets[a][s + 1] - 1 - row < info.keep_last;
        if (stays[a][row]) ++kept.rows[a];
      }
      kept.offsets[a].push_back(kept.rows[a]);
    }
  }
  const auto filter = [&](const auto& from, auto& to, int axis, int64_t width) {
    if (!from) return;
    to.emplace();
    for (size_t row = 0; row < data.rows[static_cast<size_t>(axis)]; ++row)
      for (int64_t c = 0; c < width && stays[static_cast<size_t>(axis)][row]; ++c)
        to->push_back((*from)[row * static_cast<size_t>(width) + static_cast<size_t>(c)]);
  };
  for (size_t i = 0; i < data.ids.size(); ++i) filter(data.ids[i], kept.ids[i], layout.ids()[i].axis, 1);
  for (size_t i = 0; i < data.dense.size(); ++i)
    filter(data.dense[i], kept.dense[i], layout.dense()[i].axis, layout.dense()[i].width);
  return kept;
}

/// Sets everything in random order; axes by lengths or by offsets, by themselves or along with an input.
inline void fill(Request& request, const BatchLayout& layout, const RequestData& data, Random& random) {
  std::vector<std::function<void()>> setters;
  const auto offsets_of = [&](int axis) {
    const std::vector<uint32_t>& offsets = data.offsets[static_cast<size_t>(axis)];
    return std::vector<int64_t>(offsets.begin(), offsets.end());
  };
  const auto lengths_of = [&](int axis) {
    std::vector<int64_t> lengths = offsets_of(axis);
    for (size_t s = 0; s + 1 < lengths.size(); ++s) lengths[s] = lengths[s + 1] - lengths[s];
    lengths.pop_back();
    return lengths;
  };
  for (int axis = 1; axis < static_cast<int>(data.rows.size()); ++axis) {
    if (!layout.has_offsets({axis}) && random.chance(70)) continue;
    if (random.chance(50)) {
      setters.emplace_back([&, axis] { request.lengths({axis}, lengths_of(axis)); });
    } else {
      setters.emplace_back([&, axis] { request.offsets({axis}, offsets_of(axis)); });
    }
  }
  const auto set_with_division = [&](int axis, auto set) {
    const int64_t way = axis == 0 ? 0 : random.below(3);
    if (way == 0) set();
    if (way == 1) set(Lengths(lengths_of(axis)));
    if (way == 2) set(Offsets(offsets_of(axis)));
  };
  for (int i = 0; i < static_cast<int>(data.ids.size()); ++i) {
    if (!data.ids[static_cast<size_t>(i)]) continue;
    setters.emplace_back([&, i] {
      const auto& values = *data.ids[static_cast<size_t>(i)];
      set_with_division(layout.ids(IdsSlot{i}).axis,
                        [&](const auto&... division) { request.ids({i}, values, division...); });
    });
  }
  for (int i = 0; i < static_cast<int>(data.dense.size()); ++i) {
    if (!data.dense[static_cast<size_t>(i)]) continue;
    setters.emplace_back([&, i] {
      const auto& values = *data.dense[static_cast<size_t>(i)];
      set_with_division(layout.dense(DenseSlot{i}).axis,
                        [&](const auto&... division) { request.dense({i}, values, division...); });
    });
  }
  std::shuffle(setters.begin(), setters.end(), random.engine());
  for (const auto& set : setters) set();
}

}  // namespace warprank::batch_testing
