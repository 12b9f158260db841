// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Parts of a batch's rows, for threads that each take one.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/engine/host/run_state.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Rows [begin, end) of an axis with all rows below them; of other axes all rows.
class Part {
 public:
  const Rows& rows() const { return rows_; }

  /// Memory for parts of such batches.
  void reserve(const RunValues& batch) {
    rows_.resize(batch.graph->axes.size(), batch.pairs.size());
    is_cut_.resize(batch.graph->axes.size());
    own_.resize(batch.pairs.size());
    for (size_t i = 0; i < own_.size(); ++i) own_[i].reserve(batch.rows.of(batch.pairs[i].second) + 1);
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const GrowingBuffer<int64_t>& segments : own_) sum += segments.bytes();
    return sum;
  }
  void cut(const RunValues& batch, int axis, int64_t begin, int64_t end) {
    reserve(batch);
    const Graph& graph = *batch.graph;
    is_cut_.assign(graph.axes.size(), false);
    for (size_t a = 0; a < graph.axes.size(); ++a) {  // parents come first
      const int parent = graph.axes[a].parent;
      rows_.first[a] = 0;
      rows_.count[a] = batch.rows.count[a];
      if (static_cast<int>(a) == axis) {
        is_cut_[a] = true;
        rows_.first[a] = begin;
        rows_.count[a] = end - begin;
      } else if (parent >= 0 && is_cut_[static_cast<size_t>(parent)]) {
        is_cut_[a] = true;
        const auto p = static_cast<size_t>(parent);
        const int64_t* offsets = batch.offsets[a].data() + rows_.first[p];
        rows_.first[a] = offsets[0];
        rows_.count[a] = offsets[rows_.count[p]] - offsets[0];
      }
    }
    for (size_t i = 0; i < batch.pairs.size(); ++i) cut_segments(batch, i);
  }

 private:
  void cut_segments(const RunValues& batch, size_t i) {
    const auto below = static_cast<size_t>(batch.pairs[i].first), above = static_cast<size_t>(batch.pairs[i].second);
    const int64_t* whole = batch.segments[i].data();
    rows_.segments[i] = whole;
    if (!is_cut_[below]) return;
    const int64_t first = rows_.first[below], count = rows_.count[below];
    whole += rows_.first[above];
    int64_t* segments = own_[i].data();
    for (int64_t s = 0; s <= rows_.count[above]; ++s) segments[s] = std::clamp<int64_t>(whole[s] - first, 0, count);
    rows_.segments[i] = segments;
  }

  Rows rows_;
  std::vector<GrowingBuffer<int64_t>> own_;  // by AxisPairs index: segments of fewer rows
  std::vector<bool> is_cut_;                 // by axis
};

/// The rows of each axis in parts, made when they are first asked for in a run.
class Parts {
 public:
  Parts(int most_parts, size_t axes, int64_t row_step) : row_step_(row_step), axes_(axes) {
    for (OfAxis& axis : axes_) axis.parts.resize(static_cast<size_t>(most_parts));
  }

  /// Memory for parts of such batches.
  void reserve(const RunValues& batch) {
    for (OfAxis& axis : axes_)
      for (Part& part : axis.parts) part.reserve(batch);
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const OfAxis& axis : axes_)
      for (const Part& part : axis.parts) sum += part.bytes();
    return sum;
  }
  /// Of so many rows that none is empty; at least one.
  int64_t most_parts(int64_t rows) const {
    const auto parts = static_cast<int64_t>(axes_[0].parts.size());
    return std::clamp<int64_t>((rows + row_step_ - 1) / row_step_, 1, parts);
  }
  /// The rows have changed.
  void forget() {
    for (OfAxis& axis : axes_) axis.count = 0;
  }
  /// Part `index` is `[index]`, with as many rows as the others, up to a step of rows.
  const std::vector<Part>& of(const RunValues& batch, int axis, int count) {
    OfAxis& cut = axes_[static_cast<size_t>(axis)];
    if (std::exchange(cut.count, count) == count) return cut.parts;
    const int64_t rows = batch.rows.of(axis);
    const auto bound = [&](int part) {
      return part == count ? rows : std::min(rows, (rows * part / count + row_step_ - 1) / row_step_ * row_step_);
    };
    for (int p = 0; p < count; ++p) cut.parts[static_cast<size_t>(p)].cut(batch, axis, bound(p), bound(p + 1));
    return cut.parts;
  }

 private:
  struct OfAxis {
    std::vector<Part> parts;
    int count = 0;  // that are cut; 0: none
  };

  int64_t row_step_;
  std::vector<OfAxis> axes_;
};

}}}  // namespace warprank::v0::host_backend
