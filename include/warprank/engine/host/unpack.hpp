// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From blobs to what steps read: row counts, offsets, ids and dense values of all requests together.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/engine/host/run_state.hpp"
#include "warprank/ops/host/widen.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Counts the rows of every axis over the requests that are ok; scored[r] becomes the place of request r among them.
inline void count_rows(const Batch& batch, RunValues& values, std::vector<int64_t>& scored) {
  std::vector<int64_t>& rows = values.rows.count;
  for (size_t a = 0; a < rows.size(); ++a) rows[a] = batch.num_rows({static_cast<int>(a)});
  scored.clear();
  int64_t place = 0;
  for (int64_t r = 0; r < batch.size(); ++r) scored.push_back(batch.status(r).ok() ? place++ : -1);
}

/// offsets[axis]: the rows of every parent row, in the batch's numbering.
inline void unpack_offsets(const Batch& batch, Span<const int64_t> scored, RunValues& values,
                           std::vector<int64_t>& next_row) {
  const Graph& graph = *values.graph;
  const std::vector<int64_t>& rows = values.rows.count;
  if (rows.size() == 1) return;
  for (size_t a = 1; a < rows.size(); ++a) {
    int64_t* offsets = values.offsets[a].reserve(rows[static_cast<size_t>(graph.axes[a].parent)] + 1);
    *offsets = 0;
  }
  std::fill(next_row.begin(), next_row.end(), 0);
  for (int64_t r = 0; r < batch.size(); ++r) {
    if (scored[r] < 0) continue;
    const BlobView blob = batch.blob(r);
    for (size_t a = 1; a < rows.size(); ++a) {
      const auto parent = static_cast<size_t>(graph.axes[a].parent);
      int64_t* out = values.offsets[a].data() + next_row[parent] + 1;
      const Span<const uint32_t> within = blob.offsets({static_cast<int>(a)});
      if (within.empty()) {
        *out = next_row[a] + blob.rows({static_cast<int>(a)});
      } else {
        for (int64_t p = 1; p < within.size(); ++p) out[p - 1] = next_row[a] + within[p];
      }
    }
    for (size_t a = 0; a < rows.size(); ++a) next_row[a] += blob.rows({static_cast<int>(a)});
  }
}

/// Segments of axes under ancestors: composed offsets of the axes between.
inline void compose_segments(RunValues& values) {
  const Graph& graph = *values.graph;
  for (size_t i = 0; i < values.pairs.size(); ++i) {
    const auto [axis, ancestor] = values.pairs[i];
    const int64_t count = values.rows.of(ancestor);
    int64_t* segments = values.segments[i].reserve(count + 1);
    values.rows.segments[i] = segments;
    for (int64_t s = 0; s <= count; ++s) segments[s] = s;
    for (int below = ancestor; below != axis;) {  // one axis further down at a time
      int child = axis;
      while (graph.axis(child).parent != below) child = graph.axis(child).parent;
      const int64_t* offsets = values.offsets[static_cast<size_t>(child)].data();
      for (int64_t s = 0; s <= count; ++s) segments[s] = offsets[segments[s]];
      below = child;
    }
  }
}

/// Which dense inputs no other value is a view of, so that they need not be in the arena.
inline std::vector<bool> dense_apart(const Graph& graph) {
  std::vector<bool> apart;
  for (const Node& node : graph.nodes) {
    apart.push_back(std::holds_alternative<DenseOp>(node.op));
    if (std::holds_alternative<ConcatOp>(node.op) || std::holds_alternative<SliceOp>(node.op))
      for (int input : node.inputs) apart[static_cast<size_t>(input)] = false;
  }
  return apart;
}

/// Calls body(blob) for the scored requests of a closed batch, in their order.
template <class Body>
void for_each_blob(const Batch& batch, Body&& body) {
  const Span<const int64_t> positions = batch.positions();
  if (positions.size() == 0) return;
  const std::byte* const index = batch.bytes().data() + batch.blobs().size();
  const BlobView any(index + positions[0], batch.layout());
  for (const int64_t position : positions) body(any.moved_to(index + position));
}

/// Ids and dense values of all requests side by side, of 64 bits and in FP32; defaults where a request did not set an
/// input. Dense values in FP32 of a single request may stay where they are. `dense_nodes`: the nodes of dense inputs.
/// Input by input: many requests of a row each have few values of one.
inline void unpack_inputs(const Batch& batch, const std::vector<bool>& used_ids, Span<const int> dense_nodes,
                          RunValues& values) {
  const Graph& graph = *values.graph;
  const auto rows_of = [](const BlobView& blob, int axis) { return axis == 0 ? 1 : blob.rows({axis}); };
  for (size_t i = 0; i < graph.ids.size(); ++i) {
    if (!used_ids[i]) continue;
    const IdsSlot slot{static_cast<int>(i)};
    const IdsInfo& info = graph.ids[i];
    const int axis = info.axis;
    const int64_t default_id = info.default_id.value_or(0);
    int64_t* to = values.ids[i].reserve(values.rows.of(axis));
    if (axis == 0 && info.wire == IdsWire::i64) {  // one id a request
      for_each_blob(batch, [&](const BlobView& blob) { *to++ = blob.has(slot) ? blob.ids(slot)[0] : default_id; });
      continue;
    }
    for_each_blob(batch, [&](const BlobView& blob) {
      const int64_t rows = rows_of(blob, axis);
      if (blob.has(slot))
        blob.copy_ids(slot, to);
      else
        std::fill_n(to, rows, default_id);
      to += rows;
    });
  }
  for (const int n : dense_nodes) {
    const DenseSlot slot{std::get<DenseOp>(graph.node(n).op).input};
    const DenseInfo& info = graph.dense[static_cast<size_t>(slot.index)];
    const bool stays = batch.size() == 1 && batch.num_scored() == 1 && values.may_stay[static_cast<size_t>(n)] &&
                       info.wire == DenseWire::f32;
    values.given[static_cast<size_t>(n)] = stays ? batch.blob(0).dense(slot).data() : nullptr;
    if (values.given[static_cast<size_t>(n)] != nullptr) continue;
    const Matrix<float> value = values.value(n, values.rows);
    int64_t row = 0;
    for_each_blob(batch, [&](const BlobView& blob) {
      const bool has_values = blob.has(slot), is_half = has_values && blob.type(slot) == DenseWire::f16;
      const int64_t rows = rows_of(blob, info.axis);
      for (int64_t i = 0; i < rows; ++i, ++row) {
        if (is_half)
          host_ops::widen(blob.dense_halves(slot).subspan(i * info.width, info.width), value.row(row));
        else if (has_values)
          blob.copy_dense(slot, i * info.width, info.width, value.row(row));
        else
          std::fill_n(value.row(row), info.width, info.default_value.value_or(0.0f));
      }
    });
  }
}

}}}  // namespace warprank::v0::host_backend
