// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A context on a GPU: memory for its capacities, a graph for each, one batch in flight.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/device/event.hpp"
#include "warprank/device/range.hpp"
#include "warprank/engine/cuda/awaited_keys.cuh"
#include "warprank/engine/cuda/batch_outputs.cuh"
#include "warprank/engine/cuda/batch_runs.cuh"
#include "warprank/engine/cuda/gathered_parts.cuh"
#include "warprank/engine/cuda/model_data.cuh"
#include "warprank/engine/cuda/profile.cuh"
#include "warprank/engine/cuda/published.cuh"
#include "warprank/plan/steps.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

class CudaContext : public ContextBackend {
 public:
  /// The model's device must be the current one.
  CudaContext(std::shared_ptr<const CudaModelData> model, const ContextOptions& options)
      : plan_(model->plan),
        model_(std::move(model)),
        options_(checked_wait(options)),
        storage_(options.keep_intermediates ? plan::plan_storage(graph(), plan_.options().passes.place_concats, false)
                                            : plan_.storage()),
        values_(graph(), storage_),
        in_memory_(plan::in_memory(graph(), storage_.steps)),
        tables_(model_->tables, done_),
        awaited_(graph(), *model_->tables, BatchRuns::sizes_of(plan_), stream_.get()),
        runs_(plan_, options_, model_->device_index, stream_.get()),
        outputs_(graph(), values_) {
    runs_.make(source(*model_));
    warm_up();
    for (const auto& run : runs_.of_capacities().runs()) capture(*run);
    expected_seconds_.resize(runs_.of_capacities().runs().size());
    published_ = Published::make();
    places_.reserve(runs_.splits() ? std::max<int64_t>(1, options.split_parts) : 1, runs_.of_capacities());
  }

  void submit(const Batch& batch, std::optional<StreamHandle> stream) override { submit(batch, {}, stream); }
  void submit_on_device(const DeviceBatch& batch, std::optional<StreamHandle> stream) override {
    const device::DeviceGuard current(model_->device_index);
    expect_on_device("device batch", batch.blobs());
    submit(batch.batch(), {batch.blobs(), nullptr}, stream);
  }
  void submit_piecewise(const PiecewiseBatch& batch, std::optional<StreamHandle> stream) override {
    const device::DeviceGuard current(model_->device_index);
    expect_on_device("piecewise batch", batch.memory().data());
    submit(batch.batch(), {nullptr, batch.pieces().empty() ? nullptr : &batch}, stream);
  }
  bool ready() const override { return published_.is_done() || done_.is_done(); }
  void wait() override {
    wait_for_published();
    if (awaited_.any()) wait_for_rows();
    outputs_.collect(runs_, places_);
  }

  Span<const OutputView> outputs() const override { return outputs_.views(); }
  DeviceScores device_scores(int output) const override {
    if (runs_.parts().count() > 1)
      throw invalid_argument("device scores", "a batch within a capacity",
                             "one that runs in " + std::to_string(runs_.parts().count()) + " parts");
    if (awaited_.any()) throw invalid_argument("device scores", "tables that wait for no store", "some that do");
    return outputs_.on_device(static_cast<size_t>(output), runs_);
  }
  Span<const int64_t> scored() const override { return outputs_.scored(); }

  void rebind(std::shared_ptr<const ModelBackend> next) override {
    const auto* const backend = dynamic_cast<const CudaModelBackend*>(next.get());
    if (backend == nullptr || backend->data()->device_index != model_->device_index)
      throw invalid_argument("Context::rebind", "a model of the context's engine and device", "one of another");
    const std::shared_ptr<const CudaModelData> model = backend->data();
    expect_same_tables(*model_, *model);
    if (model->copied_weights.bytes() != model_->copied_weights.bytes())
      throw invalid_argument(
          "Context::rebind",
          "a model, bound with the same tuning, linear_kernel and cuda_int8, whose layers of cuBLASLt are " +
              std::to_string(model_->copied_weights.bytes()) + " bytes as the context's",
          std::to_string(model->copied_weights.bytes()));
    const device::DeviceGuard current(model->device_index);
    CudaTableReader tables(model->tables, done_);
    RunSet &captured = runs_.of_capacities(), &others = runs_.larger();
    std::vector<PreparedRun> runs = captured.prepare_again(source(*model)),
                             larger = others.prepare_again(source(*model));
    const auto write = [&](const std::vector<PreparedRun>& prepared) {
      for (const PreparedRun& run : prepared) run.write_again(stream_.get());
    };
    try {
      write(runs);
      write(larger);
      captured.copy_weights(source(*model), stream_.get());
      capture_those_that_hold_weights(runs);
      device::synchronize(stream_.get());
    } catch (...) {
      settle(stream_.get());
      captured.restore(source(*model_), stream_.get());
      others.restore(source(*model_), stream_.get());
      throw;
    }
    captured.become(std::move(runs));
    others.become(std::move(larger));
    tables_ = std::move(tables);
    model_ = model;
  }

