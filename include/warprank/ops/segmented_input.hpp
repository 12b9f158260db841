// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A matrix as an op's input, on the op's own axis or on an ancestor of it, as late broadcast needs.

#include <algorithm>
#include <cstdint>

#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

struct SegmentedInput {
  Matrix<const float> values;
  /// No offsets: row n serves output row n. Else `values` has one row per segment, and row s serves the output rows
  /// [segments.begin(s), segments.end(s)); segments.rows() is the number of output rows.
  Segments segments = {};

  constexpr bool on_ancestor() const { return segments.offsets != nullptr; }
  /// The row of `values` that serves output row n.
  int64_t row_serving(int64_t n) const {
    if (!on_ancestor()) return n;
    const int64_t* ends = segments.offsets + 1;
    return std::upper_bound(ends, ends + segments.count, n) - ends;
  }
};

/// The number of output rows in [n, num_rows), from n on, that the same row of every ancestor input serves; all rows if
/// there is no such input. Values that depend only on ancestors are computed once per run.
inline int64_t run_of_rows(Span<const SegmentedInput> inputs, int64_t n, int64_t num_rows) {
  int64_t end = num_rows;
  for (const SegmentedInput& input : inputs)
    if (input.on_ancestor()) end = std::min(end, input.segments.end(input.row_serving(n)));
  return end - n;
}

}}  // namespace warprank::v0
