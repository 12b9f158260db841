// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the parts of a batch have their indices and outputs in pinned memory, and what becomes of the outputs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/batch_runs.cuh"
#include "warprank/engine/cuda/value_layout.hpp"
#include "warprank/engine/engine.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Where a part's index lies until it is copied, null: in the batch; and where its outputs arrive.
struct PartPlace {
  std::byte* index = nullptr;
  float* outputs = nullptr;
};

class PinnedParts {
 public:
  /// Pinned memory for so many parts.
  void reserve(int64_t parts, const RunSet& of_capacities) {
    int64_t outputs = 1, index = 0;
    for (const auto& run : of_capacities.runs()) {
      outputs = std::max(outputs, run->outputs().floats);
      index = std::max(index, run->index().bytes());
    }
    host_outputs_ = device::PinnedMemory(4 * outputs * parts, "a context's outputs");
    host_indices_ = device::PinnedMemory(index * parts, "a context's indices");
  }

  /// Gives every part its places in pinned memory, of which there is only too little for larger batches than before.
  void place(const Batch& batch, const BatchRuns& runs) {
    const BatchParts& parts = runs.parts();
    const auto in_batch = [&](const PreparedRun& run) {
      return parts.is_whole() && batch.index().max_requests() == run.index().max_requests();
    };
    int64_t floats = 0, index_bytes = 0;
    for (int64_t i = 0; i < parts.count(); ++i) {
      const PreparedRun& run = runs.run_of(parts[i]);
      floats += run.outputs().floats;
      index_bytes += run.index().bytes();
    }
    if (host_outputs_.bytes() < 4 * floats) host_outputs_ = device::PinnedMemory(4 * floats, "a batch's outputs");
    if (host_indices_.bytes() < index_bytes) host_indices_ = device::PinnedMemory(index_bytes, "a batch's indices");
    auto* outputs = static_cast<float*>(host_outputs_.data());
    auto* index = static_cast<std::byte*>(host_indices_.data());
    places_.clear();
    for (int64_t i = 0; i < parts.count(); ++i) {
      const PreparedRun& run = runs.run_of(parts[i]);
      places_.push_back({in_batch(run) ? nullptr : index, outputs});
      outputs += run.outputs().floats;
      if (!in_batch(run)) index += run.index().bytes();
    }
  }

  const PartPlace& operator[](int64_t part) const { return places_[static_cast<size_t>(part)]; }
  int64_t output_bytes() const { return host_outputs_.bytes(); }
  int64_t index_bytes() const { return host_indices_.bytes(); }

 private:
  device::PinnedMemory host_outputs_, host_indices_;
  std::vector<PartPlace> places_;
};

/// The scores of the last batch, which may be gone by the time they are asked for.
class BatchOutputs {
 public:
  BatchOutputs(const Graph& graph, const ValueLayout& values) : graph_(graph), values_(values) {
    for (const OutputInfo& output : graph.outputs) outputs_.push_back({output.name, {}, {}});
    output_values_.resize(graph.outputs.size());
    row_starts_.resize(graph.outputs.size());
  }

  /// Which requests are scored, and how many rows each has.
  void remember(const Batch& batch) {
    scored_.clear();
    int64_t next = 0;
    for (int64_t r = 0; r < batch.size(); ++r) scored_.push_back(batch.status(r).ok() ? next++ : -1);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Span<const int64_t> starts = batch.row_starts({graph_.node(graph_.outputs[o].node).axis});
      row_starts_[o].assign(starts.begin(), starts.end());
    }
  }

  void forget() {
    for (OutputView& output : outputs_) output.values = {}, output.requests = {};
    scored_.clear();
  }
  /// Once all has arrived.
  void collect(const BatchRuns& runs, const PinnedParts& places) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Node& node = graph_.node(graph_.outputs[o].node);
      const int64_t rows = row_starts_[o].back(), stride = values_.output_width(node.axis);
      const float* from = nullptr;
      if (runs.parts().is_whole() && stride == node.width) {
        from = output_of(0, o, runs, places);
      } else {  // in parts, or side by side with others
        output_values_[o].resize(static_cast<size_t>(rows * node.width));
        for (int64_t i = 0; i < runs.parts().count(); ++i) gather(i, o, runs, places);
        from = output_values_[o].data();
      }
      outputs_[o].values = {from, rows, node.width};
      outputs_[o].requests = {row_starts_[o].data(), static_cast<int64_t>(row_starts_[o].size()) - 1};
    }
  }

  /// In the device's memory, of a batch of one part.
  DeviceScores on_device(size_t output, const BatchRuns& runs) const {
    const Node& node = graph_.node(graph_.outputs[output].node);
    const std::vector<int64_t>& starts = row_starts_[output];
    const int64_t stride = values_.output_width(node.axis);
    const float* const from = runs.parts().count() == 0 ? nullptr
                                                        : place_of(runs.memory_of(runs.parts()[0]).outputs, output,
                                                                   runs.run_of(runs.parts()[0]));
    return {{from, starts.back(), node.width, stride}, {starts.data(), static_cast<int64_t>(starts.size()) - 1}};
  }

  Span<const OutputView> views() const { return outputs_; }
  /// By request its number among those that are scored; -1: it is not.
  Span<const int64_t> scored() const { return scored_; }
  /// From the first output of a part to the last row of the last.
  int64_t num_floats(const BatchPart& part, const PreparedRun& run) const {
    int64_t end = 0;
    for (size_t axis = 0; axis < part.size.rows.size(); ++axis) {
      const int64_t width = values_.output_width(static_cast<int>(axis));
      if (width > 0) end = run.outputs().axes[axis] + part.size.rows[axis] * width;
    }
    return end;
  }

 private:
  /// Where an output of a part has arrived.
  const float* output_of(int64_t part, size_t output, const BatchRuns& runs, const PinnedParts& places) const {
    return place_of(places[part].outputs, output, runs.run_of(runs.parts()[part]));
  }
  /// Where an output lies among those of a run.
  const float* place_of(const float* outputs, size_t output, const PreparedRun& run) const {
    const auto axis = static_cast<size_t>(graph_.node(graph_.outputs[output].node).axis);
    return outputs + run.outputs().axes[axis] + values_.outputs()[output].column;
  }
  /// Brings an output's rows of a part's requests to where they are in the batch.
  void gather(int64_t part, size_t output, const BatchRuns& runs, const PinnedParts& places) {
    const BatchParts& parts = runs.parts();
    const Node& node = graph_.node(graph_.outputs[output].node);
    const int64_t stride = values_.output_width(node.axis);
    const std::vector<int64_t>& starts = row_starts_[output];
    const float* from = output_of(part, output, runs, places);
    for (int64_t i = 0; i < parts[part].count; ++i) {
      const auto r = static_cast<size_t>(parts.order()[parts[part].first + i]);
      float* to = output_values_[output].data() + starts[r] * node.width;
      for (int64_t row = starts[r]; row < starts[r + 1]; ++row, from += stride) to = std::copy_n(from, node.width, to);
    }
  }

  const Graph& graph_;
  const ValueLayout& values_;
  std::vector<int64_t> scored_;
  std::vector<std::vector<int64_t>> row_starts_;  // by output
  std::vector<OutputView> outputs_;
  std::vector<std::vector<float>> output_values_;
};

}}}  // namespace warprank::v0::cuda_backend