  bool keeps(int node) const override { return in_memory_[static_cast<size_t>(node)]; }
  Matrix<const float> tap(int node) override {
    const device::DeviceGuard current(model_->device_index);
    const Node& n = graph().node(node);
    const BatchParts& parts = runs_.parts();
    const int64_t rows = parts.count() == 0 ? 0 : parts[0].size.rows[static_cast<size_t>(n.axis)];
    tapped_.resize(static_cast<size_t>(rows * n.width));
    if (!tapped_.empty()) read_value(runs_.run_of(parts[0]).bindings().value(node), rows);
    return {tapped_.data(), rows, n.width};
  }

  std::vector<FeatureCounters> counters() const override {
    const device::DeviceGuard current(model_->device_index);
    const std::vector<LookupCounters> values = read_counters();
    std::vector<FeatureCounters> list;
    for (size_t n = 0; n < values.size(); ++n)
      if (counts(graph().nodes[n].op)) list.push_back({graph().nodes[n].name, values[n]});
    return list;
  }

  MemoryReport memory() const override {
    MemoryReport report = runs_.of_capacities().memory();
    report.emplace_back("pinned outputs", places_.output_bytes());
    report.emplace_back("pinned indices", places_.index_bytes());
    report.emplace_back("pinned flag", published_.pinned_bytes());
    if (gathered_.pinned_bytes() > 0) report.emplace_back("pinned pieces", gathered_.pinned_bytes());
    if (awaited_.any()) report.emplace_back("keys that are awaited", awaited_.device_bytes());
    if (!runs_.larger().runs().empty())
      report.emplace_back("a batch above all capacities", runs_.larger().device_bytes());
    return report;
  }
  std::string describe() const override {
    const device::DeviceGuard current(model_->device_index);
    const bool can_overlap = device::launches_overlap();
    std::string text = "waiting: " + text_of_wait(options_) + "\nlaunches: " +
                       (!options_.overlap_launches ? "one after another, as overlap_launches says"
                        : can_overlap              ? "overlap"
                                      : "one after another: the code is for sm_" + std::to_string(device::target()) +
                                            ", sm_90 can overlap them") +
                       "\n" + model_->linears;
    for (const auto& run : runs_.of_capacities().runs())
      text += "up to " + runs_.text_of(run->size()) + ":\n" + run->describe();
    for (const auto& run : runs_.larger().runs())
      text += "above all capacities, up to " + runs_.text_of(run->size()) + ":\n" + run->describe();
    return text;
  }

