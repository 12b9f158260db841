// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Experts mixed by their gates.

#include <type_traits>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/ops/mix.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Mixes on one axis and of one type.
inline PreparedStep prepare_mixes(const std::vector<int>& nodes, const Bindings& bindings, StepMemory& memory) {
  return with_type(bindings.value(nodes[0]), [&](auto first) {
    using Out = std::remove_pointer_t<decltype(first.data)>;
    std::vector<MixTask<float16, Out>> tasks;
    for (const int n : nodes) {
      const Node& node = bindings.graph().node(n);
      const auto& op = std::get<MixOp>(node.op);
      const FloatMatrix<void> y = bindings.value(n);
      tasks.push_back({bindings.halves_on(node.inputs[0], node.axis),
                       bindings.halves_on(node.inputs[1], node.axis),
                       {static_cast<Out*>(y.data), y.rows, y.cols, y.stride},
                       op.normalization});
      if (op.multiply) tasks.back().multiply = bindings.halves(node.inputs[2]);
      if (op.residual) tasks.back().residual = bindings.halves(node.inputs[2 + op.multiply]);
    }
    const int64_t* const num_rows = bindings.num_rows(bindings.graph().node(nodes[0]).axis);
    return prepare_launch("mix", Mix<float16, Out>(tasks, num_rows), memory);
  });
}

}}}  // namespace warprank::v0::cuda_backend
