// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The place of a node's value: in a slot of the arena, as columns of rows that may be wider than the value.
struct Placement {
  int slot = -1;
  int64_t column = 0;  ///< first column
  int64_t stride = 0;  ///< columns of the whole row
  bool copied = true;  ///< false: a concat or slice whose value is in place already
  int root = -1;       ///< the node that has the rows: itself, or a wider one with its columns
};

/// A slot holds rows(axis) * floats_per_row floats; values whose lifetimes do not overlap share it.
struct Slot {
  int axis = 0;
  int64_t floats_per_row = 0;
};

struct Storage {
  std::vector<Placement> placements;  ///< by node
  std::vector<Slot> slots;
  std::vector<std::vector<int>> steps;         ///< nodes of one launch each, in order (plan/steps.hpp)
  std::vector<std::vector<bool>> part_placed;  ///< by concat node: which inputs are in place
};

namespace detail {

class StoragePlanner {
 public:
  StoragePlanner(const Graph& graph, bool place_concats, bool reuse)
      : graph_(graph), place_concats_(place_concats), reuse_(reuse), root_(graph.nodes.size()) {
    std::iota(root_.begin(), root_.end(), 0);
    storage_.placements.resize(graph.nodes.size());
    storage_.part_placed.resize(graph.nodes.size());
  }

