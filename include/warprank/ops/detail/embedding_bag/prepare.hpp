// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part: checks features, writes their descriptors, and divides blocks among them.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "warprank/batch/format.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/embedding_bag/descriptor.hpp"

namespace warprank::detail::embedding_bag {

inline constexpr int64_t workspace_alignment = 256;

template <class Value>
int64_t alignment_of(const Value* address, int64_t limit = 16) {
  const auto bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
  return std::gcd(bits == 0 ? limit : bits, limit);
}

/// Whether ids of bags are segments, which may be cut, and not single.
inline bool has_segments(const BagFeature& feature) {
  if (const auto* array = std::get_if<IdArray>(&feature.ids))
    return array->offsets != nullptr || array->indices != nullptr;
  return std::get<BlobIds>(feature.ids).parent >= 0;
}
inline bool is_weighted(const BagFeature& feature) {
  if (const auto* array = std::get_if<IdArray>(&feature.ids)) return array->weights != nullptr;
  return std::get<BlobIds>(feature.ids).weights_input >= 0;
}
inline int64_t max_ids(const BagFeature& feature) {
  if (!has_segments(feature)) return feature.num_bags.capacity;
  return std::visit([](const auto& ids) { return ids.num_ids.capacity; }, feature.ids);
}

// ---- What a caller can get wrong

class FeatureCheck {
 public:
  FeatureCheck(const BagFeature& feature, int64_t index, Problems& problems)
      : f_(feature), name_("feature " + std::to_string(index)), problems_(problems) {}

  void run() {
    check_table();
    check_count("number of bags", f_.num_bags);
    if (f_.max_bag_ids < 0) add("max_bag_ids", "0 or more", std::to_string(f_.max_bag_ids));
    std::visit([this](const auto& ids) { check_ids(ids); }, f_.ids);
    if (f_.pooling == Pooling::none && has_segments(f_)) add("pooling none", "one id per bag", "bags");
    if (is_weighted(f_) && (f_.pooling == Pooling::none || f_.pooling == Pooling::max)) {
      add("weights", "pooling sum, mean or sqrtn", name_of_enum(f_.pooling));
    }
    std::visit([this](const auto& y) { check_output(y); }, f_.y);
    check_pointer("counters", f_.counters, false);
  }

 private:
  void add(const std::string& what, const std::string& expected, const std::string& got) {
    problems_.add(name_ + ", " + what, expected, got);
  }
  template <class Value>
  void check_pointer(const std::string& what, const Value* pointer, bool is_needed,
                     int64_t alignment = alignof(Value)) {
    if (pointer == nullptr) {
      if (is_needed) add(what, "device memory", "null");
    } else if (alignment_of(pointer) < alignment) {
      add(what, "an address aligned to " + std::to_string(alignment), address_text(pointer));
    }
  }
  static std::string address_text(const void* pointer) {
    return "one aligned to " + std::to_string(alignment_of(static_cast<const char*>(pointer)));
  }
  void check_count(const std::string& what, const DeviceCount& count) {
    if (count.capacity < 0) add(what, "a capacity of 0 or more", std::to_string(count.capacity));
    check_pointer(what, count.actual, false);
  }
  void check_range(const std::string& what, int64_t value, int64_t begin, int64_t end) {
    if (value >= begin && value < end) return;
    add(what, std::to_string(begin) + " to " + std::to_string(end - 1), std::to_string(value));
  }

  void check_table() {
    const TableView& table = f_.table;
    if (table.dim < 1 || table.dim > max_dim) {
      return add("dim", "1 to " + std::to_string(max_dim), std::to_string(table.dim));
    }
    if (table.type == DType::i64) return add("rows", "F32, F16, BF16 or I8", name_of(table.type));
    check_pointer("default row", table.default_row, false);
    if (f_.hashed) {
      const HashTableView& hashed = *f_.hashed;
      if (hashed.dim != table.dim)
        add("hash table", std::to_string(table.dim) + " columns", std::to_string(hashed.dim));
      if (hashed.type != table.type) add("hash table", name_of(table.type), name_of(hashed.type));
      check_pointer("hash table", hashed.buckets, true, 16);
      return;
    }
    if (table.num_rows < 0) add("rows", "0 or more", std::to_string(table.num_rows));
    if (table.row_stride_bytes < table.row_bytes() || table.row_stride_bytes > UINT32_MAX) {
      add("row stride", std::to_string(table.row_bytes()) + " to " + std::to_string(UINT32_MAX) + " bytes",
          std::to_string(table.row_stride_bytes));
    }
    const bool has_rows = table.num_rows > 0;
    check_pointer("rows", static_cast<const unsigned char*>(table.rows), has_rows);
    check_pointer("scale", table.scale, has_rows && table.type == DType::i8);
    check_pointer("offset", table.offset, has_rows && table.type == DType::i8);
  }

  void check_ids(const IdArray& array) {
    const int64_t capacity = max_ids(f_);
    if (has_segments(f_)) check_count("number of ids", array.num_ids);
    check_pointer("ids", array.ids, capacity > 0);
    check_pointer("offsets", array.offsets, false);
    check_pointer("indices", array.indices, false);
    check_pointer("weights", array.weights, false);
    if (array.weights_stride < 0) add("weights stride", "0 or more", std::to_string(array.weights_stride));
    if (array.offsets != nullptr && array.indices != nullptr) add("ids", "offsets or indices", "both");
  }

