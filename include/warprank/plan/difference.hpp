// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "warprank/plan/plan.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// The first difference between two plans; empty if their models can take turns in one context. The places of nodes in
/// the user's source do not count.
inline std::string difference(const Plan& a, const Plan& b) {
  const Graph &x = a.graph(), &y = b.graph();
  if (&x == &y) return "";
  if (x.axes != y.axes) return "axes";
  if (x.tables != y.tables) return "tables";
  if (a.layout().fingerprint() != b.layout().fingerprint() || x.ids != y.ids || x.dense != y.dense) return "inputs";
  if (x.nodes.size() != y.nodes.size()) return "nodes";
  for (size_t n = 0; n < x.nodes.size(); ++n) {
    const Node &p = x.nodes[n], &q = y.nodes[n];
    if (p.name != q.name || !(p.op == q.op) || p.inputs != q.inputs || p.axis != q.axis || p.width != q.width ||
        p.group != q.group || p.type != q.type)
      return "node '" + p.name + "'";
  }
  if (x.outputs != y.outputs) return "outputs";
  const CompileOptions &of_a = a.options(), &of_b = b.options();
  if (of_a.passes.place_concats != of_b.passes.place_concats || of_a.passes.reuse_memory != of_b.passes.reuse_memory)
    return "passes";
  bool same_rows = of_a.capacities.size() == of_b.capacities.size();
  for (size_t c = 0; same_rows && c < of_a.capacities.size(); ++c)
    same_rows = rows_at(a.source(), of_a.capacities[c]) == rows_at(b.source(), of_b.capacities[c]);
  return same_rows ? "" : "capacities";
}

}}}  // namespace warprank::v0::plan
