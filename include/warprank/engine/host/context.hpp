// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/engine.hpp"
#include "warprank/engine/host/parts.hpp"
#include "warprank/engine/host/run_state.hpp"
#include "warprank/engine/host/team.hpp"
#include "warprank/engine/host/unpack.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// What all contexts of a model share.
struct HostModelData {
  Plan plan;
  std::shared_ptr<const TableStore> tables;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<std::pair<int, int>> pairs;
  std::vector<bool> used_ids;
  std::vector<int> dense_nodes;   ///< of dense inputs
  std::vector<int> output_pairs;  ///< by output: (its axis, the outermost)
  std::string description;
};

/// The threads of a context.
struct ContextThreads {
  int count = 1;
  double least_seconds = 4e-6;  ///< of a part of a step: less is done before another thread has begun

  /// Throws invalid_argument for none.
  static ContextThreads of(const ContextOptions& options) {
    if (options.threads < 1)
      throw invalid_argument("ContextOptions::threads", "1 or more", std::to_string(options.threads));
    return {std::min(options.threads, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())))};
  }
};

class HostContext : public ContextBackend {
 public:
  HostContext(std::shared_ptr<const HostModelData> model, const ContextOptions& options, ContextThreads threads)
      : model_(std::move(model)),
        storage_(model_->plan.storage()),
        threads_(threads),
        threads_asked_for_(options.threads),
        states_(static_cast<size_t>(threads.count)),
        parts_(threads.count, model_->plan.graph().axes.size(), host_ops::linear_target().tile_rows) {
    const Graph& graph = model_->plan.graph();
    if (options.keep_intermediates)
      storage_ = plan::plan_storage(graph, model_->plan.options().passes.place_concats, false);
    values_.graph = &graph;
    values_.storage = &storage_;
    values_.rows.resize(graph.axes.size(), model_->pairs.size());
    values_.offsets.resize(graph.axes.size());
    values_.segments.resize(model_->pairs.size());
    values_.pairs = model_->pairs;
    values_.ids.resize(graph.ids.size());
    values_.slot_offsets.resize(storage_.slots.size());
    values_.given.resize(graph.nodes.size());
    values_.may_stay = options.keep_intermediates ? std::vector<bool>(graph.nodes.size()) : dense_apart(graph);
    size_t most_inputs = 0;
    for (const Node& node : graph.nodes) most_inputs = std::max(most_inputs, node.inputs.size());
    for (RunState& state : states_) {
      state.values = &values_;
      state.rows = &values_.rows;
      state.counters.resize(graph.nodes.size());
      state.input_list.reserve(most_inputs);
      state.features.reserve(graph.nodes.size());
      state.missed.reserve(graph.nodes.size());
      state.counters_before.reserve(graph.nodes.size());
    }
    next_row_.resize(graph.axes.size());
    for (const OutputInfo& output : graph.outputs) outputs_.push_back({output.name, {}, {}});
    output_values_.resize(graph.outputs.size());
    for (const Capacity& capacity : model_->plan.options().capacities) {
      values_.rows.count = plan::rows_at(model_->plan.source(), capacity);
      reserve();
      reserve_workspace();
      if (threads_.count > 1) parts_.reserve(values_);
      scored_.reserve(static_cast<size_t>(capacity.requests));
    }
    std::fill(values_.rows.count.begin(), values_.rows.count.end(), 0);  // what `tap` shows before the first run
    if (threads_.count > 1) team_ = std::make_unique<Team>(threads_.count);
  }

  /// Runs it: the calling thread does the work, with the others of its team.
  void submit(const Batch& batch, std::optional<StreamHandle>) override {
    unpack(batch);
    for (const auto& step : model_->steps) run(*step);
    collect_outputs();
  }
  bool ready() const override { return true; }
  void wait() override {}
  void rebind(std::shared_ptr<const ModelBackend> next) override;

  Span<const OutputView> outputs() const override { return outputs_; }
  Span<const int64_t> scored() const override { return scored_; }
  Matrix<const float> tap(int node) override { return values_.value(node, values_.rows); }

