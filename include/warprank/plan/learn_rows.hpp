// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The number of rows of an axis for each row of its parent: learned from recorded requests, or a guess that is
/// reported.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/plan/cost.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The axes whose rows a capacity neither gives nor knows from keep_last.
inline std::vector<size_t> guessed_axes(const Graph& graph, const Capacity& capacity) {
  std::vector<size_t> axes;
  const int items = detail::axis_of_items(graph);
  for (size_t a = 0; a < graph.axes.size(); ++a) {
    const AxisInfo& axis = graph.axes[a];
    const bool is_known = axis.parent == -1 || axis.keep_last > 0 || static_cast<int>(a) == items;
    if (!is_known && capacity.rows.count(axis.name) == 0) axes.push_back(a);
  }
  return axes;
}

/// Gives these axes, for each row of the parent, the most rows that a recorded request has, at least 1: a recorded
/// request that fits the rows that a capacity gives then fits all its rows. Throws invalid_argument for blobs that are
/// not requests of `graph`.
inline void learn_rows(const Graph& graph, const std::vector<std::vector<std::byte>>& blobs,
                       std::vector<Capacity>& capacities) {
  std::vector<int64_t> per_parent(graph.axes.size(), 1);
  Problems problems;
  Batch batch(std::make_shared<const BatchLayout>(graph));
  for (size_t r = 0; r < blobs.size(); ++r) {
    batch.clear();
    batch.add_blob(blobs[r]);
    batch.close();
    if (!batch.status(0).ok()) {
      problems.add("recorded request " + std::to_string(r), "a request of the model", batch.status(0).message);
      continue;
    }
    for (size_t a = 0; a < graph.axes.size(); ++a) {
      if (graph.axes[a].parent == -1) continue;
      const int64_t rows = batch.num_rows({static_cast<int>(a)}), parents = batch.num_rows({graph.axes[a].parent});
      if (parents > 0) per_parent[a] = std::max(per_parent[a], (rows + parents - 1) / parents);
    }
  }
  problems.throw_if_any();
  for (Capacity& capacity : capacities)
    for (const size_t a : guessed_axes(graph, capacity)) {  // parents come first
      const std::vector<int64_t> rows = rows_at(graph, capacity);
      constexpr int64_t most_rows = int64_t{1} << 31;  // products of two do not overflow
      capacity.rows[graph.axes[a].name] =
          std::min(rows[static_cast<size_t>(graph.axes[a].parent)] * std::min(per_parent[a], most_rows), most_rows);
    }
}

/// A line for each axis whose rows are guessed at some capacity.
inline std::vector<std::string> guesses(const Graph& graph, const std::vector<Capacity>& capacities) {
  std::vector<bool> is_guessed(graph.axes.size(), false);
  for (const Capacity& capacity : capacities)
    for (const size_t a : guessed_axes(graph, capacity)) is_guessed[a] = true;
  std::vector<std::string> lines;
  for (size_t a = 0; a < graph.axes.size(); ++a)
    if (is_guessed[a])
      lines.push_back("rows of axis '" + graph.axes[a].name + "' are a guess: " + std::to_string(guessed_rows) +
                      " for each row of '" + graph.axis(graph.axes[a].parent).name +
                      "'; a request with more is above the capacity, which costs a GPU time and memory: give "
                      "Capacity::rows, or CompileOptions::recorded");
  return lines;
}

}}}  // namespace warprank::v0::plan
