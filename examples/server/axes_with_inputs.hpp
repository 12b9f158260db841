// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "warprank/batch/layout.hpp"

namespace kserve {

/// By axis: whether inputs are set on it, or on one nested in it.
inline std::vector<bool> axes_with_inputs(const warprank::BatchLayout& layout) {
  std::vector<bool> has_inputs(layout.axes().size());
  for (const warprank::IdsInfo& info : layout.ids()) has_inputs[static_cast<size_t>(info.axis)] = true;
  for (const warprank::DenseInfo& info : layout.dense()) has_inputs[static_cast<size_t>(info.axis)] = true;
  for (size_t a = has_inputs.size(); a-- > 1;)
    if (has_inputs[a]) has_inputs[static_cast<size_t>(layout.axes()[a].parent)] = true;
  return has_inputs;
}

}  // namespace kserve
