// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The steps of the host engine: each binds an op of the plan to its host kernel.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/host/run_state.hpp"
#include "warprank/engine/host/table_store.hpp"
#include "warprank/ops/host/attention.hpp"
#include "warprank/ops/host/concat.hpp"
#include "warprank/ops/host/din_attention.hpp"
#include "warprank/ops/host/dot.hpp"
#include "warprank/ops/host/elementwise.hpp"
#include "warprank/ops/host/embedding_bag.hpp"
#include "warprank/ops/host/fm.hpp"
#include "warprank/ops/host/layer_norm.hpp"
#include "warprank/ops/host/linear.hpp"
#include "warprank/ops/host/mix.hpp"
#include "warprank/ops/host/reduce.hpp"
#include "warprank/ops/host/segment_reduce.hpp"
#include "warprank/ops/host/softmax.hpp"

namespace warprank::host_backend {

/// All look-ups of one launch.
class EmbedStep : public Step {
 public:
  struct Feature {
    int node;
    const HostTable* table;
    int ids;
    int ids_axis;
    int bags;     ///< pair (ids' axis, parent), or -1: one id per row
    int weights;  ///< node, or -1
    Pooling pooling;
    std::optional<int64_t> padding;
  };
  /// The tables outlive it.
  EmbedStep(std::vector<Feature> features, const HostTableStore& tables)
      : features_(std::move(features)), tables_(tables) {
    for (const Feature& f : features_) has_tiers_ = has_tiers_ || f.table->tier != nullptr;
  }

  void run(RunState& state) const override {
    state.features.clear();
    for (const Feature& f : features_) {
      host_ops::BagFeature& bag = state.features.emplace_back();
      bag.table = f.table->view;
      bag.hashed = f.table->keyed_rows();
      bag.ids = state.ids_of(f.ids, f.ids_axis);
      if (f.bags >= 0) bag.bags = state.segments_of(f.bags);
      if (f.weights >= 0) {
        const Matrix<float> weights = state.value(f.weights);
        bag.weights = weights.data;
        bag.weights_stride = weights.stride;
      }
      bag.pooling = f.pooling;
      if (f.table->is_hashed())
        bag.padding = f.padding;
      else if (f.table->tier)
        bag.padding = -1;
      bag.y = state.value(f.node);
      bag.counters = &state.counters[static_cast<size_t>(f.node)];
    }
    if (has_tiers_) return run_with_tiers(state);
    const auto reading = tables_.read();
    host_ops::embedding_bag(state.features);
  }

 private:
  /// Tells stores what was not found; where a table waits for that, looks up again when it has come.
  void run_with_tiers(RunState& state) const {
    int64_t most = 0;
    for (const host_ops::BagFeature& bag : state.features) most += bag.ids.size();
    int64_t* ids = state.missed_ids.reserve(most);
    state.missed.clear();
    state.counters_before.clear();
    for (const host_ops::BagFeature& bag : state.features) {
      state.missed.push_back({ids, bag.ids.size()});
      ids += bag.ids.size();
      state.counters_before.push_back(*bag.counters);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (bool is_last = false;; is_last = !await_missed(state, begin)) {
      for (size_t i = 0; i < features_.size(); ++i) {
        state.missed[i].count = 0;
        if (features_[i].table->tier) state.features[i].missed = &state.missed[i];
        *state.features[i].counters = state.counters_before[i];
      }
      {
        const auto reading = tables_.read();
        host_ops::embedding_bag(state.features);
      }
      if (is_last || !want_missed(state)) break;
    }
    for (size_t i = 0; i < features_.size(); ++i) {
      const host_ops::BagFeature& bag = state.features[i];
      const HostTable& table = *features_[i].table;
      if (!table.tier) continue;
      const Span<const int64_t> missed = missed_of(state, i);
      const int64_t padding = bag.counters->padding - state.counters_before[i].padding;
      table.cached->looked_up(bag.ids);
      table.tier->looked_up(bag.ids.size() - missed.size() - padding, missed.size());
      if (missed.size() > 0) table.tier->want(missed);
    }
  }

  static Span<const int64_t> missed_of(const RunState& state, size_t i) {
    return {state.missed[i].data, state.missed[i].count};
  }
  /// Null where there is nothing to wait for.
  StoreTier* waiting_tier(const RunState& state, size_t i) const {
    StoreTier* tier = features_[i].table->tier.get();
    return tier != nullptr && tier->waits() && state.missed[i].count > 0 ? tier : nullptr;
  }
  bool want_missed(const RunState& state) const {
    int64_t wanted = 0;
    for (size_t i = 0; i < features_.size(); ++i)
      if (StoreTier* tier = waiting_tier(state, i)) wanted += tier->want(missed_of(state, i));
    return wanted > 0;
  }
  /// Whether all has come in time, so that there is time for more.
  bool await_missed(const RunState& state, std::chrono::steady_clock::time_point begin) const {
    bool in_time = true;
    for (size_t i = 0; i < features_.size(); ++i) {
      StoreTier* tier = waiting_tier(state, i);
      if (tier == nullptr) continue;
      const auto end = begin + tier->options().longest_wait;
      in_time = tier->wait_for(missed_of(state, i), end) && std::chrono::steady_clock::now() < end && in_time;
    }
    return in_time;
  }

  std::vector<Feature> features_;
  const HostTableStore& tables_;
  bool has_tiers_ = false;
};

class LinearStep : public Step {
 public:
  LinearStep(const LinearOp& op, int node, host_ops::PackedLinear packed, std::vector<InputRef> inputs)
      : op_(op), node_(node), packed_(std::move(packed)), inputs_(std::move(inputs)) {}

