// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of divide.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/batch/layout.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/core/text.hpp"
#include "warprank/plan/cost.hpp"
#include "warprank/plan/divide.hpp"
#include "warprank/plan/steps.hpp"
#include "warprank/plan/value_types.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

/// The ids input that an op, const or not, reads; null: none.
template <class AnyOp>
auto ids_of(AnyOp& op) -> decltype(&std::get_if<EmbedOp>(&op)->ids) {
  if (auto* embed = std::get_if<EmbedOp>(&op)) return &embed->ids;
  if (auto* linear = std::get_if<LinearOp>(&op); linear != nullptr && linear->scene >= 0) return &linear->scene;
  return nullptr;
}

/// The cut of a planned graph between the values of a user and those of the items on `axis`.
class Cut {
 public:
  /// `rows`: of each axis, for the bytes of states.
  Cut(const Graph& graph, int axis, std::vector<DType> types, std::vector<int64_t> rows)
      : graph_(graph), types_(std::move(types)), rows_(std::move(rows)), is_of_items_(graph.nodes.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      const int* const ids = ids_of(node.op);
      is_of_items_[n] =
          graph.is_ancestor(axis, node.axis) ||
          (ids != nullptr && graph.is_ancestor(axis, graph.ids[static_cast<size_t>(*ids)].axis)) ||
          std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return is_of_items(input); });
    }
    is_computed_there_ = is_of_items_;
    take_factors();
    move_copies();
  }

  bool is_of_items(int n) const { return is_of_items_[static_cast<size_t>(n)]; }
  /// Of the items' side, cheaper there, or a factor of what is there.
  bool is_computed_there(int n) const { return is_computed_there_[static_cast<size_t>(n)]; }

  /// The user's values that the items' side reads or gives as outputs.
  std::vector<int> states() const { return states_of(is_computed_there_); }
  int64_t row_bytes(int n) const {
    return graph_.node(n).width * (types_[static_cast<size_t>(n)] == DType::f16 ? 2 : 4);
  }

 private:
  std::vector<int> states_of(const std::vector<bool>& there) const {
    std::vector<bool> is_read(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (there[n])
        for (const int input : graph_.nodes[n].inputs) is_read[static_cast<size_t>(input)] = true;
    for (const OutputInfo& output : graph_.outputs) is_read[static_cast<size_t>(output.node)] = true;
    std::vector<int> states;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (is_read[n] && !there[n]) states.push_back(static_cast<int>(n));
    return states;
  }
  int64_t bytes_of(const std::vector<bool>& there) const {
    int64_t bytes = 0;
    for (const int n : states_of(there)) bytes += row_bytes(n) * rows_[static_cast<size_t>(graph_.node(n).axis)];
    return bytes;
  }

  /// The heads that a launch multiplies (multiply_heads.hpp), and what it computes them of, are not divided: as a state
  /// a factor may be rounded.
  void take_factors() {
    std::vector<bool> is_factor(graph_.nodes.size(), false);
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      const bool multiplies = is_computed_there_[n] && plan::step_kind(node.op) == StepKind::rows;
      if (node.group == -1 || !(multiplies || is_factor[n])) continue;
      for (const int input : node.inputs)
        if (graph_.node(input).group == node.group)
          is_computed_there_[static_cast<size_t>(input)] = is_factor[static_cast<size_t>(input)] = true;
    }
  }

  /// What only copies values is done by the items' plan where its sources are fewer bytes. From the last on, so that a
  /// copy of copies can go, too.
  void move_copies() {
    int64_t bytes = bytes_of(is_computed_there_);
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Op& op = graph_.nodes[n].op;
      const bool copies = std::holds_alternative<ConcatOp>(op) || std::holds_alternative<SliceOp>(op) ||
                          std::holds_alternative<ExpandOp>(op);
      if (is_computed_there_[n] || !copies) continue;
      std::vector<bool> moved = is_computed_there_;
      moved[n] = true;
      const int64_t bytes_then = bytes_of(moved);
      if (bytes_then >= bytes) continue;
      is_computed_there_ = std::move(moved);
      bytes = bytes_then;
    }
  }

  const Graph& graph_;
  const std::vector<DType> types_;   // as values are kept, by node
  const std::vector<int64_t> rows_;  // by axis
  std::vector<bool> is_of_items_, is_computed_there_;
};

