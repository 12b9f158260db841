// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Segments that no request brings: a launch ahead of the steps.

#include <memory>
#include <vector>

#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/ops/detail/segments/launch.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Offsets of pairs that a batch's index does not have.
inline PreparedStep prepare_segments(const std::vector<AxisPair>& pairs, const Bindings& bindings, StepMemory& memory) {
  std::vector<int> parents;
  for (const AxisInfo& axis : bindings.graph().axes) parents.push_back(axis.parent);
  std::vector<detail::segments::SegmentsOfAxis> wanted;
  for (const AxisPair& pair : pairs)
    if (pair.first != pair.second)
      wanted.push_back({pair.first, pair.second, bindings.max_rows(pair.second), bindings.segments(pair)});
  return prepare_launch("segments", detail::segments::SegmentsLaunch(bindings.requests(), parents, wanted), memory);
}

}}}  // namespace warprank::v0::cuda_backend
