// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A context on a GPU: memory for its capacities, a graph for each, one batch in flight.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/device/event.hpp"
#include "warprank/device/range.hpp"
#include "warprank/engine/cuda/prepared_run.cuh"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/plan/steps.hpp"

namespace warprank::cuda_backend {

/// What all contexts of a model share. The steps refer to the weights and the tables.
struct CudaModelData {
  Plan plan;
  std::shared_ptr<const CudaTableStore> tables;
  int device_index = 0;
  ModelSteps steps;
  device::DeviceMemory weights;
};

class CudaContext : public ContextBackend {
 public:
  /// The model's device must be the current one.
  CudaContext(std::shared_ptr<const CudaModelData> model, const ContextOptions& options)
      : model_(std::move(model)),
        oversize_(options.oversize),
        storage_(options.keep_intermediates
                     ? plan::plan_storage(graph(), model_->plan.options().passes.place_concats, false)
                     : model_->plan.storage()),
        values_(graph(), storage_),
        in_memory_(plan::in_memory(graph(), storage_.steps)),
        tables_(model_->tables, done_) {
    std::vector<RunSize> sizes;
    for (const Capacity& capacity : model_->plan.options().capacities) {
      std::vector<int64_t> rows = plan::rows_at(model_->plan.source(), capacity);
      const int64_t blob_bytes = most_blob_bytes(model_->plan.layout(), rows);
      sizes.push_back({std::move(rows), model_->plan.most_requests(), blob_bytes});
    }
    counters_ = zeroed(counter_bytes(), "a context's counters", stream_.get());
    memory_ = make_shared_memory(graph(), values_, storage_, sizes, model_->device_index);
    for (RunSize& size : sizes) runs_.push_back(prepare(std::move(size), memory_));
    warm_up();
    for (const auto& run : runs_) run->capture(stream_.get());
    for (const OutputInfo& output : graph().outputs) outputs_.push_back({output.name, {}, {}});
    output_values_.resize(graph().outputs.size());
    row_starts_.resize(graph().outputs.size());
    tap_rows_.resize(graph().axes.size());
  }

  void submit(const Batch& batch, StreamHandle stream) override {
    const device::Range range("warprank submit");
    const device::DeviceGuard current(model_->device_index);
    const device::Stream to = stream == nullptr ? stream_.get() : reinterpret_cast<device::Stream>(stream);
    last_ = find(batch);
    remember(batch);
    const SharedMemory& memory = last_->memory();
    const Span<const std::byte> bytes = with_index_of(*last_, batch);
    const int64_t blob_bytes = bytes.size() - last_->index().bytes();
    const auto reading = tables_.read(to);  // until `done_` is recorded
    try {
      device::copy_to_device(memory.index - blob_bytes, bytes.data(), bytes.size(), to);
      last_->launch(to);
      device::copy_to_host(memory.host_outputs.data(), memory.outputs.data(), output_bytes(), to);
      done_.record(to);
    } catch (...) {
      wait_for(to);  // what was queued still reads the batch
      throw;
    }
  }
  bool ready() const override { return done_.is_done(); }
  void wait() override {
    done_.synchronize();
    collect_outputs();
  }

  Span<const OutputView> outputs() const override { return outputs_; }
  Span<const int64_t> scored() const override { return scored_; }

  bool keeps(int node) const override { return in_memory_[static_cast<size_t>(node)]; }
  Matrix<const float> tap(int node) override {
    const device::DeviceGuard current(model_->device_index);
    const Node& n = graph().node(node);
    const int64_t rows = last_ == nullptr ? 0 : tap_rows_[static_cast<size_t>(n.axis)];
    tapped_.resize(static_cast<size_t>(rows * n.width));
    if (!tapped_.empty()) read_value(last_->bindings().value(node), rows);
    return {tapped_.data(), rows, n.width};
  }

  std::vector<FeatureCounters> counters() const override {
    const device::DeviceGuard current(model_->device_index);
    std::vector<LookupCounters> values(graph().nodes.size());
    device::copy_to_host(values.data(), counters_.data(), counter_bytes(), stream_.get());
    device::synchronize(stream_.get());
    std::vector<FeatureCounters> list;
    for (size_t n = 0; n < values.size(); ++n)
      if (counts(graph().nodes[n].op)) list.push_back({graph().nodes[n].name, values[n]});
    return list;
  }

