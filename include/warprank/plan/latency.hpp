// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The latency of a step's kernel, however little work there is, counted in the code of each kernel. For small batches
/// it is most of the time, and no roofline includes it.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "warprank/model/graph.hpp"
#include "warprank/plan/cards.hpp"
#include "warprank/plan/steps.hpp"

namespace warprank { inline namespace v0 { namespace plan {

/// Instructions are those of the busiest warp at 100 rows, profiled on the H100 with prototypes of the kernels; trips
/// are counted in the code.
inline Latency latency_of(const Graph& graph, const std::vector<int>& step) {
  const std::string kernel = kernel_of(graph, step);
  if (kernel == "embedding_bag") return {5, 250};  // block's record, request's entry, offsets, ids, rows
  if (kernel == "mlp") {  // row and weights at once; of each layer the values of the one before
    size_t layers = 0;
    for (const std::vector<int>& chain : chains_of(graph, step)) layers = std::max(layers, chain.size());
    const bool multiplies = step_kind(graph.node(step.back()).op) == StepKind::rows;  // its factors' record, exchange
    return {1 + static_cast<double>(layers) + (multiplies ? 2 : 0), 335 * static_cast<double>(layers)};
  }
  if (kernel == "din_attention") return {3, 920};  // offsets; query, keys and weights; what was pooled
  if (kernel == "attention") return {2, 575};
  if (kernel == "dot") return {2, 419};
  if (kernel == "fm") return {2, 430};
  return {2, 309};  // row programs; all others are assumed to be as short
}

}}}  // namespace warprank::v0::plan
