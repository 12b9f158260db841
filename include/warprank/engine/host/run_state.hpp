// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the steps of one run share: how many rows every axis has, the unpacked inputs, the arena.

#include <algorithm>
#include <cstdint>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/phase_fair_mutex.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/ops/host/bag_feature.hpp"
#include "warprank/ops/segmented_input.hpp"
#include "warprank/plan/storage.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Memory that only grows; its contents are lost when it does.
template <class Value>
class GrowingBuffer {
 public:
  /// At least `size` values.
  Value* reserve(int64_t size) {
    if (buffer_.size() < size) buffer_ = Buffer<Value>(size);
    return buffer_.data();
  }
  Value* data() { return buffer_.data(); }
  const Value* data() const { return buffer_.data(); }
  int64_t size() const { return buffer_.size(); }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer<Value> buffer_;
};

/// Pairs (axis, ancestor) whose segments some step reads; collected when steps are made, filled at every run.
class AxisPairs {
 public:
  int index_of(int axis, int ancestor) {
    const auto pair = std::make_pair(axis, ancestor);
    const auto it = std::find(pairs_.begin(), pairs_.end(), pair);
    if (it != pairs_.end()) return static_cast<int>(it - pairs_.begin());
    pairs_.push_back(pair);
    return static_cast<int>(pairs_.size()) - 1;
  }
  const std::vector<std::pair<int, int>>& list() const { return pairs_; }

 private:
  std::vector<std::pair<int, int>> pairs_;
};

/// A step's input: a node's value and, where it lives above the step's axis, the segments of its rows.
struct InputRef {
  int node = -1;
  int pair = -1;  ///< in AxisPairs; -1: on the step's axis
};

/// The rows of a batch, or a part of them.
struct Rows {
  std::vector<int64_t> count;            ///< by axis
  std::vector<int64_t> first;            ///< by axis: the place of the first in the batch
  std::vector<const int64_t*> segments;  ///< by AxisPairs index: where each segment begins among these rows

  void resize(size_t axes, size_t pairs) {
    count.resize(axes);
    first.resize(axes);
    segments.resize(pairs);
  }
  int64_t of(int axis) const { return count[static_cast<size_t>(axis)]; }
};

/// What a context has of a batch and its values.
struct RunValues {
  const Graph* graph = nullptr;
  const plan::Storage* storage = nullptr;

  Rows rows;                                     ///< all of the batch; its segments are those below
  std::vector<GrowingBuffer<int64_t>> offsets;   ///< by axis: rows of each parent row [parent rows + 1]
  std::vector<GrowingBuffer<int64_t>> segments;  ///< by AxisPairs index
  std::vector<std::pair<int, int>> pairs;        ///< AxisPairs: (axis, ancestor)
  std::vector<GrowingBuffer<int64_t>> ids;       ///< by ids input
  std::vector<bool> may_stay;       ///< by node: a dense input that steps read as well where it lies in the batch
  std::vector<const float*> given;  ///< by node: where it does in this run; null: in the arena
  GrowingBuffer<float> arena;
  std::vector<int64_t> slot_offsets;  ///< by slot: first float in the arena

  /// These rows of a node's value.
  Matrix<float> value(int node, const Rows& of) {
    const Node& n = graph->node(node);
    const auto axis = static_cast<size_t>(n.axis);
    const plan::Placement& p = storage->placements[static_cast<size_t>(node)];
    if (const float* values = given[static_cast<size_t>(node)])
      return {const_cast<float*>(values) + of.first[axis] * n.width, of.count[axis], n.width};  // no step writes inputs
    return {arena.data() + slot_offsets[static_cast<size_t>(p.slot)] + of.first[axis] * p.stride + p.column,
            of.count[axis], n.width, p.stride};
  }
  Segments segments_of(int pair, const Rows& of) const {
    const auto i = static_cast<size_t>(pair);
    return {of.segments[i], of.of(pairs[i].second)};
  }
};

/// One of `count` shares of a step, for steps that threads do not divide by rows.
struct Share {
  int index = 0, count = 1;

  bool is_last() const { return index + 1 == count; }
  /// Of `total` things.
  int64_t begin(int64_t total) const { return total * index / count; }
  int64_t end(int64_t total) const { return total * (index + 1) / count; }
};

/// What one thread runs a step with.
struct RunState {
  RunValues* values = nullptr;
  const Rows* rows = nullptr;
  int part = 0;  ///< of those in which the step is run
  Share share;   ///< all, unless the step is divided by shares
  GrowingBuffer<float> workspace;
  std::vector<LookupCounters> counters;         ///< by node
  std::vector<SegmentedInput> input_list;       ///< scratch: what a step hands to its kernel
  std::vector<host_ops::BagFeature> features;   ///< scratch: likewise
  std::vector<host_ops::MissedIds> missed;      ///< scratch: of these features
  std::vector<LookupCounters> counters_before;  ///< scratch: of these features
  GrowingBuffer<int64_t> missed_ids;            ///< scratch: what they point to

  const Graph& graph() const { return *values->graph; }
  const plan::Storage& storage() const { return *values->storage; }
  int64_t rows_of(int node) const { return rows->of(graph().node(node).axis); }
  Matrix<float> value(int node) { return values->value(node, *rows); }
  Segments segments_of(int pair) const { return values->segments_of(pair, *rows); }
  SegmentedInput input(InputRef ref) { return {value(ref.node), ref.pair < 0 ? Segments{} : segments_of(ref.pair)}; }
  /// Valid until the next call.
  Span<const SegmentedInput> inputs(const std::vector<InputRef>& refs) {
    input_list.clear();
    for (const InputRef& ref : refs) input_list.push_back(input(ref));
    return input_list;
  }
  Span<const int64_t> ids_of(int input, int axis) const {
    return {values->ids[static_cast<size_t>(input)].data() + rows->first[static_cast<size_t>(axis)], rows->of(axis)};
  }
  Span<float> workspace_span() { return {workspace.data(), workspace.size()}; }
};

/// How threads divide a step.
enum class Division {
  none,   ///< one of them does it
  rows,   ///< each takes rows of its axis, which are computed without one another
  shares  ///< each takes a RunState::share, as the step divides it
};

/// One launch: made at bind, immutable, run by any number of contexts.
class Step {
 public:
  virtual ~Step() = default;
  /// Floats of workspace for the rows at hand.
  virtual int64_t workspace(const RunState&) const { return 0; }
  virtual void run(RunState& state) const = 0;
  /// Bytes of packed weights.
  virtual int64_t bytes() const { return 0; }

  /// Held from before it runs until all threads have run it.
  virtual std::shared_lock<PhaseFairMutex> hold() const { return {}; }

  std::vector<int> nodes;  ///< that it computes
  Division division = Division::none;
  std::vector<double> row_seconds;  ///< by node: an estimate for each of its rows
};

}}}  // namespace warprank::v0::host_backend