  void run(RunState& state) const override {
    host_ops::LinearInputs extra;
    size_t next = 1;
    if (op_.row_bias) {
      const InputRef ref = inputs_[next++];
      extra.row_bias = state.value(ref.node);
      extra.row_bias_segments = state.segments_of(ref.pair);
    }
    if (op_.multiply) extra.multiply = state.value(inputs_[next++].node);
    if (op_.residual) extra.residual = state.value(inputs_[next++].node);
    extra.residual_first = op_.residual_first;
    host_ops::linear(packed_, state.value(inputs_[0].node), state.value(node_), extra);
  }
  int64_t bytes() const override { return packed_.bytes(); }

 private:
  LinearOp op_;
  int node_;
  host_ops::PackedLinear packed_;
  std::vector<InputRef> inputs_;
};

/// Each row through the group that its scene names; runs of equal scenes are one call.
class SceneLinearStep : public Step {
 public:
  SceneLinearStep(int node, int x, int ids, int ids_axis, int pair, host_ops::PackedLinear packed)
      : node_(node), x_(x), ids_(ids), ids_axis_(ids_axis), pair_(pair), packed_(std::move(packed)) {}

  void run(RunState& state) const override {
    const Span<const int64_t> scenes = state.ids_of(ids_, ids_axis_);
    const Matrix<const float> x = state.value(x_);
    const Matrix<float> y = state.value(node_);
    LookupCounters& counters = state.counters[static_cast<size_t>(node_)];
    counters.ids += scenes.size();
    for (int64_t s = 0; s < scenes.size();) {
      int64_t end = s + 1;
      while (end < scenes.size() && scenes[end] == scenes[s]) ++end;
      const int64_t first = pair_ < 0 ? s : state.segments_of(pair_).begin(s);
      const int64_t last = pair_ < 0 ? end : state.segments_of(pair_).begin(end);
      if (scenes[s] >= 0 && scenes[s] < packed_.groups()) {
        host_ops::linear(packed_, scenes[s], x.row_range(first, last - first), y.row_range(first, last - first));
      } else {
        counters.out_of_range += end - s;
        for (int64_t r = first; r < last; ++r) std::fill_n(y.row(r), y.cols, 0.0f);
      }
      s = end;
    }
  }
  int64_t bytes() const override { return packed_.bytes(); }

