// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/ops/segmented_input.hpp"

namespace warprank::reference {

/// The row of an input that serves output row n: the segment that holds n when it lives on an ancestor axis.
inline const float* serving_row(const SegmentedInput& input, int64_t n) {
  if (!input.on_ancestor()) return input.values.row(n);
  for (int64_t s = 0; s < input.segments.count; ++s)
    if (n >= input.segments.begin(s) && n < input.segments.end(s)) return input.values.row(s);
  return nullptr;
}

}  // namespace warprank::reference
