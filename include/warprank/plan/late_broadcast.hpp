// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

namespace detail {

/// Moves every `expand` as far down the graph as it goes. Those that remain are materialised.
class LateBroadcaster {
 public:
  explicit LateBroadcaster(const Graph& graph) : old_(graph), rewriter_(graph) {}

  Graph run() {
    for (int n = 0; n < static_cast<int>(old_.nodes.size()); ++n) rewriter_.replace(n, place(rewriter_.renewed(n)));
    return rewriter_.finish();
  }

 private:
  const Node& node(int n) const { return rewriter_.node(n); }
  bool is_expand(int n) const { return std::holds_alternative<ExpandOp>(node(n).op); }
  /// The node that an expand repeats; any other node is its own source.
  int source(int n) const { return is_expand(n) ? node(n).inputs[0] : n; }
  int source_axis(int n) const { return node(source(n)).axis; }

  /// Emits `n` in its best form and returns the node that has its value.
  int place(Node n) {
    if (std::holds_alternative<ExpandOp>(n.op)) return expand(n.inputs[0], n.axis, n);
    if (std::holds_alternative<ConcatOp>(n.op)) flatten(n);
    if (std::holds_alternative<SliceOp>(n.op)) {
      const int part = slice_of_concat(n);
      if (part != -1) return part;
    }
    if (can_hoist(n)) return hoist(std::move(n));
    return std::visit([&](const auto& op) { return place_mixed(std::move(n), op); }, Op(n.op));
  }

  int expand(int x, int axis, const Node& like) {
    x = source(x);
    if (node(x).axis == axis) return x;
    const auto [it, inserted] = expanded_.try_emplace({x, axis}, -1);
    if (inserted) {
      Node n = like;
      n.name = node(x).name + ".expand";
      n.op = ExpandOp{};
      n.inputs = {x};
      n.axis = axis;
      n.group = -1;
      it->second = rewriter_.emit(std::move(n));
    }
    return it->second;
  }

  /// A concat of concats is one concat. An expanded concat is opened only if it has parts from further up, so that
  /// these are expanded from there.
  void flatten(Node& n) {
    std::vector<int> flat;
    for (int input : n.inputs) {
      if (!opens(input)) {
        flat.push_back(input);
        continue;
      }
      const std::vector<int> parts = node(source(input)).inputs;
      for (int part : parts) flat.push_back(expand(part, n.axis, n));
    }
    n.inputs = std::move(flat);
  }
  bool opens(int input) const {
    const Node& x = node(source(input));
    return std::holds_alternative<ConcatOp>(x.op) &&
           (!is_expand(input) || std::any_of(x.inputs.begin(), x.inputs.end(), [&](int p) { return is_expand(p); }));
  }

  /// A slice that falls within one part of a concat reads that part alone.
  int slice_of_concat(const Node& n) {
    const Node& x = node(n.inputs[0]);
    if (!std::holds_alternative<ConcatOp>(x.op)) return -1;
    int64_t begin = std::get<SliceOp>(n.op).begin;
    for (int part : x.inputs) {
      const int64_t width = node(part).width;
      if (begin < width) {
        if (begin + n.width > width) return -1;
        if (n.width == width) return part;
        Node inner = n;
        inner.inputs = {part};
        std::get<SliceOp>(inner.op).begin = begin;
        return place(std::move(inner));
      }
      begin -= width;
    }
    return -1;
  }

  // --- an operation whose inputs are all expanded is done on the axis they come from ---

  static Across across(const Op& op) {
    return visit_traits(op, [](const auto&, auto traits) { return traits.across; });
  }

