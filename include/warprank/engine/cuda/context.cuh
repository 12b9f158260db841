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
#include "warprank/engine/cuda/batch_parts.hpp"
#include "warprank/engine/cuda/profile.cuh"
#include "warprank/engine/cuda/published.cuh"
#include "warprank/engine/cuda/run_set.cuh"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/plan/steps.hpp"

namespace warprank::cuda_backend {

/// What all contexts of a model share. The steps refer to the tables, and to the weights by where these begin.
struct CudaModelData {
  Plan plan;
  std::shared_ptr<const CudaTableStore> tables;
  int device_index = 0;
  ModelSteps steps;
  device::DeviceMemory weights, copied_weights;  ///< of the latter each context has a copy (WeightsMemory)
  std::string linears;                           ///< lines: how their kernels were chosen
};

/// A model of this engine.
class CudaModelBackend : public ModelBackend {
 public:
  const std::shared_ptr<const CudaModelData>& data() const { return data_; }

 protected:
  std::shared_ptr<const CudaModelData> data_;
};

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
        awaited_(graph(), *model_->tables, sizes(), stream_.get()) {
    const std::vector<RunSize> sizes = this->sizes();
    runs_ = RunSet(source(*model_), sizes, nullptr, "a context", model_->device_index, stream_.get());
    warm_up();
    for (const auto& run : runs_.runs()) capture(*run);
    expected_seconds_.resize(runs_.runs().size());
    published_ = Published::make();
    reserve_pinned(splits() ? std::max<int64_t>(1, options.split_parts) : 1);
    for (const OutputInfo& output : graph().outputs) outputs_.push_back({output.name, {}, {}});
    output_values_.resize(graph().outputs.size());
    row_starts_.resize(graph().outputs.size());
  }

  void submit(const Batch& batch, StreamHandle stream) override {
    const device::Range range("warprank submit");
    const device::DeviceGuard current(model_->device_index);
    const device::Stream to = stream == nullptr ? stream_.get() : reinterpret_cast<device::Stream>(stream);
    submitted_ = {&batch, to, Published::Clock::now()};
    const int run = find(parts_.measure(batch));
    if (run < 0 && options_.oversize == Oversize::refuse) throw too_large("batch", parts_.whole());
    try {
      divide(batch, run);
      place_parts(batch);
      remember(batch);
      queue(batch, false, to);
    } catch (...) {
      forget();
      throw;
    }
  }
  bool ready() const override { return published_.is_done() || done_.is_done(); }
  void wait() override {
    wait_for_published();
    if (awaited_.any()) wait_for_rows();
    collect_outputs();
  }

  Span<const OutputView> outputs() const override { return outputs_; }
  Span<const int64_t> scored() const override { return scored_; }

  void rebind(std::shared_ptr<const ModelBackend> next) override {
    const auto* const backend = dynamic_cast<const CudaModelBackend*>(next.get());
    if (backend == nullptr || backend->data()->device_index != model_->device_index)
      throw invalid_argument("Context::rebind", "a model of the context's engine and device", "one of another");
    const std::shared_ptr<const CudaModelData> model = backend->data();
    expect_same_tables(*model);
    if (model->copied_weights.bytes() != model_->copied_weights.bytes())
      throw invalid_argument("Context::rebind",
                             "a model, bound with the same tuning and linear_kernel, whose layers of cuBLASLt are " +
                                 std::to_string(model_->copied_weights.bytes()) + " bytes as the context's",
                             std::to_string(model->copied_weights.bytes()));
    const device::DeviceGuard current(model->device_index);
    CudaTableReader tables(model->tables, done_);
    std::vector<PreparedRun> runs = runs_.prepare_again(source(*model)), larger = larger_.prepare_again(source(*model));
    const auto write = [&](const std::vector<PreparedRun>& prepared) {
      for (const PreparedRun& run : prepared) run.write_again(stream_.get());
    };
    try {
      write(runs);
      write(larger);
      runs_.copy_weights(source(*model), stream_.get());
      capture_those_that_hold_weights(runs);
      device::synchronize(stream_.get());
    } catch (...) {
      settle(stream_.get());
      runs_.restore(source(*model_), stream_.get());
      larger_.restore(source(*model_), stream_.get());
      throw;
    }
    runs_.become(std::move(runs));
    larger_.become(std::move(larger));
    tables_ = std::move(tables);
    model_ = model;
  }

