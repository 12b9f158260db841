// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part: writes the descriptors of features, and divides blocks among them.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <variant>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/embedding_bag/blob_entries.hpp"
#include "warprank/ops/detail/embedding_bag/check.hpp"
#include "warprank/ops/detail/embedding_bag/general/descriptor.hpp"

namespace warprank::detail::embedding_bag::general {

/// How lanes read rows of `row_bytes` at multiples of `alignment`, at most 16: `least` bytes each, or more.
inline RowShape row_shape(int64_t row_bytes, int64_t element_bytes, int64_t alignment, int64_t least) {
  RowShape shape;
  int64_t lane_bytes = std::clamp(alignment, element_bytes, max_lane_elements * element_bytes);
  constexpr int64_t smallest_tile = 8;
  // No lane of the smallest tile is left idle for the sake of wide loads.
  while (lane_bytes > least && row_bytes <= lane_bytes / 2 * smallest_tile) lane_bytes /= 2;
  const int64_t parts = row_bytes / lane_bytes;
  shape.lane_bytes = static_cast<uint8_t>(lane_bytes);
  shape.load_bytes = static_cast<uint8_t>(std::min(lane_bytes, alignment));
  shape.tile_log2 = parts <= smallest_tile ? 3 : parts <= 2 * smallest_tile ? 4 : 5;
  shape.num_parts = static_cast<uint32_t>(parts);
  return shape;
}

inline RowShape row_shape(const BagFeature& feature) {
  const TableView& table = feature.table;
  const int64_t element_bytes = size_of(table.type);
  if (!feature.hashed) {
    const int64_t alignment = std::gcd(std::gcd(alignment_of(static_cast<const char*>(table.rows)), table.row_bytes()),
                                       table.row_stride_bytes);
    return row_shape(table.row_bytes(), element_bytes, alignment, element_bytes);
  }
  // Slots are padded, so whole words can be read. Of rows that may change they must be: nothing narrower bypasses L1.
  const int64_t alignment = std::gcd<int64_t>(16, feature.hashed->shape.row_stride);
  const int64_t least = feature.hashed->is_mutable ? 4 : element_bytes;
  return row_shape((table.row_bytes() + alignment - 1) / alignment * alignment, element_bytes, alignment, least);
}

inline void describe_ids(const IdArray& array, Descriptor& d) {
  d.form = array.offsets != nullptr ? IdsForm::offsets : array.indices != nullptr ? IdsForm::indices : IdsForm::each;
  d.ids = array.ids;
  d.bounds = array.offsets != nullptr ? array.offsets : array.indices;
  d.num_ids = array.num_ids.actual;
  d.weights = reinterpret_cast<const unsigned char*>(array.weights);
  d.weights_stride = array.weights_stride * static_cast<int64_t>(sizeof(float));
}

/// What bags of rows of an axis have in common.
inline void describe_requests(const RequestBlobs& requests, int axis, int bags_axis, int input, Descriptor& d) {
  const BlobEntries entries(requests);
  d.blobs = requests.bytes;
  d.positions = requests.positions;
  d.id_starts = requests.row_starts_of(axis);
  d.bag_starts = requests.row_starts_of(bags_axis);
  d.num_requests = requests.num_requests.actual;
  d.max_requests = requests.num_requests.capacity;
  d.has_one_row = axis == 0;
  d.values_entry = entries.of_input(input);
  d.offsets_entry = entries.of_offsets(axis);
}

inline void describe_ids(const BlobIds& blob, Descriptor& d) {
  describe_requests(blob.requests, blob.axis, blob.parent < 0 ? blob.axis : blob.parent, blob.input, d);
  d.form = blob.parent < 0 ? IdsForm::blob_each : blob.parent == 0 ? IdsForm::blob_one_segment : IdsForm::blob_segments;
  d.default_id = blob.default_id.value_or(0);
  d.default_value = blob.default_weight;
  d.ids_are_narrow = blob.wire == IdsWire::i32;
  if (blob.weights.data != nullptr) {
    d.weights = static_cast<const unsigned char*>(blob.weights.data);
    d.weights_are_half = blob.weights.type == DType::f16;
    d.weights_stride = blob.weights.stride * size_of(blob.weights.type);
  } else if (blob.weights_input >= 0) {
    d.weights_entry = BlobEntries(blob.requests).of_input(blob.requests.num_ids + blob.weights_input);
    const int64_t bytes = size_of(blob.weights_wire);
    d.weights_are_half = blob.weights_wire == DenseWire::f16;
    d.weights_are_bfloat16 = blob.weights_wire == DenseWire::bf16;
    d.weights_stride = blob.weights_width * bytes;
    d.weights_column_bytes = static_cast<uint32_t>(blob.weights_column * bytes);
  }
}

inline void describe_ids(const BlobDense&, Descriptor&) {}  // never here

/// Everything but where the feature's part of the workspace is.
inline Descriptor describe(const BagFeature& feature, const Policy& policy) {
  Descriptor d{};
  const TableView& table = feature.table;
  d.rows = static_cast<const unsigned char*>(table.rows);
  d.num_rows = table.num_rows;
  d.num_bags = feature.num_bags.actual;
  d.max_bags = feature.num_bags.capacity;
  d.has_padding = feature.padding.has_value() || !feature.hashed;
  d.padding = feature.padding.value_or(-1);
  d.counters = feature.counters;
  d.row_stride_bytes = static_cast<uint32_t>(table.row_stride_bytes);
  d.dim = static_cast<uint32_t>(table.dim);
  d.shape = row_shape(feature);
  d.type = table.type;
  d.pooling = feature.pooling;
  d.is_hashed = feature.hashed.has_value();
  d.is_weighted = is_weighted(feature);
  d.scale = table.scale;
  d.offset = table.offset;
  d.default_row = table.default_row;
  d.has_default_row = table.default_row != nullptr;
  d.max_ids = max_ids(feature);
  d.cuts_bags = has_segments(feature) && d.max_ids > policy.ids_per_piece &&
                (feature.max_bag_ids == 0 || feature.max_bag_ids > policy.ids_per_piece);
  if (feature.hashed) d.table = *feature.hashed;
  std::visit([&](const auto& ids) { describe_ids(ids, d); }, feature.ids);
  std::visit(
      [&](const auto& y) {
        constexpr int64_t bytes = sizeof(*y.data);
        d.y = reinterpret_cast<unsigned char*>(y.data);
        d.y_stride = static_cast<uint32_t>(y.stride);
        d.y_is_half = bytes == sizeof(half);
        const int64_t wanted = std::min<int64_t>(16, d.shape.lane_bytes / size_of(table.type) * bytes);
        d.y_is_aligned = alignment_of(y.data) >= wanted && y.stride * bytes % wanted == 0;
      },
      feature.y);
  return d;
}

/// How much of a descriptor the kernel reads.
inline uint32_t descriptor_bytes(const Descriptor& d) {
  if (d.is_hashed) return bytes_up_to(Part::hash_table);
  if (is_in_requests(d.form)) return bytes_up_to(Part::requests);
  const bool needs_more = d.form != IdsForm::each || d.is_weighted || d.has_default_row || d.type == DType::i8;
  return bytes_up_to(needs_more ? Part::arrays : Part::always);
}

// ---- Blocks

/// Blocks that a feature can use at its capacity: so many that a warp has 4 KB of rows, or 32 bags, or one piece.
inline int64_t useful_blocks(const Descriptor& d, int64_t num_ids, const Policy& policy) {
  constexpr int64_t bytes_of_a_warp = 4096;
  const int64_t row_bytes = int64_t{d.shape.num_parts} * d.shape.lane_bytes;
  const int64_t ids_of_a_warp = std::clamp<int64_t>(bytes_of_a_warp / row_bytes, 1, 32);
  const int64_t units = std::max(num_ids / ids_of_a_warp, d.max_bags / 32) + 1;
  constexpr int64_t most = 2047;  // so that there are at most 11 groups of each kind of descriptor
  return std::min((units * 32 + policy.threads - 1) / policy.threads, most);
}

struct Work {
  int64_t feature;  ///< in the order of the caller
  uint32_t descriptor_bytes;
  int64_t blocks;
};

/// Gives each feature its blocks: those of much work first, in groups; at most `max_blocks` unless there are more
/// features. Sorts `work` into the order of the descriptors.
inline Partition partition_blocks(std::vector<Work>& work, int64_t max_blocks) {
  int64_t total = 0;
  for (const Work& w : work) total += w.blocks;
  if (total > max_blocks) {
    for (Work& w : work) {
      const double share = static_cast<double>(w.blocks) / static_cast<double>(total);
      w.blocks = std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(max_blocks)));
    }
  }
  std::stable_sort(work.begin(), work.end(), [](const Work& a, const Work& b) {
    return a.descriptor_bytes != b.descriptor_bytes ? a.descriptor_bytes > b.descriptor_bytes : a.blocks > b.blocks;
  });
  Partition partition{};
  int64_t next_block = 0;
  for (size_t begin = 0, end; begin < work.size(); begin = end) {
    // Those with more than half as many blocks as the first get as few as the last of them.
    end = begin;
    while (end < work.size() && work[end].descriptor_bytes == work[begin].descriptor_bytes &&
           work[end].blocks * 2 > work[begin].blocks) {
      ++end;
    }
    const int64_t blocks = work[end - 1].blocks;
    partition.groups[partition.num_groups++] = {static_cast<uint32_t>(next_block), static_cast<uint32_t>(begin),
                                                static_cast<uint32_t>(blocks), work[begin].descriptor_bytes};
    next_block += static_cast<int64_t>(end - begin) * blocks;
  }
  partition.num_blocks = static_cast<uint32_t>(next_block);
  return partition;
}

}  // namespace warprank::detail::embedding_bag::general