  /// The axis on which the operation could be done: the deepest axis that its inputs come from. An attention follows
  /// its query and what else it has for each of its rows, but not beyond the parent of the history.
  int hoisted_axis(const Node& n) const {
    int axis = source_axis(n.inputs[0]);
    const bool is_attention = across(n.op) == Across::its_query;
    for (int input : n.inputs) {
      const bool moves = !is_attention || node(input).axis == n.axis;
      if (moves && rewriter_.graph().is_ancestor(axis, source_axis(input))) axis = source_axis(input);
    }
    if (is_attention) {
      const int parent = rewriter_.graph().axis(node(n.inputs[1]).axis).parent;
      return rewriter_.graph().is_ancestor(axis, parent) ? parent : axis;
    }
    if (const auto* linear = std::get_if<LinearOp>(&n.op); linear != nullptr && linear->scene >= 0) {
      const int scene_axis = rewriter_.graph().ids[static_cast<size_t>(linear->scene)].axis;
      if (rewriter_.graph().is_ancestor(axis, scene_axis)) axis = scene_axis;
    }
    return axis;
  }

  bool can_hoist(const Node& n) const {
    if (n.inputs.empty()) return false;
    if (across(n.op) == Across::its_query) {  // on the history's own axis it would be self-attention
      const int history = node(n.inputs[1]).axis, axis = hoisted_axis(n);
      return n.axis != history && axis != history && axis != n.axis;
    }
    return across(n.op) == Across::row_by_row && hoisted_axis(n) != n.axis;
  }

  int hoist(Node n) {
    const int axis = hoisted_axis(n);
    const int target = n.axis;
    for (int& input : n.inputs)
      if (across(n.op) != Across::its_query || node(input).axis == target) input = expand(input, axis, n);
    n.axis = axis;
    const Node like = n;
    return expand(place(std::move(n)), target, like);
  }

  // --- an operation with some expanded inputs ---

  /// An op that reads ancestors reads the source of an expand.
  template <class Other>
  int place_mixed(Node n, const Other& op) {
    if constexpr (OpTraits<Other>::fields != Fields::none) open_concats(n.inputs, op.dim);
    if constexpr (OpTraits<Other>::reads_ancestors)
      for (int& input : n.inputs) input = source(input);
    return rewriter_.emit(std::move(n));
  }

  /// Concats of whole fields are read part by part.
  void open_concats(std::vector<int>& inputs, int64_t dim) const {
    std::vector<int> open;
    for (int input : inputs) {
      const Node& x = node(source(input));
      const bool whole_fields =
          std::all_of(x.inputs.begin(), x.inputs.end(), [&](int part) { return node(part).width % dim == 0; });
      if (opens(input) && whole_fields) {
        open.insert(open.end(), x.inputs.begin(), x.inputs.end());
      } else {
        open.push_back(input);
      }
    }
    inputs = std::move(open);
  }

  /// The parts of a concat that come from one axis, with their columns.
  struct Share {
    std::vector<int> parts;
    std::vector<ColumnRange> columns;
  };

  /// The shares of a concat by axis, outermost axis first; empty when there is nothing to split.
  std::vector<std::pair<int, Share>> shares_of(int x, const std::vector<ColumnRange>& stored_columns) const {
    if (!std::holds_alternative<ConcatOp>(node(x).op)) return {};
    std::vector<std::pair<int, Share>> shares;
    int64_t begin = 0;
    for (int part : node(x).inputs) {
      const int axis = source_axis(part);
      auto it = std::find_if(shares.begin(), shares.end(), [&](const auto& share) { return share.first == axis; });
      if (it == shares.end()) it = shares.insert(shares.end(), {axis, Share{}});
      it->second.parts.push_back(source(part));
      append_columns(it->second.columns, stored_columns, begin, node(part).width);
      begin += node(part).width;
    }
    if (shares.size() < 2) return {};
    std::sort(shares.begin(), shares.end(), [&](const auto& a, const auto& b) {
      return a.first != b.first && rewriter_.graph().is_ancestor(a.first, b.first);
    });
    return shares;
  }

  /// Adds columns [begin, begin + width) of x, translated to columns of the stored weight.
  static void append_columns(std::vector<ColumnRange>& columns, const std::vector<ColumnRange>& stored, int64_t begin,
                             int64_t width) {
    const auto add = [&](ColumnRange range) {
      if (!columns.empty() && columns.back().end == range.begin) {
        columns.back().end = range.end;
      } else {
        columns.push_back(range);
      }
    };
    if (stored.empty()) return add({begin, begin + width});
    for (const ColumnRange& range : stored) {
      const int64_t size = range.end - range.begin;
      const int64_t first = std::max<int64_t>(begin, 0), last = std::min(begin + width, size);
      if (first < last) add({range.begin + first, range.begin + last});
      begin -= size;
    }
  }

