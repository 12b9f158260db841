// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All steps of a model for batches up to one size: memory, descriptors, and a graph of them.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/device/range.hpp"
#include "warprank/engine/cuda/make_steps.cuh"
#include "warprank/engine/cuda/memory_needs.cuh"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/run_size.hpp"

namespace warprank::cuda_backend {

/// Memory that runs of several sizes take in turns.
struct SharedMemory {
  device::DeviceMemory input, arena, outputs;
  device::PinnedMemory host_outputs;
  unsigned char* index = nullptr;  ///< within the input

  int64_t device_bytes() const { return input.bytes() + arena.bytes() + outputs.bytes(); }
};

/// Memory for the largest of the sizes, on the current device, which has the index.
inline SharedMemory make_shared_memory(const Graph& graph, const ValueLayout& values, const plan::Storage& storage,
                                       const std::vector<RunSize>& sizes, int device_index) {
  int64_t blob_bytes = 0, index_bytes = 0, arena_bytes = 1, output_floats = 1;  // without rows there are addresses, too
  const int num_axes = static_cast<int>(graph.axes.size());
  for (const RunSize& size : sizes) {
    blob_bytes = std::max(blob_bytes, size.blob_bytes);
    index_bytes = std::max(index_bytes, BatchIndex(num_axes, size.max_requests).bytes());
    arena_bytes = std::max(arena_bytes, ArenaLayout(values, storage, size.rows).bytes);
    output_floats = std::max(output_floats, OutputsLayout(values, size.rows).floats);
  }
  constexpr int64_t alignment = 256;
  const int64_t index_at = round_up(blob_bytes, alignment);
  MemoryNeeds needs;
  needs.add("input", index_at + index_bytes);
  needs.add("arena", arena_bytes);
  needs.add("outputs", 4 * output_floats);
  needs.check("a context", device_index);
  SharedMemory memory;
  memory.input = device::DeviceMemory(index_at + index_bytes, "a context's input");
  memory.arena = device::DeviceMemory(arena_bytes, "a context's arena");
  memory.outputs = device::DeviceMemory(4 * output_floats, "a context's outputs");
  memory.host_outputs = device::PinnedMemory(4 * output_floats, "a context's outputs");
  memory.index = static_cast<unsigned char*>(memory.input.data()) + index_at;
  return memory;
}

class PreparedRun {
 public:
  /// `model_steps`, `values` and `memory` outlive it. Waits until everything is on the device.
  PreparedRun(const Graph& graph, const ValueLayout& values, const plan::Storage& storage,
              const ModelSteps& model_steps, const device::DeviceMemory& weights, const SharedMemory& memory,
              LookupCounters* counters, RunSize size, device::Stream stream)
      : memory_(memory),
        size_(std::move(size)),
        outputs_(values, size_.rows),
        bindings_(graph, values, size_.rows,
                  addresses(graph, values, storage, model_steps, weights, counters, stream)) {
    const auto is_nested = [](const AxisPair& pair) { return pair.first != pair.second; };
    if (std::any_of(model_steps.pairs.begin(), model_steps.pairs.end(), is_nested))
      steps_.push_back(prepare_segments(model_steps.pairs, bindings_, stream));
    for (const ModelStep& step : model_steps.steps)
      steps_.push_back(naming(name_of(graph, step), [&] { return step.prepare(bindings_, stream); }));
    device::synchronize(stream);
  }

  /// Queues every kernel by itself.
  void queue(device::Stream stream) const {
    for (const PreparedStep& step : steps_) {
      const device::Range range(step.kernel.c_str());
      step.queue(stream, step);
    }
  }
  void capture(device::Stream stream) {
    graph_ = device::Graph::capture(stream, [&] { queue(stream); });
    is_captured_ = true;
  }
  /// The graph, or where there is none every kernel by itself.
  void launch(device::Stream stream) const {
    if (is_captured_) {
      graph_.launch(stream);
    } else {
      queue(stream);
    }
  }

  const SharedMemory& memory() const { return memory_; }
  const Bindings& bindings() const { return bindings_; }
  const RunSize& size() const { return size_; }
  BatchIndex index() const { return BatchIndex(static_cast<int64_t>(size_.rows.size()), size_.max_requests); }
  const OutputsLayout& outputs() const { return outputs_; }
  const std::vector<PreparedStep>& steps() const { return steps_; }
  int64_t device_bytes() const {
    int64_t bytes = 0;
    for (const PreparedStep& step : steps_) bytes += step.bytes();
    for (const device::DeviceMemory& segments : segments_) bytes += segments.bytes();
    return bytes;
  }

 private:
  /// What the step computes.
  static std::string name_of(const Graph& graph, const ModelStep& step) {
    if (step.nodes.empty()) return "outputs";
    const std::string& first = graph.node(step.nodes[0]).name;
    return step.nodes.size() == 1 ? first : first + " and " + std::to_string(step.nodes.size() - 1) + " more";
  }

  ContextMemory addresses(const Graph& graph, const ValueLayout& values, const plan::Storage& storage,
                          const ModelSteps& model_steps, const device::DeviceMemory& weights, LookupCounters* counters,
                          device::Stream stream) {
    ContextMemory to;
    to.index = memory_.index;
    to.index_layout = BatchIndex(static_cast<int64_t>(graph.axes.size()), size_.max_requests);
    to.arena = static_cast<unsigned char*>(memory_.arena.data());
    to.slot_offsets = ArenaLayout(values, storage, size_.rows).slots;
    for (const int64_t first : outputs_.axes) to.outputs.push_back(static_cast<float*>(memory_.outputs.data()) + first);
    to.counters = counters;
    to.weights = static_cast<const unsigned char*>(weights.data());
    for (const AxisPair& pair : model_steps.pairs) {
      const int64_t bytes = 8 * (size_.rows[static_cast<size_t>(pair.second)] + 1);
      segments_.emplace_back(bytes, "the segments of axis '" + graph.axis(pair.first).name + "'");
      to.segments[pair] = static_cast<int64_t*>(segments_.back().data());
      if (pair.first != pair.second) continue;
      std::vector<int64_t> each(static_cast<size_t>(bytes / 8));  // a segment for each row
      std::iota(each.begin(), each.end(), int64_t{0});
      device::copy_to_device(segments_.back().data(), each.data(), bytes, stream);
      device::synchronize(stream);
    }
    return to;
  }

  const SharedMemory& memory_;
  RunSize size_;
  OutputsLayout outputs_;
  std::vector<device::DeviceMemory> segments_;
  Bindings bindings_;
  std::vector<PreparedStep> steps_;
  device::Graph graph_;
  bool is_captured_ = false;
};

}  // namespace warprank::cuda_backend
