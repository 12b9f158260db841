// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How large batches may be for what a context has made ready. Plain C++, no device.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/batch/layout.hpp"
#include "warprank/batch/most_blob_bytes.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/cuda/value_layout.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// The next of four numbers in each doubling: 8, 10, 12, 14, 16, 20 and so on.
inline int64_t next_of_four(int64_t count) {
  int64_t step = 1;
  while (step <= count / 8) step *= 2;
  return (count + step - 1) / step * step;
}

struct RunSize {
  std::vector<int64_t> rows;  ///< most of each axis; rows[0] requests
  int64_t max_requests = 0;   ///< that the index has room for
  int64_t blob_bytes = 0;

  /// Whether whatever fits `other` fits this.
  bool holds(const RunSize& other) const {
    bool holds = other.max_requests <= max_requests && other.blob_bytes <= blob_bytes;
    for (size_t a = 0; a < rows.size(); ++a) holds = holds && other.rows[a] <= rows[a];
    return holds;
  }
  bool operator==(const RunSize& other) const {
    return rows == other.rows && max_requests == other.max_requests && blob_bytes == other.blob_bytes;
  }
  /// What is made ready for a batch of this size that is above all capacities, of which `largest` holds each: as much,
  /// and rounded up where it is more. It depends on the batch and the plan alone, so that its bits do, and does for
  /// many batches.
  RunSize rounded_up(const RunSize& largest, const BatchLayout& layout) const {
    constexpr int64_t most_rows = int64_t{1} << 31;
    RunSize rounded = *this;
    for (size_t a = 0; a < rows.size(); ++a)
      rounded.rows[a] =
          rows[a] <= largest.rows[a] ? largest.rows[a] : std::max(rows[a], std::min(next_of_four(rows[a]), most_rows));
    rounded.max_requests = max_requests <= largest.max_requests ? largest.max_requests : next_of_four(max_requests);
    const int64_t most_bytes = most_blob_bytes(layout, rounded.rows);
    rounded.blob_bytes = blob_bytes <= most_bytes ? most_bytes : next_of_four(blob_bytes);
    return rounded;
  }
  /// The least that holds both.
  RunSize joined(RunSize other) const {
    for (size_t a = 0; a < rows.size(); ++a) other.rows[a] = std::max(other.rows[a], rows[a]);
    other.max_requests = std::max(other.max_requests, max_requests);
    other.blob_bytes = std::max(other.blob_bytes, blob_bytes);
    return other;
  }
};

/// Where everything lies in the arena of a run: bytes from its beginning.
struct ArenaLayout {
  std::vector<int64_t> slots;  ///< by slot
  int64_t bytes = 0;

  ArenaLayout(const ValueLayout& values, const plan::Storage& storage, const std::vector<int64_t>& rows) {
    constexpr int64_t alignment = 256;
    for (size_t s = 0; s < storage.slots.size(); ++s) {
      slots.push_back(bytes);
      bytes += round_up(rows[static_cast<size_t>(storage.slots[s].axis)] * values.slot_row_bytes()[s], alignment);
    }
  }
};

/// The outputs of each axis, one behind the other.
struct OutputsLayout {
  std::vector<int64_t> axes;  ///< first float, by axis
  int64_t floats = 0;

  OutputsLayout(const ValueLayout& values, const std::vector<int64_t>& rows) {
    constexpr int64_t alignment = 64;
    for (size_t a = 0; a < rows.size(); ++a) {
      axes.push_back(floats);
      floats += round_up(rows[a] * values.output_width(static_cast<int>(a)), alignment);
    }
  }
};

}}}  // namespace warprank::v0::cuda_backend
