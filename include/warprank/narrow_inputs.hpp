// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds the inputs that requests can hold in half the bytes without a loss on a GPU.

#include <cstdint>
#include <variant>
#include <vector>

#include "warprank/model/graph.hpp"
#include "warprank/plan/plan.hpp"
#include "warprank/plan/value_types.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

/// The dense input whose values a node passes on; -1: none.
inline int dense_input_of(const Graph& graph, int node) {
  while (std::holds_alternative<SliceOp>(graph.node(node).op)) node = graph.node(node).inputs[0];
  const auto* dense = std::get_if<DenseOp>(&graph.node(node).op);
  return dense == nullptr ? -1 : dense->input;
}

/// The dense inputs whose values the GPU plan stores as FP16, and does not also read as weights of bags.
inline std::vector<bool> become_halves(const Plan& plan) {
  const Graph& graph = plan.graph();
  const std::vector<DType> types = plan::value_types(graph, plan.storage());
  std::vector<bool> halves(graph.dense.size());
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
    if (const auto* dense = std::get_if<DenseOp>(&graph.node(n).op))
      halves[static_cast<size_t>(dense->input)] = types[static_cast<size_t>(n)] == DType::f16;
  for (const Node& node : graph.nodes) {
    if (!std::holds_alternative<EmbedOp>(node.op) || node.inputs.empty()) continue;
    const int weights = dense_input_of(graph, node.inputs[0]);
    if (weights >= 0) halves[static_cast<size_t>(weights)] = false;
  }
  return halves;
}

/// The ids inputs that name only rows of direct tables, if all these tables declare fewer than 2^31 rows.
inline std::vector<bool> name_few_rows(const Graph& graph) {
  std::vector<bool> used(graph.ids.size()), few(graph.ids.size(), true);
  for (const Node& node : graph.nodes) {
    const auto* embed = std::get_if<EmbedOp>(&node.op);
    if (embed == nullptr) continue;
    const TableInfo& table = graph.tables[static_cast<size_t>(embed->table)];
    const auto ids = static_cast<size_t>(embed->ids);
    used[ids] = true;
    few[ids] = few[ids] && !table.hashed && table.rows > 0 && table.rows <= INT32_MAX;
  }
  for (size_t i = 0; i < few.size(); ++i) few[i] = few[i] && used[i];
  return few;
}

}  // namespace detail

/// The graph that a plan was compiled from, with inputs as narrow as possible without changing a bit of a score on a
/// GPU. Dense inputs whose values the plan stores there as FP16 become FP16, and ids of direct tables that declare
/// fewer than 2^31 rows become 32 bits. Values out of range saturate, as they would on the GPU. Inputs that are already
/// narrow stay unchanged.
///
///     const Plan plan = compile(narrow_inputs(compile(model, options)), options);
///
/// The host engine keeps FP32, so its scores change by the rounding of the values.
inline Graph narrow_inputs(const Plan& plan) {
  Graph graph = plan.source();
  const std::vector<bool> halves = detail::become_halves(plan), few = detail::name_few_rows(graph);
  for (size_t i = 0; i < graph.dense.size(); ++i) {
    DenseInfo& info = graph.dense[i];
    if (!halves[i] || info.wire != DenseWire::f32) continue;
    info.wire = DenseWire::f16;
    info.out_of_range = OutOfRange::saturate;
  }
  for (size_t i = 0; i < graph.ids.size(); ++i) {
    IdsInfo& info = graph.ids[i];
    if (!few[i] || info.wire != IdsWire::i64) continue;
    info.wire = IdsWire::i32;
    info.out_of_range = OutOfRange::saturate;
  }
  return graph;
}

}}  // namespace warprank::v0