  bool keeps(int node) const override { return in_memory_[static_cast<size_t>(node)]; }
  Matrix<const float> tap(int node) override {
    const device::DeviceGuard current(model_->device_index);
    const Node& n = graph().node(node);
    const int64_t rows = parts_.count() == 0 ? 0 : parts_[0].size.rows[static_cast<size_t>(n.axis)];
    tapped_.resize(static_cast<size_t>(rows * n.width));
    if (!tapped_.empty()) read_value(run_of(parts_[0]).bindings().value(node), rows);
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
    MemoryReport report = runs_.memory();
    report.emplace_back("pinned outputs", host_outputs_.bytes());
    report.emplace_back("pinned indices", host_indices_.bytes());
    report.emplace_back("pinned flag", published_.pinned_bytes());
    if (awaited_.any()) report.emplace_back("keys that are awaited", awaited_.device_bytes());
    if (!larger_.runs().empty()) report.emplace_back("a batch above all capacities", larger_.device_bytes());
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
    for (const auto& run : runs_.runs()) text += "up to " + text_of(run->size()) + ":\n" + run->describe();
    for (const auto& run : larger_.runs())
      text += "above all capacities, up to " + text_of(run->size()) + ":\n" + run->describe();
    return text;
  }

  Profile profile(const Batch& batch, const ProfileOptions& options) override {
    const device::DeviceGuard current(model_->device_index);
    if (find(parts_.measure(batch)) < 0) throw too_large("profile: batch", parts_.whole());
    const std::vector<LookupCounters> before = read_counters();
    double batch_seconds = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < options.turns; ++turn) {
      const auto begin = Published::Clock::now();
      submit(batch, nullptr);
      wait();
      batch_seconds = std::min(batch_seconds, Published::Seconds(Published::Clock::now() - begin).count());
    }
    const device::Stream stream = stream_.get();
    const auto reading = tables_.read(stream);
    try {
      Profile profile = profile_of(run_of(parts_[0]), options, stream);
      profile.batch_seconds = batch_seconds;
      const device::DeviceMemory& counters = runs_.counters();
      device::copy_to_device(counters.data(), before.data(), counters.bytes(), stream);
      device::synchronize(stream);
      return profile;
    } catch (...) {
      settle(stream);
      throw;
    }
  }

 private:
  /// Where a part's index lies until it is copied, null: in the batch; and where its outputs arrive.
  struct PartPlace {
    std::byte* index = nullptr;
    float* outputs = nullptr;
  };

  const Graph& graph() const { return plan_.graph(); }
  /// Of the capacities.
  std::vector<RunSize> sizes() const {
    std::vector<RunSize> sizes;
    for (const Capacity& capacity : plan_.options().capacities) {
      std::vector<int64_t> rows = plan::rows_at(plan_.source(), capacity);
      const int64_t blob_bytes = most_blob_bytes(plan_.layout(), rows);
      sizes.push_back({std::move(rows), plan_.most_requests(), blob_bytes});
    }
    return sizes;
  }
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
    read(values.data(), runs_.counters().data(), runs_.counters().bytes());
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
    for (const auto& run : runs_.runs()) run->launch(stream_.get(), {});
    device::synchronize(stream_.get());
  }
  void capture(PreparedRun& run) {
    std::optional<device::LaunchesInTurn> in_turn;
    if (!options_.overlap_launches) in_turn.emplace();
    run.capture(stream_.get());
  }
  void empty_index() { device::fill(runs_.shared().index, 0, runs_.runs()[0]->index().bytes(), stream_.get()); }

  // ---- Batches above all capacities

  /// Intermediates are of the whole batch, so it is run at once.
  bool splits() const {
    const bool may = options_.oversize == Oversize::split || options_.oversize == Oversize::split_or_refuse;
    return may && !options_.keep_intermediates;
  }

  /// The least of the runs that the size fits, by number; -1: none.
  int find(const RunSize& needed) const {
    const auto& runs = runs_.runs();
    int least = -1;
    for (int i = 0; i < static_cast<int>(runs.size()); ++i) {
      const RunSize& size = runs[static_cast<size_t>(i)]->size();
      if (size.holds(needed) && (least < 0 || runs[static_cast<size_t>(least)]->size().holds(size))) least = i;
    }
    return least;
  }
  /// Those above all capacities are numbered -1, -2 and so on.
  const PreparedRun& run_of(const BatchPart& part) const {
    return part.run < 0 ? *larger_.runs()[static_cast<size_t>(-1 - part.run)]
                        : *runs_.runs()[static_cast<size_t>(part.run)];
  }

  /// Makes `parts_` of a measured batch, and the memory for those that are above all capacities.
  void divide(const Batch& batch, int run) {
    if (run >= 0 || !splits()) {
      parts_.take_whole(batch, run);
    } else {
      parts_.divide(batch, [this](const RunSize& size) { return find(size); });
    }
    RunSize largest;
    std::vector<RunSize> needed;
    for (int64_t i = 0; i < parts_.count(); ++i) {
      if (parts_[i].run >= 0) continue;
      largest = largest.rows.empty() ? parts_[i].size : largest.joined(parts_[i].size);
      RunSize size = rounded_up(parts_[i].size);
      if (std::find(needed.begin(), needed.end(), size) == needed.end()) needed.push_back(std::move(size));
    }
    if (splits() && options_.oversize == Oversize::split_or_refuse) expect_reserved(largest);
    if (needed.empty()) return;
    make_larger(needed);
    parts_.run_others([this](const RunSize& size) { return -1 - find_larger(rounded_up(size)); });
  }
  void expect_reserved(const RunSize& largest) const {
    if (!largest.rows.empty()) throw too_large("request of a batch", largest);
    if (parts_.count() > std::max<int64_t>(1, options_.split_parts))
      throw invalid_argument("batch",
                             "at most " + std::to_string(options_.split_parts) +
                                 " parts that each fit a capacity, as ContextOptions::split_parts says",
                             std::to_string(parts_.count()));
  }

  /// The last batch is no more.
  void forget() {
    parts_.clear();
    for (OutputView& output : outputs_) output.values = {}, output.requests = {};
    scored_.clear();
  }

  RunSize rounded_up(const RunSize& needed) const {
    RunSize largest = runs_.runs()[0]->size();
    for (const auto& run : runs_.runs()) largest = largest.joined(run->size());
    return needed.rounded_up(largest, plan_.layout());
  }
  /// The run of exactly this size above all capacities, by number; -1: none. Of a larger one the bits may differ.
  int find_larger(const RunSize& size) const {
    const auto& runs = larger_.runs();
    const auto found = std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return run->size() == size; });
    return found == runs.end() ? -1 : static_cast<int>(found - runs.begin());
  }
  /// For these sizes and the latest before them, which share what memory they can; where it does not suffice for all,
  /// for these.
  void make_larger(const std::vector<RunSize>& needed) {
    if (std::all_of(needed.begin(), needed.end(), [this](const RunSize& size) { return find_larger(size) >= 0; }))
      return;
    constexpr size_t most_kept = 8;
    std::vector<RunSize> all = needed;
    for (const auto& run : larger_.runs()) {
      if (all.size() >= most_kept) break;
      if (std::find(all.begin(), all.end(), run->size()) == all.end()) all.push_back(run->size());
    }
    const auto make = [&](const std::vector<RunSize>& sizes) {
      larger_ = RunSet();  // before anything is taken: there may not be room for both
      larger_ =
          RunSet(source(*model_), sizes, &runs_, "a batch above all capacities", model_->device_index, stream_.get());
    };
    try {
      make(all);
    } catch (const out_of_device_memory&) {
      make(needed);
    }
  }

  invalid_argument too_large(const std::string& what, const RunSize& needed) const {
    std::string capacities;
    for (const auto& run : runs_.runs()) capacities += (capacities.empty() ? "" : "; or ") + text_of(run->size());
    return {what, "at most the rows of a capacity: " + capacities, text_of(needed)};
  }
  /// "user 1, item 256, 40960 bytes"
  std::string text_of(const RunSize& size) const {
    std::string all;
    for (size_t a = 0; a < size.rows.size(); ++a)
      all += (a == 0 ? "" : ", ") + graph().axes[a].name + " " + std::to_string(size.rows[a]);
    return all + ", " + std::to_string(size.blob_bytes) + " bytes";
  }

  // ---- A run

  /// Pinned memory for so many parts.
  void reserve_pinned(int64_t parts) {
    int64_t outputs = 1, index = 0;
    for (const auto& run : runs_.runs()) {
      outputs = std::max(outputs, run->outputs().floats);
      index = std::max(index, run->index().bytes());
    }
    host_outputs_ = device::PinnedMemory(4 * outputs * parts, "a context's outputs");
    host_indices_ = device::PinnedMemory(index * parts, "a context's indices");
  }

  /// Gives every part its places in pinned memory, of which there is only too little for larger batches than before.
  void place_parts(const Batch& batch) {
    const auto in_batch = [&](const PreparedRun& run) {
      return parts_.is_whole() && batch.index().max_requests() == run.index().max_requests();
    };
    int64_t floats = 0, index_bytes = 0;
    for (int64_t i = 0; i < parts_.count(); ++i) {
      const PreparedRun& run = run_of(parts_[i]);
      floats += run.outputs().floats;
      index_bytes += run.index().bytes();
    }
    if (host_outputs_.bytes() < 4 * floats) host_outputs_ = device::PinnedMemory(4 * floats, "a batch's outputs");
    if (host_indices_.bytes() < index_bytes) host_indices_ = device::PinnedMemory(index_bytes, "a batch's indices");
    auto* outputs = static_cast<float*>(host_outputs_.data());
    auto* index = static_cast<std::byte*>(host_indices_.data());
    places_.clear();
    for (int64_t i = 0; i < parts_.count(); ++i) {
      const PreparedRun& run = run_of(parts_[i]);
      places_.push_back({in_batch(run) ? nullptr : index, outputs});
      outputs += run.outputs().floats;
      if (!in_batch(run)) index += run.index().bytes();
    }
  }

  /// What is asked for once the batch is done, and it may be gone by then.
  void remember(const Batch& batch) {
    scored_.clear();
    int64_t next = 0;
    for (int64_t r = 0; r < batch.size(); ++r) scored_.push_back(batch.status(r).ok() ? next++ : -1);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Span<const int64_t> starts = batch.row_starts({graph().node(graph().outputs[o].node).axis});
      row_starts_[o].assign(starts.begin(), starts.end());
    }
  }

  /// Everything of a batch; `is_again`: of the one before.
  void queue(const Batch& batch, bool is_again, device::Stream stream) {
    const auto reading = tables_.read(stream);  // until `done_` is recorded
    try {
      awaited_.queue_before(runs_.counters(), is_again, stream);
      for (int64_t i = 0; i < parts_.count(); ++i) queue(batch, parts_[i], places_[static_cast<size_t>(i)], stream);
      awaited_.queue_behind(stream);
      done_.record(stream);
    } catch (...) {
      settle(stream);  // what was queued still reads the batch
      throw;
    }
  }
  /// Copies a part in, runs it, and has its scores published.
  void queue(const Batch& batch, const BatchPart& part, const PartPlace& place, device::Stream stream) {
    const PreparedRun& run = run_of(part);
    const SharedMemory& shared = part.run < 0 ? larger_.shared() : runs_.shared();
    const std::byte* const blobs = batch.bytes().data() + part.blobs_begin;
    const int64_t blob_bytes = part.blobs_end - part.blobs_begin, index_bytes = run.index().bytes();
    if (place.index == nullptr) {
      device::copy_to_device(shared.index - blob_bytes, blobs, blob_bytes + index_bytes, stream);
    } else {
      parts_.write_index(batch, part, run.index(), place.index);
      if (blob_bytes > 0) device::copy_to_device(shared.index - blob_bytes, blobs, blob_bytes, stream);
      device::copy_to_device(shared.index, place.index, index_bytes, stream);
    }
    const bool is_last = &part == &parts_[parts_.count() - 1];
    run.launch(stream, published_.next(place.outputs, shared.outputs, num_floats(part), shared.ticket, is_last));
  }
  /// From the first output of a part to the last row of the last.
  int64_t num_floats(const BatchPart& part) const {
    int64_t end = 0;
    for (size_t axis = 0; axis < part.size.rows.size(); ++axis) {
      const int64_t width = values_.output_width(static_cast<int>(axis));
      if (width > 0) end = run_of(part).outputs().axes[axis] + part.size.rows[axis] * width;
    }
    return end;
  }

  void wait_for_published() {
    double unknown = 0;
    const bool is_known = parts_.count() == 1 && parts_[0].run >= 0;
    published_.wait(options_, done_, is_known ? expected_seconds_[static_cast<size_t>(parts_[0].run)] : unknown);
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

  // ---- Its scores

  void collect_outputs() {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Node& node = graph().node(graph().outputs[o].node);
      const int64_t rows = row_starts_[o].back(), stride = values_.output_width(node.axis);
      const float* from = nullptr;
      if (parts_.is_whole() && stride == node.width) {
        from = output_of(0, o);
      } else {  // in parts, or side by side with others
        output_values_[o].resize(static_cast<size_t>(rows * node.width));
        for (int64_t i = 0; i < parts_.count(); ++i) gather(i, o);
        from = output_values_[o].data();
      }
      outputs_[o].values = {from, rows, node.width};
      outputs_[o].requests = {row_starts_[o].data(), static_cast<int64_t>(row_starts_[o].size()) - 1};
    }
  }
  /// Where an output of a part has arrived.
  const float* output_of(int64_t part, size_t output) const {
    const auto axis = static_cast<size_t>(graph().node(graph().outputs[output].node).axis);
    return places_[static_cast<size_t>(part)].outputs + run_of(parts_[part]).outputs().axes[axis] +
           values_.outputs()[output].column;
  }
  /// Brings an output's rows of a part's requests to where they are in the batch.
  void gather(int64_t part, size_t output) {
    const Node& node = graph().node(graph().outputs[output].node);
    const int64_t stride = values_.output_width(node.axis);
    const std::vector<int64_t>& starts = row_starts_[output];
    const float* from = output_of(part, output);
    for (int64_t i = 0; i < parts_[part].count; ++i) {
      const auto r = static_cast<size_t>(parts_.order()[parts_[part].first + i]);
      float* to = output_values_[output].data() + starts[r] * node.width;
      for (int64_t row = starts[r]; row < starts[r + 1]; ++row, from += stride) to = std::copy_n(from, node.width, to);
    }
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
    value.type == DType::f16 ? read(half{}) : read(float{});
  }

  // ---- Another model

  void expect_same_tables(const CudaModelData& next) const {
    Problems problems;
    const auto text = [](const CudaTable& table) {
      const bool is_mutable = table.hashed && table.hashed->is_mutable && !table.tier;
      return std::string(name_of(table.view.type)) + " of " + std::to_string(table.view.dim) + " columns" +
             (table.is_hashed() ? ", hashed" : "") + (is_mutable ? ", updatable" : "") +
             (!table.tier           ? table.cache ? ", cached" : ""
              : table.tier->waits() ? ", in a store that is waited for"
                                    : ", in a store");
    };
    for (const TableInfo& info : plan_.source().tables) {
      const CudaTable *before = model_->tables->find(info.name), *after = next.tables->find(info.name);
      if (text(*before) != text(*after))
        problems.add("Context::rebind: table '" + info.name + "'", text(*before), text(*after));
    }
    problems.throw_if_any();
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
  RunSet runs_;    // captured, one for each capacity
  RunSet larger_;  // of the latest sizes of batches above all capacities
  device::PinnedMemory host_outputs_, host_indices_;

  /// The last batch, which is there until it is waited for.
  struct Submitted {
    const Batch* batch = nullptr;
    device::Stream stream = {};
    Published::Clock::time_point begin = {};
  };
  Submitted submitted_;
  BatchParts parts_;  // of it
  std::vector<PartPlace> places_;
  std::vector<int64_t> scored_;
  std::vector<std::vector<int64_t>> row_starts_;  // by output
  std::vector<OutputView> outputs_;
  std::vector<std::vector<float>> output_values_;
  std::vector<float> tapped_;
};

}  // namespace warprank::cuda_backend
