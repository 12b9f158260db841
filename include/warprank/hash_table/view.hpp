// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A view of a hash table for look-ups. Plain data: on a GPU its pointers are to device memory, for the host engine to
/// host memory.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/host_device.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 {

/// A view of one table's buckets; layout.hpp describes their parts.
struct HashTableView {
  unsigned char* buckets = nullptr;  ///< [num_buckets + num_overflow][bucket_bytes], aligned to 128
  uint64_t* size = nullptr;          ///< number of keys; updates keep it right
  hash_table::Placement placement;
  hash_table::BucketShape shape;
  DType type = DType::f32;  ///< of the rows
  bool is_mutable = false;  ///< rows may be changed while they are read
  int64_t dim = 0;
  int64_t row_bytes = 0;  ///< hash_table::row_bytes(type, dim)

  WARPRANK_HOST_DEVICE constexpr uint64_t num_buckets() const { return placement.num_buckets + placement.num_overflow; }
  WARPRANK_HOST_DEVICE unsigned char* bucket(uint64_t index) const {
    return buckets + index * static_cast<uint64_t>(shape.bucket_bytes);
  }
  /// The first line of a bucket, 16 words.
  WARPRANK_HOST_DEVICE uint64_t* line(uint64_t index) const { return reinterpret_cast<uint64_t*>(bucket(index)); }
  WARPRANK_HOST_DEVICE unsigned char* row(uint64_t index, int slot) const {
    return bucket(index) + shape.rows_begin + slot * shape.row_stride;
  }
};

}}  // namespace warprank::v0