  Storage run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) storage_.placements[n].stride = graph_.nodes[n].width;
    place_parts_of_concats();
    alias_slices();
    make_steps();
    assign_slots();
    return std::move(storage_);
  }

 private:
  /// Inputs are there before the first step; slices, and concats whose parts are all in place, are views.
  bool needs_no_launch(size_t n) const {
    const Op& op = graph_.nodes[n].op;
    return is_input(n) || std::holds_alternative<SliceOp>(op) ||
           (std::holds_alternative<ConcatOp>(op) && !storage_.placements[n].copied);
  }

  /// Whether a step computes a part of a concat that is not in place, so that it cannot copy it, too.
  bool copies_from(size_t n, const std::vector<int>& step) const {
    const std::vector<bool>& placed = storage_.part_placed[n];
    for (size_t i = 0; i < placed.size(); ++i)
      if (!placed[i] && std::find(step.begin(), step.end(), graph_.nodes[n].inputs[i]) != step.end()) return true;
    return false;
  }

  void make_steps() {
    step_of_.resize(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!needs_no_launch(n)) {
        const bool joins = !storage_.steps.empty() && graph_.nodes[n].group != -1 &&
                           graph_.nodes[n].group == graph_.node(storage_.steps.back().back()).group &&
                           !copies_from(n, storage_.steps.back());
        if (!joins) storage_.steps.emplace_back();
        storage_.steps.back().push_back(static_cast<int>(n));
      }
      step_of_[n] = static_cast<int>(storage_.steps.size()) - 1;
    }
  }

  /// Producers write directly into the widest concat that reads them. A narrower concat whose parts all lie there, side
  /// by side, is a view; other concats copy.
  void place_parts_of_concats() {
    std::vector<int> concats;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (std::holds_alternative<ConcatOp>(graph_.nodes[n].op)) concats.push_back(static_cast<int>(n));
    std::stable_sort(concats.begin(), concats.end(),
                     [&](int a, int b) { return graph_.node(a).width > graph_.node(b).width; });
    for (int c : concats) {
      const Node& concat = graph_.node(c);
      auto& placed = storage_.part_placed[static_cast<size_t>(c)];
      if (parts_are_side_by_side(concat) && graph_.node(concat.inputs[0]).type == concat.type) {
        const int first = concat.inputs[0];
        alias(c, root(first), storage_.placements[static_cast<size_t>(first)].column);
        storage_.placements[static_cast<size_t>(c)].copied = false;
        placed.assign(concat.inputs.size(), true);
        continue;
      }
      int64_t column = storage_.placements[static_cast<size_t>(c)].column;
      for (int part : concat.inputs) {
        const Op& op = graph_.node(part).op;
        const bool can = place_concats_ && root(part) == part && !std::holds_alternative<ConcatOp>(op) &&
                         !std::holds_alternative<SliceOp>(op) && graph_.node(part).type == concat.type;
        placed.push_back(can);
        if (can) alias(part, c, column);
        column += graph_.node(part).width;
      }
      auto& placement = storage_.placements[static_cast<size_t>(c)];
      placement.copied = std::find(placed.begin(), placed.end(), false) != placed.end();
    }
  }

  /// Whether the parts are columns of another concat, in this order.
  bool parts_are_side_by_side(const Node& concat) const {
    const int first = concat.inputs[0];
    int64_t column = storage_.placements[static_cast<size_t>(first)].column;
    for (int part : concat.inputs) {
      if (root(part) == part || root(part) != root(first)) return false;
      if (storage_.placements[static_cast<size_t>(part)].column != column) return false;
      column += graph_.node(part).width;
    }
    return true;
  }

  void alias_slices() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (const auto* slice = std::get_if<SliceOp>(&graph_.nodes[n].op)) {
        alias(static_cast<int>(n), graph_.nodes[n].inputs[0],
              storage_.placements[static_cast<size_t>(graph_.nodes[n].inputs[0])].column + slice->begin);
        storage_.placements[n].copied = false;
      }
  }

  void alias(int node, int other, int64_t column) {
    auto& placement = storage_.placements[static_cast<size_t>(node)];
    placement.column = column;
    placement.stride = storage_.placements[static_cast<size_t>(other)].stride;
    root_[static_cast<size_t>(node)] = root(other);
  }
  int root(int n) const { return root_[static_cast<size_t>(n)]; }

  /// Each root lives from the first write to the last read of any of its columns; slots are reused between steps.
  void assign_slots() {
    const int never = static_cast<int>(storage_.steps.size());
    std::vector<int> first(graph_.nodes.size(), never), last(graph_.nodes.size(), -1);
    const auto touch = [&](int n, int step) {
      const auto r = static_cast<size_t>(root(n));
      first[r] = std::min(first[r], step);
      last[r] = std::max(last[r], step);
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      touch(static_cast<int>(n), is_input(n) ? -1 : step_of_[n]);
      if (is_input(n)) touch(static_cast<int>(n), 0);  // inputs are copied before the first step, or in it
      for (int input : graph_.nodes[n].inputs) touch(input, step_of_[n]);
    }
    for (const OutputInfo& output : graph_.outputs) touch(output.node, never);

    std::vector<int> roots;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (root(static_cast<int>(n)) == static_cast<int>(n)) roots.push_back(static_cast<int>(n));
    std::stable_sort(roots.begin(), roots.end(),
                     [&](int a, int b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });

    std::vector<int> busy_until;  // by slot
    for (int r : roots) {
      const Node& node = graph_.node(r);
      int chosen = -1;
      for (size_t s = 0; reuse_ && s < storage_.slots.size(); ++s) {
        if (storage_.slots[s].axis != node.axis || busy_until[s] >= first[static_cast<size_t>(r)]) continue;
        if (chosen == -1 || distance(s, node.width) < distance(static_cast<size_t>(chosen), node.width))
          chosen = static_cast<int>(s);
      }
      if (chosen == -1) {
        chosen = static_cast<int>(storage_.slots.size());
        storage_.slots.push_back({node.axis, 0});
        busy_until.push_back(-1);
      }
      Slot& slot = storage_.slots[static_cast<size_t>(chosen)];
      slot.floats_per_row = std::max(slot.floats_per_row, node.width);
      busy_until[static_cast<size_t>(chosen)] = last[static_cast<size_t>(r)];
      storage_.placements[static_cast<size_t>(r)].slot = chosen;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      storage_.placements[n].root = root(static_cast<int>(n));
      storage_.placements[n].slot = storage_.placements[static_cast<size_t>(storage_.placements[n].root)].slot;
    }
  }
  bool is_input(size_t n) const { return std::holds_alternative<DenseOp>(graph_.nodes[n].op); }
  int64_t distance(size_t slot, int64_t width) const {
    const int64_t difference = storage_.slots[slot].floats_per_row - width;
    return difference < 0 ? -difference : difference;
  }

  const Graph& graph_;
  bool place_concats_;
  bool reuse_;
  std::vector<int> root_;  // the node whose slot a node's value lies in
  std::vector<int> step_of_;
  Storage storage_;
};

}  // namespace detail

/// Lays the values of a graph out in an arena. `place_concats`: producers write into the columns of the concat that
/// reads them, so that most concats cost nothing. `reuse`: values whose lifetimes do not overlap share memory.
inline Storage plan_storage(const Graph& graph, bool place_concats, bool reuse) {
  return detail::StoragePlanner(graph, place_concats, reuse).run();
}

}}}  // namespace warprank::v0::plan
