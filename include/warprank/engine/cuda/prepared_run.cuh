// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All steps of a model for batches up to one size: where everything is, and a graph of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/device/range.hpp"
#include "warprank/engine/cuda/fetch.cuh"
#include "warprank/engine/cuda/make_steps.cuh"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/publish.cuh"
#include "warprank/engine/cuda/run_size.hpp"
#include "warprank/engine/cuda/segments_step.cuh"
#include "warprank/ops/detail/gemm/cublaslt.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// What a context prepares runs from. The graph and the layout outlive the runs, the rest does not.
struct RunSource {
  const Graph& graph;
  const ValueLayout& values;
  const plan::Storage& storage;
  const ModelSteps& steps;
  const unsigned char* weights;
  const device::DeviceMemory& copied_weights;  ///< the model's, of which the context has a copy
  const KeyList* awaited = nullptr;            ///< the context's (AwaitedKeys)
};

/// Where in device memory what runs of several sizes take in turns is.
struct SharedMemory {
  unsigned char* index = nullptr;  ///< of the batch, whose blobs come before it
  unsigned char* arena = nullptr;
  float* outputs = nullptr;
  unsigned char* copied_weights = nullptr;  ///< the copy that launches of cuBLASLt have the addresses of
  LookupCounters* counters = nullptr;
  uint32_t* ticket = nullptr;  ///< for publishing; 0 between batches
};

class PreparedRun {
 public:
  /// Touches no device: `memory().write()` makes the memory what it is to be.
  PreparedRun(const RunSource& from, const SharedMemory& shared, RunSize size, StepMemory memory)
      : size_(std::move(size)),
        outputs_(from.values, size_.rows),
        memory_(std::move(memory)),
        bindings_(from.graph, from.values, size_.rows, addresses(from, shared)) {
    const auto is_nested = [](const AxisPair& pair) { return pair.first != pair.second; };
    if (std::any_of(from.steps.pairs.begin(), from.steps.pairs.end(), is_nested))
      add("segments", [&] { return prepare_segments(from.steps.pairs, bindings_, memory_); });
    for (const ModelStep& step : from.steps.steps)
      add(step.nodes.empty() ? "outputs" : plan::name_of(from.graph, step.nodes),
          [&] { return step.prepare(bindings_, memory_); });
  }

  /// Queues every kernel by itself, of the first `num_steps` steps. The first step begins when what is ahead has ended:
  /// steps read the batch as constants, which may be before they wait, and a kernel may have brought it.
  void queue(device::Stream stream, size_t num_steps) const {
    for (size_t i = 0; i < num_steps; ++i) {
      const device::Range range(steps_[i].kernel.c_str());
      std::optional<device::LaunchesInTurn> in_turn;
      if (i == 0) in_turn.emplace();
      steps_[i].queue(stream);
    }
  }
  void queue(device::Stream stream) const { queue(stream, steps_.size()); }
  /// With what publishes the outputs behind the steps, and what fetches the batch before them, where that has
  /// `fetch_bytes` at most.
  void capture(device::Stream stream, int64_t fetch_bytes) {
    const int64_t input_bytes = size_.blob_bytes + index().bytes();
    fetch_blocks_ = input_bytes <= fetch_bytes ? Fetch::blocks(input_bytes) : 0;
    graph_ = device::Graph::capture(stream, [&] {
      if (fetches()) Fetch{}.queue(stream, fetch_blocks_);
      queue(stream);
      Publish{}.queue(stream, Publish::blocks(outputs_.floats));
    });
    is_captured_ = true;
  }
  /// Whether the graph can fetch the batch: then it does as its `Fetch` says.
  bool fetches() const { return fetch_blocks_ > 0; }
  /// The graph, or where there is none every kernel by itself.
  void launch(device::Stream stream, const Fetch& fetch, const Publish& publish) const {
    if (is_captured_) {
      if (fetches()) fetch.set(graph_);
      publish.set(graph_);
      graph_.launch(stream);
    } else {
      queue(stream);
      publish.queue(stream, Publish::blocks(publish.count));
    }
  }

