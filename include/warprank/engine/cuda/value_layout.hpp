// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where in memory the values of a plan lie on a GPU, in the types of plan/value_types.hpp. Plain C++, no device.
///
/// Outputs lie apart from the arena, side by side in one FP32 row for each row of their axis, so that the scores of a
/// batch lie together. What a step keeps on chip has no place.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/round_up.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/plan/steps.hpp"
#include "warprank/plan/storage.hpp"
#include "warprank/plan/value_types.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// One value: columns of rows that may be wider than itself.
struct ValuePlace {
  DType type = DType::f32;
  int slot = -1;           ///< of the arena; -1: among the outputs of its axis
  int64_t column = 0;      ///< first element within a row
  int64_t row_stride = 0;  ///< elements
};

/// A value that leaves the device, and where.
struct OutputPlace {
  int node = 0;
  int64_t column = 0;    ///< of the output row of its axis
  bool is_copy = false;  ///< the value lies in the arena, too, and is copied by the last step
};

class ValueLayout {
 public:
  ValueLayout(const Graph& graph, const plan::Storage& storage) : graph_(graph), storage_(storage) {
    places_.resize(graph.nodes.size());
    output_widths_.resize(graph.axes.size());
    choose_types();
    place_outputs();
    place_others();
  }

  const ValuePlace& place(int node) const { return places_[static_cast<size_t>(node)]; }
  /// Bytes of a row of each slot of the arena.
  const std::vector<int64_t>& slot_row_bytes() const { return slot_row_bytes_; }
  /// By output of the graph.
  const std::vector<OutputPlace>& outputs() const { return outputs_; }
  /// Floats of an output row, by axis; 0 where no output lives.
  int64_t output_width(int axis) const { return output_widths_[static_cast<size_t>(axis)]; }

 private:
  /// The value in whose rows another one lies.
  int root(int n) const { return storage_.placements[static_cast<size_t>(n)].root; }

  void choose_types() {
    const std::vector<DType> types = plan::value_types(graph_, storage_);
    for (size_t n = 0; n < places_.size(); ++n) places_[n].type = types[n];
  }

  /// An output that is FP32 and a value of its own is written to its place by what computes it.
  void place_outputs() {
    std::vector<bool> is_shared(graph_.nodes.size());
    for (int n = 0; n < static_cast<int>(places_.size()); ++n)
      if (root(n) != n) is_shared[static_cast<size_t>(root(n))] = is_shared[static_cast<size_t>(n)] = true;
    for (const OutputInfo& output : graph_.outputs) {
      const auto same = std::find_if(outputs_.begin(), outputs_.end(),
                                     [&](const OutputPlace& other) { return other.node == output.node; });
      if (same != outputs_.end()) {
        outputs_.push_back({output.node, same->column, false});
        continue;
      }
      const Node& node = graph_.node(output.node);
      int64_t& width = output_widths_[static_cast<size_t>(node.axis)];
      ValuePlace& place = places_[static_cast<size_t>(output.node)];
      const bool is_copy = place.type != DType::f32 || is_shared[static_cast<size_t>(output.node)];
      outputs_.push_back({output.node, width, is_copy});
      if (!is_copy) {
        place.column = width;
        is_output_.push_back(output.node);
      }
      width += node.width;
    }
    for (const int n : is_output_) places_[static_cast<size_t>(n)].row_stride = output_width(graph_.node(n).axis);
  }

  void place_others() {
    slot_row_bytes_.resize(storage_.slots.size());
    const std::vector<bool> in_memory = plan::in_memory(graph_, storage_.steps);
    for (size_t n = 0; n < places_.size(); ++n) {
      if (!in_memory[n]) continue;
      if (std::find(is_output_.begin(), is_output_.end(), static_cast<int>(n)) != is_output_.end()) continue;
      const plan::Placement& placement = storage_.placements[n];
      ValuePlace& place = places_[n];
      place.slot = placement.slot;
      place.column = placement.column;
      constexpr int64_t vector_bytes = 16;  // rows begin at whole vectors
      place.row_stride = round_up(graph_.node(placement.root).width, vector_bytes / size_of(place.type));
      int64_t& row_bytes = slot_row_bytes_[static_cast<size_t>(place.slot)];
      row_bytes = std::max(row_bytes, place.row_stride * size_of(place.type));
    }
  }

  const Graph& graph_;
  const plan::Storage& storage_;
  std::vector<ValuePlace> places_;
  std::vector<int> is_output_;  // nodes that are written to their place among the outputs
  std::vector<OutputPlace> outputs_;
  std::vector<int64_t> output_widths_;
  std::vector<int64_t> slot_row_bytes_;
};

}}}  // namespace warprank::v0::cuda_backend