  MemoryReport memory() const override {
    MemoryReport report = {{"input", memory_.input.bytes()},
                           {"arena", memory_.arena.bytes()},
                           {"outputs", memory_.outputs.bytes()},
                           {"counters", counters_.bytes()},
                           {"pinned outputs", memory_.host_outputs.bytes()}};
    int64_t steps = 0;
    for (const auto& run : runs_) steps += run->device_bytes();
    report.emplace_back("steps of all capacities", steps);
    if (larger_ != nullptr)
      report.emplace_back("a batch above all capacities", larger_memory_.device_bytes() + larger_->device_bytes());
    return report;
  }

 private:
  const Graph& graph() const { return model_->plan.graph(); }
  int64_t counter_bytes() const { return static_cast<int64_t>(graph().nodes.size() * sizeof(LookupCounters)); }
  static bool counts(const Op& op) {
    const auto* linear = std::get_if<LinearOp>(&op);
    return std::holds_alternative<EmbedOp>(op) || (linear != nullptr && linear->scene >= 0);
  }

  /// Runs no request: all kernels are loaded to the device before a capture, which must not wait for that, and before
  /// the first batch comes.
  void warm_up() {
    device::fill(memory_.index, 0, runs_[0]->index().bytes(), stream_.get());
    for (const auto& run : runs_) run->launch(stream_.get());
    device::synchronize(stream_.get());
  }
  static void wait_for(device::Stream stream) {
    try {
      device::synchronize(stream);
    } catch (const std::exception&) {  // NOLINT: the first error is the one to tell
    }
  }

  std::unique_ptr<PreparedRun> prepare(RunSize size, const SharedMemory& memory) {
    return std::make_unique<PreparedRun>(graph(), values_, storage_, model_->steps, model_->weights, memory,
                                         static_cast<LookupCounters*>(counters_.data()), std::move(size),
                                         stream_.get());
  }

  /// The least of the sizes that the batch fits, else one made for it.
  const PreparedRun* find(const Batch& batch) {
    RunSize needed;
    for (int axis = 0; axis < static_cast<int>(graph().axes.size()); ++axis)
      needed.rows.push_back(batch.num_rows({axis}));
    needed.max_requests = batch.num_scored();
    needed.blob_bytes = batch.bytes().size() - batch.index().bytes();
    const PreparedRun* least = nullptr;
    for (const auto& run : runs_)
      if (run->size().holds(needed) && (least == nullptr || least->size().holds(run->size()))) least = run.get();
    if (least != nullptr) return least;
    if (oversize_ == Oversize::refuse) throw too_large(needed);
    if (larger_ == nullptr || !larger_->size().holds(needed)) make_larger(needed);
    return larger_.get();
  }

  /// For this batch and those before it; where memory does not suffice for all, for this one.
  void make_larger(const RunSize& needed) {
    RunSize joined = larger_ == nullptr ? needed : larger_->size().joined(needed);
    const auto forget = [&] {
      last_ = nullptr;
      for (OutputView& output : outputs_) output.values = {}, output.requests = {};
      scored_.clear();
      larger_.reset();
      larger_memory_ = {};
    };
    const auto make = [&](const RunSize& size) {
      forget();  // before anything is taken: there may not be room for both
      larger_memory_ = make_shared_memory(graph(), values_, storage_, {size}, model_->device_index);
      larger_ = prepare(size, larger_memory_);
    };
    try {
      try {
        make(joined);
      } catch (const out_of_device_memory&) {
        make(needed);
      }
    } catch (...) {
      forget();
      throw;
    }
  }

  /// The batch with the index that a run reads: most often as it is, else copied into memory of the context's.
  Span<const std::byte> with_index_of(const PreparedRun& run, const Batch& batch) {
    const Span<const std::byte> bytes = batch.bytes();
    const BatchIndex &given = batch.index(), wanted = run.index();
    if (given.max_requests() == wanted.max_requests()) return bytes;
    const int64_t blob_bytes = bytes.size() - given.bytes(), needed = blob_bytes + wanted.bytes();
    if (staging_.bytes() < needed) staging_ = device::PinnedMemory(needed, "a batch that is not of Model::batch()");
    auto* const to = static_cast<std::byte*>(staging_.data());
    std::copy_n(bytes.data(), blob_bytes, to);
    detail::copy_index(given, bytes.data() + blob_bytes, wanted, to + blob_bytes);
    return {to, needed};
  }