/// Writes one of the two graphs: copies nodes of the planned graph with the inputs that they read.
class PartOfGraph {
 public:
  explicit PartOfGraph(const Graph& whole)
      : whole_(whole), ids_(whole.ids.size(), -1), dense_(whole.dense.size(), -1), nodes_(whole.nodes.size(), -1) {
    part_.axes = whole.axes;
    part_.tables = whole.tables;
  }

  Graph finish() { return std::move(part_); }

  int take_ids(int input) { return take_input(whole_.ids, input, part_.ids, ids_); }
  int take_dense(int input) { return take_input(whole_.dense, input, part_.dense, dense_); }
  bool has_ids(size_t input) const { return ids_[input] >= 0; }
  bool has_dense(size_t input) const { return dense_[input] >= 0; }

  /// A node whose inputs were taken before.
  void take(int n) {
    Node node = whole_.node(n);
    if (int* const ids = ids_of(node.op)) *ids = take_ids(*ids);
    if (auto* const dense = std::get_if<DenseOp>(&node.op)) dense->input = take_dense(dense->input);
    for (int& input : node.inputs) input = nodes_[static_cast<size_t>(input)];
    put(n, std::move(node));
  }
  /// The value of a node as an input of the name.
  void take_as_input(int n, const std::string& name, DenseWire wire) {
    const Node& from = whole_.node(n);
    DenseInfo info;
    info.name = name;
    info.axis = from.axis;
    info.width = from.width;
    info.wire = wire;
    info.out_of_range = OutOfRange::saturate;
    part_.dense.push_back(info);
    Node node;
    node.name = from.name;
    node.op = DenseOp{static_cast<int>(part_.dense.size()) - 1};
    node.axis = from.axis;
    node.width = from.width;
    node.type = from.type;
    node.where = from.where;
    put(n, std::move(node));
  }
  void give(const std::string& name, int n) { part_.outputs.push_back({name, nodes_[static_cast<size_t>(n)]}); }

  /// An axis has as many rows as its inputs that are set. Where the part has nodes on an axis, or on one nested in it,
  /// takes an input that is always set, if the part has none; without any, all that may be set.
  void complete_axes() {
    std::vector<bool> is_used(part_.axes.size(), false), has_rows(part_.axes.size(), false);
    for (const Node& node : part_.nodes)
      for (int a = node.axis; a != -1; a = part_.axis(a).parent) is_used[static_cast<size_t>(a)] = true;
    for (const IdsInfo& info : part_.ids)
      if (!info.default_id) has_rows[static_cast<size_t>(info.axis)] = true;
    for (const DenseInfo& info : part_.dense)
      if (!info.default_value) has_rows[static_cast<size_t>(info.axis)] = true;
    for (size_t a = 0; a < part_.axes.size(); ++a)
      if (is_used[a] && !has_rows[a] && part_.axes[a].parent != -1) take_rows(static_cast<int>(a));
  }

