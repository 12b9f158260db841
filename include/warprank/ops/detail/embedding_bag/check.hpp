// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a caller can get wrong with features.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/common/check_float_matrix.hpp"
#include "warprank/ops/detail/embedding_bag/record.hpp"
#include "warprank/ops/detail/hash_table/check.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

inline constexpr int64_t workspace_alignment = 256;

template <class Value>
int64_t alignment_of(const Value* address, int64_t limit = 16) {
  const auto bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
  return std::gcd(bits == 0 ? limit : bits, limit);
}

inline bool is_dense(const BagFeature& feature) { return std::holds_alternative<BlobDense>(feature.ids); }

/// Whether ids of bags are segments, which may be cut, and not single.
inline bool has_segments(const IdArray& ids) { return ids.offsets != nullptr || ids.indices != nullptr; }
inline bool has_segments(const BlobIds& ids) { return ids.parent >= 0; }
inline bool has_segments(const BlobDense&) { return false; }
inline bool has_segments(const BagFeature& feature) {
  return std::visit([](const auto& ids) { return has_segments(ids); }, feature.ids);
}

inline bool is_weighted(const IdArray& ids) { return ids.weights != nullptr; }
inline bool is_weighted(const BlobIds& ids) { return ids.weights_input >= 0 || ids.weights.data != nullptr; }
inline bool is_weighted(const BlobDense&) { return false; }
inline bool is_weighted(const BagFeature& feature) {
  return std::visit([](const auto& ids) { return is_weighted(ids); }, feature.ids);
}

inline int64_t max_ids(const IdArray& ids) { return ids.num_ids.capacity; }
inline int64_t max_ids(const BlobIds& ids) { return ids.num_ids.capacity; }
inline int64_t max_ids(const BlobDense&) { return 0; }
inline int64_t max_ids(const BagFeature& feature) {
  if (!has_segments(feature)) return feature.num_bags.capacity;
  return std::visit([](const auto& ids) { return max_ids(ids); }, feature.ids);
}

class FeatureCheck {
 public:
  FeatureCheck(const BagFeature& feature, int64_t index, Problems& problems)
      : f_(feature), name_("feature " + std::to_string(index)), problems_(problems) {}

