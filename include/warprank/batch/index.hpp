// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The index behind a batch's blobs: the numbers of rows, the place of each request's blob, and the rows of each
/// request.
///
///     i64 counts[A]            rows of each axis, of all scored requests together; counts[0] is how many are scored
///     i64 positions[S]         where the blob of each scored request begins, in bytes from the beginning of the index:
///                              negative, since blobs come before it; 0 behind the last
///     i64 row_starts[A][S+1]   rows of the axis before each scored request; behind the last, all
///
/// A is the number of axes, S the number of requests that there is room for. Only requests whose status is ok are
/// scored. The places depend only on A and S. So batches with the same S are read at the same addresses, however many
/// requests, rows and bytes they have, if each is copied so that its index begins at the same place.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "warprank/batch/blob.hpp"
#include "warprank/batch/layout.hpp"

namespace warprank { inline namespace v0 {

/// The places of an index's parts, in bytes from its beginning. Each number is an int64_t.
class BatchIndex {
 public:
  BatchIndex() = default;
  BatchIndex(int64_t num_axes, int64_t max_requests) : num_axes_(num_axes), max_requests_(max_requests) {}

  int64_t num_axes() const { return num_axes_; }          ///< A
  int64_t max_requests() const { return max_requests_; }  ///< S

  int64_t count_at(AxisSlot axis) const { return 8 * axis.index; }
  int64_t positions_at() const { return 8 * num_axes_; }
  int64_t row_starts_at(AxisSlot axis) const {
    return positions_at() + 8 * max_requests_ + 8 * (max_requests_ + 1) * axis.index;
  }
  int64_t bytes() const { return row_starts_at({static_cast<int>(num_axes_)}); }

 private:
  int64_t num_axes_ = 0, max_requests_ = 0;
};

namespace detail {

/// Writes an index one scored request after the other.
class IndexWriter {
 public:
  /// `at` has room for the index behind the blobs of a batch, and is aligned to 8 bytes.
  IndexWriter(const BatchIndex& index, std::byte* at) : index_(index), at_(at) {
    std::fill_n(counts(), index.num_axes(), int64_t{0});
  }

  /// The next request; at most max_requests() of them.
  void add(const BlobView& blob) {
    const int64_t r = counts()[0];
    values(index_.positions_at())[r] = blob.data() - at_;
    for (int axis = 0; axis < static_cast<int>(index_.num_axes()); ++axis) {
      values(index_.row_starts_at({axis}))[r] = counts()[axis];
      counts()[axis] += blob.rows({axis});
    }
  }

  /// Call after the last request.
  void finish() {
    const int64_t scored = counts()[0], unused = index_.max_requests() - scored;
    std::fill_n(values(index_.positions_at()) + scored, unused, int64_t{0});
    for (int axis = 0; axis < static_cast<int>(index_.num_axes()); ++axis)
      std::fill_n(values(index_.row_starts_at({axis})) + scored, unused + 1, counts()[axis]);
  }

 private:
  int64_t* values(int64_t position) const { return reinterpret_cast<int64_t*>(at_ + position); }
  int64_t* counts() const { return values(0); }

  const BatchIndex& index_;
  std::byte* at_;
};

}  // namespace detail
}}  // namespace warprank::v0