  /// Whether a graph of these steps is good for this model alone.
  bool captures_weights() const {
    return std::any_of(steps_.begin(), steps_.end(), [](const PreparedStep& step) { return step.captures_weights; });
  }
  /// Whether it reads rows of the arena that nothing may have written.
  bool reads_unused_rows() const {
    return std::any_of(steps_.begin(), steps_.end(), [](const PreparedStep& step) { return step.reads_unused_rows; });
  }
  /// Runs what a graph will have that others have not run before.
  void queue_captures_of_weights(device::Stream stream) const {
    for (const PreparedStep& step : steps_)
      if (step.captures_weights) step.queue(stream);
  }
  /// Throws invalid_argument unless `next`, of the same size, takes as much memory at the same addresses, and launches
  /// the same kernels in the same way, so that the graph of this does for it.
  void expect_same_launches(const PreparedRun& next) const {
    const auto expect = [](bool same, const std::string& what) {
      if (same) return;
      throw invalid_argument(
          "Context::rebind",
          "a model, bound with the same tuning, linear_kernel and cuda_int8, whose " + what + " as the context's",
          "others");
    };
    expect(memory_.sizes() == next.memory_.sizes() && steps_.size() == next.steps_.size(), "steps take as much memory");
    for (size_t i = 0; i < steps_.size(); ++i) {
      const PreparedStep &before = steps_[i], &after = next.steps_[i];
      if (before.captures_weights && after.captures_weights) continue;
      expect(before.captures_weights == after.captures_weights && launches_of(before) == launches_of(after),
             "step " + std::to_string(i) + " (" + before.kernel + ") is launched");
    }
  }
  /// A line for each launch. What depends on the model is not known to be the same at every run, nor its grid.
  std::string describe() const {
    device::LaunchRecorder own;
    if (fetches()) Fetch{}.queue({}, fetch_blocks_);
    Publish{}.queue({}, Publish::blocks(outputs_.floats));
    std::string text;
    if (fetches()) text += "  fetch: " + own.launches().front().to_string() + "\n";
    for (const PreparedStep& step : steps_) {
      if (step.captures_weights) {
        text += "  " + step.kernel + ": " + std::to_string(step.num_launches) + " launches that depend on the model\n";
        continue;
      }
      for (const device::RecordedLaunch& launch : launches_of(step))
        text += "  " + step.kernel + ": " + detail::gemm::text_of_launch(launch) + "\n";
    }
    return text + "  publish: " + own.launches().back().to_string() + "\n";
  }
  /// Queues that the memory becomes what it is to be, where the run of another model had it. One that has a graph of
  /// its own may have left something else than zeros there, or have had them elsewhere.
  void write_again(device::Stream stream) const {
    if (captures_weights()) {
      memory_.write(stream);
    } else {
      memory_.write_copied(stream);
    }
  }
  /// Becomes `next`, and keeps its graph where that does.
  void become(PreparedRun&& next) noexcept {
    memory_ = std::move(next.memory_);
    steps_ = std::move(next.steps_);
    if (!next.is_captured_) return;
    graph_ = std::move(next.graph_);
    fetch_blocks_ = next.fetch_blocks_;
  }

  const Bindings& bindings() const { return bindings_; }
  const RunSize& size() const { return size_; }
  BatchIndex index() const { return index_of(size_); }
  const OutputsLayout& outputs() const { return outputs_; }
  const std::vector<PreparedStep>& steps() const { return steps_; }
  const StepMemory& memory() const { return memory_; }

  static BatchIndex index_of(const RunSize& size) {
    return BatchIndex(static_cast<int64_t>(size.rows.size()), size.max_requests);
  }

 private:
  template <class Prepare>
  void add(const std::string& name, Prepare prepare) {
    steps_.push_back(naming(name, prepare));
    steps_.back().name = name;
  }

  static std::vector<device::RecordedLaunch> launches_of(const PreparedStep& step) {
    device::LaunchRecorder recorder;
    step.queue({});
    return recorder.launches();
  }

  ContextMemory addresses(const RunSource& from, const SharedMemory& shared) {
    ContextMemory to;
    to.index = shared.index;
    to.index_layout = index();
    to.arena = shared.arena;
    to.slot_offsets = ArenaLayout(from.values, from.storage, size_.rows).slots;
    for (const int64_t first : outputs_.axes) to.outputs.push_back(shared.outputs + first);
    to.counters = shared.counters;
    to.awaited = from.awaited;
    to.weights = from.weights;
    to.copied_weights = shared.copied_weights;
    for (const AxisPair& pair : from.steps.pairs) {
      const int64_t count = size_.rows[static_cast<size_t>(pair.second)] + 1;
      if (pair.first != pair.second) {
        to.segments[pair] = static_cast<int64_t*>(memory_.unwritten(8 * count));
        continue;
      }
      to.segments[pair] = static_cast<int64_t*>(memory_.copied(8 * count, [&](unsigned char* bytes) {
        auto* const each = reinterpret_cast<int64_t*>(bytes);  // a segment for each row
        std::iota(each, each + count, int64_t{0});
      }));
    }
    return to;
  }

  RunSize size_;
  OutputsLayout outputs_;
  StepMemory memory_;
  Bindings bindings_;
  std::vector<PreparedStep> steps_;
  device::Graph graph_;
  bool is_captured_ = false;
  unsigned fetch_blocks_ = 0;  // of the graph; 0: it fetches nothing
};

}}}  // namespace warprank::v0::cuda_backend