  int concat(const std::vector<int>& parts, const Node& like) {
    if (parts.size() == 1) return parts[0];
    Node n = like;
    n.name = like.name + ".x";
    n.op = ConcatOp{};
    n.inputs = parts;
    return place(std::move(n));
  }

  /// W [xu; xi] + b = (Wu xu + b)[user of the row] + Wi xi: one linear per axis, each a row bias of the next inner one.
  int place_mixed(Node n, const LinearOp& op) {
    if (!op.shared_input || op.scene >= 0 || op.row_bias) return rewriter_.emit(std::move(n));
    const auto shares = shares_of(n.inputs[0], op.columns);
    if (shares.empty()) return rewriter_.emit(std::move(n));
    const int64_t stored_in = op.stored_in > 0 ? op.stored_in : node(n.inputs[0]).width;
    int row_bias = -1;
    for (size_t i = 0; i < shares.size(); ++i) {
      const auto& [axis, share] = shares[i];
      const bool last = i + 1 == shares.size();
      Node term = n;
      auto& linear = std::get<LinearOp>(term.op);
      term.axis = axis;
      if (!last) {
        term.name = n.name + "." + rewriter_.graph().axis(axis).name;
        linear.activation = identity;
        linear.multiply = linear.residual = linear.residual_first = false;
      }
      linear.columns = share.columns;
      linear.stored_in = stored_in;
      linear.row_bias = i > 0;
      linear.is_term = i > 0;  // the outermost term has the constants
      term.inputs = {concat(share.parts, term)};
      if (row_bias != -1) term.inputs.push_back(row_bias);
      if (last) term.inputs.insert(term.inputs.end(), n.inputs.begin() + 1, n.inputs.end());
      row_bias = rewriter_.emit(std::move(term));
    }
    return row_bias;
  }

  /// A sum over columns is the sum of the sums of each axis.
  int place_mixed(Node n, const ReduceOp& op) {
    if (op.pooling != Pooling::sum) return rewriter_.emit(std::move(n));
    const auto shares = shares_of(n.inputs[0], {});
    if (shares.empty()) return rewriter_.emit(std::move(n));
    Node total = n;
    ElementwiseProgram program;
    program.num_inputs = static_cast<int>(shares.size());
    total.inputs.clear();
    for (const auto& [axis, share] : shares) {
      Node part = n;
      part.name = n.name + "." + rewriter_.graph().axis(axis).name;
      part.axis = axis;
      part.inputs = {concat(share.parts, part)};
      total.inputs.push_back(rewriter_.emit(std::move(part)));
      const int next = static_cast<int>(total.inputs.size()) - 1;
      const int sum_so_far = next == 1 ? 0 : program.num_inputs + next - 2;
      if (next > 0) program.instructions.push_back({ElementwiseFunction::add, sum_so_far, next});
    }
    total.op = ElementwiseOp{std::move(program), {}};
    return rewriter_.emit(std::move(total));
  }

  const Graph& old_;
  Rewriter rewriter_;
  std::map<std::pair<int, int>, int> expanded_;  // (source, axis) -> its expand
};

}  // namespace detail

/// Late broadcast: values that depend on the user alone are computed once per request and meet the items as late as
/// possible. Expands move through concat, linear (with split weights, the user's share is a bias per segment; so also
/// cross, experts and gates), FM, dot, mix, elementwise, slice, norms, sums over columns, and queries of attention.
/// Only the order of sums changes. (As in LinkedIn's and Kuaishou's reports; see docs/ARCHITECTURE.md.)
inline Graph late_broadcast(const Graph& graph) { return detail::LateBroadcaster(graph).run(); }

}}}  // namespace warprank::v0::plan
