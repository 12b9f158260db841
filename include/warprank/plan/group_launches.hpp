// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/fuse_tails.hpp"
#include "warprank/plan/multiply_heads.hpp"
#include "warprank/plan/rewrite.hpp"
#include "warprank/plan/steps.hpp"
#include "warprank/plan/storage.hpp"

namespace warprank { inline namespace v0 { namespace plan {

namespace detail {

/// Puts nodes in the order of their launches. A unit is a node, or a chain that an earlier pass has made a group.
class LaunchGrouper {
 public:
  /// `concats_join`: those that copy share launches with row programs; else they run as soon as they can, each by
  /// itself.
  LaunchGrouper(const Graph& graph, bool concats_join)
      : graph_(graph),
        concats_join_(concats_join),
        rewriter_(graph),
        storage_(plan_storage(graph, true, false)),
        unit_of_(graph.nodes.size()),
        consumers_(consumers_of(graph)) {
    std::map<int, int> unit_of_group;
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      const int group = graph.node(n).group, fresh = static_cast<int>(units_.size());
      const int unit = group == -1 ? fresh : unit_of_group.try_emplace(group, fresh).first->second;
      if (unit == fresh) units_.emplace_back();
      units_[static_cast<size_t>(unit)].push_back(n);
      unit_of_[static_cast<size_t>(n)] = unit;
    }
    is_done_.resize(units_.size(), false);
  }

  Graph run() {
    for (int group = 0;; ++group) {
      emit_all_without_group();
      const std::vector<int> launch = next_launch();
      if (launch.empty()) break;
      for (int unit : launch) emit(unit, group);
    }
    return rewriter_.finish();
  }

 private:
  /// Units of one kind can share a launch. A kind is (its kind of step, the depth of a chain or which kernel computes a
  /// node, whether the chain has wide layers).
  using Kind = std::tuple<StepKind, size_t, bool>;
  static constexpr Kind rows_ = {StepKind::rows, 0, false};
  Kind kind_of_unit(int unit) const {
    const std::vector<int>& nodes = units_[static_cast<size_t>(unit)];
    if (nodes.size() == 1) {
      if (concats_join_ && is_copy(unit)) return rows_;
      const Op& op = graph_.node(nodes[0]).op;
      return {step_kind(op), kernel_variant(op), false};
    }
    const bool is_mixed = step_kind(graph_.node(nodes[0]).op) == StepKind::mix;
    return {StepKind::chain, nodes.size() - is_mixed, is_wide_chain(graph_, nodes)};
  }

  /// Whether a unit is a concat that copies.
  bool is_copy(int unit) const {
    const int n = units_[static_cast<size_t>(unit)][0];
    return std::holds_alternative<ConcatOp>(graph_.node(n).op) && storage_.placements[static_cast<size_t>(n)].copied;
  }

  bool is_ready(int unit) const {
    for (int n : units_[static_cast<size_t>(unit)])
      for (int input : graph_.node(n).inputs) {
        const int from = unit_of_[static_cast<size_t>(input)];
        if (from != unit && !is_done_[static_cast<size_t>(from)]) return false;
      }
    return true;
  }

  void emit(int unit, int group) {
    is_done_[static_cast<size_t>(unit)] = true;
    for (int n : units_[static_cast<size_t>(unit)]) {
      Node node = rewriter_.renewed(n);
      node.group = group;
      rewriter_.replace(n, rewriter_.emit(std::move(node)));
    }
  }

  /// Units that share no launch run as soon as they can, but copies behind look-ups: a model's first launch copies its
  /// dense inputs if it looks up. A unit's inputs may come behind it, so one pass is not enough.
  void emit_all_without_group() {
    for (bool any = true; any;) {
      any = false;
      for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
        if (is_done_[static_cast<size_t>(unit)] || shares_launches(unit) || !is_ready(unit) ||
            (is_copy(unit) && may_look_up()))
          continue;
        emit(unit, -1);
        any = true;
      }
    }
  }

  bool shares_launches(int unit) const { return std::get<StepKind>(kind_of_unit(unit)) > StepKind::alone; }
  bool may_look_up() const {
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit)
      if (!is_done_[static_cast<size_t>(unit)] && std::get<StepKind>(kind_of_unit(unit)) == StepKind::look_up &&
          is_ready(unit))
        return true;
    return false;
  }

  /// All ready units of the kind for which waiting would gain least: the kind with the fewest units that could still
  /// join them.
  std::vector<int> next_launch() const {
    std::map<Kind, std::vector<int>> ready;
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit)
      if (!is_done_[static_cast<size_t>(unit)] && shares_launches(unit) && is_ready(unit))
        ready[kind_of_unit(unit)].push_back(unit);
    std::vector<int> best;
    int64_t fewest = -1;
    for (auto& [kind, units] : ready) {
      const int64_t could_join = count_that_could_join(kind);
      if (fewest != -1 && could_join >= fewest) continue;
      fewest = could_join;
      best = std::move(units);
    }
    const auto multiplies = [&](int unit) { return multiplies_heads(units_[static_cast<size_t>(unit)][0]); };
    const bool remains = !std::all_of(best.begin(), best.end(), multiplies);  // see multiply_heads
    if (concats_join_ && remains && kind_of_unit(best[0]) == rows_) add_concats_behind(best);
    return best;
  }

