// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Addresses of everything that the steps of one capacity read and write. Plain C++, no device.

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "warprank/batch/index.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/cuda/value_layout.hpp"
#include "warprank/ops/axis_input.hpp"
#include "warprank/ops/bag_feature.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// An axis and one above it, whose rows divide it into segments.
using AxisPair = std::pair<int, int>;

/// Memory that a context has for a capacity.
struct ContextMemory {
  unsigned char* index = nullptr;  ///< of the batch (batch/index.hpp); its blobs end where it begins
  BatchIndex index_layout;
  unsigned char* arena = nullptr;
  std::vector<int64_t> slot_offsets;              ///< bytes, by slot
  std::vector<float*> outputs;                    ///< by axis
  std::map<AxisPair, int64_t*> segments;          ///< of pairs that the index does not have
  LookupCounters* counters = nullptr;             ///< by node
  const KeyList* awaited = nullptr;               ///< by table (AwaitedKeys); null: nothing is waited for
  const unsigned char* weights = nullptr;         ///< of the model
  const unsigned char* copied_weights = nullptr;  ///< of the context (WeightsMemory::add_copied)
};

class Bindings {
 public:
  Bindings(const Graph& graph, const ValueLayout& layout, std::vector<int64_t> max_rows, ContextMemory memory)
      : graph_(graph), layout_(layout), max_rows_(std::move(max_rows)), memory_(std::move(memory)) {}

  const Graph& graph() const { return graph_; }
  int64_t max_rows(int axis) const { return max_rows_[static_cast<size_t>(axis)]; }
  /// The rows of a batch, in device memory.
  const int64_t* num_rows(int axis) const { return index_at<int64_t>(memory_.index_layout.count_at({axis})); }

  /// All rows of the capacity.
  FloatMatrix<void> value(int node) const {
    const Node& n = graph_.node(node);
    const ValuePlace& place = layout_.place(node);
    FloatMatrix<void> matrix;
    unsigned char* rows = place.slot < 0
                              ? reinterpret_cast<unsigned char*>(memory_.outputs[static_cast<size_t>(n.axis)])
                              : memory_.arena + memory_.slot_offsets[static_cast<size_t>(place.slot)];
    matrix.data = rows + place.column * size_of(place.type);
    matrix.rows = max_rows(n.axis);
    matrix.cols = n.width;
    matrix.stride = place.row_stride;
    matrix.type = place.type;
    return matrix;
  }
  FloatMatrix<const void> input(int node) const { return as_const(value(node)); }
  /// A value that is FP16.
  Matrix<float16> halves(int node) const {
    const FloatMatrix<void> m = value(node);
    return {static_cast<float16*>(m.data), m.rows, m.cols, m.stride};
  }
  /// The columns of an output among those of its axis.
  FloatMatrix<void> output(const OutputPlace& place) const {
    const Node& n = graph_.node(place.node);
    float* rows = memory_.outputs[static_cast<size_t>(n.axis)];
    return Matrix<float>(rows + place.column, max_rows(n.axis), n.width, layout_.output_width(n.axis));
  }

  /// Of the rows of an axis, by rows of one above it: [num_rows(ancestor) + 1].
  const int64_t* offsets(AxisPair pair) const {
    if (pair.second == 0) return index_at<int64_t>(memory_.index_layout.row_starts_at({pair.first}));
    return memory_.segments.at(pair);
  }
  /// Where those that the index does not have are written.
  int64_t* segments(AxisPair pair) const { return memory_.segments.at(pair); }
  /// A value as an input of an op on `axis`.
  AxisInput<float16> halves_on(int node, int axis) const { return on_axis<float16>(halves(node), node, axis); }
  AxisInput<void> input_on(int node, int axis) const { return on_axis<void>(input(node), node, axis); }

  RequestBlobs requests() const {
    RequestBlobs blobs;
    blobs.bytes = memory_.index;
    blobs.positions = index_at<int64_t>(memory_.index_layout.positions_at());
    blobs.row_starts = index_at<int64_t>(memory_.index_layout.row_starts_at({0}));
    blobs.num_requests = {memory_.index_layout.max_requests(), num_rows(0)};
    blobs.num_axes = static_cast<int>(graph_.axes.size());
    blobs.num_ids = static_cast<int>(graph_.ids.size());
    blobs.num_dense = static_cast<int>(graph_.dense.size());
    return blobs;
  }

  LookupCounters* counters(int node) const { return memory_.counters + node; }
  /// Whom to tell of keys that a table has no rows of.
  const KeyList* awaited(int table) const { return memory_.awaited == nullptr ? nullptr : memory_.awaited + table; }
  template <class Value = unsigned char>
  const Value* weights(int64_t offset) const {
    return reinterpret_cast<const Value*>(memory_.weights + offset);
  }
  template <class Value>
  const Value* copied_weights(int64_t offset) const {
    return reinterpret_cast<const Value*>(memory_.copied_weights + offset);
  }

  static FloatMatrix<const void> as_const(const FloatMatrix<void>& m) {
    FloatMatrix<const void> result;
    result.data = m.data;
    result.rows = m.rows;
    result.cols = m.cols;
    result.stride = m.stride;
    result.type = m.type;
    return result;
  }

 private:
  template <class Value, class Values>
  AxisInput<Value> on_axis(const Values& values, int node, int axis) const {
    const int node_axis = graph_.node(node).axis;
    if (node_axis == axis) return {values, nullptr, nullptr};
    return {values, offsets({axis, node_axis}), num_rows(node_axis)};
  }

  template <class Value>
  const Value* index_at(int64_t offset) const {
    return reinterpret_cast<const Value*>(memory_.index + offset);
  }

  const Graph& graph_;
  const ValueLayout& layout_;
  std::vector<int64_t> max_rows_;
  ContextMemory memory_;
};

}}}  // namespace warprank::v0::cuda_backend