  std::vector<FeatureCounters> counters() const override {
    std::vector<FeatureCounters> list;
    const Graph& graph = model_->plan.graph();
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const auto* linear = std::get_if<LinearOp>(&graph.nodes[n].op);
      if (std::holds_alternative<EmbedOp>(graph.nodes[n].op) || (linear != nullptr && linear->scene >= 0))
        list.push_back({graph.nodes[n].name, counters_of(n)});
    }
    return list;
  }
  std::string describe() const override {
    if (threads_asked_for_ == 1) return {};
    const std::string threads = std::to_string(threads_.count);
    return threads_asked_for_ == threads_.count
               ? "a batch on " + threads + " threads\n"
               : "a batch on " + threads + " threads in the place of " + std::to_string(threads_asked_for_) +
                     ": there are no more cores\n";
  }

  Profile profile(const Batch& batch, const ProfileOptions& options) override {
    std::vector<std::vector<LookupCounters>> counters;
    for (const RunState& state : states_) counters.push_back(state.counters);
    Profile profile;
    profile.steps.push_back({"inputs", "unpack", 0, 0});
    for (const auto& step : model_->steps) {
      const Graph& graph = model_->plan.graph();
      profile.steps.push_back({plan::name_of(graph, step->nodes), kind_of(graph.node(step->nodes[0]).op), 0, 0});
    }
    profile.steps.push_back({"outputs", "copy", 0, 0});
    submit(batch, nullptr);
    for (int turn = 0; turn < options.turns; ++turn) {
      std::vector<std::chrono::duration<double>> elapsed(profile.steps.size());
      for (int i = 0; i < options.runs; ++i) {
        auto last = std::chrono::steady_clock::now();
        size_t at = 0;
        const auto end_step = [&] {
          const auto now = std::chrono::steady_clock::now();
          elapsed[at++] += now - std::exchange(last, now);
        };
        unpack(batch);
        end_step();
        for (const auto& step : model_->steps) {
          run(*step);
          end_step();
        }
        collect_outputs();
        end_step();
      }
      for (size_t i = 0; i < elapsed.size(); ++i) {
        double& least = profile.steps[i].seconds;
        const double seconds = elapsed[i].count() / options.runs;
        least = turn == 0 ? seconds : std::min(least, seconds);
      }
    }
    for (const StepTime& step : profile.steps) profile.seconds += step.seconds;
    profile.batch_seconds = profile.seconds;
    for (size_t i = 0; i < states_.size(); ++i) states_[i].counters = std::move(counters[i]);
    return profile;
  }

  MemoryReport memory() const override {
    int64_t inputs = 0, workspace = 0, outputs = 0;
    for (const auto* buffers : {&values_.offsets, &values_.segments, &values_.ids})
      for (const auto& buffer : *buffers) inputs += buffer.bytes();
    for (const RunState& state : states_) workspace += state.workspace.bytes() + state.missed_ids.bytes();
    workspace += parts_.bytes();
    for (const auto& buffer : output_values_) outputs += buffer.bytes();
    return {{"arena", values_.arena.bytes()}, {"inputs", inputs}, {"workspace", workspace}, {"outputs", outputs}};
  }

 private:
  void unpack(const Batch& batch) {
    count_rows(batch, values_, scored_);
    reserve();
    unpack_offsets(batch, scored_, values_, next_row_);
    compose_segments(values_);
    unpack_inputs(batch, model_->used_ids, model_->dense_nodes, values_);
    parts_.forget();
  }
  void run(const Step& step) {
    const int count = team_ == nullptr ? 1 : num_parts(step);
    const auto held = step.hold();
    if (count == 1) return run(step, 0, values_.rows, {});
    if (step.division == Division::shares) {
      team_->run(count, [&](int part) { run(step, part, values_.rows, {part, count}); });
    } else {
      const std::vector<Part>& parts = parts_.of(values_, values_.graph->node(step.nodes[0]).axis, count);
      team_->run(count, [&](int part) { run(step, part, parts[static_cast<size_t>(part)].rows(), {}); });
    }
  }
  void run(const Step& step, int part, const Rows& rows, Share share) {
    RunState& state = states_[static_cast<size_t>(part)];
    state.part = part;
    state.rows = &rows;
    state.share = share;
    state.workspace.reserve(step.workspace(state));
    step.run(state);
  }
  /// As many as there are threads and tiles of rows, if each then takes longer than to wait for the others.
  int num_parts(const Step& step) const {
    if (step.division == Division::none) return 1;
    double seconds = 0;
    int64_t rows = 0;
    for (size_t i = 0; i < step.nodes.size(); ++i) {
      rows = values_.rows.of(values_.graph->node(step.nodes[i]).axis);
      seconds += step.row_seconds[i] * static_cast<double>(rows);
    }
    const int64_t most = step.division == Division::rows ? parts_.most_parts(rows) : threads_.count;
    return seconds >= static_cast<double>(most) * threads_.least_seconds
               ? static_cast<int>(most)
               : std::max(1, static_cast<int>(seconds / threads_.least_seconds));
  }
  LookupCounters counters_of(size_t node) const {
    LookupCounters sum;
    for (const RunState& state : states_) sum += state.counters[node];
    return sum;
  }

  /// Memory for the row counts at hand; where every slot begins.
  void reserve() {
    constexpr int64_t line = 16;  // floats in a cache line
    int64_t floats = 0;
    for (size_t s = 0; s < storage_.slots.size(); ++s) {
      const plan::Slot& slot = storage_.slots[s];
      values_.slot_offsets[s] = floats;
      floats += (values_.rows.of(slot.axis) * slot.floats_per_row + line - 1) / line * line;
    }
    values_.arena.reserve(floats);
    const Graph& graph = *values_.graph;
    for (size_t a = 1; a < graph.axes.size(); ++a)
      values_.offsets[a].reserve(values_.rows.of(graph.axes[a].parent) + 1);
    for (size_t i = 0; i < model_->pairs.size(); ++i)
      values_.segments[i].reserve(values_.rows.of(model_->pairs[i].second) + 1);
    for (size_t i = 0; i < graph.ids.size(); ++i)
      if (model_->used_ids[i]) values_.ids[i].reserve(values_.rows.of(graph.ids[i].axis));
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Node& node = graph.node(graph.outputs[o].node);
      output_values_[o].reserve(values_.rows.of(node.axis) * node.width);
    }
  }

  /// What steps may want for the row counts at hand, however the rows divide among their parents.
  void reserve_workspace() {
    for (size_t i = 0; i < model_->pairs.size(); ++i) {
      const auto [axis, ancestor] = model_->pairs[i];
      const AxisInfo& info = values_.graph->axis(axis);
      const int64_t rows = values_.rows.of(axis);
      const bool is_limited = info.keep_last > 0 && info.parent == ancestor;
      int64_t* segments = values_.segments[i].data();
      values_.rows.segments[i] = segments;
      segments[0] = 0;  // the longest segment comes first, the others are empty
      std::fill_n(segments + 1, values_.rows.of(ancestor), is_limited ? std::min(rows, info.keep_last) : rows);
    }
    for (RunState& state : states_)
      for (const auto& step : model_->steps)
        if (&state == states_.data() || step->division != Division::none)
          state.workspace.reserve(step->workspace(state));
  }

  void collect_outputs() {
    const Graph& graph = *values_.graph;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const int n = graph.outputs[o].node;
      const Matrix<const float> value = values_.value(n, values_.rows);
      float* out = output_values_[o].data();
      for (int64_t r = 0; r < value.rows; ++r) std::copy_n(value.row(r), value.cols, out + r * value.cols);
      outputs_[o].values = {out, value.rows, value.cols};
      outputs_[o].requests = values_.segments_of(model_->output_pairs[o], values_.rows);
    }
  }

  std::shared_ptr<const HostModelData> model_;
  plan::Storage storage_;
  RunValues values_;
  const ContextThreads threads_;
  const int threads_asked_for_;
  std::vector<RunState> states_;  // by part of a step
  Parts parts_;
  std::vector<int64_t> next_row_;
  std::vector<int64_t> scored_;
  std::vector<OutputView> outputs_;
  std::vector<GrowingBuffer<float>> output_values_;
  std::unique_ptr<Team> team_;  // null: one thread
};

}}}  // namespace warprank::v0::host_backend