 private:
  template <class Info>
  static int take_input(const std::vector<Info>& from, int input, std::vector<Info>& to, std::vector<int>& taken) {
    int& number = taken[static_cast<size_t>(input)];
    if (number < 0) {
      number = static_cast<int>(to.size());
      to.push_back(from[static_cast<size_t>(input)]);
    }
    return number;
  }
  void take_rows(int axis) {
    for (size_t i = 0; i < ids_.size(); ++i)
      if (whole_.ids[i].axis == axis && !whole_.ids[i].default_id)
        return static_cast<void>(take_ids(static_cast<int>(i)));
    for (size_t i = 0; i < dense_.size(); ++i)
      if (whole_.dense[i].axis == axis && !whole_.dense[i].default_value)
        return static_cast<void>(take_dense(static_cast<int>(i)));
    for (size_t i = 0; i < ids_.size(); ++i)
      if (whole_.ids[i].axis == axis) take_ids(static_cast<int>(i));
    for (size_t i = 0; i < dense_.size(); ++i)
      if (whole_.dense[i].axis == axis) take_dense(static_cast<int>(i));
  }
  void put(int n, Node node) {
    nodes_[static_cast<size_t>(n)] = static_cast<int>(part_.nodes.size());
    part_.nodes.push_back(std::move(node));
  }

  const Graph& whole_;
  Graph part_;
  std::vector<int> ids_, dense_, nodes_;  // of the part, by the whole's; -1: not taken
};

/// Of the inputs of the items' plan that are states, or are not.
inline BatchLayout layout_of(const Graph& items, const std::vector<UserState>& states, bool are_states) {
  const auto is_left_out = [&](const auto& info) {
    const bool is_state =
        std::any_of(states.begin(), states.end(), [&](const UserState& state) { return state.name == info.name; });
    return is_state != are_states;
  };
  Graph graph;
  graph.axes = items.axes;
  std::remove_copy_if(items.ids.begin(), items.ids.end(), std::back_inserter(graph.ids), is_left_out);
  std::remove_copy_if(items.dense.begin(), items.dense.end(), std::back_inserter(graph.dense), is_left_out);
  return BatchLayout(graph);
}

}  // namespace detail

WARPRANK_HOST_INLINE Plan Plan::part(Graph graph) const {
  CompileOptions options = this->options();
  for (Capacity& capacity : options.capacities) {
    const std::vector<int64_t> rows = plan::rows_at(source(), capacity);
    for (size_t a = 0; a < rows.size(); ++a) capacity.rows[graph.axes[a].name] = rows[a];
    if (const int items = plan::detail::axis_of_items(graph); items >= 0)
      capacity.items = rows[static_cast<size_t>(items)];
  }
  plan::Storage storage = plan::plan_storage(graph, options.passes.place_concats, options.passes.reuse_memory);
  BatchLayout layout(graph);
  Plan part(*this);
  part.impl_ = std::make_shared<Impl>(
      Impl{graph, graph, std::move(storage), std::move(options), {}, parameters(), std::move(layout), warnings()});
  return part;
}

