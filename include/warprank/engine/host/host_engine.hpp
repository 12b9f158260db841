// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine: Engine, ModelBackend and ContextBackend on this machine's CPU, one thread per context.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/free_memory.hpp"
#include "warprank/engine/check_bind.hpp"
#include "warprank/engine/host/make_steps.hpp"
#include "warprank/engine/host/unpack.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// What all contexts of a model share.
struct HostModelData {
  Plan plan;
  std::shared_ptr<const TableStore> tables;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<std::pair<int, int>> pairs;
  std::vector<bool> used_ids;
  std::vector<int> output_pairs;  ///< by output: (its axis, the outermost)
  std::string description;
};

class HostContext : public ContextBackend {
 public:
  HostContext(std::shared_ptr<const HostModelData> model, const ContextOptions& options)
      : model_(std::move(model)), storage_(model_->plan.storage()) {
    const Graph& graph = model_->plan.graph();
    if (options.keep_intermediates)
      storage_ = plan::plan_storage(graph, model_->plan.options().passes.place_concats, false);
    state_.graph = &graph;
    state_.storage = &storage_;
    state_.rows.resize(graph.axes.size());
    state_.offsets.resize(graph.axes.size());
    state_.segments.resize(model_->pairs.size());
    for (const auto& [axis, ancestor] : model_->pairs) state_.segment_ancestors.push_back(ancestor);
    state_.ids.resize(graph.ids.size());
    state_.slot_offsets.resize(storage_.slots.size());
    state_.counters.resize(graph.nodes.size());
    state_.given.resize(graph.nodes.size());
    state_.may_stay = options.keep_intermediates ? std::vector<bool>(graph.nodes.size()) : dense_apart(graph);
    size_t most_inputs = 0;
    for (const Node& node : graph.nodes) most_inputs = std::max(most_inputs, node.inputs.size());
    state_.input_list.reserve(most_inputs);
    state_.features.reserve(graph.nodes.size());
    state_.missed.reserve(graph.nodes.size());
    state_.counters_before.reserve(graph.nodes.size());
    next_row_.resize(graph.axes.size());
    for (const OutputInfo& output : graph.outputs) outputs_.push_back({output.name, {}, {}});
    output_values_.resize(graph.outputs.size());
    for (const Capacity& capacity : model_->plan.options().capacities) {
      state_.rows = plan::rows_at(model_->plan.source(), capacity);
      reserve();
      reserve_workspace();
      scored_.reserve(static_cast<size_t>(capacity.requests));
    }
    std::fill(state_.rows.begin(), state_.rows.end(), 0);  // what `tap` shows before the first run
  }

  /// Runs it; the calling thread does the work.
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
  Matrix<const float> tap(int node) override { return state_.value(node); }

  std::vector<FeatureCounters> counters() const override {
    std::vector<FeatureCounters> list;
    const Graph& graph = model_->plan.graph();
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const auto* linear = std::get_if<LinearOp>(&graph.nodes[n].op);
      if (std::holds_alternative<EmbedOp>(graph.nodes[n].op) || (linear != nullptr && linear->scene >= 0))
        list.push_back({graph.nodes[n].name, state_.counters[n]});
    }
    return list;
  }

  Profile profile(const Batch& batch, const ProfileOptions& options) override {
    const std::vector<LookupCounters> counters = state_.counters;
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
    state_.counters = counters;
    return profile;
  }

  MemoryReport memory() const override {
    int64_t inputs = 0, outputs = 0;
    for (const auto* buffers : {&state_.offsets, &state_.segments, &state_.ids})
      for (const auto& buffer : *buffers) inputs += buffer.bytes();
    for (const auto& buffer : output_values_) outputs += buffer.bytes();
    return {{"arena", state_.arena.bytes()},
            {"inputs", inputs},
            {"workspace", state_.workspace.bytes()},
            {"outputs", outputs}};
  }

 private:
  void unpack(const Batch& batch) {
    count_rows(batch, state_, scored_);
    reserve();
    unpack_offsets(batch, scored_, state_, next_row_);
    compose_segments(model_->pairs, state_);
    unpack_inputs(batch, scored_, model_->used_ids, state_);
  }
  void run(const Step& step) {
    state_.workspace.reserve(step.workspace(state_));
    step.run(state_);
  }

  /// Memory for the row counts at hand; where every slot begins.
  void reserve() {
    constexpr int64_t line = 16;  // floats in a cache line
    int64_t floats = 0;
    for (size_t s = 0; s < storage_.slots.size(); ++s) {
      const plan::Slot& slot = storage_.slots[s];
      state_.slot_offsets[s] = floats;
      floats += (state_.rows[static_cast<size_t>(slot.axis)] * slot.floats_per_row + line - 1) / line * line;
    }
    state_.arena.reserve(floats);
    const Graph& graph = *state_.graph;
    for (size_t a = 1; a < graph.axes.size(); ++a)
      state_.offsets[a].reserve(state_.rows[static_cast<size_t>(graph.axes[a].parent)] + 1);
    for (size_t i = 0; i < model_->pairs.size(); ++i)
      state_.segments[i].reserve(state_.rows[static_cast<size_t>(model_->pairs[i].second)] + 1);
    for (size_t i = 0; i < graph.ids.size(); ++i)
      if (model_->used_ids[i]) state_.ids[i].reserve(state_.rows[static_cast<size_t>(graph.ids[i].axis)]);
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Node& node = graph.node(graph.outputs[o].node);
      output_values_[o].reserve(state_.rows[static_cast<size_t>(node.axis)] * node.width);
    }
  }

  /// What steps may want for the row counts at hand, however the rows divide among their parents.
  void reserve_workspace() {
    for (size_t i = 0; i < model_->pairs.size(); ++i) {
      const auto [axis, ancestor] = model_->pairs[i];
      const AxisInfo& info = state_.graph->axis(axis);
      const int64_t rows = state_.rows[static_cast<size_t>(axis)];
      const bool is_limited = info.keep_last > 0 && info.parent == ancestor;
      int64_t* segments = state_.segments[i].data();
      segments[0] = 0;  // the longest segment comes first, the others are empty
      std::fill_n(segments + 1, state_.rows[static_cast<size_t>(ancestor)],
                  is_limited ? std::min(rows, info.keep_last) : rows);
    }
    for (const auto& step : model_->steps) state_.workspace.reserve(step->workspace(state_));
  }

  void collect_outputs() {
    const Graph& graph = *state_.graph;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const int n = graph.outputs[o].node;
      const Matrix<const float> value = state_.value(n);
      float* out = output_values_[o].data();
      for (int64_t r = 0; r < value.rows; ++r) std::copy_n(value.row(r), value.cols, out + r * value.cols);
      outputs_[o].values = {out, value.rows, value.cols};
      outputs_[o].requests = state_.segments_of(model_->output_pairs[o]);
    }
  }

  std::shared_ptr<const HostModelData> model_;
  plan::Storage storage_;
  RunState state_;
  std::vector<int64_t> next_row_;
  std::vector<int64_t> scored_;
  std::vector<OutputView> outputs_;
  std::vector<GrowingBuffer<float>> output_values_;
};