  void check_ids(const BlobIds& blob) {
    const RequestBlobs& requests = blob.requests;
    check_count("number of requests", requests.num_requests);
    check_count("number of ids", blob.num_ids);
    check_pointer("blobs", requests.bytes, requests.num_requests.capacity > 0, 8);
    check_pointer("positions of blobs", requests.positions, requests.num_requests.capacity > 0);
    check_pointer("row starts", requests.row_starts, true);
    check_range("ids input", blob.input, 0, requests.num_ids);
    check_range("axis of the ids", blob.axis, 0, requests.num_axes);
    if (blob.parent != -1) check_range("axis of the bags", blob.parent, 0, std::min(blob.axis, requests.num_axes));
    if (blob.weights_input == -1) return;
    check_range("weights input", blob.weights_input, 0, requests.num_dense);
    check_range("weights column", blob.weights_column, 0, blob.weights_width);
  }

  template <class Value>
  void check_output(const Matrix<Value>& y) {
    if (y.cols != f_.table.dim) add("y", std::to_string(f_.table.dim) + " columns", std::to_string(y.cols));
    if (y.rows < f_.num_bags.capacity) {
      add("y", "a row for each of " + std::to_string(f_.num_bags.capacity) + " bags", std::to_string(y.rows));
    }
    const int64_t stride = y.stride;
    if (stride < y.cols || stride > UINT32_MAX) {
      add("y", "a stride of " + std::to_string(y.cols) + " to " + std::to_string(UINT32_MAX), std::to_string(stride));
    }
    check_pointer("y", y.data, f_.num_bags.capacity > 0);
  }

  static constexpr int64_t max_dim = int64_t{1} << 24;

  const BagFeature& f_;
  std::string name_;
  Problems& problems_;
};

// ---- Descriptors

/// How lanes read rows of `row_bytes` at multiples of `alignment`, at most 16.
inline RowShape row_shape(int64_t row_bytes, int64_t element_bytes, int64_t alignment) {
  RowShape shape;
  int64_t lane_bytes = std::clamp(alignment, element_bytes, max_lane_elements * element_bytes);
  constexpr int64_t smallest_tile = 8;
  // No lane of the smallest tile is left idle for the sake of wide loads.
  while (lane_bytes > element_bytes && row_bytes <= lane_bytes / 2 * smallest_tile) lane_bytes /= 2;
  const int64_t parts = row_bytes / lane_bytes;
  shape.lane_bytes = static_cast<uint8_t>(lane_bytes);
  shape.load_bytes = static_cast<uint8_t>(std::min(lane_bytes, alignment));
  shape.tile_log2 = parts <= smallest_tile ? 3 : parts <= 2 * smallest_tile ? 4 : 5;
  shape.num_parts = static_cast<uint32_t>(parts);
  return shape;
}

inline RowShape row_shape(const BagFeature& feature) {
  const TableView& table = feature.table;
  if (!feature.hashed) {
    const int64_t alignment = std::gcd(std::gcd(alignment_of(static_cast<const char*>(table.rows)), table.row_bytes()),
                                       table.row_stride_bytes);
    return row_shape(table.row_bytes(), size_of(table.type), alignment);
  }
  // Slots are padded, so whole words can be read.
  const int64_t alignment = std::gcd<int64_t>(16, feature.hashed->shape.row_stride);
  return row_shape((table.row_bytes() + alignment - 1) / alignment * alignment, size_of(table.type), alignment);
}

inline void describe_ids(const IdArray& array, Descriptor& d) {
  d.form = array.offsets != nullptr ? IdsForm::offsets : array.indices != nullptr ? IdsForm::indices : IdsForm::each;
  d.ids = array.ids;
  d.bounds = array.offsets != nullptr ? array.offsets : array.indices;
  d.num_ids = array.num_ids.actual;
  d.weights = array.weights;
  d.weights_stride = array.weights_stride;
}

inline void describe_ids(const BlobIds& blob, Descriptor& d) {
  const RequestBlobs& requests = blob.requests;
  const int64_t stride = requests.num_requests.capacity + 1;
  const auto rows_at = static_cast<int64_t>(sizeof(BlobHeader));
  const int64_t offsets_at = rows_at + 4 * requests.num_axes, data_at = offsets_at + 4 * requests.num_axes;
  d.form = blob.parent < 0 ? IdsForm::blob_each : blob.parent == 0 ? IdsForm::blob_one_segment : IdsForm::blob_segments;
  d.blobs = requests.bytes;
  d.positions = requests.positions;
  d.id_starts = requests.row_starts + blob.axis * stride;
  d.bag_starts = requests.row_starts + (blob.parent < 0 ? blob.axis : blob.parent) * stride;
  d.num_requests = requests.num_requests.actual;
  d.max_requests = requests.num_requests.capacity;
  d.default_id = blob.default_id.value_or(0);
  d.ids_entry = static_cast<uint32_t>(data_at + 4 * blob.input);
  d.weights_entry = static_cast<uint32_t>(data_at + 4 * (requests.num_ids + blob.weights_input));
  d.offsets_entry = static_cast<uint32_t>(offsets_at + 4 * blob.axis);
  d.weights_width = static_cast<uint32_t>(blob.weights_width);
  d.weights_stride = blob.weights_width;
  d.weights_column = static_cast<uint32_t>(blob.weights_column);
  d.default_weight = blob.default_weight;
}

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
  const bool in_blobs =
      d.form == IdsForm::blob_each || d.form == IdsForm::blob_segments || d.form == IdsForm::blob_one_segment;
  const bool needs_second = d.form != IdsForm::each || d.is_weighted || d.has_default_row || d.type == DType::i8;
  return descriptor_bytes(needs_second, d.is_hashed || in_blobs);
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

}  // namespace warprank::detail::embedding_bag
