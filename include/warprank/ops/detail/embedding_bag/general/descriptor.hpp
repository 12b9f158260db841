// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernel reads of a feature, and which blocks work on it. Plain data that the host writes.

#include <cstddef>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::detail::embedding_bag::general {

/// How the ids of a bag are found.
enum class IdsForm : uint8_t {
  each,             ///< id b is bag b
  offsets,          ///< of each bag
  indices,          ///< of the bag of each id
  blob_each,        ///< in requests: row b is bag b
  blob_segments,    ///< in requests: a bag is a row of the parent axis, which has offsets
  blob_one_segment  ///< in requests: a bag is a request
};

WARPRANK_HOST_DEVICE constexpr bool is_in_requests(IdsForm form) { return form >= IdsForm::blob_each; }

/// More would be too many registers.
inline constexpr int max_lane_elements = 8;

/// How lanes read a row: `lane_bytes` each, by loads of `load_bytes`, which are less where the address allows no more.
struct RowShape {
  uint8_t lane_bytes = 4;  ///< 1, 2, 4, 8 or 16; 1 to max_lane_elements elements
  uint8_t load_bytes = 4;
  uint8_t tile_log2 = 3;  ///< lanes that read a row together: 8, 16 or 32
  uint32_t num_parts =
      1;  ///< parts of lane_bytes that a row has; a tile goes over a bag once for as many as it has lanes
};

/// A feature as the kernel reads it. Only the parts up to the last one that it needs are read.
struct alignas(16) Descriptor {
  const unsigned char* rows;  ///< of a direct table
  int64_t num_rows;
  unsigned char* y;
  const int64_t* ids;
  const int64_t* num_bags;  ///< null: the capacity
  int64_t max_bags;         ///< the capacity
  int64_t padding;
  LookupCounters* counters;
  uint32_t row_stride_bytes, y_stride, dim;
  RowShape shape;
  DType type;
  Pooling pooling;
  IdsForm form;
  bool has_padding : 1, is_hashed : 1, is_weighted : 1, has_default_row : 1, y_is_half : 1;
  bool y_is_aligned : 1;  ///< a lane's elements of a row of y begin at a multiple of their size, up to 16 bytes
  bool cuts_bags : 1, weights_are_half : 1;
  bool has_one_row : 1;  ///< in requests: each has one row of the axis, the outermost
  bool ids_are_narrow : 1, weights_are_bfloat16 : 1;

  alignas(16) const int64_t* bounds;  ///< offsets or indices
  const int64_t* num_ids;             ///< null: the capacity; of indices
  int64_t max_ids;                    ///< the capacity
  const unsigned char* weights;       ///< of all ids; null: in requests
  int64_t weights_stride;             ///< bytes
  const float* scale;
  const float* offset;
  const float* default_row;
  int64_t tickets_at;  ///< bytes from the beginning of the workspace; partial results are behind the tickets
  int64_t partials_at;

  alignas(16) const unsigned char* blobs;
  const int64_t* positions;
  const int64_t* bag_starts;    ///< row_starts of the axis of the bags
  const int64_t* id_starts;     ///< row_starts of the axis of the ids
  const int64_t* num_requests;  ///< null: max_requests
  int64_t max_requests;
  int64_t default_id;
  uint32_t values_entry;                  ///< bytes from a blob's beginning to where it says where the ids are
  uint32_t weights_entry, offsets_entry;  ///< the same of weights and offsets
  uint32_t weights_column_bytes;
  float default_value;  ///< of a weight

  alignas(16) HashTableView table;
};

/// Bytes up to the end of a part.
enum class Part { always, arrays, requests, hash_table };
constexpr uint32_t bytes_up_to(Part last) {
  return static_cast<uint32_t>(last == Part::always     ? offsetof(Descriptor, bounds)
                               : last == Part::arrays   ? offsetof(Descriptor, blobs)
                               : last == Part::requests ? offsetof(Descriptor, table)
                                                        : sizeof(Descriptor));
}
static_assert(sizeof(Descriptor) % 16 == 0 && sizeof(Descriptor) <= 32 * 16, "a warp reads it at once");

/// Features that have the same number of blocks and need the same parts of their descriptors.
struct Group {
  uint32_t first_block;
  uint32_t first_feature;
  uint32_t blocks_per_feature;
  uint32_t descriptor_bytes;
};

/// Which blocks work on which feature: an argument of the kernel, so that no block waits for it.
struct Partition {
  static constexpr int max_groups = 44;
  Group groups[max_groups];
  uint32_t num_groups;
  uint32_t num_blocks;  ///< may be more than the grid has: blocks then take several
};

/// How the kernel is compiled for a target. The last two decide in which order a bag is summed.
struct Policy {
  int threads;        ///< of a block
  int blocks_per_sm;  ///< that are resident together, which bounds registers
  int max_short_bag;  ///< ids; more are shared by the tiles of a warp
  int ids_per_piece;  ///< longer bags are cut at multiples of it, from their own first id, for several warps
};
/// A lane waits for 16 words of rows at once, a warp for 2 KB; 20 warps of them cover the latency of an H200 (25 KB for
/// each of its multiprocessors) one and a half times. A warp pools a piece of 256 rows of 256 bytes in the time of 32
/// loads.
template <int Target>
inline constexpr Policy policy{128, 5, 32, 256};

/// The first bytes of a partial result; float[dim] follows.
struct alignas(16) Partial {
  double divisor;
  uint64_t elements;
};
WARPRANK_HOST_DEVICE constexpr int64_t partial_bytes(int64_t dim) {
  return static_cast<int64_t>(sizeof(Partial)) + (dim * 4 + 15) / 16 * 16;
}

/// Partial results that so many ids can have. Pieces begin at multiples of ids_per_piece from the beginning of a bag
/// that is longer; among any ids_per_piece consecutive ids at most one such bag begins, and at most one piece that is
/// not a bag's first.
constexpr int64_t num_windows(int64_t num_ids, int64_t ids_per_piece) { return num_ids / ids_per_piece + 1; }

}  // namespace warprank::detail::embedding_bag::general
