// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From the requests of a batch to the segments of axes that are nested below the first level: for a pair (axis,
/// ancestor) the rows of `axis` under each row of `ancestor`, as contiguous offsets, all pairs in one launch. Blobs
/// have offsets of each axis under its parent (docs/BATCH_FORMAT.md); where axes lie between, the offsets are composed.
/// Segments under the outermost axis are RequestBlobs::row_starts themselves.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/batch/format.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/descriptors.cuh"
#include "warprank/ops/detail/embedding_bag/ids.cuh"
#include "warprank/ops/detail/gemm/check.hpp"

namespace warprank::detail {

/// Segments that are wanted.
struct SegmentsOfAxis {
  int axis = 0, ancestor = 0;
  int64_t capacity = 0;        ///< rows of the ancestor
  int64_t* offsets = nullptr;  ///< [capacity + 1], in device memory
};

namespace segments {

inline constexpr int threads = 128, min_blocks = 8;
inline constexpr int max_depth = 12;  // of axes between an axis and its ancestor, itself included

/// A pair as it lies in device memory.
struct alignas(16) Pair {
  const unsigned char* blobs;
  const int64_t* positions;
  const int64_t* num_requests;
  int64_t max_requests;
  const int64_t* ancestor_starts;
  const int64_t* axis_starts;
  int64_t* offsets;
  int64_t capacity;
  int64_t first_block;
  int num_steps;
  uint32_t entries[max_depth];  // in a blob: where it says where the offsets of each axis on the way down begin
};
static_assert(sizeof(Pair) % 16 == 0);

/// offsets[n] for each row n of the ancestor and for the end, a thread each.
template <class = void>
WARPRANK_KERNEL(threads, min_blocks)
segments_kernel(const Pair* pairs, int num_pairs) {
  using device::load_read_only;
  auto& pair = device::static_shared<Pair>();
  const int64_t block = device::block_index().x;
  read_descriptors(pairs + problem_of_block(pairs, num_pairs, block), 1, &pair);
  const int64_t n = (block - pair.first_block) * threads + device::thread_rank();
  const int64_t num_requests = device::true_count(pair.num_requests, pair.max_requests);
  const int64_t rows = load_read_only(&pair.ancestor_starts[num_requests]);
  if (n > rows || n > pair.capacity) return;
  if (n == rows) {
    device::store(&pair.offsets[n], load_read_only(&pair.axis_starts[num_requests]));
    return;
  }
  const int64_t request = device::last_not_above(pair.ancestor_starts, num_requests, n);
  const unsigned char* blob = pair.blobs + load_read_only(&pair.positions[request]);
  int64_t row = n - load_read_only(&pair.ancestor_starts[request]);
  for (int step = 0; step < pair.num_steps; ++step) {
    const uint32_t offsets_at = embedding_bag::read_entry(blob, pair.entries[step]);
    row = load_read_only(embedding_bag::section<uint32_t>(blob, offsets_at) + row);
  }
  device::store(&pair.offsets[n], load_read_only(&pair.axis_starts[request]) + row);
}

}  // namespace segments

/// Segments that are computed together.
class SegmentsLaunch {
 public:
  /// `parents` [num_axes]: the parent of each axis, -1 for the outermost. Throws invalid_argument, all problems
  /// together: for a pair that is none, and for one with more than 12 axes on its way.
  SegmentsLaunch(const RequestBlobs& requests, Span<const int> parents, Span<const SegmentsOfAxis> wanted) {
    Problems problems;
    check_requests(requests, parents, problems);
    problems.throw_if_any();
    for (int64_t i = 0; i < wanted.size(); ++i) add(requests, parents, wanted[i], problems);
    problems.throw_if_any();
  }

  Span<const unsigned char> descriptors() const {
    return {reinterpret_cast<const unsigned char*>(pairs_.data()), descriptor_bytes()};
  }
  int64_t descriptor_bytes() const { return static_cast<int64_t>(pairs_.size() * sizeof(segments::Pair)); }

  /// Queues one kernel, none when no segments are wanted. `descriptors` aligned to 16.
  WARPRANK_HIDDEN void run(const void* descriptors, device::Stream stream = {}) const {
    device::launch({static_cast<unsigned>(num_blocks_), segments::threads, 0, stream}, segments::segments_kernel<>,
                   static_cast<const segments::Pair*>(descriptors), static_cast<int>(pairs_.size()));
  }

 private:
  static void check_requests(const RequestBlobs& requests, Span<const int> parents, Problems& problems) {
    check_pointer("segments: blobs", requests.bytes, 8, problems);
    check_pointer("segments: positions of blobs", requests.positions, 8, problems);
    check_pointer("segments: row starts", requests.row_starts, 8, problems);
    if (requests.num_requests.capacity < 0) {
      problems.add("segments: number of requests", "0 or more", std::to_string(requests.num_requests.capacity));
    }
    if (parents.size() != requests.num_axes) {
      problems.add("segments: parents", std::to_string(requests.num_axes), std::to_string(parents.size()));
    }
    for (int64_t axis = 0; axis < parents.size(); ++axis) {
      if (parents[axis] < (axis == 0 ? -1 : 0) || parents[axis] >= axis) {
        problems.add("segments: parent of axis " + std::to_string(axis), "an axis before it",
                     std::to_string(parents[axis]));
      }
    }
  }

  void add(const RequestBlobs& requests, Span<const int> parents, const SegmentsOfAxis& wanted, Problems& problems) {
    const std::string what =
        "segments of axis " + std::to_string(wanted.axis) + " under axis " + std::to_string(wanted.ancestor);
    std::vector<uint32_t> entries;
    int axis = wanted.axis;
    while (axis > wanted.ancestor && axis < parents.size()) {
      entries.push_back(static_cast<uint32_t>(sizeof(BlobHeader)) +
                        4 * static_cast<uint32_t>(requests.num_axes + axis));
      axis = parents[axis];
    }
    if (axis != wanted.ancestor || wanted.ancestor < 1 || entries.empty()) {
      problems.add(what, "an axis nested in another than the outermost", "another pair");
      return;
    }
    if (entries.size() > segments::max_depth) {
      problems.add(what, "at most " + std::to_string(segments::max_depth) + " axes on the way",
                   std::to_string(entries.size()));
      return;
    }
    check_pointer(what, wanted.offsets, 8, problems);
    if (wanted.capacity < 0) problems.add(what, "a capacity of 0 or more", std::to_string(wanted.capacity));
    std::reverse(entries.begin(), entries.end());

    segments::Pair to{};
    to.blobs = requests.bytes;
    to.positions = requests.positions;
    to.num_requests = requests.num_requests.actual;
    to.max_requests = requests.num_requests.capacity;
    to.ancestor_starts = requests.row_starts_of(wanted.ancestor);
    to.axis_starts = requests.row_starts_of(wanted.axis);
    to.offsets = wanted.offsets;
    to.capacity = wanted.capacity;
    to.first_block = num_blocks_;
    to.num_steps = static_cast<int>(entries.size());
    std::copy(entries.begin(), entries.end(), to.entries);
    num_blocks_ += wanted.capacity / segments::threads + 1;
    pairs_.push_back(to);
  }

  std::vector<segments::Pair> pairs_;
  int64_t num_blocks_ = 0;
};

}  // namespace warprank::detail