  Profile profile(const Batch& batch, const ProfileOptions& options) override {
    const device::DeviceGuard current(model_->device_index);
    if (runs_.measure(batch) < 0) throw runs_.too_large("profile: batch", runs_.parts().whole());
    const std::vector<LookupCounters> before = read_counters();
    double batch_seconds = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < options.turns; ++turn) {
      const auto begin = Published::Clock::now();
      submit(batch, {});
      wait();
      batch_seconds = std::min(batch_seconds, Published::Seconds(Published::Clock::now() - begin).count());
    }
    const device::Stream stream = stream_.get();
    const auto reading = tables_.read(stream);
    try {
      Profile profile = profile_of(runs_.run_of(runs_.parts()[0]), options, stream);
      profile.batch_seconds = batch_seconds;
      const device::DeviceMemory& counters = runs_.of_capacities().counters();
      device::copy_to_device(counters.data(), before.data(), counters.bytes(), stream);
      device::synchronize(stream);
      return profile;
    } catch (...) {
      settle(stream);
      throw;
    }
  }

 private:
  /// What of a batch is in the device's memory.
  struct OnDevice {
    const std::byte* blobs = nullptr;        ///< its blobs; null: they are where the batch has them
    const PiecewiseBatch* pieces = nullptr;  ///< pieces of these; null: none
  };

  void expect_on_device(const char* what, const std::byte* memory) const {
    if (memory != nullptr && !device::is_on_device(memory))
      throw invalid_argument(what, "memory of device " + std::to_string(model_->device_index), "other memory");
  }

  void submit(const Batch& batch, const OnDevice& on_device, std::optional<StreamHandle> stream) {
    const device::Range range("warprank submit");
    const device::DeviceGuard current(model_->device_index);
    const device::Stream to = stream ? reinterpret_cast<device::Stream>(*stream) : stream_.get();
    if (stream && !device::is_of_current_device(to))
      throw invalid_argument("stream", "one of device " + std::to_string(model_->device_index),
                             "one of another device");
    submitted_ = {&batch, on_device.blobs, to, Published::Clock::now()};
    const int run = runs_.measure(batch);
    if (run < 0 && options_.oversize == Oversize::refuse) throw runs_.too_large("batch", runs_.parts().whole());
    try {
      runs_.divide(batch, run, source(*model_));
      places_.place(batch, runs_);
      gathered_.clear();
      if (on_device.pieces != nullptr) gathered_.list(*on_device.pieces, runs_, places_);
      outputs_.remember(batch);
      queue(batch, false, to);
    } catch (...) {
      runs_.forget();
      outputs_.forget();
      throw;
    }
  }

  const Graph& graph() const { return plan_.graph(); }
  RunSource source(const CudaModelData& model) const {
    return {graph(),
            values_,
            storage_,
            model.steps,
            static_cast<const unsigned char*>(model.weights.data()),
            model.copied_weights,
            awaited_.on_device()};
  }
  std::vector<LookupCounters> read_counters() const {
    std::vector<LookupCounters> values(graph().nodes.size());
    read(values.data(), runs_.of_capacities().counters().data(), runs_.of_capacities().counters().bytes());
    return values;
  }
  void read(void* to, const void* from, int64_t bytes) const {
    try {
      device::copy_to_host(to, from, bytes, stream_.get());
      device::synchronize(stream_.get());
    } catch (...) {
      settle(stream_.get());  // the copy still writes what the caller is about to free
      throw;
    }
  }
  static bool counts(const Op& op) {
    const auto* linear = std::get_if<LinearOp>(&op);
    return std::holds_alternative<EmbedOp>(op) || (linear != nullptr && linear->scene >= 0);
  }

  /// Runs no request: all kernels are loaded to the device before a capture, which must not wait for that, and before
  /// the first batch comes.
  void warm_up() {
    empty_index();
    Fetch{}.queue(stream_.get(), 1);
    Gather{}.queue(stream_.get());
    for (const auto& run : runs_.of_capacities().runs()) run->launch(stream_.get(), {}, {});
    device::synchronize(stream_.get());
  }
  void capture(PreparedRun& run) {
    std::optional<device::LaunchesInTurn> in_turn;
    if (!options_.overlap_launches) in_turn.emplace();
    run.capture(stream_.get(), options_.fetch_bytes);
  }
  void empty_index() {
    const RunSet& runs = runs_.of_capacities();
    device::fill(runs.shared().index, 0, runs.runs()[0]->index().bytes(), stream_.get());
  }

  // ---- A run

  /// Everything of a batch; `is_again`: of the one before.
  void queue(const Batch& batch, bool is_again, device::Stream stream) {
    const auto reading = tables_.read(stream);  // until `done_` is recorded
    try {
      awaited_.queue_before(runs_.of_capacities().counters(), is_again, stream);
      for (int64_t i = 0; i < runs_.parts().count(); ++i) queue_part(batch, i, stream);
      awaited_.queue_behind(stream);
      done_.record(stream);
    } catch (...) {
      settle(stream);  // what was queued still reads the batch
      throw;
    }
  }
  /// Brings a part to the device, runs it, and has its scores published.
  void queue_part(const Batch& batch, int64_t number, device::Stream stream) {
    const BatchPart& part = runs_.parts()[number];
    const PartPlace& place = places_[number];
    const PreparedRun& run = runs_.run_of(part);
    const SharedMemory& shared = runs_.memory_of(part);
    if (place.index != nullptr) runs_.parts().write_index(batch, part, run.index(), place.index);
    const Fetch fetch = gathered_.has_all() ? Fetch{} : bring(batch, part, place, stream);
    if (gathered_.any()) gathered_.of(number).queue(stream);
    const bool is_last = number == runs_.parts().count() - 1;
    const int64_t floats = outputs_.num_floats(part, run);
    run.launch(stream, fetch, published_.next(place.outputs, shared.outputs, floats, shared.ticket, is_last));
  }
  /// What the graph is to fetch; nothing where copies are queued.
  Fetch bring(const Batch& batch, const BatchPart& part, const PartPlace& place, device::Stream stream) {
    const PreparedRun& run = runs_.run_of(part);
    const int64_t blob_bytes = part.blobs_end - part.blobs_begin, index_bytes = run.index().bytes();
    const bool is_on_device = submitted_.on_device != nullptr;
    const std::byte* const blobs = (is_on_device ? submitted_.on_device : batch.blobs().data()) + part.blobs_begin;
    const std::byte* const index = place.index != nullptr ? place.index : batch.blobs().end();
    unsigned char* const to = runs_.memory_of(part).index;
    if (run.fetches() && device::can_read(is_on_device ? index : blobs))
      return Fetch::of(to, blobs, blob_bytes, index, index_bytes);
    if (!is_on_device && place.index == nullptr) {  // the index lies behind the blobs
      device::copy_to_device(to - blob_bytes, blobs, blob_bytes + index_bytes, stream);
      return {};
    }
    if (is_on_device && blob_bytes > 0) device::copy_on_device(to - blob_bytes, blobs, blob_bytes, stream);
    if (!is_on_device && blob_bytes > 0) device::copy_to_device(to - blob_bytes, blobs, blob_bytes, stream);
    device::copy_to_device(to, index, index_bytes, stream);
    return {};
  }
  void wait_for_published() {
    double unknown = 0;
    const BatchParts& parts = runs_.parts();
    const bool is_known = parts.count() == 1 && parts[0].run >= 0;
    published_.wait(options_, done_, is_known ? expected_seconds_[static_cast<size_t>(parts[0].run)] : unknown);
  }
  /// Runs the batch again when the rows have come that it has not found, for as long as it may wait for them.
  void wait_for_rows() {
    const device::DeviceGuard current(model_->device_index);
    done_.synchronize();
    for (bool is_last = false; !is_last && awaited_.want(*model_->tables, stream_.get());) {
      is_last = !awaited_.wait(*model_->tables, submitted_.begin);
      queue(*submitted_.batch, true, submitted_.stream);
      wait_for_published();
      done_.synchronize();
    }
    awaited_.count(*model_->tables);
  }

  /// The first rows of a value of the last run, as FP32, into `tapped_`.
  void read_value(const FloatMatrix<void>& value, int64_t rows) {
    const int64_t bytes = ((rows - 1) * value.stride + value.cols) * size_of(value.type);
    std::vector<unsigned char> copy(static_cast<size_t>(bytes));
    read(copy.data(), value.data, bytes);
    const auto read = [&](auto type) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < value.cols; ++c) {
          decltype(type) element;
          std::memcpy(&element, &copy[static_cast<size_t>((r * value.stride + c)) * sizeof element], sizeof element);
          tapped_[static_cast<size_t>(r * value.cols + c)] = to_float(element);
        }
    };
    value.type == DType::f16 ? read(float16{}) : read(float{});
  }

  /// Graphs for the runs that cannot take those of the context, which they do not replace yet. Their memory is queued
  /// to be what it is to be.
  void capture_those_that_hold_weights(std::vector<PreparedRun>& runs) {
    for (PreparedRun& run : runs) {
      if (!run.captures_weights()) continue;
      empty_index();
      run.queue_captures_of_weights(stream_.get());  // as in warm_up
      device::synchronize(stream_.get());
      capture(run);
    }
  }

  const Plan plan_;
  std::shared_ptr<const CudaModelData> model_;
  const ContextOptions options_;
  const plan::Storage storage_;
  const ValueLayout values_;
  const std::vector<bool> in_memory_;  // by node
  device::OwnedStream stream_;
  device::Event done_;
  Published published_;
  std::vector<double> expected_seconds_;  // that a batch takes, by run
  CudaTableReader tables_;                // of the model
  AwaitedKeys awaited_;
  BatchRuns runs_;
  PinnedParts places_;
  GatheredParts gathered_;
  BatchOutputs outputs_;
  std::vector<float> tapped_;

  /// The last batch, which is there until it is waited for.
  struct Submitted {
    const Batch* batch = nullptr;
    const std::byte* on_device = nullptr;  // its blobs, if they are in the device's memory
    device::Stream stream = {};
    Published::Clock::time_point begin = {};
  };
  Submitted submitted_;
};

}}}  // namespace warprank::v0::cuda_backend