class HostModel : public ModelBackend {
 public:
  HostModel(const Plan& plan, const Weights& weights, std::shared_ptr<const TableStore> tables,
            const BindOptions& options) {
    detail::check_parameters(plan, weights, options.custom, "custom", options.extra);
    auto data = std::make_shared<HostModelData>(HostModelData{plan, tables, {}, {}, {}, {}, {}});
    Binder binder(data->plan, weights, dynamic_cast<const HostTableStore&>(*tables), options);
    data->steps = make_steps(data->plan.storage(), binder);
    for (const OutputInfo& output : plan.graph().outputs)
      data->output_pairs.push_back(binder.pairs.index_of(plan.graph().node(output.node).axis, 0));
    data->pairs = binder.pairs.list();
    data->used_ids = std::move(binder.used_ids);
    data->description = describe(options.host_precision, binder.precision);
    data_ = std::move(data);
  }

  std::unique_ptr<ContextBackend> make_context(const ContextOptions& options) const override {
    return std::make_unique<HostContext>(data_, options);
  }
  const TableStore* tables() const override { return data_->tables.get(); }
  MemoryReport memory() const override {
    MemoryReport report = data_->tables->memory();
    int64_t weights = 0;
    for (const auto& step : data_->steps) weights += step->bytes();
    report.emplace_back("weights", weights);
    return report;
  }
  std::string describe() const override { return data_->description; }
  const std::shared_ptr<const HostModelData>& data() const { return data_; }

 private:
  static std::string describe(HostPrecision asked, host_ops::Precision taken) {
    const bool is_bf16 = taken == host_ops::Precision::bf16;
    std::string text = std::string("instruction set ") + host_ops::linear_target().name + "; precision ";
    text += is_bf16 ? "bf16" : "fp32";
    if (asked == HostPrecision::automatic)
      text += is_bf16 ? ", automatically: there is AVX512_BF16" : ", automatically: there is no AVX512_BF16";
    else if (asked == HostPrecision::bf16 && !is_bf16)
      text += " in the place of bf16: there is no AVX512_BF16";
    else
      text += ", as asked for";
    return text + "\n";
  }

  std::shared_ptr<const HostModelData> data_;
};

inline void HostContext::rebind(std::shared_ptr<const ModelBackend> next) {
  const auto* model = dynamic_cast<const HostModel*>(next.get());
  if (model == nullptr) throw invalid_argument("Context::rebind", "a model of the host engine", "one of another");
  model_ = model->data();  // of the same plan, so that all else fits
  state_.graph = &model_->plan.graph();
}

class HostEngine : public Engine {
 public:
  const char* name() const override { return "host"; }
  std::shared_ptr<TableStore> load_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                          const LoadOptions& options, int) const override {
    return std::make_shared<HostTableStore>(plan, weights, images, options);
  }
  std::shared_ptr<const ModelBackend> bind(const Plan& plan, const Weights& weights,
                                           std::shared_ptr<const TableStore> tables, int,
                                           const BindOptions& options) const override {
    detail::check_tables(plan, dynamic_cast<const HostTableStore&>(*tables));
    return std::make_shared<HostModel>(plan, weights, std::move(tables), options);
  }
  MemoryReport table_needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                           const LoadOptions& options) const override {
    return HostTableStore::needs(plan, weights, images, options);
  }
  int64_t free_memory(int, const LoadOptions& load) const override {
    return warprank::free_memory() + (load.pages ? load.pages->free_bytes() : 0);
  }
};

}}}  // namespace warprank::v0::host_backend

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE const Engine& host_engine() {
  static const host_backend::HostEngine engine;
  return engine;
}

}}  // namespace warprank::v0
