// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/plan/rewrite.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The most inputs from which kernels of dots and factorisation machines read fields.
inline constexpr size_t max_field_inputs = 8;

namespace detail {

class FieldGatherer {
 public:
  explicit FieldGatherer(const Graph& graph) : graph_(graph), consumers_(consumers_of(graph)), rewriter_(graph) {}

  Graph run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      const bool has_fields = fields(graph_.node(n)) != Fields::none;
      rewriter_.replace(n, rewriter_.emit(has_fields ? gathered(n) : rewriter_.renewed(n)));
    }
    return rewriter_.finish();
  }

 private:
  static Fields fields(const Node& node) {
    return visit_traits(node.op, [](const auto&, auto traits) { return traits.fields; });
  }

  /// An input of a node, in the old graph and in the new one.
  struct Input {
    int old_node, node;
  };

  /// The node with neighbouring inputs of one axis as one concat. These are inputs that nothing else reads, whose
  /// producers can write into the concat; if too many inputs are left, others as well, which are copied.
  Node gathered(int n) {
    Node node = rewriter_.renewed(n);
    std::vector<Input> inputs;
    for (const int input : graph_.node(n).inputs) inputs.push_back({input, rewriter_.replacement(input)});
    std::vector<std::vector<int>> runs = runs_of(inputs, false);
    if (runs.size() > max_field_inputs) runs = runs_of(inputs, true);
    if (runs.size() > max_field_inputs && fields(node) == Fields::in_any_order) {
      std::stable_sort(inputs.begin(), inputs.end(),
                       [&](const Input& a, const Input& b) { return axis_of(a) < axis_of(b); });
      runs = runs_of(inputs, true);
    }
    for (size_t i = inputs.size(); runs.size() > max_field_inputs; runs = runs_of(inputs, true))
      expand(inputs[--i], node);  // an ancestor's input joins its neighbours
    node.inputs.clear();
    for (std::vector<int>& run : runs) {
      const int only = run[0];
      node.inputs.push_back(run.size() == 1 ? only : concat(std::move(run), node));
    }
    return node;
  }
  /// Runs of neighbours of one axis: of any inputs, or only of inputs that nothing else reads.
  std::vector<std::vector<int>> runs_of(const std::vector<Input>& inputs, bool any) const {
    std::vector<std::vector<int>> runs;
    const Input* last = nullptr;
    for (const Input& input : inputs) {
      const bool joins =
          last != nullptr && axis_of(*last) == axis_of(input) && (any || (is_own(*last) && is_own(input)));
      if (!joins) runs.emplace_back();
      runs.back().push_back(input.node);
      last = &input;
    }
    return runs;
  }
  int axis_of(const Input& input) const { return rewriter_.node(input.node).axis; }
  bool is_own(const Input& input) const {
    const int n = input.old_node;
    return consumers_[static_cast<size_t>(n)].size() == 1 && !std::holds_alternative<ConcatOp>(graph_.node(n).op);
  }
  void expand(Input& input, const Node& like) {
    if (axis_of(input) == like.axis) return;
    Node node;
    node.name = rewriter_.node(input.node).name + ".expand";
    node.op = ExpandOp{};
    node.inputs = {input.node};
    node.axis = like.axis;
    node.where = like.where;
    input.node = rewriter_.emit(std::move(node));
  }
  int concat(std::vector<int> parts, const Node& like) {
    Node node;
    node.name = like.name + ".fields";
    node.op = ConcatOp{};
    node.inputs = std::move(parts);
    node.where = like.where;
    return rewriter_.emit(std::move(node));
  }

  const Graph& graph_;
  std::vector<std::vector<int>> consumers_;
  Rewriter rewriter_;
};

}  // namespace detail

/// Puts the fields of dots and factorisation machines side by side, so that kernels read whole rows: producers write
/// into the concat, which costs nothing. If a dot's fields change between axes more often than its kernel allows, the
/// last fields of ancestors are expanded.
inline Graph gather_fields(const Graph& graph) { return detail::FieldGatherer(graph).run(); }

}}}  // namespace warprank::v0::plan
