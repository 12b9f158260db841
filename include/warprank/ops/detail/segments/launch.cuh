// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From the requests of a batch to the segments of axes that are nested below the first level: for a pair (axis,
/// ancestor) the rows of `axis` under each row of `ancestor`, as contiguous offsets, all pairs in one launch. Blobs
/// have offsets of each axis under its parent (docs/BATCH_FORMAT.md); where axes lie between, the offsets are composed.
/// Segments under the outermost axis are RequestBlobs::row_starts themselves.

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/batch/format.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"
#include "warprank/ops/detail/common/requests_of_lanes.cuh"
#include "warprank/ops/detail/embedding_bag/blob.cuh"

namespace warprank { inline namespace v0 { namespace detail::segments {

/// Segments that are wanted.
struct SegmentsOfAxis {
  int axis = 0, ancestor = 0;
  int64_t capacity = 0;        ///< rows of the ancestor
  int64_t* offsets = nullptr;  ///< [capacity + 1], in device memory
};

inline constexpr int threads = 128, min_blocks = 8;
inline constexpr int max_depth = 12;  // of axes between an axis and its ancestor, itself included
inline constexpr int max_pairs = 16;  // of a launch; more take several

/// No padding, as launches are compared by their bytes.
struct Pair {
  const int64_t* ancestor_starts;
  const int64_t* axis_starts;
  int64_t* offsets;
  int64_t capacity;
  int64_t first_block;
  int64_t num_steps;
  uint32_t entries[max_depth];  // in a blob: where it says where the offsets of each axis on the way down begin
};

/// What the kernel is given, by value.
struct Arguments {
  const unsigned char* blobs;
  const int64_t* positions;
  const int64_t* num_requests;  // null: max_requests
  int64_t max_requests;
  int64_t num_pairs;
  Pair pairs[max_pairs];
};
static_assert(std::has_unique_object_representations_v<Arguments>);

/// offsets[n] for each row n of the ancestor and for the end, a thread each. Loads that depend on one another: what a
/// request has (of 32 and more requests four: their number, a search, what it has), the position of its offsets, and an
/// offset for each axis on the way.
template <class = void>
WARPRANK_KERNEL(threads, min_blocks)
segments_kernel(const WARPRANK_GRID_CONSTANT Arguments arguments) {
  const int64_t block = device::block_index().x;
  int number = 0;
  while (number + 1 < arguments.num_pairs && arguments.pairs[number + 1].first_block <= block) ++number;
  const Pair& pair = arguments.pairs[number];
  const int64_t n = (block - pair.first_block) * threads + device::thread_rank();
  device::wait_for_previous_launch();

  const int64_t first = n - device::lane_index();
  RequestsOfLanes<2> requests({pair.ancestor_starts, pair.axis_starts}, arguments.positions, arguments.num_requests,
                              arguments.max_requests);
  const int64_t request = requests.find(n, first, first + device::warp_size - 1), position = requests.position(request);
  const int64_t axis_start = requests.start(1, request);
  const bool is_end = request == requests.count();
  int64_t row = n - requests.start(0, request);
  if (n > pair.capacity || (is_end && row > 0)) return;
  if (!is_end) {
    const unsigned char* blob = arguments.blobs + position;
    uint32_t offsets_at = embedding_bag::read_entry(blob, pair.entries[0]);
    for (int step = 0; step < pair.num_steps; ++step) {
      uint32_t next_at = 0;  // beside the offset, not behind it
      if (step + 1 < pair.num_steps) next_at = embedding_bag::read_entry(blob, pair.entries[step + 1]);
      row = device::load_read_only(embedding_bag::section<uint32_t>(blob, offsets_at) + row);
      offsets_at = next_at;
    }
  }
  device::store(&pair.offsets[n], axis_start + row);
}

/// Pairs of one launch.
struct Launch {
  Arguments arguments{};
  int64_t num_blocks = 0;
};

inline void check_requests(const RequestBlobs& requests, Span<const int> parents, Problems& problems) {
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

inline void add_pair(const RequestBlobs& requests, Span<const int> parents, const SegmentsOfAxis& wanted,
                     std::vector<Launch>& launches, Problems& problems) {
  const std::string what =
      "segments of axis " + std::to_string(wanted.axis) + " under axis " + std::to_string(wanted.ancestor);
  std::vector<uint32_t> entries;
  int axis = wanted.axis;
  while (axis > wanted.ancestor && axis < parents.size()) {
    entries.push_back(static_cast<uint32_t>(sizeof(BlobHeader)) + 4 * static_cast<uint32_t>(requests.num_axes + axis));
    axis = parents[axis];
  }
  if (axis != wanted.ancestor || wanted.ancestor < 1 || entries.empty()) {
    problems.add(what, "an axis nested in another than the outermost", "another pair");
    return;
  }
  if (entries.size() > max_depth) {
    problems.add(what, "at most " + std::to_string(max_depth) + " axes on the way", std::to_string(entries.size()));
    return;
  }
  check_pointer(what, wanted.offsets, 8, problems);
  if (wanted.capacity < 0) problems.add(what, "a capacity of 0 or more", std::to_string(wanted.capacity));
  std::reverse(entries.begin(), entries.end());

  if (launches.empty() || launches.back().arguments.num_pairs == max_pairs) {
    Arguments& arguments = launches.emplace_back().arguments;
    arguments.blobs = requests.bytes;
    arguments.positions = requests.positions;
    arguments.num_requests = requests.num_requests.actual;
    arguments.max_requests = requests.num_requests.capacity;
  }
  Launch& launch = launches.back();
  Pair& to = launch.arguments.pairs[launch.arguments.num_pairs++];
  to.ancestor_starts = requests.row_starts_of(wanted.ancestor);
  to.axis_starts = requests.row_starts_of(wanted.axis);
  to.offsets = wanted.offsets;
  to.capacity = wanted.capacity;
  to.first_block = launch.num_blocks;
  to.num_steps = static_cast<int64_t>(entries.size());
  std::copy(entries.begin(), entries.end(), to.entries);
  launch.num_blocks += wanted.capacity / threads + 1;
}

inline std::vector<Launch> plan_launches(const RequestBlobs& requests, Span<const int> parents,
                                         Span<const SegmentsOfAxis> wanted) {
  Problems problems;
  check_requests(requests, parents, problems);
  problems.throw_if_any();
  std::vector<Launch> launches;
  for (const SegmentsOfAxis& pair : wanted) add_pair(requests, parents, pair, launches, problems);
  problems.throw_if_any();
  return launches;
}

/// Segments that are computed together: one kernel for each 16 pairs.
class SegmentsLaunch : public Primitive {
 public:
  /// `parents` [num_axes]: the parent of each axis, -1 for the outermost. Throws invalid_argument, all problems
  /// together: for a pair that is none, and for one with more than 12 axes on its way.
  SegmentsLaunch(const RequestBlobs& requests, Span<const int> parents, Span<const SegmentsOfAxis> wanted)
      : Primitive("segments"), launches_(plan_launches(requests, parents, wanted)) {
    set_launches(static_cast<int64_t>(launches_.size()));
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory&, device::Stream stream = {}) const;

 private:
  std::vector<Launch> launches_;
};

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ENGINE)
WARPRANK_KERNELS_INLINE void SegmentsLaunch::launch(const LaunchMemory&, device::Stream stream) const {
  for (const Launch& launch : launches_) {
    device::launch_overlapping({static_cast<unsigned>(launch.num_blocks), threads, 0, stream}, segments_kernel<>,
                               launch.arguments);
  }
}
#endif

}}}  // namespace warprank::v0::detail::segments
