// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/embed.hpp"
#include "warprank/ops/host/embedding_bag.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

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

  std::shared_lock<PhaseFairMutex> hold() const override {
    return has_tiers_ ? std::shared_lock<PhaseFairMutex>() : tables_.read();
  }
  void run(RunState& state) const override {
    list_features(state);
    if (has_tiers_)
      run_with_tiers(state);
    else
      host_ops::embedding_bag(state.features);
  }
  bool has_tiers() const { return has_tiers_; }

 private:
  /// Those of the state's share: some ids of features without bags, and whole features with bags.
  void list_features(RunState& state) const {
    int64_t total = 0, before = 0;
    for (const Feature& f : features_) total += state.rows->of(f.ids_axis);
    const int64_t begin = state.share.begin(total), end = state.share.end(total);
    state.features.clear();
    for (const Feature& f : features_) {
      const int64_t count = state.rows->of(f.ids_axis), from = std::exchange(before, before + count);
      const bool has_bags = f.bags >= 0;
      if (has_bags && !(begin <= from && (from < end || state.share.is_last()))) continue;
      const int64_t first = has_bags ? 0 : std::clamp<int64_t>(begin - from, 0, count);
      const int64_t last = has_bags ? count : std::clamp<int64_t>(end - from, 0, count);
      host_ops::BagFeature& bag = state.features.emplace_back();
      bag.table = f.table->view;
      bag.hashed = f.table->keyed_rows();
      bag.ids = state.ids_of(f.ids, f.ids_axis).subspan(first, last - first);
      if (has_bags) bag.bags = state.segments_of(f.bags);
      if (f.weights >= 0) {
        const Matrix<float> weights = state.value(f.weights);
        bag.weights = weights.row(first);
        bag.weights_stride = weights.stride;
      }
      bag.pooling = f.pooling;
      if (f.table->is_hashed())
        bag.padding = f.padding;
      else if (f.table->tier)
        bag.padding = -1;
      bag.y = has_bags ? state.value(f.node) : state.value(f.node).row_range(first, last - first);
      bag.counters = &state.counters[static_cast<size_t>(f.node)];
    }
  }

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
  RowTier* waiting_tier(const RunState& state, size_t i) const {
    RowTier* tier = features_[i].table->tier.get();
    return tier != nullptr && tier->waits() && state.missed[i].count > 0 ? tier : nullptr;
  }
  bool want_missed(const RunState& state) const {
    int64_t wanted = 0;
    for (size_t i = 0; i < features_.size(); ++i)
      if (RowTier* tier = waiting_tier(state, i)) wanted += tier->want(missed_of(state, i));
    return wanted > 0;
  }
  /// Whether all has come in time, so that there is time for more.
  bool await_missed(const RunState& state, std::chrono::steady_clock::time_point begin) const {
    bool in_time = true;
    for (size_t i = 0; i < features_.size(); ++i) {
      RowTier* tier = waiting_tier(state, i);
      if (tier == nullptr) continue;
      in_time = tier->wait_for(missed_of(state, i), begin) && in_time;
    }
    return in_time;
  }

  std::vector<Feature> features_;
  const HostTableStore& tables_;
  bool has_tiers_ = false;
};

/// All look-ups of a launch.
inline StepPtr bind_look_ups(const std::vector<int>& launch, Binder& model) {
  std::vector<EmbedStep::Feature> features;
  for (int n : launch) {
    const auto& op = std::get<EmbedOp>(model.node(n).op);
    const IdsInfo& ids = model.graph.ids[static_cast<size_t>(op.ids)];
    model.used_ids[static_cast<size_t>(op.ids)] = true;
    const int bags =
        op.pooling == Pooling::none ? -1 : model.pairs.index_of(ids.axis, model.graph.axis(ids.axis).parent);
    const int weights = model.node(n).inputs.empty() ? -1 : model.node(n).inputs[0];
    features.push_back({n, model.tables.find(model.graph.tables[static_cast<size_t>(op.table)].name), op.ids, ids.axis,
                        bags, weights, op.pooling, ids.padding});
  }
  auto step = std::make_unique<EmbedStep>(std::move(features), model.tables);
  if (!step->has_tiers()) step->division = Division::shares;
  return step;
}

inline StepPtr bind_op(const EmbedOp&, int n, Binder& model) { return bind_look_ups({n}, model); }

}}}  // namespace warprank::v0::host_backend
