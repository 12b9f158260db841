// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/hash_table/detail/checksum.hpp"
#include "warprank/hash_table/layout.hpp"

namespace warprank { inline namespace v0 {

inline constexpr uint32_t hash_table_version = 1;

/// The bytes before the buckets. Any change to the meaning of bytes, also to the hash, changes the version.
struct HashTableHeader {
  char letters[8] = {'w', 'r', '-', 't', 'a', 'b', 'l', 'e'};
  uint32_t byte_order = 0x01020304;
  uint32_t version = hash_table_version;
  uint32_t layout = 0;  ///< of hash_table::Layout
  uint32_t type = 0;    ///< of the rows: 0 F32, 1 F16, 2 BF16, 3 I8
  uint32_t is_mutable = 0;
  uint32_t max_probes = 0;
  uint64_t image_bytes = 0;  ///< with this header
  uint64_t dim = 0;
  uint64_t row_bytes = 0;
  uint64_t num_slots = 0;   ///< rows in a bucket
  uint64_t row_stride = 0;  ///< bytes from one row of a bucket to the next
  uint64_t bucket_bytes = 0;
  uint64_t seed = 0;
  uint64_t num_buckets = 0;
  uint64_t num_overflow = 0;
  uint64_t size = 0;  ///< number of keys
  uint64_t buckets_checksum = 0;
  uint64_t header_checksum = 0;  ///< of the 120 bytes before
};
static_assert(sizeof(HashTableHeader) == 128 && offsetof(HashTableHeader, header_checksum) == 120);
static_assert(static_cast<int>(DType::f32) == 0 && static_cast<int>(DType::f16) == 1 &&
              static_cast<int>(DType::bf16) == 2 && static_cast<int>(DType::i8) == 3);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "images are used as they lie in memory");

namespace hash_table {

inline constexpr int64_t header_bytes = sizeof(HashTableHeader);

inline uint64_t checksum_of_header(const HashTableHeader& header) {
  return warprank::detail::checksum_of_block(reinterpret_cast<const unsigned char*>(&header), header_bytes - 8);
}

/// Bytes of all buckets; false when they are too many for any memory.
inline bool buckets_bytes(uint64_t num_buckets, uint64_t num_overflow, int64_t bucket_bytes, int64_t& bytes) {
  constexpr uint64_t most = uint64_t{1} << 62;
  if (num_buckets > most || num_overflow > most) return false;
  int64_t sum = 0;
  return !__builtin_mul_overflow(static_cast<int64_t>(num_buckets + num_overflow), bucket_bytes, &bytes) &&
         !__builtin_add_overflow(bytes, header_bytes, &sum);
}

}  // namespace hash_table

/// Throws invalid_argument, about `where`, unless a header is whole, of this version and byte order, and its numbers
/// agree with one another and with the size of the image.
inline void check_hash_table_header(const std::string& where, const HashTableHeader& header, int64_t image_bytes) {
  using namespace hash_table;
  const auto refuse = [&](const char* what, const std::string& expected, const std::string& got) {
    raise(invalid_argument(where + ": " + what, expected, got));
  };
  const auto require = [&](bool holds, const char* what, const std::string& expected, uint64_t got) {
    if (!holds) refuse(what, expected, std::to_string(got));
  };
  const HashTableHeader model;
  if (std::memcmp(header.letters, model.letters, sizeof header.letters) != 0)
    refuse("first bytes", "those of a hash table, 'wr-table'", "others");
  if (header.byte_order != model.byte_order)
    refuse("byte order", "little-endian",
           header.byte_order == __builtin_bswap32(model.byte_order) ? "big-endian" : "neither that nor big-endian");
  require(header.version == hash_table_version, "version", std::to_string(hash_table_version), header.version);
  if (header.header_checksum != checksum_of_header(header))
    refuse("header", "bytes that agree with their checksum", "others: the image is damaged");

  require(header.layout == 1 || header.layout == 2, "layout", "1 (header) or 2 (inline)", header.layout);
  require(header.type <= 3, "row type", "0 (F32), 1 (F16), 2 (BF16) or 3 (I8)", header.type);
  require(header.is_mutable <= 1, "mutability", "0 or 1", header.is_mutable);
  require(1 <= header.dim && header.dim <= max_row_bytes, "dim", "1 to 1024", header.dim);
  const int64_t row = row_bytes(static_cast<DType>(header.type), static_cast<int64_t>(header.dim));
  require(row <= max_row_bytes, "bytes of a row", "at most 1024", static_cast<uint64_t>(row));
  require(header.row_bytes == static_cast<uint64_t>(row), "bytes of a row", std::to_string(row), header.row_bytes);
  const BucketShape shape = shape_of(row, header.is_mutable == 1);
  require(header.layout == static_cast<uint32_t>(shape.layout), "layout",
          std::to_string(static_cast<uint32_t>(shape.layout)) + " for its rows", header.layout);
  require(header.num_slots == static_cast<uint64_t>(shape.num_slots), "slots of a bucket",
          std::to_string(shape.num_slots), header.num_slots);
  require(header.row_stride == static_cast<uint64_t>(shape.row_stride), "bytes between rows",
          std::to_string(shape.row_stride), header.row_stride);
  require(header.bucket_bytes == static_cast<uint64_t>(shape.bucket_bytes), "bytes of a bucket",
          std::to_string(shape.bucket_bytes), header.bucket_bytes);

  require(header.num_buckets >= min_buckets, "buckets", "4 or more", header.num_buckets);
  int64_t size = 0;
  if (!buckets_bytes(header.num_buckets, header.num_overflow, shape.bucket_bytes, size))
    refuse("buckets", "less than 2^63 bytes",
           std::to_string(header.num_buckets) + " + " + std::to_string(header.num_overflow) + " buckets of " +
               std::to_string(shape.bucket_bytes) + " bytes");
  require(header.image_bytes == static_cast<uint64_t>(header_bytes + size), "bytes of the image",
          std::to_string(header_bytes + size) + " for its buckets", header.image_bytes);
  require(image_bytes == header_bytes + size, "size", std::to_string(header_bytes + size) + " bytes",
          static_cast<uint64_t>(image_bytes));
  require(2 <= header.max_probes && header.max_probes <= 64, "bound of probes", "2 to 64", header.max_probes);
  require(header.num_overflow == 0 ? header.max_probes == 2
                                   : header.max_probes > 2 && header.num_overflow >= 2 * (header.max_probes - 2ull),
          "overflow buckets", "0 with 2 probes, or twice those of the overflow", header.num_overflow);
  const auto slots = (header.num_buckets + header.num_overflow) * static_cast<uint64_t>(shape.num_keys());
  require(header.size <= slots, "keys", "no more than fit, " + std::to_string(slots), header.size);
}

}}  // namespace warprank::v0
