// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A whole hash table as one range of bytes: a header of 128 bytes, then its buckets. The bytes are the same in memory,
/// on a device and in a file. docs/TABLE_FORMAT.md describes each of them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/header.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/hash_table/view.hpp"

namespace warprank { inline namespace v0 {

/// The header of an image. Throws as check_hash_table_header does; reads no other bytes.
inline HashTableHeader read_hash_table_header(const std::string& where, Span<const unsigned char> image) {
  if (image.size() < hash_table::header_bytes)
    throw invalid_argument(where + ": size", "128 bytes or more", std::to_string(image.size()));
  HashTableHeader header;
  std::memcpy(&header, image.data(), sizeof header);
  check_hash_table_header(where, header, image.size());
  return header;
}

/// A view of an image, in any memory, whose header was read; its size counter is in the image itself.
inline HashTableView view_hash_table(const HashTableHeader& header, unsigned char* image) {
  HashTableView view;
  view.buckets = image + hash_table::header_bytes;
  view.size = reinterpret_cast<uint64_t*>(image + offsetof(HashTableHeader, size));
  view.placement = {header.seed, header.num_buckets, header.num_overflow, static_cast<int32_t>(header.max_probes)};
  view.type = static_cast<DType>(header.type);
  view.is_mutable = header.is_mutable == 1;
  view.dim = static_cast<int64_t>(header.dim);
  view.row_bytes = hash_table::row_bytes(view.type, view.dim);
  view.shape = hash_table::shape_of(view.row_bytes, view.is_mutable);
  return view;
}

/// The header of the table of `view`, without its checksums.
inline HashTableHeader make_hash_table_header(const HashTableView& view, uint64_t size) {
  HashTableHeader header;
  header.layout = static_cast<uint32_t>(view.shape.layout);
  header.type = static_cast<uint32_t>(view.type);
  header.is_mutable = view.is_mutable ? 1 : 0;
  header.max_probes = static_cast<uint32_t>(view.placement.max_probes);
  header.image_bytes = hash_table::header_bytes + view.num_buckets() * static_cast<uint64_t>(view.shape.bucket_bytes);
  header.dim = static_cast<uint64_t>(view.dim);
  header.row_bytes = static_cast<uint64_t>(view.row_bytes);
  header.num_slots = static_cast<uint64_t>(view.shape.num_slots);
  header.row_stride = static_cast<uint64_t>(view.shape.row_stride);
  header.bucket_bytes = static_cast<uint64_t>(view.shape.bucket_bytes);
  header.seed = view.placement.seed;
  header.num_buckets = view.placement.num_buckets;
  header.num_overflow = view.placement.num_overflow;
  header.size = size;
  return header;
}

}}  // namespace warprank::v0
