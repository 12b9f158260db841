// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Nested axes pooled onto their parents: one launch for all of a step.

#include <memory>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/ops/segment_reduce.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline PreparedStep prepare_pools(const std::vector<int>& nodes, const Bindings& bindings, StepMemory& memory) {
  std::vector<SegmentReduction> reductions;
  for (const int n : nodes) {
    const Node& node = bindings.graph().node(n);
    SegmentReduction& reduction = reductions.emplace_back();
    reduction.x = bindings.input(node.inputs[0]);
    reduction.offsets = bindings.offsets({bindings.graph().node(node.inputs[0]).axis, node.axis});
    reduction.num_segments = bindings.num_rows(node.axis);
    reduction.pooling = std::get<PoolOp>(node.op).pooling;
    reduction.y = bindings.value(n);
  }
  return prepare_launch("segment_reduce", SegmentReduceLaunch(reductions), memory);
}

}}}  // namespace warprank::v0::cuda_backend