 private:
  int node_, x_, ids_, ids_axis_, pair_;
  host_ops::PackedLinear packed_;
};

/// Rows of queries and of events, by the parent they share: indices in AxisPairs.
struct AttentionPairs {
  int queries, events;
};

inline int64_t longest_segment(Segments segments) {
  int64_t most = 0;
  for (int64_t s = 0; s < segments.count; ++s) most = std::max(most, segments.size(s));
  return most;
}

class DinStep : public Step {
 public:
  /// `k`: the parts of the history, one or two, which are added.
  DinStep(int node, int q, std::vector<InputRef> k, AttentionPairs pairs, host_ops::PackedDin packed)
      : node_(node), q_(q), k_(std::move(k)), pairs_(pairs), packed_(std::move(packed)) {
    sum_.num_inputs = 2;
    sum_.instructions = {{ElementwiseFunction::add, 0, 1}};
  }
  int64_t workspace(const RunState& state) const override {
    return sum_size(state) + std::max(packed_.workspace_size(longest_segment(state.segments_of(pairs_.events))),
                                      host_ops::elementwise_workspace(sum_));
  }
  void run(RunState& state) const override {
    const Span<float> all = state.workspace_span(), rest = all.subspan(sum_size(state), all.size() - sum_size(state));
    Matrix<const float> k = state.value(k_[0].node);
    if (k_.size() == 2) {
      const Matrix<float> sum(all.data(), k.rows, k.cols);
      host_ops::elementwise(sum_, state.inputs(k_), {}, sum, rest);
      k = sum;
    }
    host_ops::din_attention(packed_, state.value(q_), k, state.segments_of(pairs_.queries),
                            state.segments_of(pairs_.events), state.value(node_), rest);
  }
  int64_t bytes() const override { return packed_.bytes(); }

 private:
  int64_t sum_size(const RunState& state) const {
    if (k_.size() == 1) return 0;
    const Node& k = state.graph->node(k_[0].node);
    return (state.rows[static_cast<size_t>(k.axis)] * k.width + 15) / 16 * 16;  // what is behind it stays aligned
  }

  int node_, q_;
  std::vector<InputRef> k_;
  ElementwiseProgram sum_;
  AttentionPairs pairs_;
  host_ops::PackedDin packed_;
};

class ElementwiseStep : public Step {
 public:
  ElementwiseStep(int node, ElementwiseProgram program, std::vector<InputRef> inputs,
                  std::vector<std::vector<float>> vectors)
      : node_(node), program_(std::move(program)), inputs_(std::move(inputs)), vectors_(std::move(vectors)) {
    for (const auto& v : vectors_) pointers_.push_back(v.data());
  }
  int64_t workspace(const RunState&) const override { return host_ops::elementwise_workspace(program_); }
  void run(RunState& state) const override {
    host_ops::elementwise(program_, state.inputs(inputs_), pointers_, state.value(node_), state.workspace_span());
  }
  int64_t bytes() const override {
    int64_t floats = 0;
    for (const auto& v : vectors_) floats += static_cast<int64_t>(v.size());
    return floats * static_cast<int64_t>(sizeof(float));
  }

 private:
  int node_;
  ElementwiseProgram program_;
  std::vector<InputRef> inputs_;
  std::vector<std::vector<float>> vectors_;
  std::vector<const float*> pointers_;
};

/// An op without weights: `body(state, inputs, y)` calls the kernel; `workspace(state)` says what it needs.
template <class Body, class Workspace>
class PlainStep : public Step {
 public:
  PlainStep(int node, std::vector<InputRef> inputs, Body body, Workspace workspace)
      : node_(node), inputs_(std::move(inputs)), body_(std::move(body)), workspace_(std::move(workspace)) {}
  int64_t workspace(const RunState& state) const override { return workspace_(state); }
  void run(RunState& state) const override { body_(state, state.inputs(inputs_), state.value(node_)); }

 private:
  int node_;
  std::vector<InputRef> inputs_;
  Body body_;
  Workspace workspace_;
};

inline constexpr auto no_workspace = [](const RunState&) -> int64_t { return 0; };

template <class Body, class Workspace>
std::unique_ptr<Step> make_plain_step(int node, std::vector<InputRef> inputs, Body body, Workspace workspace) {
  return std::make_unique<PlainStep<Body, Workspace>>(node, std::move(inputs), std::move(body), std::move(workspace));
}

/// Copies the parts that their producers could not write in place.
class ConcatStep : public Step {
 public:
  ConcatStep(int node, std::vector<InputRef> inputs) : node_(node), inputs_(std::move(inputs)) {}
  void run(RunState& state) const override {
    const std::vector<bool>& placed = state.storage->part_placed[static_cast<size_t>(node_)];
    const Matrix<float> y = state.value(node_);
    int64_t column = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const SegmentedInput part = state.input(inputs_[i]);
      if (!placed[i]) host_ops::concat({&part, 1}, y.columns(column, part.values.cols));
      column += part.values.cols;
    }
  }

 private:
  int node_;
  std::vector<InputRef> inputs_;
};

}  // namespace warprank::host_backend