WARPRANK_HOST_INLINE DividedPlan divide(const Plan& plan, const std::string& axis_name, StateType type) {
  Graph graph = plan.graph();
  std::vector<std::string> names;
  for (const AxisInfo& info : graph.axes) names.push_back(info.name);
  const auto found = std::find(names.begin(), names.end(), axis_name);
  const int axis = static_cast<int>(found - names.begin());
  if (found == names.end() || graph.axis(axis).parent == -1)
    throw invalid_argument("divide: axis '" + axis_name + "'", "an axis of items below the outermost",
                           found == names.end() ? unknown_name(axis_name, names) : "the outermost");

  std::vector<DType> types(graph.nodes.size(), DType::f32);
  if (type == StateType::as_on_a_gpu) {
    types = plan::value_types(graph, plan.storage());
    for (size_t n = 0; n < graph.nodes.size(); ++n) graph.nodes[n].type = types[n];
  }
  const detail::Cut cut(graph, axis, types, plan::rows_at(plan.source(), plan.options().capacities[0]));
  const std::vector<int> states = cut.states();

  detail::PartOfGraph user(graph), items(graph);
  std::vector<bool> is_needed(graph.nodes.size(), false);
  for (const int n : states) is_needed[static_cast<size_t>(n)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;)
    if (is_needed[n])
      for (const int input : graph.nodes[n].inputs) is_needed[static_cast<size_t>(input)] = true;
  std::vector<UserState> list;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (is_needed[static_cast<size_t>(n)]) user.take(n);
    if (cut.is_computed_there(n)) {
      items.take(n);
    } else if (std::binary_search(states.begin(), states.end(), n)) {
      const Node& node = graph.node(n);
      const std::string name = "state." + node.name;
      user.give(name, n);
      items.take_as_input(n, name, types[static_cast<size_t>(n)] == DType::f16 ? DenseWire::f16 : DenseWire::f32);
      list.push_back({name, UserState::Source::output, node.axis, node.width, cut.row_bytes(n)});
    }
  }
  for (const OutputInfo& output : graph.outputs) items.give(output.name, output.node);
  const bool items_compute = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                         [&](const OutputInfo& output) { return cut.is_of_items(output.node); });
  if (!items_compute || list.empty())
    throw invalid_argument("divide: axis '" + axis_name + "'", "outputs that depend on it, and values that do not",
                           items_compute ? "no such values" : "no such outputs");
  items.complete_axes();
  for (size_t i = 0; i < graph.ids.size(); ++i) {
    const IdsInfo& info = graph.ids[i];
    if (!items.has_ids(i) || graph.is_ancestor(axis, info.axis)) continue;
    user.take_ids(static_cast<int>(i));
    list.push_back({info.name, UserState::Source::ids_input, info.axis, 1, size_of(info.wire)});
  }
  for (size_t i = 0; i < graph.dense.size(); ++i) {
    const DenseInfo& info = graph.dense[i];
    if (!items.has_dense(i) || graph.is_ancestor(axis, info.axis)) continue;
    user.take_dense(static_cast<int>(i));
    list.push_back({info.name, UserState::Source::dense_input, info.axis, info.width, info.width * size_of(info.wire)});
  }
  user.complete_axes();
  Plan of_items = plan.part(items.finish());
  BatchLayout later = detail::layout_of(of_items.source(), list, false),
              kept = detail::layout_of(of_items.source(), list, true);
  std::vector<bool> is_of_items;
  for (size_t a = 0; a < graph.axes.size(); ++a) is_of_items.push_back(graph.is_ancestor(axis, static_cast<int>(a)));
  return {plan,
          plan.part(user.finish()),
          std::move(of_items),
          std::move(list),
          std::move(later),
          std::move(kept),
          std::move(is_of_items)};
}

WARPRANK_HOST_INLINE std::string DividedPlan::describe() const {
  using detail::padded;
  using detail::with_unit;
  const plan::Capacity& capacity = items.options().capacities[0];
  const std::vector<int64_t> rows = plan::rows_at(items.source(), capacity);
  const double requests = static_cast<double>(std::max<int64_t>(rows[0], 1));
  std::string text = "state                                     axis            width   bytes per user\n";
  double bytes = 0;
  for (const UserState& state : states) {
    const double of_user = static_cast<double>(rows[static_cast<size_t>(state.axis)] * state.row_bytes) / requests;
    text += padded(state.name, 40) + "  " + padded(items.source().axis(state.axis).name, 12) +
            padded(std::to_string(state.width), 9, true) + padded(with_unit(of_user), 17, true) + "\n";
    bytes += of_user;
  }
  text += padded("all", 61) + "  " + padded(with_unit(bytes), 15, true) + "\n";
  for (const auto& [name, part] :
       {std::pair("computed once for a user", &user), std::pair("for each request", &items)}) {
    plan::Cost cost = plan::cost_of_inputs(part->graph(), rows);
    for (const std::vector<int>& step : part->storage().steps) cost += plan::cost_of(part->graph(), step, rows);
    text += std::string(name) + ": " + with_unit(cost.flops / requests) + "FLOPs, " + with_unit(cost.bytes / requests) +
            "bytes, " + std::to_string(part->storage().steps.size()) + " steps\n";
  }
  return text;
}

}}  // namespace warprank::v0
