// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The types in which a GPU keeps the values of a plan: FP16 if a reader of the value, or of a value in the same rows,
/// runs on tensor cores, else FP32; what a node says is so whoever reads it.

#include <cstddef>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/model/graph.hpp"
#include "warprank/plan/storage.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The types, by node.
inline std::vector<DType> value_types(const Graph& graph, const Storage& storage) {
  const auto root = [&](size_t n) { return static_cast<size_t>(storage.placements[n].root); };
  std::vector<DType> types(graph.nodes.size(), DType::f32);
  for (const Node& node : graph.nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (visit_traits(node.op, [i](const auto& op, auto traits) { return traits.reads_halves(op, i); }))
        types[root(static_cast<size_t>(node.inputs[i]))] = DType::f16;
  for (size_t n = 0; n < types.size(); ++n)
    if (graph.nodes[n].type) types[root(n)] = *graph.nodes[n].type;
  for (size_t n = 0; n < types.size(); ++n) types[n] = types[root(n)];
  return types;
}

}}}  // namespace warprank::v0::plan