  /// Whether a node multiplies heads of chains, which their launch can do.
  bool multiplies_heads(int n) const {
    const Node& node = graph_.node(n);
    const auto* op = std::get_if<ElementwiseOp>(&node.op);
    return op != nullptr && is_product(op->program) &&
           std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
             return graph_.node(input).width == 1 &&
                    units_[static_cast<size_t>(unit_of_[static_cast<size_t>(input)])].size() > 1;
           });
  }

  /// Concats that copy what is there already: their other parts are written in place, by the launch or before it.
  void add_concats_behind(std::vector<int>& launch) const {
    const std::vector<int> writers = launch;
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      const int n = units_[static_cast<size_t>(unit)][0];
      if (is_done_[static_cast<size_t>(unit)] || is_ready(unit) || !std::holds_alternative<ConcatOp>(graph_.node(n).op))
        continue;
      const std::vector<int>& parts = graph_.node(n).inputs;
      const std::vector<bool>& placed = storage_.part_placed[static_cast<size_t>(n)];
      bool joins = true;
      for (size_t i = 0; i < parts.size() && joins; ++i) {
        const int from = unit_of_[static_cast<size_t>(parts[i])];
        joins = is_done_[static_cast<size_t>(from)] ||
                (placed[i] && std::find(writers.begin(), writers.end(), from) != writers.end());
      }
      if (joins) launch.push_back(unit);
    }
  }

  /// The number of units of a kind that are not ready, and that depend on no other unit of the kind that is still to be
  /// done.
  int64_t count_that_could_join(const Kind& kind) const {
    std::vector<bool> is_after(units_.size(), false);
    std::vector<int> reached;
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit)
      if (!is_done_[static_cast<size_t>(unit)] && kind_of_unit(unit) == kind) reached.push_back(unit);
    const std::vector<int> of_kind = reached;
    while (!reached.empty()) {
      const int unit = reached.back();
      reached.pop_back();
      for (int n : units_[static_cast<size_t>(unit)])
        for (int consumer : consumers_[static_cast<size_t>(n)]) {
          const int next = unit_of_[static_cast<size_t>(consumer)];
          if (next == unit || is_after[static_cast<size_t>(next)]) continue;
          is_after[static_cast<size_t>(next)] = true;
          reached.push_back(next);
        }
    }
    return std::count_if(of_kind.begin(), of_kind.end(),
                         [&](int unit) { return !is_after[static_cast<size_t>(unit)] && !is_ready(unit); });
  }

  const Graph& graph_;
  const bool concats_join_;
  Rewriter rewriter_;
  Storage storage_;
  std::vector<std::vector<int>> units_;  // nodes in order
  std::vector<int> unit_of_;             // by node
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> is_done_;  // by unit
};

inline size_t num_launches(const Graph& grouped) { return plan_storage(grouped, true, false).steps.size(); }

inline Graph grouped(const Graph& graph) {
  Graph alone = LaunchGrouper(graph, false).run(), joined = LaunchGrouper(graph, true).run();
  return num_launches(joined) < num_launches(alone) ? joined : alone;
}

/// Chains of two layers, of which the last has several outputs.
inline std::vector<int> chains_of_two(const Graph& graph) {
  std::map<int, std::vector<int>> nodes;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
    if (graph.node(n).group != -1) nodes[graph.node(n).group].push_back(n);
  std::vector<int> chains;
  for (const auto& [group, of_group] : nodes)
    if (of_group.size() == 2 && graph.node(of_group[1]).width > 1 &&
        step_kind(graph.node(of_group[0]).op) == StepKind::linear)
      chains.push_back(group);
  return chains;
}

}  // namespace detail

/// Horizontal fusion: nodes of one kind that do not depend on one another share a group and so a launch: all look-ups;
/// the user's shares of all split linears; first layers of experts, gates and towers side by side; chains of one depth;
/// attentions; row-by-row ops. A launch waits for nodes that could join it. Concats that copy join row-by-row ops where
/// that saves launches: a concat that waits may hold up what reads it, such as a mix of PLE, which then misses others.
/// Chains of two layers come apart where that saves a launch: both layers then join launches of others.
inline Graph group_launches(const Graph& graph) {
  Graph chains = graph, best = detail::grouped(chains);
  for (const int chain : detail::chains_of_two(graph)) {
    Graph apart = chains;
    for (Node& node : apart.nodes)
      if (node.group == chain) node.group = -1;
    Graph made = detail::grouped(apart);
    if (detail::num_launches(made) >= detail::num_launches(best)) continue;
    chains = std::move(apart);
    best = std::move(made);
  }
  return best;
}

}}}  // namespace warprank::v0::plan