  invalid_argument too_large(const RunSize& needed) const {
    const auto text = [&](const RunSize& size) {
      std::string all;
      for (size_t a = 0; a < size.rows.size(); ++a)
        all += (a == 0 ? "" : ", ") + graph().axes[a].name + " " + std::to_string(size.rows[a]);
      return all + ", " + std::to_string(size.blob_bytes) + " bytes";
    };
    std::string capacities;
    for (const auto& run : runs_) capacities += (capacities.empty() ? "" : "; or ") + text(run->size());
    return {"batch", "at most the rows of a capacity: " + capacities, text(needed)};
  }

  /// What is asked for once the batch is done, and it may be gone by then.
  void remember(const Batch& batch) {
    scored_.clear();
    int64_t next = 0;
    for (int64_t r = 0; r < batch.size(); ++r) scored_.push_back(batch.status(r).ok() ? next++ : -1);
    for (int axis = 0; axis < static_cast<int>(tap_rows_.size()); ++axis)
      tap_rows_[static_cast<size_t>(axis)] = batch.num_rows({axis});
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Span<const int64_t> starts = batch.row_starts({graph().node(graph().outputs[o].node).axis});
      row_starts_[o].assign(starts.begin(), starts.end());
    }
  }

  /// From the first output to the last row of the last.
  int64_t output_bytes() const {
    int64_t end = 0;
    for (size_t axis = 0; axis < tap_rows_.size(); ++axis) {
      const int64_t width = values_.output_width(static_cast<int>(axis));
      if (width > 0) end = last_->outputs().axes[axis] + tap_rows_[axis] * width;
    }
    return 4 * end;
  }

  void collect_outputs() {
    const auto* floats = static_cast<const float*>(last_->memory().host_outputs.data());
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Node& node = graph().node(graph().outputs[o].node);
      const auto axis = static_cast<size_t>(node.axis);
      const int64_t rows = tap_rows_[axis], stride = values_.output_width(node.axis);
      const float* from = floats + last_->outputs().axes[axis] + values_.outputs()[o].column;
      if (stride != node.width) {  // side by side with others
        output_values_[o].resize(static_cast<size_t>(rows * node.width));
        for (int64_t r = 0; r < rows; ++r)
          std::copy_n(from + r * stride, node.width, output_values_[o].data() + r * node.width);
        from = output_values_[o].data();
      }
      outputs_[o].values = {from, rows, node.width};
      outputs_[o].requests = {row_starts_[o].data(), static_cast<int64_t>(row_starts_[o].size()) - 1};
    }
  }

  /// The first rows of a value of the last run, as FP32, into `tapped_`.
  void read_value(const FloatMatrix<void>& value, int64_t rows) {
    const int64_t bytes = ((rows - 1) * value.stride + value.cols) * size_of(value.type);
    std::vector<unsigned char> copy(static_cast<size_t>(bytes));
    device::copy_to_host(copy.data(), value.data, bytes, stream_.get());
    device::synchronize(stream_.get());
    const auto read = [&](auto type) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < value.cols; ++c) {
          decltype(type) element;
          std::memcpy(&element, &copy[static_cast<size_t>((r * value.stride + c)) * sizeof element], sizeof element);
          tapped_[static_cast<size_t>(r * value.cols + c)] = to_float(element);
        }
    };
    value.type == DType::f16 ? read(half{}) : read(float{});
  }

  std::shared_ptr<const CudaModelData> model_;
  const Oversize oversize_;
  const plan::Storage storage_;
  const ValueLayout values_;
  const std::vector<bool> in_memory_;  // by node
  device::OwnedStream stream_;
  device::Event done_;
  CudaTableReader tables_;  // of the model
  device::DeviceMemory counters_;
  SharedMemory memory_, larger_memory_;
  device::PinnedMemory staging_;
  std::vector<std::unique_ptr<PreparedRun>> runs_;
  std::unique_ptr<PreparedRun> larger_;  ///< for the last batch above all capacities

  const PreparedRun* last_ = nullptr;
  std::vector<int64_t> scored_, tap_rows_;
  std::vector<std::vector<int64_t>> row_starts_;  // by output
  std::vector<OutputView> outputs_;
  std::vector<std::vector<float>> output_values_;
  std::vector<float> tapped_;
};

}  // namespace warprank::cuda_backend