  void run() {
    if (f_.table.dim < 1 || f_.table.dim > max_dim) {
      add("dim", "1 to " + std::to_string(max_dim), std::to_string(f_.table.dim));
    } else if (!is_dense(f_)) {
      check_table();
    }
    check_many("number of bags", f_.num_bags);
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
  /// Of what the kernel counts in 32 bits, with steps between.
  void check_many(const std::string& what, const DeviceCount& count) {
    check_count(what, count);
    if (count.capacity >= many) {
      add(what, "a capacity of less than " + std::to_string(many), std::to_string(count.capacity));
    }
  }
  void check_range(const std::string& what, int64_t value, int64_t begin, int64_t end) {
    if (value >= begin && value < end) return;
    add(what, std::to_string(begin) + " to " + std::to_string(end - 1), std::to_string(value));
  }

  void check_table() {
    const TableView& table = f_.table;
    if (table.type == DType::i64 || size_of(table.type) == 0)
      return add("rows", "F32, F16, BF16 or I8", name_of(table.type));
    check_pointer("default row", table.default_row, false);
    check_pointer("list of absent keys", f_.absent, false);
    if (f_.absent != nullptr && f_.cache == nullptr) add("list of absent keys", "a table with a cache", "one without");
    if (f_.hashed) {
      const HashTableView& hashed = *f_.hashed;
      if (hashed.dim != table.dim)
        add("hash table", std::to_string(table.dim) + " columns", std::to_string(hashed.dim));
      if (hashed.type != table.type) add("hash table", name_of(table.type), name_of(hashed.type));
      return hashed::check_view(name_ + ", hash table", hashed, problems_);
    }
    check_pointer("cache", f_.cache, false);
    if (f_.cache != nullptr) check_cached_rows();
    if (table.num_rows < 0 || table.num_rows >= missing_row) {
      add("rows", "0 to " + std::to_string(missing_row - 1), std::to_string(table.num_rows));
    }
    if (table.row_stride_bytes < table.row_bytes() || table.row_stride_bytes > UINT32_MAX) {
      add("row stride", std::to_string(table.row_bytes()) + " to " + std::to_string(UINT32_MAX) + " bytes",
          std::to_string(table.row_stride_bytes));
    }
    const bool has_rows = table.num_rows > 0;
    check_pointer("rows", static_cast<const unsigned char*>(table.rows), has_rows);
    check_pointer("scale", table.scale, has_rows && table.type == DType::i8);
    check_pointer("offset", table.offset, has_rows && table.type == DType::i8);
    const int64_t stride = table.scale_stride_bytes;
    if (table.type == DType::i8 && (stride < 4 || stride > UINT32_MAX || stride % 4 != 0)) {
      add("scale stride", "a multiple of 4 up to " + std::to_string(UINT32_MAX) + " bytes", std::to_string(stride));
    }
  }

  /// Of a direct table.
  void check_cached_rows() {
    const TableView& table = f_.table;
    const int64_t bytes = hash_table::row_bytes(table.type, table.dim), stride = (bytes + 15) / 16 * 16;
    if (bytes > hash_table::max_row_bytes) add("cached rows", "at most 1024 bytes", std::to_string(bytes));
    if (table.row_stride_bytes != stride)
      add("cached rows", std::to_string(stride) + " bytes from one to the next",
          std::to_string(table.row_stride_bytes));
    check_pointer("cached rows", static_cast<const unsigned char*>(table.rows), false, 16);
  }

  void check_ids(const IdArray& array) {
    const int64_t capacity = max_ids(f_);
    if (has_segments(f_)) check_many("number of ids", array.num_ids);
    check_pointer("ids", array.ids, capacity > 0);
    check_pointer("offsets", array.offsets, false);
    check_pointer("indices", array.indices, false);
    check_pointer("weights", array.weights, false);
    if (array.weights_stride < 0) add("weights stride", "0 or more", std::to_string(array.weights_stride));
    if (array.offsets != nullptr && array.indices != nullptr) add("ids", "offsets or indices", "both");
  }

  void check_requests(const RequestBlobs& requests) {
    const int64_t capacity = requests.num_requests.capacity;
    check_count("number of requests", requests.num_requests);
    check_pointer("blobs", requests.bytes, capacity > 0, 8);
    check_pointer("positions of blobs", requests.positions, capacity > 0);
    check_pointer("row starts", requests.row_starts, true);
    if (requests.stride_of_row_starts() <= capacity) {
      add("stride of row starts", "more than the " + std::to_string(capacity) + " requests",
          std::to_string(requests.row_starts_stride));
    }
  }

  void check_ids(const BlobIds& blob) {
    const RequestBlobs& requests = blob.requests;
    check_requests(requests);
    check_many("number of ids", blob.num_ids);
    check_range("ids input", blob.input, 0, requests.num_ids);
    check_range("axis of the ids", blob.axis, 0, requests.num_axes);
    if (blob.parent != -1) check_range("axis of the bags", blob.parent, 0, std::min(blob.axis, requests.num_axes));
    const bool has_matrix = blob.weights.data != nullptr;
    if (has_matrix) {
      const int64_t num_ids = has_segments(f_) ? blob.num_ids.capacity : f_.num_bags.capacity;
      check_matrix(name_ + ", weights", blob.weights, num_ids, 1, problems_);
    }
    if (blob.weights_input == -1) return;
    if (has_matrix) add("weights", "an input or a matrix", "both");
    check_range("weights input", blob.weights_input, 0, requests.num_dense);
    check_range("weights column", blob.weights_column, 0, blob.weights_width);
  }

  void check_ids(const BlobDense& blob) {
    check_requests(blob.requests);
    check_range("dense input", blob.input, 0, blob.requests.num_dense);
    check_range("axis of the values", blob.axis, 0, blob.requests.num_axes);
    if (f_.hashed) add("dense values", "no table", "a hash table");
    if (f_.pooling != Pooling::none) add("dense values", "pooling none", name_of_enum(f_.pooling));
    if (f_.counters != nullptr) add("dense values", "no counters", "some");
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

  static constexpr int64_t max_dim = int64_t{1} << 24, many = int64_t{1} << 30;

  const BagFeature& f_;
  std::string name_;
  Problems& problems_;
};

// ---- Overlaps

struct NamedRegion {
  const char* name;
  Region region;
};

/// An array of a feature.
template <class Value>
NamedRegion region_of(const char* name, const Value* data, int64_t size) {
  const int64_t bytes = data == nullptr ? 0 : size * static_cast<int64_t>(sizeof(Value));
  return {name, {reinterpret_cast<uintptr_t>(data), 1, bytes, bytes}};
}

/// The scales or the offsets of a table.
inline NamedRegion region_of_numbers(const char* name, const float* numbers, const TableView& table) {
  return {name,
          {reinterpret_cast<uintptr_t>(numbers), numbers == nullptr ? 0 : table.num_rows, 4, table.scale_stride_bytes}};
}

inline Region output_region(const BagFeature& feature) {
  return std::visit(
      [&](const auto& y) {
        Region region = detail::region_of(FloatMatrix<const void>(y));
        region.rows = y.data == nullptr ? 0 : feature.num_bags.capacity;
        return region;
      },
      feature.y);
}

inline void add_regions(const RequestBlobs& requests, std::vector<NamedRegion>& regions) {
  regions.push_back(region_of("positions of blobs", requests.positions, requests.num_requests.capacity));
  regions.push_back(region_of("row starts", requests.row_starts, requests.num_axes * requests.stride_of_row_starts()));
  regions.push_back(region_of("number of requests", requests.num_requests.actual, 1));
}
inline void add_regions(const IdArray& array, const BagFeature& feature, std::vector<NamedRegion>& regions) {
  const int64_t num_ids = max_ids(feature);
  const int64_t num_weights = num_ids == 0 ? 0 : (num_ids - 1) * array.weights_stride + 1;
  regions.push_back(region_of("ids", array.ids, num_ids));
  regions.push_back(region_of("number of ids", array.num_ids.actual, 1));
  regions.push_back(region_of("offsets", array.offsets, feature.num_bags.capacity + 1));
  regions.push_back(region_of("indices", array.indices, num_ids));
  regions.push_back(region_of("weights", array.weights, num_weights));
}
inline void add_regions(const BlobIds& blob, const BagFeature&, std::vector<NamedRegion>& regions) {
  add_regions(blob.requests, regions);
  regions.push_back({"weights", detail::region_of(blob.weights)});
}
inline void add_regions(const BlobDense& blob, const BagFeature&, std::vector<NamedRegion>& regions) {
  add_regions(blob.requests, regions);
}

/// What a feature reads, as far as its size is known: blobs are not among it.
inline std::vector<NamedRegion> input_regions(const BagFeature& feature) {
  std::vector<NamedRegion> regions{region_of("number of bags", feature.num_bags.actual, 1)};
  std::visit([&](const auto& ids) { add_regions(ids, feature, regions); }, feature.ids);
  if (is_dense(feature)) return regions;
  const TableView& table = feature.table;
  if (feature.hashed) {
    const auto bytes = static_cast<int64_t>(feature.hashed->num_buckets()) * feature.hashed->shape.bucket_bytes;
    regions.push_back(region_of("hash table", feature.hashed->buckets, bytes));
  } else {
    const int64_t bytes = table.num_rows == 0 ? 0 : (table.num_rows - 1) * table.row_stride_bytes + table.row_bytes();
    regions.push_back(region_of("rows", static_cast<const unsigned char*>(table.rows), bytes));
    regions.push_back(region_of_numbers("scale", table.scale, table));
    regions.push_back(region_of_numbers("offset", table.offset, table));
  }
  regions.push_back(region_of("default row", table.default_row, table.dim));
  return regions;
}

/// That no feature writes what it or another reads or writes.
inline void check_overlaps(Span<const BagFeature> features, Problems& problems) {
  std::vector<Region> outputs;
  for (const BagFeature& feature : features) outputs.push_back(output_region(feature));
  const auto check = [&](int64_t i, const char* name, const Region& region, int64_t j) {
    if (!overlap(outputs[static_cast<size_t>(i)], region)) return;
    problems.add("y of feature " + std::to_string(i), "memory of its own",
                 "an overlap with " + std::string(name) + " of feature " + std::to_string(j));
  };
  for (int64_t j = 0; j < features.size(); ++j) {
    const std::vector<NamedRegion> inputs = input_regions(features[j]);
    for (int64_t i = 0; i < features.size(); ++i) {
      for (const NamedRegion& input : inputs) check(i, input.name, input.region, j);
      if (i < j) check(i, "y", outputs[static_cast<size_t>(j)], j);
    }
  }
}

/// Throws invalid_argument with all that is wrong.
inline void check_features(Span<const BagFeature> features) {
  Problems problems;
  for (int64_t i = 0; i < features.size(); ++i) FeatureCheck(features[i], i, problems).run();
  problems.throw_if_any();
  check_overlaps(features, problems);
  problems.throw_if_any();
}

}}}  // namespace warprank::v0::detail::embedding_bag
